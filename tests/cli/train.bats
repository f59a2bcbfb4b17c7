# The command `pesc train`: golden trajectories, what a run leaves, and what is refused. resume.bats has the rest.
load helper
load run_helper

setup_file() {
    export D=$BATS_FILE_TMPDIR
    make_model
    make_run
}

golden() { # name
    local options lora=()
    options=$(python3 -c 'import json, sys
for k, v in json.load(open(sys.argv[1]))["options"].items(): print("--" + k.replace("_", "-"), v)' "$G/$1/golden.json")
    [ ! -d "$G/$1/lora" ] || lora=(--lora "$G/$1/lora")
    # shellcheck disable=SC2086
    "$PESC" train "$G/$1/model" "${lora[@]}" --data "$G/$1/data.jsonl" -o "$BATS_TEST_TMPDIR/$1" $options \
        --clip 0 --shuffle false --adapter-dropout 0 --lora-dropout 0 --seq-len 64 --base-dtype f32 \
        --compute-dtype f32 -q "${@:2}"
    python3 - "$G/$1/golden.json" "$BATS_TEST_TMPDIR/$1/metrics.jsonl" <<'PY'
import json, sys
want = json.load(open(sys.argv[1]))["steps"]
have = [json.loads(line) for line in open(sys.argv[2])]
assert len(want) == len(have), (len(want), len(have))
for step, (w, h) in enumerate(zip(want, have), 1):
    for key, value in w.items():
        assert abs(value - h[key]) <= 1e-5 * max(abs(value), 1e-3), (step, key, value, h[key])
PY
}

@test "train: pesc follows the float64 reference for twelve steps" {
    golden pesc-a
    golden pesc-b
}
@test "train: lora, full, upcycle and molora follow the reference too" {
    for name in lora full upcycle molora; do golden $name; done
}
@test "train: one record a forward gives the same trajectory" {
    # the balance loss is one of a forward, so without it
    golden lora --packing false
    golden full --packing false --grad-groups 1 # so that a group has several
}
@test "train: recomputed layers give the same bits" {
    tiny -o "$BATS_TEST_TMPDIR/a" --keep 0 -q
    numbers "$D/run" | head -8 | sed 's/"mem_bytes":[^,]*,//' > "$BATS_TEST_TMPDIR/x"
    numbers "$BATS_TEST_TMPDIR/a" | sed 's/"mem_bytes":[^,]*,//' | diff "$BATS_TEST_TMPDIR/x" -
}
@test "train: the number of threads does not change a bit" {
    tiny -o "$BATS_TEST_TMPDIR/a" --threads 3 --save-every 4 -q
    cmp "$BATS_TEST_TMPDIR/a/latest/trained.safetensors" "$D/run/latest/trained.safetensors"
}

# ---- what a run leaves

@test "train: the run directory" {
    [ "$(cat "$D/run.out")" = "$D/run: done at step 8 of 8, loss $(tail -n 1 "$D/run/metrics.jsonl" |
        python3 -c 'import json; print("%.4f" % json.loads(input())["loss"])')" ]
    for f in run.yaml run.json metrics.jsonl routing.jsonl eval.jsonl tb latest best checkpoint-4 checkpoint-8; do
        [ -e "$D/run/$f" ]
    done
    [ "$(readlink "$D/run/latest")" = checkpoint-8 ]
    [ "$(head -n 1 "$D/run/metrics.jsonl" | python3 -c 'import json; print(*json.loads(input()))')" = \
        "step epoch tokens loss ce aux grad_norm lr tok_s mem_bytes expert_entropy dead_experts" ]
    [ "$(wc -l < "$D/run/metrics.jsonl")" = 8 ]
    [ "$(wc -l < "$D/run/eval.jsonl")" = 2 ]
}
@test "train: the step line" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/r" --log-every 4
    [ "$status" = 0 ]
    line='^step 8/8 \| loss [0-9.]+ \(ce [0-9.]+ aux [0-9.]+\) \| gn [0-9.]+ \| lr 3\.0e-03 \| [0-9.]+[kM]? tok/s [0-9]+% \| experts H=[01]\.[0-9]{2} \(layer [0-9]+: [01]\.[0-9]{2}\) dead [0-9]+ \| [0-9.]+/[0-9]+ GiB \| eta 0s$'
    grep -Eq "$line" <<< "$stderr"
    [ "$(grep -c '^step ' <<< "$stderr")" = 3 ] # 1, 4, 8
}
@test "train: the end of a run says where its time went" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/r" --save-every 2 --val-split 0.2 --eval-every 2 --json
    [ "$status" = 0 ]
    python3 - "$output" "$BATS_TEST_TMPDIR/r/metrics.jsonl" <<'PY'
