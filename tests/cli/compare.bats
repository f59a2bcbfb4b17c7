load helper

# $D/model: dense; other: another one; sparse and full: PESC and upcycled models of model, trained a little, so that
# adapters and experts differ.
setup_file() {
    make_model
    "$PESC" new "$D/config.json" -o "$D/other" --tokenizer "$D/tok" --dtype f32 --seed 2 -q > "$D/new.out"
    cat > "$D/ids.jsonl" <<'JSON'
{"input_ids": [262, 5, 90, 17, 201, 44, 90, 3, 120], "labels": [-100, 5, 90, 17, 201, 44, 90, 3, 120]}
{"input_ids": [262, 259, 260, 31, 7, 8], "labels": [-100, 259, 260, 31, 7, 8]}
JSON
    "$PESC" craft "$D/model" -o "$D/crafted" --experts 4 --top-k 2 --adapter-dim 8 -q > "$D/craft.out"
    "$PESC" craft "$D/model" -o "$D/upcycled" --kind upcycle --experts 4 --top-k 2 -q > "$D/craft.out"
    local how="--data $D/ids.jsonl --steps 4 --batch 2 --seq-len 16 --lr 0.02 --lora-r 2 --clip 0 --warmup-steps 0 -q"
    # shellcheck disable=SC2086
    "$PESC" train "$D/crafted" -o "$D/pesc-run" --method pesc $how > "$D/train.out"
    # shellcheck disable=SC2086
    "$PESC" train "$D/upcycled" -o "$D/full-run" --method upcycle $how > "$D/train.out"
    "$PESC" merge "$D/pesc-run" -o "$D/sparse" --dtype f32 -q > "$D/merge.out"
    "$PESC" merge "$D/full-run" -o "$D/full" --dtype f32 -q > "$D/merge.out"
}

# The last output equals the oracle's up to rounding in f32.
equals_oracle() { # model other
    python3 "$BATS_TEST_DIRNAME/compare_oracle.py" "$1" "$2" "$D/ids.jsonl" > "$BATS_TEST_TMPDIR/expected"
    python3 - "$output" "$BATS_TEST_TMPDIR/expected" <<'PY'
import json, math, sys
found, expected = json.loads(sys.argv[1]), json.load(open(sys.argv[2]))
def same(a, b, where):
    ok = a == b if a is None or b is None else math.isclose(a, b, rel_tol=2e-4, abs_tol=1e-6)
    assert ok, (where, a, b)
for key in ("tokens", "greedy_same", "targets"):
    assert found[key] == expected[key], (key, found, expected)
for key in ("kl", "loss_model", "loss_other"):
    same(found[key], expected[key], key)
assert len(found["layers"]) == len(expected["layers"])
for f, e in zip(found["layers"], expected["layers"]):
    for key in e:
        same(f[key], e[key], (e["layer"], key))
PY
}

@test "compare: two dense models, as a second implementation has it" {
    pesc compare "$D/model" "$D/other" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    equals_oracle "$D/model" "$D/other"
}

@test "compare: a PESC model and full experts: the distance of experts too" {
    for pair in "sparse full" "full sparse"; do
        # shellcheck disable=SC2086
        set -- $pair
        pesc compare "$D/$1" "$D/$2" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
        [ "$status" = 0 ]
        equals_oracle "$D/$1" "$D/$2"
        has '"experts":[0-9]\.[0-9]+,"nearest":[0-9]\.[0-9]+'
    done
}

@test "compare: LoRA on full experts counts as if it were merged" {
    local run=$BATS_TEST_TMPDIR/run
    pesc train "$D/upcycled" -o "$run" --method lora --lora-targets experts --data "$D/ids.jsonl" --steps 4 --batch 2 --seq-len 16 \
        --lr 0.02 --lora-r 2 --clip 0 --warmup-steps 0 -q
    [ "$status" = 0 ]
    pesc merge "$run" -o "$run.merged" --dtype f32 -q
    pesc compare "$D/sparse" "$run.merged" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    local merged=$output
    pesc compare "$D/sparse" "$run" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    python3 - "$output" "$merged" <<'PY'
import json, math, sys
for f, e in zip(*(json.loads(x)["layers"] for x in sys.argv[1:])):
    for key in ("ffn", "experts", "nearest"):
        assert e[key] > 1e-3 and math.isclose(f[key], e[key], rel_tol=1e-3), (key, f, e)
PY
}

@test "compare: a model with itself" {
    for m in model sparse full; do
        pesc compare "$D/$m" "$D/$m" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
        [ "$status" = 0 ]
        python3 - "$output" <<'PY'
import json, sys
r = json.loads(sys.argv[1])
assert r["kl"] == 0 and r["agreement"] == 1 and r["loss_model"] == r["loss_other"], r
assert all(x["ffn"] == 0 and x["residual"] == 0 for x in r["layers"]), r
PY
    done
}

@test "compare: crafting changes nothing" {
    pesc compare "$D/model" "$D/crafted" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    has '"kl":0,.*"agreement":1,'
    has '"layer":1,"ffn":0,"residual":0,'
    # experts that are all equal to the FFN: equation 6 is 0 up to rounding
    pesc compare "$D/crafted" "$D/upcycled" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    python3 -c '
import json, sys
r = json.loads(sys.argv[1])
assert all(x["experts"] < 1e-6 and x["nearest"] < 1e-6 and x["ffn"] < 1e-5 for x in r["layers"]), r
assert r["agreement"] == 1 and r["kl"] < 1e-9, r' "$output"
}

@test "compare: packing and the number of threads change nothing" {
    pesc compare "$D/model" "$D/other" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q --threads 1
    first=$output
    pesc compare "$D/model" "$D/other" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q --threads 3
    [ "$output" = "$first" ]
    pesc compare "$D/model" "$D/other" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" --json -q --seq-len 9
    [ "$output" = "$first" ]
}

@test "compare: the table, and the pictures" {
    pesc compare "$D/model" "$D/other" --data "$D/ids.jsonl" -n 1 -o "$BATS_TEST_TMPDIR" -q
    [ "$status" = 0 ]
    has ': 9 tokens of 1 records$'
    has '^KL of the next token +[0-9.]+ nats$'
    has '^greedy tokens agree +[0-9.]+ % \([0-9] of 9\)$'
    has '^layer +FFN +residual$'
    has '^ +1 +[0-9.]+ +[0-9.]+$'
    for f in svg png; do
        [ -s "$BATS_TEST_TMPDIR/plots/compare.$f" ]
    done
    pesc compare "$D/sparse" "$D/full" --data "$D/ids.jsonl" -o "$BATS_TEST_TMPDIR" -q
    has '^layer +FFN +residual +experts +nearest$'
}

@test "compare: what it cannot do" {
    pesc compare "$D/model" "$D/other"
    fails 2 'compare: --data FILE is missing; usage: pesc compare MODEL OTHER --data FILE...'
    pesc compare "$D/model"
    [ "$status" = 2 ]
    sed 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' "$D/config.json" > "$BATS_TEST_TMPDIR/config.json"
    "$PESC" new "$BATS_TEST_TMPDIR/config.json" -o "$BATS_TEST_TMPDIR/deeper" --dtype f32 -q > "$BATS_TEST_TMPDIR/new.out"
    pesc compare "$D/model" "$BATS_TEST_TMPDIR/deeper" --data "$D/ids.jsonl" -q
    fails 3 'the models cannot be compared: 2 layers of 32 and 266 tokens of vocabulary in the first, 3 layers of 32 and 266 tokens in the second; expected the same'
}
