load helper
setup_file() { make_model; }

GOLDEN=$BATS_TEST_DIRNAME/../golden/peft

merge() { pesc merge "$GOLDEN/base" -o "$BATS_TEST_TMPDIR/out" "$@"; }

@test "merge: a LoRA given with --lora" {
    merge --lora "$GOLDEN/adapter"
    [ "$status" = 0 ]
    has ': llama, 32.3 K parameters, 126 KiB$'
    has '^identity: max \|diff\| [0-9.e-]+ over 4288 logits, [0-9.e-]+ of the largest; KL [0-9.e-]+, greedy 64 of 64 \(rounding\)$'
    pesc logits "$BATS_TEST_TMPDIR/out" --ids "$GOLDEN/ids.json" -o "$BATS_TEST_TMPDIR/a.npy"
    [ "$status" = 0 ]
}

@test "merge: a LoRA inside the model directory" {
    local m=$BATS_TEST_TMPDIR/m
    cp -r "$GOLDEN/base" "$m"
    cp -r "$GOLDEN/adapter" "$m/adapter_model"
    pesc merge "$m" -o "$BATS_TEST_TMPDIR/out" --json
    [ "$status" = 0 ]
    has '"family":"llama".*"identity":\{"logits":4288,'
    [ ! -e "$BATS_TEST_TMPDIR/out/adapter_model" ]
    merge --lora "$GOLDEN/adapter" --overwrite
    [ "$status" = 0 ]
    pesc merge "$m" -o "$BATS_TEST_TMPDIR/two" -q
    [ "$status" = 0 ]
    cmp "$BATS_TEST_TMPDIR/out/model.safetensors" "$BATS_TEST_TMPDIR/two/model.safetensors"
}

@test "merge: a training run" {
    local run=$BATS_TEST_TMPDIR/run sparse=$BATS_TEST_TMPDIR/sparse
    "$PESC" craft "$D/model" -o "$sparse" --experts 4 --adapter-dim 8 -q > /dev/null
    for i in 1 2 3 4; do echo '{"input_ids":[1,2,3,4,5,6],"labels":[-100,2,3,4,5,6]}'; done > "$D/data.jsonl"
    "$PESC" train "$sparse" --data "$D/data.jsonl" -o "$run" --steps 2 --batch 2 --lora-r 4 --lr 0.01 \
        --warmup-steps 0 --seq-len 32 -q
    pesc merge "$run" -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 0 ]
    has ': camelidae, 4 experts, '
    cmp "$D/model/tokenizer.json" "$BATS_TEST_TMPDIR/out/tokenizer.json"
    pesc export "$run" --to camelidae -o "$BATS_TEST_TMPDIR/same"
    [ "$status" = 0 ]
    has ': camelidae, 4 experts, '
    has '^identity: max \|diff\| [0-9.e-]+ over 17024 logits, [0-9.e-]+ of the largest; KL [0-9.e-]+, greedy 64 of 64 \(rounding\)$'
    diff -r "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/same"
    pesc export "$run" --to peft -o "$BATS_TEST_TMPDIR/adapter"
    fails 2 "$run: has trained more than LoRA (trained.safetensors), which a PEFT directory cannot hold; write the whole model: pesc merge, or pesc export --to hf"
    [ ! -e "$BATS_TEST_TMPDIR/adapter" ]
}

@test "merge: a run with f32 adapters larger than its 16-bit base" {
    BATS_FILE_TMPDIR=$BATS_TEST_TMPDIR make_model
    local run=$BATS_TEST_TMPDIR/run sparse=$BATS_TEST_TMPDIR/sparse
    "$PESC" craft "$D/model" -o "$sparse" --dtype bf16 --experts 8 --adapter-dim 64 -q > /dev/null
    for i in 1 2 3 4; do echo '{"input_ids":[1,2,3,4,5,6],"labels":[-100,2,3,4,5,6]}'; done > "$D/data.jsonl"
    "$PESC" train "$sparse" --data "$D/data.jsonl" -o "$run" --steps 8 --batch 2 --lora-r 4 --lr 0.01 \
        --warmup-steps 0 --seq-len 32 -q
    pesc merge "$run" -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 0 ]
    has '^identity: max \|diff\| '
    pesc export "$run" --to camelidae -o "$BATS_TEST_TMPDIR/same"
    [ "$status" = 0 ]
}

