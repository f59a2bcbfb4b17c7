# How routers train: which do, from which experts, what balances them; bits of it under resume, threads and
# processes; a run with biases for choosing is the model it was in training.

bats_require_minimum_version 1.5.0
load helper
load run_helper

setup_file() {
    export D=$BATS_FILE_TMPDIR
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

setup() { T=$BATS_TEST_TMPDIR; }

# A short run; the model is that of the golden run of this name.
short() { # pesc-a|upcycle run options
    local m=$1 run=$2
    shift 2
    "$PESC" train "$G/$m/model" --data "$G/$m/data.jsonl" -o "$run" --steps 6 --batch 6 --lr 3e-3 --seq-len 32 --lora-r 2 \
        --micro-tokens 64 --log-every 1 --threads 1 --device cpu -q "$@" > "$run.out" 2> "$run.err" || {
        cat "$run.err"
        return 1
    }
}
# One value of the last step.
last() { # run key
    python3 -c 'import json, sys; print(json.loads(open(sys.argv[1] + "/metrics.jsonl").readlines()[-1])[sys.argv[2]])' "$1" "$2"
}
tensors() { # file: names
    python3 - "$1" <<'PY'
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    print("\n".join(sorted(n for n in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])) if n != "__metadata__")))
PY
}

@test "routers: bits of dense gradients, biases and z-loss under resume, threads and processes" {
    local m n options="--router-gradient dense --balance bias --router-z-coef 1e-3 --bias-rate 0.01 --aux-coef 0.5 --aux-over step"
    for m in pesc-a upcycle; do
        local how="--method ${m/pesc-a/pesc} $options --save-every 3"
        # shellcheck disable=SC2086
        short $m "$T/$m" $how
        # shellcheck disable=SC2086
        short $m "$T/$m-threads" $how --threads 3
        same_run "$T/$m" "$T/$m-threads"
        cp -r "$T/$m" "$T/$m-again"
        rm -rf "$T/$m-again/checkpoint-6"
        pesc train -o "$T/$m-again" --resume -q
        [ "$status" = 0 ]
        same_run "$T/$m" "$T/$m-again"
        # shellcheck disable=SC2086
        short $m "$T/$m-2" $how --gpus 2
        diff <(numbers "$T/$m" | sed 's/"mem_bytes":[^,]*,//; s/"comm_[a-z]*":[^,]*,//g') \
            <(numbers "$T/$m-2" | sed 's/"mem_bytes":[^,]*,//; s/"comm_[a-z]*":[^,]*,//g')
        cmp "$T/$m/latest/trained.safetensors" "$T/$m-2/latest/trained.safetensors"
    done
}

@test "routers: biases follow the loads, and the run is opened with them" {
    short pesc-a "$T/run" --balance bias --bias-rate 0.05 --eval-data "$G/pesc-a/data.jsonl"
    tensors "$T/run/latest/trained.safetensors" | grep -q '^model.layers.0.mlp.e_score_correction_bias$'
    python3 - "$T/run" <<'PY'
import json, struct, sys
run = sys.argv[1]
with open(run + "/latest/trained.safetensors", "rb") as f:
    head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    data = f.read()
def bias(layer):
    at = head[f"model.layers.{layer}.mlp.e_score_correction_bias"]
    a, b = at["data_offsets"]
    return struct.unpack(f"<{(b - a) // 4}f", data[a:b])
loads = [json.loads(line)["layers"] for line in open(run + "/routing.jsonl")]
for layer in range(len(loads[0])):
    want = [0.0] * len(loads[0][layer])
    for step in loads:
        mean = sum(step[layer]) / len(want)
        for e, share in enumerate(step[layer]):
            want[e] += 0.05 if share < mean - 1e-5 else -0.05 if share > mean + 1e-5 else 0
    for a, b in zip(bias(layer), want):
        assert abs(a - b) < 1e-5, (layer, bias(layer), want)
assert json.load(open(run + "/latest/config_keys.json")) == {"expert_choice_bias": True}
PY
    local trained; trained=$(python3 -c 'import json, sys; print("%.4f" % json.loads(open(sys.argv[1] + "/eval.jsonl").readlines()[-1])["eval_loss"])' "$T/run")
    pesc eval "$T/run" --tasks "$G/pesc-a/data.jsonl" --loss-only --json
    [ "$status" = 0 ]
    [ "$(python3 -c 'import json, sys; print("%.4f" % json.loads(sys.argv[1])["tasks"][0]["all"]["loss"])' "$output")" = "$trained" ]
    pesc export "$T/run" --to gguf -o "$T/x.gguf"
    [ "$status" != 0 ]
}

