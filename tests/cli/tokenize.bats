load helper
setup_file() { make_model; }

@test "tokenize: a text from standard input, one line of ids" {
    pesc tokenize "$D/tok/tokenizer.json" <<< "hello world"
    gives "259 260 261 108 100 10"
}

@test "tokenize: a file; a directory has the same tokenizer" {
    printf 'hello h\303\251' > "$BATS_TEST_TMPDIR/t"
    pesc tokenize "$D/model" "$BATS_TEST_TMPDIR/t"
    gives "259 32 104 195 169"
}

@test "tokenize: JSON" {
    pesc tokenize "$D/model" --json < <(printf hello)
    gives '{"ids":[259],"count":1}'
}

@test "tokenize: empty text gives no ids" {
    pesc tokenize "$D/model" --json < /dev/null
    gives '{"ids":[],"count":0}'
    pesc tokenize "$D/model" < /dev/null
    gives ""
}

@test "tokenize: control tokens only when asked for" {
    pesc tokenize "$D/model" < <(printf '<s>')
    gives "60 115 62"
    pesc tokenize "$D/model" --parse-special < <(printf '<s>')
    gives "262"
    pesc tokenize "$D/model" --add-special < <(printf 'or')
    gives "262 261"
    pesc tokenize "$D/model" --add-special false < <(printf 'or')
    gives "261"
}

@test "tokenize: bytes that are not UTF-8 are read as U+FFFD" {
    pesc tokenize "$D/model" < <(printf 'a\377b')
    gives "97 239 191 189 98"
}

@test "tokenize: a NUL is a character" {
    pesc tokenize "$D/model" < <(printf 'a\0b')
    gives "97 0 98"
}

@test "tokenize: lines of JSON" {
    printf '%s\n' '"hello"' '"h\u00e9\n"' '""' > "$BATS_TEST_TMPDIR/l"
    pesc tokenize "$D/model" --jsonl "$BATS_TEST_TMPDIR/l"
    gives $'[259]\n[104,195,169,10]\n[]'
}

@test "tokenize: a line that is not a JSON string" {
    local l=$BATS_TEST_TMPDIR/l
    printf '%s\n' '"a"' '[1]' > "$l"
    pesc tokenize "$D/model" --jsonl "$l"
    fails 3 "$l:2: found an array, expected a string"
    printf '%s\n' '"a"' '"a' > "$l"
    pesc tokenize "$D/model" --jsonl "$l"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $l:2: byte "*": this is not JSON: "* ]]
}

@test "tokenize: usage errors" {
    pesc tokenize
    fails 2 "tokenize: TOKENIZER is missing; usage: pesc tokenize TOKENIZER [FILE]"
    pesc tokenize "$D/model" "$D/nothing"
    fails 3 "$D/nothing: cannot be read: No such file or directory"
    pesc tokenize "$D/model" "$D"
    fails 3 "$D: cannot be read: Is a directory"
    pesc tokenize "$D/model" "$D/config.json" --jsonl x
    fails 2 "tokenize: found FILE and --jsonl, expected one of them"
    pesc tokenize "$D/model" a b
    fails 2 'tokenize: unexpected argument "b"; usage: pesc tokenize TOKENIZER [FILE]'
    pesc tokenize "$D/nothing" < /dev/null
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $D/nothing: "* ]]
    pesc tokenize "$D/config.json" < /dev/null
    [ "$status" = 3 ]
}

@test "tokenize: a closed pipe ends it without an error" {
    head -c 3000000 /dev/zero | tr '\0' 'x' > "$BATS_TEST_TMPDIR/long"
    run bash -c "'$PESC' tokenize '$D/model' '$BATS_TEST_TMPDIR/long' | head -c 4"
    [ "$output" = "120 " ]
}

@test "tokenize: a .tiktoken file is named with what to do" {
    mkdir "$BATS_TEST_TMPDIR/qwen"
    printf 'IQ== 0\nIg== 1\n' > "$BATS_TEST_TMPDIR/qwen/qwen.tiktoken"
    pesc tokenize "$BATS_TEST_TMPDIR/qwen" < /dev/null
    [ "$status" = 3 ]
    [[ $stderr == *"/qwen.tiktoken: is not read as a tokenizer; put a tokenizer.json of the model beside it, or give the model as a GGUF file, which has one"* ]]
}
