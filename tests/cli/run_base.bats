# A run and its base: opened as it was trained, refused when the base has changed, found when it has
# moved, resumed elsewhere.
load helper

setup_file() {
    make_model
    python3 - "$D" <<'PY'
import json, random, sys
random.seed(1)
with open(sys.argv[1] + "/data.jsonl", "w") as f:
    for i in range(16):
        ids = [random.randrange(256) for _ in range(12)]
        f.write(json.dumps(dict(input_ids=ids, labels=ids)) + "\n")
json.dump([[1, 2, 3, 4, 5, 6]], open(sys.argv[1] + "/ids.json", "w"))
PY
    mkdir "$D/work"
    cp -r "$D/model" "$D/work/base"
    tune "$D/work/base" -o "$D/work/run" --method lora > /dev/null
    tune "$D/work/base" -o "$D/work/qrun" --method qlora --compute-dtype bf16 > /dev/null
}

tune() { # model options
    "$PESC" train "$1" --data "$D/data.jsonl" --steps 4 --batch 4 --lr 3e-2 --seq-len 16 --lora-r 4 \
        --warmup-ratio 0 --threads 1 -q "${@:2}"
}

logits() { # model out options
    pesc logits "$1" --ids "$D/ids.json" -o "$BATS_TEST_TMPDIR/$2.npy" "${@:3}"
}

same_logits() { cmp -s "$BATS_TEST_TMPDIR/$1.npy" "$BATS_TEST_TMPDIR/$2.npy"; }

# A copy of work/ that a test may change.
copy_work() {
    W=$BATS_TEST_TMPDIR/work
    cp -r "$D/work" "$W"
    # the base of the copies is the copy
    local run
    for run in run qrun; do
        rm -rf "$W/$run"
        tune "$W/base" -o "$W/$run" --method "$([ $run = run ] && echo lora || echo qlora)" > /dev/null
    done
}

# Some writers store the head of a tied model, too. Training moves the embedding and with it the head, so the stored one is stale.
@test "run: a trained embedding that is tied drops the head that its base stores" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/plain"
    sed -i 's/"tie_word_embeddings": *false/"tie_word_embeddings": true/' "$BATS_TEST_TMPDIR/plain/config.json"
    cp -r "$BATS_TEST_TMPDIR/plain" "$BATS_TEST_TMPDIR/stored"
    python3 - "$BATS_TEST_TMPDIR" <<'PY'
import json, struct, sys
def write(folder, keep):
    path = f"{sys.argv[1]}/{folder}/model.safetensors"
    raw = open(path, "rb").read()
    n = 8 + struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:n]), raw[n:]
    embed = header["model.embed_tokens.weight"]
    begin, end = embed["data_offsets"]
    if keep:
        at = header["lm_head.weight"]["data_offsets"]
        assert at[1] - at[0] == end - begin
        data = data[:at[0]] + data[begin:end] + data[at[1]:]
    else:
        at = header.pop("lm_head.weight")["data_offsets"]
        data = data[:at[0]] + data[at[1]:]
        for t in header.values():
            if "data_offsets" in t and t["data_offsets"][0] >= at[1]:
                t["data_offsets"] = [x - (at[1] - at[0]) for x in t["data_offsets"]]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
write("plain", False)
write("stored", True)
PY
    local m
    for m in plain stored; do
        tune "$BATS_TEST_TMPDIR/$m" -o "$BATS_TEST_TMPDIR/run-$m" --method full > /dev/null
        logits "$BATS_TEST_TMPDIR/$m" "$m"
        logits "$BATS_TEST_TMPDIR/run-$m" "run-$m"
        [ "$status" = 0 ]
    done
    same_logits plain stored
    refute same_logits plain run-plain
    same_logits run-plain run-stored
    [[ $stderr != *"tie_word_embeddings is true"* ]] # a head that is taken for another one
}

