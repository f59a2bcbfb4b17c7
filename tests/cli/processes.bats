#!/usr/bin/env bats
# Several processes, one run: the same bits for any number of them, checkpoints that any number resumes, and
# what happens when they differ or one is lost.

bats_require_minimum_version 1.5.0
load helper
load run_helper

setup_file() {
    export D=$BATS_FILE_TMPDIR
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export E=$BATS_TEST_DIRNAME/../golden/esft
}

# The options of a method: dropout, packing, accumulation over several micro-batches, 8-bit moments, clipping and
# (where routers train) the balance loss are on.
model_of() { # method
    case $1 in
    pesc | qlora | lora) echo "$G/pesc-a/model --data $G/pesc-a/data.jsonl" ;;
    esft) echo "$BATS_TEST_DIRNAME/../golden/olmoe --experts-config $E/olmoe/expert_cfg.json --data $D/esft.jsonl --aux-coef 0.01" ;;
    molora) echo "$G/molora/model --data $G/molora/data.jsonl --experts 4" ;;
    deep-*) echo "$D/deep --data $G/full/data.jsonl" ;;
    *) echo "$G/$1/model --data $G/$1/data.jsonl" ;;
    esac
}
train() { # method run options
    local m=$1 run=$2
    shift 2
    # shellcheck disable=SC2046
    "$PESC" train $(model_of "$m") --method "${m#deep-}" -o "$run" --steps 4 --batch 11 --lr 3e-3 --seq-len 32 --lora-r 2 \
        --micro-tokens 32 --clip 0.3 --optimizer adamw8 --adapter-dropout 0.1 --lora-dropout 0.1 --log-every 1 \
        --threads 1 --device cpu -q "$@" > "$run.out" 2> "$run.err" || {
        cat "$run.err"
        return 1
    }
}
# What two runs must have in common; time and memory are not.
numbers() { sed 's/"tok_s":[^,]*,//; s/"mem_bytes":[^,]*,//; s/"comm_[a-z]*":[^,]*,//g' "$1/metrics.jsonl"; }
equal() { # a b
    local f
    diff <(numbers "$1") <(numbers "$2") || return 1
    diff "$1/routing.jsonl" "$2/routing.jsonl" || return 1
    for f in adapter_model trained optimizer; do
        [ -e "$1/latest/$f.safetensors" ] || continue
        cmp "$1/latest/$f.safetensors" "$2/latest/$f.safetensors" || return 1
    done
}

# Starts ranks 0 and 1 by hand, as torchrun would, with options of their own; sets codes and leaves their sentences
# in $D/0.err and $D/1.err.
pair() { # "options of rank 0" "options of rank 1"
    local port r pids=()
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    codes=()
    for r in 0 1; do
        local options=$1
        shift
        # shellcheck disable=SC2086
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port PESC_FAULT=${faults[r]-} \
            "$PESC" train --steps 2 --batch 4 --seq-len 32 --lora-r 2 --threads 1 -q -o "$BATS_TEST_TMPDIR/pair" $options \
            > "$D/$r.out" 2> "$D/$r.err" &
        pids+=($!)
    done
    for r in 0 1; do
        local rc=0
        wait "${pids[$r]}" || rc=$?
        codes+=("$rc")
    done
}

# A run of 4 processes in the background; the process of a rank is $(rank_of N).
start_four() { # run
    "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$1" --steps 100000 --batch 8 --micro-tokens 32 \
        --seq-len 32 --lora-r 2 --threads 1 --save-every 20 --gpus 4 --device cpu -q > /dev/null 2> "$1.err" &
    four=$!
    wait_for "$1/latest/manifest.json"
}
rank_of() {
    local p
    for p in $(pgrep -P "$four"); do
        if tr '\0' '\n' < "/proc/$p/environ" | grep -qx "RANK=$1"; then echo "$p"; fi
    done
}

# ---- the same bits

