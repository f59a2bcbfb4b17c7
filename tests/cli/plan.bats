load helper

G=$BATS_TEST_DIRNAME/../golden/train

@test "plan: the predicted memory is the memory of a run" {
    for how in "--method pesc" "--method lora --optimizer adamw8" "--method full" "--method lora --compute-dtype bf16 --base-dtype bf16"; do
        options="$how --steps 2 --batch 8 --seq-len 64 --lora-r 4 --threads 1"
        # shellcheck disable=SC2086
        pesc plan "$G/pesc-a/model" $options --json
        [ "$status" = 0 ]
        planned=$output
        # shellcheck disable=SC2086
        pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$BATS_TEST_TMPDIR/r" $options --json -q --overwrite
        [ "$status" = 0 ]
        python3 - "$planned" "$output" <<'PY'
import json, sys
plan, run = (json.loads(x) for x in sys.argv[1:])
assert abs(plan["bytes"]["total"] / run["mem_bytes"] - 1) < 0.05, (plan, run)
assert plan["params_trained"] == run["params_trained"], (plan, run)
assert plan["fits"] is True
PY
    done
}
@test "plan: the disk of a run is that of the checkpoints it keeps" {
    checkpoints() { # expected option...
        pesc plan "$G/pesc-a/model" --seq-len 64 --batch 4 --json "${@:2}"
        [ "$status" = 0 ]
        python3 -c 'import json, sys; b = json.loads(sys.argv[1])["bytes"]; assert b["run"] == (eval(sys.argv[2]) and b["checkpoint"] * eval(sys.argv[2])), b' \
            "$output" "$1"
    }
    checkpoints 3
    checkpoints 6 --keep-checkpoints 5
    checkpoints 5 --keep-checkpoints 0 --steps 45 --save-every 10
    checkpoints 1 --keep-checkpoints 0 --steps 45 --save-every 0
    checkpoints None --keep-checkpoints 0 # the data decides
    pesc plan "$G/pesc-a/model" --seq-len 64 --batch 4 --keep-checkpoints 0
    has '^run on disk  *every checkpoint is kept; with --steps the sum is known$'
}
@test "plan: the table" {
    pesc plan "$G/pesc-a/model" --seq-len 64 --batch 4
    [ "$status" = 0 ]
    has '^trains +[0-9.]+ K of 14 K parameters$'
    has '^fits +yes$'
}
@test "plan: a run that does not fit exits 4" {
    [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -lt 67108864 ] || skip "the run fits into more than 64 GiB"
    pesc plan "$G/pesc-a/model" --seq-len 16000000 --micro-tokens 16000000
    [ "$status" = 4 ]
    has '^fits +no$'
    [[ $stderr == "pesc: the run does not fit into memory; "* ]]
    pesc plan "$G/pesc-a/model" --seq-len 16000000 --micro-tokens 16000000 --json
    [ "$status" = 4 ]
    python3 -c 'import json, sys; assert json.loads(sys.argv[1])["fits"] is False' "$output"
}
@test "plan: a method that does not suit the model" {
    pesc plan "$G/lora/model"
    [ "$status" = 2 ]
    [[ $stderr == *"run \`pesc craft MODEL -o SPARSE\` first"* ]]
}

@test "plan: several processes divide the moments, and a step is modelled" {
    local plan="$BATS_TEST_DIRNAME/../golden/train/pesc-a/model --batch 8 --seq-len 32 --lora-r 2"
    # shellcheck disable=SC2086
    pesc plan $plan --json
    local one=$output
    # shellcheck disable=SC2086
    pesc plan $plan --json --gpus 2 --nodes 2 --bandwidth 10 --gpu-tokens 1000
    python3 - "$one" "$output" <<'PY'
import json, sys
one, four = map(json.loads, sys.argv[1:])
assert "model_of_a_step" not in one
norms = 4096 + 64     # sums of segments of the norm, in every process
segment = 256 * 8     # the moments are divided by segments
assert four["bytes"]["optimizer"] - norms <= (one["bytes"]["optimizer"] - norms) / 4 + segment, (one, four)
m, n = four["model_of_a_step"], four["params_trained"]
assert m["processes"] == 4 and m["tokens"] == 256 and m["bytes_sent"] == 6 * n, m
assert abs(m["exchange_seconds"] - 6 * n / 1e10) < 1e-12 and abs(m["compute_seconds"] - 0.064) < 1e-9, m
PY
    # shellcheck disable=SC2086
    pesc plan $plan --gpus 4 --gpu-tokens 1000
    has '^model of a step \(not measured\) +4 processes'
    has '^  compute +0.064 s for 256 tokens'
}

