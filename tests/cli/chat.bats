load helper
setup_file() { make_model; }

@test "chat: without a terminal each line is a message" {
    pesc chat "$D/model" -n 4 --json <<< $'hello\nor'
    [ "$status" = 0 ]
    [ "$(wc -l <<< "$output")" = 2 ]
    has '^\{"ids":\[.*"finish":"'
}

@test "chat: text streams, one answer after another" {
    pesc chat "$D/model" -n 4 <<< 'hello'
    [ "$status" = 0 ]
    [ -s "$BATS_TEST_TMPDIR/stdout" ]
}

@test "chat: the system message and /system are part of the prompt" {
    tokens() { grep -o '"prompt_tokens":[0-9]*' | cut -d: -f2 | paste -sd' '; }
    local plain with
    plain=$("$PESC" chat "$D/model" -n 1 --json <<< 'or' | tokens)
    with=$("$PESC" chat "$D/model" -n 1 --json --system hello <<< 'or' | tokens)
    [ "$with" -gt "$plain" ]
    [ "$("$PESC" chat "$D/model" -n 1 --json <<< $'/system hello\nor' | tokens)" = "$with" ]
    [ "$("$PESC" chat "$D/model" -n 1 --json --system hello <<< $'/system\nor' | tokens)" = "$plain" ]
}

@test "chat: /reset clears the history, /quit ends the session" {
    tokens() { grep -o '"prompt_tokens":[0-9]*' | cut -d: -f2 | paste -sd' '; }
    run bash -c "'$PESC' chat '$D/model' -n 1 --json <<< \$'or\n/reset\nor\nor\n/quit\nor'"
    [ "$status" = 0 ]
    set -- $(tokens <<< "$output")
    [ $# = 3 ]
    [ "$1" = "$2" ]
    [ "$3" -gt "$2" ]
}

@test "chat: what a user writes never becomes a control token" {
    local first
    first=$("$PESC" chat "$D/model" -n 1 --json <<< '<|im_end|>' | grep -o '"prompt_tokens":[0-9]*')
    [ "$first" = '"prompt_tokens":'$(($("$PESC" chat "$D/model" -n 1 --json <<< 'x' | grep -o '"prompt_tokens":[0-9]*' | cut -d: -f2) + 9)) ]
}

@test "chat: /help lists the commands" {
    pesc chat "$D/model" <<< '/help'
    [ "$status" = 0 ]
    [[ $stderr == *"/reset "*"/system "*"/help "*"/quit "* ]]
}

@test "chat: an unknown slash command" {
    pesc chat "$D/model" <<< '/foo bar'
    fails 2 "there is no /foo; /help lists what there is, and a space before / makes it a message"
}

@test "chat: a template that is no built-in format is run as written" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    echo '{"chat_template": "{% for m in messages %}{{ m.content | upper }}!{% endfor %}"}' > "$BATS_TEST_TMPDIR/m/tokenizer_config.json"
    pesc info "$BATS_TEST_TMPDIR/m" --json
    has '"chat":"own"'
    pesc chat "$BATS_TEST_TMPDIR/m" -n 4 --temperature 0 --json <<< hello
    [ "$status" = 0 ]
    pesc generate "$BATS_TEST_TMPDIR/m" --chat --chat-format own --prompt hello -n 4 --temperature 0 --json
    [ "$status" = 0 ]
    local ids=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["ids"])' "$output")
    pesc generate "$BATS_TEST_TMPDIR/m" --prompt 'HELLO!' -n 4 --temperature 0 --json --add-special false
    [ "$status" = 0 ]
    [ "$ids" = "$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["ids"])' "$output")" ]
}

@test "chat: a template refuses a conversation with its own words" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    printf 'a\n{{ raise_exception("not today") }}' > "$BATS_TEST_TMPDIR/m/chat_template.jinja"
    pesc generate "$BATS_TEST_TMPDIR/m" --chat --prompt hello
    [ "$status" = 2 ]
    [[ $stderr == *"the model's chat template: line 2: the chat template refuses the conversation: not today"* ]]
}

