# The studies (studies/) with a budget of a few steps: that each is made, goes on where it stopped and is reported. How good the numbers are is the
# studies' own business.
load helper
setup_file() { make_model; }

STUDIES=$BATS_TEST_DIRNAME/../../studies
setup() {
    T=$BATS_TEST_TMPDIR
    export PESC LIBPESC=$BATS_TEST_DIRNAME/../../build/dist/libpesc.so.0
}

study() { # name, options
    if ! "$STUDIES/run.py" "$1" run --work "$T/w" --threads 1 "${@:2}" 2> "$T/log"; then
        cat "$T/log"
        return 1
    fi
}
report() { "$STUDIES/run.py" "$1" report --work "$T/w" --page "$T/page.md" "${@:2}"; }
made() { grep -c ' s): ' "$T/log"; } # jobs that ended

# A description for the tiny model: f32, few tokens a step, few held-out records.
shrink() { # name
    sed -E 's/batch-tokens [0-9]+/batch-tokens 100/; s/micro-tokens [0-9]+/micro-tokens 150/; s/compute-dtype bf16/compute-dtype f32/; s/--batch 36/--batch 4/
        s/train = \[15000, 5000, 5000\]/train = [8, 8, 8]/; s/held = 300, valid = 100/held = 3, valid = 1/' "$STUDIES/$1.toml" > "$T/$1.toml"
}

@test "study: a small study of the embedded task runs, resumes and writes its page" {
    local only='^full/(lora-r8|pesc-4|pesc-8)/'
    study embedded --scale 0.0034 --seeds 0,1 --only "$only"
    [ "$(made)" = 15 ] # 4 rates and another seed, 3 methods
    refute grep -q ': pesc ' "$T/log"
    report embedded --seeds 0,1
    grep -Eq '^\| pesc-8 \| 8 adapters of 64, LoRA 8 \| 606 \| 988 \| ' "$T/page.md"
    grep -Eq '^\| pesc-8 - lora-r8 \| rank \| [-+][0-9.]+, (in|out)side the spread \| ' "$T/page.md"
    cp "$T/page.md" "$T/before.md"
    study embedded --scale 0.0034 --seeds 0,1 --only "$only"
    refute made
    report embedded --seeds 0,1
    cmp "$T/before.md" "$T/page.md"
    run "$STUDIES/run.py" embedded run --work "$T/w" --scale 1
    [ "$status" = 1 ]
    [[ $output == *"results.json was made with {'scale': 0.0034, 'limit': 0}, found {'scale': 1.0, 'limit': 0} now; give these or another --work" ]]
}

experts() { python3 -c 'import json, sys; print({k: len(set(v)) for k, v in json.load(open(sys.argv[1]))["experts"].items()})' "$1"; }

@test "study: a small study of ESFT runs, resumes and writes its page" {
    local only='^(mixture/code|scores/mixture/code|full/code/(lora-r8|esft-token|random)/)' number='[0-9.]+ ± [0-9.]+'
    study esft --scale 0.008 --limit 2 --seeds 0,1 --only "$only"
    [ "$(made)" -ge 14 ] # the mixture, its scores; 3 rates, perhaps a fourth, and another seed for 3 methods
    [ "$(made)" -le 17 ]
    refute grep -q ': pesc ' "$T/log"
    report esft --seeds 0,1
    grep -Eq '^\| mixture \| nothing: where all begin \|  \| 0 \|' "$T/page.md"
    grep -Eq "^\| lora-r8 \| .* \|  \| 29 \| [0-9]+ \| [-0-9.e]+(\\\\\*)? \| $number \| $number \| $number \| $number \|\$" "$T/page.md"
    grep -Eq '^\| esft-token - random \| code \| [-+][0-9.]+ (better|worse|\(inside\)) \|' "$T/page.md"
    refute grep -Eq 'esft-token - full|## Reading' "$T/page.md"
    sed -i 's/^## Data$/## Reading\n\nby hand\n\n&/' "$T/page.md" # what is written by hand comes before it
    cp "$T/page.md" "$T/before.md"
    study esft --scale 0.008 --limit 2 --seeds 0,1 --only "$only"
    refute made
    report esft --seeds 0,1
    cmp "$T/before.md" "$T/page.md"
    # random experts: as many a layer as esft-token, none twice, others for another seed
    local token random
    token=$(echo "$T"/w/runs/code-esft-token-1-*.experts) random=$(echo "$T"/w/runs/code-random-1-*.experts)
    [ "$(experts "$random")" = "$(experts "$token")" ]
    refute cmp -s "$random" "$T"/w/runs/code-random-0-1e-3.experts
}

