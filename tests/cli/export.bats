load helper

GOLDEN=$BATS_TEST_DIRNAME/../golden

export_to() { pesc export "$GOLDEN/$1" --to "$2" -o "$BATS_TEST_TMPDIR/out" "${@:3}"; }

@test "export: a GGUF file as a directory of its family" {
    export_to gguf/llama-square-q8_0.gguf hf
    [ "$status" = 0 ]
    has ': llama, '
    has '^identity: 0 of 4288 logits differ$'
    grep -q LlamaForCausalLM "$BATS_TEST_TMPDIR/out/config.json"
    grep -q bfloat16 "$BATS_TEST_TMPDIR/out/config.json"
    [[ $stderr == *"/llama-square-q8_0.gguf: its quantised weights (q8_0) are written as bf16, and the logits are compared with the source read as bf16; --dtype f32 rounds nothing"* ]]
    export_to gguf/llama-square-q8_0.gguf hf --overwrite --dtype f32
    [ "$status" = 0 ]
    [[ $stderr != *"quantised"* ]]
}

@test "export: the published layout of a model with adapters" {
    export_to camelidae-bin camelidae --json
    [ "$status" = 0 ]
    has '"family":"camelidae","experts":5,"top_k":3,.*"identity":\{"logits":4288,"differ":0,'
    grep -q configuration_camelidae.CamelidaeConfig "$BATS_TEST_TMPDIR/out/config.json"
}

@test "export: the LoRA as a PEFT adapter" {
    export_to peft/base peft --lora "$GOLDEN/peft/adapter"
    [ "$status" = 0 ]
    [ "$(ls "$BATS_TEST_TMPDIR/out" | paste -sd' ')" = "adapter_config.json adapter_model.safetensors" ]
    has '^identity: 0 of 4288 logits differ$'
    export_to peft/base peft --lora "$GOLDEN/peft/adapter" --overwrite --json
    has '^\{"path":".*","identity":\{"logits":4288,"differ":0,"max_diff":0,"relative":0,"kl":0,"positions":64,"greedy_same":64,"beyond_rounding":0\}\}$'
}

@test "export: a LoRA is folded into a whole model, as merge does" {
    export_to peft/base hf --lora "$GOLDEN/peft/adapter"
    [ "$status" = 0 ]
    has '^identity: max \|diff\| [0-9.e-]+ over 4288 logits, [0-9.e-]+ of the largest; KL [0-9.e-]+, greedy 64 of 64 \(rounding\)$'
    pesc merge "$GOLDEN/peft/base" --lora "$GOLDEN/peft/adapter" -o "$BATS_TEST_TMPDIR/merged"
    cmp "$BATS_TEST_TMPDIR/out/model.safetensors" "$BATS_TEST_TMPDIR/merged/model.safetensors"
    export_to peft/base hf --lora "$GOLDEN/peft/adapter" --merge-base nf4-dequant --overwrite
    [ "$status" = 0 ]
    refute cmp -s "$BATS_TEST_TMPDIR/out/model.safetensors" "$BATS_TEST_TMPDIR/merged/model.safetensors"
}

@test "export: models that a target format cannot hold" {
    export_to camelidae hf
    fails 2 "$GOLDEN/camelidae: has adapters (PESC), and no family of Hugging Face has a place for them; use --to camelidae"
    export_to llama camelidae
    fails 2 "$GOLDEN/llama: has no adapters (PESC), so it is no Camelidae model; pesc craft makes one of a dense model, --to hf writes it as it is"
    export_to llama peft
    fails 2 "$GOLDEN/llama: has no LoRA, and a PEFT directory holds nothing else"
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "export: usage errors" {
    pesc export "$GOLDEN/llama" -o "$BATS_TEST_TMPDIR/out"
    fails 2 "export: --to is missing; expected hf, peft or camelidae"
    pesc export "$GOLDEN/llama" --to hf
    fails 2 "export: -o DIR is missing; usage: pesc export MODEL --to TARGET -o DIR"
    export_to llama gguf
    fails 2 'export: --to: found "gguf", expected hf, peft or camelidae'
    export_to none hf
    fails 3 "$GOLDEN/none: there is no such file or directory"
}
