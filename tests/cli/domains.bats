# Several domains in one run: the records of each train its own experts (--domain-experts).
load helper

GOLDEN=$BATS_TEST_DIRNAME/../golden

setup_file() {
    export D=$BATS_FILE_TMPDIR
    python3 - "$D" <<'PY'
import json, random, sys
random.seed(5)
d = sys.argv[1]
def record(domain, n, first):
    ids = [first + random.randrange(20) for _ in range(n)]
    return {"input_ids": ids, "labels": ids, **({"domain": domain} if domain else {})}
with open(d + "/mixed.jsonl", "w") as f:
    for i in range(24):
        f.write(json.dumps(record("ab"[i % 3 == 0], 5 + i % 9, 1 + 20 * (i % 3 == 0))) + "\n")
for name, first in (("a", 1), ("b", 21)):
    with open(f"{d}/{name}.jsonl", "w") as f:
        for i in range(6):
            f.write(json.dumps(record(None, 6 + i, first)) + "\n")
json.dump({"experts": {"0": [5, 1], "1": [0, 2]}}, open(d + "/choice_a.json", "w"))
json.dump({"experts": {"0": [1, 3], "1": [4]}}, open(d + "/choice_b.json", "w"))
PY
}
setup() { T=$BATS_TEST_TMPDIR; }

both() { echo "a=$D/choice_a.json,b=$D/choice_b.json"; }
tune() { # run options
    "$PESC" train "$GOLDEN/olmoe" -o "$1" --method esft --domain-experts "$(both)" --data "$D/mixed.jsonl" --batch 8 --micro-tokens 32 --seq-len 32 \
        --lr 1e-3 --threads 1 -q "${@:2}"
}
same() { # run run
    cmp "$1/latest/trained.safetensors" "$2/latest/trained.safetensors"
    diff <(numbers "$1") <(numbers "$2")
}
numbers() { sed 's/"tok_s":[^,]*,//; s/"mem_bytes":[^,]*,//; s/"comm_[a-z]*":[^,]*,//g' "$1/metrics.jsonl"; }

@test "domain experts: threads, resuming and processes change no bit" {
    tune "$T/whole" --steps 6
    tune "$T/threads" --steps 6 --threads 2
    same "$T/whole" "$T/threads"
    tune "$T/parts" --steps 2
    "$PESC" train -o "$T/parts" --resume --steps 6 -q
    same "$T/whole" "$T/parts"
    tune "$T/two" --steps 6 --gpus 2 --device cpu
    same "$T/whole" "$T/two"
}

