load helper
setup_file() {
    make_model
    cat > "$D/task.jsonl" <<'JSON'
{"domain": "maths", "instruction": "hello", "output": "1 + 1"}
{"domain": "code", "instruction": "hello", "output": "world"}
{"domain": "maths", "instruction": "or", "output": "2"}
JSON
    echo '{"text": "hello world or hell"}' > "$D/text.jsonl"
}

@test "eval: a table by domain" {
    pesc eval "$D/model" --tasks "$D/task.jsonl" -q
    [ "$status" = 0 ]
    [ "$(head -n 1 <<< "$output")" = "$D/task.jsonl" ]
    has '^  domain +records +loss +exact match$'
    has '^  maths +2 +[0-9]+\.[0-9]{4} +0\.0 % ± 0\.0$'
    has '^  code +1 '
    has '^  all +3 '
}

@test "eval: commas alone name no task" {
    pesc eval "$D/model" --tasks ,,
    fails 2 'eval: --tasks: found only commas, expected TASK'
}

@test "eval: --json, several tasks, with commas or without" {
    pesc eval "$D/model" --tasks "$D/task.jsonl,$D/text.jsonl" --json -q
    [ "$status" = 0 ]
    local first=$output
    python3 - <<PY
import json
r = json.loads('''$output''')
a, b = r["tasks"]
assert a["task"].endswith("task.jsonl") and b["task"].endswith("text.jsonl")
assert a["all"]["records"] == 3 and a["all"]["asked"] == 3
assert [(d["domain"], d["records"]) for d in a["domains"]] == [("maths", 2), ("code", 1)]
for d in a["domains"] + [a["all"]]:
    assert d["loss"] > 0 and d["exact_match"] == d["correct"] / d["asked"]
assert b["all"]["asked"] == 0 and b["all"]["exact_match"] is None and b["domains"][0]["domain"] == "text"
PY
    # several models: one document, a list
    pesc eval "$D/model" "$D/model" --tasks "$D/task.jsonl" --json -q
    [ "$status" = 0 ]
    python3 -c 'import json, sys; a, b = json.loads(sys.argv[1]); assert a["tasks"][0]["all"] == b["tasks"][0]["all"] and a["model"] == b["model"]' "$output"
    pesc eval "$D/model" --tasks "$D/task.jsonl" "$D/text.jsonl" --json -q
    [ "$(sed 's/"seconds":[0-9.e-]*//g' <<< "$output")" = "$(sed 's/"seconds":[0-9.e-]*//g' <<< "$first")" ]
}

@test "eval: the loss alone, and answers after a mark" {
    pesc eval "$D/model" --tasks "$D/task.jsonl" --json -q
    local loss=$(grep -o '"loss":[0-9.]*' <<< "$output" | head -n 1)
    pesc eval "$D/model" --tasks "$D/task.jsonl" --loss-only --json -q
    [ "$status" = 0 ]
    has "\"records\":3,\"tokens\":[0-9]+,$loss,\"asked\":0,\"correct\":0,\"exact_match\":null,"
    has '"generated":0,'
    pesc eval "$D/model" --tasks "$D/task.jsonl" --loss-only -q
    has '^  maths +2 +[0-9]+\.[0-9]{4} +-$'
    pesc eval "$D/model" --tasks "$D/task.jsonl" --answer-after '####' -q
    [ "$status" = 0 ]
    has '^  maths +2 +[0-9]+\.[0-9]{4} +0\.0 % '
}

@test "eval: a draft model changes no score" {
    pesc eval "$D/model" --tasks "$D/task.jsonl" --json -q
    local plain=$(sed 's/"seconds":[0-9.e-]*//g' <<< "$output")
    pesc eval "$D/model" --tasks "$D/task.jsonl" --json -q --draft "$D/model"
    [ "$status" = 0 ]
    [ "$(sed 's/"seconds":[0-9.e-]*//g' <<< "$output")" = "$plain" ]
    pesc eval "$D/model" --tasks "$D/task.jsonl" -q --draft "$BATS_TEST_DIRNAME/../golden/llama"
    [ "$status" = 2 ]
    [[ $stderr == *'the same vocabulary'* ]]
}

