# ESFT's training and its expert patches: golden trajectories, resuming, the best checkpoint, --patch,
# pesc esft apply, and what is refused.
load helper

GOLDEN=$BATS_TEST_DIRNAME/../golden
G=$GOLDEN/esft

setup_file() {
    export D=$BATS_FILE_TMPDIR
    tiny olmoe -o "$D/run" -q > /dev/null
    echo '[1, 5, 9, 12, 7, 22, 33, 41, 60, 3]' > "$D/ids.json"
}

# 6 steps on one of the golden models, with validation data that is not the training data.
tiny() { # name options...
    local name=$1
    shift
    head -n 16 "$G/$name/data.jsonl" > "$D/$name.train"
    tail -n 4 "$G/$name/data.jsonl" > "$D/$name.eval"
    "$PESC" train "$GOLDEN/${name%-*}" --method esft --experts-config "$G/$name/expert_cfg.json" \
        --data "$D/$name.train" --eval-data "$D/$name.eval" --eval-every 2 --save-every 2 --keep-checkpoints 0 \
        --steps 6 --batch 2 --lr 1e-3 --seq-len 32 --threads 1 "$@"
}

logits() { # model out options...
    "$PESC" logits "$1" --ids "$D/ids.json" -o "$2" -q "${@:3}"
}

