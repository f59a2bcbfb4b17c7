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

@test "LoRA on experts: is refused without full experts, where they train, and where experts of a layer differ" {
    run "$PESC" train "$D/model" -o "$T/x" --data "$D/one.jsonl" --template chatml --method lora --lora-targets experts -q
    [ "$status" -eq 2 ]
    [[ $output == *"lora_targets: found experts, but the model has no full experts"* ]]
    run "$PESC" train "$D/moe" -o "$T/x" --data "$D/one.jsonl" --template chatml --method upcycle --lora-targets all,experts -q
    [ "$status" -eq 2 ]
    [[ $output == *"method upcycle trains the experts' own weights"* ]]
    tune "$T/run" --steps 1
    "$PESC" export "$T/run" --to peft -o "$T/peft" -q
    # an expert may have none: its matrix is then the base's
    cp -r "$T/peft" "$T/less"
    without "$T/less/adapter_model.safetensors" .layers.0.block_sparse_moe.experts.1.w2.
    logits "$D/moe" "$T/x.npy" --lora "$T/less"
    logits "$D/moe" "$T/y.npy" --lora "$T/peft"
    if cmp -s "$T/x.npy" "$T/y.npy"; then return 1; fi
    sed -i 's/"alpha_pattern": {/"alpha_pattern": {"model.layers.0.block_sparse_moe.experts.1.w2": 3/' "$T/peft/adapter_config.json"
    run logits "$D/moe" "$T/x.npy" --lora "$T/peft"
    [ "$status" -ne 0 ]
    [[ $output == *"the experts of a layer differ in their LoRA: 1 of them, model.layers.0.block_sparse_moe.experts.1.w2"* ]]
    [[ $output == *"expected the same rank and alpha on all experts of a layer that have one"* ]]
}

# Writes a choice of experts for a model: 0 and 2 of each layer that has some, of the last one alone 1.
choose() { # model file
    "$PESC" esft score "$1" --data "$T/d.jsonl" -o "$T/scores" -q > /dev/null
    python3 - "$T/scores/summary.json" > "$2" <<'PY'
import json, sys
layers = list(json.load(open(sys.argv[1]))["token_scores"])
print(json.dumps({"experts": {l: [2, 0] if l != layers[-1] else [1] for l in layers}}))
PY
}

@test "LoRA on chosen experts: --experts-from trains them alone, in every family; run, export and merge agree" {
    local golden=$BATS_TEST_DIRNAME/../golden f
    cd "$T" # cost draws pictures
    echo '{"input_ids":[1,5,9,13,17,21],"labels":[1,5,9,13,17,21]}' > "$T/d.jsonl"
    for f in mixtral olmoe qwen2_moe qwen3_moe deepseek_v2 deepseek_v3 granitemoe gpt_oss qwen3_5_moe qwen3_next lfm2_moe ernie4_5_moe qwen2_moe-adapters; do
        echo "$f"
        choose "$golden/${f%-adapters}" "$T/$f.json"
        "$PESC" train "$golden/$f" -o "$T/run" --data "$T/d.jsonl" --method lora --experts-from "$T/$f.json" --lora-r 2 --lora-alpha 6 --steps 3 \
            --lr 2e-2 --base-dtype f32 --overwrite -q --json > "$T/run.json"
        python3 - "$T/run/latest" "$T/$f.json" <<'PY'
import json, re, struct, sys
raw = open(sys.argv[1] + "/adapter_model.safetensors", "rb").read()
names = [k for k in json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]]) if k != "__metadata__"]
want = {(int(l), e) for l, of in json.load(open(sys.argv[2]))["experts"].items() for e in of}
have = [re.search(r"layers\.(\d+)\..*experts\.(\d+)\.", n) for n in names]
assert all(have) and {(int(m[1]), int(m[2])) for m in have} == want
assert len(names) == 6 * len(want), (len(names), want)
targets = json.load(open(sys.argv[1] + "/adapter_config.json"))["target_modules"]
assert len(targets) == 3 * len(want) and all("experts." in t for t in targets), targets
PY
        "$PESC" plan "$golden/$f" --data "$T/d.jsonl" --method lora --experts-from "$T/$f.json" --lora-r 2 --base-dtype f32 --json -q > "$T/plan.json"
        [ "$(grep -o '"params_trained":[0-9]*' "$T/run.json")" = "$(grep -o '"params_trained":[0-9]*' "$T/plan.json")" ]
        "$PESC" cost "$golden/$f" --method lora --experts-from "$T/$f.json" --lora-r 2 --json > "$T/cost.json"
        grep -q "\"trained\":$(grep -o '"params_trained":[0-9]*' "$T/run.json" | cut -d: -f2)[,}]" "$T/cost.json"
        "$PESC" export "$T/run" --to peft -o "$T/peft" --overwrite -q # it compares the two
        python3 - "$T/peft" "$T/scores/summary.json" <<'PY'
