# Benchmarks by name, on data that is made here: it is not the published data, so names have a "?".
load helper

setup_file() {
    make_model
    mkdir -p "$D/bench/arc_easy" "$D/bench/gsm8k"
    python3 - "$D/bench" <<'PY'
import json, random, sys
random.seed(3)
words = "hello or and the of to in a is that".split()
def text(n): return " ".join(random.choice(words) for _ in range(n))
for split in "train", "test":
    f = open(sys.argv[1] + f"/arc_easy/{split}.jsonl", "w")
    for i in range(12):
        f.write(json.dumps(dict(id=str(i), question=text(5) + "?", answerKey="ABC"[i % 3],
                                choices=dict(text=[text(2) for _ in range(3)], label=list("ABC")))) + "\n")
for split, n in ("train", 8), ("test", 6):
    with open(sys.argv[1] + f"/gsm8k/{split}.jsonl", "w") as f:
        for i in range(n):
            f.write(json.dumps(dict(question=text(4), answer=text(3) + f" #### {i}")) + "\n")
PY
}

evaluate() { pesc eval "$D/model" --data-dir "$D/bench" --ctx 512 "$@"; }

@test "eval tasks: a table with standard errors" {
    evaluate --tasks arc_easy -q
    [ "$status" = 0 ]
    has '^arc_easy\? +0  acc +12 +[0-9.]+ ± [0-9.]+'
    has '^arc_easy\? +0  acc_norm +12 +'
    evaluate --tasks arc_easy
    [[ $stderr == *"tokens computed of "* ]]
}

@test "eval tasks: files, and a finished evaluation answers at once" {
    local out=$BATS_TEST_TMPDIR/out
    evaluate --tasks arc_easy,gsm8k --shots 2 --limit 4 -o "$out" -q
    [ "$status" = 0 ]
    local first=$output f
    for f in results.json evaluation.json samples_arc_easy.jsonl samples_gsm8k.jsonl scores.svg scores.png; do
        [ -s "$out/$f" ]
    done
    [ "$(wc -l < "$out/samples_arc_easy.jsonl")" = 4 ]
    cp -r "$out" "$BATS_TEST_TMPDIR/before"
    evaluate --tasks arc_easy,gsm8k --shots 2 --limit 4 -o "$out"
    [ "$status" = 0 ]
    [ "$output" = "$first" ]
    [[ $stderr != *"tokens computed"* ]]
    diff -r "$out" "$BATS_TEST_TMPDIR/before"
    # interrupted: half of the samples are there
    head -n 2 "$out/samples_arc_easy.jsonl" > "$BATS_TEST_TMPDIR/half"
    cp "$BATS_TEST_TMPDIR/half" "$out/samples_arc_easy.jsonl"
    rm "$out/results.json"
    evaluate --tasks arc_easy,gsm8k --shots 2 --limit 4 -o "$out" --batch 1 --threads 1 -q
    [ "$output" = "$first" ]
    diff -r "$out" "$BATS_TEST_TMPDIR/before"
    evaluate --tasks arc_easy,gsm8k --shots 1 --limit 4 -o "$out"
    [[ $stderr == *"is from an evaluation with another tasks; it begins again"* ]]
}

# The directory is of another evaluation in one respect, which the notice names.
begins_again() { # respect
    [ "$status" = 0 ]
    if [[ $stderr != *"is from an evaluation with another $1; it begins again"*"tokens computed"* ]]; then
        printf 'expected another %s, found\n%s\n' "$1" "$stderr"
        return 1
    fi
}