golden() { # name options...
    local options
    options=$(python3 -c 'import json, sys
for k, v in json.load(open(sys.argv[1]))["options"].items(): print("--" + k.replace("_", "-"), v)' "$G/$1/golden.json")
    # shellcheck disable=SC2086
    "$PESC" train "$GOLDEN/${1%-*}" --experts-config "$G/$1/expert_cfg.json" --data "$G/$1/data.jsonl" \
        -o "$BATS_TEST_TMPDIR/$1" $options --clip 0 --shuffle false --seq-len 64 -q "${@:2}"
    python3 - "$G/$1/golden.json" "$BATS_TEST_TMPDIR/$1/metrics.jsonl" <<'PY'
import json, sys
want = json.load(open(sys.argv[1]))["steps"]
have = [json.loads(line) for line in open(sys.argv[2])]
assert len(want) == len(have) == 12
for step, (w, h) in enumerate(zip(want, have), 1):
    for key, value in w.items():
        assert abs(value - h[key]) <= 1e-5 * abs(value), (step, key, value, h[key])
PY
}

@test "esft training: every family follows the float64 reference for twelve steps" {
    for name in mixtral olmoe qwen2_moe qwen3_moe deepseek_v2; do golden $name; done
}
@test "esft training: shared experts, all other modules and the balance loss too" {
    for name in qwen2_moe-shared deepseek_v2-all deepseek_v2-aux; do golden $name; done
}
@test "esft training: recomputed layers give the same trajectory" {
    golden deepseek_v2 --keep 0
}
@test "esft training: without --aux-coef there is no balance loss" {
    grep -qx 'aux_coef: 0' "$D/run/run.yaml"
    python3 -c 'import json, sys
for line in open(sys.argv[1]):
    s = json.loads(line)
    assert s["loss"] == s["ce"] and s["aux"] > 0' "$D/run/metrics.jsonl"
}

# ---- what a run leaves

@test "esft training: a checkpoint is an expert patch" {
    cmp "$G/olmoe/expert_cfg.json" "$D/run/latest/expert_cfg.json"
    python3 - "$D/run/latest" "$GOLDEN/olmoe/model.safetensors" <<'PY'
import json, struct, sys
def header(path):
    with open(path, "rb") as f:
        h = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    h.pop("__metadata__", None)
    return h
base, have = header(sys.argv[2]), header(sys.argv[1] + "/trained.safetensors")
cfg = json.load(open(sys.argv[1] + "/expert_cfg.json"))
want = {f"model.layers.{l}.mlp.experts.{e}.{w}_proj.weight"
        for l, ids in cfg["experts"].items() for e in ids for w in ("gate", "up", "down")}
assert set(have) == want and len(want) == 12
for name in want:
    assert have[name]["shape"] == base[name]["shape"] and have[name]["dtype"] == "F32"
PY
}
@test "esft training: the run, its checkpoint and the base with the patch are the same model" {
    for name in olmoe qwen2_moe-shared deepseek_v2-all; do
        local run=$BATS_TEST_TMPDIR/$name base=$GOLDEN/${name%-*}
        tiny $name -o "$run" -q > /dev/null
        for dtype in f32 bf16 nf4; do
            logits "$run" "$BATS_TEST_TMPDIR/a.npy" --base-dtype $dtype
            for patch in "$run" "$run/latest" "$run/checkpoint-6"; do
                logits "$base" "$BATS_TEST_TMPDIR/b.npy" --patch "$patch" --base-dtype $dtype
                cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/b.npy"
            done
            logits "$base" "$BATS_TEST_TMPDIR/c.npy" --base-dtype $dtype
            refute cmp -s "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/c.npy"
        done
    done
}
@test "esft training: beside nf4 the experts are whole, in the run and in the base with its patch" {
    local run=$BATS_TEST_TMPDIR/nf4
    tiny olmoe -o "$run" --base-dtype nf4 -q > /dev/null
    pesc logits "$run" --ids "$D/ids.json" -o "$BATS_TEST_TMPDIR/a.npy" -q
    [ "$status" = 0 ]
    logits "$run" "$BATS_TEST_TMPDIR/b.npy" --base-dtype nf4
    cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/b.npy"
    logits "$GOLDEN/olmoe" "$BATS_TEST_TMPDIR/c.npy" --patch "$run" --base-dtype nf4
    cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/c.npy"
}
@test "esft training: opened again, a run has the validation loss it had" {
    pesc train "$D/run" --method lora --data "$D/olmoe.train" --eval-data "$D/olmoe.eval" --steps 1 --batch 2 \
        --lr 0 --eval-every 1 --seq-len 32 -o "$BATS_TEST_TMPDIR/again" -q
    [ "$status" = 0 ]
    python3 - "$D/run/eval.jsonl" "$BATS_TEST_TMPDIR/again/eval.jsonl" <<'PY'
import json, sys
a, b = (json.loads(open(p).readlines()[-1])["eval_loss"] for p in sys.argv[1:])
assert abs(a - b) <= 1e-6 * a, (a, b)
PY
}
@test "esft training: best is the checkpoint of the lowest validation loss" {
    tiny olmoe -o "$BATS_TEST_TMPDIR/r" --lr 0.05 -q > /dev/null
    python3 - "$BATS_TEST_TMPDIR/r" <<'PY'
import json, os, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/eval.jsonl")]
best = min(rows, key=lambda r: r["eval_loss"])
assert len(rows) == 3 and os.readlink(sys.argv[1] + "/best") == "checkpoint-%d" % best["step"]
PY
    logits "$GOLDEN/olmoe" "$BATS_TEST_TMPDIR/a.npy" --patch "$BATS_TEST_TMPDIR/r/best"
}

# ---- going on

same_run() { # a b
    diff <(sed 's/"tok_s":[^,]*,//' "$1/metrics.jsonl") <(sed 's/"tok_s":[^,]*,//' "$2/metrics.jsonl")
    for f in trained.safetensors optimizer.safetensors expert_cfg.json patch.json; do
        cmp "$1/latest/$f" "$2/latest/$f" || return 1
    done
}

@test "esft training: a run killed anywhere and resumed equals an uninterrupted one, bit for bit" {
    for n in 3 20 45 60 75 90 105 130; do
        rm -rf "$BATS_TEST_TMPDIR/r"
        PESC_FAULT=any:$n:kill tiny olmoe -o "$BATS_TEST_TMPDIR/r" -q > /dev/null 2>&1 || true
        tiny olmoe -o "$BATS_TEST_TMPDIR/r" --resume -q > /dev/null
        same_run "$D/run" "$BATS_TEST_TMPDIR/r"
    done
}
@test "esft training: resuming with other experts is refused" {
    cp -r "$D/run" "$BATS_TEST_TMPDIR/r"
    echo '{"experts": {"0": [1], "1": [3]}}' > "$BATS_TEST_TMPDIR/other.json"
    pesc train -c "$D/run/run.yaml" -o "$BATS_TEST_TMPDIR/r" --resume --experts-config "$BATS_TEST_TMPDIR/other.json" -q
    [ "$status" = 2 ]
    [[ $stderr == *"options that decide the numbers have changed"* ]]
}

@test "esft training: --preset esft tells how many passes over the records its steps are, and refuses thousands" {
    local r=$BATS_TEST_TMPDIR/r
    common=(train "$GOLDEN/mixtral" --method full --preset esft --data "$G/olmoe/data.jsonl" --seq-len 32)
    pesc "${common[@]}" -o "$r"
    [ "$status" = 2 ]
    [[ $stderr =~ "steps: 500 steps of "[0-9]+" records are "[0-9]+" passes over the "[0-9]+" records that there are, more than max_epochs 1000; say how long the run is with steps or epochs" ]]
    [ ! -e "$r" ]
    pesc "${common[@]}" -o "$r" --batch 2 --max-epochs 0.01
    [ "$status" = 2 ]
    [[ $stderr == *"more than max_epochs 0.01"* ]]
    for given in "--steps 1" "--epochs 0.001"; do
        # shellcheck disable=SC2086
        pesc "${common[@]}" -o "$r" $given --batch 2 --overwrite
        [ "$status" = 0 ]
        refute grep -q 'passes over' <<< "$stderr"
    done
    pesc "${common[@]}" -o "$r.2" --batch 2 --lr 0 --eval-every 0 --save-every 0
    [ "$status" = 0 ]
    [[ $stderr =~ "500 steps of 2 records are "[0-9.]+" passes over the "[0-9]+" records that there are" ]]
}

# ---- patches

@test "patch: every command that runs a model takes one" {
    make_model
    sed 's/"LlamaForCausalLM"/"MixtralForCausalLM"/; s/"llama"/"mixtral", "num_local_experts": 4/' "$D/config.json" > "$D/moe.json"
    pesc new "$D/moe.json" -o "$D/moe" --tokenizer "$D/tok" --dtype bf16 --seed 2 -q
    echo '{"experts": {"0": [2], "1": [0, 3]}}' > "$D/cfg.json"
    for i in 1 2 3 4; do echo "{\"prompt\": \"hello $i\", \"completion\": \"world\"}"; done > "$D/text.jsonl"
    pesc train "$D/moe" --method esft --experts-config "$D/cfg.json" --data "$D/text.jsonl" -o "$D/moe-run" --steps 4 \
        --batch 2 --lr 0.02 --clip 0 --seq-len 64 -q
    [ "$status" = 0 ]
    echo 'hello world, hello' > "$D/text"
    local plain
    pesc perplexity "$D/moe" "$D/text" --json
    plain=$output
    pesc perplexity "$D/moe" "$D/text" --patch "$D/moe-run" --json
    [ "$status" = 0 ]
    [ "$output" != "$plain" ]
    pesc generate "$D/moe-run" -p hello -n 8 --json
    plain=$(python3 -c 'import json; print(json.loads(input())["ids"])' <<< "$output")
    pesc generate "$D/moe" -p hello -n 8 --json --patch "$D/moe-run"
    [ "$plain" = "$(python3 -c 'import json; print(json.loads(input())["ids"])' <<< "$output")" ]
    pesc chat "$D/moe" --patch "$D/moe-run" -n 4 < <(echo hello)
    [ "$status" = 0 ]
    # an evaluation knows one model from the other
    mkdir -p "$D/bench/arc_easy"
    echo '{"id": "1", "question": "hello?", "answerKey": "A", "choices": {"text": ["hello", "world"], "label": ["A", "B"]}}' > "$D/bench/arc_easy/test.jsonl"
    pesc eval "$D/moe" --tasks arc_easy --data-dir "$D/bench" -o "$D/scores"
    [ "$status" = 0 ]
    pesc eval "$D/moe" --tasks arc_easy --data-dir "$D/bench" -o "$D/scores" --patch "$D/moe-run"
    [ "$status" = 0 ]
    [[ $stderr == *"is from an evaluation with another patch; it begins again"* ]]
}
@test "patch: tensor names of ESFT's first release, without the prefix model., are read" {
    mkdir "$BATS_TEST_TMPDIR/p"
    cp "$D/run/latest/expert_cfg.json" "$BATS_TEST_TMPDIR/p"
    python3 - "$D/run/latest/trained.safetensors" "$BATS_TEST_TMPDIR/p/model.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
h = {k.removeprefix("model."): v for k, v in json.loads(data[8:8 + n]).items()}
text = json.dumps(h).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
PY
    logits "$GOLDEN/olmoe" "$BATS_TEST_TMPDIR/a.npy" --patch "$BATS_TEST_TMPDIR/p"
    logits "$D/run" "$BATS_TEST_TMPDIR/b.npy"
    cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/b.npy"
}
@test "esft apply: a whole model, the same numbers, and the base where nothing trained" {
    for name in olmoe deepseek_v2-all; do
        local out=$BATS_TEST_TMPDIR/$name.out base=$GOLDEN/${name%-*} run=$BATS_TEST_TMPDIR/$name
        tiny $name -o "$run" -q > /dev/null
        pesc esft apply "$base" --patch "$run" -o "$out"
        [ "$status" = 0 ]
        logits "$out" "$BATS_TEST_TMPDIR/a.npy"
        logits "$run" "$BATS_TEST_TMPDIR/b.npy"
        cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/b.npy"
        python3 - "$base/model.safetensors" "$run/latest/trained.safetensors" "$out/model.safetensors" <<'PY'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    h = json.loads(data[8:8 + n])
    h.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n:][slice(*v["data_offsets"])]) for k, v in h.items()}