@test "study: a small study of the kind for a GPU runs, resumes and writes its page" {
    local data=$T/source/instruct i
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
    shrink gpu
    local jobs='^(base|(search|full)/(pesc-4|lora-r64)/)'
    study "$T/gpu.toml" --model "$D/model" --source "$T/source" --seeds 0,1 --only "$jobs"
    [ "$(made)" = 13 ] # the base; 4 rates and 2 seeds of 2 methods
    grep -q '"sum ' "$T/w/data/train.jsonl" # two files of one name
    grep -q '"root ' "$T/w/data/train.jsonl"
    refute grep -q ': pesc ' "$T/log"
    report "$T/gpu.toml" --model "$D/model" --seeds 0,1
    grep -Eq '^\| pesc-4 \| 4 adapters of 256, LoRA 64 \| [0-9.]+ \| [0-9.]+ \| [0-9.e*\\-]+ \| [0-9.]+ ± [0-9.]+ \| ' "$T/page.md"
    grep -q '<svg' "$T/page.svg"
    grep -q '<svg' "$T/page-rates.svg"
    cp "$T/page.md" "$T/before.md"
    study "$T/gpu.toml" --model "$D/model" --seeds 0,1 --only "$jobs"
    refute made
    report "$T/gpu.toml" --model "$D/model" --seeds 0,1
    cmp "$T/before.md" "$T/page.md"
}

ended() { # row: whether both neighbours of the best rate were tried, as far as there are any
    python3 -c 'import json, sys
runs = {k: r for k, r in json.load(open(sys.argv[1])).items() if k.startswith(f"search/{sys.argv[2]}/")}
tried = sorted((float(r["rate"]), r["valid"]) for r in runs.values())
best = tried.index(min(tried, key=lambda t: t[1]))
sys.exit(not (0 < best < len(tried) - 1 or tried[best][0] in (1.6e-6, 1.6e-2)))' "$T/w/results.json" "$1"
}

@test "study: a small study on SmolLM2 searches, keeps what is looked at, resumes and writes its page" {
    mkdir -p "$T/w/data"
    records 6 > "$T/w/data/train.jsonl"
    records 8 > "$T/w/data/train-1.44.jsonl"
    records 1 > "$T/w/data/valid.jsonl"
    records 2 > "$T/w/data/test.jsonl"
    shrink smol
    local jobs='^(base$|(search|full)/(pesc-8|lora-r64)/|full/pesc-8-(k1|aux0)/)'
    set -- "$T/smol.toml" --model "$D/model" --seeds 0,1 --workers 2
    study "$@" --only '^base$'
    [ "$(made)" = 1 ]
    study "$@" --only "$jobs"
    refute grep -q ': pesc ' "$T/log"
    [ "$(grep -cE ' full/(pesc-8|lora-r64)/0/' "$T/log")" = 4 ] # two whole runs of each, at the best rate of the search and the one below
    [ "$(grep -cE ' full/(pesc-8|lora-r64)/1/' "$T/log")" = 2 ]
    [ "$(grep -cE ' full/pesc-8-(k1|aux0)/0/' "$T/log")" = 2 ]
    study "$@" --only "$jobs"
    refute made
    ended pesc-8
    ended lora-r64
    [ "$(ls -d "$T"/w/runs/pesc-8-[01]-*[0-9] | wc -l)" = 2 ] # for the benchmarks: of each seed the run at the best rate
    refute ls -d "$T"/w/runs/pesc-8-k1-*
    rm -r "$T"/w/runs/pesc-8-0-*[0-9]
    study "$@" --only "$jobs|^routes" # what is to be looked at is made again
    grep -q ' full/pesc-8/0/' "$T/log"
    report "$T/smol.toml" --seeds 0,1
    grep -Eq '^On SmolLM2-135M, 8 adapters as experts \(Camelidae\) end with a held-out loss [0-9.]+ nats (lower|higher) than ' "$T/page.md"
    grep -Eq '^\| pesc-8 \| Camelidae: 8 adapters of 64, k 2, LoRA 64 \| [0-9.]+ \| .* ± [0-9.]+ \| .* dead \| 0\.0 \| 2 \|$' "$T/page.md"
    grep -Eq '^\| pesc-8-k1 \| k 1 \|' "$T/page.md"
    grep -q '^Not run: .*upcycle-8' "$T/page.md"
    grep -Eq '^\| pesc-8 - lora-r64 \| [-+][0-9.]+ \| [0-9.]+ \| 2 \| (yes|no) \|$' "$T/page.md"
    grep -q '<svg' "$T/page.svg"
}

