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

@test "export: a model with adapters for transformers, with a modelling file" {
    local family
    for family in camelidae camelidae-choices sparsetral qwen2idae; do
        export_to $family hf --overwrite
        [ "$status" = 0 ]
        has '^identity: 0 of 4288 logits differ$'
        cmp "$BATS_TEST_DIRNAME/../../share/python/modeling_pesc.py" "$BATS_TEST_TMPDIR/out/modeling_pesc.py"
        grep -q '"AutoModelForCausalLM": "modeling_pesc.Pesc[A-Z][a-z0-9]*ForCausalLM"' "$BATS_TEST_TMPDIR/out/config.json"
    done
    grep -q '"modeling_pesc.PescQwen2Config"' "$BATS_TEST_TMPDIR/out/config.json"
    grep -q '"model_type": "qwen2idae"' "$BATS_TEST_TMPDIR/out/config.json"
    export_to camelidae camelidae --overwrite
    [ ! -e "$BATS_TEST_TMPDIR/out/modeling_pesc.py" ]
}

@test "export: the LoRA as a PEFT adapter" {
    export_to peft/base peft --lora "$GOLDEN/peft/adapter"
    [ "$status" = 0 ]
    [ "$(ls "$BATS_TEST_TMPDIR/out" | paste -sd' ')" = "README.md adapter_config.json adapter_model.safetensors" ]
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
    export_to llama camelidae
    fails 2 "$GOLDEN/llama: has no adapters (PESC), so it is no Camelidae model; pesc craft makes one of a dense model, --to hf writes it as it is"
    export_to llama peft
    fails 2 "$GOLDEN/llama: has no LoRA, and a PEFT directory holds nothing else"
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "export: usage errors" {
    pesc export "$GOLDEN/llama" -o "$BATS_TEST_TMPDIR/out"
    fails 2 "export: --to is missing; expected hf, peft, gguf, camelidae or gguf-lora"
    pesc export "$GOLDEN/llama" --to hf
    fails 2 "export: -o DIR is missing; usage: pesc export MODEL --to TARGET -o DIR"
    export_to llama onnx
    fails 2 'export: --to: found "onnx", expected hf, peft, gguf, camelidae or gguf-lora'
    export_to llama hf --dtype q4_k
    fails 2 'dtype: found "q4_k", expected f32 or bf16'
    export_to none hf
    fails 3 "$GOLDEN/none: there is no such file or directory"
}

@test "export: a GGUF file of every family, read back bit for bit" {
    local family
    for family in llama llama3 mistral qwen2 qwen3 mixtral qwen2_moe qwen3_moe olmoe deepseek_v2 deepseek_v2-yarn camelidae qwen2idae sparsetral; do
        pesc export "$GOLDEN/$family" --to gguf -o "$BATS_TEST_TMPDIR/$family.gguf" --dtype f32
        [ "$status" = 0 ]
        has '^identity: 0 of 4288 logits differ from the source read as f32$'
        grep -qx "FROM ./$family.gguf" "$BATS_TEST_TMPDIR/$family.Modelfile"
    done
    [[ $stderr == *"/sparsetral: has adapters (PESC): only pesc reads a GGUF file of architecture camelidae"* ]]
}

@test "export: GGUF files of models with convolutions and delta nets, and of LoRAs on them" {
    local f m
    cd "$BATS_TEST_TMPDIR"
    for i in 1 2 3 4; do echo '{"input_ids":[1,2,3,4,5,6],"labels":[-100,2,3,4,5,6]}'; done > data.jsonl
    for f in lfm2_moe qwen3_5 qwen3_5_moe qwen3_next; do
        m=$GOLDEN/$f
        pesc export "$m" --to gguf -o base.gguf --dtype f32 --overwrite
        [ "$status" = 0 ]
        has '^identity: '
        [[ $stderr == *"$m: llama.cpp loads a $f model only where the heads of keys and values in its delta nets are as wide, which are 8 and 12 here"* || $f == lfm2_moe ]]
        pesc train "$m" --method lora --lora-r 2 --data data.jsonl --steps 2 --batch 2 --lr 0.05 --base-dtype f32 -o run --overwrite -q
        [ "$status" = 0 ]
        pesc export run --to gguf -o merged.gguf --dtype f32 --overwrite
        [ "$status" = 0 ]
        pesc export run --to gguf-lora -o lora.gguf --overwrite
        [ "$status" = 0 ]
        python3 "$BATS_TEST_DIRNAME/gguf_lora.py" lora.gguf base.gguf merged.gguf
        pesc export "$m" --to gguf -o small.gguf --dtype q8_0 --overwrite
        [ "$status" = 0 ]
    done
    [[ $stderr == *"$m: its norm_topk_prob is false, and llama.cpp always computes qwen3_next with true"* ]]
    pesc export "$GOLDEN/lfm2" --to gguf -o lfm2.gguf
    fails 3 "$GOLDEN/lfm2: a GGUF file has no place for its conv_bias"
}

@test "export: value heads of delta nets come back from a GGUF file in their order" {
    local keys values
    cd "$BATS_TEST_TMPDIR"
    for keys in 2 3; do
        values=$((6 * (keys - 1)))
        echo "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":24,\"intermediate_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"vocab_size\":60,\"full_attention_interval\":2,\"linear_num_key_heads\":$keys,\"linear_num_value_heads\":$values,\"linear_key_head_dim\":6,\"linear_value_head_dim\":6}" > c.json
        pesc new c.json -o model --dtype f32 --overwrite
        pesc export model --to gguf -o model.gguf --dtype f32 --overwrite
        [ "$status" = 0 ]
        has '^identity: 0 of [0-9]* logits differ'
    done
}

@test "export: GGUF files of layers with heads and inputs of their own, and shared keys" {
    local f
    cd "$BATS_TEST_TMPDIR"
    for f in gemma4 gemma4-inputs gemma4-moe gemma4-shared; do
        pesc export "$GOLDEN/$f" --to gguf -o f32.gguf --dtype f32 --overwrite
        [ "$status" = 0 ]
        has '^identity: 0 of 4288 logits differ from the source read as f32$'
        pesc export "$GOLDEN/$f" --to gguf -o small.gguf --dtype q8_0 --overwrite
        [ "$status" = 0 ]
    done
    [[ $stderr == *"gemma4-shared: its last 3 layers share the keys of other layers than those that llama.cpp takes"* ]]
    pesc export f32.gguf --to hf -o back --dtype f32
    [ "$status" = 0 ]
    python3 -c 'import json; c = json.load(open("back/config.json")); print(c["num_kv_shared_layers"], c["use_double_wide_mlp"], c["hidden_size_per_layer_input"])' > said
    [ "$(cat said)" = "3 True 6" ]
}

@test "export: a theta that llama.cpp does not read is named" {
    local rope='"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":20000},"sliding_attention":{"rope_type":"default","rope_theta":1000}}'
    cd "$BATS_TEST_TMPDIR"
    echo "{\"model_type\":\"olmo3\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":60,\"sliding_window\":8,$rope}" > c.json
    pesc new c.json -o other
    sed -i 's/20000/1000/' c.json
    pesc new c.json -o same
    pesc export other --to gguf -o other.gguf
    [ "$status" = 0 ]
    [[ $stderr == *"other: its layers with a window rotate with theta 1000, and llama.cpp rotates all layers of olmo3 with 20000"* ]]
    pesc export same --to gguf -o same.gguf
    [ "$status" = 0 ]
    [[ $stderr != *theta* ]]
}

@test "export: a GGUF file says what crafting chose" {
    pesc craft "$GOLDEN/llama" -o "$BATS_TEST_TMPDIR/sparse" --experts 4 --adapter-dim 8 --activation silu --router softmax-before --layers 1
    [ "$status" = 0 ]
    pesc export "$BATS_TEST_TMPDIR/sparse" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf" --dtype f32
    [ "$status" = 0 ]
    has '^identity: 0 of 4288 logits differ from the source read as f32$'
    pesc export "$BATS_TEST_TMPDIR/m.gguf" --to gguf -o "$BATS_TEST_TMPDIR/again.gguf" --dtype f32
    has '^identity: 0 of 4288 logits differ from the source read as f32$'
}

@test "export: a GGUF file in every type" {
    local kind
    for kind in f16 bf16 q8_0 q4_0 q4_k q6_k; do
        export_to llama-square gguf --dtype $kind --overwrite
        [ "$status" = 0 ]
        pesc info "$BATS_TEST_TMPDIR/out"
        [ "$status" = 0 ]
        has 'gguf'
    done
    [ "$(ls "$BATS_TEST_TMPDIR/out" | paste -sd' ')" = "Modelfile README.md model.gguf" ]
}

@test "export: a GGUF file is not replaced without --overwrite" {
    pesc export "$GOLDEN/llama" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf"
    [ "$status" = 0 ]
    pesc export "$GOLDEN/llama" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf"
    fails 2 "$BATS_TEST_TMPDIR/m.gguf: exists; give another -o, or --overwrite"
    pesc export "$BATS_TEST_TMPDIR/m.gguf" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf" --overwrite
    fails 2 "$BATS_TEST_TMPDIR/m.gguf: is the model itself; give another -o"
    pesc export "$GOLDEN/qwen3" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf" --overwrite
    [ "$status" = 0 ]
    has ': qwen3, '
    [ "$(ls "$BATS_TEST_TMPDIR" | grep -c m.gguf)" = 1 ]
    mkdir "$BATS_TEST_TMPDIR/d.gguf"
    pesc export "$GOLDEN/llama" --to gguf -o "$BATS_TEST_TMPDIR/d.gguf"
    fails 2 "$BATS_TEST_TMPDIR/d.gguf: is not a file; give another -o"
}

@test "export: what a GGUF file has no place for is refused" {
    export_to qwen2-window gguf
    fails 3 "$GOLDEN/qwen2-window: a GGUF file has no place for its sliding_window"
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "export: a LoRA is merged into a GGUF file" {
    export_to peft/base gguf --lora "$GOLDEN/peft/adapter" --dtype f32
    [ "$status" = 0 ]
    has '^identity: max \|diff\| [0-9.e-]+ over 4288 logits, .* greedy 64 of 64 \(rounding\)$'
}

# The ids of two texts with a tokenizer: a directory or a file.
ids_of() {
    printf '"Hello World, it'"'"'s 12345!  x\\n\\n  y"\n"the\\tthe"\n' > "$BATS_TEST_TMPDIR/lines.jsonl"
    pesc tokenize "$1" --jsonl "$BATS_TEST_TMPDIR/lines.jsonl"
    [ "$status" = 0 ]
}

@test "export: the tokenizer in a GGUF file encodes as the directory does" {
    local base=$BATS_TEST_DIRNAME/../../share/base model=$BATS_TEST_TMPDIR/model ids
    pesc new "$base/config.json" -o "$model"
    cp "$base"/tokenizer*.json "$model/"
    pesc export "$model" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf"
    [ "$status" = 0 ]
    ids_of "$model"
    ids=$output
    ids_of "$BATS_TEST_TMPDIR/m.gguf"
    [ "$output" = "$ids" ]
}

@test "export: a tokenizer that llama.cpp has no name for is stored whole" {
    local base=$BATS_TEST_DIRNAME/../../share/base model=$BATS_TEST_TMPDIR/model ids
    pesc new "$base/config.json" -o "$model"
    python3 - "$base/tokenizer.json" "$model/tokenizer.json" <<'EOF'
import json, sys
t = json.load(open(sys.argv[1]))
t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "e|[^e]+"
json.dump(t, open(sys.argv[2], "w"))
EOF
    pesc export "$model" --to gguf -o "$BATS_TEST_TMPDIR/m.gguf"
    [ "$status" = 0 ]
    [[ $stderr == *"llama.cpp has no name for the way it splits text"* ]]
    ids_of "$model"
    ids=$output
    ids_of "$BATS_TEST_TMPDIR/m.gguf"
    [ "$output" = "$ids" ]
    pesc export "$BATS_TEST_TMPDIR/m.gguf" --to hf -o "$BATS_TEST_TMPDIR/back"
    [ "$status" = 0 ]
    cmp "$BATS_TEST_TMPDIR/back/tokenizer.json" "$model/tokenizer.json"
}

@test "export: a model of Hugging Face's cache is opened by its name" {
    local hub=$BATS_TEST_TMPDIR/hub/models--acme--tiny
    mkdir -p "$hub/snapshots" "$hub/refs"
    cp -r "$GOLDEN/llama" "$hub/snapshots/abc"
    printf abc > "$hub/refs/main"
    HF_HUB_CACHE=$BATS_TEST_TMPDIR/hub pesc info acme/tiny
    [ "$status" = 0 ]
    has 'llama'
    HF_HUB_CACHE=$BATS_TEST_TMPDIR/hub pesc info acme/other
    fails 3 "acme/other: is neither a directory here nor a model in the cache $BATS_TEST_TMPDIR/hub; to download it: hf download acme/other"
}

@test "export: GGUF refuses a mixture with layers without experts, which other programs do not know" {
    pesc craft "$GOLDEN/llama" -o "$BATS_TEST_TMPDIR/sparse" --kind upcycle --experts 2 --layers 1 -q
    [ "$status" = 0 ]
    pesc export --to gguf "$BATS_TEST_TMPDIR/sparse" -o "$BATS_TEST_TMPDIR/m.gguf"
    [ "$status" = 3 ]
    [[ $stderr = *"has no place for its layers without experts"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/m.gguf" ]
}