@test "eval tasks: another LoRA, dtype or step of a run is another model" {
    local out=$BATS_TEST_TMPDIR/out run=$BATS_TEST_TMPDIR/run
    records 4 > "$BATS_TEST_TMPDIR/data.jsonl"
    train() { pesc train "$D/model" --method lora --lora-r 2 --seq-len 64 --batch 2 --lr 0.05 --schedule constant --data "$BATS_TEST_TMPDIR/data.jsonl" -o "$run" -q "$@"; }
    train --steps 2
    [ "$status" = 0 ]
    evaluate --tasks arc_easy --limit 4 -o "$out"
    cp "$out/samples_arc_easy.jsonl" "$BATS_TEST_TMPDIR/base"
    evaluate --tasks arc_easy --limit 4 -o "$out" --base-dtype nf4
    begins_again base_dtype
    evaluate --tasks arc_easy --limit 4 -o "$out" --lora "$run/latest"
    begins_again base_dtype
    refute cmp -s "$out/samples_arc_easy.jsonl" "$BATS_TEST_TMPDIR/base"
    evaluate --tasks arc_easy --limit 4 -o "$out"
    begins_again lora
    cmp "$out/samples_arc_easy.jsonl" "$BATS_TEST_TMPDIR/base"
    pesc eval "$run" --data-dir "$D/bench" --ctx 512 --tasks arc_easy --limit 4 -o "$BATS_TEST_TMPDIR/of_run"
    cp "$BATS_TEST_TMPDIR/of_run/samples_arc_easy.jsonl" "$BATS_TEST_TMPDIR/step_2"
    train --steps 4 --resume
    [ "$status" = 0 ]
    pesc eval "$run" --data-dir "$D/bench" --ctx 512 --tasks arc_easy --limit 4 -o "$BATS_TEST_TMPDIR/of_run"
    begins_again lora
    refute cmp -s "$BATS_TEST_TMPDIR/of_run/samples_arc_easy.jsonl" "$BATS_TEST_TMPDIR/step_2"
}

made() { # max_tokens
    cat > "$BATS_TEST_TMPDIR/made.json" <<JSON
{"task": "made", "kind": "text", "judge": "match", "data": ["gsm8k"], "split": "test", "columns": {"question": "text", "answer": "text"},
 "question": "{{ question }}", "target": "{{ answer }}", "stops": ["zzz"], "metrics": ["exact_match"], "max_tokens": $1}
JSON
}

@test "eval tasks: another definition of a task is another evaluation" {
    local out=$BATS_TEST_TMPDIR/out
    made 4
    evaluate --tasks "$BATS_TEST_TMPDIR/made.json" --limit 2 -o "$out"
    [ "$status" = 0 ]
    cp "$out/samples_made.jsonl" "$BATS_TEST_TMPDIR/before"
    made 8
    evaluate --tasks "$BATS_TEST_TMPDIR/made.json" --limit 2 -o "$out"
    begins_again tasks
    refute cmp -s "$out/samples_made.jsonl" "$BATS_TEST_TMPDIR/before"
}

@test "eval tasks: thousands of texts wait in little memory" {
    mkdir -p "$BATS_TEST_TMPDIR/many"
    seq 2000 | sed 's/.*/{"q": "&+1"}/' > "$BATS_TEST_TMPDIR/many/s.jsonl"
    cat > "$BATS_TEST_TMPDIR/many.json" <<JSON
{"task": "many", "kind": "text", "split": "s", "columns": {"q": "text"}, "question": "{{ q }}", "target": "{{ q }}",
 "metrics": ["exact_match"], "max_tokens": 1}
JSON
    (ulimit -v 4000000; evaluate --tasks "$BATS_TEST_TMPDIR/many.json" --data-dir "$BATS_TEST_TMPDIR"; [ "$status" = 0 ])
}

@test "eval tasks: a task file in the language before Jinja is refused with what to write" {
    made 4
    sed -i 's/{{ question }}/Q: {question|strip}/' "$BATS_TEST_TMPDIR/made.json"
    evaluate --tasks "$BATS_TEST_TMPDIR/made.json" --limit 2
    fails 3 "$BATS_TEST_TMPDIR/made.json: made: question: found {question|strip}, which is how columns were written before; the fields are Jinja templates now: write {{ question.strip() }}, or {{ \"{question|strip}\" }} for the text itself"
}

@test "eval tasks: a number of a task file that is out of range is refused" {
    local n
    for n in 0 2147483648 4294967298 9223372036854775807; do
        made $n
        evaluate --tasks "$BATS_TEST_TMPDIR/made.json" --limit 2
        fails 3 "$BATS_TEST_TMPDIR/made.json: made: max_tokens: found $n, expected 1 to 1048576"
    done
}

