load helper
setup_file() { make_model; }

@test "errors: a command that does not exist" {
    pesc tokenise
    fails 2 'there is no command "tokenise"; did you mean tokenize?'
    pesc xyzzy-plugh
    fails 2 'there is no command "xyzzy-plugh"; `pesc` alone lists them'
}

@test "errors: an option that does not exist, with a suggestion where one is near" {
    pesc generate "$D/model" --max-token 3
    fails 2 "generate: --max-token: there is no such option; did you mean --max-tokens?"
    pesc info "$D/model" --temperature 0
    fails 2 'info: --temperature: there is no such option; `pesc info --help` lists them'
    pesc info "$D/model" -z
    fails 2 'info: -z: there is no such option; `pesc info --help` lists them'
    pesc generate "$D/model" --max_tokens 3
    fails 2 "generate: --max_tokens: there is no such option; did you mean --max-tokens?"
}

@test "errors: names of other programs are answered with the name here" {
    local theirs=(learning-rate learning_rate num-train-epochs per-device-train-batch-size gradient-accumulation-steps
        max-seq-length lora-rank lora_alpha output-dir model-name-or-path warmup-fraction max-steps save-steps eval-steps
        logging-steps max-grad-norm lr-scheduler-type)
    local ours=(lr lr epochs batch batch seq-len lora-r lora-alpha output model warmup-ratio steps save-every eval-every
        log-every clip schedule)
    for i in "${!theirs[@]}"; do
        pesc train x "--${theirs[i]}" 1
        if [ "${theirs[i]}" = lora_alpha ]; then # ours, with an underscore
            fails 2 "train: --lora_alpha: there is no such option; did you mean --lora-alpha?"
        else
            [ "$status" = 2 ]
            [[ "$stderr" = "pesc: train: --${theirs[i]}: that is --${ours[i]} here: "* ]]
        fi
    done
    pesc train x --load-in-4bit
    fails 2 "train: --load-in-4bit: that is --base-dtype nf4 here: how frozen weights are held in memory"
    pesc train x --gradient-accumulation-steps 4
    fails 2 "train: --gradient-accumulation-steps: that is --batch here: records per optimiser step"
    pesc train x --bf16=true
    fails 2 "train: --bf16: that is --compute-dtype bf16 here: dtype of the activations"
    pesc generate x --max-new-tokens 5
    fails 2 "generate: --max-new-tokens: that is --max-tokens here: maximum number of tokens to generate"
    pesc info x --learning-rate 1 # which has no such option
    fails 2 'info: --learning-rate: there is no such option; `pesc info --help` lists them'
}

@test "errors: an empty word where a file or a name belongs" {
    pesc info ""
    fails 2 "info: MODEL is empty; usage: pesc info MODEL"
    pesc generate "$D/model" -p x --lora ""
    fails 2 "generate: --lora: found nothing, expected DIR"
    pesc train "$D/model" --data x -o "" --method lora
    fails 2 "train: --output: found nothing, expected RUN"
    pesc generate "$D/model" -p "" --system "" --max-tokens 1 # texts may be empty
    [ "$status" = 0 ]
}

@test "errors: -o - makes no file of that name" {
    cd "$BATS_TEST_TMPDIR"
    echo '[1]' > ids.json
    pesc logits "$D/model" --ids ids.json -o -
    fails 2 'logits: --output: found "-", expected OUT.npy, not standard output'
    pesc init pesc -o -
    [ "$status" = 2 ]
    [[ $stderr == 'pesc: init: --file: found "-", expected '*', not standard output' ]]
    [ ! -e ./- ]
}

@test "errors: a path that cannot be reached says why" {
    local t=$BATS_TEST_TMPDIR
    ln -s loop "$t/loop"
    pesc info "$t/loop"
    fails 3 "$t/loop: cannot be reached: Too many levels of symbolic links"
    mkdir "$t/model"
    ln -s config.json "$t/model/config.json"
    pesc info "$t/model"
    fails 3 "$t/model/config.json: cannot be reached: Too many levels of symbolic links"
}

