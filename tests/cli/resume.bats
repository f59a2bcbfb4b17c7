# The command `pesc train` when a run is resumed, replaced, stopped, or meets a second one.
load helper
load run_helper

setup_file() {
    export D=$BATS_FILE_TMPDIR
    make_model
    make_run
}

# ---- resuming

@test "train: a resumed run equals an uninterrupted one, bit for bit" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    rm -rf "$r/checkpoint-8"
    pesc train -o "$r" --resume --threads 2
    [ "$status" = 0 ]
    [[ $stderr == *"resumed from checkpoint-4"* ]]
    same_run "$D/run" "$r"
}
@test "train: --resume of a finished run does nothing" {
    cp -r "$D/run" "$BATS_TEST_TMPDIR/r"
    pesc train -o "$BATS_TEST_TMPDIR/r" --resume -q
    [ "$status" = 0 ]
    same_run "$D/run" "$BATS_TEST_TMPDIR/r"
}
@test "train: --resume in a new directory starts a run" {
    tiny_pesc -o "$BATS_TEST_TMPDIR/new" --resume -q
    [ "$status" = 0 ]
}
@test "train: a constant rate may be trained longer, other options may not change" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    pesc train -o "$r" --resume --lr 1e-3 -q
    fails 2 "$r/checkpoint-8: cannot be resumed: options that decide the numbers have changed since it was saved (lr 0.003, now 0.001); a new run can begin from it with --init-from"
    pesc train -o "$r" --resume --lr 1e-3 --steps 20 --clip 1 -q
    fails 2 "$r/checkpoint-8: cannot be resumed: options that decide the numbers have changed since it was saved (lr 0.003, now 0.001; clip 0.3, now 1); a new run can begin from it with --init-from"
    pesc train -o "$r" --resume --steps 10 -q
    [ "$status" = 0 ]
    [ "$(wc -l < "$r/metrics.jsonl")" = 10 ]
    pesc train -o "$r" --resume -q # run.yaml has the new length
    gives "$r: done at step 10 of 10"
    pesc train -o "$r" --resume --steps 9 -q
    fails 2 "$r: is at step 10, but 9 are asked for; steps and epochs count from the beginning of the run"
    pesc train -o "$r" --resume --overwrite -q
    fails 2 "resume and overwrite: found both; resume continues the run, overwrite starts a new one"
    pesc train -o "$r.none" --resume -q
    fails 2 "$r.none: has no run.yaml: there is no run to continue"
}
@test "train: a run that is made longer by epochs goes on with the next record" {
    local r=$BATS_TEST_TMPDIR/r
    head -n 20 "$G/pesc-a/data.jsonl" > "$BATS_TEST_TMPDIR/20.jsonl"
    epochs() { # run epochs option...
        "$PESC" train "$G/pesc-a/model" --data "$BATS_TEST_TMPDIR/20.jsonl" --batch 8 --seq-len 32 --lora-r 2 \
            --threads 1 -q -o "$1" --epochs "$2" "${@:3}" > /dev/null
    }
    epochs "$r" 1
    epochs "$r" 1 --resume # nothing is left
    epochs "$r" 2 --resume
    epochs "$r.2" 2
    python3 - "$r" "$r.2" <<'PY'
import json, sys
parts, whole = ([json.loads(line) for line in open(run + "/metrics.jsonl")] for run in sys.argv[1:])
assert [s["epoch"] for s in parts] == [0.4, 0.8, 1, 1.4, 1.8, 2], parts
assert parts[-1]["tokens"] == 2 * parts[2]["tokens"] == whole[-1]["tokens"], (parts[-1], whole[-1])
PY
}
@test "train: a run of --steps goes on with --epochs as one that had them from the start" {
    local r=$BATS_TEST_TMPDIR/r
    tiny -o "$r" -q --steps 8 > /dev/null
    pesc train -o "$r" --resume --epochs 1 -q
    [ "$status" = 0 ]
    "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" --epochs 1 --batch 2 --lr 3e-3 --seq-len 32 --lora-r 2 \
        --warmup-steps 1 --threads 1 -o "$r.2" -q > /dev/null
    [ "$(numbers "$r" | tail -n 1)" = "$(numbers "$r.2" | tail -n 1)" ]
    cmp "$r/latest/trained.safetensors" "$r.2/latest/trained.safetensors"
}
@test "train: every option that decides the numbers is compared before a run is resumed" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    for change in "--seed 1" "--base-dtype bf16" "--compute-dtype bf16" "--adapter-dropout 0.2" "--aux-coef 0.5" \
        "--lora-r 3" "--lora-alpha 8" "--lora-dropout 0.2" "--lora-targets q_proj" "--over-length truncate" "--seq-len 31" \
        "--packing false" "--shuffle false" "--batch 3" "--micro-tokens 32" "--lr 0.001" "--schedule cosine" \
        "--warmup-steps 3" "--clip 0.5" "--weight-decay 0.1" "--beta1 0.8" "--beta2 0.9" "--eps 1e-6" "--optimizer adamw8" \
        "--loss sequence"; do
        local key=${change%% *}
        key=${key#--}
        # shellcheck disable=SC2086
        pesc train -o "$r" --resume $change -q
        [ "$status" = 2 ]
        [[ $stderr == *"options that decide the numbers have changed since it was saved (${key//-/_} "* ]]
    done
}
@test "train: changed data, a changed tokenizer or base model are refused" {
    local r=$BATS_TEST_TMPDIR/r
    cp "$G/pesc-a/data.jsonl" "$BATS_TEST_TMPDIR/d.jsonl"
    cp -r "$G/pesc-a/model" "$BATS_TEST_TMPDIR/m"
    common=(train "$BATS_TEST_TMPDIR/m" --data "$BATS_TEST_TMPDIR/d.jsonl" --batch 2 --seq-len 32 -o "$r" -q)
    pesc "${common[@]}" --steps 2
    [ "$status" = 0 ]
    sed -i '1s/input_ids": \[[0-9]*/input_ids": [9/' "$BATS_TEST_TMPDIR/d.jsonl"
    pesc "${common[@]}" --steps 4 --resume
    [ "$status" = 2 ]
    [[ $stderr == *"the data files have changed since"* ]]
    cp "$G/pesc-a/data.jsonl" "$BATS_TEST_TMPDIR/d.jsonl"
    cp "$D/model/tokenizer.json" "$BATS_TEST_TMPDIR/m"
    pesc "${common[@]}" --steps 4 --resume
    [ "$status" = 2 ]
    [[ $stderr == *"the tokenizer has changed since"* ]]
    rm "$BATS_TEST_TMPDIR/m/tokenizer.json"
    printf '\x11' | dd of="$BATS_TEST_TMPDIR/m/model.safetensors" bs=1 conv=notrunc seek=$(($(stat -c %s "$BATS_TEST_TMPDIR/m/model.safetensors") - 3)) 2> /dev/null
    pesc "${common[@]}" --steps 4 --resume
    [ "$status" = 2 ]
    [[ $stderr == *"the base model has changed since"* ]]
}
@test "train: --init-from begins a new run with old weights" {
    local r=$BATS_TEST_TMPDIR/r
    tiny_pesc -o "$r" --init-from "$D/run" --lr 0 -q
    [ "$status" = 0 ]
    [ "$(head -c 9 "$r/metrics.jsonl")" = '{"step":1' ]
    cmp "$r/latest/trained.safetensors" "$D/run/latest/trained.safetensors"
    tiny_pesc -o "$BATS_TEST_TMPDIR/s" --init-from "$BATS_TEST_TMPDIR" -q
    fails 3 "$BATS_TEST_TMPDIR: init_from: is neither a run with a checkpoint nor a checkpoint"
}
@test "train: --init-from takes all weights of a run as they were used, or is refused" {
    local r=$BATS_TEST_TMPDIR/r s=$BATS_TEST_TMPDIR/s from=$D/run/checkpoint-8 q=model.layers.0.self_attn.o_proj
    refused() { # sentence option...
        tiny_pesc -o "$r" --init-from "$D/run" -q "${@:2}"
        fails 2 "$1"
        [ ! -e "$r" ]
    }
    refused "$from: $q: its LoRA has rank 2 and scale 8, and that of this run 2 and 32; give lora_r 2 and lora_alpha 16" \
        --lora-alpha 64
    refused "$from: $q: its LoRA has rank 2 and scale 8, and that of this run 4 and 4; give lora_r 2 and lora_alpha 16" \
        --lora-r 4
    local lost="which this run does not train, so that it would be lost; give method, lora_targets and lora_layers as in its run.yaml, or merge it and train the result"
    refused "$from: has $q.lora_A.weight, $lost" --lora-targets q_proj
    refused "$from: has model.layers.0.mlp.moe_adapter.router.weight, $lost" --method lora
    local molora=(train "$G/molora/model" --data "$G/molora/data.jsonl" --method molora --experts 3 --steps 1
        --batch 2 --seq-len 32 --lora-r 2 --threads 1 -q)
    "$PESC" "${molora[@]}" -o "$s" > /dev/null
    pesc "${molora[@]}" -o "$r" --init-from "$s" --top-k 1
    fails 2 "$s/checkpoint-1: its mixture of LoRA has top_k 2 and scale 8, and that of this run 1 and 8; give top_k 2 and lora_alpha 16"
}
@test "train: the model being trained is not overwritten" {
    local r=$BATS_TEST_TMPDIR/r m=$BATS_TEST_TMPDIR/m
    cp -r "$D/run" "$r"
    cp -r "$G/pesc-a/model" "$m"
    pesc train "$m" --data "$G/pesc-a/data.jsonl" -o "$m" --overwrite -q
    fails 2 "$m: holds the model that is trained, or a base of it; give the run another directory"
    for from in "$r" "$r/latest" "$r/checkpoint-4"; do
        pesc train "$from" --data "$G/pesc-a/data.jsonl" -o "$r" --overwrite -q
        fails 2 "$r: holds the model that is trained, or a base of it; give the run another directory"
    done
    pesc train "$r" --data "$G/pesc-a/data.jsonl" -o "$r.2" --steps 1 --seq-len 32 -q
    [ "$status" = 0 ]
    pesc train "$r.2" --data "$G/pesc-a/data.jsonl" -o "$r" --overwrite -q
    [ "$status" = 2 ]
    diff -r "$D/run/checkpoint-8" "$r/checkpoint-8"
}
@test "train: --overwrite starts a new run and keeps other files" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    touch "$r/mine"
    tiny_pesc -o "$r" -q
    fails 2 "$r: is not empty; --resume continues the run in it, --overwrite replaces it"
    tiny_pesc -o "$r" --overwrite --steps 3 -q
    [ "$status" = 0 ]
    [ -e "$r/mine" ]
    [ ! -e "$r/checkpoint-8" ]
    [ ! -e "$r/.replaced" ]
    [ "$(wc -l < "$r/metrics.jsonl")" = 3 ]
}
@test "train: --overwrite refuses a directory that is not a run, and deletes nothing" {
    local r=$BATS_TEST_TMPDIR/r
    mkdir -p "$r/plots" "$r/checkpoint-7" "$r/best"
    touch "$r/metrics.jsonl" "$r/plots/loss.svg" "$r/checkpoint-7/mine"
    tiny_pesc -o "$r" --overwrite -q
    fails 2 "$r: is not empty and holds no run (run.json is missing or not pesc's); --overwrite replaces runs only, so give another directory"
    [ -e "$r/metrics.jsonl" ]
    [ -e "$r/plots/loss.svg" ]
    [ -e "$r/checkpoint-7/mine" ]
    [ -e "$r/best" ]
    [ ! -e "$r/lock" ]
    tiny_pesc -o "$r" -q
    fails 2 "$r: is not empty; --resume continues the run in it, --overwrite replaces it"
    [ ! -e "$r/lock" ]
}
@test "train: --overwrite with bad data leaves the old run as it was" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    echo 'not json' > "$BATS_TEST_TMPDIR/bad.jsonl"
    pesc train "$G/pesc-a/model" --data "$BATS_TEST_TMPDIR/bad.jsonl" -o "$r" --overwrite -q
    [ "$status" = 3 ]
    diff -r -x lock "$D/run" "$r"
    echo '{"text": "no tokenizer here"}' > "$BATS_TEST_TMPDIR/bad.jsonl"
    pesc train "$G/pesc-a/model" --data "$BATS_TEST_TMPDIR/bad.jsonl" -o "$r.new" -q
    [ "$status" != 0 ]
    [ ! -e "$r.new" ]
}
@test "train: --resume makes best and retired checkpoints what they should be" {
    local r=$BATS_TEST_TMPDIR/r best
    tiny -o "$r" --steps 3 --save-every 1 --keep-checkpoints 0 --eval-data "$G/pesc-a/data.jsonl" --eval-every 1 -q > /dev/null
    best=$(readlink "$r/best")
    ln -sfn checkpoint-1 "$r/best" # as if it had been killed before it linked the best, and before it retired the first
    [ "$best" != checkpoint-1 ]
    tiny_pesc -o "$r" --resume --steps 3 --save-every 1 --keep-checkpoints 2 --eval-data "$G/pesc-a/data.jsonl" --eval-every 1 -q
    [ "$status" = 0 ]
    [ "$(readlink "$r/best")" = "$best" ]
    [ ! -e "$r/checkpoint-1" ]
    rm "$r/best"
    tiny_pesc -o "$r" --resume --steps 3 --save-every 1 --keep-checkpoints 2 --eval-data "$G/pesc-a/data.jsonl" --eval-every 1 -q
    [ "$(readlink "$r/best")" = "$best" ]
}
@test "train: a replacing run that is killed before its first checkpoint leaves the old run" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    long "$r" --overwrite --save-every 0
    local pid=$!
    wait_for "$r/metrics.jsonl"
    sleep 0.3
    kill -9 $pid
    wait $pid || true
    [ -e "$r/.replaced/run.json" ]
    tiny_pesc -o "$r" -q # refused, but it finds the old run again
    fails 2 "$r: is not empty; --resume continues the run in it, --overwrite replaces it"
    diff -r -x lock "$D/run" "$r"
}