@test "eval tasks: JSON as the harness writes it" {
    evaluate --tasks arc_easy --limit 4 --json -q
    [ "$status" = 0 ]
    python3 - "$output" <<'PY'
import json, sys
r = json.loads(sys.argv[1])
assert 0 <= r["results"]["arc_easy"]["acc,none"] <= 1
assert r["n-samples"]["arc_easy"]["effective"] == 4
assert len(r["task_hashes"]["arc_easy"]) == 64
PY
}

@test "eval tasks: --chat writes prompts as conversations" {
    local out=$BATS_TEST_TMPDIR/out
    evaluate --tasks arc_easy --limit 4 -o "$out" -q
    evaluate --tasks arc_easy --limit 4 --chat --samples -o "$out"
    [ "$status" = 0 ]
    [[ $stderr == *"is from an evaluation with another chat_template_sha; it begins again"* ]]
    python3 - "$D/bench/arc_easy/test.jsonl" "$D/tok/tokenizer_config.json" "$out" <<'PY'
import hashlib, json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
template = json.load(open(sys.argv[2]))["chat_template"]
lines = [json.loads(l) for l in open(sys.argv[3] + "/samples_arc_easy.jsonl")]
for row, line in zip(rows, lines):
    prompt = f"<|im_start|>user\nQuestion: {row['question']}\nAnswer:<|im_end|>\n<|im_start|>assistant\n"
    assert line["prompt_hash"] == hashlib.sha256(prompt.encode()).hexdigest()
    assert line["doc"] == row
    assert [a["arg_0"] for a in line["arguments"].values()] == [prompt] * 3
    assert [a["arg_1"] for a in line["arguments"].values()] == row["choices"]["text"]  # no delimiter
r = json.load(open(sys.argv[3] + "/results.json"))
assert r["chat_template"] == template and r["fewshot_as_multiturn"] is True
assert r["chat_template_sha"] == r["config"]["chat_template_sha"] == hashlib.sha256(template.encode()).hexdigest()
PY
    evaluate --tasks gsm8k --shots 2 --limit 1 --chat --samples -o "$out" -q
    python3 - "$out/samples_gsm8k.jsonl" <<'PY'
import json, sys
line = json.loads(open(sys.argv[1]).readline())
prompt = line["arguments"]["gen_args_0"]["arg_0"]
turns = [t.split("\n", 1)[0] for t in prompt.split("<|im_start|>")[1:]]
assert turns == ["user", "assistant", "user", "assistant", "user", "assistant"], turns
assert "Question:" in line["arguments"]["gen_args_0"]["arg_1"]["until"]
PY
    evaluate --tasks arc_easy --limit 4 --samples
    fails 2 "eval: --samples of tasks are written to files; give --output"
    # without a template there is nothing to write them in
    cp -r "$D/model" "$BATS_TEST_TMPDIR/plain"
    sed -i 's/"chat_template"/"other"/' "$BATS_TEST_TMPDIR/plain/tokenizer_config.json"
    pesc eval "$BATS_TEST_TMPDIR/plain" --tasks arc_easy --data-dir "$D/bench" --chat -q
    fails 3 "$BATS_TEST_TMPDIR/plain: --chat needs a chat template; the model has none"
}

@test "eval tasks: two models, paired by document" {
    "$PESC" new "$D/config.json" -o "$BATS_TEST_TMPDIR/other" --tokenizer "$D/tok" --dtype f32 --seed 5 -q > "$D/new.out"
    pesc eval "$D/model" "$BATS_TEST_TMPDIR/other" --tasks arc_easy --data-dir "$D/bench" --ctx 512 -o "$BATS_TEST_TMPDIR/two" -q
    [ "$status" = 0 ]
    has '^task .* model .* other .* 2 - 1'
    has '^arc_easy\? +0  acc +12 +[0-9.]+ ± [0-9.]+ +[0-9.]+ ± [0-9.]+ +[-+][0-9.]+ ± [0-9.]+'
    # the mean of the differences is the difference of the means
    awk '/^arc_easy/ { n++; d = $8 - $5 - $11; if (d > 0.02 || d < -0.02) bad = 1 } END { exit bad || n != 2 }' <<< "$output"
    [ -s "$BATS_TEST_TMPDIR/two/1-model/results.json" ]
    [ -s "$BATS_TEST_TMPDIR/two/2-other/results.json" ]
    pesc eval "$D/model" "$D/model" --tasks arc_easy --data-dir "$D/bench" --ctx 512 -q
    has '\+0\.00 ± 0\.00'
}