import json, sys
r, rows = json.loads(sys.argv[1]), [json.loads(line) for line in open(sys.argv[2])]
s = r["seconds"]
parts = [s[k] for k in ("start", "steps", "validation", "checkpoints", "plots")]
assert all(x > 0 for x in parts) and 0.9 * s["total"] < sum(parts) <= 1.001 * s["total"], s
assert abs(r["share_in_steps"] - s["steps"] / s["total"]) < 1e-4, r
tokens = [b["tokens"] - a for a, b in zip([0] + [x["tokens"] for x in rows], rows)]
inside = sum(n / x["tok_s"] for n, x in zip(tokens, rows))
assert abs(inside - s["steps"]) < 1e-3 * inside, (inside, s)
PY
    tiny_pesc -o "$BATS_TEST_TMPDIR/s"
    grep -Eq '^time: [0-9.]+ s, [0-9]+ % of it in steps; start [0-9.]+ s, validation 0.0 s, checkpoints [0-9.]+ s, plots [0-9.]+ s$' <<< "$stderr"
}
@test "train: run.yaml gives the same run again" {
    pesc train -c "$D/run/run.yaml" -o "$BATS_TEST_TMPDIR/again" --threads 1 -q
    [ "$status" = 0 ]
    same_run "$D/run" "$BATS_TEST_TMPDIR/again"
}
@test "train: the defaults of --help are those of run.yaml" {
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 0 ]
    "$PESC" train --help > "$BATS_TEST_TMPDIR/help"
    python3 - "$BATS_TEST_TMPDIR/help" "$BATS_TEST_TMPDIR/r/run.yaml" <<'PY'
import re, sys
options = re.split(r"\n +(?:-., )?--", open(sys.argv[1]).read())[1:]
defaults = {o.split()[0].replace("-", "_"): m.group(1) for o in options
            if (m := re.search(r"\(default ([^)]*)\)", re.sub(r"\s+", " ", o)))}
own = {"experts", "top_k", "adapter_dim", "adapter_scale", "micro_tokens", "warmup_steps", "aux_coef",
       "grad_groups"}  # the model's, or computed
checked = 0
for line in open(sys.argv[2]):
    key, value = line.rstrip("\n").split(": ", 1)
    if key in own or key not in defaults:
        continue
    want, have = defaults[key], value.strip('"')
    same = want == have
    try:
        same = same or float(want) == float(have)
    except ValueError:
        pass
    assert same, (key, want, have)
    checked += 1
