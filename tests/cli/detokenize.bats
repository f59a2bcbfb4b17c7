load helper
setup_file() { make_model; }

@test "detokenize: ids with any separator" {
    pesc detokenize "$D/model" <<< "259 260,261
108	100"
    gives "hello world"
}

@test "detokenize: a JSON array, or an object that holds one" {
    pesc detokenize "$D/model" <<< "[259, 10]"
    gives "hello"
    pesc detokenize "$D/model" <<< '{"ids": [259], "count": 1}'
    gives "hello"
    echo '{"input_ids": [259]}' > "$BATS_TEST_TMPDIR/i"
    pesc detokenize "$D/model" "$BATS_TEST_TMPDIR/i" --json
    gives '{"text":"hello"}'
}

@test "detokenize: inverts tokenize byte for byte" {
    printf 'hello \360\237\246\231 w\303\266rld\n\n  x\t\0y' > "$BATS_TEST_TMPDIR/t"
    "$PESC" tokenize "$D/model" "$BATS_TEST_TMPDIR/t" | "$PESC" detokenize "$D/model" > "$BATS_TEST_TMPDIR/back"
    cmp "$BATS_TEST_TMPDIR/t" "$BATS_TEST_TMPDIR/back"
}

@test "detokenize: control tokens, kept or skipped" {
    pesc detokenize "$D/model" <<< "262 259 263"
    gives "<s>hello</s>"
    pesc detokenize "$D/model" --skip-special <<< "262 259 263"
    gives "hello"
}

@test "detokenize: lines of JSON; half a character becomes U+FFFD" {
    pesc detokenize "$D/model" --jsonl - <<< $'[259]\n[34,92,10]\n[195]\n[]'
    gives $'"hello"\n"\\"\\\\\\n"\n"\357\277\275"\n""'
}

@test "detokenize: no ids give no text" {
    pesc detokenize "$D/model" < /dev/null
    gives ""
}

@test "detokenize: input that is not an id" {
    pesc detokenize "$D/model" <<< "1 2 x3"
    fails 3 'standard input: byte 4: found "x3", expected a token id from 0 to 2147483647'
    pesc detokenize "$D/model" <<< "1 -2"
    fails 3 'standard input: byte 2: found "-2", expected a token id from 0 to 2147483647'
    pesc detokenize "$D/model" <<< '[1, "a"]'
    fails 3 'standard input: [1]: found a string, expected a token id from 0 to 2147483647'
    pesc detokenize "$D/model" <<< '[1, 99999999999]'
    fails 3 'standard input: [1]: found a number out of range, expected a token id from 0 to 2147483647'
    pesc detokenize "$D/model" <<< '[-1]'
    fails 3 'standard input: [0]: found a number out of range, expected a token id from 0 to 2147483647'
    pesc detokenize "$D/model" <<< '[1, 2.5]'
    fails 3 'standard input: [1]: found a fraction, expected a token id from 0 to 2147483647'
    pesc detokenize "$D/model" <<< '{"tokens": [1]}'
    fails 3 'standard input: found nothing, expected an array of token ids'
    pesc detokenize "$D/model" <<< '[1, 2'
    [ "$status" = 3 ]
    [[ $stderr == "pesc: standard input: byte "*": this is not JSON: "* ]]
    pesc detokenize "$D/model" --jsonl - <<< $'[1]\n"a"'
    fails 3 'standard input:2: found a string, expected an array of token ids'
}

@test "detokenize: ids inside an object, with any white space" {
    pesc detokenize "$D/model" <<< '{"a": [1, {"ids": [7]}], "input_ids": [1], "s": "]}\"", "ids" : [ 259 , 259 ] }'
    gives "hellohello"
    pesc detokenize "$D/model" <<< '{"ids": [259], "x": tru}'
    [ "$status" = 3 ]
    [[ $stderr == *"this is not JSON"* ]]
    pesc detokenize "$D/model" <<< '{"ids": [259], "ids": [259]}'
    [ "$status" = 3 ]
    pesc detokenize "$D/model" <<< '[259] x'
    fails 3 'standard input: byte 6: this is not JSON: expected nothing more'
    pesc detokenize "$D/model" <<< '[259 259]'
    fails 3 "standard input: byte 5: this is not JSON: expected ',' or ']'"
    pesc detokenize "$D/model" <<< '[259,]'
    fails 3 'standard input: byte 5: this is not JSON: expected a value'
    pesc detokenize "$D/model" <<< '[0259]'
    fails 3 'standard input: byte 5: this is not JSON: expected a number without zeros before it'
    pesc detokenize "$D/model" <<< '[[259], 7]'
    fails 3 'standard input: [1]: found a number of length 0, expected an array of length 1 as the first'
}

@test "detokenize: ten million ids in little memory" {
    { printf '['; yes 1, | head -n 10000000 | tr -d '\n'; printf '1]'; } > "$BATS_TEST_TMPDIR/many"
    run bash -c "ulimit -v 400000; '$PESC' detokenize '$D/model' '$BATS_TEST_TMPDIR/many' | wc -c"
    [ "$status" -eq 0 ]
    [ "$output" = 10000001 ]
}

@test "detokenize: an id the tokenizer does not have" {
    pesc detokenize "$D/model" <<< "5000"
    [ "$status" != 139 ]
    [ "$status" = 0 ] || [ "$status" = 2 ] || [ "$status" = 3 ]
}
