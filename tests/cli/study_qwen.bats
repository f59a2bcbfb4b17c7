# The study on Qwen2.5-Coder with a tiny model and a few steps: that it runs, goes on where it stopped and is reported.
load helper
setup_file() { make_model; }
setup() { T=$BATS_TEST_TMPDIR; }

study() { # action, options
    PESC=$PESC LIBPESC=$BATS_TEST_DIRNAME/../../build/dist/libpesc.so.0 python3 "$BATS_TEST_DIRNAME/../../tools/study_qwen.py" "$1" \
        --model "$D/model" --data "$T/data" --results "$T/r" --page "$T/page.md" --minutes 5 --workers 2 --device cpu --threads 1 --compute f32 \
        --steps 8 --batch-tokens 100 --bench-limit 2 "${@:2}" 2> "$T/log"
}

@test "study-qwen: a small study runs, resumes and writes its report" {
    mkdir -p "$T/data/bench/piqa"
    records 6 > "$T/data/train.jsonl"
    records 1 > "$T/data/valid.jsonl"
    records 2 > "$T/data/test.jsonl"
    study run --only '^(base|search|full)'
    cat "$T/log"
    [ "$(grep -c ' s): ' "$T/log")" = 7 ] # the base, two rates of two rows, two runs
    if grep -q 'pesc ' "$T/log"; then return 1; fi
    study run --only '^(base|search|full)'
    if grep -q ' s): ' "$T/log"; then return 1; fi
    study run --only '^bench/choice' # its data is not there
    grep -q 'bench/choice .*pesc eval .* --tasks piqa,hellaswag,' "$T/log"
    [ -d "$T/r/work/pesc-8-0" ]
    study report
    grep -Eq '^On Qwen2.5-Coder-1.5B-Instruct, 8 adapters as experts \(Camelidae\) end with a held-out loss [0-9.]+ nats (lower|higher) than ' "$T/page.md"
    grep -Eq '^\| pesc-8 \| Camelidae: 8 adapters of 192, k 2, LoRA 64 \| ' "$T/page.md"
}