base, patch, out = map(read, sys.argv[1:])
assert set(out) == set(base) and set(patch) < set(base)
for name, t in out.items():
    assert t == patch.get(name, base[name]), name
    assert (name in patch) == (t != base[name]), name
PY
    done
}
@test "esft apply: a base in bf16 stays in bf16" {
    pesc export "$GOLDEN/olmoe" --to hf -o "$BATS_TEST_TMPDIR/base" --dtype bf16 --check false -q
    tiny olmoe -o "$BATS_TEST_TMPDIR/r" -q > /dev/null
    "$PESC" train "$BATS_TEST_TMPDIR/base" --method esft --experts-config "$G/olmoe/expert_cfg.json" --data "$D/olmoe.train" \
        --steps 3 --batch 2 --lr 1e-2 --seq-len 32 -o "$BATS_TEST_TMPDIR/run" -q
    pesc esft apply "$BATS_TEST_TMPDIR/base" --patch "$BATS_TEST_TMPDIR/run" -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 0 ]
    [ "$(stat -c %s "$BATS_TEST_TMPDIR/out/model.safetensors")" = "$(stat -c %s "$BATS_TEST_TMPDIR/base/model.safetensors")" ]
    logits "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/a.npy"
    logits "$BATS_TEST_TMPDIR/run" "$BATS_TEST_TMPDIR/b.npy"
    cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/b.npy"
}
@test "esft apply: on a base in bf16 is judged by what bf16 can hold" {
    pesc export "$GOLDEN/olmoe" --to hf -o "$BATS_TEST_TMPDIR/bf16" --dtype bf16 -q
    [ "$status" = 0 ]
    for more in false true; do
        echo '{"experts": {"0": [1], "1": [1]}, "shared_experts": false, "non_expert_modules": '$more'}' > "$BATS_TEST_TMPDIR/cfg.json"
        "$PESC" train "$BATS_TEST_TMPDIR/bf16" --method esft --experts-config "$BATS_TEST_TMPDIR/cfg.json" \
            --data "$D/olmoe.train" --steps 2 --batch 2 --lr 1e-3 --seq-len 32 --threads 1 -q -o "$BATS_TEST_TMPDIR/r" --overwrite
        pesc esft apply "$BATS_TEST_TMPDIR/bf16" --patch "$BATS_TEST_TMPDIR/r" -o "$BATS_TEST_TMPDIR/out" --overwrite
        [ "$status" = 0 ]
        logits "$BATS_TEST_TMPDIR/r" "$BATS_TEST_TMPDIR/a.npy"
        logits "$BATS_TEST_TMPDIR/bf16" "$BATS_TEST_TMPDIR/b.npy" --patch "$BATS_TEST_TMPDIR/r"
        cmp "$BATS_TEST_TMPDIR/a.npy" "$BATS_TEST_TMPDIR/b.npy"
    done
}