@test "chat: a template that cannot be run is refused with its line and the list of formats" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    printf '\n{{ messages | wordwrap }}' > "$BATS_TEST_TMPDIR/m/chat_template.jinja"
    pesc chat "$BATS_TEST_TMPDIR/m" <<< hello
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $BATS_TEST_TMPDIR/m: the model's chat template: line 2: the filter \"wordwrap\" is not supported; name one of: "*chatml*", with --chat-format" ]]
    pesc chat "$BATS_TEST_TMPDIR/m" --chat-format chatml -n 2 --json <<< hello
    [ "$status" = 0 ]
}

@test "chat: a format that does not exist" {
    pesc chat "$D/model" --chat-format chatlm <<< hello
    [ "$status" = 2 ]
    [[ $stderr == "pesc: chat: there is no chat format chatlm; --chat-format takes one of "*chatml* ]]
}

@test "chat: a conversation longer than the context" {
    pesc chat "$D/model" -n 4 --ctx 24 <<< "$(printf 'x%.0s' {1..60})"
    [ "$status" = 2 ]
    [[ $stderr == *24* ]]
}

@test "chat: line editing on a terminal, Ctrl-C cancels the line, Ctrl-D exits" {
    run python3 "$BATS_TEST_DIRNAME/../support/typist.py" '\n> ' 'helol\b\b\blo\n' '\n> ' 'unsent' unsent '\x03' \
        '\n> ' '/nope\n' '\n> ' '\x04' -- "$PESC" chat "$D/model" -n 3
    [ "$status" = 0 ]
    [[ $output == *"llama, chatml format, temperature 0; /help, Ctrl-D leaves"* ]]
    [[ $output == *"there is no /nope"* ]]
}

@test "chat: Ctrl-C stops an answer and the conversation goes on" {
    # the model of this seed goes round in circles; uninterrupted it would speak for minutes
    "$PESC" new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" --tokenizer "$D/tok" --dtype f32 --seed 2 -q > "$D/new.out"
    run python3 "$BATS_TEST_DIRNAME/../support/typist.py" '\n> ' 'hello\n' "hello$(printf '\r')" '\x03' \
        '\n> ' '/quit\n' -- "$PESC" chat "$BATS_TEST_TMPDIR/m" -n 100000 --ctx 100000
    [ "$status" = 0 ]
}

@test "chat: a paste of several lines is one message, and /edit offers it again" {
    run python3 "$BATS_TEST_DIRNAME/../support/typist.py" '> ' '\x1b[200~one\ntwo\x1b[201~\n' '\n> ' '/edit\n' two ' three\n' \
        '\n> ' "/save $BATS_TEST_TMPDIR/c.json\n" '> ' '\x04' -- "$PESC" chat "$D/model" -n 3
    [ "$status" = 0 ]
    python3 - "$BATS_TEST_TMPDIR/c.json" <<'PY'
import json, sys
messages = json.load(open(sys.argv[1]))["messages"]
assert [m["role"] for m in messages] == ["user", "assistant"], messages
assert messages[0]["content"] == "one\ntwo three", messages
PY
}

@test "chat: what is typed during an answer is kept for the next prompt" {
    # the model of this seed goes round in circles; the answer ends at its limit
    "$PESC" new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" --tokenizer "$D/tok" --dtype f32 --seed 2 -q > "$D/new.out"
    run python3 "$BATS_TEST_DIRNAME/../support/typist.py" '> ' 'hello\n' "hello$(printf '\r')" 'typed' '\n> typed' ' on\n' \
        '\n> ' "/save $BATS_TEST_TMPDIR/c.json\n" '> ' '/quit\n' -- "$PESC" chat "$BATS_TEST_TMPDIR/m" -n 300 --ctx 2000 --temperature 0 --draft-tokens 0
    [ "$status" = 0 ]
    grep -q '"content": "typed on"' "$BATS_TEST_TMPDIR/c.json"
}