@test "eval: the loss is the validation loss of train" {
    pesc train "$D/model" --method lora --lora-r 2 --data "$D/task.jsonl" --eval-data "$D/task.jsonl" \
        --steps 2 --batch 2 --seq-len 64 --eval-every 2 -o "$BATS_TEST_TMPDIR/run" --json -q
    [ "$status" = 0 ]
    local want=$output
    pesc eval "$BATS_TEST_TMPDIR/run" --tasks "$D/task.jsonl" --json -q
    python3 - <<PY
import json
want, have = json.loads('''$want''')["eval_loss"], json.loads('''$output''')["tasks"][0]["all"]["loss"]
assert abs(want - have) < 1e-4 * want, (want, have)
PY
}

# A model that was tuned until it knows its records answers them.
@test "eval: what was learnt is answered, whatever the batch" {
    pesc train "$D/model" --method full --data "$D/task.jsonl" --steps 150 --batch 3 --seq-len 64 --lr 1e-2 \
        --compute-dtype f32 --base-dtype f32 -o "$BATS_TEST_TMPDIR/run" -q
    [ "$status" = 0 ]
    for b in 1 2 16; do
        pesc eval "$BATS_TEST_TMPDIR/run" --tasks "$D/task.jsonl" --batch $b -q --json
        has '"all":\{"records":3,.*"asked":3,"correct":[23],'
        sed 's/"seconds":[0-9.e-]*//g' <<< "$output" > "$BATS_TEST_TMPDIR/batch$b"
    done
    cmp "$BATS_TEST_TMPDIR/batch1" "$BATS_TEST_TMPDIR/batch2"
    cmp "$BATS_TEST_TMPDIR/batch1" "$BATS_TEST_TMPDIR/batch16"
}

@test "eval: -n for each domain, --samples shows questions and answers" {
    pesc eval "$D/model" --tasks "$D/task.jsonl" -n 1 --samples -q --max-tokens 4
    [ "$status" = 0 ]
    has '^-- record 1, maths: wrong$'
    has '^-- record 2, code: wrong$'
    has '^expected  world$'
    has '^  all +2 '
    pesc eval "$D/model" --tasks "$D/task.jsonl" -n 1 --samples -q --max-tokens 4 --json
    python3 - <<PY
import json
s = json.loads(r'''$output''')["tasks"][0]["samples"]
assert sorted(x["record"] for x in s) == [0, 1] and not any(x["correct"] for x in s)
assert {x["expected"] for x in s} == {"1 + 1", "world"}
PY
}

@test "eval: records that do not fit are said" {
    pesc eval "$D/model" --tasks "$D/task.jsonl" --ctx 8 -q
    [ "$status" = 0 ]
    has 'records are longer than the session and were left out; --ctx makes room$'
}

@test "eval: several models on records, each by its name" {
    pesc eval "$D/model" "$D/tok/../model" --tasks "$D/task.jsonl" --loss-only
    [ "$status" = 0 ]
    has "^$D/task.jsonl, model $D/model\$"
    has "^$D/task.jsonl, model $D/tok/../model\$"
    has "^$D/task.jsonl, all models\$"
    has "^ +[0-9]+\.[0-9]{4} +\+0\.0000   -  +$D/tok/../model\$"
}