@test "esft apply: a base with a LoRA of its own is refused" {
    pesc train "$GOLDEN/olmoe" --method lora --lora-r 2 --data "$D/olmoe.train" --steps 1 --batch 2 --seq-len 32 \
        -o "$BATS_TEST_TMPDIR/lora" -q
    pesc esft apply "$BATS_TEST_TMPDIR/lora" --patch "$D/run" -o "$BATS_TEST_TMPDIR/out" --check false
    fails 2 "$BATS_TEST_TMPDIR/lora: has a LoRA, which would be lost; fold it in first: pesc merge $BATS_TEST_TMPDIR/lora -o DIR"
    [ ! -e "$BATS_TEST_TMPDIR/out/config.json" ]
    pesc esft apply "$GOLDEN/olmoe" --patch "$D/run" --lora "$BATS_TEST_TMPDIR/lora/checkpoint-1" -o "$BATS_TEST_TMPDIR/out"
    fails 2 "esft apply: --lora has no effect here; fold it into the base first: pesc merge BASE --lora DIR -o MERGED"
    pesc plan "$BATS_TEST_TMPDIR/lora" --method lora --lora "$BATS_TEST_TMPDIR/lora/checkpoint-1"
    [ "$status" = 2 ]
    [[ "$stderr" == *"has a LoRA of its own"* ]]
}

