#!/bin/bash
# The real NCCL path on one GPU: 2 and 4 processes must give the bits of one. NCCL refuses two ranks on one GPU unless
# each says that it is on a host of its own (NCCL_HOSTID); they then exchange through sockets, as between machines, so
# no time measured here says anything about scaling.
#   tests/nccl.sh [build/pesc]
set -u
cd "$(dirname "$0")/.." || exit 1
PESC=$(realpath "${1:-build/pesc}")
G=$PWD/tests/golden/train
D=$(mktemp -d)
trap 'rm -rf "$D"' EXIT
export NCCL_SOCKET_IFNAME=lo CUDA_VISIBLE_DEVICES=0 MASTER_ADDR=127.0.0.1
port=29600 passed=0 failed=0

"$PESC" doctor | grep -E '^(ok|missing|note) +(cuda|nccl)'

# SIZE RUN METHOD OPTIONS...: all ranks of a run, on the same GPU
train() {
    local size=$1 run=$2 method=$3 r rc=0 pids=()
    shift 3
    port=$((port + 1))
    for ((r = 0; r < size; r++)); do
        RANK=$r WORLD_SIZE=$size LOCAL_RANK=$r MASTER_PORT=$port NCCL_HOSTID=h$r \
            "$PESC" train "$G/$method/model" --data "$G/$method/data.jsonl" -o "$run" --device cuda --steps 6 --batch 16 --lr 3e-3 \
            --seq-len 32 --lora-r 2 --micro-tokens 32 --log-every 1 -q "$@" > "$run.$r.out" 2> "$run.$r.err" &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || rc=$?; done
    [ $rc = 0 ] || cat "$run".*.err
    return $rc
}
numbers() { sed 's/"tok_s":[^,]*,//; s/"mem_bytes":[^,]*,//' "$1/metrics.jsonl"; }
equal() {
    local f
    diff <(numbers "$1") <(numbers "$2") || return 1
    for f in adapter_model trained optimizer; do
        [ ! -e "$1/latest/$f.safetensors" ] || cmp "$1/latest/$f.safetensors" "$2/latest/$f.safetensors" || return 1
    done
}
compare() { # NAME METHOD OPTIONS...
    local name=$1 n
    shift
    train 1 "$D/$name-1" "$@" || failed=$((failed + 1))
    for n in 2 4; do
        if train $n "$D/$name-$n" "$@" && equal "$D/$name-1" "$D/$name-$n"; then
            echo "ok $name: $n processes give the bits of one"
            passed=$((passed + 1))
        else
            echo "not ok $name: $n processes"
            failed=$((failed + 1))
        fi
    done
}
compare pesc pesc-a --method pesc --optimizer adamw8
compare bf16 pesc-a --method pesc --compute-dtype bf16 --base-dtype bf16
compare qlora pesc-a --method qlora --compute-dtype bf16
compare full full --method full
compare upcycle upcycle --method upcycle --optimizer adamw8
compare molora molora --method molora --experts 4
echo "$passed passed, $failed failed"
[ $failed = 0 ]
