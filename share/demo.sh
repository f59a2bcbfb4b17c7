#!/bin/sh
# The main job, end to end, on the embedded base: a dense model that has read plain text becomes a
# sparse mixture of experts; dense, sparse and upcycled are tuned on the same instructions of three
# domains; held-out questions are asked of each; and the experts show what they do.
#   PESC=build/pesc   the command          DEMO=build/demo   where everything is left
#   EPOCHS=4          passes over the instructions: fewer is faster and worse
set -eu
cd "$(dirname "$0")/.."
PESC=${PESC:-build/pesc}
DEMO=${DEMO:-build/demo}
EPOCHS=${EPOCHS:-4}
mkdir -p "$DEMO"
began=$(date +%s)

if [ -t 1 ]; then bold=$(printf '\033[1m') dim=$(printf '\033[2m') plain=$(printf '\033[0m'); else bold='' dim='' plain=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
exec 3>&1
show() { # pesc's arguments: prints the command, then runs it
    printf '%s$ pesc %s%s\n' "$dim" "$*" "$plain" >&3
    "$PESC" "$@"
}

tune() { # MODEL METHOD RATE NAME
    show train "$1" -c share/tune.yaml --method "$2" --lr "$3" --epochs "$EPOCHS" -o "$DEMO/$4" \
        --overwrite --json > "$DEMO/$4.train.json"
}

title "1. The embedded base: a dense Llama that has read plain text, but no instruction"
show info share/base

title "2. Craft: the same function, now with 8 adapters as experts a layer, or 8 copies of each FFN"
show craft share/base -o "$DEMO/sparse" --overwrite --experts 8 --top-k 2 --adapter-dim 64
show craft share/base -o "$DEMO/copies" --overwrite --experts 8 --top-k 2 --kind upcycle

title "3. Tune on $(wc -l < share/train.jsonl) instructions, $EPOCHS epochs each"
tune share/base lora 4e-3 camel
tune "$DEMO/sparse" pesc 3e-3 camelidae
tune "$DEMO/copies" upcycle 1e-3 upcycled

title "4. Ask $(wc -l < share/test.jsonl) held-out questions of each"
for model in share/base "$DEMO/camel" "$DEMO/camelidae" "$DEMO/upcycled"; do
    name=$(basename "$model")
    "$PESC" eval "$model" --tasks share/test.jsonl --template camelidae --json -q > "$DEMO/$name.eval.json"
    "$PESC" info "$model" --json > "$DEMO/$name.info.json"
done

# number FILE PLACE KEY: the first KEY behind PLACE, or nothing
number() {
    awk -v place="$2" -v key="\"$3\":" '{
        at = index($0, place); if (!at) next
        rest = substr($0, at); at = index(rest, key); if (!at) next
        rest = substr(rest, at + length(key)); match(rest, /^[-+0-9.eE]+/); print substr(rest, 1, RLENGTH)
    }' "$1"
}
scaled() { awk -v v="${1:-}" -v f="$2" -v by="$3" 'BEGIN { if (v == "") print "-"; else printf f, v * by }'; }
median_speed() { sed -n 's/.*"tok_s":\([0-9.]*\).*/\1/p' "$1" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

each() { # how row to print: for the four models
    "$1" 'dense base' base
    "$1" 'dense tuned (Camel)' camel
    "$1" 'sparse tuned (Camelidae)' camelidae
    "$1" 'upcycled, tuned' upcycled
}
quality() { # TITLE NAME
    printf '%-26s' "$1"
    for what in exact_match:%.1f:100 loss:%.3f:1; do
        for place in '"domain":"general"' '"domain":"code"' '"domain":"maths"' '"all":'; do
            value=$(number "$DEMO/$2.eval.json" "$place" "${what%%:*}")
            rest=${what#*:}
            printf '%7s' "$(scaled "$value" "${rest%:*}" "${rest#*:}")"
        done
        printf ' '
    done
    echo
}
cost() { # TITLE NAME
    trained='' memory='' speed=''
    if [ -f "$DEMO/$2.train.json" ]; then
        trained=$(number "$DEMO/$2.train.json" '{' params_trained)
        memory=$(number "$DEMO/$2.train.json" '{' mem_bytes)
        speed=$(median_speed "$DEMO/$2/metrics.jsonl")
    fi
    printf '%-26s %8s %10s %8s %8s %10s\n' "$1" \
        "$(scaled "$(number "$DEMO/$2.info.json" '{' total)" %.2f 1e-6)" \
        "$(scaled "$(number "$DEMO/$2.info.json" '{' activated)" %.2f 1e-6)" \
        "$(scaled "$trained" %.2f 1e-6)" "$(scaled "$memory" %.0f 1e-6)" "$(scaled "$speed" %.0f 1)"
}
table() {
    printf '%-26s%28s %28s\n' '' 'exact match, %' 'held-out loss, nats a token'
    printf '%-26s%7s%7s%7s%7s %7s%7s%7s%7s\n' '' general code maths all general code maths all
    each quality
    printf '\n%-26s%28s %19s\n' '' 'parameters, M' 'tuning'
    printf '%-26s %8s %10s %8s %8s %10s\n' '' total activated trained MB tokens/s
    each cost
}
table | tee "$DEMO/table.txt"

title "5. What the experts do: each domain's tokens, layer by layer"
show routes "$DEMO/camelidae" --data share/test.jsonl -o "$DEMO"

title "6. A short chat with the sparse model"
ask() { # DOMAIN: its first held-out question
    question=$(sed -n "s/.*\"$1\", \"instruction\": \"\\([^\"]*\\)\".*/\\1/p" share/test.jsonl | head -n 1)
    printf '%syou%s    %s\n' "$bold" "$plain" "$question"
    answer=$(printf '%s\n' "$question" | "$PESC" chat "$DEMO/camelidae" --max-tokens 48 -q)
    printf '%s\n' "$answer" | sed "1s/^/${bold}model${plain}  /; 2,\$s/^/       /"
}
ask general
ask code
ask maths

printf '\n%s s. Look at %s/plots/routing.png, %s/camelidae/plots/{loss,experts}.png; go on with\n' \
    $(($(date +%s) - began)) "$DEMO" "$DEMO"
printf '  %s chat %s/camelidae\n' "$PESC" "$DEMO"
