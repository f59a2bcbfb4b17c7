#!/bin/sh
# What it costs to find a task's experts: `pesc esft score` against a forward pass of as many tokens,
# the prefill of `pesc bench`, which is the cheapest there is: of the head it computes one row a pass.
# The model has OLMoE's layers, experts and choices (16, 64, 8 a token) at an eighth of its width.
#
# Counted is the CPU time of one thread: that of PASSES passes of 2048 tokens more. What both commands
# do besides, such as reading the model, falls out of the difference. The commands take turns, and of
# each the least of RUNS counts. 131072 tokens, the paper's number, are 64 passes.
#
#   BUILD=build PASSES=16 RUNS=3 bench/score.sh
set -eu
cd "$(dirname "$0")/.."
PESC=${PESC:-${BUILD:-build}/pesc}
PASSES=${PASSES:-16}
RUNS=${RUNS:-3}
LENGTH=2048
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/config.json" <<EOC
{"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "hidden_size": 256, "num_hidden_layers": 16,
 "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "num_experts": 64,
 "num_experts_per_tok": 8, "norm_topk_prob": false, "vocab_size": 6288, "max_position_embeddings": 4096,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
 "torch_dtype": "bfloat16"}
EOC
"$PESC" new "$work/config.json" -o "$work/model" -q > /dev/null
awk -v n=$((PASSES + 1)) -v length_of=$LENGTH 'BEGIN {
    state = 1
    for (r = 0; r < n; r++) {
        ids = ""
        for (i = 0; i < length_of; i++) { state = state * 16807 % 2147483647; ids = ids (i ? "," : "") state % 6288 }
        print "{\"input_ids\":[" ids "],\"labels\":[" ids "]}"
    }
}' > "$work/data.jsonl"

seconds() { # COMMAND...: CPU seconds of it
    ("$PESC" "$@" --threads 1 --json -q > "$work/said"; times) |
        awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); s += 60 * part[1] + part[2] } print s }'
}
score() { seconds esft score "$work/model" --data "$work/data.jsonl" -o "$work/out" --tokens $(($1 * LENGTH)) --seq-len $LENGTH --micro-tokens $LENGTH; }
# bench runs once more than it counts, in both cases
forward() { seconds bench "$work/model" --prompt-tokens $LENGTH --decode-tokens 1 --repeat "$1"; }

i=0
while [ $i -lt "$RUNS" ]; do
    echo "$(score 1) $(score $((PASSES + 1))) $(forward 1) $(forward $((PASSES + 1)))"
    i=$((i + 1))
done | awk -v tokens=$((PASSES * LENGTH)) '
    NF != 4 { exit failed = 1 } # a command ended early; it has said why
    { for (i = 1; i <= 4; i++) if (NR == 1 || $i < least[i]) least[i] = $i }
    END {
        if (failed) exit 1
        score = least[2] - least[1]; forward = least[4] - least[3]
        printf "score    %6.1f CPU us a token\nforward  %6.1f CPU us a token\nscore / forward  %.3f\n",
            1e6 * score / tokens, 1e6 * forward / tokens, score / forward
    }'
