# The front door, with a budget of a few steps: every part of it must be there; how good the numbers
# are is the study's business.
load helper

setup() { export PESC_SHARE=$BATS_TEST_DIRNAME/../../share; }

@test "demo: the table, the routing map, the plots and the chat" {
    local demo=$BATS_TEST_TMPDIR/a/demo number='( +[0-9]+\.[0-9]+)'
    pesc demo -o "$demo" --epochs 0.02
    [ "$status" = 0 ]
    has '^identity: 0 of 32768 logits differ$'
    [ "$(grep -Ec "^[a-z(), A-Z]+${number}{8} *\$" "$demo/table.txt")" = 4 ]
    [ "$(grep -Ec "^[a-z(), A-Z]+${number}{3} +[0-9]+ +[0-9]+\$" "$demo/table.txt")" = 3 ]
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

@test "study: a small study runs, resumes and writes its report" {
    study() {
        env PESC="$PESC" STUDY="$BATS_TEST_TMPDIR/s" REPORT="$BATS_TEST_TMPDIR/study.md" EPOCHS=0.01 SEEDS="0 1" \
            METHODS="lora-r8 pesc-4 pesc-8" "$BATS_TEST_DIRNAME/../../tools/study.sh" 2> "$BATS_TEST_TMPDIR/log"
    }
    study
    [ "$(wc -l < "$BATS_TEST_TMPDIR/log")" = 15 ] # 4 rates and another seed, 3 methods
    grep -Eq '^\| pesc-8 \| 8 adapters of 64, LoRA 8 \| 606 \| 988 \| ' "$BATS_TEST_TMPDIR/study.md"
    grep -Eq '^\| pesc-8 - lora-r8 \| rank \| [-+][0-9.]+, (in|out)side the spread \| ' "$BATS_TEST_TMPDIR/study.md"
    cp "$BATS_TEST_TMPDIR/study.md" "$BATS_TEST_TMPDIR/before.md"
    study
    [ ! -s "$BATS_TEST_TMPDIR/log" ]
    cmp "$BATS_TEST_TMPDIR/before.md" "$BATS_TEST_TMPDIR/study.md"
}

@test "study on a GPU: a small study on the CPU runs, resumes and writes its report" {
    BATS_FILE_TMPDIR=$BATS_TEST_TMPDIR make_model
    local data=$BATS_TEST_TMPDIR/instruct i
    mkdir -p "$data"/{alpaca,dolly,evol-code,gpteacher,gsm8k,math}
    for i in {1..30}; do
        echo "{\"instruction\": \"say $i\", \"input\": \"\", \"output\": \"hello $i\"}" >> "$data/alpaca/alpaca_union.jsonl"
        echo "{\"instruction\": \"tell $i\", \"context\": \"\", \"response\": \"hello $i\"}" >> "$data/dolly/dolly-15k.merged.jsonl"
        echo "{\"question\": \"sum $i\", \"answer\": \"It is #### $i\"}" >> "$data/gsm8k/train.jsonl"
        echo "{\"problem\": \"root $i\", \"level\": \"1\", \"type\": \"x\", \"solution\": \"So \\\\boxed{$i}\"}" >> "$data/math/train.jsonl"
        echo "{\"instruction\": \"code $i\", \"output\": \"return $i\"}" >> "$data/evol-code/evol-codealpaca-2k-1.json"
        echo "{\"instruction\": \"more $i\", \"output\": \"return $i\"}" >> "$data/evol-code/evol-codealpaca-2k-2.json"
        echo "{\"instruction\": \"write $i\", \"input\": \"\", \"response\": \"return $i\"}" >> "$data/gpteacher/codegen-instruct.json"
    done
    xz "$data"/*/*
    study() {
        env PESC="$PESC" STUDY="$BATS_TEST_TMPDIR/s" REPORT="$BATS_TEST_TMPDIR/study-gpu.md" DATA="$data" MODEL="$D/model" DEVICE=cpu JOBS=1 \
            RECORDS="8 8 8" HELD=3 SEEDS="0 1" METHODS="pesc-4 lora-r64" LIBPESC="$(dirname "$PESC")/dist/libpesc.so.0" "$@" \
            "$BATS_TEST_DIRNAME/../../tools/study_gpu.py" 2> "$BATS_TEST_TMPDIR/log"
    }
    [ -e "$(dirname "$PESC")/dist/libpesc.so.0" ] || skip "needs libpesc.so.0"
    study LIMIT=100
    [ "$(grep -c ' seed ' "$BATS_TEST_TMPDIR/log")" = 13 ] # the base; 4 rates and 2 seeds of 2 methods
    grep -Eq '^\| pesc-4 \| 4 adapters of 256, LoRA 64 \| [0-9.]+ \| [0-9.]+ \| [0-9.e*\\-]+ \| [0-9.]+ ± [0-9.]+ \| ' "$BATS_TEST_TMPDIR/study-gpu.md"
    [ -s "$BATS_TEST_TMPDIR/study-gpu.svg" ]
    [ -s "$BATS_TEST_TMPDIR/study-gpu-rates.svg" ]
    cp "$BATS_TEST_TMPDIR/study-gpu.md" "$BATS_TEST_TMPDIR/before.md"
    study LIMIT=100
    refute grep -q ' seed ' "$BATS_TEST_TMPDIR/log"
    cmp "$BATS_TEST_TMPDIR/before.md" "$BATS_TEST_TMPDIR/study-gpu.md"
}