assert checked > 25, checked
PY
}
@test "train: run.yaml records the resolved options and reproduces the run" {
    local r=$BATS_TEST_TMPDIR/r
    echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' > "$BATS_TEST_TMPDIR/m.jsonl"
    pesc train "$D/model" --data "$BATS_TEST_TMPDIR/m.jsonl" -o "$r" --method lora --batch 1 --steps 2 --lora-r 2 -q
    [ "$status" = 0 ]
    grep -qx 'compute_dtype: "f32"' "$r/run.yaml"
    grep -qx 'template: "own"' "$r/run.yaml"
    pesc train -c "$r/run.yaml" -o "$r.again" -q
    [ "$status" = 0 ]
    diff <(numbers "$r") <(numbers "$r.again")
    diff <(grep -v ^output: "$r/run.yaml") <(grep -v ^output: "$r.again/run.yaml")
}
@test "train: base_grad_dtype fp8 is refused where it cannot be computed" {
    local r=$BATS_TEST_TMPDIR/r
    pesc train "$D/model" --data "$D/data.jsonl" -o "$r" --method lora --steps 1 --base-grad-dtype fp8
    [ "$status" = 2 ]
    [[ $stderr == *"base_grad_dtype: found fp8 with compute_dtype f32, expected bf16"* ]]
    pesc train "$D/model" --data "$D/data.jsonl" -o "$r" --method full --steps 1 --base-grad-dtype fp8 --compute-dtype bf16
    [ "$status" = 2 ]
    [[ $stderr == *"base_grad_dtype: found fp8, but method full freezes no weights"* ]]
    pesc train "$D/model" --data "$D/data.jsonl" -o "$r" --method lora --steps 1 --base-grad-dtype fp8 --compute-dtype bf16 --base-dtype f32
    [ "$status" = 2 ]
    [[ $stderr == *"base_grad_dtype: found fp8 with weights held in f32; give base_dtype bf16 or nf4"* ]]
    pesc train "$D/model" --data "$D/data.jsonl" -o "$r" --method lora --steps 1 --base-grad-dtype fp8 --compute-dtype bf16 --base-dtype nf4
    [ "$status" != 0 ]
    [[ $stderr == *"base_grad_dtype: found fp8 on device cpu"*"expected a GPU of compute capability 9.0"* ]]
    [ ! -e "$r" ]
}
@test "train: trained experts stay unquantised where the base is NF4" {
    local esft=$BATS_TEST_DIRNAME/../golden/esft/olmoe r=$BATS_TEST_TMPDIR/r
    pesc train "$G/upcycle/model" --data "$G/upcycle/data.jsonl" -o "$r" --method upcycle --base-dtype nf4 --steps 2 \
        --batch 2 --seq-len 32 --lora-r 2 --lr 1e-2 --warmup-steps 0 -q
    [ "$status" = 0 ]
    pesc merge "$r" -o "$r.merged" --dtype f32
    [ "$status" = 0 ]
    pesc train "$BATS_TEST_DIRNAME/../golden/olmoe" --data "$G/upcycle/data.jsonl" -o "$r.esft" --method esft \
        --experts-config "$esft/expert_cfg.json" --base-dtype nf4 --steps 1 --batch 2 --seq-len 32 -q
    [ "$status" = 0 ]
    pesc train "$G/upcycle/model" --data "$G/upcycle/data.jsonl" -o "$r.full" --method full --base-dtype nf4 --steps 1 -q
    [ "$status" = 2 ]
    [[ $stderr == *"trains, but is held in nf4; "* ]]
}
@test "train: a run is a model, and so is its checkpoint" {
    echo '[[1, 5, 9, 12, 7]]' > "$BATS_TEST_TMPDIR/ids.json"
    for m in "$D/run" "$D/run/latest" "$D/run/checkpoint-8" "$D/run/checkpoint-4" "$G/pesc-a/model"; do
        pesc logits "$m" --ids "$BATS_TEST_TMPDIR/ids.json" -o "$BATS_TEST_TMPDIR/$(tr / _ <<< "$m").npy"
        [ "$status" = 0 ]
    done
    cd "$BATS_TEST_TMPDIR"
    run="$(tr / _ <<< "$D/run")"
    cmp "$run.npy" "${run}_latest.npy"
    cmp "$run.npy" "${run}_checkpoint-8.npy"
    refute cmp -s "$run.npy" "${run}_checkpoint-4.npy"
    refute cmp -s "$run.npy" "$(tr / _ <<< "$G/pesc-a/model").npy"
    pesc info "$D/run" --json
    has '"family":"camelidae"'
    pesc logits "$G/pesc-a/model" --lora "$D/run" --ids ids.json -o x.npy
    fails 2 "$D/run: is a run, expected a PEFT adapter; give $D/run/latest, or the run as the model"
}
@test "train: opened as a model, a run has the validation loss it had in training" {
    local r=$BATS_TEST_TMPDIR/r data=(--data "$G/lora/data.jsonl" --eval-data "$G/lora/data.jsonl" --batch 4 --seq-len 64 -q)
    for how in "lora lora" "full full" "upcycle upcycle" "molora molora" "pesc-a pesc"; do
        rm -rf "$r" "$r.again"
        pesc train "$G/${how% *}/model" --method "${how#* }" "${data[@]}" --steps 6 --lr 1e-2 --clip 0 --lora-r 3 \
            --top-k 2 --experts 4 --eval-every 6 -o "$r"
        [ "$status" = 0 ]
        pesc train "$r" --method lora "${data[@]}" --steps 1 --lr 0 --eval-every 1 -o "$r.again"
        [ "$status" = 0 ]
        python3 - "$r" <<'PY'
import json, sys
a, b = (json.loads(open(sys.argv[1] + d + "/eval.jsonl").readline())["eval_loss"] for d in ("", ".again"))
assert abs(a - b) < 2e-6 * a, (a, b)
PY
    done
}
@test "train: a run that starts from a run" {
    pesc train "$D/run" --data "$G/pesc-a/data.jsonl" --method lora --steps 2 --batch 2 --seq-len 32 -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 0 ]
    pesc info "$BATS_TEST_TMPDIR/r"
    [ "$status" = 0 ]
}