# ---- memory

@test "plan: memory and disk grow with the chosen experts" {
    plan() { "$PESC" plan "$GOLDEN/mixtral" --method esft --experts-config "$1" --seq-len 64 --batch 4 --json; }
    python3 - "$BATS_TEST_TMPDIR" <<'PY'
import json, sys
for n, experts in enumerate([{0: [], 1: [], 2: [1]}, {0: [], 1: [], 2: [1, 4]}, {0: [3], 1: [0], 2: [1, 4]}], 1):
    open(f"{sys.argv[1]}/{n}.json", "w").write(json.dumps({"experts": {str(k): v for k, v in experts.items()}}))
PY
    for n in 1 2 3; do plan "$BATS_TEST_TMPDIR/$n.json"; done > "$BATS_TEST_TMPDIR/plans"
    python3 - "$BATS_TEST_TMPDIR/plans" <<'PY'
import json, sys
plans = [json.loads(line) for line in open(sys.argv[1])]
one = 3 * 36 * 52
for experts, p in zip((1, 2, 4), plans):
    assert p["params_trained"] == experts * one, p
    assert p["bytes"]["trained"] == experts * one * 8, p     # master weights and gradients
    assert 0 <= p["bytes"]["optimizer"] - experts * one * 8 < 4096 + 128, p     # the moments, and sums of the norm
assert len({p["bytes"]["model"] for p in plans}) == 1
PY
}

# ---- first mistakes

