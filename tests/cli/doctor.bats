load helper

@test "doctor: a line for each thing" {
    pesc doctor
    [ "$status" = 0 ]
    has '^ok +pesc +'
    has '^(ok|missing|note) +cuda +'
    # beside no CUDA part, the sentence to its end
    cp "$PESC" "$BATS_TEST_TMPDIR/pesc"
    [[ $("$BATS_TEST_TMPDIR/pesc" doctor) == *"or use cpu"* ]]
}

@test "doctor: JSON" {
    pesc doctor --json
    [ "$status" = 0 ]
    has '^\{"version":"[0-9.]+","checks":\[\{"name":"[^"]+","state":"(ok|missing|note)","detail":"[^"]*"\}'
}

@test "doctor: takes no argument" {
    pesc doctor x
    fails 2 'doctor: unexpected argument "x"; usage: pesc doctor '
}
