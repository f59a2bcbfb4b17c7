load helper
setup_file() { make_model; }

@test "bench: prefill and decode, best and median" {
    pesc bench "$D/model" --prompt-tokens 32 --decode-tokens 4 --repeat 2
    [ "$status" = 0 ]
    has '^device +'
    has '^prefill +best [0-9.]+, median [0-9.]+ tokens/s$'
    has '^decode +best [0-9.]+, median [0-9.]+ tokens/s$'
}

@test "bench: JSON" {
    pesc bench "$D/model" --prompt-tokens 32 --decode-tokens 4 --repeat 3 --json
    [ "$status" = 0 ]
    has '"prompt_tokens":32,"decode_tokens":4,"load_seconds":'
    has '"prefill":\{"unit":"tokens/s","best":[0-9.e+]+,"median":[0-9.e+]+,"runs":3\}'
    has '"decode":\{"unit":"tokens/s",'
}

@test "bench: a profile has the operations of prefill and of a token" {
    pesc bench "$D/model" --prompt-tokens 32 --decode-tokens 4 --repeat 1 --profile
    [ "$status" = 0 ]
    has '^prefill, operation by operation: [0-9.]+ ms$'
    has '^a token, operation by operation: [0-9.]+ ms$'
    has '^  matmul [a-z0-9_]+(, thin)? +[0-9]+ calls +[0-9.]+ ms +[0-9.]+ %  weights at [0-9.]+ GB/s$'
    [ "$(grep -c '^  attention_fwd ' <<< "$output")" = 2 ]
    pesc bench "$D/model" --prompt-tokens 32 --decode-tokens 4 --repeat 1 --profile --json
    # a token has one attention a layer, and the shares add up to 1
    python3 -c '
import json, sys
bench, layers = json.loads(sys.argv[1]), int(sys.argv[2])
for part in ("prefill", "decode"):
    rows = bench["profile"][part]
    assert abs(sum(r["share"] for r in rows) - 1) < 1e-2, rows
    assert next(r["calls"] for r in rows if r["op"] == "attention_fwd") == layers, rows
' "$output" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["num_hidden_layers"])' "$D/model/config.json")"
}

@test "bench: the threads asked for" {
    pesc bench "$D/model" --prompt-tokens 8 --decode-tokens 1 --repeat 1 --threads 3
    has '^device +cpu.*3 threads'
}

@test "bench: a long run reports its progress, unless -q" {
    local long=(bench "$D/model" --decode-tokens 90 --prompt-tokens 30 --repeat 10000)
    run bash -c "timeout 2 '$PESC' ${long[*]@Q} 2>&1"
    [[ $output == "pesc: bench: runs "*"/10001, "*" s left" ]]
    run bash -c "timeout 2 '$PESC' ${long[*]@Q} -q 2>&1"
    [ -z "$output" ]
}

@test "bench: the progress fits the terminal" {
    local long="timeout 2 '$PESC' bench '$D/model' --decode-tokens 90 --prompt-tokens 30 --repeat 10000"
    for columns in 20 60; do
        run script -qec "stty cols $columns; $long" /dev/null
        [[ $output == *"runs "*"%"* ]]
        tr '\r' '\n' <<< "$output" | sed 's/\x1b\[K//g' > "$BATS_TEST_TMPDIR/lines"
        [ -z "$(awk -v most=$columns 'length >= most' "$BATS_TEST_TMPDIR/lines")" ]
    done
    grep -q '\[[#.]*\]' "$BATS_TEST_TMPDIR/lines"
}

@test "bench: a tokenizer on a text" {
    printf 'hello world %.0s' {1..2000} > "$BATS_TEST_TMPDIR/t"
    pesc bench --text "$BATS_TEST_TMPDIR/t" "$D/tok/tokenizer.json" --repeat 2
    [ "$status" = 0 ]
    has '^text +24000 bytes, [0-9]+ tokens$'
    has '^encode +best [0-9.]+, median [0-9.]+ MB/s$'
    pesc bench --text "$BATS_TEST_TMPDIR/t" "$D/model" --repeat 2 --json
    has '"bytes":24000,"tokens":[0-9]+,"encode":\{"unit":"MB/s","best":'
}

@test "bench: usage errors" {
    pesc bench
    fails 2 "bench: MODEL is missing; usage: pesc bench MODEL | serve URL"
    pesc bench "$D/model" --repeat 0
    fails 2 'bench: --repeat: found "0", expected a whole number from 1 to 1000000'
    pesc bench --text /dev/null "$D/model"
    fails 3 "/dev/null: found no text, expected some to encode"
    pesc bench "$D/model" --prompt-tokens 2147483647 --decode-tokens 2
    fails 2 "bench: found 2147483649 tokens in a run, expected at most 2147483647"
}