@test "plan: the predicted memory is that of a process of several, with sharded gradients and masters" {
    local how options planned
    for how in "" "--compute-dtype bf16" "--grad-groups 2" "--optimizer adamw8 --gpus 4"; do
        options="--method full --batch 4 --seq-len 32 --micro-tokens 32 --packing false --device cpu --gpus 2 $how"
        # shellcheck disable=SC2086
        pesc plan "$G/full/model" $options --json
        [ "$status" = 0 ]
        planned=$output
        # shellcheck disable=SC2086
        pesc train "$G/full/model" --data "$G/full/data.jsonl" -o "$BATS_TEST_TMPDIR/r" $options --steps 1 --threads 1 --json -q --overwrite
        [ "$status" = 0 ]
        python3 - "$planned" "$output" <<'PY'
import json, sys
plan, run = (json.loads(x) for x in sys.argv[1:])
assert abs(plan["bytes"]["total"] / run["mem_bytes"] - 1) < 0.05, (plan, run)
PY
    done
}
@test "plan: sharded gradients are exchanged for each round of micro-batches" {
    local how n
    # 4 micro-batches: 2 rounds of 2 processes, 1 exchange of whole gradients; weights in f32 or bf16
    for how in "12" "8 --grad-groups 2" "10 --compute-dtype bf16"; do
        read -r n how <<< "$how"
        # shellcheck disable=SC2086
        pesc plan "$G/full/model" --method full --batch 4 --seq-len 32 --micro-tokens 32 --packing false --gpus 2 $how --json
        python3 - "$output" "$n" <<'PY'
import json, sys
plan = json.loads(sys.argv[1])
assert plan["model_of_a_step"]["bytes_sent"] == int(sys.argv[2]) * plan["params_trained"] / 2, plan
PY
    done
}

@test "plan: a GPU that is not there, by its memory or its name; processes on a CPU divide its memory" {
    local plan="$G/pesc-a/model --seq-len 64 --batch 4"
    pesc plan $plan --gpu-memory 24G --json
    [ "$status" = 0 ]
    python3 -c 'import json, sys; r = json.loads(sys.argv[1]); assert 23 * 2**30 < r["bytes"]["available"] < 24 * 2**30 and r["fits"], r' "$output"
    pesc plan $plan --device cuda --gpu H100
    has '^device +a GPU with 79\.6 GiB as h100, not measured: planned without one$'
    has '^step +.* s for 256 tokens, an estimate: 40 % of the 989 TFLOP/s of its data sheet$'
    pesc plan $plan --gpu 4091
    fails 2 'plan: --gpu: found "4091", expected one of b200, h200, h100, a100, a100-40g, a6000, l40s, l4, a10, 5090, 4090, 3090; --gpu-memory plans for any other'
    pesc plan $plan --gpu-memory 24X
    fails 2 'plan: --gpu-memory: found "24X", expected a size such as 24G'
    pesc plan $plan --gpu 4090 --device cpu
    fails 2 'plan: --gpu and --gpu-memory are of a GPU, found --device cpu'
    pesc plan $plan --gpu-memory 900M --gpus 2 --json
    [ "$status" = 0 ]
    pesc plan $plan --device cpu --json
    local whole=$output
    pesc plan $plan --device cpu --gpus 8 --json
    python3 -c 'import json, sys; a, b = (json.loads(x)["bytes"]["available"] for x in sys.argv[1:]); assert 0.7 < 8 * b / a < 1.4, (a, b)' "$whole" "$output"
}
