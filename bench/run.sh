#!/bin/sh
# The kernel studies of this folder, then whole models: a Llama shape of 135 M and one of 15 M random
# weights. Machines differ and are noisy: compare figures of one run only.
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
for b in matmul ops; do
    echo "== $b"
    "$BUILD/bench/$b"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape() { # NAME WIDTH LAYERS HEADS KV FFN VOCAB
    cat >"$work/$1.json" <<EOF
{"model_type": "llama", "hidden_size": $2, "num_hidden_layers": $3, "num_attention_heads": $4,
 "num_key_value_heads": $5, "intermediate_size": $6, "vocab_size": $7, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "max_position_embeddings": 2048, "hidden_act": "silu",
 "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
EOF
    "$BUILD/pesc" new "$work/$1.json" -o "$work/$1" -q >/dev/null
}
shape 135M 576 30 9 3 1536 49152
shape 15M 288 6 6 6 768 32000
for model in 135M 15M; do
    for how in "bf16 bf16" "f32 f32" "nf4 bf16"; do
        # shellcheck disable=SC2086
        set -- $how
        echo "== $model, base $1, compute $2"
        "$BUILD/pesc" bench "$work/$model" --base-dtype "$1" --compute-dtype "$2" -q
    done
done
