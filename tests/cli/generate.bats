load helper
setup_file() { make_model; }

@test "generate: a text, then a newline" {
    pesc generate "$D/model" --prompt hello --max-tokens 8
    [ "$status" = 0 ]
    [ "$(wc -l < "$BATS_TEST_TMPDIR/stdout")" -ge 1 ]
    [ -z "$stderr" ]
}

@test "generate: JSON has ids, text, finish and counts" {
    pesc generate "$D/model" -p hello -n 5 --json --ignore-eos
    [ "$status" = 0 ]
    has '^\{"ids":\[[0-9]+(,[0-9]+){4}\],"text":".*","finish":"length","prompt_tokens":2,"tokens_per_second":[0-9.e+]+,'
}

@test "generate: --ids is the same as --prompt" {
    pesc generate "$D/model" -p hello -n 5 --json
    local first=$output
    pesc generate "$D/model" --ids - -n 5 --json <<< '[262, 259]'
    [ "$status" = 0 ]
    [ "${output%%,\"tokens_per*}" = "${first%%,\"tokens_per*}" ]
    pesc generate "$D/model" -p hello -n 5 --json --add-special false
    has '"prompt_tokens":1,'
}

@test "generate: control tokens in the prompt only when asked for" {
    pesc generate "$D/model" -p '<s>' -n 1 --json --add-special false
    has '"prompt_tokens":3,'
    pesc generate "$D/model" -p '<s>' -n 1 --json --add-special false --parse-special
    has '"prompt_tokens":1,'
}

@test "generate: greedy decoding and a seed are reproducible, another seed differs" {
    ids() { "$PESC" generate "$D/model" -p hello -n 12 --ignore-eos --json "$@" | grep -o '"ids":[^]]*'; }
    [ "$(ids)" = "$(ids)" ]
    [ "$(ids -t 1 --seed 3)" = "$(ids -t 1 --seed 3)" ]
    [ "$(ids -t 1 --seed 3)" != "$(ids -t 1 --seed 4)" ]
    [ "$(ids -t 1 --seed 3)" != "$(ids)" ]
    [ "$(ids -t 1 --top-k 1)" = "$(ids)" ]
    [ "$(ids -t 1 --top-p 0.000001)" = "$(ids)" ]
    [ "$(ids -t 1 --min-p 1)" = "$(ids)" ]
}

@test "generate: an empty stop text is refused" {
    pesc generate "$D/model" --prompt hello --stop ''
    fails 2 "generate: --stop: found nothing, expected TEXT"
}

