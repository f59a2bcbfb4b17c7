load helper
setup_file() { make_model; }
setup() { Y=$BATS_TEST_TMPDIR/run.yaml; }

@test "config: a file gives options and arguments; flags win" {
    cat > "$Y" <<YAML
# a comment
model: $D/model
prompt: "hello"
max_tokens: 3
ignore_eos: true
stop: [zzzz, "yyyy"]
json: true
YAML
    pesc generate -c "$Y"
    [ "$status" = 0 ]
    has '^\{"ids":\[[0-9]+,[0-9]+,[0-9]+\],'
    pesc generate -c "$Y" --max-tokens 1
    has '^\{"ids":\[[0-9]+\],'
    pesc generate -c "$Y" --json false
    refute has '^\{"ids"'
}

@test "config: an empty file is a file without options" {
    : > "$Y"
    pesc info "$D/model" -c "$Y"
    [ "$status" = 0 ]
}

refused() { # code sentence (behind the file's name), content
    printf '%s\n' "$3" > "$Y"
    pesc generate "$D/model" -c "$Y"
    fails "$1" "$Y:$2"
}

@test "config: keys" {
    refused 2 '1: max_token: there is no such option; did you mean max_tokens?' 'max_token: 3'
    refused 2 '1: max-tokens: there is no such option; did you mean max_tokens?' 'max-tokens: 3'
    refused 2 '1: voyage: there is no such option; `pesc generate --help` lists them' 'voyage: 3'
    refused 2 '1: max_new_tokens: that is max_tokens here: maximum number of tokens to generate' 'max_new_tokens: 3'
    refused 2 '1: load_in_4bit: that is base_dtype: nf4 here: how weights are held in memory' 'load_in_4bit: true'
    refused 2 '2: found a key for the second time, expected each key once' $'seed: 1\nseed: 2'
    refused 2 '1: found config or help, expected keys that make sense in a file' 'config: x'
    refused 2 '1: found a nested mapping, expected a key' '{a: 1}: 2'
}

@test "config: values" {
    refused 2 '2: max_tokens: found "many", expected a whole number from 1 to 2147483647' $'# x\nmax_tokens: many'
    refused 2 '1: found a list, expected one value' 'max_tokens: [1]'
    refused 2 '1: found a nested mapping, expected one value' 'prompt: {a: 1}'
    refused 2 '1: found a nested mapping, expected text or a list' 'stop: {a: 1}'
    refused 2 '1: found a nested mapping, expected text' 'stop: [{a: 1}]'
    refused 2 '1: found nothing, expected TEXT' 'prompt:'
    refused 2 '1: stop: found nothing, expected TEXT' 'stop: ["x", ""]'
    refused 2 '1: found nothing, expected true or false' 'json: ~'
    refused 2 '1: json: found "yes", expected true or false' 'json: yes'
    refused 2 '2: found an alias, expected one value' $'top_k: &a 1\nseed: *a'
}

@test "config: words with commas may be a list" {
    local a=$BATS_TEST_TMPDIR/a
    echo '{"input_ids": [1, 5, 6], "labels": [-100, 5, 6]}' > "$BATS_TEST_TMPDIR/d.jsonl"
    for targets in 'q_proj,v_proj' 'q_proj, v_proj' '[q_proj, v_proj]' '["q_proj", v_proj]'; do
        printf '%s\n' "lora_targets: $targets" 'method: lora' 'steps: 1' 'batch: 1' 'lora_r: 2' > "$Y"
        pesc train "$D/model" -c "$Y" --data "$BATS_TEST_TMPDIR/d.jsonl" -o "$a" --overwrite -q
        [ "$status" = 0 ]
        grep -o '[a-z]_proj' "$a/latest/adapter_config.json" | sort | paste -sd' ' | grep -qx 'q_proj v_proj'
    done
    printf 'lora_targets: [q_proj, [v_proj]]\n' > "$Y"
    pesc train "$D/model" -c "$Y" --data x -o y
    fails 2 "$Y:1: found a list, expected text"
}

@test "config: form" {
    refused 2 '1: found a scalar, expected keys and values' 'hello'
    refused 2 '1: found a list, expected keys and values' '[1, 2]'
    refused 2 '2: found a second document, expected the end of the file' $'seed: 1\n---\nseed: 2'
    printf 'prompt: "a\n' > "$Y"
    pesc generate "$D/model" -c "$Y"
    [ "$status" = 2 ]
    [[ $stderr == "pesc: $Y:2: this is not YAML: "* ]]
}

@test "config: a file that is not there" {
    pesc info "$D/model" -c "$D/none.yaml"
    fails 2 "$D/none.yaml: cannot be read: No such file or directory"
    pesc info "$D/model" -c "$D"
    fails 2 "$D: cannot be read: Is a directory"
}