@test "train: adapter_config.json records the options" {
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["lora_dropout"] == 0.1' "$D/run/latest/adapter_config.json"
}
@test "train: a run that fails before its first step does not block the next one" {
    local r=$BATS_TEST_TMPDIR/r
    echo '{"input_ids": [1, 5], "labels": [-100, -100]}' > "$BATS_TEST_TMPDIR/d.jsonl"
    for data in "$BATS_TEST_TMPDIR/d.jsonl" "$G/pesc-a/data.jsonl"; do
        pesc train "$G/pesc-a/model" --data "$data" -o "$r" --steps 1 --batch 2 --seq-len 32 --lora-r 2 -q
        [ "$data" != "$BATS_TEST_TMPDIR/d.jsonl" ] || [ "$status" = 3 ]
    done
    [ "$status" = 0 ]
    [ -e "$r/latest/manifest.json" ]
}
@test "train: numbers that are not finite are not applied, and end the run" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/r" --lr 1e30 --clip 0 --warmup-steps 0
    [ "$status" = 5 ]
    [[ $stderr == *"is not finite; the step is not applied (1 so far)"* ]]
    [[ $stderr == *"was not finite 3 times in a row"* ]]
    grep -q '"loss":null' "$BATS_TEST_TMPDIR/r/metrics.jsonl"
}
@test "train: a full disk while saving does not end the run" {
    local r=$BATS_TEST_TMPDIR/r
    # asked once at the start, then once and once a file for each checkpoint
    PESC_FAULT=reserve:3:ENOSPC tiny_pesc -o "$r" --save-every 4
    [ "$status" = 0 ]
    [[ $stderr == *"step 4: could not be saved: "*"No space left on device"*"the run goes on and tries again"* ]]
    [ -e "$r/checkpoint-8/manifest.json" ]
    [ ! -e "$r/checkpoint-4" ]
    PESC_FAULT=reserve:2:ENOSPC tiny_pesc -o "$BATS_TEST_TMPDIR/s" --save-every 0 -q
    [ "$status" = 4 ]
    [[ $stderr == "pesc: $BATS_TEST_TMPDIR/s: a checkpoint takes "*" bytes, but the disk has 0 left; free some, or give an output elsewhere" ]]
}
@test "train: too little disk or memory is reported before the first step" {
    PESC_FAULT=reserve:1:ENOSPC tiny_pesc -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 4 ]
    [[ $stderr == *"a checkpoint takes "*" bytes, but the disk has 0 left"* ]]
    [ ! -s "$BATS_TEST_TMPDIR/r/metrics.jsonl" ]
    [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -lt 67108864 ] || skip "the run fits into more than 64 GiB"
    tiny_pesc -o "$BATS_TEST_TMPDIR/s" --seq-len 16000000 -q
    [ "$status" = 4 ]
    [[ $stderr == *"but this machine has "*" GiB left"* ]]
}
@test "train: dropped and truncated records are counted" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/r" --seq-len 10 --over-length truncate
    [ "$status" = 0 ]
    grep -Eq '^pesc: note: training data: [1-9][0-9]* of [0-9]+ records are longer than seq_len 10 and are cut there' <<< "$stderr"
}

# ---- what is refused

@test "train: usage errors" {
    local m=$G/pesc-a/model d=$G/pesc-a/data.jsonl r=$BATS_TEST_TMPDIR/r
    pesc train "$m" --data "$d"
    fails 2 "train: -o RUN is missing; usage: pesc train MODEL --data FILE... -o RUN"
    pesc train "$m" -o "$r"
    fails 2 "train: --data FILE is missing; usage: pesc train MODEL --data FILE... -o RUN"
    pesc train "$m" --data "$r/none.jsonl" -o "$r"
    [ "$status" = 3 ]
    pesc train "$r/none" --data "$d" -o "$r"
    [ "$status" = 3 ]
    pesc train "$D/model" --data "$d" -o "$r" -q
    fails 2 'method pesc trains adapters, but the model has none: run `pesc craft MODEL -o SPARSE` first and train SPARSE, or give --method lora'
    pesc train "$m" --data "$d" -o "$r" --method upcycle -q
    [ "$status" = 2 ]
    pesc train "$m" --data "$d" -o "$r" --method molora -q
    [ "$status" = 2 ]
    pesc train "$m" --data "$d" -o "$r" --experts 8 -q
    fails 2 "train: --experts: found 8, but the model was made with 4; leave it out, or craft another model"
    pesc train "$m" --data "$d" -o "$r" --lora-targets q_prj -q
    [ "$status" = 2 ]
    pesc train "$m" --data "$d" -o "$r.short" --seq-len 2 -q
    fails 2 "every record is longer than seq_len 2 and is dropped; raise seq_len, or choose over_length truncate or split"
    pesc train "$m" --data "$d" -o "$r.short" --overwrite --seq-len 2 --steps 1 --batch 1 -q
    fails 2 "every record is longer than seq_len 2 and is dropped; raise seq_len, or choose over_length truncate or split"
    pesc train "$D/model" --data "$d" -o "$r" --method full --base-dtype nf4 -q
    [ "$status" = 2 ]
    pesc train "$m" --data "$d" -o /proc/nowhere -q
    [ "$status" = 4 ]
    pesc train "$m" --data "$d" -o "$r" --patience 2 -q
    fails 2 "patience: needs validation data, and there is none; give eval_data or val_split"
    pesc train "$m" --data "$d" -o "$r" --eval-at-start -q
    fails 2 "eval_at_start: needs validation data, and there is none; give eval_data or val_split"
    [ ! -e "$r" ]
}
@test "train: a warm-up longer than the run is told" {
    pesc train "$D/model" --method lora --lora-r 2 --data "$G/pesc-a/data.jsonl" -o "$BATS_TEST_TMPDIR/r" --steps 2 --batch 1 \
        --warmup-steps 8 --lr 1e-3
    [ "$status" = 0 ]
    [[ $stderr == *"warmup_steps: the warm-up takes 8 steps and the run has 2: the learning rate ends at 0.00025, below lr 0.001"* ]]
}
@test "train: records without targets, and ids beyond the vocabulary" {
    echo '{"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}' > "$BATS_TEST_TMPDIR/a.jsonl"
    pesc train "$G/pesc-a/model" --data "$BATS_TEST_TMPDIR/a.jsonl" -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 3 ]
    [[ $stderr == *"a.jsonl:1: has nothing to train on"* ]]
    echo '{"input_ids": [1, 2000, 3], "labels": [1, 2000, 3]}' > "$BATS_TEST_TMPDIR/b.jsonl"
    pesc train "$G/pesc-a/model" --data "$BATS_TEST_TMPDIR/b.jsonl" -o "$BATS_TEST_TMPDIR/s" -q
    [ "$status" = 3 ]
    [[ $stderr == *"b.jsonl:1"*"the tokenizer and the model do not belong together"* ]]
}