@test "eval: -o keeps what --json prints of records, with the dtype" {
    local out=$BATS_TEST_TMPDIR/out
    pesc eval "$D/model" "$D/tok/../model" --tasks "$D/task.jsonl" -o "$out" --samples --max-tokens 2 -q
    [ "$status" = 0 ]
    has '^-- record 1, maths: wrong$'
    has "^$D/task.jsonl, all models\$"
    pesc eval "$D/model" "$D/tok/../model" --tasks "$D/task.jsonl" --samples --max-tokens 2 --json -q
    [ "$(sed 's/"seconds":[0-9.e-]*//g' "$out/records.json")" = "$(sed 's/"seconds":[0-9.e-]*//g' <<< "$output")" ]
    has "^\[\{\"model\":\"$D/model\",\"compute_dtype\":\"f32\",\"tasks\":"
    pesc eval "$D/model" --tasks "$D/task.jsonl" -o "$out" --json
    [ "$status" = 2 ]
    [[ $stderr == *"$out/records.json: exists already; give another -o, or remove it" ]]
    pesc eval "$D/model" --tasks "$D/task.jsonl" --compute-dtype bf16 -o "$out.2" --json -q
    has '"compute_dtype":"bf16"'
    cmp <(cat <<< "$output") "$out.2/records.json"
}

@test "eval: of a base and its run each alone, the dtypes are said where they differ" {
    local run=$BATS_TEST_TMPDIR/run
    train() { pesc train "$D/model" --method lora --lora-r 2 --data "$D/task.jsonl" --steps 1 --batch 2 --seq-len 64 -o "$run.$1" --compute-dtype "$1" -q; }
    train bf16
    train f32
    pesc eval "$run.bf16" --tasks "$D/task.jsonl" --loss-only --json
    [[ $stderr == *"note: $run.bf16 computes in bf16, as it was trained; its base alone computes in f32 here: compare them in one command, or with --compute-dtype bf16"* ]]
    has '"compute_dtype":"bf16"'
    pesc eval "$run.f32" --tasks "$D/task.jsonl" --loss-only
    [[ $stderr != *"as it was trained"* ]]
    pesc eval "$D/model" "$run.bf16" "$run.f32" --tasks "$D/task.jsonl" --loss-only --json
    [[ $stderr == *"note: $run.f32 was trained in f32, and is compared in bf16, that of the first run"* ]]
    [ "$(grep -o '"compute_dtype":"bf16"' <<< "$output" | wc -l)" = 3 ]
}

@test "eval: the progress counts what --limit leaves" {
    for i in 1 2 3 4 5 6 7 8; do cat "$D/text.jsonl"; done > "$BATS_TEST_TMPDIR/many.jsonl"
    pesc eval "$D/model" --tasks "$BATS_TEST_TMPDIR/many.jsonl" --limit 3 --loss-only
    [ "$status" = 0 ]
    [[ $stderr != *"/8"* ]]
}

@test "eval: what it cannot do" {
    pesc eval "$D/model" --tasks arc_easy --max-tokens 4
    fails 2 'eval: --max-tokens is for files of records, found the task arc_easy; a task says itself how long its answers may be (max_tokens in its file)'
    pesc eval "$D/model"
    fails 2 'eval: --tasks TASK is missing; usage: pesc eval MODEL... --tasks TASK...'
    pesc eval "$D/model" --tasks mmlux
    fails 2 'eval: "mmlux" is neither a task nor a file of records; `pesc eval --list` prints the tasks'
    for bad in "--tasks $D/task.jsonl mmlux" "--tasks $D/task.jsonl $D/nothing.jsonl" "$D/nothing --tasks $D/task.jsonl"; do
        pesc eval "$D/model" $bad # found before anything is evaluated
        [ "$status" != 0 ]
        [ -z "$output" ]
    done
    pesc eval "$D/model" --tasks "$D/nothing.jsonl" --json
    [ "$status" = 3 ]
    has '^\{"error":\{"code":3,"message":".*nothing.jsonl'
    echo '{"x": 1}' > "$BATS_TEST_TMPDIR/bad.jsonl"
    pesc eval "$D/model" --tasks "$BATS_TEST_TMPDIR/bad.jsonl"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $BATS_TEST_TMPDIR/bad.jsonl:1: "* ]]
    pesc eval "$D/model" --tasks "$D/task.jsonl" --batch 0
    [ "$status" = 2 ]
}
