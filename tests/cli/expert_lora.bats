# LoRA on full experts: trained, resumed, opened, merged, exported, refused where it cannot be.
load helper

setup_file() {
    make_model
    "$PESC" craft "$D/model" -o "$D/moe" --kind upcycle --experts 3 --check false -q > /dev/null
    echo '{"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hello world"}]}' > "$D/one.jsonl"
    echo '[1,2,3,4,5,6,7]' > "$D/ids.json"
}
setup() { T=$BATS_TEST_TMPDIR; }

tune() { # run, options
    "$PESC" train "$D/moe" -o "$1" --data "$D/one.jsonl" --template chatml --method lora --lora-targets all,experts --lora-r 2 --lora-alpha 8 \
        --lr 1e-2 --batch 1 --seq-len 64 -q "${@:2}"
}
logits() { "$PESC" logits "$1" --ids "$D/ids.json" -o "$2" -q "${@:3}"; }
without() { # file, key: a safetensors file without the tensors whose name contains the key
    python3 -c 'import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
body, out, data = raw[8 + n:], {}, b""
for k, v in json.loads(raw[8:8 + n]).items():
    if k != "__metadata__" and sys.argv[2] not in k:
        a, b = v["data_offsets"]
        out[k] = {**v, "data_offsets": [len(data), len(data) + b - a]}
        data += body[a:b]
text = json.dumps(out).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)' "$1" "$2"
}

@test "LoRA on experts: a run has keys for each expert and equals its merge and its export" {
    tune "$T/run" --steps 4
    grep -q '"w1"' "$T/run/latest/adapter_config.json"
    grep -q '"lora_dropout": 0.0' "$T/run/latest/adapter_config.json"
    grep -aq 'base_model.model.model.layers.0.block_sparse_moe.experts.2.w3.lora_B.weight' "$T/run/latest/adapter_model.safetensors"
    logits "$T/run" "$T/run.npy"
    logits "$D/moe" "$T/base.npy"
    if cmp -s "$T/run.npy" "$T/base.npy"; then return 1; fi
    "$PESC" export "$T/run" --to peft -o "$T/peft" -q
    logits "$D/moe" "$T/lora.npy" --lora "$T/peft"
    cmp "$T/run.npy" "$T/lora.npy"
    run "$PESC" merge "$T/run" -o "$T/merged" -q # it compares the two models
    [ "$status" -eq 0 ]
    [[ $output == *"identity: "*"(rounding)"* ]]
}

@test "LoRA on experts: a stopped run goes on bit for bit" {
    tune "$T/whole" --steps 4
    tune "$T/parts" --steps 2
    "$PESC" train -o "$T/parts" --resume --steps 4 -q
    cmp "$T/whole/latest/adapter_model.safetensors" "$T/parts/latest/adapter_model.safetensors"
}

@test "LoRA on experts: further training starts from the adapter that is loaded" {
    tune "$T/run" --steps 3
    "$PESC" export "$T/run" --to peft -o "$T/peft" -q
    tune "$T/more" --steps 1 --lr 0 --lora "$T/peft"
    logits "$T/run" "$T/a.npy"
    logits "$T/more" "$T/b.npy"
    cmp "$T/a.npy" "$T/b.npy"
}

@test "LoRA on experts: plan and run agree on what trains" {
    tune "$T/run" --steps 1 --json > "$T/run.json"
    "$PESC" plan "$D/moe" --data "$D/one.jsonl" --template chatml --method lora --lora-targets all,experts --lora-r 2 --batch 1 \
        --seq-len 64 --json -q > "$T/plan.json"
    [ "$(grep -o '"params_trained":[0-9]*' "$T/run.json")" = "$(grep -o '"params_trained":[0-9]*' "$T/plan.json")" ]
    grep -q '"params_trained":[1-9]' "$T/plan.json"
}

@test "LoRA on experts: is refused without full experts, where they train, and on some experts only" {
    run "$PESC" train "$D/model" -o "$T/x" --data "$D/one.jsonl" --template chatml --method lora --lora-targets experts -q
    [ "$status" -eq 2 ]
    [[ $output == *"lora_targets: found experts, but the model has no full experts"* ]]
    run "$PESC" train "$D/moe" -o "$T/x" --data "$D/one.jsonl" --template chatml --method upcycle --lora-targets all,experts -q
    [ "$status" -eq 2 ]
    [[ $output == *"method upcycle trains the experts' own weights"* ]]
    tune "$T/run" --steps 1
    "$PESC" export "$T/run" --to peft -o "$T/peft" -q
    without "$T/peft/adapter_model.safetensors" .layers.0.block_sparse_moe.experts.1.w2.
    run logits "$D/moe" "$T/x.npy" --lora "$T/peft"
    [ "$status" -ne 0 ]
    [[ $output == *"the experts of a layer differ in their LoRA, or some have none"* ]]
}

