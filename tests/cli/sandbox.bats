# Benchmarks whose answers are programs, as a user sees them: a model that has learnt its answers by heart writes right
# programs, wrong ones and forgeries, on data that is made here.
load helper

ROOT=$BATS_TEST_DIRNAME/../..

setup_file() {
    export D=$BATS_FILE_TMPDIR
    python3 - "$D" <<'PY'
import json, os, sys
root = sys.argv[1]
# number of the task, what it asks for, its tests, and what the model will write
MBPP = [
    (11, "add one", "add", ["(1) == 2", "(2) == 3", "(5) == 6"], "def add(x): return x + 1"),
    (12, "double it", "twice", ["(1) == 2", "(2) == 4", "(3) == 6"], "def twice(x): return x + x + 1"),
    (13, "any text", "same", ["('a') == 'b'", "('b') == 'c'", "('c') == 'd'"],
     "class E(str):\n  __eq__ = lambda a, b: True\ndef same(x): return E()"),
    (14, "a list", "many", ["(1) == [1]", "(2) == [2]", "(3) == [3]"], "import os\nos._exit(0)"),
]
HUMANEVAL = [
    ("H/0", "def three():\n    '3'\n", "three", "def check(c):\n    assert c() == 3\n", "    return 3\n"),
    ("H/1", "def words(x):\n    'q'\n", "words", "def check(c):\n    assert c(1) == 'q'\n", "    raise SystemExit(0)\n"),
]
os.makedirs(root + "/bench/mbpp")
os.makedirs(root + "/bench/humaneval")
texts = []
with open(root + "/bench/mbpp/test.jsonl", "w") as f:
    for number, text, name, tests, answer in MBPP:
        tests = [f"assert {name}{t}" for t in tests]
        f.write(json.dumps(dict(task_id=number, text=text, code="", test_list=tests)) + "\n")
        texts.append("You are an expert Python programmer, and here is your task: " + text + " Your code should pass these tests:\n\n"
                     + "\n".join(tests) + "\n[BEGIN]\n" + answer + "\n[DONE]")
with open(root + "/bench/humaneval/test.jsonl", "w") as f:
    for number, prompt, name, test, answer in HUMANEVAL:
        f.write(json.dumps(dict(task_id=number, prompt=prompt, test=test, entry_point=name, canonical_solution="")) + "\n")
        texts.append(prompt + answer + "\n#")
with open(root + "/learn.jsonl", "w") as f:
    f.writelines(json.dumps(dict(text=t)) + "\n" for t in texts)
PY
    "$PESC" train "$ROOT/share/base" --data "$D/learn.jsonl" --method full --steps 60 --batch 6 --lr 4e-3 --seq-len 512 \
        --threads 1 -o "$D/run" -q > "$D/train.out"
}

evaluate() { pesc eval "$D/run" --data-dir "$D/bench" --shots 0 --ctx 2048 "$@"; }

# Runs a command where the kernel allows neither namespaces nor Landlock.
without_sandbox() {
    python3 -c 'import os, sys
sys.path.insert(0, sys.argv[1])
import run_sandbox
run_sandbox.forbid(run_sandbox.NOTHING)()
os.execv(sys.argv[2], sys.argv[2:])' "$ROOT/tests/faults" "$@"
}

@test "sandbox: right, wrong and forged programs of mbpp" {
    evaluate --tasks mbpp -o "$BATS_TEST_TMPDIR/out" -q
    [ "$status" = 0 ]
    python3 - "$BATS_TEST_TMPDIR/out" <<'PY'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1] + "/samples_mbpp.jsonl")]
print(*(l["resps"][0] for l in lines), sep="\n--\n")
assert [l["pass_at_1"] for l in lines] == [1, 0, 0, 0]
# the rule of the harness is deceived by the third
assert [l["pass_at_1_reference"] for l in lines] == [1, 0, 1, 0]
assert "mode " in json.load(open(sys.argv[1] + "/results.json"))["config"]["sandbox"]
PY
    has '^mbpp\? +0  pass_at_1 +4 +25\.00 '
    has '^mbpp\? +0  pass_at_1 \(reference\) +4 +50\.00 '
}

@test "sandbox: a program of humaneval continues its prompt, and cannot leave the tests" {
    evaluate --tasks humaneval -o "$BATS_TEST_TMPDIR/out" -q
    [ "$status" = 0 ]
    python3 - "$BATS_TEST_TMPDIR/out" <<'PY'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1] + "/samples_humaneval.jsonl")]
print(*(l["filtered_resps"][0] for l in lines), sep="\n--\n")
assert lines[0]["filtered_resps"][0].startswith("def three():\n    '3'\n    return 3")
assert [l["pass@1"] for l in lines] == [1, 0]
PY
}

@test "sandbox: without one the tasks are refused before anything is computed" {
    local code=0
    without_sandbox "$PESC" eval "$D/run" --tasks mbpp --data-dir "$D/bench" --shots 0 -o "$BATS_TEST_TMPDIR/out" -q \
        > "$BATS_TEST_TMPDIR/stdout" 2> "$BATS_TEST_TMPDIR/stderr" || code=$?
    [ "$code" = 4 ]
    [ ! -e "$BATS_TEST_TMPDIR/out" ]
    [ "$(wc -l < "$BATS_TEST_TMPDIR/stderr")" = 1 ]
    grep -q '^pesc: programs that a model wrote are not run, because this system allows no sandbox\. Mode A: .* Mode B: .*--unsafe-code runs them without one$' \
        "$BATS_TEST_TMPDIR/stderr"
}

@test "sandbox: --unsafe-code runs the programs all the same, and results.json says so" {
    without_sandbox "$PESC" eval "$D/run" --tasks mbpp --data-dir "$D/bench" --shots 0 --unsafe-code -o "$BATS_TEST_TMPDIR/out" -q \
        > "$BATS_TEST_TMPDIR/stdout"
    grep -Eq '^mbpp\? +0  pass_at_1 +4 +25\.00 ' "$BATS_TEST_TMPDIR/stdout"
    grep -q '"sandbox": "mode none: resource limits only (unsafe)' "$BATS_TEST_TMPDIR/out/results.json"
    # with a sandbox it is another evaluation
    evaluate --tasks mbpp -o "$BATS_TEST_TMPDIR/out"
    [ "$status" = 0 ]
    [[ $stderr == *"is from an evaluation with another "*"; it begins again"* ]]
}