@test "study: a small study on Qwen names a benchmark whose data is missing, and keeps the runs for it" {
    mkdir -p "$T/w/data/bench/piqa"
    records 6 > "$T/w/data/train.jsonl"
    records 1 > "$T/w/data/valid.jsonl"
    records 2 > "$T/w/data/test.jsonl"
    shrink qwen
    set -- "$T/qwen.toml" --model "$D/model" --bench-limit 2
    study "$@" --only '^(base|search|full)'
    [ "$(made)" = 7 ] # the base, two rates of two rows, two runs
    refute grep -q ': pesc ' "$T/log"
    study "$@" --only '^(base|search|full)'
    refute made
    study "$@" --only '^bench/choice' # its data is not there
    grep -q 'bench/choice .*pesc eval .* --tasks piqa,hellaswag,' "$T/log"
    ls -d "$T"/w/runs/pesc-8-0-*[0-9]
    report "$T/qwen.toml"
    grep -Eq '^On Qwen2.5-Coder-1.5B-Instruct, 8 adapters as experts \(Camelidae\) end with a held-out loss [0-9.]+ nats (lower|higher) than ' "$T/page.md"
    grep -Eq '^\| pesc-8 \| Camelidae: 8 adapters of 192, k 2, LoRA 64 \| ' "$T/page.md"
}

of_domain() { # domain n
    local i
    for ((i = 0; i < $2; i++)); do
        printf '{"messages":[{"role":"user","content":"%s %d"},{"role":"assistant","content":"hello world %d"}],"domain":"%s"}\n' $1 $i $i $1
    done
}

@test "study: a small study of ESFT on SmolLM2 prepares its targets, runs, resumes and writes its page" {
    mkdir -p "$T/w/data" "$T/source/instruct/esft/train"
    { of_domain general 3; of_domain maths 3; of_domain code 3; } > "$T/w/data/train.jsonl"
    { cat "$T/w/data/train.jsonl"; of_domain maths 30; of_domain code 30; } > "$T/w/data/train-1.44.jsonl"
    of_domain general 4 > "$T/w/data/test.jsonl"
    for t in intent law; do of_domain "$t" 30 | xz > "$T/source/instruct/esft/train/$t.jsonl.xz"; done
    shrink esft-smol
    local jobs='^(mixture|scores/mixture/(intent|maths)|full/(intent|maths)/(full|esft-token|lora-experts|random)/)'
    set -- "$T/esft-smol.toml" --model "$D/model" --source "$T/source" --scale 0.034 --workers 2
    study "$@" --only "$jobs"
    [ "$(wc -l < "$T/w/data/esft/law-test.jsonl")" = 6 ]
    refute grep -qFf "$T/w/data/esft/maths-test.jsonl" "$T/w/data/esft/maths-train.jsonl" # held out
    [ "$(made)" -ge 19 ] # more where the highest rate is the best
    refute grep -q ': pesc ' "$T/log"
    study "$@" --only "$jobs"
    refute made
    report "$T/esft-smol.toml"
    grep -q '^Mean loss on the target over 2 of 4 targets, one seed: ' "$T/page.md"
    grep -Eq '^\| lora-experts \| LoRA of rank 8 on attention and experts \|  \| [0-9.]+ \| ' "$T/page.md"
    grep -Eq '^\| random \| as many random experts \| [1-9][0-9]* \| ' "$T/page.md"
    grep -q '<svg' "$T/page.svg"
}