@test "train: validation data that is too long is reported" {
    python3 -c 'import json; print(json.dumps({"input_ids": [5] * 40, "labels": [5] * 40}))' > "$BATS_TEST_TMPDIR/long.jsonl"
    tiny_pesc -o "$BATS_TEST_TMPDIR/r" --steps 1 --eval-data "$BATS_TEST_TMPDIR/long.jsonl"
    [ "$status" = 0 ]
    grep -qx "pesc: note: step 1: no record of eval_data has an answer within seq_len 32: there is no validation loss" <<< "$stderr"
}

# ---- numbers that are not finite

@test "train: a run of which no step could be applied fails" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    printf '\0\0\300\177' | dd of="$BATS_TEST_TMPDIR/m/model.safetensors" bs=1 conv=notrunc \
        seek=$(($(stat -c %s "$BATS_TEST_TMPDIR/m/model.safetensors") - 4)) 2> /dev/null
    pesc train "$BATS_TEST_TMPDIR/m" --data "$BATS_TEST_DIRNAME/../../share/test.jsonl" -o "$BATS_TEST_TMPDIR/r" --method lora \
        --steps 2 --batch 1 --seq-len 128 --lora-r 2 --over-length truncate -q
    fails 5 "step 2: the loss or its gradient was not finite 2 times in a row; a smaller lr may help, or the data of these steps (the newest checkpoint is from step 0)"
}
@test "train: weights that are not finite are not saved" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/r" --lr 1e30 --warmup-steps 0 --steps 1 -q
    fails 5 "step 1: the weights are not finite; a smaller lr may help (the newest checkpoint is from step 0)"
    [ ! -e "$BATS_TEST_TMPDIR/r/checkpoint-1" ]
}

# ---- other ways to train

@test "train: text, on a dense model, with every frozen dtype and both optimisers" {
    for i in 1 2 3 4 5 6; do
        printf '{"instruction": "say %d", "output": "hello world"}\n' $i
    done > "$BATS_TEST_TMPDIR/t.jsonl"
    for how in "--method qlora" "--method lora --base-dtype bf16 --compute-dtype bf16" \
        "--method full --optimizer adamw8" "--method molora --experts 3 --top-k 1 --schedule cosine"; do
        rm -rf "$BATS_TEST_TMPDIR/r"
        # shellcheck disable=SC2086
        pesc train "$D/model" --data "$BATS_TEST_TMPDIR/t.jsonl" -o "$BATS_TEST_TMPDIR/r" --steps 30 --batch 3 \
            --seq-len 64 --lora-r 4 --lr 1e-2 --clip 1 -q $how
        [ "$status" = 0 ]
        python3 - "$BATS_TEST_TMPDIR/r/metrics.jsonl" <<'PY'
import json, sys
loss = [json.loads(line)["ce"] for line in open(sys.argv[1])]
assert loss[-1] < 0.95 * loss[0], loss
PY
    done
}
@test "train: several files, sequence loss, JSON" {
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" "$G/pesc-b/data.jsonl" -o "$BATS_TEST_TMPDIR/r" \
        --epochs 1 --batch 40 --seq-len 32 --preset published --json -q
    [ "$status" = 0 ]
    has '"method":"pesc","step":3,"steps":3,'
    grep -q '^loss: "sequence"$' "$BATS_TEST_TMPDIR/r/run.yaml"
    grep -q '^aux_coef: 0$' "$BATS_TEST_TMPDIR/r/run.yaml"
}

# ---- chat templates

