#!/bin/sh
# The share of time in which a GPU has nothing to do during steps as `pesc train` makes them: reading data, metrics and
# all, on a 135 M shape with 16 records of 1,500 tokens a step.
#   bench/idle.sh BUILD
set -eu
cd "$(dirname "$0")/.."
BUILD=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$BUILD/pesc" new bench/shapes/135m-pesc.json -o "$work/model" -q >/dev/null
awk 'BEGIN { srand(1); for (r = 0; r < 512; r++) { ids = ""; for (i = 0; i < 1500; i++)
    ids = ids (i ? "," : "") int(rand() * 32000); print "{\"input_ids\":[" ids "],\"labels\":[" ids "]}" } }' >"$work/data.jsonl"
"$BUILD/bench/idle" "$work/model" "$work/data.jsonl" "$work/run" batch=16
