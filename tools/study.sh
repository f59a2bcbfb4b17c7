#!/bin/sh
# The study of docs/study.md: every method on the embedded three-domain task.
#
#   make study                      the whole study; results are in build/study, the report in docs/study.md
#   EPOCHS=3 SEEDS="0 1 2"          the budget; a run that exists is not repeated
#   METHODS="lora-r8 pesc-8"        only these; REPORT=FILE writes the report elsewhere
#
# Each method gets the same budget: four learning rates with the first seed, chosen by the loss on
# 10 % of the training records, which are held out; then the best rate with the other seeds. The report
# is measured on share/test.jsonl, which has no part in any choice. A seed draws the
# order of the records, LoRA's A, routers and adapters.
set -eu
cd "$(dirname "$0")/.."
PESC=${PESC:-build/pesc}
STUDY=${STUDY:-build/study}
EPOCHS=${EPOCHS:-3}
SEEDS=${SEEDS:-0 1 2}
REPORT=${REPORT:-docs/study.md}
first=${SEEDS%% *}
mkdir -p "$STUDY"

# name | what is trained | craft options, - for none | train options | rates | times the epochs
# Ranks 22 and 62 give LoRA as many activated and as many trainable parameters as pesc-8 has.
rows() {
    cat <<'EOF'
lora-r8|dense, LoRA of rank 8|-|--method lora --lora-r 8 --lora-alpha 16|4e-3 8e-3 1.6e-2 3.2e-2|1
lora-r8-long|the same, 1.7 times as long|-|--method lora --lora-r 8 --lora-alpha 16|2e-3 4e-3 8e-3 1.6e-2|1.7
lora-r22|dense, LoRA of rank 22|-|--method lora --lora-r 22 --lora-alpha 44|2e-3 4e-3 8e-3 1.6e-2|1
lora-r62|dense, LoRA of rank 62|-|--method lora --lora-r 62 --lora-alpha 124|1e-3 2e-3 4e-3 8e-3|1
pesc-4|4 adapters of 64, LoRA 8|--experts 4 --top-k 2 --adapter-dim 64|--method pesc --lora-r 8 --lora-alpha 16|2e-3 4e-3 8e-3 1.6e-2|1
pesc-8|8 adapters of 64, LoRA 8|--experts 8 --top-k 2 --adapter-dim 64|--method pesc --lora-r 8 --lora-alpha 16|2e-3 4e-3 8e-3 1.6e-2|1
pesc-16|16 adapters of 64, LoRA 8|--experts 16 --top-k 2 --adapter-dim 64|--method pesc --lora-r 8 --lora-alpha 16|2e-3 4e-3 8e-3 1.6e-2|1
molora|8 LoRA experts of rank 8 in the FFN|-|--method molora --experts 8 --top-k 2 --lora-r 8 --lora-alpha 16|2e-3 4e-3 8e-3 1.6e-2|1
upcycle|8 copies of each FFN, LoRA 8|--kind upcycle --experts 8 --top-k 2|--method upcycle --lora-r 8 --lora-alpha 16|1e-3 2e-3 4e-3 8e-3|1
full|every weight of the dense model|-|--method full|5e-4 1e-3 2e-3 4e-3|1
EOF
}
METHODS=${METHODS:-$(rows | cut -d'|' -f1)}

# ---- data: every tenth training record chooses the rate

awk -v to="$STUDY" '{ print > (to "/" (NR % 10 ? "train" : "valid") ".jsonl") }' share/train.jsonl

# ---- runs

# number FILE PLACE KEY: the first KEY after PLACE
number() {
    awk -v place="$2" -v key="\"$3\":" '{
        at = index($0, place); if (!at) next
        rest = substr($0, at); at = index(rest, key); if (!at) next
        rest = substr(rest, at + length(key)); match(rest, /^[-+0-9.eE]+/); print substr(rest, 1, RLENGTH); exit
    }' "$1"
}