@test "errors: --no-X is --X false" {
    pesc info "$D/model" --json --no-json
    [ "$status" = 0 ]
    has '^family '
    pesc info "$D/model" --no-threads
    [ "$status" = 2 ]
    pesc info "$D/model" --no-json=true
    [ "$status" = 2 ]
    pesc generate "$D/model" -p hello --no-add-special --max-tokens 1 --json
    [ "$status" = 0 ]
    local first=$output
    pesc generate "$D/model" -p hello --add-special false --max-tokens 1 --json
    [ "${first%%,\"tokens_per*}" = "${output%%,\"tokens_per*}" ]
}

@test "errors: values" {
    pesc generate "$D/model" --prompt
    fails 2 "generate: --prompt needs a value: --prompt TEXT"
    pesc generate "$D/model" --prompt --seed 3
    fails 2 "generate: --prompt needs a value: --prompt TEXT"
    for v in x 1x '' ' 1' +1 1.0 0x10 99999999999999999999; do
        pesc generate "$D/model" -p a --seed "$v"
        fails 2 "generate: --seed: found \"$v\", expected a whole number from 0 to 9000000000000000000"
    done
    for v in x 1x '' ' 1' nan inf 1e 1e999 0x1p3 1,5; do
        pesc generate "$D/model" -p a --min-p "$v"
        fails 2 "generate: --min-p: found \"$v\", expected a number from 0 to 1"
    done
    pesc generate "$D/model" -p a --threads 1025
    fails 2 'generate: --threads: found "1025", expected a whole number from 0 to 1024'
    pesc info "$D/model" --json=yes
    fails 2 'info: --json: found "yes", expected true or false'
}

@test "errors: --flag=value, --flag value, -x value and -- are all understood" {
    pesc generate "$D/model" --prompt=hello --max-tokens=1 --json=true
    [ "$status" = 0 ]
    has '^\{"ids"'
    pesc info --json false -- "$D/model"
    [ "$status" = 0 ]
    has '^family '
    pesc generate "$D/model" -p '--prompt is a flag' -n 1 --json
    [ "$status" = 0 ]
}

@test "errors: with --json the sentence is on standard output too" {
    pesc info "$D/nothing" --json
    [ "$status" = 3 ]
    [ "$output" = "{\"error\":{\"code\":3,\"message\":\"${stderr#pesc: }\"}}" ]
    pesc --json
    [ "$status" = 2 ]
    pesc generate --json
    [ "$status" = 2 ]
    has '^\{"error":\{"code":2,"message":"generate: MODEL is missing'
}

@test "errors: names cannot write to the terminal" {
    pesc info "$D/$(printf 'a\033]0;x\007b')"
    [ "$status" = 3 ]
    refute grep -q $'\033' "$BATS_TEST_TMPDIR/stderr"
    pesc "$(printf 'a\033b')"
    fails 2 'there is no command "a\x1Bb"; `pesc` alone lists them'
}

@test "errors: a device that is not there is a missing resource" {
    if "$PESC" doctor | grep -q '^ok  *cuda'; then skip "there is one"; fi
    pesc generate "$D/model" -p a --device cuda
    [ "$status" = 4 ]
    pesc generate "$D/model" -p a --device cuda:7
    [ "$status" = 4 ]
}

@test "errors: a full disk is a missing resource" {
    run bash -c "'$PESC' version 2>&1 > /dev/full"
    [ "$status" = 4 ]
    [ "$output" = "pesc: standard output cannot be written: No space left on device" ]
}

@test "errors: a file over the shell's limit is a full disk" {
    run bash -c "ulimit -f 8; '$PESC' craft '$D/model' -o '$BATS_TEST_TMPDIR/s' -q > '$BATS_TEST_TMPDIR/out' 2>&1"
    [ "$status" = 4 ]
    grep -q '^pesc: .*: File too large$' "$BATS_TEST_TMPDIR/out"
}