same_bits() { # method
    local n
    train "$1" "$D/$1-1"
    for n in 2 4; do
        train "$1" "$D/$1-$n" --gpus $n
        equal "$D/$1-1" "$D/$1-$n"
    done
}
@test "processes: pesc gives the same bits with 1, 2, 4 and 8" {
    same_bits pesc
    train pesc "$D/pesc-8" --gpus 8
    equal "$D/pesc-1" "$D/pesc-8"
}
@test "processes: qlora gives the same bits with 1, 2 and 4" { same_bits qlora; }
@test "processes: lora gives the same bits with 1, 2 and 4" { same_bits lora; }
@test "processes: full gives the same bits with 1, 2 and 4" { same_bits full; }
@test "processes: upcycle gives the same bits with 1, 2 and 4" { same_bits upcycle; }
@test "processes: molora gives the same bits with 1, 2 and 4" { same_bits molora; }
@test "processes: esft gives the same bits with 1, 2 and 4" {
    head -n 16 "$E/olmoe/data.jsonl" > "$D/esft.jsonl"
    same_bits esft
}
@test "processes: bf16, f32 moments, validation, no packing, dropped records" {
    local n more="--compute-dtype bf16 --base-dtype bf16 --optimizer adamw --packing false --eval-every 2 --seq-len 16"
    for n in 1 4; do
        # shellcheck disable=SC2086
        train pesc "$D/bf16-$n" $more --eval-data "$G/pesc-b/data.jsonl" --gpus $n
    done
    equal "$D/bf16-1" "$D/bf16-4"
    diff "$D/bf16-1/eval.jsonl" "$D/bf16-4/eval.jsonl"
    grep -q '"unused": [1-9]' "$D/bf16-4/records.json"
}
# 11 micro-batches, each a group of its own: 6, 3 and 2 rounds of 2, 4 and 8 processes, the last of them not full.
sharded_gradients() { # method options
    local m=$1 n
    shift
    train "$m" "$D/rounds-$m-1" --packing false --grad-groups 16 "$@"
    for n in 2 4 8; do
        train "$m" "$D/rounds-$m-$n" --packing false --grad-groups 16 "$@" --gpus $n
        equal "$D/rounds-$m-1" "$D/rounds-$m-$n"
    done
}
@test "processes: full with sharded gradients gives the same bits with 1, 2, 4 and 8" { sharded_gradients full; }
@test "processes: upcycle with sharded gradients gives the same bits with 1, 2, 4 and 8" {
    sharded_gradients upcycle --compute-dtype bf16 --optimizer adamw --eval-data "$G/upcycle/data.jsonl" --eval-every 2
    diff "$D/rounds-upcycle-1/eval.jsonl" "$D/rounds-upcycle-4/eval.jsonl"
}
@test "processes: esft with sharded gradients gives the same bits with 1, 2, 4 and 8" {
    head -n 16 "$E/olmoe/data.jsonl" > "$D/esft.jsonl"
    sharded_gradients esft
}
@test "processes: sharded gradients need less memory, and a delay of each bucket changes no bit" {
    local n more="--method full --packing false --batch 8"
    for n in 1 2 4; do
        # shellcheck disable=SC2086
        PESC_BUCKET_DELAY=$((n == 2 ? 20 : 0)) train full "$D/less-$n" $more --gpus $n
        equal "$D/less-1" "$D/less-$n"
        sed -n '1s/.*"mem_bytes":\([0-9]*\).*/\1/p' "$D/less-$n/metrics.jsonl" > "$D/less-$n.bytes"
    done
    # gradients and partial sums are most of what trains; the master weights are f32 and whole, and activations stay
    [ "$(cat "$D/less-2.bytes")" -lt $(($(cat "$D/less-1.bytes") * 7 / 10)) ]
    [ "$(cat "$D/less-4.bytes")" -lt "$(cat "$D/less-2.bytes")" ]
}
@test "processes: gradients that cannot be sharded are said to be whole" {
    "$PESC" train "$G/full/model" --method full --data "$G/full/data.jsonl" -o "$D/whole-grads" --steps 1 --batch 11 --seq-len 32 \
        --micro-tokens 32 --gpus 2 --device cpu > /dev/null 2> "$D/whole-grads.err"
    grep -q 'note: a step may have more micro-batches than grad_groups 8: gradients are whole in each process' "$D/whole-grads.err"
}
@test "processes: sharded master weights give the bits of whole ones, and of a run that another number continues" {
    local n bf16="--compute-dtype bf16 --batch 8"
    # shellcheck disable=SC2086
    train full "$D/master-1" $bf16
    for n in 2 8; do
        # shellcheck disable=SC2086
        train full "$D/master-$n" $bf16 --gpus $n
        equal "$D/master-1" "$D/master-$n"
    done
    # shellcheck disable=SC2086
    {
        train full "$D/masters" $bf16 --steps 1 --gpus 4
        train full "$D/masters" $bf16 --steps 2 --gpus 2 --resume
        train full "$D/masters" $bf16 --steps 3 --resume
        train full "$D/masters" $bf16 --gpus 8 --resume
    }
    equal "$D/master-1" "$D/masters"
}
@test "processes: started by mpirun" {
    command -v mpirun > /dev/null || skip "mpirun is missing"
    # shellcheck disable=SC2046
    mpirun --oversubscribe -n 2 "$PESC" train $(model_of lora) --method lora -o "$D/mpi" --steps 4 --batch 11 --lr 3e-3 --seq-len 32 \
        --lora-r 2 --micro-tokens 32 --clip 0.3 --optimizer adamw8 --threads 1 --log-every 1 -q > "$D/mpi.out"
    [ "$(wc -l < "$D/mpi.out")" = 1 ] # rank 0 alone prints
    train lora "$D/mpi-1"
    equal "$D/mpi-1" "$D/mpi"
    # shellcheck disable=SC2046
    mpirun --oversubscribe -n 2 "$PESC" train $(model_of full) --method full -o "$D/mpi-full" --steps 4 --batch 8 --lr 3e-3 --seq-len 32 \
        --micro-tokens 32 --clip 0.3 --optimizer adamw8 --threads 1 --log-every 1 -q > /dev/null
    train full "$D/mpi-full-1" --batch 8
    equal "$D/mpi-full-1" "$D/mpi-full"
}
@test "processes: a run goes on with another number of them, 4 2 1 8" {
    train pesc "$D/whole" --steps 8 --save-every 3
    train pesc "$D/parts" --steps 2 --gpus 4
    train pesc "$D/parts" --steps 4 --gpus 2 --resume
    train pesc "$D/parts" --steps 6 --resume
    train pesc "$D/parts" --steps 8 --gpus 8 --resume
    equal "$D/whole" "$D/parts"
}
@test "processes: a number that is not a power of two is said to change the bits" {
    "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/three" --steps 1 --batch 8 --seq-len 32 --lora-r 2 \
        --micro-tokens 32 --gpus 3 --device cpu > /dev/null 2> "$D/three.err"
    grep -q 'note: 3 processes are not a power of two: the bits will not be those' "$D/three.err"
}
@test "processes: more than there are micro-batches" {
    train lora "$D/few-1" --batch 2
    train lora "$D/few-8" --batch 2 --gpus 8
    equal "$D/few-1" "$D/few-8"
}