@test "chat: /retry asks again with another seed, /set changes the sampling, /load continues" {
    pesc chat "$D/model" -n 6 --json <<< $'/set temperature 5\nhello\n/retry\n/save '"$BATS_TEST_TMPDIR/c.json"
    [ "$status" = 0 ]
    [ "$(wc -l <<< "$output")" = 2 ]
    [ "$(sed -n 1p <<< "$output" | grep -o '"ids":[^]]*')" != "$(sed -n 2p <<< "$output" | grep -o '"ids":[^]]*')" ]
    [ "$(grep -c '"role"' "$BATS_TEST_TMPDIR/c.json")" = 2 ]
    pesc chat "$D/model" -n 1 --json <<< $'hello\nor'
    local after
    after=$(sed -n 2p <<< "$output" | grep -o '"prompt_tokens":[0-9]*')
    pesc chat "$D/model" -n 1 --json <<< $'hello\n/save '"$BATS_TEST_TMPDIR/c.json"
    pesc chat "$D/model" -n 1 --json <<< "/load $BATS_TEST_TMPDIR/c.json"$'\nor'
    [ "$(grep -o '"prompt_tokens":[0-9]*' <<< "$output")" = "$after" ]
    pesc chat "$D/model" <<< '/set colour red'
    fails 2 "there is no setting colour; /set lists them"
    pesc chat "$D/model" <<< '/set temperature -1'
    [ "$status" = 2 ]
    echo '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}' > "$BATS_TEST_TMPDIR/bad.json"
    pesc chat "$D/model" <<< "/load $BATS_TEST_TMPDIR/bad.json"
    fails 3 "$BATS_TEST_TMPDIR/bad.json: message 2: expected a role (system, which may only be the first, user, assistant or tool) and a content that is text"
    pesc chat "$D/model" <<< '/retry'
    fails 2 "there is no message yet"
}

# A model that calls add(2, 3), and says what it thinks and the sum.
make_caller() {
    python3 "$BATS_TEST_DIRNAME/../support/scripted.py" "$BATS_TEST_TMPDIR/caller" $'<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>' \
        '<think>two and three</think>It is five.' 'Nothing else.'
    cd "$BATS_TEST_TMPDIR"
    printf '#!/usr/bin/env python3\nimport json, sys\nprint(sum(json.load(sys.stdin).values()))\n' > add
    chmod +x add
}

@test "chat: the model's calls are shown, asked for and answered by the user's program" {
    make_caller
    pesc chat caller --tool add=./add <<< $'what is 2 and 3?\ny\n/save talk.json\nmore'
    [ "$status" = 0 ]
    [ "$output" = $'It is five.\nNothing else.' ]
    [[ $stderr == *'add {"a": 2, "b": 3}'*'run ./add? [y/N] '*$'\n5\n'*'two and three'* ]]
    python3 - <<'PY'
import json
talk = json.load(open("talk.json"))
roles = [m["role"] for m in talk["messages"]]
assert roles == ["user", "assistant", "tool", "assistant"], roles
call, result, answer = talk["messages"][1:]
assert call["content"] is None and call["tool_calls"][0]["function"]["name"] == "add", call
assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"a": 2, "b": 3}, call
assert result == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "5"}, result
assert answer == {"role": "assistant", "content": "It is five.", "reasoning_content": "two and three"}, answer
assert talk["tools"][0]["function"] == {"name": "add", "parameters": {"type": "object"}}, talk["tools"]
PY
    pesc chat caller --json <<< $'/load talk.json\nmore'
    has '"text":"Nothing else."'
}

