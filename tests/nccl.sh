#!/bin/bash
# The real NCCL path on one GPU: 2 and 4 processes must give the bits of one. NCCL refuses two ranks on one GPU unless
# each says that it is on a host of its own (NCCL_HOSTID); they then exchange through sockets, as between machines, so
# no time measured here says anything about scaling.
#   [PART="bits shard"] tests/nccl.sh [build/pesc]
# The parts, all of them where none is chosen:
#   bits     2 and 4 processes give the bits of one
#   shard    the same with the base kept by shards
#   memory   the memory of the device with a whole and with a sharded base of 0.6 GB
#   hidden   which part of the exchange of gradients backward hides when each bucket takes 10 ms more
#   7b       the memory of a process with a whole and with a sharded NF4 base of the shape of 7B
set -u
cd "$(dirname "$0")/.." || exit 1
PESC=$(realpath "${1:-build/pesc}")
G=$PWD/tests/golden/train
D=$(mktemp -d)
S=$D # where large models are
trap 'rm -rf "$D" "$S"' EXIT
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
# RC SENTENCE: one line of the result, and its place in the counts
report() {
    if [ "$1" = 0 ]; then
        echo "ok $2"
        passed=$((passed + 1))
    else
        echo "not ok $2"
        failed=$((failed + 1))
    fi
}
# NAME SHARD METHOD OPTIONS...: runs of 2 and 4 processes, with --shard SHARD unless it is empty, against one of one process
compare() {
    local name=$1 shard=$2 n run
    shift 2
    [ -e "$D/$name-1" ] || train 1 "$D/$name-1" "$@" || failed=$((failed + 1))
    for n in 2 4; do
        run=$D/$name${shard:+-$shard}-$n
        train $n "$run" "$@" ${shard:+--shard "$shard"} && equal "$D/$name-1" "$run"
        report $? "$name: $n processes${shard:+ with a sharded $shard} give the bits of one"
    done
}

part_bits() {
    compare pesc '' pesc-a --method pesc --optimizer adamw8
    compare bf16 '' pesc-a --method pesc --compute-dtype bf16 --base-dtype bf16
    compare qlora '' pesc-a --method qlora --compute-dtype bf16
    compare full '' full --method full
    compare upcycle '' upcycle --method upcycle --optimizer adamw8
    compare full-sharded '' full --method full --grad-groups 16 --packing false --batch 11
    compare upcycle-sharded '' upcycle --method upcycle --optimizer adamw8 --compute-dtype bf16 --batch 8
    compare molora '' molora --method molora --experts 4
}

part_shard() {
    compare pesc base pesc-a --method pesc --optimizer adamw8
    compare bf16 base pesc-a --method pesc --compute-dtype bf16 --base-dtype bf16
    compare qlora base pesc-a --method qlora --compute-dtype bf16
    compare molora base molora --method molora --experts 4
}

# The configuration of a model.
config() { # DIM FFN LAYERS HEADS VOCAB
    echo '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": '"$1"', "intermediate_size": '"$2"',
 "num_hidden_layers": '"$3"', "num_attention_heads": '"$4"', "num_key_value_heads": '"$4"', "vocab_size": '"$5"',
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048, "hidden_act": "silu",
 "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}'
}

# A model that is large enough to measure: 24 layers with random weights, 0.6 GB in bf16.
make_large() {
    [ ! -e "$D/large" ] || return 0
    config 1024 2816 24 16 512 > "$D/config.json"
    "$PESC" new "$D/config.json" -o "$D/large" -q > /dev/null
}

# Records of 1024 tokens.
make_records() {
    [ ! -e "$D/large.jsonl" ] || return 0
    awk 'BEGIN { srand(1); for (r = 0; r < 64; r++) { s = ""; for (i = 0; i < 1024; i++) s = s (i ? ", " : "") 3 + int(500 * rand());
        print "{\"input_ids\": [" s "], \"labels\": [" s "]}" } }' > "$D/large.jsonl"
}

# SIZE RUN MODEL OPTIONS...: all ranks; the most memory of the GPU that was in use, in MiB, is in $used
measure() {
    local size=$1 run=$2 model=$3 r rc=0 pids=() poll
    shift 3
    port=$((port + 1))
    nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits -lms 100 > "$run.used" &
    poll=$!
    for ((r = 0; r < size; r++)); do
        RANK=$r WORLD_SIZE=$size LOCAL_RANK=$r MASTER_PORT=$port NCCL_HOSTID=h$r \
            "$PESC" train "$model" --data "$D/large.jsonl" --method lora -o "$run" --device cuda --seq-len 1024 --lora-r 8 \
            --log-every 1 "$@" > "$run.$r.out" 2> "$run.$r.err" &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || rc=$?; done
    kill "$poll"
    used=$(sort -n "$run.used" | tail -1)
    [ $rc = 0 ] || cat "$run".*.err
    return $rc
}
LARGE=(--steps 4 --batch 64 --micro-tokens 16384)