# ---- stopping

@test "train: a replacing run that cannot move the old one aside leaves it as it was" {
    local r=$BATS_TEST_TMPDIR/r n call old=0
    tiny -o "$BATS_TEST_TMPDIR/old" --steps 2 --save-every 1 -q > /dev/null
    for call in rename mkdir; do
        for ((n = 1; n < 60; n++)); do
            rm -rf "$r"
            cp -a "$BATS_TEST_TMPDIR/old" "$r"
            PESC_FAULT=$call:$n:EIO tiny_pesc -o "$r" --steps 1 --seed 9 --overwrite -q
            [ "$status" != 0 ] || break
            [ ! -e "$r/.replaced" ]
            if [ -e "$r/checkpoint-2" ]; then
                diff -r -x lock "$BATS_TEST_TMPDIR/old" "$r"
                old=$((old + 1))
            else # its checkpoint was there when the call failed
                "$PESC" info "$r/checkpoint-1" > /dev/null
            fi
        done
        [ "$n" -gt 1 ]
    done
    [ "$old" -gt 10 ]
}
@test "train: a signal finishes the step, saves and exits 75" {
    for sig in TERM INT USR1; do
        local r=$BATS_TEST_TMPDIR/$sig code=0 step
        long "$r"
        wait_for "$r/metrics.jsonl"
        kill -$sig $!
        wait $! || code=$?
        [ "$code" = 75 ]
        step=$(wc -l < "$r/metrics.jsonl")
        [ "$(readlink "$r/latest")" = "checkpoint-$step" ] # of the step that was being computed, not of an earlier one
        grep -q '^pesc: stopping: this step is finished and saved first; the same signal again ends at once$' "$r.err"
        [[ $(tail -n 1 "$r.err") == "pesc: $r: stopped after saving step $step; --resume continues" ]]
    done
}
@test "train: a stopped run writes one JSON object" {
    local r=$BATS_TEST_TMPDIR/r
    (exec "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$r" --steps 100000 --batch 2 \
        --seq-len 32 --lora-r 2 --threads 1 --json -q > "$r.out" 2> /dev/null) &
    wait_for "$r/metrics.jsonl"
    kill -TERM $!
    wait $! || true
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["stopped"] is True' "$r.out"
}
@test "train: a second signal exits at once" {
    local r=$BATS_TEST_TMPDIR/r code=0
    long "$r" --batch 200000 # one step takes long
    wait_for "$r/run.json"
    while kill -TERM $! 2> /dev/null; do # two that come before it looks count as one
        sleep 0.1
    done
    wait $! || code=$?
    [ "$code" = 143 ]
    [ ! -e "$r/latest" ]
}
@test "train: the files SAVE and STOP" {
    local r=$BATS_TEST_TMPDIR/r code=0
    long "$r"
    wait_for "$r/metrics.jsonl"
    touch "$r/SAVE"
    wait_for "$r/latest/manifest.json"
    [ ! -e "$r/SAVE" ]
    touch "$r/STOP"
    wait $! || code=$?
    [ "$code" = 75 ]
    [ ! -e "$r/STOP" ]
}
@test "train: one process per run directory" {
    local r=$BATS_TEST_TMPDIR/r
    long "$r" --save-every 0 # nothing to go on from
    wait_for "$r/metrics.jsonl"
    tiny_pesc -o "$r" --resume -q
    [ "$status" = 2 ]
    [[ $stderr == "pesc: $r/lock: process $! is at work in this directory; wait for it, or stop it" ]]
    kill -9 $!
    wait $! || true
    tiny_pesc -o "$r" --resume --steps 1 -q # the lock went with its holder
    [ "$status" = 0 ]
}

@test "train: a checkpoint of another version with other options is refused by its version" {
    local r=$BATS_TEST_TMPDIR/r
    cp -r "$D/run" "$r"
    python3 - "$r/checkpoint-8/manifest.json" <<'PY'
import hashlib, json, sys
m = json.load(open(sys.argv[1]))
del m["seal"]
m["pesc"], m["config_hash"] = "0.1.0", "0" * 16
m["seal"] = hashlib.sha256(json.dumps(m, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
json.dump(m, open(sys.argv[1], "w"))
PY
    pesc train -o "$r" --resume --steps 10 -q
    [ "$status" = 2 ]
    [[ $stderr == *"$r/checkpoint-8: cannot be resumed: it was saved by pesc 0.1.0, and "*" trains differently; finish it with that version, or begin a new run from it with --init-from" ]]
}