@test "errors: numbers that are not finite" {
    local f=$BATS_TEST_TMPDIR/m/model.safetensors header size
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    header=$(($(od -An -t u8 -N 8 "$f") + 8))
    size=$(stat -c %s "$f")
    truncate -s $header "$f"
    head -c $((size - header)) /dev/zero | tr '\0' '\377' >> "$f"
    pesc generate "$BATS_TEST_TMPDIR/m" -p hello
    [ "$status" = 5 ]
    [ -n "$stderr" ]
    printf 'hello world %.0s' {1..20} > "$BATS_TEST_TMPDIR/t"
    pesc perplexity "$BATS_TEST_TMPDIR/m" "$BATS_TEST_TMPDIR/t"
    [ "$status" = 5 ]
    [ -n "$stderr" ]
    echo '[1, 2, 3]' > "$BATS_TEST_TMPDIR/ids.json"
    pesc logits "$BATS_TEST_TMPDIR/m" --ids "$BATS_TEST_TMPDIR/ids.json" -o "$BATS_TEST_TMPDIR/l.npy"
    fails 5 "the logits at position 0 are not finite"
    [ ! -e "$BATS_TEST_TMPDIR/l.npy" ]
}

@test "errors: a file cannot forge a second line or turn the text around" {
    printf '"lr\\npesc: all is well": 1\n' > "$BATS_TEST_TMPDIR/r.yaml"
    pesc train "$D/model" -c "$BATS_TEST_TMPDIR/r.yaml"
    [ "$status" = 2 ]
    [[ $stderr == *'lr\x0Apesc: all is well'* ]]
    [[ $stderr != *$'\n'* ]]
    printf '"lr\342\200\256x\330\234": 1\n' > "$BATS_TEST_TMPDIR/r.yaml"
    pesc train "$D/model" -c "$BATS_TEST_TMPDIR/r.yaml"
    [[ $stderr == *'lr\u{202E}x\u{061C}'* ]]
}

@test "errors: names from files cannot write into a table" {
    local t=$BATS_TEST_TMPDIR bad=$'x\033[31m\ny'
    printf '{"prompt": "hello", "completion": "or", "domain": "x\\u001b[31m\\ny"}\n' > "$t/d.jsonl"
    pesc eval "$D/model" --tasks "$t/d.jsonl" --max-tokens 1
    [ "$status" = 0 ]
    has '^  x\\x1B\[31m\\x0Ay +1 '
    cp "$t/d.jsonl" "$t/$bad.jsonl"
    pesc data check "$D/model" --data "$t/$bad.jsonl"
    [ "$status" = 0 ]
    has '/x\\x1B\[31m\\x0Ay\.jsonl \(completion\)$'
    cp -r "$D/model" "$t/$bad"
    "$PESC" train "$t/$bad" --method lora --data "$t/d.jsonl" --steps 1 --batch 1 -o "$t/run" -q > /dev/null
    pesc info "$t/run"
    has '^base .*/x\\x1B\[31m\\x0Ay, held as stored, computed in f32$'
}

@test "errors: an output that is a device or a pipe is not replaced" {
    mkfifo "$BATS_TEST_TMPDIR/pipe"
    printf '{"prompt": "a", "completion": "b"}\n' > "$BATS_TEST_TMPDIR/d.jsonl"
    pesc data mix --general "$BATS_TEST_TMPDIR/d.jsonl" --code "$BATS_TEST_TMPDIR/d.jsonl" \
        --maths "$BATS_TEST_TMPDIR/d.jsonl" --counts 1,0,0 -o "$BATS_TEST_TMPDIR/pipe" --overwrite
    [ "$status" = 2 ]
    [[ $stderr == *"is not a regular file"* ]]
    [ -p "$BATS_TEST_TMPDIR/pipe" ]
}

@test "errors: a closed standard output is an error, not a result" {
    run bash -c "'$PESC' tokenize '$D/model' <<< hello >&-"
    [ "$status" = 4 ]
    [[ $output == *"standard output cannot be written"* ]]
}

@test "errors: a small stack is enough, also for drawing" {
    printf '{"prompt": "hello", "completion": "or"}\n%.0s' {1..8} > "$BATS_TEST_TMPDIR/d.jsonl"
    run bash -c 'ulimit -s 64; exec "$@"' _ "$PESC" train "$D/model" --data "$BATS_TEST_TMPDIR/d.jsonl" --steps 2 --batch 2 --seq-len 32 \
        --method lora --lora-r 4 --threads 2 -o "$BATS_TEST_TMPDIR/run" -q
    [ "$status" = 0 ]
    [ -s "$BATS_TEST_TMPDIR/run/plots/loss.svg" ]
}
