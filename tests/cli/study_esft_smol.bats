# The study of ESFT on SmolLM2 with a tiny model and a few steps: that it runs, goes on where it stopped and is reported.
load helper
setup_file() { make_model; }
setup() { T=$BATS_TEST_TMPDIR; }

records() { # domain n
    local i
    for ((i = 0; i < $2; i++)); do
        printf '{"messages":[{"role":"user","content":"%s %d"},{"role":"assistant","content":"hello world %d"}],"domain":"%s"}\n' $1 $i $i $1
    done
}

study() { # action, options
    PESC=$PESC LIBPESC=$BATS_TEST_DIRNAME/../../build/dist/libpesc.so.0 python3 "$BATS_TEST_DIRNAME/../../tools/study_esft_smol.py" "$1" \
        --model "$D/model" --source "$T/source" --data "$T/data" --results "$T/r" --page "$T/page.md" --minutes 5 --workers 2 --device cpu \
        --threads 1 --compute f32 --steps 2 --batch-tokens 100 "${@:2}" 2> "$T/log"
}

@test "study-esft-smol: a small study runs, resumes and writes its report" {
    mkdir -p "$T/data" "$T/source/instruct/esft/train"
    { records general 3; records maths 3; records code 3; } > "$T/data/train.jsonl"
    { cat "$T/data/train.jsonl"; records maths 30; records code 30; } > "$T/data/train-1.44.jsonl"
    records general 4 > "$T/data/test.jsonl"
    for t in intent law; do records "$t" 30 | xz > "$T/source/instruct/esft/train/$t.jsonl.xz"; done
    study prepare
    [ "$(wc -l < "$T/data/esft/law-test.jsonl")" = 6 ]
    if grep -qFf "$T/data/esft/maths-test.jsonl" "$T/data/esft/maths-train.jsonl"; then return 1; fi # held out
    study run --only '^(mixture|scores/(intent|maths)|tune/(intent|maths)/(full|esft-token|lora-experts|random)/)'
    cat "$T/log"
    [ "$(grep -c ' s): ' "$T/log")" -ge 19 ] # more where the highest rate is the best
    if grep -q ': pesc ' "$T/log"; then return 1; fi
    study run --only '^(mixture|scores/(intent|maths)|tune/(intent|maths)/(full|esft-token|lora-experts|random)/)'
    if grep -q ' s): ' "$T/log"; then return 1; fi
    study report
    grep -q '^Mean loss on the target over 2 of 4 targets, one seed: ' "$T/page.md"
    grep -Eq '^\| lora-experts \| LoRA of rank 8 on attention and experts \|  \| [0-9.]+ \| ' "$T/page.md"
    grep -Eq '^\| random \| as many random experts \| [1-9][0-9]* \| ' "$T/page.md"
    grep -q '<svg' "$T/page.svg"
}
