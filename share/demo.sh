#!/bin/sh
# What pesc does today, end to end, on a small model made on the spot.
set -eu
cd "$(dirname "$0")/.."
PESC=${PESC:-build/pesc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
show() { printf '\n$ pesc %s\n' "$*"; "$PESC" "$@"; }

echo "A Llama of 1 M random weights with the embedded tokenizer, then every way to look at it."
show new share/base/config.json -o "$work/model" --tokenizer share/base --seed 1
show info "$work/model"
printf 'def f(x):\n    return x + 2\n' >"$work/text"
show tokenize "$work/model" "$work/text" --add-special
"$PESC" tokenize "$work/model" "$work/text" | "$PESC" detokenize "$work/model"
show perplexity "$work/model" "$work/text"
show generate "$work/model" --prompt "The answer is" --max-tokens 24 --temperature 1 --seed 3
show bench "$work/model" --prompt-tokens 128 --decode-tokens 32
show doctor
echo
echo "Random weights speak nonsense; point pesc at a model directory or a .gguf file of yours."