part_memory() {
    local base whole
    make_large
    make_records
    for base in bf16 nf4; do
        measure 2 "$D/whole-$base" "$D/large" "${LARGE[@]}" --base-dtype $base --compute-dtype bf16 && whole=$used &&
            measure 2 "$D/sharded-$base" "$D/large" "${LARGE[@]}" --base-dtype $base --compute-dtype bf16 --shard base &&
            equal "$D/whole-$base" "$D/sharded-$base"
        report $? "large: a base in $base sharded over 2 processes gives the bits of a whole one"
        print_memory "$D/whole-$base" "$D/sharded-$base"
        echo "   both processes together used at most ${whole:-?} MiB of the GPU with a whole base, $used MiB with a sharded one"
    done
}
print_memory() { # WHOLE SHARDED: what rank 0 of each says at its start
    echo "   $(grep -h '^sharded base' "$2.0.err")"
    echo "   $(grep -h '^memory' "$1.0.err") (whole)"
    echo "   $(grep -h '^memory' "$2.0.err") (sharded)"
}

part_hidden() {
    local delay
    make_large
    make_records
    for delay in 0 10; do
        PESC_BUCKET_DELAY=$delay measure 2 "$D/delay-$delay" "$D/large" "${LARGE[@]}" --base-dtype bf16 --compute-dtype bf16
        report $? "large: buckets with a delay of $delay ms"
        echo "   $(grep -h '^exchange of gradients' "$D/delay-$delay.0.err") (rank 0, 4 steps)"
        echo "   $(grep -o '"comm_s.*comm_hidden":[^,]*' "$D/delay-$delay/metrics.jsonl" | tr '\n' ' ')"
    done
    equal "$D/delay-0" "$D/delay-10"
    report $? "large: the delay changes no bit"
}

# DIR: LAYERS layers (32) of the shape of Llama 7B in bf16. One layer is random, the others are copies of it, so that it
# takes seconds; 13.5 GB, in memory where /dev/shm has the room.
make_7b() {
    config 4096 11008 1 32 32000 > "$D/config.json"
    "$PESC" new "$D/config.json" -o "$1" -q > /dev/null && python3 - "$1" "${LAYERS:-32}" <<'PYTHON'
import json, os, struct, sys
path, layers = sys.argv[1] + "/model.safetensors", int(sys.argv[2])
file = open(path, "rb")
header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
start, where = file.tell(), {}
header.pop("__metadata__", None)
def write(name, tensors): # tensors: (name, its row of the header)
    rows, at = {}, 0
    for n, t in tensors:
        size = t["data_offsets"][1] - t["data_offsets"][0]
        rows[n] = dict(t, data_offsets=[at, at + size])
        at += size
        where[n] = name
    text = json.dumps(rows).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(sys.argv[1], name), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for n, t in tensors:
            file.seek(start + t["data_offsets"][0])
            out.write(file.read(t["data_offsets"][1] - t["data_offsets"][0]))
layer = [(n, t) for n, t in header.items() if ".layers.0." in n]
write("rest.safetensors", [(n, t) for n, t in header.items() if ".layers.0." not in n])
for i in range(layers):
    write(f"layer{i}.safetensors", [(n.replace(".layers.0.", f".layers.{i}."), t) for n, t in layer])
os.remove(path)
json.dump({"metadata": {}, "weight_map": where}, open(path + ".index.json", "w"))
config = json.load(open(sys.argv[1] + "/config.json"))
config["num_hidden_layers"] = layers
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
PYTHON
}

part_7b() {
    local room options=(--steps 2 --batch 4 --micro-tokens 1024 --base-dtype nf4 --compute-dtype bf16)
    room=$(df --output=avail -B1M /dev/shm 2> /dev/null | tail -1)
    S=$D
    [ "${room:-0}" -lt 20000 ] || S=$(mktemp -d -p /dev/shm)
    make_records
    echo "7b: made in $({ time -p make_7b "$S/7b"; } 2>&1 | awk '/^real/ { print $2 }') s"
    measure 1 "$D/7b-whole" "$S/7b" "${options[@]}" && measure 2 "$D/7b-sharded" "$S/7b" "${options[@]}" --shard base &&
        equal "$D/7b-whole" "$D/7b-sharded"
    report $? "7b: an NF4 base sharded over 2 processes gives the bits of a whole one in one process"
    print_memory "$D/7b-whole" "$D/7b-sharded"
}

for part in ${PART:-bits shard memory hidden 7b}; do
    SECONDS=0
    "part_$part"
    echo "$part: $SECONDS s"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
