load helper
setup_file() { make_model; }

craft() { pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/out" --experts 4 --adapter-dim 8 "$@"; }

@test "craft: prints the new model and that its logits are unchanged" {
    craft
    [ "$status" = 0 ]
    [ "${output##*$'\n'}" = "identity: 0 of 17024 logits differ" ]
    has ": camelidae, 4 experts, top 2, adapters of 8, scale 1, .* parameters \(.* activated\), "
    [ -z "$stderr" ]
    cmp "$D/model/tokenizer.json" "$BATS_TEST_TMPDIR/out/tokenizer.json"
    pesc info "$BATS_TEST_TMPDIR/out" --json
    has '"experts":4,"top_k":2,"adapter_dim":8'
}

@test "craft: JSON" {
    craft --json --top-k 3
    has '"family":"camelidae","experts":4,"top_k":3,"params":[0-9]+,"activated":[0-9]+,"bytes":[0-9]+,'
    has '"identity":\{"logits":17024,"differ":0,"max_diff":0,"relative":0,"kl":0,"positions":64,"greedy_same":64,"beyond_rounding":0\}\}$'
}

@test "craft: the result generates what the dense model generates" {
    craft
    for m in "$D/model" "$BATS_TEST_TMPDIR/out"; do
        "$PESC" generate "$m" --prompt 'hello world' --max-tokens 12 --json -q |
            grep -o '"ids":\[[^]]*\]' > "$BATS_TEST_TMPDIR/$(basename "$m").ids"
    done
    cmp "$BATS_TEST_TMPDIR/model.ids" "$BATS_TEST_TMPDIR/out.ids"
}

@test "craft: the result has every file of the chat template" {
    local m=$BATS_TEST_TMPDIR/m out=$BATS_TEST_TMPDIR/out
    cp -r "$D/model" "$m"
    echo '{"bos_token": "<s>", "eos_token": "<|im_end|>"}' > "$m/tokenizer_config.json"
    printf '{"chat_template": "{%% for m in messages %%}[{{ m.role }}] {{ m.content }}<|im_end|>{%% endfor %%}"}' > "$m/chat_template.json"
    pesc craft "$m" -o "$out" --experts 4 --adapter-dim 8 -q
    cmp "$m/chat_template.json" "$out/chat_template.json"
    pesc info "$out"
    has '^chat +own$'
    mv "$m/chat_template.json" "$m/chat_template.jinja"
    mkdir "$m/additional_chat_templates"
    echo tools > "$m/additional_chat_templates/tool_use.jinja"
    echo rag > "$m/additional_chat_templates/rag.jinja"
    pesc craft "$m" -o "$out" --experts 4 --adapter-dim 8 -q --overwrite
    [ "$status" = 0 ]
    diff -r "$m/additional_chat_templates" "$out/additional_chat_templates"
    [ ! -e "$out/chat_template.json" ]
    pesc craft "$D/model" -o "$out" --experts 4 --adapter-dim 8 -q --overwrite
    [ "$status" = 0 ]
    [ ! -e "$out/additional_chat_templates" ]
}

@test "craft: adapters beside the experts of a mixture: trained, resumed, merged, shown and counted" {
    local g=$BATS_TEST_DIRNAME/../golden t=$BATS_TEST_TMPDIR
    local train=(--data "$g/train/pesc-a/data.jsonl" --steps 4 --batch 2 --seq-len 32 --lora-r 2 --lr 1e-2 --device cpu --threads 1 -q)
    pesc craft "$g/qwen2_moe" -o "$t/m" --experts 4 --adapter-dim 6
    [ "$status" = 0 ]
    has ": qwen2_moe, 4 experts, top 2, adapters of 6, scale 1, beside 6 experts, top 3, in 2 of 3 layers, "
    [ "${output##*$'\n'}" = "identity: 0 of 4288 logits differ" ]
    pesc info "$t/m"
    has '^experts +4, top 2, adapters of 6 with gelu, scaled by 1, beside 6 experts, top 3, feed-forward of 20'
    "$PESC" train "$t/m" "${train[@]}" -o "$t/run" --save-every 2 > "$t/out" 2>&1 || { cat "$t/out"; return 1; }
    cp -r "$t/run" "$t/again"
    rm -rf "$t/again/checkpoint-4"
    "$PESC" train -o "$t/again" --resume -q > "$t/out" 2>&1 || { cat "$t/out"; return 1; }
    local f
    for f in adapter_model trained optimizer; do cmp "$t/run/latest/$f.safetensors" "$t/again/latest/$f.safetensors"; done
    pesc routes "$t/run" --data "$g/train/pesc-a/data.jsonl" --json
    [ "$status" = 0 ]
    pesc merge "$t/run" -o "$t/merged"
    [ "$status" = 0 ]
    pesc info "$t/merged" --json
    has '"experts":4,"top_k":2,"adapter_dim":6.*"ffn_experts":6,"ffn_top_k":3'
    pesc plan "$t/m" --json
    [ "$status" = 0 ]
    pesc cost "$t/m" --json
    has '"kind":"pesc"'
    pesc export "$t/m" --to gguf -o "$t/x.gguf"
    fails 3 "$t/m: a GGUF file has no place for its adapters beside the experts of a mixture"
    pesc export "$t/m" --to hf -o "$t/hf"
    fails 3 "$t/m: has adapters on a qwen2_moe model, which transformers cannot open; pesc runs it as it is"
    pesc train "$t/m" "${train[@]}" -o "$t/x" --method upcycle
    fails 2 "method upcycle trains full experts, but the model has adapters beside them: train the mixture before \`pesc craft\` puts adapters there, or give --method full"
}

@test "craft: upcycling reports the largest difference of the logits" {
    craft --kind upcycle
    [ "$status" = 0 ]
    has ': mixtral, 4 experts, top 2, '
    has '^identity: max \|diff\| [0-9.e-]+ over 17024 logits, [0-9.e-]+ of the largest; KL [0-9.e-]+, greedy 64 of 64 \(rounding\)$'
}

@test "craft: upcycling Granite, OLMo 2 and HunYuan" {
    local family mixture
    for family in granite:granitemoe olmo2:flex_olmo hunyuan_v1_dense:hunyuan_v1_moe; do
        mixture=${family#*:}
        pesc craft "$BATS_TEST_DIRNAME/../golden/${family%:*}" -o "$BATS_TEST_TMPDIR/$mixture" --kind upcycle --experts 4
        [ "$status" = 0 ]
        has ": $mixture, 4 experts, top 2, "
        has '^identity: max \|diff\| [0-9.e-]+ over 4288 logits, .* greedy 64 of 64 \(rounding\)$'
    done
    pesc craft "$BATS_TEST_DIRNAME/../golden/phi3" -o "$BATS_TEST_TMPDIR/phi3" --kind upcycle
    fails 3 "$BATS_TEST_DIRNAME/../golden/phi3: a phi3 model cannot be upcycled; llama, mistral, qwen2, qwen3, granite, olmo2 and hunyuan_v1_dense can"
}

@test "craft: --check false prints no comparison" {
    craft --check false
    [ "$status" = 0 ]
    refute has identity
}

@test "craft: options from a file" {
    printf 'experts: 5\ntop_k: 1\nadapter_dim: 3\nadapter_scale: 0.25\n' > "$BATS_TEST_TMPDIR/c.yaml"
    pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/out" -c "$BATS_TEST_TMPDIR/c.yaml"
    has ': camelidae, 5 experts, top 1, adapters of 3, scale 0.25, '
}

@test "craft: existing files are kept, unless --overwrite" {
    local out=$BATS_TEST_TMPDIR/out
    cp -r "$D/model" "$out"
    touch "$out/mine"
    craft
    fails 2 "$out: is not empty; give another -o, or --overwrite"
    cmp "$D/model/model.safetensors" "$out/model.safetensors"
    craft --overwrite
    [ "$status" = 0 ]
    [ -f "$out/mine" ]
    grep -q camelidae "$out/config.json"
    [ "$(ls "$BATS_TEST_TMPDIR" | grep -c '^out')" = 1 ]
    mkdir "$out/adapter_model"
    craft --overwrite
    fails 2 "$out: holds adapter_model, which pesc did not write and which would be taken for a part of the new model; remove it, or give another -o"
}

@test "craft: --overwrite touches nothing that pesc did not write" {
    local out=$BATS_TEST_TMPDIR/out
    mkdir -p "$out/notes"
    touch "$out/mine.safetensors" "$out/notes/a"
    craft --overwrite
    fails 2 "$out: is not empty and was not written by pesc (it has no .pesc-files.json); --overwrite replaces what pesc wrote only, so give another -o"
    [ -e "$out/mine.safetensors" ]
    rm "$out/mine.safetensors"
    rm -r "$out"
    craft
    mkdir "$out/notes"
    touch "$out/notes/a" "$out/mine.txt"
    chmod 750 "$out"
    craft --overwrite --experts 3
    [ "$status" = 0 ]
    [ -e "$out/notes/a" ]
    [ -e "$out/mine.txt" ]
    [ "$(stat -c %a "$out")" = 750 ]
    [ "$(ls -A "$BATS_TEST_TMPDIR" | grep -c '^out')" = 1 ]
}

@test "craft: what an interrupted process left is no obstacle, and a living one is" {
    local out=$BATS_TEST_TMPDIR/out make=(craft "$D/model" --experts 2 --adapter-dim 2 --check false -q)
    mkdir -p "$out" "$out.tmp.pesc-1" # of a process 1, which lives here too, but holds no lock on it
    touch "$out.tmp.pesc-1/model.safetensors" "$out.tmp.pesc-mine"
    exec 9< "$out.tmp.pesc-1"
    flock 9
    pesc "${make[@]}" -o "$out"
    fails 2 "$out: process 1 is writing a model into it"
    [ -e "$out.tmp.pesc-1/model.safetensors" ]
    exec 9<&-
    pesc "${make[@]}" -o "$out"
    [ "$status" = 0 ]
    [ ! -e "$out.tmp.pesc-1" ]
    [ -e "$out.tmp.pesc-mine" ] # a file is no draft
    [ -e "$out/model.safetensors" ]
}

@test "craft: a directory that cannot be replaced is filled from inside" {
    local out=$BATS_TEST_TMPDIR/closed/out
    [ "$(id -u)" != 0 ] || unshare -m true 2> /dev/null || skip "needs a mount, or a user who may not write"
    mkdir -p "$out"
    if [ "$(id -u)" = 0 ]; then
        unshare -m sh -c 'mount --bind "$0" "$0" && "$@" -o "$0"' "$out" "$PESC" craft "$D/model" --experts 2 --adapter-dim 2 --check false -q
    else
        chmod 555 "$BATS_TEST_TMPDIR/closed"
        "$PESC" craft "$D/model" --experts 2 --adapter-dim 2 --check false -q -o "$out"
        chmod 755 "$BATS_TEST_TMPDIR/closed"
    fi
    [ -e "$out/config.json" ]
    [ -e "$out/.pesc-files.json" ]
    [ -z "$(ls -A "$out" | grep '^.tmp')" ]
    "$PESC" info "$out" > /dev/null
}

@test "craft: the input model and a run are not overwritten" {
    local m=$BATS_TEST_TMPDIR/m
    cp -r "$D/model" "$m"
    ln -s m "$m.link"
    pesc craft "$m" -o "$m.link" --overwrite
    fails 2 "$m.link: is read as $m; give another -o"
    cmp "$D/model/model.safetensors" "$m/model.safetensors"
    mkdir "$m.run"
    touch "$m.run/run.yaml" "$m.run/run.json"
    pesc craft "$m" -o "$m.run" --overwrite
    fails 2 "$m.run: is the directory of a run; give another -o"
    pesc craft "$m" -o ""
    fails 2 "craft: --output: found nothing, expected DIR"
}

@test "craft: a sparse parent is refused" {
    craft
    pesc craft "$BATS_TEST_TMPDIR/out" -o "$BATS_TEST_TMPDIR/more"
    fails 2 "$BATS_TEST_TMPDIR/out: is sparse already (camelidae, 4 experts); a sparse model is crafted from a dense one"
    [ ! -e "$BATS_TEST_TMPDIR/more" ]
}

@test "craft: usage errors" {
    pesc craft "$D/model"
    fails 2 "craft: -o DIR is missing; usage: pesc craft DENSE -o DIR"
    pesc craft -o "$BATS_TEST_TMPDIR/out"
    fails 2 "craft: DENSE is missing; usage: pesc craft DENSE -o DIR"
    craft --top-k 5
    fails 2 "top_k: found 5, expected 1 to 4, the number of experts"
    craft --adapter-dim 0
    fails 2 "adapter_dim: found 0, expected at least 1"
    craft --experts 0
    fails 2 "experts: found 0, expected at least 1"
    craft --kind sparse
    fails 2 'craft: --kind: found "sparse", expected pesc, upcycle or molora'
    pesc craft "$D/none" -o "$BATS_TEST_TMPDIR/out"
    fails 3 "$D/none: there is no such file or directory"
    pesc craft "$D/tok" -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 3 ]
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "craft: too little disk space is reported before anything is written" {
    craft --experts 4096 --adapter-dim 4194304
    [ "$status" = 4 ]
    [[ $stderr == "pesc: $BATS_TEST_TMPDIR/out: needs "*" GB of disk, and "*" GB are free there; "* ]]
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "craft: a disk that fills up leaves nothing that opens as a model" {
    PESC_FAULT=write:5:ENOSPC craft
    [ "$status" = 4 ]
    [[ $stderr == *"No space left on device"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/out/config.json" ]
    pesc info "$BATS_TEST_TMPDIR/out"
    [ "$status" = 3 ]
}

@test "craft: another activation, router, and sparsity in some layers" {
    local out=$BATS_TEST_TMPDIR/out
    craft --activation silu --router softmax-before --layers 1
    [ "$status" = 0 ]
    has ': camelidae, 4 experts, top 2, adapters of 8, scale 1, in 1 of 2 layers, '
    [ "${output##*$'\n'}" = "identity: 0 of 17024 logits differ" ]
    [[ $stderr == *"no published layout of models with adapters has a place for its adapter_act (a llama model): only pesc opens the result with its adapters, and transformers after pesc export --to hf" ]]
    python3 - "$out" <<'PY'
import json, struct, sys
c = json.load(open(sys.argv[1] + "/config.json"))
assert (c["adapter_act"], c["adapter_router"], c["mlp_only_layers"]) == ("silu", "softmax-before", [0]), c
with open(sys.argv[1] + "/model.safetensors", "rb") as f:
    names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
assert any("layers.1.mlp.moe_adapter" in n for n in names) and not any("layers.0.mlp.moe_adapter" in n for n in names)
PY
    pesc info "$out" --json
    has '"sparse_layers":1,"adapter_act":"silu","router":"softmax-before",'
    pesc info "$out"
    has '^experts      4, top 2, adapters of 8 with silu, scaled by 1, router softmax-before, in 1 of 2 layers$'
    pesc export "$out" --to camelidae -o "$out.2"
    fails 3 "$out: no published layout of models with adapters has a place for its adapter_act (a llama model); --to hf writes it for transformers"
    pesc craft "$BATS_TEST_DIRNAME/../golden/lfm2" -o "$BATS_TEST_TMPDIR/lfm2" --experts 2 --adapter-dim 4
    [[ $stderr == *"(a lfm2 model): only pesc opens the result with its adapters" ]]
    pesc export "$BATS_TEST_TMPDIR/lfm2" --to camelidae -o "$BATS_TEST_TMPDIR/cam"
    [[ $stderr == *"(a lfm2 model); pesc runs it as it is" ]]
    pesc export "$out" --to hf -o "$out.3"
    [ "$status" = 0 ]
    pesc info "$out.3" --json
    has '"sparse_layers":1,"adapter_act":"silu","router":"softmax-before",'
    pesc cost "$out" -o "$BATS_TEST_TMPDIR" --json
    [ "$status" = 0 ]
    pesc plan "$out" --json
    [ "$status" = 0 ]
}

@test "craft: the paper's choices, given as options, change nothing" {
    craft
    pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/b" --experts 4 --adapter-dim 8 --activation gelu --router softmax-after --layers 0-1
    [ -z "$stderr" ]
    diff -r "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/b"
}

@test "craft: a model with other choices trains, is merged and stays what it is" {
    local out=$BATS_TEST_TMPDIR/out run=$BATS_TEST_TMPDIR/run
    craft --activation relu --layers 1 --router softmax-before
    for i in 1 2 3 4 5 6; do
        printf '{"prompt": "hello %d", "completion": " world %d"}\n' $i $i
    done > "$BATS_TEST_TMPDIR/t.jsonl"
    pesc train "$out" --data "$BATS_TEST_TMPDIR/t.jsonl" -o "$run" --steps 20 --batch 3 --seq-len 64 --lora-r 2 --lr 1e-2 -q
    [ "$status" = 0 ]
    python3 -c 'import json, sys
loss = [json.loads(line)["ce"] for line in open(sys.argv[1])]
assert loss[-1] < 0.95 * loss[0], loss' "$run/metrics.jsonl"
    pesc merge "$run" -o "$BATS_TEST_TMPDIR/merged"
    [ "$status" = 0 ]
    pesc info "$BATS_TEST_TMPDIR/merged" --json
    has '"sparse_layers":1,"adapter_act":"relu","router":"softmax-before",'
    pesc compare "$run" "$out" --data "$BATS_TEST_TMPDIR/t.jsonl" -o "$BATS_TEST_TMPDIR" --json
    [ "$status" = 0 ]
    pesc routes "$run" --data "$BATS_TEST_TMPDIR/t.jsonl" -o "$BATS_TEST_TMPDIR" --json
    [ "$status" = 0 ]
}

@test "craft: upcycling some layers" {
    local out=$BATS_TEST_TMPDIR/out
    craft --kind upcycle --layers 0
    [ "$status" = 0 ]
    has ': mixtral, 4 experts, top 2, in 1 of 2 layers, '
    has '^identity: max \|diff\| [0-9.e-]+ over 17024 logits, .* greedy 64 of 64 \(rounding\)$'
    [[ $stderr == *"mixtral has experts in every layer in other programs: only pesc opens the result, by its mlp_only_layers" ]]
    pesc export "$out" --to hf -o "$out.2"
    fails 2 "$out: has layers without experts, and a mixtral model of Hugging Face has experts in every layer; pesc runs it as it is"
    pesc craft "$BATS_TEST_DIRNAME/../golden/qwen2" -o "$out.3" --kind upcycle --experts 3 --layers 1
    [ "$status" = 0 ]
    [ -z "$stderr" ]
    grep -q '"mlp_only_layers"' "$out.3/config.json"
    pesc export "$out.3" --to hf -o "$out.4"
    [ "$status" = 0 ]
}

@test "craft: choices that cannot be" {
    craft --layers 0,2
    fails 2 'layers: found "2", expected all, or at most 16 numbers and ranges from 0 to 1, such as 0,10-20'
    craft --activation tanh
    fails 2 'craft: --activation: found "tanh", expected gelu, silu or relu'
    craft --kind upcycle --activation silu
    fails 2 "activation: found silu, but with kind upcycle there are no adapters: experts are copies of the FFN, with its activation"
    craft --kind upcycle --router softmax-before
    fails 2 "router: found softmax-before, but with kind upcycle the gates must sum to 1: the output of equal experts would else be smaller than that of the FFN they copy"
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
}

@test "craft: experts from tuned models, with full weights, LoRA and adapters" {
    local t=$BATS_TEST_TMPDIR g=$BATS_TEST_DIRNAME/../golden/train/full
    local how=(--data "$g/data.jsonl" --steps 2 --batch 4 --seq-len 32 --lr 1e-2 --threads 1 -q)
    "$PESC" train "$g/model" -o "$t/full" --method full "${how[@]}" > /dev/null
    "$PESC" train "$g/model" -o "$t/lora" --method lora --lora-r 2 "${how[@]}" > /dev/null
    "$PESC" craft "$g/model" -o "$t/sparse" --experts 2 --adapter-dim 4 -q > /dev/null
    "$PESC" train "$t/sparse" -o "$t/pesc" --lora-r 2 "${how[@]}" > /dev/null
    "$PESC" merge "$t/lora" -o "$t/merged" -q > /dev/null
    pesc craft "$g/model" -o "$t/out" --kind upcycle --experts-from "$t/full,$t/lora,$t/pesc"
    [ "$status" = 0 ]
    has ': mixtral, 3 experts, top 2, '
    [[ $stderr == *"$t/pesc: its adapters (PESC) are left out"* ]]
    [[ $stderr == *"its experts are the FFNs of 3 models"* ]]
    pesc craft "$g/model" -o "$t/first" --kind upcycle --experts-from "$t/full,$t/lora" --others first
    [ "$status" = 0 ]
    pesc craft "$g/model" -o "$t/base" --kind upcycle --experts-from "$t/full,$t/lora" --others base --granularity 2
    [ "$status" = 0 ]
    python3 - "$g/model" "$t/full/latest" "$t/merged" "$t" <<'PY'
import glob, json, struct, sys
def read(path):
    out = {}
    for f in glob.glob(path + "/*.safetensors"):
        if "optimizer" in f:
            continue
        data = open(f, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for k, v in json.loads(data[8:8 + n]).items():
            if k == "__metadata__":
                continue
            b = data[8 + n:][slice(*v["data_offsets"])]
            if v["dtype"] == "F32":
                out[k] = (v["shape"], struct.unpack(f"<{len(b) // 4}f", b))
            else:
                out[k] = (v["shape"], [struct.unpack("<f", b"\0\0" + b[i:i + 2])[0] for i in range(0, len(b), 2)])
    return out
base, full, lora = read(sys.argv[1]), read(sys.argv[2]), read(sys.argv[3])
base = {**base}
full = {**base, **full}
def near(a, b, what):
    assert len(a) == len(b) and all(abs(x - y) <= 1e-2 * abs(y) + 1e-6 for x, y in zip(a, b)), what
first, out, cut = read(sys.argv[4] + "/first"), read(sys.argv[4] + "/out"), read(sys.argv[4] + "/base")
names = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
for short, long in names.items():
    for e, donor in enumerate((full, lora)):
        at = f"model.layers.1.block_sparse_moe.experts.{e}.{short}.weight"
        near(first[at][1], donor[f"model.layers.1.mlp.{long}.weight"][1], at)
        near(out[at][1], donor[f"model.layers.1.mlp.{long}.weight"][1], at)
    half = len(lora[f"model.layers.1.mlp.gate_proj.weight"][1]) // 2
near(cut["model.layers.0.block_sparse_moe.experts.3.w1.weight"][1], lora["model.layers.0.mlp.gate_proj.weight"][1][half:], "shard")
q = "model.layers.0.self_attn.q_proj.weight"
near(first[q][1], full[q][1], q)
near(cut[q][1], base[q][1], q)
assert any(abs(x - y) > 1e-5 for x, y in zip(out[q][1], full[q][1]))
PY
    pesc train "$t/out" -o "$t/router" --method router "${how[@]}"
    [ "$status" = 0 ]
    pesc craft "$g/model" -o "$t/x" --kind upcycle --experts-from "$t/full"
    fails 2 "top_k: found 2, expected 1 to 1, the models of experts_from"
    pesc craft "$g/model" -o "$t/x" --kind upcycle --experts-from "$t/full,$t/lora" --experts 3
    fails 2 "experts: found 3, but experts_from names 2 models, each of which gives one; leave it out"
    pesc craft "$g/model" -o "$t/x" --experts-from "$t/full,$t/lora"
    fails 2 "experts_from: is given with kind pesc, whose experts are no copies of the FFN; leave it out, or give --kind upcycle"
    pesc craft "$g/model" -o "$t/x" --kind upcycle --experts-from "$t/full,$BATS_TEST_DIRNAME/../golden/qwen3"
    [ "$status" = 2 ]
    [[ $stderr == *"it was not tuned from that model" ]]
    pesc craft "$g/model" -o "$t/x" --kind upcycle --experts-from "$t/full,,$t/lora"
    [ "$status" = 2 ]
    [ ! -e "$t/x/config.json" ]
}

# The largest difference of two .npy files of f32, relative to the largest number.
apart() {
    python3 - "$1" "$2" <<'PY'
import array, sys
def read(path):
    raw = open(path, "rb").read()
    return array.array("f", raw[10 + int.from_bytes(raw[8:10], "little"):])
a, b = map(read, sys.argv[1:])
print(len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a)) < 1e-4)
PY
}

@test "craft: a mixture of LoRAs that were trained one by one" {
    local t=$BATS_TEST_TMPDIR g=$BATS_TEST_DIRNAME/../golden/train/full i
    local how=(--data "$g/data.jsonl" --steps 2 --batch 4 --seq-len 32 --lr 1e-1 --threads 1 -q)
    for i in 1 2; do
        "$PESC" train "$g/model" -o "$t/$i" --method lora --lora-r 2 --lora-dropout 0 --seed "$i" "${how[@]}" > /dev/null
    done
    "$PESC" train "$g/model" -o "$t/ffn" --method lora --lora-r 2 --lora-alpha 4 --lora-targets up_proj "${how[@]}" > /dev/null
    "$PESC" train "$g/model" -o "$t/wide" --method lora --lora-r 4 "${how[@]}" > /dev/null
    "$PESC" train "$g/model" -o "$t/att" --method lora --lora-r 2 --lora-targets q_proj "${how[@]}" > /dev/null
    "$PESC" train "$g/model" -o "$t/full" --method full "${how[@]}" > /dev/null
    "$PESC" export "$t/2" --to peft -o "$t/peft" -q > /dev/null
    echo '[1,5,9,2,17,30]' > "$t/ids"
    # the same LoRA as every expert is that LoRA, since the gates sum to 1
    pesc craft "$g/model" -o "$t/same" --kind molora --experts-from "$t/2,$t/peft,$t/2" --dtype f32
    [ "$status" = 0 ]
    [[ $stderr == *"only pesc opens it with its experts"* ]]
    [[ $stderr == *"its experts are the LoRAs of 3 models"* ]]
    pesc logits "$t/same" --ids "$t/ids" -o "$t/same.npy"
    pesc logits "$t/2" --ids "$t/ids" -o "$t/2.npy"
    pesc logits "$g/model" --ids "$t/ids" -o "$t/dense.npy"
    [ "$(apart "$t/same.npy" "$t/2.npy")" = True ]
    [ "$(apart "$t/same.npy" "$t/dense.npy")" = False ]
    # different ones, one of them on one linear alone and of another scale
    pesc craft "$g/model" -o "$t/out" --kind molora --experts-from "$t/1,$t/ffn" --others base
    [ "$status" = 0 ]
    has '2 experts, top 2'
    python3 - "$t/ffn/latest/adapter_model.safetensors" "$t/out" <<'PY'
import array, glob, json, sys
def read(path):
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    return {k: array.array("f", raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__" and v["dtype"] == "F32"}
lora, out = read(sys.argv[1]), read(glob.glob(sys.argv[2] + "/*.safetensors")[0])
assert json.load(open(sys.argv[2] + "/config.json"))["molora_scale"] == 1
b = next(v for k, v in lora.items() if "layers.1." in k and "up_proj" in k and "lora_B" in k)
got = out["model.layers.1.mlp.up_proj.experts.1.lora_B.weight"]
assert len(b) == len(got) and any(b) and all(abs(2 * x - y) <= 1e-6 * abs(y) for x, y in zip(b, got)) # alpha 4 of rank 2
assert not any(out["model.layers.1.mlp.gate_proj.experts.1.lora_A.weight"])
PY
    pesc train "$t/out" -o "$t/router" --method router "${how[@]}"
    [ "$status" = 0 ]
    # a LoRA on gate and up in one, as PEFT has it on phi3
    local phi=$BATS_TEST_DIRNAME/../golden/phi3
    "$PESC" train "$phi" -o "$t/phi" --method lora --lora-r 2 --lora-targets gate_proj,up_proj --data "$g/data.jsonl" --steps 2 --batch 4 --lr 1e-1 -q > /dev/null
    "$PESC" export "$t/phi" --to peft -o "$t/phi-peft" -q > /dev/null
    grep -q gate_up_proj "$t/phi-peft/adapter_config.json"
    pesc craft "$phi" -o "$t/phi-moe" --kind molora --experts-from "$t/phi-peft,$t/phi-peft" --dtype f32
    [ "$status" = 0 ]
    pesc logits "$t/phi-moe" --ids "$t/ids" -o "$t/phi-moe.npy"
    pesc logits "$t/phi" --ids "$t/ids" -o "$t/phi.npy"
    [ "$(apart "$t/phi-moe.npy" "$t/phi.npy")" = True ]
    pesc craft "$g/model" -o "$t/one" --kind molora --experts-from "$t/ffn" --top-k 1 --others base --dtype f32
    pesc logits "$t/one" --ids "$t/ids" -o "$t/one.npy"
    pesc logits "$t/ffn" --ids "$t/ids" -o "$t/ffn.npy"
    [ "$(apart "$t/one.npy" "$t/ffn.npy")" = True ]
    [ "$(apart "$t/one.npy" "$t/dense.npy")" = False ]
    # what cannot be
    pesc craft "$g/model" -o "$t/x" --kind molora
    fails 2 "experts_from: is missing; kind molora makes experts of LoRAs that are there; a new mixture of LoRA is pesc train DENSE --method molora"
    pesc craft "$g/model" -o "$t/x" --kind molora --experts-from "$t/1,$t/2" --layers 0
    fails 2 "layers: found 0, but a mixture of LoRA has experts in all layers; leave it out"
    pesc craft "$g/model" -o "$t/x" --kind molora --experts-from "$t/1,$t/wide"
    [ "$status" = 2 ]
    [[ $stderr == *"experts_from: $t/wide has a LoRA of rank 4 on "*", but that on "*" before it has 2; the experts of a mixture of LoRA have one rank"* ]]
    pesc craft "$g/model" -o "$t/x" --kind molora --experts-from "$t/1,$t/att"
    [[ $stderr == *"experts_from: $t/att has no LoRA on gate, up or down of an FFN"* ]]
    pesc craft "$g/model" -o "$t/x" --kind molora --experts-from "$t/1,$t/full"
    [[ $stderr == *" of $t/full is not that of $g/model; with kind molora models differ in their LoRA alone"* ]]
    pesc craft "$g/model" -o "$t/x" --kind molora --experts-from "$t/1,$t/2" --granularity 2
    fails 2 "granularity: is given with kind molora, whose experts are no copies of the FFN; leave it out, or give --kind upcycle"
    [ ! -e "$t/x" ]
}

@test "craft: experts from the base itself are copies" {
    pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/a" --kind upcycle --experts 2
    pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/b" --kind upcycle --experts-from "$D/model,$D/model"
    [ "$status" = 0 ]
    cmp "$BATS_TEST_TMPDIR/a/model.safetensors" "$BATS_TEST_TMPDIR/b/model.safetensors"
}
