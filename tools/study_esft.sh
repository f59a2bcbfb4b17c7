#!/bin/sh
# The study of docs/study-esft.md: a trained mixture of experts, specialised on one domain at a time.
#
#   make study-esft                 the whole study; results are in build/study-esft
#   TARGETS=maths SEEDS="0 1 2"     only this domain; a run that exists is not repeated
#   METHODS="full esft-token"       only these; REPORT=FILE writes the report elsewhere
#   EPOCHS=2 BASE_EPOCHS=6          the budgets; LIMIT=N asks only N test records of a domain
#
# Of ten records of a domain (share/train.jsonl, in file order), by place: 0 is in the mixture's own
# training even when the domain is the target, 0 to 5 when it is not; 1 to 8 of the target are what
# it is specialised on, 9 chooses the rate. So the mixture knows the other two domains well and the
# target a little. Each method gets three learning rates with the first seed, a fourth beyond the best
# where that is the lowest or highest, and the best of them with the other seeds. share/test.jsonl
# has no part in any choice. A seed draws the order of the
# records, LoRA's A and the random experts; the mixture is the same for all.
#
# The text after "## Reading" in the report is written by hand and is kept.
set -eu
cd "$(dirname "$0")/.."
PESC=${PESC:-build/pesc}
STUDY=${STUDY:-build/study-esft}
EPOCHS=${EPOCHS:-2}
BASE_EPOCHS=${BASE_EPOCHS:-6}
SEEDS=${SEEDS:-0 1 2}
TARGETS=${TARGETS:-general code maths}
LIMIT=${LIMIT:-0}
REPORT=${REPORT:-docs/study-esft.md}
EXPERTS=16
first=${SEEDS%% *}
budget=epochs$BASE_EPOCHS+$EPOCHS
mkdir -p "$STUDY"

# name | what is trained | which experts, - for none | train options | rates
# The gates of a mixtral sum to 1, so p of gates is a part of that sum.
rows() {
    cat <<'EOF'
full|every weight|-|--method full|2.5e-4 5e-4 1e-3
lora-r8|LoRA of rank 8 on attention|-|--method lora --lora-r 8 --lora-alpha 16|4e-3 8e-3 1.6e-2
lora-r64|LoRA of rank 64 on attention|-|--method lora --lora-r 64 --lora-alpha 128|1e-3 2e-3 4e-3
esft-token|experts by token score, p 0.2|--metric token --p 0.2|--method esft|5e-4 1e-3 2e-3
esft-gate|experts by gate score, p 0.27 of the sum|--metric gate --p-relative --p 0.27|--method esft|5e-4 1e-3 2e-3
esft-token-50|experts by token score, p 0.5|--metric token --p 0.5|--method esft|5e-4 1e-3 2e-3
random|as many random experts a layer as esft-token|random|--method esft|5e-4 1e-3 2e-3
EOF
}
METHODS=${METHODS:-$(rows | cut -d'|' -f1)}
for method in $METHODS; do
    rows | grep -q "^$method|" || { echo "study: '$method' is no method; see tools/study_esft.sh" >&2; exit 2; }
done

# number FILE PLACE KEY: the first KEY after PLACE
number() {
    awk -v place="$2" -v key="\"$3\":" '{
        at = index($0, place); if (!at) next
        rest = substr($0, at); at = index(rest, key); if (!at) next
        rest = substr(rest, at + length(key)); match(rest, /^[-+0-9.eE]+/); print substr(rest, 1, RLENGTH); exit
    }' "$1"
}

# ---- the mixture to be specialised, and the experts its target uses

train() { # MODEL RUN DATA EPOCHS OPTION...: what all runs have in common
    from=$1 run=$2 data=$3 epochs=$4
    shift 4
    "$PESC" train "$from" -o "$run" --overwrite --data "$data" --epochs "$epochs" --template camelidae \
        --batch 16 --seq-len 160 --schedule cosine --clip 1 --lora-dropout 0 --base-dtype f32 \
        --compute-dtype bf16 --save-every 0 --json -q "$@"
}

test_of() { # MODEL FILE: losses and exact matches of the three domains
    "$PESC" eval "$1" --tasks share/test.jsonl --limit "$LIMIT" --template camelidae --json -q > "$2.eval"
    for key in loss exact_match; do
        for domain in general code maths; do
            printf ' %s' "$(number "$2.eval" "\"domain\":\"$domain\"" $key)"
        done
    done > "$2.tmp"
    mv "$2.tmp" "$2"
}

split() { # TARGET
    awk -v target="$1" -v to="$STUDY/$1" '{
        domain = $2; gsub(/[",]/, "", domain); place = count[domain]++ % 10
        if (place < (domain == target ? 1 : 6)) print > (to "-base.jsonl")
        else if (domain == target) print > (to (place == 9 ? "-valid" : "-tune") ".jsonl")
    }' share/train.jsonl
}

prepare() { # TARGET: the mixture, its test, its scores
    base=$STUDY/$1-base-epochs$BASE_EPOCHS
    split "$1"
    [ ! -f "$base.scores/summary.json" ] || return 0
    echo "$(date +%T) $base" >&2
    "$PESC" craft share/base -o "$STUDY/upcycled" --overwrite --kind upcycle --experts $EXPERTS --top-k 2 \
        --check false -q > /dev/null
    train "$STUDY/upcycled" "$base" "$STUDY/$1-base.jsonl" "$BASE_EPOCHS" --method full --lr 1e-3 > "$base.train"
    test_of "$base" "$base.test"
    "$PESC" esft score "$base" --data "$STUDY/$1-tune.jsonl" --template camelidae -o "$base.scores" --json -q > "$base.score"
}

# Park and Miller's generator: exact in the doubles of any awk.
draw() { # CONFIG SEED: as many experts per layer, drawn at random
    awk -v seed="$2" -v experts=$EXPERTS '{
        state = 1 + seed * 7919
        printf "{\"experts\": {"
        while (match($0, /"[0-9]+": \[[^]]*\]/)) {
            layer = substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH)
            n = gsub(/,/, ",", layer) + 1; sub(/:.*/, "", layer)
            for (i = 0; i < experts; i++) id[i] = i
            printf "%s%s: [", comma, layer; comma = ", "
            for (i = 0; i < n; i++) {
                state = state * 16807 % 2147483647; j = i + state % (experts - i)
                t = id[i]; id[i] = id[j]; id[j] = t
                printf "%s%d", i ? ", " : "", id[i]
            }
            printf "]"
        }
        printf "}, \"shared_experts\": false, \"non_expert_modules\": false}"
    }' "$1"
}

