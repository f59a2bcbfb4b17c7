load helper
setup_file() { make_model; }
setup() { N=$BATS_TEST_TMPDIR/o.npy; I=$BATS_TEST_TMPDIR/i.json; }

shape_of() { head -c 128 "$1" | tr -d '\0' | grep -ao "'shape': ([^)]*)"; }

@test "logits: a NumPy file of float32" {
    echo '[262, 259, 260]' > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N"
    gives ""
    [ "$(head -c 6 "$N" | od -An -c | tr -d ' ')" = "223NUMPY" ]
    [ "$(shape_of "$N")" = "'shape': (3, 266, )" ]
    [ "$(stat -c %s "$N")" = $((128 + 3 * 266 * 4)) ]
    [ "$(find "$BATS_TEST_TMPDIR" -name 'o.npy*' | wc -l)" = 1 ]
}

@test "logits: several sequences of one length; one by one they are the same" {
    echo '{"input_ids": [[262, 259], [10, 11]]}' > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N" --json
    gives "{\"path\":\"$N\",\"shape\":[2,2,266]}"
    [ "$(shape_of "$N")" = "'shape': (2, 2, 266, )" ]
    "$PESC" logits "$D/model" --ids - -o "$N.one" <<< '[10, 11]'
    cmp <(tail -c $((2 * 266 * 4)) "$N") <(tail -c $((2 * 266 * 4)) "$N.one")
}

@test "logits: do not depend on the number of threads" {
    echo '[262, 259, 260, 1, 2, 3, 4, 5, 6, 7]' > "$I"
    "$PESC" logits "$D/model" --ids "$I" -o "$N" --threads 1
    "$PESC" logits "$D/model" --ids "$I" -o "$N.2" --threads 3
    cmp "$N" "$N.2"
}

@test "logits: bf16 and nf4 give different values of the same shape" {
    echo '[262, 259]' > "$I"
    "$PESC" logits "$D/model" --ids "$I" -o "$N"
    for t in bf16 nf4; do
        pesc logits "$D/model" --ids "$I" -o "$N.$t" --base-dtype $t
        gives ""
        [ "$(shape_of "$N.$t")" = "'shape': (2, 266, )" ]
        refute cmp -s "$N" "$N.$t"
    done
    pesc logits "$D/model" --ids "$I" -o "$N.c" --compute-dtype bf16
    gives ""
}

@test "logits: usage errors" {
    echo '[1]' > "$I"
    pesc logits "$D/model" -o "$N"
    fails 2 "logits: --ids FILE.json is missing; usage: pesc logits MODEL --ids FILE.json -o OUT.npy"
    pesc logits "$D/model" --ids "$I"
    fails 2 "logits: -o OUT.npy is missing; usage: pesc logits MODEL --ids FILE.json -o OUT.npy"
    pesc logits "$D/model" --ids "$D/nothing" -o "$N"
    fails 3 "$D/nothing: cannot be read: No such file or directory"
    echo '[[1, 2], [3]]' > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N"
    fails 3 "$I: [1]: found an array of length 1, expected an array of length 2 as the first"
    echo '[]' > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N"
    fails 3 "$I: found no ids, expected at least one"
    echo '3' > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N"
    fails 3 "$I: found a number, expected an array of token ids"
    [ ! -e "$N" ]
}

@test "logits: a link is written through, not replaced" {
    local t=$BATS_TEST_TMPDIR
    echo '[1, 2]' > "$t/ids.json"
    ln -s /proc/self/fd/1 "$t/stdout"
    "$PESC" logits "$D/model" --ids "$t/ids.json" -o "$t/plain.npy"
    "$PESC" logits "$D/model" --ids "$t/ids.json" -o "$t/stdout" > "$t/redirected.npy"
    [ -L "$t/stdout" ]
    cmp "$t/plain.npy" "$t/redirected.npy"
}

@test "logits: an id beyond the vocabulary leaves no file" {
    echo '[1, 266]' > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N"
    [ "$status" = 2 ] || [ "$status" = 3 ]
    [[ $stderr == *266* ]]
    [ -z "$(find "$BATS_TEST_TMPDIR" -name 'o.npy*')" ]
}

@test "logits: an output that cannot be written" {
    echo '[1]' > "$I"
    pesc logits "$D/model" --ids "$I" -o /dev/full
    fails 4 "/dev/full: cannot be written: No space left on device"
    pesc logits "$D/model" --ids "$I" -o "$D/no/o.npy"
    fails 4 "$D/no/o.npy: cannot be written: No such file or directory"
}

@test "logits: a sequence longer than the model's context is reported" {
    printf '[%s1]\n' "$(printf '1, %.0s' {1..128})" > "$I"
    pesc logits "$D/model" --ids "$I" -o "$N"
    [ "$status" = 0 ]
    [ "$stderr" = "pesc: note: $I: a sequence has 129 ids, the model's context is 128: it was not trained on later positions" ]
    pesc logits "$D/model" --ids "$I" -o "$N" -q
    [ -z "$stderr" ]
}