# 0 where the last loss of RUN/eval.jsonl is the one that pesc eval gives.
eval_is_validation() { # run
    "$PESC" eval "$1" --tasks "$D/data.jsonl" --loss-only --json --threads 1 -q > "$BATS_TEST_TMPDIR/eval.json" || return 1
    python3 - "$1/eval.jsonl" "$BATS_TEST_TMPDIR/eval.json" <<'PY'
import json, sys
want = json.loads(open(sys.argv[1]).readlines()[-1])["eval_loss"]
have = json.load(open(sys.argv[2]))["tasks"][0]["all"]["loss"]
assert abs(have - want) <= 1e-6 * want, (want, have)
PY
}

@test "run: is opened as it was validated, by every method and in every dtype" {
    pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/up" --kind upcycle --experts 2 -q
    [ "$status" = 0 ]
    echo '{"experts": {"0": [1], "1": [1]}, "shared_experts": false, "non_expert_modules": true}' > "$BATS_TEST_TMPDIR/some.json"
    echo '{"experts": {"0": [0, 1], "1": [0, 1]}, "shared_experts": false, "non_expert_modules": false}' > "$BATS_TEST_TMPDIR/all.json"
    local r=$BATS_TEST_TMPDIR/r
    while read -r model options; do
        [ "$model" = dense ] && model=$D/model || model=$BATS_TEST_TMPDIR/up
        # shellcheck disable=SC2086
        tune "$model" -o "$r" --overwrite --eval-data "$D/data.jsonl" ${options//CFG/$BATS_TEST_TMPDIR} > /dev/null
        echo "$options"
        eval_is_validation "$r"
    done <<'END'
dense --method lora --base-dtype bf16 --compute-dtype bf16
dense --method lora --base-dtype f32 --compute-dtype bf16
dense --method qlora --compute-dtype bf16
dense --method full --base-dtype bf16
dense --method full --compute-dtype bf16
sparse --method upcycle --base-dtype bf16
sparse --method esft --experts-config CFG/some.json --base-dtype bf16 --compute-dtype bf16
sparse --method esft --experts-config CFG/all.json --base-dtype bf16
END
    logits "$r" run
    logits "$BATS_TEST_TMPDIR/up" patched --patch "$r" --base-dtype bf16
    same_logits run patched
}

@test "run: of one that went on from another, each is opened as it was validated" {
    pesc craft "$D/model" -o "$BATS_TEST_TMPDIR/up" --kind upcycle --experts 2 -q
    [ "$status" = 0 ]
    local t=$BATS_TEST_TMPDIR
    echo '{"experts": {"0": [0], "1": [0]}, "shared_experts": false, "non_expert_modules": true}' > "$t/a.json"
    echo '{"experts": {"0": [1], "1": [1]}, "shared_experts": false, "non_expert_modules": false}' > "$t/b.json"
    tune "$t/up" -o "$t/one" --method esft --experts-config "$t/a.json" > /dev/null
    tune "$t/one" -o "$t/two" --method esft --experts-config "$t/b.json" --base-dtype bf16 --eval-data "$D/data.jsonl" > /dev/null
    eval_is_validation "$t/two"
    tune "$t/up" -o "$t/full" --method full > /dev/null
    tune "$t/full" -o "$t/lora" --method lora --base-dtype bf16 --eval-data "$D/data.jsonl" > /dev/null
    eval_is_validation "$t/lora"
    # experts that train are not quantised, and stay so for a run on top
    tune "$t/up" -o "$t/four" --method esft --experts-config "$t/b.json" --base-dtype nf4 > /dev/null
    tune "$t/four" -o "$t/five" --method lora --lora-targets all,experts --base-dtype nf4 --eval-data "$D/data.jsonl" > /dev/null
    eval_is_validation "$t/five"
    pesc export "$t/five" --to peft -o "$t/five-peft" -q # compares what it wrote with the run
    [ "$status" = 0 ]
}

# LARGEST: the largest difference of two files of logits, by the largest logit.
near() { # a b LARGEST
    python3 - "$BATS_TEST_TMPDIR/$1.npy" "$BATS_TEST_TMPDIR/$2.npy" "$3" <<'PY'
import struct, sys
def read(path):
    data = open(path, "rb").read()
    return struct.unpack("<%df" % ((len(data) - 128) // 4), data[128:])
a, b = read(sys.argv[1]), read(sys.argv[2])
worst = max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a))
assert worst <= float(sys.argv[3]), worst
PY
}

@test "base: a run that held its base in bf16 is merged and exported as it held it" {
    local t=$BATS_TEST_TMPDIR
    tune "$D/model" -o "$t/run" --method lora --base-dtype bf16 > /dev/null
    logits "$t/run" run
    for how in "merge" "export --to hf"; do
        # shellcheck disable=SC2086
        pesc $how "$t/run" -o "$t/out" --overwrite
        [ "$status" = 0 ]
        logits "$t/out" out
        near run out 1e-5
    done
    pesc export --to gguf "$t/run" -o "$t/out.gguf" --dtype f32
    [ "$status" = 0 ]
    logits "$t/out.gguf" out
    near run out 1e-5
    pesc merge "$t/run" -o "$t/out" --overwrite --merge-base original
    [ "$status" = 0 ]
    logits "$t/out" out
    refute near run out 1e-5
}

@test "base: a QLoRA run is opened as it was trained, and says so" {
    logits "$D/work/qrun" plain
    [ "$status" -eq 0 ]
    [[ $stderr == *"qrun: is opened as it was trained, with base_dtype nf4 compute_dtype bf16; --base-dtype and --compute-dtype change it"* ]]
    logits "$D/work/qrun" nf4 --base-dtype nf4 --compute-dtype bf16
    [ "$status" -eq 0 ]
    [ "$stderr" = "" ]
    same_logits plain nf4
    logits "$D/work/qrun" stored --base-dtype stored --compute-dtype f32
    [ "$status" -eq 0 ]
    refute same_logits plain stored
}

@test "base: without a notice where the run held the model as it is stored" {
    logits "$D/work/run" plain
    [ "$status" -eq 0 ]
    [ "$stderr" = "" ]
}

@test "base: merging a QLoRA run into the original weights is still checked against them" {
    pesc merge "$D/work/qrun" -o "$BATS_TEST_TMPDIR/original" --merge-base original
    [ "$status" -eq 0 ]
    pesc merge "$D/work/qrun" -o "$BATS_TEST_TMPDIR/trained"
    [ "$status" -eq 0 ]
    refute cmp -s "$BATS_TEST_TMPDIR/original/model.safetensors" "$BATS_TEST_TMPDIR/trained/model.safetensors"
}

@test "base: a run whose base has other weights is refused" {
    copy_work
    python3 - "$W/base/model.safetensors" <<'PY'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
start = 8 + int.from_bytes(b[:8], "little")
for i in range(start + 3, len(b), 4): # the sign of every number
    b[i] ^= 0x80
open(sys.argv[1], "wb").write(b)
PY
    local c=$W/run/checkpoint-4
    for command in "logits --ids $D/ids.json -o $BATS_TEST_TMPDIR/x.npy" "generate --prompt a --max-tokens 1" \
        "info --json" "merge -o $BATS_TEST_TMPDIR/m"; do
        # shellcheck disable=SC2086
        pesc ${command%% *} "$W/run" ${command#* }
        fails 3 "$c: its base $W/base has changed since it was trained: the tensors have other numbers; give the model it was trained on with --base DIR"
    done
    pesc info "$W/run" --base "$D/work/base"
    [ "$status" -eq 0 ]
}

@test "base: a LoRA is not applied to a base it was already merged into" {
    copy_work
    pesc merge "$W/run" -o "$BATS_TEST_TMPDIR/merged"
    [ "$status" -eq 0 ]
    cp "$BATS_TEST_TMPDIR/merged/model.safetensors" "$W/base/"
    logits "$W/run" x
    [ "$status" -eq 3 ]
    [[ $stderr == *"has changed since it was trained"* ]]
}

@test "base: a run of an earlier version opens with a notice" {
    copy_work
    python3 - "$W/run/checkpoint-4/manifest.json" <<'PY'
import hashlib, json, sys
m = json.load(open(sys.argv[1]))
for key in ("base_identity", "base_relative", "seal"):
    del m[key]
m["seal"] = hashlib.sha256(json.dumps(m, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
json.dump(m, open(sys.argv[1], "w"))
PY
    logits "$W/run" x
    [ "$status" -eq 0 ]
    [[ $stderr == *"was saved by an earlier version of pesc"* ]]
}

@test "base: a moved run names the base that is missing" {
    copy_work
    mkdir "$BATS_TEST_TMPDIR/away"
    mv "$W/run" "$BATS_TEST_TMPDIR/away/run"
    rm -rf "$W/base.gone"
    mv "$W/base" "$W/base.gone"
    logits "$BATS_TEST_TMPDIR/away/run" x
    fails 3 "$BATS_TEST_TMPDIR/away/run/checkpoint-4: the base of this run, $W/base, is not there; give --base DIR"
}

@test "base: a base that moved with the run, or is beside it, is found" {
    copy_work
    logits "$W/run" before
    mv "$W" "$BATS_TEST_TMPDIR/elsewhere"
    logits "$BATS_TEST_TMPDIR/elsewhere/run" after
    [ "$status" -eq 0 ]
    [[ $stderr == *" $BATS_TEST_TMPDIR/elsewhere/run: its base is not at $W/base any more; $BATS_TEST_TMPDIR/elsewhere/base is used"* ]]
    same_logits before after
    mkdir -p "$BATS_TEST_TMPDIR/deep/down"
    mv "$BATS_TEST_TMPDIR/elsewhere/run" "$BATS_TEST_TMPDIR/deep/down/run"
    mv "$BATS_TEST_TMPDIR/elsewhere/base" "$BATS_TEST_TMPDIR/deep/down/base"
    logits "$BATS_TEST_TMPDIR/deep/down/run" after
    [ "$status" -eq 0 ]
    same_logits before after
}

@test "base: every command that opens a run takes --base" {
    copy_work
    mv "$W/base" "$BATS_TEST_TMPDIR/there"
    local b=$BATS_TEST_TMPDIR/there t=$BATS_TEST_TMPDIR
    echo "hello world hello world" > "$t/text"
    local commands=("info" "logits --ids $D/ids.json -o $t/x.npy" "generate --prompt a --max-tokens 2"
        "perplexity $t/text" "bench --prompt-tokens 4 --decode-tokens 2 --repeat 1"
        "merge -o $t/merged" "export --to peft -o $t/peft"
        "plan --method lora --data $D/data.jsonl --seq-len 16"
        "train --method lora --data $D/data.jsonl --steps 1 --batch 2 --seq-len 16 -o $t/second")
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086
        pesc ${command%% *} "$W/run" ${command#"${command%% *}"} --base "$b"
        if [ "$status" -ne 0 ]; then
            echo "$command: $stderr"
            return 1
        fi
    done
    pesc data stats "$W/run" --data "$D/data.jsonl" --base "$b"
    [ "$status" -eq 0 ]
    pesc info "$D/model" --base "$b"
    fails 2 "$D/model: is not a run, so it has no base; leave --base out"
    pesc logits "$W/run" --ids "$D/ids.json" -o "$t/x.npy" --base "$t/nowhere"
    fails 3 "$W/run/checkpoint-4: the base of this run, $t/nowhere, is not there; give --base DIR"
}

@test "base: a run is resumed elsewhere, bit for bit" {
    copy_work
    local t=$BATS_TEST_TMPDIR
    tune "$W/base" -o "$W/long" --method lora --steps 8 > /dev/null
    tune "$W/base" -o "$W/half" --method lora --save-every 4 > /dev/null
    cp "$D/data.jsonl" "$t/moved.jsonl"
    mkdir "$t/far"
    mv "$W/half" "$t/far/half"
    mv "$W/base" "$t/far/base" # beside the run: found
    pesc train -o "$t/far/half" --resume --steps 6 --data "$t/moved.jsonl" -q
    [ "$status" -eq 0 ]
    mv "$t/far/base" "$t/given" # anywhere: given
    pesc train -o "$t/far/half" --resume --steps 8 --data "$t/moved.jsonl" -q
    [ "$status" -eq 3 ]
    [[ $stderr == *"the base of this run, $t/far/base, is not there; give --base DIR"* ]]
    pesc train -o "$t/far/half" --resume --steps 8 --data "$t/moved.jsonl" --base "$t/given" -q
    [ "$status" -eq 0 ]
    cmp "$W/long/latest/adapter_model.safetensors" "$t/far/half/latest/adapter_model.safetensors"
    cmp "$W/long/latest/optimizer.safetensors" "$t/far/half/latest/optimizer.safetensors"
    # another model of the same shape is not taken for the base: all of it is read
    "$PESC" new "$D/config.json" -o "$t/other" --tokenizer "$D/tok" --dtype f32 --seed 9 -q > /dev/null
    pesc train -o "$t/far/half" --resume --steps 9 --data "$t/moved.jsonl" --base "$t/other" -q
    [ "$status" -eq 2 ]
    [[ $stderr == *"the base model has changed since it was saved"* ]]
}

# ---- which checkpoint of a run is opened

@test "checkpoint: a run opens its newest, its best or that of a step, in every command that opens one" {
    local r=$BATS_TEST_TMPDIR/r
    head -n 4 "$D/data.jsonl" > "$D/eval.jsonl"
    tune "$D/model" -o "$r" --method lora --lr 0.5 --save-every 1 --eval-data "$D/eval.jsonl" --eval-every 1 > /dev/null
    best=$(readlink "$r/best")
    [ "$best" != checkpoint-4 ]
    logits "$r" none
    logits "$r/$best" there
    logits "$r/checkpoint-3" three
    for which in latest:none best:there "${best#checkpoint-}:there" "$best:there" 3:three; do
        logits "$r" chosen --checkpoint "${which%:*}"
        [ "$status" = 0 ]
        cmp "$BATS_TEST_TMPDIR/chosen.npy" "$BATS_TEST_TMPDIR/${which#*:}.npy"
    done
    refute cmp -s "$BATS_TEST_TMPDIR/none.npy" "$BATS_TEST_TMPDIR/there.npy"
    pesc info "$r" --checkpoint best
    has "^checkpoint +$r/best\$"
    pesc eval "$D/model" "$r" --tasks "$D/eval.jsonl" --checkpoint 3 --json # of two models the one that is a run
    [ "$status" = 0 ]
    has "\"model\":\"$r/checkpoint-3\""
    has "\"model\":\"$D/model\""
    pesc generate "$r" --prompt hello --max-tokens 4 --checkpoint best
    chosen=$output
    pesc generate "$r/best" --prompt hello --max-tokens 4
    gives "$chosen"
    pesc merge "$r" -o "$BATS_TEST_TMPDIR/merged" --checkpoint best
    [ "$status" = 0 ]
    pesc merge "$r/best" -o "$BATS_TEST_TMPDIR/again"
    cmp "$BATS_TEST_TMPDIR/merged/model.safetensors" "$BATS_TEST_TMPDIR/again/model.safetensors"
    for command in "export --to hf -o $BATS_TEST_TMPDIR/hf" "routes --data $D/eval.jsonl" "cost" "perplexity $D/eval.jsonl" "compare $D/model --data $D/eval.jsonl"; do
        # shellcheck disable=SC2086
        pesc ${command%% *} "$r" ${command#"${command%% *}"} --checkpoint 9
        [[ $stderr == *"--checkpoint: $r has no checkpoint-9; its newest is that of step 4" ]]
        [ "$status" = 2 ]
    done
}
@test "checkpoint: what is none is refused" {
    pesc info "$D/work/run" --checkpoint best
    fails 2 "info: --checkpoint: $D/work/run has no best checkpoint: it was trained without validation (--eval-data)"
    pesc info "$D/work/run" --checkpoint worst
    fails 2 'info: --checkpoint: found "worst", expected latest, best or the number of a step'
    pesc info "$D/model" --checkpoint best
    fails 2 "info: --checkpoint is of a run, and $D/model is none; leave it out"
    pesc info "$D/nothing" --checkpoint best
    fails 3 "$D/nothing: there is no such file or directory"
}