@test "LoRA on experts that files or transformers hold in one tensor: PEFT's target_parameters, and back" {
    local golden=$BATS_TEST_DIRNAME/../golden f
    echo '{"input_ids":[1,5,9,13,17,21],"labels":[1,5,9,13,17,21]}' > "$T/d.jsonl"
    for f in qwen3_5_moe gpt_oss lfm2_moe; do
        "$PESC" train "$golden/$f" -o "$T/run" --data "$T/d.jsonl" --method lora --lora-targets all,experts --lora-r 2 --lora-alpha 6 --steps 3 \
            --lr 2e-2 --base-dtype f32 --overwrite -q
        "$PESC" export "$T/run" --to peft -o "$T/peft" --overwrite -q # it compares the two
        grep -q 'experts.gate_up_proj' "$T/peft/adapter_config.json"
        grep -aq 'experts.base_layer.lora_A.weight' "$T/peft/adapter_model.safetensors"
        if grep -aq 'experts.0.' "$T/peft/adapter_model.safetensors"; then return 1; fi
        logits "$T/run" "$T/run.npy"
        logits "$golden/$f" "$T/lora.npy" --lora "$T/peft"
        cmp "$T/run.npy" "$T/lora.npy"
    done
    # adapters whose experts do not fit their linears, or differ, are refused before anything is joined
    "$PESC" train "$golden/qwen2_moe" -o "$T/run" --data "$T/d.jsonl" --method lora --lora-targets experts --lora-r 2 --steps 1 --overwrite -q
    local what
    for what in wide tall none; do
        cp -r "$T/run/latest/" "$T/$what"
        python3 - "$T/$what/adapter_model.safetensors" "$what" <<'PY'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, body = json.loads(raw[8:8 + n]), raw[8 + n:]
for key in [k for k in head if ".layers.0." in k and ".experts.3.down_proj." in k]:
    shape, part = head[key]["shape"], key.rsplit(".", 2)[1]
    if sys.argv[2] == "none":
        del head[key]
        continue
    if sys.argv[2] == "wide" and part == "lora_A":
        shape[1] = 200000
    if sys.argv[2] == "tall":
        shape[part != "lora_A"] = 4096
    at = len(body)
    body += bytes(4 * shape[0] * shape[1])
    head[key] = {"dtype": "F32", "shape": shape, "data_offsets": [at, len(body)]}
order = sorted((v["data_offsets"], k) for k, v in head.items() if k != "__metadata__")
out, data = {}, b""
for (a, b), key in order:
    out[key] = {**head[key], "data_offsets": [len(data), len(data) + b - a]}
    data += body[a:b]
text = json.dumps(out).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
        run "$PESC" export "$golden/qwen2_moe" --lora "$T/$what" --to peft -o "$T/out" --check false -q
        echo "$output"
        [ "$status" -eq 2 ] || [ "$status" -eq 3 ]
        [[ $output == *"does not fit its linear"* || $output == *"the experts of a layer differ in their LoRA"* || $output == *"rank"* ]]
        [ ! -e "$T/out" ]
    done
    # a rank for one of the two parameters is not read as the rank of both
    sed -i 's/"rank_pattern": {/"rank_pattern": {"feed_forward.experts.down_proj": 2,/' "$T/peft/adapter_config.json"
    run logits "$golden/lfm2_moe" "$T/x.npy" --lora "$T/peft"
    [ "$status" -ne 0 ]
    [[ $output == *"feed_forward.experts"* ]]
}

@test "LoRA on experts and other FFNs of one name: the export says what PEFT does not tell apart" {
    local golden=$BATS_TEST_DIRNAME/../golden f targets
    echo '{"input_ids":[1,5,9,13,17,21],"labels":[1,5,9,13,17,21]}' > "$T/d.jsonl"
    for f in qwen3_next deepseek_v3 qwen3_moe; do
        for targets in experts all,experts; do
            "$PESC" train "$golden/$f" -o "$T/run" --data "$T/d.jsonl" --method lora --lora-targets $targets --lora-r 2 --steps 1 --overwrite -q
            run "$PESC" export "$T/run" --to peft -o "$T/peft" --overwrite
            [ "$status" -eq 0 ]
            if [ $targets = experts ] || [ $f = qwen3_moe ]; then
                [[ $output != *"PEFT 0.21"* ]]
            else
                [[ $output == *"$T/run: has LoRA on the gate_proj of experts and of other FFNs, which PEFT 0.21 takes for those of experts"* ]]
            fi
        done
    done
}