once() { # METHOD SEED RATE CRAFT TRAIN TIMES: one run and its results, unless they exist
    run=$STUDY/$1-seed$2-lr$3-epochs$EPOCHS
    [ ! -f "$run.json" ] || return 0
    echo "$(date +%T) $run" >&2
    model=share/base
    if [ "$4" != - ]; then
        model=$STUDY/$1-seed$2
        # shellcheck disable=SC2086
        "$PESC" craft share/base -o "$model" --overwrite --seed "$2" $4 --check false -q > /dev/null
    fi
    # shellcheck disable=SC2086
    "$PESC" train "$model" -o "$run" --overwrite --data "$STUDY/train.jsonl" --template camelidae --seed "$2" \
        --lr "$3" $5 --epochs "$(awk -v a="$EPOCHS" -v b="$6" 'BEGIN { print a * b }')" --batch 16 --seq-len 160 \
        --schedule cosine --clip 1 --lora-dropout 0 --adapter-dropout 0 --base-dtype f32 \
        --compute-dtype bf16 --save-every 0 --eval-data "$STUDY/valid.jsonl" --eval-every 1000000 \
        --json -q > "$run.train"
    "$PESC" eval "$run" --tasks share/test.jsonl --template camelidae --json -q > "$run.test"
    "$PESC" info "$run" --json > "$run.info"
    seconds=$(awk -F'"tokens":|,|"tok_s":' '{ n = $0; sub(/.*"tokens":/, "", n); t = n + 0
        sub(/.*"tok_s":/, "", n); s += (t - last) / (n + 0); last = t } END { print s }' "$run/metrics.jsonl")
    {
        printf '%s %s %s %s' "$1" "$2" "$3" "$(number "$run.train" '{' eval_loss)"
        for key in loss exact_match; do
            for place in '"domain":"general"' '"domain":"code"' '"domain":"maths"' '"all":'; do
                printf ' %s' "$(number "$run.test" "$place" $key)"
            done
        done
        printf ' %s %s %s %s\n' "$(number "$run.train" '{' params_trained)" \
            "$(number "$run.info" '{' activated)" "$(number "$run.train" '{' mem_bytes)" "$seconds"
    } > "$run.tmp"
    mv "$run.tmp" "$run.json"
    rm -rf "$run" # keeps the results, removes the weights
}

best_rate() { # METHOD RATES: the one with the smallest loss on the held-out records
    for rate in $2; do cat "$STUDY/$1-seed$first-lr$rate-epochs$EPOCHS.json"; done |
        awk 'NR == 1 || $4 < least { least = $4; best = $3 } END { print best }'
}

: > "$STUDY/results.tmp"
for method in $METHODS; do
    line=$(rows | grep "^$method|") || { echo "study: '$method' is no method; see tools/study.sh" >&2; exit 2; }
    craft=$(echo "$line" | cut -d'|' -f3) train=$(echo "$line" | cut -d'|' -f4)
    rates=$(echo "$line" | cut -d'|' -f5) times=$(echo "$line" | cut -d'|' -f6)
    for rate in $rates; do once "$method" "$first" "$rate" "$craft" "$train" "$times"; done
    best=$(best_rate "$method" "$rates")
    edge=inside
    case $rates in "$best"\ * | *\ "$best") edge=edge ;; esac
    for seed in $SEEDS; do
        once "$method" "$seed" "$best" "$craft" "$train" "$times"
        sed "s/\$/ $edge/" "$STUDY/$method-seed$seed-lr$best-epochs$EPOCHS.json" >> "$STUDY/results.tmp"
    done
done
mv "$STUDY/results.tmp" "$STUDY/results.txt"
rows | cut -d'|' -f1,2 > "$STUDY/names.txt"

# ---- the report

awk -v epochs="$EPOCHS" -v seeds="$SEEDS" -f tools/study.awk "$STUDY/names.txt" "$STUDY/results.txt" > "$STUDY/report.tmp"
mv "$STUDY/report.tmp" "$REPORT"
echo "$REPORT"