@test "esft training: usage errors" {
    train() { pesc train "$@" --data "$D/olmoe.train" -o "$BATS_TEST_TMPDIR/r" --seq-len 32; }
    train "$GOLDEN/olmoe" --method esft
    fails 2 "experts_config: is missing; give the expert_cfg.json that \`pesc esft select\` writes"
    train "$GOLDEN/olmoe" --method full --experts-config "$G/olmoe/expert_cfg.json"
    fails 2 "experts_config: method full does not look at it; method esft does"
    train "$GOLDEN/llama" --method esft --experts-config "$G/olmoe/expert_cfg.json"
    fails 2 "method esft trains full experts, but the model has none: run \`pesc craft MODEL -o SPARSE --kind upcycle\` first and train SPARSE"
    train "$GOLDEN/olmoe" --method esft --experts-config "$G/mixtral/expert_cfg.json"
    fails 3 "$G/mixtral/expert_cfg.json: experts.2: the model's layers are 0 to 1 (layers are counted from 0)"
    train "$GOLDEN/olmoe" --method esft --experts-config "$BATS_TEST_TMPDIR/none.json"
    [ "$status" = 3 ]
    train "$GOLDEN/olmoe" --method esft --experts-config "$G/olmoe/expert_cfg.json" --patch "$D/run"
    fails 2 "train: --patch: a run cannot start from a patched model, because no file holds its weights; give the run that made the patch as MODEL, or apply it first: pesc esft apply"
    echo '{"experts": {"0": [], "1": []}}' > "$BATS_TEST_TMPDIR/none.json"
    train "$GOLDEN/olmoe" --method esft --experts-config "$BATS_TEST_TMPDIR/none.json"
    fails 2 "nothing trains: this model has no part of what is asked for"
}
@test "patch: one of another model is refused" {
    pesc logits "$GOLDEN/llama" --ids "$D/ids.json" -o "$BATS_TEST_TMPDIR/x.npy" --patch "$D/run"
    fails 3 "$D/run/checkpoint-6: is a patch for experts, but $GOLDEN/llama has none"
    tiny deepseek_v2 -o "$BATS_TEST_TMPDIR/r" -q > /dev/null
    pesc esft apply "$GOLDEN/deepseek_v2-yarn" --patch "$BATS_TEST_TMPDIR/r" -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 3 ]
    [[ $stderr == *"was made for another model than $GOLDEN/deepseek_v2-yarn"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/out/config.json" ]
}

# What a model has: every tensor, as sorted lines of name and bytes.
contents() { # directory
    python3 - "$1/model.safetensors" <<'PY'
import hashlib, json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
h = json.loads(data[8:8 + n])
h.pop("__metadata__", None)
for name in sorted(h):
    a, b = h[name]["data_offsets"]
    print(name, h[name]["dtype"], h[name]["shape"], hashlib.sha1(data[8 + n + a:8 + n + b]).hexdigest())
PY
}

@test "esft unapply: the base again, bit for bit, from a model with a patch in it and from a run" {
    local t=$BATS_TEST_TMPDIR
    cp -r "$GOLDEN/olmoe" "$t/base"
    pesc esft apply "$t/base" --patch "$D/run" -o "$t/tuned" --check false
    [ "$status" = 0 ]
    refute diff <(contents "$t/tuned") <(contents "$t/base")
    pesc esft unapply "$t/tuned" -o "$t/again"
    [ "$status" = 0 ]
    diff <(contents "$t/again") <(contents "$t/base")
    pesc esft unapply "$D/run" -o "$t/of-run"
    [ "$status" = 0 ]
    diff <(contents "$t/of-run") <(contents "$t/base")
    mv "$t/base" "$t/moved"
    pesc esft unapply "$t/tuned" -o "$t/x"
    [ "$status" = 3 ]
    pesc esft unapply "$t/tuned" --base "$t/moved" -o "$t/x"
    [ "$status" = 0 ]
    diff <(contents "$t/x") <(contents "$t/moved")
    rm "$t/tuned/esft_applied.json"
    pesc esft unapply "$t/tuned" -o "$t/y"
    fails 2 "$t/tuned: does not record the model that its experts were tuned in; give it with --base DIR"
    pesc esft unapply "$t/tuned" --base "$GOLDEN/qwen3_moe" -o "$t/y"
    [ "$status" != 0 ]
    "$PESC" new "$GOLDEN/olmoe/config.json" -o "$t/other" --seed 9 --dtype f32 -q > /dev/null
    pesc esft unapply "$t/tuned" --base "$t/other" -o "$t/y"
    [ "$status" = 2 ]
    [[ $stderr == *"and it is no expert: this is not the base of the tuned model" ]]
    [ ! -e "$t/y/config.json" ]
    pesc esft unapply
    fails 2 "esft unapply: TUNED is missing; usage: pesc esft unapply TUNED [--base MIXTURE] -o OUT"
}

@test "esft prune: the best experts of each layer, with their rows of the router, on every family" {
    local t=$BATS_TEST_TMPDIR name
    for name in mixtral olmoe qwen2_moe qwen3_moe deepseek_v2 deepseek gpt_oss qwen3_5_moe qwen3_next lfm2_moe ernie4_5_moe; do
        pesc esft score "$GOLDEN/$name" --data "$GOLDEN/esft_score/ids.jsonl" -o "$t/$name"
        [ "$status" = 0 ]
        pesc info "$GOLDEN/$name" --json
        local k; k=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["top_k"])' "$output")
        pesc esft prune "$GOLDEN/$name" --scores "$t/$name" --keep $((k + 1)) -o "$t/$name.pruned" --data "$GOLDEN/esft_score/ids.jsonl" --json
        [ "$status" = 0 ]
        has "\"kept\":$((k + 1)),"
        has '"loss_before":[0-9.]*,"loss_after":[0-9.]*'
        pesc info "$t/$name.pruned" --json
        has "\"experts\":$((k + 1)),"
    done
    python3 - "$GOLDEN/olmoe" "$t/olmoe.pruned" "$t/olmoe/summary.json" <<'PY'
import json, struct, sys
def read(path):
    data = open(path + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    h = json.loads(data[8:8 + n])
    return {k: (v["shape"], data[8 + n:][slice(*v["data_offsets"])]) for k, v in h.items() if k != "__metadata__"}
old, new = read(sys.argv[1]), read(sys.argv[2])
scores = json.load(open(sys.argv[3]))["token_scores"]
for layer, of in scores.items():
    shape, router = new[f"model.layers.{layer}.mlp.gate.weight"]
    kept = sorted(sorted(of, key=lambda e: (-of[e], int(e)))[:shape[0]], key=int)
    row = shape[1] * 4
    was = old[f"model.layers.{layer}.mlp.gate.weight"][1]
    assert router == b"".join(was[int(e) * row:(int(e) + 1) * row] for e in kept)
    for i, e in enumerate(kept):
        for m in ("gate_proj", "up_proj", "down_proj"):
            at = f"model.layers.{layer}.mlp.experts.%s.{m}.weight"
            assert new[at % i] == old[at % e], (layer, e)
PY
    pesc esft prune "$GOLDEN/olmoe" --scores "$t/olmoe" --keep 1 -o "$t/x"
    fails 2 "keep: found 1, but a token gets 3 experts of $GOLDEN/olmoe"
    pesc esft prune "$GOLDEN/olmoe" --scores "$t/olmoe" --keep 1000 -o "$t/x"
    [ "$status" = 2 ]
    pesc esft prune "$GOLDEN/olmoe" --scores "$t/olmoe" -o "$t/x"
    fails 2 "esft prune: --keep is missing; usage: pesc esft prune MODEL --scores SUMMARY --keep N -o OUT [--data FILE...]"
    [ ! -e "$t/x" ]
}
