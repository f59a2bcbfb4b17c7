# The front door, with a budget of a few steps: every part of it must be there; how good the numbers
# are is the study's business.
load helper

setup() { export PESC_SHARE=$BATS_TEST_DIRNAME/../../share; }

@test "demo: the table, the routing map, the plots and the chat" {
    local demo=$BATS_TEST_TMPDIR/a/demo number='( +[0-9]+\.[0-9]+)'
    pesc demo -o "$demo" --epochs 0.02
    [ "$status" = 0 ]
    has '^identity: 0 of 32768 logits differ$'
    [ "$(grep -Ec "^[a-z(), A-Z]+${number}{8} *\$" "$demo/table.txt")" = 5 ]
    [ "$(grep -Ec "^[a-z(), A-Z]+${number}{3} +[0-9]+ +[0-9]+\$" "$demo/table.txt")" = 4 ]
    [ "$(grep -Ec "^[a-z(), A-Z]+ +[0-9]+\.[0-9] +-?[0-9]+\.[0-9]{2}\$" "$demo/table.txt")" = 5 ] # pairs
    grep -Eq "^sparse tuned, then DPO${number}{8}" "$demo/table.txt"
    grep -Eq "^dense base ${number}{2}( +-){3}\$" "$demo/table.txt"
    [[ $output == *"$(cat "$demo/table.txt")"* ]]
    has 'general \(.*code \(.*maths \('
    [ "$(grep -c '^model  ' <<< "$output")" = 3 ]
    while read -r _ question; do # what is asked is held out
        grep -qF "\"instruction\": \"$question\"" "$PESC_SHARE/test.jsonl"
    done < <(grep '^you ' <<< "$output")
    for f in plots/routing camelidae/plots/loss camelidae/plots/experts camel/plots/loss; do
        [ -s "$demo/$f.svg" ]
        [ -s "$demo/$f.png" ]
    done
    # what was left is a model, and the command shown is the one that made it
    pesc info "$demo/camelidae"
    has '^family +camelidae'
}

@test "demo: as installed, as JSON, and again in the same place" {
    mkdir -p "$BATS_TEST_TMPDIR/bin" "$BATS_TEST_TMPDIR/share"
    cp "$PESC" "$BATS_TEST_TMPDIR/bin/pesc"
    ln -s "$(realpath "$PESC_SHARE")" "$BATS_TEST_TMPDIR/share/pesc"
    unset PESC_SHARE
    PESC=$BATS_TEST_TMPDIR/bin/pesc
    cd "$BATS_TEST_TMPDIR"
    for _ in 1 2; do
        pesc demo --epochs 0.01 --json -q
        [ "$status" = 0 ]
        [ -z "$stderr" ]
        has '^\{"output":"pesc-demo","steps":\[\{"path":"[^"]*/share/pesc/base",.*\],"models":\[\{"name":"dense base".*\],"chat":\[\{"question":.*"seconds":[0-9.]+\}$'
        python3 -m json.tool "$BATS_TEST_TMPDIR/stdout" > /dev/null
    done
}

@test "demo: without the base" {
    PESC_SHARE=$BATS_TEST_TMPDIR/none
    pesc demo -o "$BATS_TEST_TMPDIR/demo"
    fails 3 "demo: the embedded base is not in $PESC_SHARE; set PESC_SHARE to the directory that holds base/, train.jsonl, test.jsonl and tune.yaml (share/ of the sources)"
    [ ! -e "$BATS_TEST_TMPDIR/demo" ]
}