@test "train: --lora-layers puts LoRA into some layers only" {
    local r=$BATS_TEST_TMPDIR/r
    common=(train "$G/lora/model" --method lora --data "$G/lora/data.jsonl" --lora-r 2 --batch 2 --seq-len 32 --steps 1 -q -o "$r")
    pesc "${common[@]}" --lora-layers 1
    [ "$status" = 0 ]
    python3 - "$r/latest" <<'PY'
import json, struct, sys
config = json.load(open(sys.argv[1] + "/adapter_config.json"))
assert config["layers_to_transform"] == [1], config
with open(sys.argv[1] + "/adapter_model.safetensors", "rb") as f:
    names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
layers = {n.split(".layers.")[1].split(".")[0] for n in names if n != "__metadata__"}
assert layers == {"1"}, layers
PY
    grep -qx 'lora_layers: "1"' "$r/run.yaml"
    pesc "${common[@]}" --overwrite --lora-layers 0-1
    [ "$status" = 0 ]
    if grep -q layers_to_transform "$r/latest/adapter_config.json"; then return 1; fi
    for bad in 2 1-0 0-9 x 0- -1 1,,x; do
        pesc "${common[@]}" --overwrite --lora-layers "$bad"
        [ "$status" = 2 ]
        [[ $stderr == "pesc: lora_layers: found "*", expected all, or at most 16 numbers and ranges from 0 to 1, such as 0,10-20" ]]
    done
}
@test "train: a run, its merge and its exports carry the template it was trained with" {
    local r=$BATS_TEST_TMPDIR/r
    echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}' > "$BATS_TEST_TMPDIR/d.jsonl"
    pesc train "$D/model" --method lora --lora-r 2 --data "$BATS_TEST_TMPDIR/d.jsonl" --template alpaca --steps 1 --seq-len 512 -o "$r" -q
    [ "$status" = 0 ]
    for dir in "$r" "$r/latest"; do
        pesc info "$dir" --json
        has '"chat":"alpaca"'
    done
    pesc data inspect "$r" --data "$BATS_TEST_TMPDIR/d.jsonl"
    has '### Instruction:'
    pesc merge "$r" -o "$BATS_TEST_TMPDIR/merged" -q
    pesc info "$BATS_TEST_TMPDIR/merged" --json
    has '"chat":"alpaca"'
    pesc export "$r" --to hf -o "$BATS_TEST_TMPDIR/hf" -q
    pesc info "$BATS_TEST_TMPDIR/hf" --json
    has '"chat":"alpaca"'
    pesc export "$r" --to peft -o "$BATS_TEST_TMPDIR/peft" -q
    grep -q 'pesc chat format: alpaca' "$BATS_TEST_TMPDIR/peft/chat_template.jinja"
    pesc train "$D/model" --method lora --lora-r 2 --data "$BATS_TEST_TMPDIR/d.jsonl" --steps 1 --seq-len 64 -o "$r.own" -q
    [ "$status" = 0 ]
    [ ! -e "$r.own/latest/chat_template.jinja" ]
}

@test "train: the model's own template and the built-in format it is like train the same tokens" {
    local d=$BATS_TEST_TMPDIR/d.jsonl
    echo '{"messages": [{"role": "user", "content": "hi <|im_end|>"}, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]}' > "$d"
    pesc data inspect "$D/model" --data "$d" --json
    [ "$status" = 0 ]
    local own=$output
    pesc data inspect "$D/model" --data "$d" --template chatml --json
    [ "$status" = 0 ]
    [ "$output" = "$own" ]
}

@test "train: a template that changes earlier messages is refused, with the message" {
    local m=$BATS_TEST_TMPDIR/m d=$BATS_TEST_TMPDIR/d.jsonl
    cp -r "$D/model" "$m"
    echo "{{ messages | length }}{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}" > "$m/chat_template.jinja"
    echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}' > "$d"
    pesc train "$m" --method lora --data "$d" -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 3 ]
    [[ $stderr == *"message 2: the chat template writes the conversation before it in another way when it is there, so it cannot be told which tokens are the answer"* ]]
}

@test "train: a chat template that cannot be run is refused by train, eval and data" {
    local m=$BATS_TEST_TMPDIR/m d=$BATS_TEST_TMPDIR/d.jsonl
    cp -r "$D/model" "$m"
    echo "{% for m in messages %}<{{ m['role'] | xmlattr }}>{{ m['content'] }}{% endfor %}" > "$m/chat_template.jinja"
    echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}' > "$d"
    pesc train "$m" --method lora --data "$d" -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 2 ]
    [[ $stderr == "pesc: the model's chat template: line 1: the filter \"xmlattr\" is not supported; name one of: camelidae, "* ]]
    pesc eval "$m" --tasks "$d" -q
    [ "$status" = 2 ]
    [[ $stderr == *"the filter \"xmlattr\" is not supported"* ]]
    pesc data inspect "$m" --data "$d" -q
    [ "$status" = 2 ]
    [[ $stderr == *"the filter \"xmlattr\" is not supported"* ]]
    pesc train "$m" --method lora --lora-r 2 --data "$d" --template chatml --steps 1 --seq-len 64 -o "$BATS_TEST_TMPDIR/r" -q
    [ "$status" = 0 ]
}