@test "domain experts: an expert of one domain is as without the records of the other" {
    # without weight decay, and with a rate that the other domain's steps do not change: one step from the same start
    tune "$T/both" --steps 1 --shuffle false --clip 0 --batch 24
    grep '"domain": "a"' "$D/mixed.jsonl" > "$T/a.jsonl"
    "$PESC" train "$GOLDEN/olmoe" -o "$T/a" --method esft --experts-config "$D/choice_a.json" --data "$T/a.jsonl" --batch 16 --micro-tokens 32 \
        --seq-len 32 --lr 1e-3 --threads 1 --steps 1 --shuffle false --clip 0 -q
    python3 - "$T/both/latest/trained.safetensors" "$T/a/latest/trained.safetensors" "$GOLDEN/olmoe/model.safetensors" <<'PY'
import json, struct, sys
def read(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // 4}f", raw[8 + n:][slice(*v["data_offsets"])])
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
both, alone, base = map(read, sys.argv[1:])
assert len(both) == 3 * 6 and len(alone) == 3 * 4
seen = 0
for name, w in alone.items():
    if ".layers.0." in name and ".experts.1." in name: # both domains chose it
        continue
    # Adam's first step has the gradient's sign: the same, up to gradients of the size of its epsilon
    far = [abs(x - y) for x, y in zip(both[name], w)]
    assert sum(d > 1e-5 for d in far) <= len(far) // 50, (name, max(far))
    assert any(abs(x - y) > 5e-4 for x, y in zip(w, base[name]))
    seen += 1
assert seen == 9
PY
}

@test "domain experts: losses by domain are in the logs, and a domain may be a file" {
    tune "$T/run" --steps 3 --eval-data "$D/a.jsonl" "$D/b.jsonl" --eval-every 1
    python3 - "$T/run" <<'PY'
import json, math, sys
steps = [json.loads(l) for l in open(sys.argv[1] + "/metrics.jsonl")]
evals = [json.loads(l) for l in open(sys.argv[1] + "/eval.jsonl")]
assert len(steps) == len(evals) == 3
for s in steps:
    d = s["domains"]
    n = sum(v["tokens"] for v in d.values())
    assert set(d) == {"a", "b"}
    assert math.isclose(sum(v["ce"] * v["tokens"] for v in d.values()) / n, s["ce"], rel_tol=1e-6), s
for e in evals:
    d = e["eval_domains"]
    assert sum(v["tokens"] for v in d.values()) == e["eval_tokens"]
    assert math.isclose(sum(v["loss"] * v["tokens"] for v in d.values()) / e["eval_tokens"], e["eval_loss"], rel_tol=1e-6)
PY
    "$PESC" train "$GOLDEN/olmoe" -o "$T/files" --method esft --domain-experts "$(both)" --data "$D/a.jsonl" "$D/b.jsonl" --steps 1 --batch 4 2> "$T/err"
    grep -q 'domain a: 6 records train 4 experts' "$T/err"
    grep -q 'domain b: 6 records train 3 experts' "$T/err"
    "$PESC" eval "$GOLDEN/olmoe" --patch "$T/files" --tasks "$D/a.jsonl" --loss-only -q
}

@test "domain experts: LoRA too, and what is wrong is refused" {
    "$PESC" train "$GOLDEN/olmoe" -o "$T/lora" --method lora --lora-r 2 --domain-experts "$(both)" --data "$D/mixed.jsonl" --batch 8 --micro-tokens 32 \
        --seq-len 32 --lr 1e-2 --steps 4 -q
    cp -r "$T/lora" "$T/again"
    "$PESC" plan "$GOLDEN/olmoe" --method lora --lora-r 2 --domain-experts "$(both)" --data "$D/mixed.jsonl" --json -q > "$T/plan.json"
    grep -q "domain_experts: \"a=$D/choice_a.json,b=$D/choice_b.json\"" "$T/lora/run.yaml"
    cd "$D"
    "$PESC" train "$GOLDEN/olmoe" -o "$T/relative" --method lora --lora-r 2 --domain-experts a=choice_a.json,b=choice_b.json \
        --data mixed.jsonl --batch 8 --micro-tokens 32 --seq-len 32 --lr 1e-2 --steps 4 -q
    cd "$T"
    cmp "$T/lora/latest/adapter_model.safetensors" "$T/relative/latest/adapter_model.safetensors"
    grep -q "domain_experts: \"a=$D/choice_a.json,b=$D/choice_b.json\"" "$T/relative/run.yaml"
    local o=(--data "$D/mixed.jsonl" -o "$T/x" --steps 1 -q)
    run "$PESC" train "$GOLDEN/olmoe" --method esft --domain-experts "a=$D/choice_a.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"is of domain b, which has no choice of experts; give it one (b=FILE), or leave the record out"* ]]
    run "$PESC" train "$GOLDEN/olmoe" --method esft --domain-experts "$(both),c=$D/choice_a.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"no record of the training data is of domain c"* ]]
    run "$PESC" train "$GOLDEN/olmoe" --method esft --domain-experts "$(both),a=$D/choice_a.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"domain_experts: names a twice"* ]]
    run "$PESC" train "$GOLDEN/olmoe" --method esft --domain-experts "$D/choice_a.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"expected NAME=FILE, a domain and its expert_cfg.json"* ]]
    run "$PESC" train "$GOLDEN/olmoe" --method esft --domain-experts "$(both)" --experts-config "$D/choice_a.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"domain_experts: is given with experts_config, which is one choice for all records; leave one of them out"* ]]
    run "$PESC" train "$GOLDEN/olmoe" --method full --domain-experts "$(both)" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"domain_experts: method full does not look at it; methods esft, lora and qlora do"* ]]
    python3 -c 'import json, sys; c = json.load(open(sys.argv[1])); c["non_expert_modules"] = True; json.dump(c, open(sys.argv[2], "w"))' \
        "$D/choice_b.json" "$T/other.json"
    run "$PESC" train "$GOLDEN/olmoe" --method esft --domain-experts "a=$D/choice_a.json,b=$T/other.json" "${o[@]}"
    [ "$status" -eq 2 ]
    [[ $output == *"differs from the files before it in shared_experts or non_expert_modules"* ]]
    [ ! -e "$T/x" ]
    echo '{"experts": {"0": [1, 3], "1": [5]}}' > "$T/changed.json"
    run "$PESC" train -o "$T/lora" --resume --steps 6 --domain-experts "a=$D/choice_a.json,b=$T/changed.json" -q
    [ "$status" -eq 2 ]
}

@test "domain experts: a resumed run has the same domains, whose experts are the same" {
    tune "$T/run" --steps 2
    echo '{"experts": {"0": [5, 1, 3], "1": [0, 2]}}' > "$T/more.json" # the same union, but expert 3 is of both
    run "$PESC" train -o "$T/run" --resume --steps 4 --domain-experts "a=$T/more.json,b=$D/choice_b.json" -q
    [ "$status" -eq 2 ]
    "$PESC" train -o "$T/run" --resume --steps 4 -q
}

@test "domain experts: a step may have one more micro-batch for each domain" {
    tune "$T/few" --steps 3 --batch 2 --micro-tokens 64
    tune "$T/groups" --steps 3 --batch 2 --micro-tokens 64 --grad-groups 1
}