# ---- what is exchanged during the computation

@test "processes: gradients travel while backward runs, and a delay of each bucket changes no bit" {
    # enough steps: the process that is ahead has ended its backward when the other begins to send
    train pesc "$D/prompt" --gpus 2 --steps 24 --batch 16 --micro-tokens 64
    PESC_BUCKET_DELAY=20 train pesc "$D/delayed" --gpus 2 --steps 24 --batch 16 --micro-tokens 64
    equal "$D/prompt" "$D/delayed"
    python3 - "$D/prompt/metrics.jsonl" "$D/delayed/metrics.jsonl" <<'PY'
import json, sys
prompt, delayed = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
for s in prompt + delayed:
    assert s["comm_s"] > 0 and 0 <= s["comm_hidden"] <= 1, s
for s in delayed: # the head or the top layer, the lower layer: at least 2 buckets
    assert s["comm_s"] >= 2 * 0.020, s
assert any(s["comm_hidden"] > 0 for s in delayed), delayed
PY
    if grep -q comm_ "$D/pesc-1/metrics.jsonl"; then return 1; fi # one process exchanges nothing
}
sharded() { # method options
    local n m=$1
    shift
    train "$m" "$D/whole-$m" "$@"
    for n in 2 4; do
        train "$m" "$D/shard-$m-$n" --shard base --gpus $n "$@"
        equal "$D/whole-$m" "$D/shard-$m-$n"
    done
}
@test "processes: a sharded base gives the bits of a whole one" {
    sharded pesc
    sharded qlora
    sharded molora
    sharded lora --compute-dtype bf16 --base-dtype bf16 --eval-every 2 --eval-data "$G/pesc-b/data.jsonl"
    diff "$D/whole-lora/eval.jsonl" "$D/shard-lora-4/eval.jsonl"
}
@test "processes: a sharded base of more layers than there are buffers" {
    sed 's/"num_hidden_layers": 2/"num_hidden_layers": 7/' "$G/full/model/config.json" > "$D/deep.json"
    "$PESC" new "$D/deep.json" -o "$D/deep" --dtype f32 --seed 7 -q > /dev/null
    sharded deep-qlora
    sharded deep-lora --eval-every 2 --eval-data "$G/pesc-b/data.jsonl" --keep 2
    diff "$D/whole-deep-lora/eval.jsonl" "$D/shard-deep-lora-4/eval.jsonl"
    train deep-lora "$D/few-s1" --batch 3 # and where some have no micro-batch
    train deep-lora "$D/few-s8" --batch 3 --gpus 8 --shard base
    equal "$D/few-s1" "$D/few-s8"
}
@test "processes: of a sharded base each keeps an equal part, as plan says" {
    local m="$BATS_TEST_DIRNAME/../golden/train/full/model" n
    for n in 1 2 4; do
        "$PESC" train "$m" --data "$G/full/data.jsonl" --method lora -o "$D/part-$n" --steps 1 --batch 4 --seq-len 32 --lora-r 2 \
            --micro-tokens 32 --threads 1 --shard base --gpus $n --device cpu > /dev/null 2> "$D/part-$n.err"
        "$PESC" plan "$m" --method lora --batch 4 --seq-len 32 --lora-r 2 --micro-tokens 32 --shard base --gpus $n --json > "$D/plan-$n.json"
    done
    if grep -q 'sharded base' "$D/part-1.err"; then return 1; fi
    python3 - "$D" <<'PY'
import json, re, sys
d = sys.argv[1]
units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
def parts(n):
    a, au, b, bu = re.search(r"this process keeps ([\d.]+) (\w+) of ([\d.]+) (\w+)", open(f"{d}/part-{n}.err").read()).groups()
    return float(a) * units[au], float(b) * units[bu]
for n in (2, 4):
    kept, whole = parts(n)
    assert abs(kept - whole / n) < 0.02 * whole, (n, kept, whole)
    planned = json.load(open(f"{d}/plan-{n}.json"))["bytes"]["model"]
    printed = re.search(r"memory: model ([\d.]+) (\w+)", open(f"{d}/part-{n}.err").read())
    assert abs(float(printed[1]) * units[printed[2]] - planned) < 0.02 * planned, (n, printed[0], planned)
PY
}
@test "processes: a base that trains is not sharded" {
    run -2 "$PESC" train "$G/full/model" --data "$G/full/data.jsonl" --method full -o "$D/e" --shard base
    [[ "$output" == *"shard: found base with method full, which trains the base"* ]]
}

