#!/bin/sh
# The tests that need a GPU: every op against the CPU, golden models, training trajectories, repeated and resumed
# runs, and on a Hopper GPU the same runs with gradients through the frozen weights in fp8. Prints SKIPPED where there
# is no GPU.
#   BUILD=dir tests/cuda.sh      DEVICE=cuda:0 chooses the GPU, REPEAT=20 repeats a run more often
#   SANITIZE="memcheck racecheck" tests/cuda.sh     instead the ops under compute-sanitizer; ONLY=PATTERN for some of them
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
DEVICE=${DEVICE:-cuda:0}
LD_LIBRARY_PATH=$BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
log=$(mktemp)
work=$(mktemp -d)
trap 'rm -rf "$log" "$work"' EXIT
passed=0 failed=0

for tool in ${SANITIZE:-}; do
    PESC_TEST_FILTER=${ONLY:-*} compute-sanitizer --tool "$tool" --error-exitcode 9 "$BUILD/tests/ops/run" "$DEVICE" >"$log" 2>&1
    code=$?
    printf '%s: exit code %d, %s\n' "$tool" "$code" "$(grep -E 'SUMMARY|^SKIPPED' "$log" | tail -n 1)"
    [ "$code" = 0 ] || { head -n 60 "$log" && exit 1; }
done
[ -z "${SANITIZE:-}" ] || exit 0

if "$BUILD/tests/ops/run" "$DEVICE" >"$log" 2>&1 && grep '^SKIPPED' "$log"; then
    exit 0
fi
# add NAME: the counts of a cmocka program's log
add() {
    ok=$(grep -c '^\[       OK \]' "$log") bad=$(grep -cE '^\[  FAILED  \] [A-Za-z_]' "$log")
    [ "$ok" != 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + ok)) failed=$((failed + bad))
    printf '%-28s %4d passed %3d failed\n' "$1" "$ok" "$bad"
    [ "$bad" = 0 ] || grep -vE '^\[( RUN|       OK|==|  PASSED)' "$log" | head -60
}
add "ops against the CPU"
for t in test_families test_train test_batch_invariant; do
    PESC_TEST_DEVICE=$DEVICE "$BUILD/tests/golden/$t" >"$log" 2>&1
    add "golden/$t"
done

PESC_TEST_DEVICE=$DEVICE "$BUILD/tests/unit/test_extra_experts" >"$log" 2>&1
add "unit/test_extra_experts"

# check NAME COMMAND...: one more test
check() {
    name=$1
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1)) verdict=ok
    else
        failed=$((failed + 1)) verdict=FAILED
    fi
    printf '%-60s %s\n' "$name" "$verdict"
    [ "$verdict" = ok ] || tail -n 20 "$log"
}
# run DIR STEPS [OPTION...]: a run of a golden model on the GPU
model=tests/golden/train/pesc-a/model
run() {
    dir=$1 steps=$2
    shift 2
    "$BUILD/pesc" train "$model" --data tests/golden/train/pesc-a/data.jsonl -o "$work/$dir" --device "$DEVICE" \
        --seq-len 32 --batch 4 --lora-r 4 --steps "$steps" --compute-dtype bf16 --save-every 5 -q "$@"
}
same() { # DIR DIR: the trained weights and moments of the last checkpoints
    for part in adapter_model trained optimizer; do
        cmp "$work/$1/latest/$part.safetensors" "$work/$2/latest/$part.safetensors" || return 1
    done
}
repeat() { # the run `long`, REPEAT times more
    for i in $(seq "${REPEAT:-3}"); do
        run "long$i" 50 && same long "long$i" || return 1
    done
}
check "a run on the GPU" run a 10
check "the same run again" run b 10
check "has the same bits" same a b
check "a run that stops half way" run c 5
check "and is resumed" run c 10 --resume
check "has the same bits too" same a c
check "a run with the base in the host's memory" run streamed 10 --shard host
check "has the same bits too" same a streamed
check "a run of 50 steps" run long 50
check "has the same bits ${REPEAT:-3} times more" repeat
# expert_lora DEVICE DIR: LoRA on full experts in f32
expert_lora() {
    "$BUILD/pesc" train "$work/moe" --data share/train.jsonl --template camelidae -o "$work/$2" --device "$1" --method lora \
        --lora-targets all,experts --lora-r 4 --lr 1e-3 --seq-len 64 --over-length truncate --batch 4 --steps 5 --compute-dtype f32 \
        --base-dtype f32 -q --json > "$work/$2.json"
}
near() { # the losses of both devices
    paste "$work/experts-cpu/metrics.jsonl" "$work/experts-gpu/metrics.jsonl" | sed 's/.*"loss":\([^,]*\).*"loss":\([^,]*\).*/\1 \2/' |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) exit 1; n++ } END { exit n != 5 }'
}
check "an upcycled model" "$BUILD/pesc" craft share/base -o "$work/moe" --kind upcycle --experts 4 --check false -q
check "LoRA on its experts, on the CPU" expert_lora cpu experts-cpu
check "the same on the GPU" expert_lora "$DEVICE" experts-gpu
check "has the same losses" near

# fp8: a wider model, whose products the kernel serves, and more than 256 tokens a step
wide() {
    sed 's/"hidden_size": 24/"hidden_size": 128/; s/"intermediate_size": 40/"intermediate_size": 320/
         s/"num_attention_heads": 3/"num_attention_heads": 2/; s/"head_dim": 8/"head_dim": 64/
         s/"adapter_dim": 6/"adapter_dim": 16/' "$model/config.json" >"$work/config.json"
    "$BUILD/pesc" new "$work/config.json" -o "$work/wide" --seed 1 -q
}
eight() { # DIR STEPS TYPE [OPTION...]
    dir=$1 steps=$2 type=$3
    shift 3
    model=$work/wide run "$dir" "$steps" --batch 32 --lr 5e-3 --base-dtype bf16 --base-grad-dtype "$type" "$@"
}
repeat_eight() {
    for i in $(seq "${REPEAT:-3}"); do
        eight "e50$i" 50 fp8 && same e50 "e50$i" || return 1
    done
}
differ() { ! cmp "$work/$1/latest/trained.safetensors" "$work/$2/latest/trained.safetensors"; }
losses() { sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$work/$1/metrics.jsonl"; }
# DIR DIR: the losses of every step differ by at most 2 %: e4m3 keeps 4 bits of a number, and the errors of many
# numbers average out
within() {
    losses "$1" >"$work/left" && losses "$2" >"$work/right" && [ -s "$work/left" ] &&
        paste "$work/left" "$work/right" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 0.02 * $2)) exit 1 }'
}
if [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)" = 9.0 ]; then
    check "a wider model" wide
    check "a run of 50 steps in bf16" eight b50 50 bf16
    check "a run of 50 steps with gradients in fp8" eight e50 50 fp8
    check "has other bits" differ b50 e50
    check "and losses within 2 %" within b50 e50
    check "has the same bits ${REPEAT:-3} times more" repeat_eight
    check "a run in fp8" eight e1 10 fp8
    check "a run in fp8 that stops half way" eight e2 5 fp8
    check "and is resumed" eight e2 10 fp8 --resume
    check "has the same bits" same e1 e2
    check "a run in fp8 with an NF4 base" eight e4 10 fp8 --base-dtype nf4
    check "the same again" eight e5 10 fp8 --base-dtype nf4
    check "has the same bits" same e4 e5
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
