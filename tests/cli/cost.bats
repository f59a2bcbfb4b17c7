load helper

setup_file() {
    make_model
    export SHAPES=$BATS_TEST_DIRNAME/../../bench/shapes
}

@test "cost: parameters and FLOP of published shapes, as counted by hand" {
    PESC=$PESC TMP=$BATS_TEST_TMPDIR python3 - "$BATS_TEST_DIRNAME/../golden/cost.json" <<'PY'
import json, os, subprocess, sys
tmp = os.environ["TMP"]
for case in json.load(open(sys.argv[1])):
    json.dump(case["config"], open(f"{tmp}/config.json", "w"))
    out = subprocess.run([os.environ["PESC"], "cost", f"{tmp}/config.json", "-o", tmp, "--json", "-q", *case["options"]],
                         check=True, capture_output=True, text=True).stdout
    keys = ("params", "activated", "trained", "inference", "forward", "backward")
    found = {p["part"]: [p[k] for k in keys] for p in json.loads(out)["models"][0]["parts"]}
    assert found == case["parts"], (case["name"], found, case["parts"])
    if case["name"] == "8x7B":
        assert found["total"][:3] == [7813206016, 7007899648, 1234698240], found
PY
}

@test "cost: bytes of weights and of the KV cache" {
    pesc cost "$SHAPES/7b-pesc.json" "$SHAPES/34b-pesc.json" "$SHAPES/7b.json" --compute-dtype bf16 -o "$BATS_TEST_TMPDIR" --json
    [ "$status" = 0 ]
    python3 - "$output" <<'PY'
import json, sys
small, large, dense = json.loads(sys.argv[1])["models"]
assert small["bytes"]["kv_token"] == 524288 and large["bytes"]["kv_token"] == 245760
norms = 65 * 4096  # in f32
assert dense["bytes"]["weights"] == 2 * (6738415616 - norms) + 4 * norms, dense
assert [m["kind"] for m in (small, dense)] == ["pesc", "dense"]
assert [m["method"] for m in (small, dense)] == ["pesc", "lora"]
assert small["bytes"]["trained"] >= 1234698240 * (4 + 4 + 4 + 4 + 2)
PY
    pesc cost "$SHAPES/7b.json" --base-dtype nf4 -o "$BATS_TEST_TMPDIR" --json
    python3 - "$output" <<'PY'
import json, sys
m, = json.loads(sys.argv[1])["models"]
linears = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
other = 2 * 2 * 32000 * 4096 + 4 * 65 * 4096
assert (m["bytes"]["weights"] - other) * 8 == 4.5 * linears, m  # in memory the scales are f32, one for 64 weights
PY
}

@test "cost: tokens, and the parts that depend on their number" {
    for n in 1 100; do
        "$PESC" cost "$SHAPES/7b.json" --tokens $n -o "$BATS_TEST_TMPDIR" --json > "$BATS_TEST_TMPDIR/$n"
    done
    python3 - "$BATS_TEST_TMPDIR/1" "$BATS_TEST_TMPDIR/100" <<'PY'
import json, sys
one, many = ({p["part"]: p for p in json.load(open(f))["models"][0]["parts"]} for f in sys.argv[1:])
assert many["ffn"]["inference"] == 100 * one["ffn"]["inference"]
assert many["scores"]["inference"] == 5050 * one["scores"]["inference"]
PY
}

