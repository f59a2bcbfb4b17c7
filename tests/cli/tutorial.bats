# docs/tutorial.md is what one sees: its commands are run and what they print is compared, but for numbers.
load helper

@test "tutorial: every command prints what the page shows" {
    run python3 "$BATS_TEST_DIRNAME/../support/tutorial.py" "$BATS_TEST_DIRNAME/../../docs/tutorial.md" "$PESC"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    has '^9 commands, 0 print something else$'
}