choose() { # TARGET WHICH SEED FILE: the experts that train
    scores=$STUDY/$1-base-epochs$BASE_EPOCHS.scores
    if [ "$2" = random ]; then
        "$PESC" esft select "$scores" --metric token --p 0.2 -o "$4.like" -q > /dev/null
        draw "$4.like" "$3" > "$4"
    else
        # shellcheck disable=SC2086
        "$PESC" esft select "$scores" $2 -o "$4" -q > /dev/null
    fi
}

# ---- runs

tune() { # TARGET METHOD SEED RATE WHICH TRAIN: one run, unless it exists
    run=$STUDY/$1-$2-seed$3-lr$4-$budget
    [ ! -f "$run.train" ] || return 0
    echo "$(date +%T) $run" >&2
    experts=
    if [ "$5" != - ]; then
        experts="--experts-config $run.experts"
        choose "$1" "$5" "$3" "$run.experts"
    fi
    # shellcheck disable=SC2086
    train "$STUDY/$1-base-epochs$BASE_EPOCHS" "$run" "$STUDY/$1-tune.jsonl" "$EPOCHS" $6 $experts --seed "$3" --lr "$4" \
        --aux-coef 0 --eval-data "$STUDY/$1-valid.jsonl" --eval-every 1000000 > "$run.tmp"
    mv "$run.tmp" "$run.train"
}

measure() { # as tune: the results, for the report
    run=$STUDY/$1-$2-seed$3-lr$4-$budget
    if [ ! -f "$run.test" ]; then
        [ -e "$run/latest" ] || rm -f "$run.train"
        tune "$@"
        test_of "$run" "$run.test"
    fi
    chosen=0
    [ "$5" = - ] || chosen=$(grep -o '\[[^]]*\]' "$run.experts" | tr , '\n' | wc -l)
    echo "$1 $2 $3 $4 $(cat "$run.test") $(number "$run.train" '{' params_trained) $(number "$run.train" '{' mem_bytes) $chosen $edge"
}

scaled() { awk -v a="$1" -v b="$2" 'BEGIN { print a * b }'; }

best_rate() { # TARGET METHOD RATES: the one with the smallest loss on the held-out records
    for rate in $3; do
        echo "$rate $(number "$STUDY/$1-$2-seed$first-lr$rate-$budget.train" '{' eval_loss)"
    done | awk 'NR == 1 || $2 < least { least = $2; best = $1 } END { print best }'
}

: > "$STUDY/results.tmp"
for target in $TARGETS; do
    prepare "$target"
    echo "$target mixture - -$(cat "$STUDY/$target-base-epochs$BASE_EPOCHS.test") 0 0 0 inside" >> "$STUDY/results.tmp"
    for method in $METHODS; do
        line=$(rows | grep "^$method|")
        which=$(echo "$line" | cut -d'|' -f3) how=$(echo "$line" | cut -d'|' -f4) rates=$(echo "$line" | cut -d'|' -f5)
        for rate in $rates; do tune "$target" "$method" "$first" "$rate" "$which" "$how"; done
        best=$(best_rate "$target" "$method" "$rates")
        case $rates in # at an edge: one more beyond it
        "$best "*) rate=$(scaled "$best" 0.5) rates="$rate $rates" ;;
        *" $best") rate=$(scaled "$best" 2) rates="$rates $rate" ;;
        esac
        tune "$target" "$method" "$first" "$rate" "$which" "$how"
        best=$(best_rate "$target" "$method" "$rates")
        edge=inside
        case $rates in "$best "* | *" $best") edge=edge ;; esac
        for seed in $SEEDS; do
            measure "$target" "$method" "$seed" "$best" "$which" "$how" >> "$STUDY/results.tmp"
        done
        rm -rf "$STUDY/$target-$method-seed"*"-$budget" # keeps the results, removes the weights
    done
done
mv "$STUDY/results.tmp" "$STUDY/results.txt"
rows | cut -d'|' -f1,2 > "$STUDY/names.txt"

# ---- the report

{
    awk -v epochs="$EPOCHS" -v base_epochs="$BASE_EPOCHS" -v seeds="$SEEDS" -v experts=$EXPERTS \
        -f tools/study_esft.awk "$STUDY/names.txt" "$STUDY/results.txt"
    [ ! -f "$REPORT" ] || awk '/^## Reading/ { on = 1; print "" } on' "$REPORT"
} > "$STUDY/report.tmp"
mv "$STUDY/report.tmp" "$REPORT"
echo "$REPORT"