@test "train: what is printed to a closed descriptor does not go into the files of the run" {
    local r="$BATS_TEST_TMPDIR/r" closed
    for i in 1 2 3 4; do printf '{"prompt": "hello", "completion": " world"}\n'; done > "$BATS_TEST_TMPDIR/c.jsonl"
    for closed in '2>&-' '>&-' '<&- >&- 2>&-'; do
        rm -rf "$r"
        run bash -c "'$PESC' train '$D/model' --data '$BATS_TEST_TMPDIR/c.jsonl' -o '$r' --method lora --batch 1 \
            --steps 3 --lora-r 2 $closed"
        [ -d "$r/checkpoint-3" ]
        run cat "$r/lock"
        [[ $output =~ ^[0-9]*$ ]]
        python3 -c 'import json, sys; assert len([json.loads(line) for line in open(sys.argv[1])]) == 3' "$r/metrics.jsonl"
    done
}

@test "train: a lock that is a link is not followed" {
    local r="$BATS_TEST_TMPDIR/r"
    mkdir "$r"
    echo precious > "$BATS_TEST_TMPDIR/precious"
    ln -s ../precious "$r/lock"
    printf '{"prompt": "hello", "completion": " world"}\n' > "$BATS_TEST_TMPDIR/c.jsonl"
    pesc train "$D/model" --data "$BATS_TEST_TMPDIR/c.jsonl" -o "$r" --method lora --steps 1 --lora-r 2 -q
    [ "$status" -ne 0 ]
    [ "$(cat "$BATS_TEST_TMPDIR/precious")" = precious ]
}

# ---- recipes

@test "train: a LoRA that the model brings keeps its rank and alpha, and run.yaml has them" {
    local r=$BATS_TEST_TMPDIR/r
    tiny -o "$r" --method lora --steps 2 --lora-alpha 6 -q > /dev/null
    more() { pesc train "$r" --data "$G/pesc-a/data.jsonl" --method lora --steps 2 --batch 2 --seq-len 32 --threads 1 -q "$@"; }
    more -o "$r.2"
    [ "$status" = 0 ]
    grep -qx 'lora_r: 2' "$r.2/run.yaml"
    grep -qx 'lora_alpha: 6' "$r.2/run.yaml"
    more -o "$r.2" --resume --steps 3
    [ "$status" = 0 ]
    more -o "$r.3" --lora-r 8
    fails 2 "lora_r: found 8, but the model has a LoRA with 2, which is trained as it is; leave lora_r out, or give 2"
    more -o "$r.3" --lora-r 2 --lora-alpha 32
    fails 2 "lora_alpha: found 32, but the model has a LoRA with 6, which is trained as it is; leave lora_alpha out, or give 6"
}

@test "train: with --eval-every 0 the last step alone is validated" {
    tiny -o "$BATS_TEST_TMPDIR/r" --eval-data "$G/pesc-a/data.jsonl" --eval-every 0 -q > /dev/null
    [ "$(cut -d, -f1 "$BATS_TEST_TMPDIR/r/eval.jsonl")" = '{"step":8' ]
    tiny_pesc -o "$BATS_TEST_TMPDIR/s" --eval-data "$G/pesc-a/data.jsonl" --eval-every 0 --patience 2 -q
    fails 2 "patience: counts validations, and eval_every 0 has one at the end only; give eval_every"
}

@test "train: --aux-reduction sum adds the balance loss of every layer" {
    local a=$BATS_TEST_TMPDIR/a b=$BATS_TEST_TMPDIR/b
    tiny -o "$a" --aux-coef 0.05 --aux-reduction sum -q
    tiny -o "$b" --aux-coef 0.1 -q # the model has two layers
    diff <(numbers "$a") <(numbers "$b")
    cmp "$a/latest/trained.safetensors" "$b/latest/trained.safetensors"
    python3 - "$a/metrics.jsonl" <<'PY'
import json, sys
for s in map(json.loads, open(sys.argv[1])):
    assert abs(s["loss"] - s["ce"] - 0.05 * 2 * s["aux"]) < 1e-5 and s["aux"] > 0.5, s
PY
    pesc train -c "$a/run.yaml" -o "$a" --resume --aux-reduction mean -q
    [ "$status" = 2 ]
    [[ $stderr == *"aux_reduction sum, now mean"* ]]
}

@test "train: --aux-coef counts where routers are frozen, and is 0 there by default" {
    local r=$BATS_TEST_TMPDIR c
    for c in default 0 50; do
        tiny -o "$r/$c" --method lora --steps 16 --batch 8 --lr 1e-2 -q $([ $c = default ] || echo "--aux-coef $c") > /dev/null
    done
    cmp "$r/default/latest/adapter_model.safetensors" "$r/0/latest/adapter_model.safetensors"
    grep -qx 'aux_coef: 0' "$r/default/run.yaml"
    python3 - "$r" <<'PY'
import json, sys
runs = {c: [json.loads(line) for line in open(f"{sys.argv[1]}/{c}/metrics.jsonl")] for c in ("0", "50")}
for c, steps in runs.items():
    for s in steps:
        assert abs(s["loss"] - s["ce"] - float(c) * s["aux"]) < 1e-4 * s["loss"], (c, s)
    assert steps[0]["aux"] == runs["0"][0]["aux"] > 1
last = {c: sum(s["aux"] for s in steps[8:]) / 8 for c, steps in runs.items()}
assert last["50"] < last["0"] - 0.01, last  # LoRA gives the routers inputs that they choose more evenly for
PY
}

