# What the tests of training runs share: tiny runs of a golden model, and what two runs must have in common.

G=$BATS_TEST_DIRNAME/../golden/train

# $D/run: one run of 8 steps that several tests look at.
make_run() {
    tiny -o "$D/run" --save-every 4 --eval-data "$G/pesc-a/data.jsonl" --eval-every 4 -q > "$D/run.out"
}

# A tiny PESC run of 8 steps.
tiny() {
    "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" --steps 8 --batch 2 --lr 3e-3 \
        --seq-len 32 --lora-r 2 --threads 1 "$@"
}

tiny_pesc() {
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" --steps 8 --batch 2 --lr 3e-3 \
        --seq-len 32 --lora-r 2 --threads 1 "$@"
}

# Metrics without what a clock gave.
numbers() { sed 's/"tok_s":[^,]*,//' "$1/metrics.jsonl"; }

# All that a resumed run must have in common with an uninterrupted one.
same_run() { # a b
    diff <(numbers "$1") <(numbers "$2") || return 1
    diff "$1/routing.jsonl" "$2/routing.jsonl" || return 1
    local f
    for f in adapter_model trained optimizer; do
        cmp "$1/latest/$f.safetensors" "$2/latest/$f.safetensors" || return 1
    done
}

# In the background, as $!.
long() {
    (exec "$PESC" train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$1" --steps 100000 --batch 2 \
        --seq-len 32 --lora-r 2 --threads 1 "${@:2}" > /dev/null 2> "$1.err") &
}
wait_for() { # file
    for _ in $(seq 1200); do
        [ ! -s "$1" ] || return 0
        sleep 0.05
    done
    return 1
}