@test "cost: models, runs and mixtures of LoRA; tables and pictures" {
    "$PESC" craft "$D/model" -o "$D/sparse" --experts 4 --top-k 2 --adapter-dim 8 -q > "$D/out"
    "$PESC" craft "$D/model" -o "$D/full" --kind upcycle --experts 4 --top-k 2 -q > "$D/out"
    echo '{"instruction": "hello", "output": "world"}' > "$D/data.jsonl"
    for method in molora lora; do
        "$PESC" train "$D/model" --data "$D/data.jsonl" -o "$D/$method" --method $method --experts 4 --steps 1 --batch 1 \
            --seq-len 64 --lora-r 4 -q > "$D/out"
    done
    pesc cost "$D/model" "$D/sparse" "$D/full" "$D/molora" "$D/lora" -o "$BATS_TEST_TMPDIR" -q
    [ "$status" = 0 ]
    has "^$D/model: dense, trained with method lora; FLOP of a token, mean over 2048 tokens$"
    has "^$D/molora: molora, trained with method molora; "
    has '^ +parameters +activated +trained +inference +forward +backward$'
    has '^adapters +[0-9.]+ K'
    has '^experts +[0-9.]+ K'
    has '^KV cache, a token +256 bytes$'
    has '^against the first +parameters +activated +inference +training$'
    has "^$D/model +dense +[0-9.]+ K +[0-9.]+ K +1\.000x +1\.000x$"
    for f in cost.svg cost.png cost-training.svg cost-training.png; do
        [ -s "$BATS_TEST_TMPDIR/plots/$f" ]
        has "/plots/$f\$"
    done
    pesc cost "$D/molora" "$D/lora" "$D/sparse" -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    mixed=$output
    pesc info "$D/sparse" --json
    python3 - "$mixed" "$output" <<'PY'
import json, sys
molora, lora, sparse = json.loads(sys.argv[1])["models"]
info = json.loads(sys.argv[2])["params"]
total = sparse["parts"][-1]
assert (total["params"], total["activated"]) == (info["total"], info["activated"])
parts = [{p["part"]: p for p in m["parts"]} for m in (molora, lora)]
# the FFN's LoRA of the molora run has 4 experts, of which a token uses 2; it is a part of the model now
linears = 4 * (2 * (32 + 48) + (48 + 32))
assert parts[0]["lora"]["params"] - parts[0]["lora"]["activated"] == 2 * 2 * linears
assert parts[0]["lora"]["inference"] == parts[0]["lora"]["forward"] > 0
assert parts[1]["lora"]["params"] == parts[1]["lora"]["trained"]
PY
}

@test "cost: a base is counted with the LoRA of its run, a run with its own" {
    echo '{"instruction": "hello", "output": "world"}' > "$D/data.jsonl"
    for r in 2 4; do
        "$PESC" train "$D/model" --data "$D/data.jsonl" -o "$BATS_TEST_TMPDIR/r$r" --method lora --steps 1 --batch 1 --seq-len 64 --lora-r $r -q > "$D/out"
    done
    pesc cost "$D/model" "$BATS_TEST_TMPDIR/r2" "$BATS_TEST_TMPDIR/r4" -o "$BATS_TEST_TMPDIR" --json
    [ "$status" = 0 ]
    [ "$stderr" = "pesc: note: training is counted with LoRA of rank 2, that of $BATS_TEST_TMPDIR/r2; --lora-r gives models without one another" ]
    alike=$output
    pesc cost "$D/model" "$BATS_TEST_TMPDIR/r2" --lora-r 8 -o "$BATS_TEST_TMPDIR" --json
    python3 - "$alike" "$output" "$("$PESC" plan "$BATS_TEST_TMPDIR/r2" --method lora --json)" <<'PY'
import json, sys
(base, two, four), (typed, own), plan = [json.loads(a).get("models") or json.loads(a) for a in sys.argv[1:]]
train = lambda m: (m["lora_r"], m["parts"][-1]["trained"], m["parts"][-1]["forward"] + m["parts"][-1]["backward"], m["bytes"]["trained"])
assert train(base) == train(two) and train(base)[0] == 2, (train(base), train(two))
assert train(four)[0] == 4 and train(four)[1] == 2 * train(two)[1] and train(four)[3] > train(two)[3]
assert train(typed)[0] == 8 and train(own) == train(two)
assert plan["params_trained"] == train(two)[1], plan
PY
}

@test "cost: --measure times what it counts" {
    "$PESC" craft "$D/model" -o "$BATS_TEST_TMPDIR/sparse" --experts 4 --top-k 2 --adapter-dim 8 -q > "$D/out"
    pesc cost "$BATS_TEST_TMPDIR/sparse" "$BATS_TEST_TMPDIR/sparse" --measure -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    measured=$output
    pesc cost "$BATS_TEST_TMPDIR/sparse" --tokens 512 -o "$BATS_TEST_TMPDIR" --json -q
    python3 - "$measured" "$output" <<'PY'
import json, sys
m, again = json.loads(sys.argv[1])["models"]
for a, b in zip(m["measured"], again["measured"]):  # memory that the first model left does not hide the second's
    assert abs(a["bytes"] - b["bytes"]) < 0.25 * a["bytes"] + 4e6, (a, b)
counted = {p["part"]: p for p in json.loads(sys.argv[2])["models"][0]["parts"]}
runs = {(r["phase"], r["sequences"], r["tokens"]): r for r in m["measured"]}
assert set(runs) == {(p, s, t) for p in ("prefill", "decode", "train") for s in (1, 8) for t in (64, 512, 2048)}
assert all(r["seconds"] > 0 and r["flop"] > 0 and not r["recomputed"] for r in runs.values()), runs
assert all(r["update_seconds"] < r["seconds"] for k, r in runs.items() if k[0] == "train")
total, head = counted["total"], counted["head"]["inference"] // 512
assert runs["train", 8, 512]["flop"] == 8 * (total["forward"] + total["backward"])
assert runs["prefill", 1, 512]["flop"] == total["inference"] - 511 * head
one = (total["inference"] - counted["scores"]["inference"]) // 512
assert runs["decode", 8, 512]["flop"] == 8 * (one + 2 * 2 * 2 * 32 * 513)
PY
    for f in cost-measured.svg cost-measured.png; do
        [ -s "$BATS_TEST_TMPDIR/plots/$f" ]
    done
    pesc cost "$D/model" --measure -o "$BATS_TEST_TMPDIR" -q
    has '^train +8 +2048 +[0-9.]+ms +[0-9]+ +[0-9.]+ [kMG] '
}

