#!/bin/sh
# What 64-bit Arm must hold, on a machine of another architecture: the C tests that `make arm` built, under QEMU, and, where this
# machine has AVX2, that the command computes its bits with NEON: logits, GGUF files, and the checkpoints of training runs.
#   tests/arm.sh [compare]      compare: the bits alone
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
RUN="qemu-aarch64 -L $BUILD/arm/sysroot"
export PESC_TEST_EMULATED=1 # tests allow their work more time
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# computed FOLDER COMMAND...: what the command computes, in files of the folder
computed() {
    out=$1
    shift
    mkdir -p "$out"
    "$@" craft share/base -o "$out/sparse" --experts 4 --adapter-dim 16 || return
    for blocks in q8_0 q4_0; do "$@" export share/base --to gguf --dtype $blocks -o "$out/$blocks.gguf" || return; done
    for compute in f32 bf16; do
        "$@" logits share/base --ids "$work/ids.json" --compute-dtype $compute -o "$out/$compute.npy" || return
        "$@" logits share/base --ids "$work/ids.json" --compute-dtype $compute --base-dtype nf4 -o "$out/$compute-nf4.npy" || return
        for blocks in q8_0 q4_0; do
            "$@" logits "$out/$blocks.gguf" --ids "$work/ids.json" --compute-dtype $compute -o "$out/$compute-$blocks.npy" || return
        done
        "$@" train "$out/sparse" --data share/train.jsonl -o "$work/run" --config share/tune.yaml --method pesc --compute-dtype $compute \
            --steps 3 --batch 4 --seq-len 96 --lora-dropout 0.1 -q || return
        for file in "$work"/run/latest/*.safetensors; do cp "$file" "$out/$compute-$(basename "$file")"; done
        rm -rf "$work/run"
    done
}

failed=0
if grep -qw avx2 /proc/cpuinfo; then
    seq -s, 3 160 | sed 's/.*/[&]/' >"$work/ids.json"
    PESC_ISA=avx2 computed "$work/avx2" "$BUILD/pesc" >"$work/log" 2>&1 &&
        PESC_ISA=neon computed "$work/neon" $RUN "$BUILD/arm/pesc" >>"$work/log" 2>&1 &&
        diff -r "$work/avx2" "$work/neon" >>"$work/log" 2>&1 || failed=1
    if [ $failed = 0 ]; then echo "neon computes the bits of avx2: $(find "$work/neon" -type f | wc -l) files"; else cat "$work/log"; fi
else
    echo "SKIPPED: this machine has no AVX2, so its bits are not compared"
fi
[ "${1:-}" = compare ] || BUILD="$BUILD/arm" RUN="$RUN" tests/run.sh c || failed=1
exit $failed