@test "generate: a stop text ends it and is left out" {
    text() { "$PESC" generate "$D/model" --ids - -n 30 --ignore-eos "$@" <<< '[72, 73]'; }
    local all first
    all=$(text -t 2 --seed 5 | tr -d '\0' | LC_ALL=C tr -cd 'a-zA-Z')
    first=${all:2:1}
    [ -n "$first" ]
    run bash -c "'$PESC' generate '$D/model' --ids - -n 30 --ignore-eos -t 2 --seed 5 --stop '$first' --json <<< '[72, 73]'"
    [ "$status" = 0 ]
    [[ $output == *'"finish":"stop"'* ]]
    local said=${output#*\"text\":\"}
    [[ ${said%%\",\"finish*} != *"$first"* ]]
}

@test "generate: no part of a stop text is printed before it is complete" {
    text() { "$PESC" generate "$D/model" --ids - -n 60 --ignore-eos -t 2 --seed 5 "$@" <<< '[72, 73]'; }
    text --json > "$BATS_TEST_TMPDIR/all"
    # three characters that one token each has given, not at the beginning
    python3 - "$BATS_TEST_TMPDIR" <<'PY'
import json, re, sys
text = json.load(open(sys.argv[1] + "/all"))["text"]
m = next(m for m in re.finditer("(?=([!-~]{3}))", text) if m.start() > 0 and text.index(m[1]) == m.start())
open(sys.argv[1] + "/stop", "w").write(m[1])
open(sys.argv[1] + "/want", "w").write(text[:m.start()])
PY
    text --stop "$(cat "$BATS_TEST_TMPDIR/stop")" > "$BATS_TEST_TMPDIR/have"
    python3 -c 'import sys; a, b = (open(p, newline="").read() for p in sys.argv[1:]); assert a.rstrip("\n") == b.rstrip("\n"), (a, b)' \
        "$BATS_TEST_TMPDIR/want" "$BATS_TEST_TMPDIR/have"
}

@test "generate: a model without a tokenizer takes ids" {
    "$PESC" new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" -q
    pesc generate "$BATS_TEST_TMPDIR/m" --ids - -n 3 --json <<< '[1]'
    [ "$status" = 0 ]
    has '"ids":\['
    pesc generate "$BATS_TEST_TMPDIR/m" -p hello
    fails 3 "$BATS_TEST_TMPDIR/m: has no tokenizer, and this needs one: put tokenizer.json or tokenizer.model beside its config.json"
}

@test "generate: usage errors" {
    pesc generate
    fails 2 "generate: MODEL is missing; usage: pesc generate MODEL --prompt TEXT|--ids FILE.json"
    pesc generate "$D/model"
    fails 2 "generate: found none of --prompt and --ids, expected one"
    pesc generate "$D/model" -p a --ids b
    fails 2 "generate: found both of --prompt and --ids, expected one"
    pesc generate "$D/model" -p '' --add-special false
    fails 2 "generate: the prompt has no tokens, expected at least one"
    pesc generate "$D/model" --ids - <<< '[[1], [2]]'
    fails 3 "standard input: found 2 sequences, expected one"
    pesc generate "$D/model" -p a --temperature -1
    fails 2 'generate: --temperature: found "-1", expected a number from 0 to 100'
    pesc generate "$D/model" -p a --top-p 1.5
    fails 2 'generate: --top-p: found "1.5", expected a number from 1e-6 to 1'
    pesc generate "$D/model" -p a -n 0
    fails 2 'generate: --max-tokens: found "0", expected a whole number from 1 to 2147483647'
    pesc generate "$D/model" -p a --device gpu
    fails 2 'generate: --device: found "gpu", expected auto, cpu, cuda or cuda:i'
    pesc generate "$D/model" -p a --base-dtype int8
    fails 2 'generate: --base-dtype: found "int8", expected f32, bf16, nf4 or stored'
}

@test "generate: a prompt longer than the context" {
    pesc generate "$D/model" --ids - -n 4 <<< "[$(seq -s, 1 200)]"
    [ "$status" = 2 ]
    [[ $stderr == *128* ]]
    pesc generate "$D/model" --ids - -n 4 --ctx 16 <<< "[$(seq -s, 1 20)]"
    [ "$status" = 2 ]
    [[ $stderr == *16* ]]
}

@test "generate: an adapter or patch that is not there" {
    pesc generate "$D/model" -p a --lora "$D/nothing"
    [ "$status" = 3 ]
    [[ $stderr == *"$D/nothing"* ]]
    pesc generate "$D/model" -p a --patch "$D/nothing"
    fails 3 "$D/nothing: is not a directory; an expert patch is one with expert_cfg.json and safetensors"
}

@test "generate: --chat writes the prompt as a message, with the format's stop texts" {
    tokens() { grep -o '"prompt_tokens":[0-9]*' <<< "$output"; }
    pesc generate "$D/model" --prompt hello -n 2 --json --chat --system or
    [ "$status" = 0 ]
    local with
    with=$(tokens)
    pesc chat "$D/model" -n 2 --json --temperature 0 --system or <<< hello
    [ "$(tokens)" = "$with" ]
    echo '[1]' > "$BATS_TEST_TMPDIR/ids.json"
    pesc generate "$D/model" --ids "$BATS_TEST_TMPDIR/ids.json" --chat
    fails 2 "generate: --chat needs --prompt, found --ids"
    pesc generate "$D/model" --prompt hello --system or
    fails 2 "generate: --system needs --chat"
    pesc generate "$D/model" --prompt hello --chat-format chatml
    fails 2 "generate: --chat-format needs --chat"
}

@test "generate: a stop text that is a control token ends the answer at that token" {
    local other=$BATS_TEST_TMPDIR/other seed n
    cp -r "$D/model" "$other"
    sed -i 's/"eos_token_id": 265/"eos_token_id": 263/' "$other/config.json"
    sed -i 's/"eos_token": "<|im_end|>"/"eos_token": "<\/s>"/' "$other/tokenizer_config.json"
    grep -q '"eos_token_id": 263' "$other/config.json"
    # a seed with which <|im_end|> (265) comes, and not at the end
    for seed in {1..200}; do
        pesc generate "$other" --prompt hello -n 100 -t 5 --seed "$seed" --ignore-eos --json
        if [[ $output == *,265,* ]]; then break; fi
    done
    n=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["ids"].index(265) + 1)' "$output")
    pesc generate "$other" --prompt hello -n 100 -t 5 --seed "$seed" --ignore-eos --stop '<|im_end|>' --json
    python3 -c '
import json, sys
g = json.loads(sys.argv[1])
assert g["finish"] == "stop" and len(g["ids"]) == int(sys.argv[2]) and g["ids"][-1] == 265, g' "$output" "$n"
    # the same of a chat format, unless the model's ends are ignored
    for seed in {1..200}; do
        pesc generate "$other" --prompt hello --chat -n 80 -t 5 --seed "$seed" --ignore-eos --json
        if [[ $output == *,265,* && $output != *263* ]]; then break; fi
    done
    pesc generate "$other" --prompt hello --chat -n 80 -t 5 --seed "$seed" --json
    python3 -c '
import json, sys
g = json.loads(sys.argv[1])
assert g["finish"] == "stop" and g["ids"].index(265) == len(g["ids"]) - 1, g' "$output"
}

@test "generate: an empty answer of a chat model suggests --chat" {
    # whatever the model says ends the answer
    local stops=() c
    pesc generate "$D/model" --prompt hello -n 1 --json
    c=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["text"][:1])' "$output")
    pesc generate "$D/model" --prompt hello -n 1 --stop "$c"
    [ "$status" = 0 ]
    [[ $stderr == *"note: the answer is empty; $D/model has a chat template (chatml): --chat writes the prompt as a message"* ]]
}

@test "generate: --schema, --grammar and --regex give answers of that form, with any seed" {
    local schema=$BATS_TEST_TMPDIR/schema.json grammar=$BATS_TEST_TMPDIR/list.gbnf seed
    printf '%s' '{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":99},"s":{"enum":["a","b"]}},"required":["n","s"]}' > "$schema"
    printf '%s\n' 'root ::= "[" word ("," word){1,2} "]"' 'word ::= [a-c]{2}' > "$grammar"
    for seed in 1 2 3; do
        pesc generate "$D/model" -p hello -t 1 --seed $seed --schema "$schema"
        [ "$status" = 0 ]
        python3 -c 'import json, sys; v = json.load(sys.stdin); assert 10 <= v["n"] <= 99 and v["s"] in "ab" and len(v) == 2' <<< "$output"
        pesc generate "$D/model" -p hello -t 1 --seed $seed --grammar - < "$grammar"
        [ "$status" = 0 ]
        [[ $output =~ ^\[[a-c]{2}(,[a-c]{2}){1,2}\]$ ]]
        pesc generate "$D/model" -p hello -t 1 --seed $seed --regex '[x-z]{3}-\d{4}' --json
        [ "$status" = 0 ]
        has '"text":"[x-z]{3}-[0-9]{4}","finish":"stop"'
    done
}

@test "generate: an answer that the grammar completes ends, also with --ignore-eos" {
    pesc generate "$D/model" -p hello --regex 'yes|no' --ignore-eos --json
    [ "$status" = 0 ]
    has '"text":"(yes|no)","finish":"stop"'
    pesc generate "$D/model" -p hello --regex '[ab]+' --max-tokens 4 --ignore-eos --json
    [ "$status" = 0 ]
    has '"text":"[ab]{4,}","finish":"length"'
}

@test "generate: the same grammar and seed give the same tokens" {
    ids() { "$PESC" generate "$D/model" -p hello -n 12 -t 1 --regex '[a-z ]{5,}' --json "$@" | grep -o '"ids":[^]]*'; }
    [ "$(ids --seed 3)" = "$(ids --seed 3)" ]
    [ "$(ids --seed 3)" != "$(ids --seed 4)" ]
}

@test "generate: schemas and grammars that are wrong or cannot be enforced" {
    local file=$BATS_TEST_TMPDIR/s.json
    printf '%s' '{"properties":{"a":{"not":{}}}}' > "$file"
    pesc generate "$D/model" -p hello --schema "$file"
    fails 3 "$file: the schema, #/properties/a: not cannot be enforced; leave it out"
    printf '%s' '{"type":' > "$file"
    pesc generate "$D/model" -p hello --schema "$file"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $file: the schema"* ]]
    printf '%s' 'root ::= root "a" | "b"' > "$file"
    pesc generate "$D/model" -p hello --grammar "$file"
    fails 3 "$file: the grammar is left-recursive: rule root begins with itself; write the repetition with * or put what is repeated first"
    pesc generate "$D/model" -p hello --regex '(a'
    fails 2 "--regex: the regular expression has a group without its ) at byte 3"
    pesc generate "$D/model" -p hello --regex a --schema "$file"
    fails 2 "generate: found several of --schema, --grammar and --regex, expected one"
    pesc generate "$D/model" -p hello --schema "$BATS_TEST_TMPDIR/none.json"
    [ "$status" = 3 ]
    [[ $stderr == *none.json* ]]
}

@test "generate: guesses and a draft model change no token" {
    pesc generate "$D/model" -p 'hello hello hello hello' -n 40 --json --ignore-eos --draft-tokens 0
    [ "$status" = 0 ]
    has '"draft_n":0,"draft_n_accepted":0'
    local plain=${output%%,\"tokens_per*}
    pesc generate "$D/model" -p 'hello hello hello hello' -n 40 --json --ignore-eos --draft-tokens 8
    [ "${output%%,\"tokens_per*}" = "$plain" ]
    pesc generate "$D/model" -p 'hello hello hello hello' -n 40 --json --ignore-eos --draft-tokens 4 --draft "$D/model"
    [ "${output%%,\"tokens_per*}" = "$plain" ]
    has '"draft_n_accepted":[1-9]'
    has '"tokens_per_pass":[1-9]'
    pesc generate "$D/model" -p hello -n 4 --draft "$BATS_TEST_DIRNAME/../golden/llama"
    [ "$status" = 2 ]
    [[ $stderr == *'the same vocabulary'* ]]
}