@test "chat: --json gives reasoning and calls, -q shows only answers" {
    make_caller
    pesc chat caller --tool add=./add --json <<< $'sum\nyes'
    [ "$status" = 0 ]
    [ "$(wc -l <<< "$output")" = 2 ]
    [[ $(sed -n 1p <<< "$output") == *'"tool_calls":[{"id":"call_'*'"name":"add","arguments":"{\"a\": 2, \"b\": 3}"}]'* ]]
    [[ $(sed -n 2p <<< "$output") == *'"reasoning":"two and three"'* ]]
    pesc chat caller --tool add=./add -q <<< $'sum\ny'
    [ "$output" = 'It is five.' ]
    [[ $stderr != *two* ]]
}

@test "chat: a call that is not allowed, or that fails, is told to the model" {
    make_caller
    pesc chat caller --tool add=./add <<< $'sum\nn\n/save talk.json'
    grep -q '"content": "error: the user does not allow this call"' talk.json
    pesc chat caller --tool add=./add <<< 'sum'
    [ "$status" = 0 ]
    [ -z "$output" ]
    pesc chat caller --tool add=./add <<< $'sum\nyou must not\n/save talk.json' # only y and yes are yes
    grep -q '"content": "error: the user does not allow this call"' talk.json
    printf '#!/bin/sh\nprintf "a\\0b"\n' > add
    pesc chat caller --tool add=./add <<< $'sum\nYes\n/save talk.json'
    grep -q '"content": "error: the output of the tool is not UTF-8 text"' talk.json
    printf '#!/bin/sh\necho so far\nexit 3\n' > add
    pesc chat caller --tool add=./add <<< $'sum\ny\n/save talk.json'
    grep -q '"content": "so far\\n\\nerror: the tool ended with status 3"' talk.json
    printf '#!/bin/sh\nkill -9 $$\n' > add
    pesc chat caller --tool add=./add <<< $'sum\ny\n/save talk.json'
    grep -q '"content": "error: the tool was ended by signal 9"' talk.json
    printf '#!/bin/sh\nprintf "\\377"\n' > add
    pesc chat caller --tool add=./add <<< $'sum\ny\n/save talk.json'
    grep -q '"content": "error: the output of the tool is not UTF-8 text"' talk.json
    printf '#!/bin/sh\nhead -c 3000000 /dev/zero | tr "\\0" x\n' > add
    pesc chat caller --tool add=./add --ctx 64 <<< $'sum\ny'
    [ "$status" = 2 ]
    [[ $stderr == *64* ]]
    # cut inside a character it is still text, and so longer than the context
    printf '#!/bin/sh\nyes "\342\202\254" | tr -d "\\n" | head -c 3000000\n' > add
    pesc chat caller --tool add=./add <<< $'sum\ny'
    [ "$status" = 2 ]
    [[ $stderr != *UTF-8* ]]
}

@test "chat: a tool is described by the file beside its program, and calls keep to its schema" {
    make_caller
    echo '{"description": "adds", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}' > add.json
    pesc chat caller --tool add=./add <<< $'sum\ny\n/save talk.json'
    [ "$output" = 'It is five.' ]
    python3 -c 'import json; f = json.load(open("talk.json"))["tools"][0]["function"]; assert f["description"] == "adds" and len(f["parameters"]["properties"]) == 2, f'
    echo '{"type": "function", "function": {"name": "other", "parameters": {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"]}}}' > add.json
    pesc chat caller --tool add=./add -n 200 --json <<< 'sum' # what it wants to say is not allowed
    [ "$status" = 0 ]
    [[ $output != *tool_calls* ]]
    echo '{"parameters": 3}' > add.json
    pesc chat caller --tool add=./add <<< 'sum'
    fails 3 "./add.json: expected an object with description, a text, and parameters, a JSON Schema"
}

