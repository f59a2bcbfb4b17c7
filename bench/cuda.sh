#!/bin/sh
# What a GPU does: products, then whole training steps and decoding of shapes with random weights, then the
# same work in PyTorch where that is installed. Compare figures of one call.
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
LD_LIBRARY_PATH=$BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
shape() { name=$1; shift; "$BUILD/bench/shape" "bench/shapes/$name.json" "$@" || true; }
echo "== products"
"$BUILD/bench/cuda" || exit
echo "== training steps: NF4 base, LoRA r=64 on 7 projections, 8 adapters of 512, top-2, AdamW"
shape 7b-pesc moments=8
shape 7b-pesc moments=8 micro=4096 memory=22
shape 7b-pesc moments=8 paged=1
shape 7b-pesc moments=8 base=bf16
shape 7b moments=8
shape 34b-pesc moments=8 seqs=2 micro=4096
shape 34b-pesc moments=8 micro=4096 memory=74
shape 29m-pesc seqs=32 tokens=512 micro=16384 lora=16
echo "== idle share of steps as pesc train makes them: data, metrics and all"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$BUILD/pesc" new bench/shapes/135m-pesc.json -o "$work/model" -q >/dev/null &&
    awk 'BEGIN { srand(1); for (r = 0; r < 512; r++) { ids = ""; for (i = 0; i < 1500; i++)
        ids = ids (i ? "," : "") int(rand() * 32000); print "{\"input_ids\":[" ids "],\"labels\":[" ids "]}" } }' \
        >"$work/data.jsonl" &&
    "$BUILD/bench/idle" "$work/model" "$work/data.jsonl" "$work/run" batch=16
echo "== decoding"
for batch in 1 8 64; do
    shape 7b decode=64 batch=$batch
done
shape 7b decode=64 base=bf16
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "== the same in PyTorch"
    python3 bench/gpu_peers.py
fi