@test "eval tasks: groups first, their tasks with --subtasks" {
    mkdir -p "$BATS_TEST_TMPDIR/bench/math"
    cp -r "$D/bench/arc_easy" "$BATS_TEST_TMPDIR/bench/"
    for type in Algebra "Counting & Probability" Geometry "Number Theory" "Intermediate Algebra" Prealgebra Precalculus; do
        printf '{"problem": "hello", "level": "1", "type": "%s", "solution": "\\\\boxed{1}"}\n' "$type"
    done > "$BATS_TEST_TMPDIR/bench/math/test.jsonl"
    local tasks=(--tasks arc_easy,hendrycks_math --data-dir "$BATS_TEST_TMPDIR/bench" --ctx 512 --shots 0 --limit 1 -q)
    pesc eval "$D/model" "${tasks[@]}"
    [ "$status" = 0 ]
    [[ $(sed -n 2p <<< "$output") == hendrycks_math* ]]
    [[ $(sed -n 3p <<< "$output") == arc_easy* ]]
    has '^7 figures of the tasks of groups are not shown; --subtasks shows them$'
    refute grep -q '^hendrycks_math_' <<< "$output"
    pesc eval "$D/model" "${tasks[@]}" --subtasks
    [ "$(grep -c '^hendrycks_math_' <<< "$output")" = 7 ]
    refute grep -q 'not shown' <<< "$output"
}

@test "eval tasks: a file of groups alone stands for their tasks" {
    echo '{"groups": [{"group": "mine", "members": ["arc_easy", "gsm8k"]}]}' > "$BATS_TEST_TMPDIR/mine.json"
    evaluate --tasks arc_easy,gsm8k --shots 0 --limit 2 -q
    local want=$output
    evaluate --tasks "$BATS_TEST_TMPDIR/mine.json" --shots 0 --limit 2 -q
    gives "$want"
}

@test "eval tasks: the list, and what is missing" {
    pesc eval --list --data-dir "$D/bench"
    [ "$status" = 0 ]
    has '^arc_easy +2376 +0  acc +1'
    has '^mmlu .*no data$'
    evaluate --tasks piqa
    [ "$status" = 3 ]
    [[ $stderr == *piqa*validation* ]]
    echo '{"question": "x"}' > "$BATS_TEST_TMPDIR/test.jsonl"
    mkdir -p "$BATS_TEST_TMPDIR/bad/arc_easy"
    cp "$BATS_TEST_TMPDIR/test.jsonl" "$BATS_TEST_TMPDIR/bad/arc_easy/"
    pesc eval "$D/model" --tasks arc_easy --data-dir "$BATS_TEST_TMPDIR/bad"
    [ "$status" = 3 ]
    [[ $stderr == *"arc_easy/test.jsonl"* ]]
    pesc eval --tasks arc_easy
    [ "$status" = 2 ]
    pesc eval "$D/model"
    [ "$status" = 2 ]
}

@test "eval tasks: answers that only an algebra system could decide are counted" {
    mkdir -p "$D/bench/math"
    python3 - "$D/bench/math/test.jsonl" <<'PY'
import json, sys
with open(sys.argv[1], "w") as f:
    for i in range(3):
        f.write(json.dumps(dict(problem="hello", level="Level 1", type="Algebra", solution=r"so $\\boxed{x + 1}$")) + "\n")
PY
    evaluate --tasks minerva_math_algebra --shots 0 -o "$BATS_TEST_TMPDIR/out" -q
    [ "$status" = 0 ]
    # an answer of the right form, put where an interrupted evaluation would have left it
    python3 - "$BATS_TEST_TMPDIR/out" <<'PY'
import json, sys
path = sys.argv[1] + "/samples_minerva_math_algebra.jsonl"
lines = [json.loads(l) for l in open(path)]
lines[1]["undecided"] = True
with open(path, "w") as f:
    for l in lines:
        f.write(json.dumps(l, separators=(",", ":")) + "\n")
PY
    evaluate --tasks minerva_math_algebra --shots 0 -o "$BATS_TEST_TMPDIR/out"
    [[ $stderr == *"minerva_math_algebra: 1 of 3 answers could be right, which only an algebra system can decide; they count as wrong"* ]]
    grep -q '"undecided": 1' "$BATS_TEST_TMPDIR/out/results.json"
}