@test "processes: esft score writes the same summary.json" {
    local n
    for n in 0 2 4; do
        "$PESC" esft score "$BATS_TEST_DIRNAME/../golden/olmoe" --data "$E/olmoe/data.jsonl" --tokens 300 --micro-tokens 40 --seq-len 40 \
            --threads 1 -o "$D/score-$n" --gpus $n --device cpu -q > "$D/score-$n.out"
        [ "$(grep -c 'summary.json: 300 tokens' "$D/score-$n.out")" = 1 ]
    done
    cmp "$D/score-0/summary.json" "$D/score-2/summary.json"
    cmp "$D/score-0/summary.json" "$D/score-4/summary.json"
}

# ---- faults

@test "processes: a full disk on one rank ends all of them" {
    local data="$G/pesc-a/model --data $G/pesc-a/data.jsonl" full
    for full in 0 1; do
        rm -rf "$BATS_TEST_TMPDIR/pair"
        faults=("" "")
        faults[full]=write:12:ENOSPC
        [ $full = 0 ] || faults[full]=write:3:ENOSPC # its part of a checkpoint
        pair "$data" "$data"
        [ "${codes[*]}" = "4 4" ]
        grep -q "^pesc: rank $full (.*): .*No space left on device" "$D/$full.err"
        grep -q "^pesc: rank $((1 - full)) (.*): rank $full (.*): .*No space left on device" "$D/$((1 - full)).err"
    done
}
@test "processes: all write a checkpoint, and one that is killed meanwhile leaves the old one" {
    local data="$G/pesc-a/model --data $G/pesc-a/data.jsonl --save-every 1" run=$BATS_TEST_TMPDIR/pair n
    for n in 1 4 9; do # writes of rank 1: parts of the first checkpoint and of the second
        rm -rf "$run"
        faults=("" write:$n:kill)
        pair "$data" "$data"
        [ "${codes[*]}" = "1 137" ]
        grep -q 'rank 0 (.*): rank 1 (.*) has died' "$D/0.err"
        if [ -e "$run/latest" ]; then "$PESC" info "$run" > /dev/null; fi
        faults=("" "")
        pair "$data --resume --strict" "$data --resume --strict"
        [ "${codes[*]}" = "0 0" ]
        if compgen -G "$run/*.tmp.*"; then return 1; fi
    done
}

