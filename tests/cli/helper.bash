# What the tests of the command share: the program, a tiny tokenizer and a tiny model, made on the
# spot. Each file of tests makes them once (make_model in setup_file).
#
# The tokenizer is byte-level BPE: the id of a byte is the byte, then the merges in order
# (256 he, 257 ll, 258 hell, 259 hello, 260 " w", 261 or), then <s> 262, </s> 263,
# <|im_start|> 264, <|im_end|> 265.

PESC=${PESC:-$BATS_TEST_DIRNAME/../../build/pesc}
VOCAB=266
export CUDA_VISIBLE_DEVICES= # --device auto is the CPU
export PESC_ISA=avx512       # --compute-dtype auto is f32

# GPT-2's byte-level alphabet as a JSON vocabulary: printable bytes are themselves, the others are
# counted up from U+0100.
byte_vocab() {
    local b n=256
    for ((b = 0; b < 256; b++)); do
        if ((b > 32 && b < 127 || b > 160 && b != 173)); then
            printf '"\\u%04x":%d,' $b $b
        else
            printf '"\\u%04x":%d,' $n $b
            n=$((n + 1))
        fi
    done
}

added() { # id content
    printf '{"id":%d,"content":"%s","single_word":false,"lstrip":false,"rstrip":false,' "$1" "$2"
    printf '"normalized":false,"special":true}'
}

write_tokenizer() { # directory
    {
        printf '{"version":"1.0","truncation":null,"padding":null,"added_tokens":['
        added 262 '<s>'
        printf ,
        added 263 '</s>'
        printf ,
        added 264 '<|im_start|>'
        printf ,
        added 265 '<|im_end|>'
        printf '],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,'
        printf '"trim_offsets":true,"use_regex":true},"post_processor":{"type":"TemplateProcessing",'
        printf '"single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],'
        printf '"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],'
        printf '"special_tokens":{"<s>":{"id":"<s>","ids":[262],"tokens":["<s>"]}}},'
        printf '"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},'
        printf '"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,'
        printf '"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{'
        byte_vocab
        printf '"he":256,"ll":257,"hell":258,"hello":259,"\\u0120w":260,"or":261},'
        printf '"merges":["h e","l l","he ll","hell o","\\u0120 w","o r"]}}\n'
    } > "$1/tokenizer.json"
    cat > "$1/tokenizer_config.json" <<'JSON'
{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>",
 "chat_template": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
JSON
}

write_config() { # file
    cat > "$1" <<JSON
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
 "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": $VOCAB, "max_position_embeddings": 128,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
 "bos_token_id": 262, "eos_token_id": 265, "torch_dtype": "float32"}
JSON
}

# $D: a directory of this file's own, with config.json, tok/ (tokenizer) and model/ (both).
make_model() {
    export D=$BATS_FILE_TMPDIR
    mkdir -p "$D/tok"
    write_config "$D/config.json"
    write_tokenizer "$D/tok"
    "$PESC" new "$D/config.json" -o "$D/model" --tokenizer "$D/tok" --dtype f32 --seed 1 -q > "$D/new.out"
}

# Runs pesc and keeps standard output and standard error separately: $output, $stderr, $status.
pesc() {
    local code=0
    "$PESC" "$@" > "$BATS_TEST_TMPDIR/stdout" 2> "$BATS_TEST_TMPDIR/stderr" || code=$?
    output=$(cat "$BATS_TEST_TMPDIR/stdout")
    stderr=$(cat "$BATS_TEST_TMPDIR/stderr")
    status=$code
}

# The last pesc had this exit code and printed exactly this sentence on standard error.
fails() { # code sentence
    if [ "$status" != "$1" ] || [ "$stderr" != "pesc: $2" ]; then
        printf 'expected %s: pesc: %s\nfound    %s: %s\n' "$1" "$2" "$status" "$stderr"
        return 1
    fi
}

# The last pesc succeeded and printed exactly this on standard output.
gives() { # text
    if [ "$status" != 0 ] || [ "$output" != "$1" ]; then
        printf 'expected 0: %s\nfound    %s: %s\n%s\n' "$1" "$status" "$output" "$stderr"
        return 1
    fi
}

# Standard output has a match for the pattern (grep -E).
has() { # pattern
    if ! grep -Eq -- "$1" <<< "$output"; then
        printf 'expected a match of %s in\n%s\n' "$1" "$output"
        return 1
    fi
}

# The command fails. (A bare ! does not fail a test.)
refute() {
    if "$@"; then
        printf 'expected this to fail: %s\n' "$*"
        return 1
    fi
}

# records N: N conversations of each of three domains, as the studies read them
records() {
    local d i
    for d in general code maths; do
        for ((i = 0; i < $1; i++)); do
            printf '{"messages":[{"role":"user","content":"%s %d"},{"role":"assistant","content":"hello world %d"}],"domain":"%s"}\n' $d $i $i $d
        done
    done
}
