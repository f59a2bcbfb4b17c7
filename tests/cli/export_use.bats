# Exports where they are used: chat templates, classes of tokenizers, Modelfiles, LoRA for llama.cpp, model cards.
load helper

SHARE=$BATS_TEST_DIRNAME/../../share

setup_file() {
    export R=$BATS_FILE_TMPDIR
    local tuning="--data $SHARE/test.jsonl --template camelidae --lora-r 4 --steps 2 --batch 2 --seq-len 64 -q"
    cp -r "$SHARE/base" "$R/base"
    printf -- '---\nlanguage: en\nlicense: apache-2.0\n---\n# A base\n' > "$R/base/README.md"
    "$PESC" craft "$R/base" -o "$R/sparse" --experts 4 --top-k 2 --adapter-dim 8 -q
    # shellcheck disable=SC2086
    "$PESC" train "$R/sparse" $tuning -o "$R/run"
    # shellcheck disable=SC2086
    "$PESC" train "$R/base" --method lora $tuning -o "$R/lora"
    "$PESC" export "$R/base" --to gguf -o "$R/base.gguf" --dtype f32 -q
    # shellcheck disable=SC2086
    "$PESC" train "$R/base.gguf" --method lora $tuning -o "$R/lora-gguf"
}

setup() { cd "$BATS_TEST_TMPDIR"; }

@test "export: a run on a base without a template carries the one it was trained in" {
    local to
    for to in hf camelidae; do
        pesc export "$R/run" --to $to -o $to --check false
        [ "$status" = 0 ]
        cmp $to/chat_template.jinja "$SHARE/chat/camelidae.jinja"
        grep -q '"tokenizer_class": "PreTrainedTokenizerFast"' $to/tokenizer_config.json
        grep -q '"eos_token": "</s>"' $to/tokenizer_config.json
    done
    pesc export "$R/run" --to gguf -o run.gguf --check false
    grep -qaF "$(head -n 1 "$SHARE/chat/camelidae.jinja")" run.gguf
    grep -q '^TEMPLATE """.*### System' run.Modelfile
}

@test "export: a tokenizer of a GGUF file names the inputs of the model" {
    pesc export "$R/base.gguf" --to hf -o hf
    [ "$status" = 0 ]
    python3 -c 'import json; assert json.load(open("hf/tokenizer_config.json"))["model_input_names"] == ["input_ids", "attention_mask"]'
}

@test "craft: every file that auto_map names is there" {
    python3 - "$R/sparse" <<'PY'
import json, re, sys
names = json.load(open(sys.argv[1] + "/config.json"))["auto_map"]
assert set(names) == {"AutoConfig", "AutoModel", "AutoModelForCausalLM"}, names
for name in names.values():
    module, cls = name.split(".")
    source = open(f"{sys.argv[1]}/{module}.py").read()
    compile(source, module, "exec")
    assert re.search(rf"^class {cls}\b", source, re.M), (module, cls)
PY
}