@test "processes: SIGTERM on one rank ends all with one checkpoint" {
    local r=$BATS_TEST_TMPDIR/term rc=0
    start_four "$r"
    kill -TERM "$(rank_of 2)"
    wait $four || rc=$?
    [ $rc = 75 ]
    [ "$(grep -c '^pesc: rank [0-3] (.*): .*: stopped after saving step [0-9]*; --resume continues$' "$r.err")" = 4 ]
    "$PESC" info "$r" > /dev/null
}
lose() { # signal rank
    local r=$BATS_TEST_TMPDIR/lost rc=0 began=$SECONDS
    start_four "$r"
    local gone
    gone=$(rank_of "$2")
    kill "-$1" "$gone"
    for _ in $(seq 300); do
        [ "$(pgrep -P $four | wc -l)" -gt 1 ] || break
        sleep 0.1
    done
    kill -KILL "$gone" 2> /dev/null || true
    wait $four || rc=$?
    [ $rc = 1 ]
    [ $((SECONDS - began)) -lt 60 ]
    [ "$(grep -c "^pesc: rank [0-3] (.*): rank $2 ($(hostname)) $3" "$r.err")" = 3 ]
    # what is there is whole, and the run goes on from it
    "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$r" --resume --strict --steps 1000000 --batch 8 --micro-tokens 32 \
        --seq-len 32 --lora-r 2 --threads 1 -q > /dev/null 2> "$r.again" &
    local again=$!
    sleep 1
    kill -TERM $again
    rc=0
    wait $again || rc=$?
    [ $rc = 75 ]
}
@test "processes: a rank is killed" { lose KILL 3 'has died: its connection is closed'; }
@test "processes: rank 0 is killed" { lose KILL 0 'has died: its connection is closed'; }
@test "processes: a rank is stopped" { PESC_SILENCE=4 lose STOP 1 'has not been heard of for 4 s: it is stopped, or its machine is down'; }

@test "processes: a rank that is killed under mpirun is named by the others, too" {
    command -v mpirun > /dev/null || skip "mpirun is missing"
    local r=$BATS_TEST_TMPDIR/mpi rc=0 p lost=
    mpirun --oversubscribe -n 2 "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$r" --steps 100000 --batch 8 \
        --micro-tokens 32 --seq-len 32 --lora-r 2 --threads 1 --save-every 20 -q > "$r.out" 2>&1 &
    local run=$!
    wait_for "$r/latest/manifest.json"
    for p in $(pgrep -f "train.* $r "); do
        if tr '\0' '\n' < "/proc/$p/environ" | grep -qx OMPI_COMM_WORLD_RANK=1; then lost=$p; fi
    done
    kill -KILL "$lost"
    wait $run || rc=$?
    [ $rc != 0 ]
    grep -q "^pesc: rank 0 ($(hostname)): rank 1 ($(hostname)) has died: its connection is closed" "$r.out"
}

# ---- what must be the same

