load helper
setup_file() { make_model; printf 'hello world, %.0s' {1..60} > "$D/text"; }

@test "perplexity: near the vocabulary's size for a model that knows nothing" {
    pesc perplexity "$D/model" "$D/text"
    [ "$status" = 0 ]
    has '^tokens +[0-9]+$'
    has '^loss +[56]\.[0-9]{6}$'
    has '^perplexity +[0-9]+\.[0-9]{4}$'
    has '^speed +[0-9.]+ tokens/s$'
}

@test "perplexity: JSON; the text may come from standard input" {
    pesc perplexity "$D/model" --json --ctx 64 < "$D/text"
    [ "$status" = 0 ]
    has '^\{"tokens":[0-9]+,"loss":[0-9.]+,"perplexity":[0-9.]+,"seconds":[0-9.e-]+,"tokens_per_second":[0-9.]+\}$'
    local first=$output
    pesc perplexity "$D/model" "$D/text" --json --ctx 64
    [ "${output%%,\"seconds*}" = "${first%%,\"seconds*}" ]
}

@test "perplexity: too little text" {
    pesc perplexity "$D/model" /dev/null
    [ "$status" = 2 ] || [ "$status" = 3 ]
    [ -n "$stderr" ]
}

@test "perplexity: what is missing or wrong" {
    pesc perplexity
    fails 2 "perplexity: MODEL is missing; usage: pesc perplexity MODEL [FILE]"
    pesc perplexity "$D/model" "$D/nothing"
    fails 3 "$D/nothing: cannot be read: No such file or directory"
    pesc perplexity "$D/model" "$D/text" --ctx -1
    fails 2 'perplexity: --ctx: found "-1", expected a whole number from 0 to 2147483647'
    "$PESC" new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" -q
    pesc perplexity "$BATS_TEST_TMPDIR/m" "$D/text"
    fails 3 "$BATS_TEST_TMPDIR/m: has no tokenizer, and this needs one: put tokenizer.json or tokenizer.model beside its config.json"
}
