# The study on SmolLM2 with a tiny model and a few steps: that it runs, goes on where it stopped and is
# reported. How good the numbers are is the study's own business.
load helper
setup_file() { make_model; }
setup() { T=$BATS_TEST_TMPDIR; }

ended() { # row: whether both neighbours of the best rate were tried, as far as there are any
    python3 -c 'import json, sys
runs = {k: r for k, r in json.load(open(sys.argv[1])).items() if k.startswith(f"search/{sys.argv[2]}/")}
tried = sorted((float(k.split("/")[2]), r["valid"]) for k, r in runs.items())
best = tried.index(min(tried, key=lambda t: t[1]))
sys.exit(not (0 < best < len(tried) - 1 or tried[best][0] in (1.6e-6, 1.6e-2)))' "$T/r/results.json" "$1"
}

study() { # jobs
    PESC=$PESC python3 "$BATS_TEST_DIRNAME/../../tools/study_smol.py" run --model "$D/model" --data "$T/data" --results "$T/r" \
        --minutes 5 --workers 2 --device cpu --threads 1 --compute f32 --steps 4 --batch-tokens 100 --only "$1" 2> "$T/log"
}

@test "study-smol: a small study runs, resumes and writes its report" {
    mkdir "$T/data"
    records 6 > "$T/data/train.jsonl"
    records 8 > "$T/data/train-1.44.jsonl"
    records 1 > "$T/data/valid.jsonl"
    records 2 > "$T/data/test.jsonl"
    local jobs='^(base$|(search|whole)/(pesc-8|lora-r64)/|full/(pesc-8|lora-r64)/[01]|full/pesc-8-(k1|aux0)/)'
    study '^base$'
    [ "$(grep -c ' s): ' "$T/log")" = 1 ]
    study "$jobs"
    cat "$T/log"
    [ "$(grep -c ' full/' "$T/log")" = 6 ]
    [ "$(grep -c ' whole/' "$T/log")" = 4 ] # two rates of each row with a search
    if grep -q 'pesc train' "$T/log"; then return 1; fi
    study "$jobs"
    if grep -q ' s): ' "$T/log"; then return 1; fi
    ended pesc-8
    ended lora-r64
    [ -d "$T/r/work/pesc-8-0" ] # for the benchmarks
    [ -d "$T/r/work/pesc-8-1" ]
    [ ! -e "$T/r/work/pesc-8-k1-0" ]
    rm -r "$T/r/work/pesc-8-0"
    study "$jobs|^routes" # what is to be looked at is made again
    grep -q ' full/pesc-8/0 ' "$T/log"
    sed -i -z 's|\("full/lora-r64/1": {[^}]*"rate": "\)[^"]*|\11e-9|' "$T/r/results.json" # as if the search had gone on since
    study "$jobs"
    [ "$(grep ' s): ' "$T/log" | awk '{ print $3 }')" = full/lora-r64/1 ]
    PESC=$PESC LIBPESC=$BATS_TEST_DIRNAME/../../build/dist/libpesc.so.0 \
        python3 "$BATS_TEST_DIRNAME/../../tools/study_smol.py" report --results "$T/r" --page "$T/page.md"
    grep -Eq '^On SmolLM2-135M, 8 adapters as experts \(Camelidae\) end with a held-out loss [0-9.]+ nats (lower|higher) than ' "$T/page.md"
    grep -Eq '^\| pesc-8 \| Camelidae: 8 adapters of 64, k 2, LoRA 64 \| [0-9.]+ \| .* ± [0-9.]+ \| .* dead \| 0\.0 \| 2 \|$' "$T/page.md"
    grep -Eq '^\| pesc-8-k1 \| k 1 \|' "$T/page.md"
    grep -q '^Not run for want of time: .*upcycle-8' "$T/page.md"
    grep -Eq '^\| pesc-8 - lora-r64 \| [-+][0-9.]+ \| [0-9.]+ \| 2 \| (yes|no) \|$' "$T/page.md"
    grep -q '<svg' "$T/page.svg"
}