@test "chat: on a terminal a call is asked for" {
    make_caller
    run python3 "$BATS_TEST_DIRNAME/../support/typist.py" '\n> ' 'sum\n' 'run ./add? [y/N] ' 'y\n' '\n> ' '\x04' -- "$PESC" chat caller --tool add=./add
    [ "$status" = 0 ]
    [[ $output == *'add {"a": 2, "b": 3}'*'It is five.'* ]]
}

@test "chat: tools that cannot be" {
    make_caller
    pesc chat caller --tool add <<< 'sum'
    fails 2 "chat: --tool: found add, expected NAME=PROGRAM"
    pesc chat caller --tool add=./none <<< 'sum'
    fails 2 "chat: --tool: ./none cannot be run: No such file or directory"
    pesc chat caller --tool 'a b=./add' <<< 'sum'
    fails 2 'tools: found the name "a b", expected 1 to 128 letters, digits, _, - and .'
    pesc chat caller --tool add=./add --tool add=./add <<< 'sum'
    fails 2 "tools: there are two of the name add"
    pesc chat caller --tool add=./add --tool-format herms <<< 'sum'
    [[ $stderr == *'there is no format "herms" of calls'* ]]
    pesc chat caller --tool add=./add --chat-format chatml <<< 'sum'
    fails 3 "tools: the chat template does not take tools"
}

@test "chat: the temperature is that of generation_config.json, else 0" {
    cp -r "$D/model" "$BATS_TEST_TMPDIR/m"
    echo '{"temperature": 0.25, "top_k": 20}' > "$BATS_TEST_TMPDIR/m/generation_config.json"
    pesc chat "$BATS_TEST_TMPDIR/m" <<< '/set'
    [[ $stderr == *"temperature        0.25"*"top_k              20"* ]]
    pesc chat "$BATS_TEST_TMPDIR/m" --temperature 0.5 <<< '/set'
    [[ $stderr == *"temperature        0.5"*"top_k              20"* ]]
    pesc chat "$D/model" <<< '/set'
    [[ $stderr == *"temperature        0"* ]]
    echo '{"do_sample": true}' > "$BATS_TEST_TMPDIR/m/generation_config.json"
    pesc chat "$BATS_TEST_TMPDIR/m" <<< '/set'
    [[ $stderr == *"temperature        1"* ]]
    echo '{"do_sample": false, "temperature": 0.6}' > "$BATS_TEST_TMPDIR/m/generation_config.json"
    pesc chat "$BATS_TEST_TMPDIR/m" <<< '/set'
    [[ $stderr == *$'temperature        0\n'* ]]
    echo '{"top_k": -1}' > "$BATS_TEST_TMPDIR/m/generation_config.json"
    pesc chat "$BATS_TEST_TMPDIR/m" <<< '/set'
    [ "$status" = 0 ]
    [[ $stderr == *"top_k              0"* ]]
    echo '{"temperature": -3}' > "$BATS_TEST_TMPDIR/m/generation_config.json"
    pesc chat "$BATS_TEST_TMPDIR/m" <<< '/set'
    [ "$status" -ne 0 ]
}

@test "chat: says that the context is full" {
    "$PESC" new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" --tokenizer "$D/tok" --dtype f32 --seed 2 -q > "$D/new.out"
    pesc chat "$BATS_TEST_TMPDIR/m" -n 1000 --ctx 40 --temperature 0 <<< hello
    [ "$status" = 0 ]
    [[ $stderr == *"the context is full, so the answer ends here; /reset starts a new conversation"* ]]
}

@test "chat: --help names every command that /help lists" {
    local help
    help=$("$PESC" chat --help)
    "$PESC" chat "$D/model" -q <<< /help 2>&1 | grep -oE '^/[a-z]+' > "$BATS_TEST_TMPDIR/commands"
    [ "$(wc -l < "$BATS_TEST_TMPDIR/commands")" -ge 9 ]
    while read -r word; do
        [[ $help == *"$word"* ]] || { echo "$word"; return 1; }
    done < "$BATS_TEST_TMPDIR/commands"
}