@test "processes: another option on a rank is refused and named" {
    pair "$G/pesc-a/model --data $G/pesc-a/data.jsonl --lr 1e-3" "$G/pesc-a/model --data $G/pesc-a/data.jsonl --lr 2e-3"
    [ "${codes[*]}" = "2 2" ]
    grep -q 'an option is not that of rank 0: found lr: 0.002, expected lr: 0.001' "$D/1.err"
    grep -q '^pesc: rank 0 (.*): rank 1 (.*): an option is not that of rank 0' "$D/0.err"
    [ ! -e "$BATS_TEST_TMPDIR/pair" ]
}
@test "processes: an option that only says when to save must be the same, too" {
    pair "$G/pesc-a/model --data $G/pesc-a/data.jsonl --save-every 1" "$G/pesc-a/model --data $G/pesc-a/data.jsonl"
    [ "${codes[*]}" = "2 2" ]
    grep -q 'found save_every: 500, expected save_every: 1$' "$D/1.err"
}
@test "processes: other data on a rank is refused" {
    head -n 40 "$G/pesc-a/data.jsonl" > "$D/less.jsonl"
    pair "$G/pesc-a/model --data $G/pesc-a/data.jsonl" "$G/pesc-a/model --data $D/less.jsonl"
    [ "${codes[*]}" = "2 2" ]
    grep -q 'the data files are not that of rank 0: found hash ' "$D/1.err"
}
@test "processes: another model on a rank is refused" {
    cp -r "$G/pesc-a/model" "$D/other"
    python3 - "$D"/other/*.safetensors <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-3, 2)
    f.write(b"\x01")
PY
    pair "$G/pesc-a/model --data $G/pesc-a/data.jsonl" "$D/other --data $G/pesc-a/data.jsonl"
    [ "${codes[*]}" = "2 2" ]
    grep -q 'the model is not that of rank 0: found hash ' "$D/1.err"
}
@test "processes: a process of another version is refused" {
    sed "s/$("$PESC" version | sed 's/^pesc //; s/ .*//')/9.9.9/" "$PESC" > "$D/pesc" || skip "sed cannot edit the program"
    chmod +x "$D/pesc"
    local port rc=0 other=0
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    RANK=1 "$D/pesc" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/v" -q > /dev/null 2> "$D/1.err" &
    RANK=0 "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/v" -q > /dev/null 2> "$D/0.err" || rc=$?
    wait $! || other=$?
    [ "$rc $other" = "2 2" ]
    grep -q 'rank 1 (.*) runs pesc 9.9.9, rank 0 runs ' "$D/0.err"
    grep -q 'rank 1 (.*) runs pesc 9.9.9, rank 0 runs ' "$D/1.err"
}
@test "processes: an error of rank 0 is an error of all" {
    mkdir "$D/taken"
    echo x > "$D/taken/file"
    pair "$G/pesc-a/model --data $G/pesc-a/data.jsonl -o $D/taken" "$G/pesc-a/model --data $G/pesc-a/data.jsonl -o $D/taken"
    [ "${codes[*]}" = "2 2" ]
}
@test "processes: what the environment lacks is named" {
    RANK=0 WORLD_SIZE=2 run -2 "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/e"
    [[ "$output" == *"MASTER_ADDR: is missing; it is the host of rank 0"* ]]
    RANK=2 WORLD_SIZE=2 run -2 "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/e"
    [[ "$output" == *'RANK: found "2", expected a number from 0 to 1'* ]]
}
@test "processes: --gpus without a GPU is refused unless --device cpu is typed" {
    run -2 "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/e" --gpus 2
    [ "$output" = "pesc: train: --gpus 2: found no usable GPU (pesc doctor says what is missing); --device cpu starts the processes on the CPU" ]
    [ ! -e "$D/e" ]
}
@test "processes: grad_groups is a power of two" {
    run -2 "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$D/e" --grad-groups 6
    [[ "$output" == *"grad_groups: found 6, expected a power of two"* ]]
}
@test "processes: what does not fit into a part of the memory is refused before any is started" {
    pesc train "$G/full/model" --data "$G/full/data.jsonl" --method full -o "$D/too-many" --steps 1 --batch 4096 --seq-len 64 --micro-tokens 262144 \
        --gpus 1000 --device cpu
    [ "$status" = 4 ]
    [[ "$stderr" =~ ^"pesc: train: --gpus 1000: each process needs "[0-9.]+\ [KMG]iB", but its part of this machine's memory is "[0-9.]+\ [KMG]iB"; start fewer, or make seq_len or micro_tokens smaller"$ ]]
    [ ! -e "$D/too-many" ]
}