# Each bad file gives one sentence with its name, and the exit code of a bad input file.
bad_data() { # exit code, pattern; the data is in $BATS_TEST_TMPDIR/bad
    pesc eval "$D/model" --tasks arc_easy --data-dir "$BATS_TEST_TMPDIR/bad" --ctx 512 -q
    [ "$status" = "$1" ]
    [ "$(wc -l <<< "$stderr")" = 1 ]
    if ! grep -Eq -- "$2" <<< "$stderr"; then
        printf 'expected a match of %s in\n%s\n' "$2" "$stderr"
        return 1
    fi
}

@test "eval tasks: bad data files" {
    local dir=$BATS_TEST_TMPDIR/bad/arc_easy
    local file=$dir/test.jsonl good=$D/bench/arc_easy/test.jsonl
    mkdir -p "$dir"
    sed 's/"answerKey"/"answer"/' "$good" > "$file"
    bad_data 3 '^pesc: .*/arc_easy/test.jsonl:1: the column "answerKey" is missing$'
    sed '5s/"answerKey": "."/"answerKey": "Z"/' "$good" > "$file"
    bad_data 3 '^pesc: arc_easy: row 5: the right answer is "Z", which is not a label of a choice$'
    : > "$file"
    bad_data 3 '^pesc: .*/arc_easy/test.jsonl: is empty: it holds no record$'
    sed '7s/.$//' "$good" > "$file"
    bad_data 3 '^pesc: .*/arc_easy/test.jsonl:7: '
    printf '\xff\xfe{}\n' > "$file"
    bad_data 3 '^pesc: .*/arc_easy/test.jsonl: is UTF-16; '
    xz -c "$good" | head -c 100 > "$file.xz"
    rm "$file"
    bad_data 3 '^pesc: .*/arc_easy/test.jsonl.xz: '
    rm "$file.xz"
    mkdir "$file"
    bad_data 3 '^pesc: arc_easy: the file .*/arc_easy/test.jsonl .* is missing; it has the columns '
    rmdir "$file"
    { echo -n '{"question": "'; head -c 200000000 /dev/zero | tr '\0' x; echo '"}'; } > "$file"
    bad_data 3 '^pesc: .*/arc_easy/test.jsonl:1: the record is 200000016 bytes long; at most 16777216 are read$'
    rm "$file"
    # rows that are not the published ones are evaluated, and the name says so
    cp "$good" "$file"
    pesc eval "$D/model" --tasks arc_easy --data-dir "$BATS_TEST_TMPDIR/bad" --ctx 512
    [ "$status" = 0 ]
    has '^arc_easy\? '
    [[ $stderr == *"arc_easy: $file has 12 rows; the published data has 2376"* ]]
}

@test "eval tasks: ESFT's tasks, with both scores in percent" {
    mkdir -p "$D/esft/eval"
    python3 - "$D/esft/eval" <<'PY'
import json, sys
def rows(name, *pairs):
    with open(f"{sys.argv[1]}/{name}.jsonl", "w") as f:
        f.writelines(json.dumps(dict(prompt=p, answers=[a])) + "\n" for p, a in pairs)
rows("translation", ("hello", "the word"), ("or", "and"), ("world", "hello"))
rows("intent", ("play", '{"intent": "Play", "slots": {"name": "x"}}'))
PY
    esft() { pesc eval "$D/model" --tasks esft_intent,esft_translation --data-dir "$D/esft" --ctx 1024 -o "$BATS_TEST_TMPDIR/out" "$@"; }
    esft -q
    [ "$status" = 0 ]
    has '^esft_intent\? +0  exact_match +1 +0\.00'
    # answers that another model would have given
    sed -i -E 's/"chrf":[^,}]*/"chrf":50.0/; s/"rouge_l":[^,}]*/"rouge_l":0.25/' "$BATS_TEST_TMPDIR/out/samples_esft_translation.jsonl"
    esft
    [ "$status" = 0 ]
    has '^esft_translation\? +0  rouge_l +3 +25\.00 ± 0\.00'
    has '^esft_translation\? +0  chrf +3 +50\.00 ± 0\.00'
    [[ $stderr == *"esft_translation: ROUGE-L and chrF are not the score of the ESFT paper"* ]]
    if [[ $stderr == *"esft_intent: ROUGE-L"* ]]; then return 1; fi
    grep -q '"chrf,none": 50' "$BATS_TEST_TMPDIR/out/results.json"
}

