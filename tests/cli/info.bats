load helper
setup_file() { make_model; }

@test "info: says what the model is" {
    pesc info "$D/model"
    [ "$status" = 0 ]
    has '^family +llama$'
    has '^shape +2 layers of 32, 4 heads of 8, 2 kv heads, feed-forward 48$'
    has '^vocabulary +266$'
    has '^context +128$'
    has '^parameters +32544 \(32\.5 K\)$'
    has '^tokenizer +bpe$'
    has '^chat +chatml$'
    has '^weights +f32, 21 tensors in 1 safetensors file, 127 KiB$'
    [ -z "$stderr" ]
}

@test "info: the same as JSON" {
    pesc info "$D/model" --json
    [ "$status" = 0 ]
    [ "$(wc -l <<< "$output")" = 1 ]
    has '"family":"llama"'
    has '"dim":32,"layers":2,"heads":4,"kv_heads":2,"head_dim":8,"ffn_dim":48,"vocab":266,"context":128'
    has '"params":\{"total":32544,"activated":32544,'
    has '"tensors":21,"files":1,"bytes":130176,"tokenizer":"bpe","chat":"chatml"\}$'
}

@test "info: reads no weight: a file of holes is as good" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    local f=$BATS_TEST_TMPDIR/m/model.safetensors size header
    size=$(stat -c %s "$f")
    header=$(($(od -An -t u8 -N 8 "$f") + 8))
    truncate -s $header "$f"
    truncate -s $size "$f"
    pesc info "$BATS_TEST_TMPDIR/m"
    [ "$status" = 0 ]
}

@test "info: opens the model where an option says how" {
    local peft=$BATS_TEST_DIRNAME/../golden/peft
    pesc info "$peft/base" --lora "$peft/adapter" --device cpu --threads 1 --base-dtype nf4 --compute-dtype bf16
    [ "$status" = 0 ]
    has '^family +llama$'
    pesc info "$D/model" --lora "$peft/adapter"
    [ "$status" = 3 ]
    pesc info "$D/model" --patch "$BATS_TEST_TMPDIR/none"
    [ "$status" = 3 ]
    pesc info "$D/model" --device tpu
    fails 2 'info: --device: found "tpu", expected auto, cpu, cuda or cuda:i'
}

@test "info: a path that is not there" {
    pesc info "$D/nothing"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $D/nothing: "* ]]
    [ -z "$output" ]
}

@test "info: a directory that holds no model" {
    mkdir "$BATS_TEST_TMPDIR/empty"
    pesc info "$BATS_TEST_TMPDIR/empty"
    [ "$status" = 3 ]
    [[ $stderr == *config.json* ]]
}

@test "info: a cut weight file" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    truncate -s 1000 "$BATS_TEST_TMPDIR/m/model.safetensors"
    pesc info "$BATS_TEST_TMPDIR/m"
    [ "$status" = 3 ]
    [[ $stderr == *model.safetensors* ]]
}

@test "info: a run: method, base, step, losses, template and data" {
    printf '{"prompt": "hello", "completion": "or"}\n%.0s' {1..8} > "$D/d.jsonl"
    "$PESC" train "$D/model" --data "$D/d.jsonl" --eval-data "$D/d.jsonl" --eval-every 2 --steps 4 --batch 2 --seq-len 32 \
        --method lora --lora-r 4 --template alpaca -o "$D/run" -q > /dev/null
    pesc info "$D/run"
    [ "$status" = 0 ]
    has '^run +lora, step 4 of 4, [0-9]+ tokens$'
    has '^checkpoint +.*/run/checkpoint-4$'
    has '^base +.*/model, held as stored, computed in f32$'
    has '^lora rank +4$'
    has '^loss +[0-9.]+ at lr 0.0002$'
    has '^validation +[0-9.]+, best [0-9.]+ at step [0-9]+$'
    has '^template +alpaca$'
    has '^data +\["/.*/d.jsonl"\]$'
    pesc info "$D/run" --json
    has '"run":\{"checkpoint":.*"method":"lora".*"step":4,"steps":4,.*"lora_r":4,'
    [ "$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["run"]["loss"])' "$output")" = \
        "$(tail -1 "$D/run/metrics.jsonl" | python3 -c 'import json, sys; print(json.load(sys.stdin)["loss"])')" ]
    rm "$D/run/metrics.jsonl"
    pesc info "$D/run" --json
    [ "$status" = 0 ]
    has '"loss":null'
}