@test "train: --preset paper quantises the base of PESC, as its QLoRA does; no preset does not" {
    local r=$BATS_TEST_TMPDIR/r
    tiny_pesc -o "$r" --preset paper
    [ "$status" = 0 ]
    grep -q '^base_dtype: "nf4"$' "$r/run.yaml"
    refute grep -q 'has no effect here' <<< "$stderr"
    tiny_pesc -o "$r.2" -q
    refute grep -q '^base_dtype: "nf4"$' "$r.2/run.yaml"
    tiny_pesc -o "$r.3" --preset paper --base-dtype f32 -q
    grep -q '^base_dtype: "f32"$' "$r.3/run.yaml"
    tiny_pesc -o "$r.4" --preset published
    grep -q '^base_dtype: "nf4"$' "$r.4/run.yaml"
    grep -q '^over_length: "truncate"$' "$r.4/run.yaml"
    [[ $stderr == *"note: --preset published has adapter_scale 0.25, which has no effect here: the model was crafted with 1; craft it with --adapter-scale 0.25"* ]]
}

@test "train: --batch-tokens takes as many records as have so many tokens, and a resumed run the same" {
    local r=$BATS_TEST_TMPDIR/r
    common=(train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" --seq-len 32 --lora-r 2 --threads 1 --log-every 1 --batch-tokens 60)
    pesc "${common[@]}" -o "$r" --steps 4 --save-every 2
    [ "$status" = 0 ]
    [[ $stderr == *"batch_tokens 60: a record has "*" tokens on average, so batch is 5 records"* ]]
    grep -q '^batch: 5$' "$r/run.yaml"
    grep -q '^batch_tokens: 0$' "$r/run.yaml"
    pesc train -c "$r/run.yaml" -o "$r" --resume --steps 6 -q
    [ "$status" = 0 ]
    pesc "${common[@]}" -o "$r.2" --steps 6 --save-every 2 -q
    same_run "$r" "$r.2"
    pesc train "$G/../mixtral" --method full --preset esft --data "$G/pesc-a/data.jsonl" -o "$r.3" --steps 1 --seq-len 32 -q
    [ "$status" = 0 ]
    grep -qE '^batch: [0-9]{5}$' "$r.3/run.yaml" # 131072 tokens of short records
    grep -q '^lr: 3e-0*5$' "$r.3/run.yaml"
    # an option that is given wins over the preset, also where the preset has another one for the same
    pesc init esft --batch 24 --epochs 1 --warmup-ratio 0.5
    [ "$status" = 0 ]
    has '^#*steps: 0 '
    has '^#*batch_tokens: 0 '
    has '^#*warmup_steps: auto '
    tiny_pesc -o "$r.5" --preset esft
    fails 2 "preset: esft is for method esft, full or lora, and has no settings for pesc; give one of these methods, or leave the preset out"
    pesc init esft --json -q
    has 'steps: 500 '
}

@test "train: a learning rate that is far too high is noted" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/high" --steps 1 --lr 5
    [ "$status" = 0 ]
    [[ $stderr == *"pesc: note: lr: 5 is far above what AdamW learns with; 1e-5 to 1e-2 are usual"* ]]
    tiny_pesc -o "$BATS_TEST_TMPDIR/usual" --steps 1
    [[ $stderr != *"far above"* ]]
}

@test "train: computes in bf16 where the CPU multiplies it faster, says so, and keeps the dtype of a run" {
    local r=$BATS_TEST_TMPDIR/r dtype=f32 set
    echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' > "$BATS_TEST_TMPDIR/m.jsonl"
    set="--data $BATS_TEST_TMPDIR/m.jsonl --method lora --batch 1 --steps 2 --lora-r 2"
    unset PESC_ISA
    if "$PESC" doctor | grep -q 'avx512_bf16\|amx_bf16'; then dtype=bf16; fi
    pesc train "$D/model" $set -o "$r"
    [ "$status" = 0 ]
    grep -qx "compute_dtype: \"$dtype\"" "$r/run.yaml"
    if [ $dtype = bf16 ]; then [[ $stderr == *": computes in bf16; --compute-dtype f32 is exact and slower"* ]]; fi
    pesc train "$D/model" $set -o "$r.exact" --compute-dtype f32
    grep -qx 'compute_dtype: "f32"' "$r.exact/run.yaml"
    PESC_ISA=avx2 pesc train -o "$r" --resume --steps 3 -q
    [ "$status" = 0 ]
    grep -qx "compute_dtype: \"$dtype\"" "$r/run.yaml"
}