@test "eval tasks: several processes write the files of one, also of an interrupted evaluation" {
    local t=$BATS_TEST_TMPDIR n
    for n in 0 2 4; do
        evaluate --tasks arc_easy,gsm8k -o "$t/$n" --gpus $n --device cpu --threads 1 -q
        [ "$status" = 0 ]
    done
    for n in 2 4; do
        diff "$t/0/results.json" "$t/$n/results.json"
        cmp "$t/0/samples_arc_easy.jsonl" "$t/$n/samples_arc_easy.jsonl"
        cmp "$t/0/samples_gsm8k.jsonl" "$t/$n/samples_gsm8k.jsonl"
    done
    rm "$t/2/results.json" "$t/2/samples_gsm8k.jsonl"
    sed -i 5,7d "$t/2/samples_arc_easy.jsonl"
    evaluate --tasks arc_easy,gsm8k -o "$t/2" --gpus 2 --device cpu --threads 1 -q
    [ "$status" = 0 ]
    cmp "$t/0/samples_arc_easy.jsonl" "$t/2/samples_arc_easy.jsonl"
    cmp "$t/0/samples_gsm8k.jsonl" "$t/2/samples_gsm8k.jsonl"
    diff "$t/0/results.json" "$t/2/results.json"
}
@test "eval tasks: several processes score a file of records as one does" {
    local t=$BATS_TEST_TMPDIR n
    for n in 1 2 3 4 5 6 7; do echo "{\"prompt\": \"hello $n\", \"completion\": \" or $n\"}"; done > "$t/r.jsonl"
    for n in 0 2 4; do
        evaluate --tasks "$t/r.jsonl" --gpus $n --device cpu --threads 1 --json --samples -q
        [ "$status" = 0 ]
        printf '%s\n' "$output" > "$t/$n.json"
    done
    python3 - "$t/0.json" "$t/2.json" "$t/4.json" <<'PY'
import json, sys
def read(path):
    task = json.load(open(path))["tasks"][0]
    del task["seconds"]
    task["samples"].sort(key=lambda s: s["record"])
    return task
one, *others = map(read, sys.argv[1:])
assert one["all"]["asked"] == 7 and len(one["samples"]) == 7, one
for other in others:
    assert other == one, (other, one)
PY
    evaluate --tasks "$t/r.jsonl" --gpus 2 --device cpu --threads 1
    [ "$status" = 0 ]
    [ "$(printf '%s\n' "$output" | grep -c 'exact match')" = 1 ] # rank 0 alone prints
}

