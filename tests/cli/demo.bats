# The front door, with a budget of a few steps: every part of it must be there; how good the numbers
# are is the study's business.
load helper

@test "demo: the table, the map, the pictures and the chat" {
    local demo=$BATS_TEST_TMPDIR/demo
    run env PESC="$PESC" DEMO="$demo" EPOCHS=0.02 "$BATS_TEST_DIRNAME/../../share/demo.sh"
    [ "$status" = 0 ]
    has '^identity: 0 of 32768 logits differ$'
    local number='( +[0-9]+\.[0-9]+)'
    [ "$(grep -Ec "^[a-z(), A-Z]+${number}{8} *\$" "$demo/table.txt")" = 4 ]
    [ "$(grep -Ec "^[a-z(), A-Z]+${number}{3} +[0-9]+ +[0-9]+\$" "$demo/table.txt")" = 3 ]
    grep -Eq "^dense base ${number}{2}( +-){3}\$" "$demo/table.txt"
    has 'general \(.*code \(.*maths \('
    has '^you    '
    has '^model  '
    for f in plots/routing camelidae/plots/loss camelidae/plots/experts camel/plots/loss; do
        [ -s "$demo/$f.svg" ] && [ -s "$demo/$f.png" ]
    done
    # and again in the same place
    run env PESC="$PESC" DEMO="$demo" EPOCHS=0.01 "$BATS_TEST_DIRNAME/../../share/demo.sh"
    [ "$status" = 0 ]
}

@test "study: a tiny one is made, resumed and reported" {
    study() {
        env PESC="$PESC" STUDY="$BATS_TEST_TMPDIR/s" REPORT="$BATS_TEST_TMPDIR/study.md" EPOCHS=0.01 SEEDS="0 1" \
            METHODS="lora-r8 pesc-4 pesc-8" "$BATS_TEST_DIRNAME/../../tools/study.sh" 2> "$BATS_TEST_TMPDIR/log"
    }
    study
    [ "$(wc -l < "$BATS_TEST_TMPDIR/log")" = 12 ] # 3 rates and another seed, 3 methods
    grep -Eq '^\| pesc-8 \| 8 adapters of 64, LoRA 8 \| 606 \| 988 \| ' "$BATS_TEST_TMPDIR/study.md"
    grep -Eq '^\| pesc-8 - lora-r8 \| rank \| [-+][0-9.]+, (in|out)side the spread \| ' "$BATS_TEST_TMPDIR/study.md"
    cp "$BATS_TEST_TMPDIR/study.md" "$BATS_TEST_TMPDIR/before.md"
    study
    [ ! -s "$BATS_TEST_TMPDIR/log" ]
    cmp "$BATS_TEST_TMPDIR/before.md" "$BATS_TEST_TMPDIR/study.md"
}