@test "routers: --balance bias evens loads out, --balance none leaves them" {
    short upcycle "$T/none" --method upcycle --balance none --steps 60 --lr 3e-2
    short upcycle "$T/bias" --method upcycle --balance bias --bias-rate 0.01 --steps 60 --lr 3e-2
    [ "$(last "$T/none" loss)" = "$(last "$T/none" ce)" ]
    python3 - "$T/none" "$T/bias" <<'PY'
import json, sys
def spread(run): # of the mean loads of all but the first steps, the largest of all layers
    steps = [json.loads(line)["layers"] for line in open(run + "/routing.jsonl")][20:]
    loads = [[sum(s[l][e] for s in steps) / len(steps) for e in range(len(steps[0][l]))] for l in range(len(steps[0]))]
    return max(max(x) - min(x) for x in loads)
assert spread(sys.argv[2]) < 0.5 * spread(sys.argv[1]), (spread(sys.argv[1]), spread(sys.argv[2]))
PY
}

@test "routers: with --aux-over step several micro-batches have the balance loss of the whole step" {
    local m
    for m in pesc-a upcycle; do
        local how="--method ${m/pesc-a/pesc} --aux-coef 2 --steps 2 --compute-dtype f32 --lora-dropout 0 --adapter-dropout 0"
        # shellcheck disable=SC2086
        short $m "$T/$m-one" $how --micro-tokens 4096
        # shellcheck disable=SC2086
        short $m "$T/$m-step" $how --aux-over step
        # shellcheck disable=SC2086
        short $m "$T/$m-micro" $how
        python3 - "$T/$m-one" "$T/$m-step" "$T/$m-micro" <<'PY'
import json, sys
one, step, micro = ([json.loads(line) for line in open(run + "/metrics.jsonl")] for run in sys.argv[1:])
for i in range(2):
    norms = [run[i]["grad_norm"] for run in (one, step, micro)]
    assert abs(norms[1] - norms[0]) < 1e-6 * norms[0], (i, norms)
    assert abs(norms[2] - norms[0]) > 1e-5 * norms[0], (i, norms)
PY
    done
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$T/x" --steps 1 --method lora --aux-over step
    fails 2 "aux_over: found step, but there is no balance loss; give --aux-coef, or leave it out"
    pesc train "$G/full/model" --data "$G/full/data.jsonl" -o "$T/x" --steps 1 --method full --aux-over step
    fails 2 "aux_over: is given, but the model has no routers; leave it out"
}

@test "routers: the z-loss makes logits smaller, and is part of the loss" {
    short upcycle "$T/z" --method upcycle --router-z-coef 0.1 --aux-coef 0
    python3 -c 'import sys; loss, ce = map(float, sys.argv[1:]); assert loss > ce, (loss, ce)' "$(last "$T/z" loss)" "$(last "$T/z" ce)"
    short upcycle "$T/no" --method upcycle --aux-coef 0
    [ "$(last "$T/no" loss)" = "$(last "$T/no" ce)" ]
}

@test "routers: which train is the method's, or --train-router's, and is told" {
    local name='^model.layers.0.mlp.moe_adapter.router.weight$'
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$T/lora" --method lora --steps 1 --batch 2 --seq-len 32 --lora-r 2 --train-router true
    [ "$status" = 0 ]
    [[ $stderr == *$'\nrouters: train\n'* ]]
    tensors "$T/lora/latest/trained.safetensors" | grep -q "$name"
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$T/pesc" --steps 1 --batch 2 --seq-len 32 --lora-r 2 --train-router false
    [[ $stderr == *$'\nrouters: frozen\n'* ]]
    refute grep -q "$name" <(tensors "$T/pesc/latest/trained.safetensors")
    short pesc-a "$T/router" --method router
    [ "$(tensors "$T/router/latest/trained.safetensors" | grep -vc "router.weight$")" = 0 ]
    pesc plan "$G/pesc-a/model" --method lora --json
    has '"routers":"frozen"'
    pesc plan "$G/pesc-a/model" --json
    has '"routers":"train"'
    pesc plan "$G/full/model" --method full --json
    [[ $output != *routers* ]]
}