@test "cost: --measure gives the memory of each model, not what is taken beside those before" {
    pesc cost "$D/model" "$D/model" --measure --tokens 64 --json -q
    [ "$status" = 0 ]
    python3 - "$output" <<'PY'
import json, sys
a, b = ([r["bytes"] for r in m["measured"]] for m in json.loads(sys.argv[1])["models"])
assert max(b) > 0.7 * max(a), (a, b)
PY
}

@test "cost: --measure times a mixture of LoRA that was trained" {
    echo '{"instruction": "hello", "output": "world"}' > "$D/data.jsonl"
    "$PESC" train "$D/model" --data "$D/data.jsonl" -o "$BATS_TEST_TMPDIR/run" --method molora --experts 4 --steps 1 --batch 1 --seq-len 64 \
        --lora-r 4 -q > "$D/out"
    pesc cost "$BATS_TEST_TMPDIR/run" --measure -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    measured=$output
    pesc cost "$BATS_TEST_TMPDIR/run" --tokens 64 -o "$BATS_TEST_TMPDIR" --json -q
    python3 - "$measured" "$output" <<'PY'
import json, sys
runs = {(r["phase"], r["sequences"], r["tokens"]): r for r in json.loads(sys.argv[1])["models"][0]["measured"]}
total = json.loads(sys.argv[2])["models"][0]["parts"][-1]
assert all(r["seconds"] > 0 for r in runs.values()), runs
assert runs["train", 1, 64]["flop"] == total["forward"] + total["backward"]
PY
}

@test "cost: --measure merges a LoRA for inference, as generate does" {
    echo '{"instruction": "hello", "output": "world"}' > "$D/data.jsonl"
    "$PESC" train "$D/model" --data "$D/data.jsonl" -o "$BATS_TEST_TMPDIR/run" --method lora --steps 1 --batch 1 --seq-len 64 --lora-r 4 -q > "$D/out"
    for dtype in bf16 f32; do
        "$PESC" cost "$D/model" "$BATS_TEST_TMPDIR/run" --measure --lora-r 4 --compute-dtype $dtype -o "$BATS_TEST_TMPDIR" --json -q > "$BATS_TEST_TMPDIR/$dtype"
    done
    python3 - "$BATS_TEST_TMPDIR" <<'PY'
import json, sys
for dtype in ("bf16", "f32"):
    base, run = json.load(open(f"{sys.argv[1]}/{dtype}"))["models"]
    for a, b in zip(base["measured"], run["measured"]):
        merged = dtype == "bf16" or a["phase"] == "train"  # a LoRA of rank 4 trains in both
        assert (a["flop"] == b["flop"]) == merged, (dtype, a, b)
PY
}

@test "cost: what it cannot do" {
    pesc cost
    [ "$status" = 2 ]
    pesc cost "$D/nothing"
    fails 3 "$D/nothing: there is no such file or directory"
    echo '{"model_type": "llama"}' > "$BATS_TEST_TMPDIR/config.json"
    pesc cost "$BATS_TEST_TMPDIR/config.json"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $BATS_TEST_TMPDIR/config.json: "* ]]
    pesc cost "$D/model" --method pesc
    [ "$status" = 2 ]
    pesc cost "$SHAPES/34b-pesc.json" --tokens 16777216
    fails 2 "tokens: found 16777216, for which the FLOP of this model exceed 2^62"
    pesc cost "$SHAPES/7b.json" --measure
    [ "$status" = 3 ]
    [[ $stderr == *"is neither a directory nor a GGUF file"* ]]
}