@test "merge: --overwrite does not touch the LoRA it reads, nor the base of the run it merges" {
    local x=$BATS_TEST_TMPDIR/x
    cp -r "$GOLDEN/adapter" "$x"
    pesc merge "$GOLDEN/base" --lora "$x" -o "$x" --overwrite
    fails 2 "$x: is read as $x; give another -o"
    diff -r "$GOLDEN/adapter" "$x"
    cp -r "$D/model" "$BATS_TEST_TMPDIR/base"
    echo '{"text": "hello world"}' > "$BATS_TEST_TMPDIR/d.jsonl"
    pesc train "$BATS_TEST_TMPDIR/base" --method lora --lora-r 2 --data "$BATS_TEST_TMPDIR/d.jsonl" --steps 1 \
        --seq-len 32 -o "$BATS_TEST_TMPDIR/run" -q
    [ "$status" = 0 ]
    pesc merge "$BATS_TEST_TMPDIR/run" -o "$BATS_TEST_TMPDIR/base" --overwrite
    fails 2 "$BATS_TEST_TMPDIR/base: is the base of $BATS_TEST_TMPDIR/run; give another -o"
    diff -r "$D/model" "$BATS_TEST_TMPDIR/base"
}

@test "merge: --dtype and --merge-base" {
    merge --lora "$GOLDEN/adapter" --dtype bf16
    has ', 63.6 KiB$'
    merge --lora "$GOLDEN/adapter" --merge-base nf4-dequant --overwrite
    [ "$status" = 0 ]
    merge --lora "$GOLDEN/adapter" --merge-base nf4-dequant --double-quant false --overwrite
    [ "$status" = 0 ]
}

@test "merge: --lora does not replace the LoRA of the model, here and elsewhere" {
    local m=$BATS_TEST_TMPDIR/m out=$BATS_TEST_TMPDIR/out why
    cp -r "$GOLDEN/base" "$m"
    cp -r "$GOLDEN/adapter" "$m/adapter_model"
    why="$m: has a LoRA of its own, which $GOLDEN/adapter would replace; fold it in first: pesc merge $m -o DIR"
    pesc merge "$m" --lora "$GOLDEN/adapter" -o "$out"
    fails 2 "$why"
    for to in hf peft gguf; do
        pesc export "$m" --to $to --lora "$GOLDEN/adapter" -o "$out"
        fails 2 "$why"
    done
    [ ! -e "$out" ]
    pesc logits "$m" --lora "$GOLDEN/adapter" --ids "$GOLDEN/ids.json" -o "$out.npy"
    fails 2 "$why"
    pesc export "$m" --to peft -o "$out"
    has '^identity: 0 of 4288 logits differ$'
}

@test "merge: usage errors" {
    merge
    fails 2 "$GOLDEN/base: has no LoRA to merge; give one with --lora DIR, or write the model as it is with pesc export"
    merge --lora "$BATS_TEST_TMPDIR/none"
    [ "$status" = 3 ]
    merge --lora "$GOLDEN/adapter" --merge-base q8
    fails 2 'merge: --merge-base: found "q8", expected original or nf4-dequant'
    pesc merge "$GOLDEN/../qwen3_moe" --lora "$GOLDEN/adapter" -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 3 ]
    [[ $stderr == *"of its LoRAs are on no linear of"* || $stderr == *"does not fit its linear"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "export: --to peft refuses a run that trained more than LoRA, and compares base and adapter with one that did not" {
    local t=$BATS_TEST_TMPDIR
    for i in 1 2 3 4; do echo '{"input_ids":[1,2,3,4,5,6],"labels":[-100,2,3,4,5,6]}'; done > "$D/data.jsonl"
    "$PESC" craft "$D/model" -o "$t/up" --kind upcycle --experts 4 -q
    "$PESC" train "$D/model" --method molora --experts 4 --data "$D/data.jsonl" -o "$t/molora" --steps 2 --batch 2 --lora-r 4 --seq-len 32 -q
    "$PESC" train "$t/up" --method upcycle --data "$D/data.jsonl" -o "$t/upcycle" --steps 2 --batch 2 --lora-r 4 --seq-len 32 -q
    for method in molora upcycle; do
        pesc export "$t/$method" --to peft -o "$t/out"
        [ "$status" = 2 ]
        [ ! -e "$t/out" ]
    done
    pesc export "$t/molora" --to peft -o "$t/out"
    fails 2 "$t/molora: has trained more than LoRA (trained.safetensors), which a PEFT directory cannot hold; write the whole model: pesc merge, or pesc export --to hf"
    "$PESC" train "$D/model" --method lora --base-dtype bf16 --data "$D/data.jsonl" -o "$t/lora" --steps 2 --batch 2 --lora-r 4 --lr 0.01 --seq-len 32 -q
    pesc export "$t/lora" --to peft -o "$t/out"
    [ "$status" = 0 ]
    has '^identity: 0 of 17024 logits differ$'
    # base and adapter compute what the run does
    pesc logits "$D/model" --lora "$t/out" --base-dtype bf16 --ids "$GOLDEN/ids.json" -o "$t/a.npy" -q
    pesc logits "$t/lora" --ids "$GOLDEN/ids.json" -o "$t/b.npy" -q
    cmp "$t/a.npy" "$t/b.npy"
}