@test "routers: method bias trains biases alone" {
    "$PESC" train "$BATS_TEST_DIRNAME/../golden/qwen2" --data "$BATS_TEST_DIRNAME/../golden/esft/olmoe/data.jsonl" -o "$T/bias" --method bias \
        --steps 2 --batch 2 --lr 1e-2 -q > "$T/out" 2>&1 || { cat "$T/out"; return 1; }
    [ "$(tensors "$T/bias/latest/trained.safetensors" | grep -vc "\.bias$")" = 0 ]
    pesc train "$G/full/model" --data "$G/full/data.jsonl" -o "$T/none" --method bias --steps 1
    fails 2 "method bias trains the biases of linears, but the model has none: its family is llama"
}

@test "routers: options that cannot be" {
    local at=(train "$G/full/model" --data "$G/full/data.jsonl" -o "$T/x" --method lora --steps 1)
    pesc "${at[@]}" --router-gradient dense
    fails 2 "router_gradient: is given, but the model has no routers; leave it out"
    pesc "${at[@]}" --balance bias
    fails 2 "balance: is given, but the model has no routers; leave it out"
    pesc "${at[@]}" --train-router true
    fails 2 "train_router: is given, but the model has no routers; leave it out"
    at=(train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" -o "$T/x" --steps 1)
    pesc "${at[@]}" --method lora --router-gradient dense
    fails 2 "router_gradient: found dense, but routers do not train with method lora; give --train-router true, or leave it out"
    pesc "${at[@]}" --balance none --aux-coef 0.01
    fails 2 "aux_coef: found 0.01 with balance none; leave one of them out"
    pesc "${at[@]}" --method router --train-router false
    fails 2 "train_router: found false with method router, which trains nothing else; leave it out"
    pesc "${at[@]}" --bias-rate 0.1
    fails 2 "bias_rate: found 0.1 with balance aux, which has no biases; give --balance bias, or leave it out"
    pesc train "$G/molora/model" --data "$G/molora/data.jsonl" -o "$T/x" --method molora --experts 4 --steps 1 --router-gradient dense
    fails 2 "router_gradient: found dense with a mixture of LoRA, whose experts are inside the FFN; expected chosen"
    [ ! -e "$T/x/run.json" ]
}

@test "routers: a family's own bias that is switched off leaves its place to the bias that balances" {
    local m="$BATS_TEST_TMPDIR/m" out="$BATS_TEST_TMPDIR/out" of
    sed 's/"use_expert_bias": true/"use_expert_bias": false/' "$BATS_TEST_DIRNAME/../golden/lfm2_moe/config.json" > "$BATS_TEST_TMPDIR/config.json"
    grep -q '"use_expert_bias": false' "$BATS_TEST_TMPDIR/config.json"
    "$PESC" new "$BATS_TEST_TMPDIR/config.json" -o "$m" --dtype f32 --seed 3 -q
    "$PESC" craft "$m" -o "$m-pesc" --kind pesc --experts 4 --adapter-dim 8 -q
    for of in router:"$m" pesc:"$m-pesc"; do
        "$PESC" train "${of#*:}" --data "$BATS_TEST_DIRNAME/../golden/train/full/data.jsonl" -o "$out-${of%%:*}" --method "${of%%:*}" \
            --balance bias --steps 2 --batch 4 --seq-len 32 --lora-r 2 --device cpu -q
        "$PESC" logits "$out-${of%%:*}" --ids "$BATS_TEST_DIRNAME/../golden/lfm2_moe/ids.json" -o "$out.npy" --device cpu
    done
}

@test "routers: --aux-coef without routers is told" {
    local told='pesc: note: aux_coef: the model has no routers, so it has no effect'
    "$PESC" train "$G/full/model" --data "$G/full/data.jsonl" -o "$T/run" --method lora --lora-r 2 --aux-coef 0.1 --steps 1 --batch 2 \
        --seq-len 32 --device cpu 2> "$T/err"
    grep -qx "$told" "$T/err"
    "$PESC" train "$G/full/model" --data "$G/full/data.jsonl" -o "$T/other" --method lora --lora-r 2 --steps 1 --batch 2 --seq-len 32 \
        --device cpu 2> "$T/err"
    refute grep -qx "$told" "$T/err"
}
