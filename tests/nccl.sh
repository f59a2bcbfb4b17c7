#!/bin/bash
# The real NCCL path on one GPU: 2 and 4 processes must give the bits of one. NCCL refuses two ranks on one GPU unless
# each says that it is on a host of its own (NCCL_HOSTID); they then exchange through sockets, as between machines, so
# no time measured here says anything about scaling. Also: the same with the base kept by shards, the memory of the
# device with a whole and with a sharded base, and which part of the exchange of gradients backward hides when each
# bucket takes 10 ms more.
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
numbers() { sed 's/"tok_s":[^,]*,//; s/"mem_bytes":[^,]*,//; s/"comm_[a-z]*":[^,]*,//g' "$1/metrics.jsonl"; }
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

# The base by shards: the bits of a whole one, whose runs are there already.
shard() { # NAME METHOD OPTIONS...
    local name=$1 n
    shift
    for n in 2 4; do
        if train $n "$D/$name-shard-$n" "$@" --shard base && equal "$D/$name-1" "$D/$name-shard-$n"; then
            echo "ok $name: a base sharded over $n processes gives the bits of a whole one"
            passed=$((passed + 1))
        else
            echo "not ok $name: a base sharded over $n processes"
            failed=$((failed + 1))
        fi
    done
}
shard pesc pesc-a --method pesc --optimizer adamw8
shard bf16 pesc-a --method pesc --compute-dtype bf16 --base-dtype bf16
shard qlora pesc-a --method qlora --compute-dtype bf16
shard molora molora --method molora --experts 4

# A model that is large enough to measure: 24 layers with random weights, 0.6 GB in bf16, and records of 1024 tokens.
cat > "$D/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
 "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 512, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "max_position_embeddings": 2048, "hidden_act": "silu", "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}
JSON
"$PESC" new "$D/config.json" -o "$D/large" -q > /dev/null
awk 'BEGIN { srand(1); for (r = 0; r < 64; r++) { s = ""; for (i = 0; i < 1024; i++) s = s (i ? ", " : "") 3 + int(500 * rand());
    print "{\"input_ids\": [" s "], \"labels\": [" s "]}" } }' > "$D/large.jsonl"

# RUN OPTIONS...: 2 ranks; the most memory of the GPU that was in use, in MiB, is in $used
measure() {
    local run=$1 r rc=0 pids=() poll
    shift
    port=$((port + 1))
    nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits -lms 100 > "$run.used" &
    poll=$!
    for r in 0 1; do
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_PORT=$port NCCL_HOSTID=h$r \
            "$PESC" train "$D/large" --data "$D/large.jsonl" --method lora -o "$run" --device cuda --steps 4 --batch 64 --seq-len 1024 \
            --micro-tokens 16384 --lora-r 8 --log-every 1 "$@" > "$run.$r.out" 2> "$run.$r.err" &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || rc=$?; done
    kill $poll
    used=$(sort -n "$run.used" | tail -1)
    [ $rc = 0 ] || cat "$run".*.err
    return $rc
}
for base in bf16 nf4; do
    if measure "$D/whole-$base" --base-dtype $base --compute-dtype bf16 && whole=$used &&
        measure "$D/sharded-$base" --base-dtype $base --compute-dtype bf16 --shard base && equal "$D/whole-$base" "$D/sharded-$base"; then
        echo "ok large: a base in $base sharded over 2 processes gives the bits of a whole one"
        echo "   $(grep -h '^sharded base' "$D/sharded-$base.0.err")"
        echo "   $(grep -h '^memory' "$D/whole-$base.0.err") (whole)"
        echo "   $(grep -h '^memory' "$D/sharded-$base.0.err") (sharded)"
        echo "   both processes together used at most $whole MiB of the GPU with a whole base, $used MiB with a sharded one"
        passed=$((passed + 1))
    else
        echo "not ok large: a base in $base sharded over 2 processes"
        failed=$((failed + 1))
    fi
done
for delay in 0 10; do
    if PESC_BUCKET_DELAY=$delay measure "$D/delay-$delay" --base-dtype f32 --compute-dtype f32; then
        echo "ok large: buckets with a delay of $delay ms"
        echo "   $(grep -h '^exchange of gradients' "$D/delay-$delay.0.err") (rank 0, 4 steps)"
        echo "   $(grep -o '"comm_s.*comm_hidden":[^,]*' "$D/delay-$delay/metrics.jsonl" | tr '\n' ' ')"
        passed=$((passed + 1))
    else
        echo "not ok large: buckets with a delay of $delay ms"
        failed=$((failed + 1))
    fi
done
equal "$D/delay-0" "$D/delay-10" && echo "ok large: the delay changes no bit" || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ $failed = 0 ]
