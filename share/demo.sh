#!/bin/sh
# The main job, end to end, on the embedded base: a dense model of 0.85 M weights that has read
# plain text of three domains becomes a sparse mixture of experts, both are tuned on the same
# instructions, and held-out questions are asked of each.
set -eu
cd "$(dirname "$0")/.."
PESC=${PESC:-build/pesc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
show() { printf '\n$ pesc %s\n' "$*"; "$PESC" "$@"; }

# one recipe for both: three epochs over 2,981 instructions, 240 held out
tune() { # MODEL METHOD RUN
    show train "$1" --method "$2" -o "$3" --data share/train.jsonl --eval-data share/test.jsonl \
        --seq-len 160 --batch 16 --epochs 3 --lr 1e-3 --clip 1 --lora-r 8 --lora-dropout 0 \
        --adapter-dropout 0 --base-dtype f32 --compute-dtype bf16 --log-every 100 --save-every 0 \
        --eval-every 300
}

show info share/base
show craft share/base -o "$work/sparse" --experts 8 --top-k 2 --adapter-dim 64
tune share/base lora "$work/camel"
tune "$work/sparse" pesc "$work/camelidae"

printf '\n%-12s %12s %12s %16s %12s\n' model parameters activated "held-out loss" tokens/s
row() { # NAME RUN
    total=$("$PESC" info "$2" --json | sed -n 's/.*"total":\([0-9]*\).*/\1/p')
    activated=$("$PESC" info "$2" --json | sed -n 's/.*"activated":\([0-9]*\).*/\1/p')
    loss=$(sed -n 's/.*"eval_loss":\([0-9.]*\).*/\1/p' "$2/eval.jsonl" | tail -n 1)
    speed=$(sed -n 's/.*"tok_s":\([0-9.]*\).*/\1/p' "$2/metrics.jsonl" | sort -n |
        awk '{ v[NR] = $1 } END { printf "%.0f", v[int((NR + 1) / 2)] }')
    printf '%-12s %12s %12s %16s %12s\n' "$1" "$total" "$activated" "$loss" "$speed"
}
row "dense" "$work/camel"
row "sparse" "$work/camelidae"

ask() {
    printf '\n> %s\n' "$1"
    for run in camel camelidae; do
        printf '%-10s ' "$run"
        "$PESC" generate "$work/$run" --max-tokens 48 --prompt "### Human:
$1
### Assistant:
"
    done
}
ask "$(sed -n 's/.*"general", "instruction": "\([^"]*\)".*/\1/p' share/test.jsonl | head -n 1)"
ask "$(sed -n 's/.*"code", "instruction": "\([^"]*\)".*/\1/p' share/test.jsonl | head -n 1)"
ask "$(sed -n 's/.*"maths", "instruction": "\([^"]*\)".*/\1/p' share/test.jsonl | head -n 1)"