import json, struct, sys
if "target_parameters" not in json.load(open(sys.argv[1] + "/adapter_config.json")): # PEFT then needs every expert of a layer
    raw = open(sys.argv[1] + "/adapter_model.safetensors", "rb").read()
    names = set(json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])) - {"__metadata__"}
    of = json.load(open(sys.argv[2]))["token_scores"]
    assert len(names) == 6 * sum(len(e) for e in of.values()), (len(names), of)
    assert set(json.load(open(sys.argv[1] + "/adapter_config.json"))["target_modules"]) in ({"gate_proj", "up_proj", "down_proj"}, {"w1", "w2", "w3"})
PY
        logits "$T/run" "$T/run.npy"
        logits "$golden/$f" "$T/base.npy"
        logits "$golden/$f" "$T/lora.npy" --lora "$T/peft"
        cmp "$T/run.npy" "$T/lora.npy"
        if cmp -s "$T/run.npy" "$T/base.npy"; then return 1; fi
        "$PESC" merge "$T/run" -o "$T/merged" --overwrite -q # it compares the two
    done
}

@test "LoRA on chosen experts: threads, resuming and processes change no bit, and a LoRA is trained on" {
    echo '{"experts": {"0": [2], "1": [0, 2]}}' > "$T/cfg.json"
    local o=(--method lora --experts-from "$T/cfg.json" --lora-r 2 --lora-alpha 8 --template chatml --lr 1e-2 --batch 4 --seq-len 64 -q)
    for i in 1 2 3 4 5 6 7 8; do sed "s/hello world/hello $i/" "$D/one.jsonl"; done > "$T/d.jsonl"
    "$PESC" train "$D/moe" -o "$T/whole" --data "$T/d.jsonl" "${o[@]}" --steps 4 --threads 1
    "$PESC" train "$D/moe" -o "$T/parts" --data "$T/d.jsonl" "${o[@]}" --steps 2 --threads 2
    "$PESC" train -o "$T/parts" --resume --steps 4 -q
    cmp "$T/whole/latest/adapter_model.safetensors" "$T/parts/latest/adapter_model.safetensors"
    "$PESC" train "$D/moe" -o "$T/two" --data "$T/d.jsonl" "${o[@]}" --steps 4 --gpus 2 --device cpu --threads 1
    cmp "$T/whole/latest/adapter_model.safetensors" "$T/two/latest/adapter_model.safetensors"
    "$PESC" train "$D/moe" -o "$T/more" --data "$T/d.jsonl" "${o[@]}" --steps 1 --lr 0 --lora "$T/whole/latest"
    cmp "$T/whole/latest/adapter_model.safetensors" "$T/more/latest/adapter_model.safetensors"
    "$PESC" train "$D/moe" -o "$T/keep" --data "$T/d.jsonl" --method lora --lora-targets q_proj --lora-r 2 --lora-alpha 8 --template chatml --lr 0 \
        --steps 1 --batch 4 --seq-len 64 -q --lora "$T/whole/latest"
    logits "$T/whole" "$T/a.npy"
    logits "$T/keep" "$T/b.npy"
    cmp "$T/a.npy" "$T/b.npy"
    echo '{"experts": {"0": [2], "1": [0, 1]}}' > "$T/other.json"
    run "$PESC" train "$D/moe" -o "$T/x" --data "$T/d.jsonl" "${o[@]}" --steps 1 --lora "$T/whole/latest" --experts-from "$T/other.json"
    [ "$status" -eq 2 ]
    [[ $output == *"the LoRA that the model brings"* ]]
    run "$PESC" train "$D/moe" -o "$T/x" --data "$T/d.jsonl" --method lora --lora-targets experts --lora-r 2 --lora-alpha 8 --template chatml \
        --steps 1 --batch 4 --seq-len 64 -q --lora "$T/whole/latest"
    [ "$status" -eq 2 ]
    [[ $output == *"is to get LoRA, but the LoRA that the model brings leaves out it"* ]]
    cp -r "$T/whole" "$T/changed"
    run "$PESC" train -o "$T/changed" --resume --steps 6 --experts-from "$T/other.json" -q
    [ "$status" -eq 2 ]
}