@test "eval tasks: the averages of the paper's groups, as text, JSON and a picture" {
    local b=$BATS_TEST_TMPDIR/bench out=$BATS_TEST_TMPDIR/out
    python3 - "$b" <<'PY'
import json, os, random, sys
random.seed(5)
def text(n): return " ".join(random.choice("hello or and the of to in a is that".split()) for _ in range(n))
def put(task, split, rows):
    os.makedirs(f"{sys.argv[1]}/{task}", exist_ok=True)
    with open(f"{sys.argv[1]}/{task}/{split}.jsonl", "w") as f:
        f.write("".join(json.dumps(r) + "\n" for r in rows))
for split in "train", "validation", "test":
    for name in "arc_easy", "arc_challenge":
        put(name, split, [dict(id=str(i), question=text(5), answerKey="ABC"[i % 3],
                               choices=dict(text=[text(1 + 2 * k) for k in range(3)], label=list("ABC"))) for i in range(12)])
    put("piqa", split, [dict(goal=text(4), sol1=text(2), sol2=text(5), label=i % 2) for i in range(12)])
    put("winogrande", split, [dict(sentence=text(3) + " _ " + text(3), option1="hello", option2="that", answer=str(1 + i % 2)) for i in range(12)])
    put("hellaswag", split, [dict(activity_label=text(1), ctx_a=text(3), ctx_b=text(2), endings=[text(1 + 2 * k) for k in range(4)],
                                  label=str(i % 4), split_type="indomain", source_id="a", ind=i) for i in range(12)])
PY
    pesc eval "$D/model" --data-dir "$b" --ctx 512 --shots 0 --tasks piqa,hellaswag,winogrande,arc_easy,arc_challenge -o "$out" -q
    [ "$status" = 0 ]
    has '^commonsense +[0-9.]+ *$'
    [ -s "$out/groups.svg" ]
    [ -s "$out/groups.png" ]
    pesc eval "$D/model" --data-dir "$b" --ctx 512 --shots 0 --tasks piqa,hellaswag,winogrande,arc_easy,arc_challenge -q --json
    python3 - "$output" <<'PY'
import json, sys
d = json.loads(sys.argv[1])
r = {k.rstrip("?"): v for k, v in d["results"].items()}
want = [r["piqa"]["acc,none"], r["hellaswag"]["acc_norm,none"], r["winogrande"]["acc,none"], r["arc_easy"]["acc,none"], r["arc_challenge"]["acc_norm,none"]]
assert abs(d["paper_averages"]["commonsense"] - 100 * sum(want) / 5) < 1e-6, (d["paper_averages"], want)
assert list(d["paper_averages"]) == ["commonsense"]
PY
}

@test "eval: calls of tools are compared with what is allowed" {
    cd "$BATS_TEST_TMPDIR"
    python3 "$BATS_TEST_DIRNAME/../support/scripted.py" caller $'<think>the sum</think><tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
    local tool='{"name": "add", "parameters": {"type": "dict", "properties": {"a": {"type": "integer"}, "b": {"type": "float"}}}}'
    cat > sums.json <<JSON
{"task": "sums", "kind": "calls", "version": 1, "columns": {"q": "text", "f": "list", "right": "list"}, "question": "{{ q }}", "tools": "{{ f }}", "target": "{{ right }}",
 "metrics": ["exact_match"], "rows": [
  {"q": "one", "f": [$tool], "right": [{"add": {"a": [2], "b": [3.0, 4]}}]},
  {"q": "two", "f": [$tool], "right": [{"add": {"a": [3], "b": [3]}}]},
  {"q": "three", "f": [$tool], "right": []},
  {"q": "four", "f": [{"name": "other"}], "right": []}]}
JSON
    pesc eval caller --tasks sums.json --json -o out --samples
    [ "$status" = 0 ]
    [ "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["results"]["sums"]["exact_match,none"])' <<< "$output")" = 0.5 ]
    python3 - <<'PY'
import json
rows = [json.loads(line) for line in open("out/samples_sums.jsonl")]
assert [r["exact_match"] for r in rows] == [1, 0, 0, 1], rows
first, last = json.loads(rows[0]["resps"][0]), json.loads(rows[3]["resps"][0])
assert first["tool_calls"][0]["function"]["name"] == "add" and first["reasoning_content"] == "the sum", first
assert "tool_calls" not in last and "add" in last["content"], last
assert "add" in rows[0]["filtered_resps"][0] and rows[3]["filtered_resps"][0] == "", rows
PY
    pesc eval --list --json
    has '"calls_parallel"'
    pesc eval caller --tasks calls --limit 2 --json
    [ "$status" = 0 ]
    sed -i 's/"right": \[\]}/"right": [{}]}/' sums.json
    pesc eval caller --tasks sums.json
    [ "$status" = 3 ]
    [[ $stderr == *'sums: document 2: the target: call 1: expected {"name": {"argument": [allowed value, ...]}}'* ]]
}

@test "eval: tasks with calls need a template that takes tools" {
    pesc eval "$D/model" --tasks calls
    [ "$status" = 3 ]
    [[ $stderr == *"tasks of the kind calls: the chat template does not take tools"* ]]
}