@test "study: a small study of preferences starts its rows from models that it makes" {
    local only='^(base|start|mixture|scores|full/(lora-sft|lora-dpo|esft-dpo)/)' number='[-0-9.]+ ± [0-9.]+'
    study preferences --scale 0.02 --limit 2 --seeds 0,1 --workers 2 --only "$only"
    [ "$(made)" -ge 16 ]
    refute grep -q ': pesc ' "$T/log"
    report preferences --seeds 0,1
    grep -Eq '^\| start \| all weights, on instructions: where the rows start \| 0 \|  \| [0-9.]+ \| [-0-9.]+ \| [0-9.]+ \|' "$T/page.md"
    grep -Eq "^\| esft-dpo \| .* \| [0-9]+ \| [-0-9e]+(\\\\\*)? \| $number \| $number \| $number \|" "$T/page.md"
    grep -Eq '^\| lora-dpo - lora-sft \| trained weights \| [-+][0-9.]+, (in|out)side the spread \| ' "$T/page.md"
    cp "$T/page.md" "$T/before.md"
    study preferences --scale 0.02 --limit 2 --seeds 0,1 --only "$only"
    refute made
    report preferences --seeds 0,1
    cmp "$T/before.md" "$T/page.md"
}

@test "study: a small study of finer experts scores against a background, and one of grammars looks at routers" {
    study esft-fine --scale 0.008 --limit 2 --seeds 0 --only '^(fine-1/code|scores/fine-1/code|full/code/(fine-1-equal|background|esft-aligned)/)'
    [ "$(made)" -ge 7 ]
    refute grep -q ': pesc ' "$T/log"
    report esft-fine --seeds 0
    grep -Eq '^\| background \| .* \| [1-8] \|' "$T/page.md"
    rm -r "$T/w"
    study grammars --scale 0.01 --limit 2 --seeds 0 --only '^(full|routes)/pesc-a64/'
    study grammars --scale 0.01 --limit 2 --seeds 0 --only '^routes/pesc-a64$'
    report grammars --seeds 0
    grep -Eq '^\| pesc-a64 \| 0\.[0-9]{3} \| 0\.[0-9]{3}, ' "$T/page.md"
}

@test "study: the pages in docs/ have the tables of studies/results" {
    local name
    for name in embedded esft gpu smol qwen esft-smol sparse esft-fine grammars merged preferences preferences-29m; do
        "$STUDIES/run.py" "$name" check
    done
}

@test "study: pages name data as pesc data fetch does" {
    pesc data fetch --json
    python3 - "$STUDIES" "$output" <<'PY'
import json, sys, tomllib
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from report import PUBLIC
sources = {s["name"]: s["source"] for s in json.loads(sys.argv[2])}
assert all(sources[name] == public for name, public in PUBLIC.items()), PUBLIC
named = {n for f in Path(sys.argv[1]).glob("*.toml") for n in tomllib.loads(f.read_text()).get("fetch", {}).get("data", [])}
assert len(named) == 17 and named <= set(PUBLIC), named
PY
}

@test "study: an unknown study is refused" {
    run "$STUDIES/run.py" none run --work "$T/w"
    [ "$status" = 1 ]
    [[ $output == "studies: there is no "*"/studies/none.toml; there are embedded, esft, esft-fine, esft-smol, gpu, gpu-fp8, grammars, merged, preferences, preferences-29m, qwen, smol, sparse" ]]
}