@test "LoRA on chosen experts: what else the file says trains gets LoRA, and what is wrong is refused" {
    local golden=$BATS_TEST_DIRNAME/../golden
    echo '{"input_ids":[1,5,9,13,17,21],"labels":[1,5,9,13,17,21]}' > "$T/d.jsonl"
    choose "$golden/qwen2_moe" "$T/cfg.json"
    sed 's/}}/}, "shared_experts": true, "non_expert_modules": true}/; s/]}}/]}, "shared_experts": true, "non_expert_modules": true}/' "$T/cfg.json" > "$T/more.json"
    local o=(--data "$T/d.jsonl" --method lora --lora-r 2 --steps 1 -q)
    "$PESC" train "$golden/qwen2_moe" -o "$T/run" --experts-from "$T/more.json" "${o[@]}"
    grep -aq 'shared_expert.gate_proj.lora_A' "$T/run/latest/adapter_model.safetensors"
    grep -aq 'self_attn.q_proj.lora_A' "$T/run/latest/adapter_model.safetensors"
    "$PESC" train "$golden/qwen2_moe" -o "$T/only" --experts-from "$T/cfg.json" "${o[@]}"
    if grep -aqE '(q_proj|shared_expert\.gate_proj|experts\.4\.down_proj).lora_A' "$T/only/latest/adapter_model.safetensors"; then return 1; fi
    "$PESC" train "$golden/qwen2_moe" -o "$T/less" --experts-from "$T/more.json" --lora-targets q_proj,experts "${o[@]}"
    if grep -aq 'k_proj.lora_A' "$T/less/latest/adapter_model.safetensors"; then return 1; fi
    grep -aq 'self_attn.q_proj.lora_A' "$T/less/latest/adapter_model.safetensors"
    run "$PESC" train "$golden/qwen2_moe" -o "$T/x" --experts-from "$T/cfg.json" --lora-targets q_proj "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"lora_targets: found q_proj with experts_from, which puts LoRA on experts; expected experts among them"* ]]
    run "$PESC" train "$golden/qwen2_moe" -o "$T/x" --experts-from "$T/cfg.json" "${o[@]}" --lora-r 0
    [ "$status" -eq 2 ]
    [[ $output == *"lora_r: found 0 with experts_from, expected a rank"* ]]
    run "$PESC" train "$golden/qwen2_moe" -o "$T/x" --experts-config "$T/cfg.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"experts_config: method lora does not look at it; method esft does, and lora and qlora take experts_from"* ]]
    run "$PESC" train "$golden/qwen2_moe" -o "$T/x" --experts-from "$T/cfg.json" "${o[@]}" --method esft
    [ "$status" -eq 2 ]
    [[ $output == *"experts_from: method esft does not look at it; methods lora and qlora do, and method esft takes experts_config"* ]]
    "$PESC" train "$golden/qwen2_moe" -o "$T/q" --experts-from "$T/cfg.json" "${o[@]}" --method qlora # the experts are in NF4
    logits "$T/q" "$T/q.npy"
    run "$PESC" train "$D/model" -o "$T/x" --experts-from "$T/cfg.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"but the model has no full experts"* ]]
    echo '{"experts": {"0": [], "1": [], "2": []}}' > "$T/none.json"
    run "$PESC" train "$golden/qwen2_moe" -o "$T/x" --experts-from "$T/none.json" "${o[@]}"
    [ "$status" -ne 0 ]
    echo '{"experts": {"0": [77]}}' > "$T/far.json"
    run "$PESC" train "$golden/qwen2_moe" -o "$T/x" --experts-from "$T/far.json" "${o[@]}"
    [ "$status" -ne 0 ]
    [[ $output == *"found expert 77"* ]]
    [ ! -e "$T/x" ]
}

@test "LoRA on experts that files or transformers hold in one tensor: PEFT's target_parameters, and back" {
    local golden=$BATS_TEST_DIRNAME/../golden f
    echo '{"input_ids":[1,5,9,13,17,21],"labels":[1,5,9,13,17,21]}' > "$T/d.jsonl"
    for f in qwen3_5_moe gpt_oss gemma4-moe lfm2_moe; do
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
    for what in wide tall; do
        cp -r "$T/run/latest/" "$T/$what"
        python3 - "$T/$what/adapter_model.safetensors" "$what" <<'PY'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, body = json.loads(raw[8:8 + n]), raw[8 + n:]
for key in [k for k in head if ".layers.0." in k and ".experts.3.down_proj." in k]:
    shape, part = head[key]["shape"], key.rsplit(".", 2)[1]
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