@test "export: a Modelfile has the system message of the template and the sampling of the model" {
    cp -r "$R/base" base
    python3 - <<'PY'
import json
path = "base/tokenizer_config.json"
c = json.load(open(path))
c["chat_template"] = ("{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\nYou are a \"camel\".\nBe brief.<|im_end|>\n"
                      "{% endif %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
                      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
json.dump(c, open(path, "w"))
json.dump({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}, open("base/generation_config.json", "w"))
PY
    pesc export base --to gguf -o out --check false
    [ "$status" = 0 ]
    grep -qx 'SYSTEM """You are a "camel".' out/Modelfile
    grep -qx 'Be brief."""' out/Modelfile
    for line in 'temperature 0.6' 'top_k 20' 'top_p 0.95' 'repeat_penalty 1.05'; do grep -qx "PARAMETER $line" out/Modelfile; done
    printf '{"do_sample": false, "temperature": 0.6}' > base/generation_config.json
    sed -i "s/You are a[^<]*//" base/tokenizer_config.json
    pesc export base --to gguf -o out --check false --overwrite
    grep -qx 'PARAMETER temperature 0' out/Modelfile
    refute grep -q SYSTEM out/Modelfile
    python3 - <<'PY' # what stands before the message is another text where none is given
import json
c = json.load(open("base/tokenizer_config.json"))
c["chat_template"] = ("{% for m in messages %}{% if m['role'] == 'system' %}a{{ m['content'] }}{% else %}{% if loop.first %}b by default{% endif %}"
                      "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
                      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
json.dump(c, open("base/tokenizer_config.json", "w"))
PY
    pesc export base --to gguf -o out --check false --overwrite
    [ "$status" = 0 ]
    refute grep -q SYSTEM out/Modelfile
}

# The tensors of a GGUF LoRA must give what those of the PEFT directory give, with Q and K in the order of GGUF.
@test "export: a LoRA as a GGUF file has the numbers of the adapter" {
    pesc export "$R/lora" --to gguf-lora -o lora.gguf
    [ "$status" = 0 ]
    [ "$output" = "lora.gguf: the LoRA of $R/lora" ]
    [ -s lora.README.md ]
    pesc export "$R/lora" --to peft -o peft --dtype f32
    pesc export "$R/lora" --to gguf-lora -o dir --dtype f16
    [ "$(ls dir | paste -sd' ')" = "README.md lora.gguf" ]
    python3 "$BATS_TEST_DIRNAME/gguf_lora.py" lora.gguf peft
    # the file has one alpha: what other modules have beside it is in their B
    python3 - <<'PY'
import json
c = json.load(open("peft/adapter_config.json"))
c["alpha_pattern"] = {"k_proj": 3 * c["lora_alpha"], "down_proj": 1}
json.dump(c, open("peft/adapter_config.json", "w"))
PY
    pesc export "$R/base" --lora peft --to gguf-lora -o pattern.gguf
    [ "$status" = 0 ]
    python3 "$BATS_TEST_DIRNAME/gguf_lora.py" pattern.gguf peft
}

@test "export: what a GGUF LoRA cannot hold is refused" {
    pesc export "$R/run" --to gguf-lora -o out
    fails 2 "$R/run: has trained more than LoRA (trained.safetensors), which a PEFT directory cannot hold; write the whole model: pesc merge, or pesc export --to hf"
    pesc export "$R/base" --to gguf-lora -o out
    fails 2 "$R/base: has no LoRA, and a GGUF LoRA holds nothing else"
    pesc export "$R/lora" --to gguf-lora -o out --dtype q8_0
    fails 2 'dtype: found "q8_0", expected f32, f16 or bf16'
    [ ! -e out ]
}

@test "export: a PEFT directory of a GGUF base says how PEFT opens it" {
    pesc export "$R/lora-gguf" --to peft -o peft
    [ "$status" = 0 ]
    [[ $stderr == *'AutoPeftModelForCausalLM.from_pretrained("peft", gguf_file="base.gguf")'* ]]
    grep -qF "\"base_model_name_or_path\": \"$R\"" peft/adapter_config.json
}

@test "export: a model card says what was made, from what, how and under which licence" {
    pesc export "$R/run" --to hf -o hf --check false
    [ "$(sed -n '1,3p' hf/README.md | paste -sd' ')" = '--- license: apache-2.0 base_model: "sparse"' ]
    for row in 'method | pesc' 'data | test.jsonl' 'chat template | camelidae' 'steps | 2 of 2' 'base | sparse' 'rank of the LoRA | 4'; do
        grep -qxF "| $row |" hf/README.md
    done
    grep -qE '^\| training loss of the last step \| [0-9.]+ \|$' hf/README.md
    grep -q 'states the licence `apache-2.0`' hf/README.md
    pesc merge "$R/lora" -o merged --check false
    grep -q 'Made by pesc [0-9.]* from `lora`' merged/README.md
    pesc export "$R/base" --to gguf -o base.gguf --check false
    grep -qa 'general.license' base.gguf
    pesc export base.gguf --to hf -o back --check false
    grep -qx 'license: apache-2.0' back/README.md
    rm -r "$BATS_TEST_TMPDIR/none" 2>/dev/null || true
    pesc export "$SHARE/base" --to hf -o none --check false
    grep -q 'states no licence in its files' none/README.md
}
