load helper
setup_file() {
    make_model
    "$PESC" craft "$D/model" -o "$D/sparse" --experts 4 --top-k 2 --adapter-dim 8 -q > "$D/craft.out"
    cat > "$D/mixed.jsonl" <<'JSON'
{"domain": "maths", "instruction": "hello", "output": "1 + 1"}
{"domain": "code", "instruction": "hello", "output": "world"}
{"domain": "maths", "instruction": "or", "output": "2"}
JSON
    echo '{"instruction": "hello", "output": "hello"}' > "$D/plain.jsonl"
}

@test "routes: a map in plain numbers, and two pictures" {
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" -o "$BATS_TEST_TMPDIR" -q
    [ "$status" = 0 ]
    has '^percent of a domain.s choices that fell on each expert \(top 2 of 4; even is 25\)$'
    has '^ +maths +code *$' # too narrow for the number of tokens
    has '^layer   0  1  2  3    0  1  2  3  differ$'
    has '^    0( +[0-9]+){8} +[01]\.[0-9]{2}$'
    has '^    1( +[0-9]+){8} +[01]\.[0-9]{2}$'
    refute grep -q $'\033' <<< "$output"
    for f in svg png; do
        [ -s "$BATS_TEST_TMPDIR/plots/routing.$f" ]
        has "^$BATS_TEST_TMPDIR/plots/routing.$f\$"
    done
}

@test "routes: without -o the pictures lie in plots/ here" {
    cd "$BATS_TEST_TMPDIR"
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" -q
    [ "$status" = 0 ]
    [ -s plots/routing.svg ]
}

@test "routes: colours on a terminal" {
    run script -qec "'$PESC' routes '$D/sparse' --data '$D/mixed.jsonl' -o '$BATS_TEST_TMPDIR' -q" /dev/null
    [ "$status" = 0 ]
    grep -q $'\033\[48;5;' <<< "$output"
}

@test "routes: --json has the shares of every domain, layer and expert" {
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" "$D/plain.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    python3 - <<PY
import json
r = json.loads('''$output''')
assert (r["experts"], r["top_k"], r["layers"]) == (4, 2, [0, 1])
assert [d["domain"] for d in r["domains"]] == ["maths", "code", "plain"]
assert [d["records"] for d in r["domains"]] == [2, 1, 1]
for d in r["domains"]:
    assert len(d["share"]) == 2
    for layer in d["share"]:
        assert len(layer) == 4 and abs(sum(layer) - 1) < 1e-9
assert len(r["difference"]) == 2 and all(0 <= x <= 1 for x in r["difference"])
assert r["plots"] == ["$BATS_TEST_TMPDIR/plots/routing.svg", "$BATS_TEST_TMPDIR/plots/routing.png"]
PY
}

@test "routes: the number of threads changes nothing" {
    for t in 1 3; do
        "$PESC" routes "$D/sparse" --data "$D/mixed.jsonl" -o "$BATS_TEST_TMPDIR" --json -q --threads $t > "$BATS_TEST_TMPDIR/$t"
        cp "$BATS_TEST_TMPDIR/plots/routing.svg" "$BATS_TEST_TMPDIR/$t.svg"
    done
    cmp "$BATS_TEST_TMPDIR/1" "$BATS_TEST_TMPDIR/3"
    cmp "$BATS_TEST_TMPDIR/1.svg" "$BATS_TEST_TMPDIR/3.svg"
}

@test "routes: -n takes so many records of each domain" {
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" -n 1 -o "$BATS_TEST_TMPDIR" --json -q
    has '"domain":"maths","records":1,'
}

@test "routes: what it cannot do" {
    pesc routes "$D/sparse"
    fails 2 'routes: --data FILE is missing; usage: pesc routes MODEL --data FILE...'
    pesc routes "$D/model" --data "$D/mixed.jsonl"
    fails 3 'the model is dense: it has no experts to choose from; a mixture is needed'
    pesc routes "$D/sparse" --data "$D/nothing.jsonl"
    [ "$status" = 3 ]
    [[ $stderr == *nothing.jsonl* ]]
    echo 'nonsense' > "$BATS_TEST_TMPDIR/bad.jsonl"
    pesc routes "$D/sparse" --data "$BATS_TEST_TMPDIR/bad.jsonl"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $BATS_TEST_TMPDIR/bad.jsonl: "* ]]
    echo x > "$BATS_TEST_TMPDIR/file"
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" -o "$BATS_TEST_TMPDIR/file" -q
    fails 4 "$BATS_TEST_TMPDIR/file/plots: cannot be made: Not a directory"
}

@test "routes: gates that are not finite are a numeric failure" {
    local f=$BATS_TEST_TMPDIR/m/model.safetensors header size
    cp -r "$D/sparse" "$BATS_TEST_TMPDIR/m"
    header=$(($(od -An -t u8 -N 8 "$f") + 8))
    size=$(stat -c %s "$f")
    truncate -s $header "$f"
    head -c $((size - header)) /dev/zero | tr '\0' '\377' >> "$f"
    pesc routes "$BATS_TEST_TMPDIR/m" --data "$D/mixed.jsonl" -o "$BATS_TEST_TMPDIR"
    fails 5 "layer 0: a gate is not finite"
}

@test "routes: every choice, gates, load and entropy, as a second count has them" {
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    python3 - "$output" <<'PY'
import json, math, sys
r = json.loads(sys.argv[1])
for d in r["domains"]:
    for l in range(2):
        first, second = d["counts"][l]
        assert sum(first) == sum(second) == d["tokens"]
        assert first != second
        both = [a + b for a, b in zip(first, second)]
        share = [n / (2 * d["tokens"]) for n in both]
        assert all(math.isclose(a, b) for a, b in zip(share, d["share"][l]))
        assert math.isclose(d["load"][l], max(share) * 4)
        h = -sum(p * math.log(p) for p in share if p) / math.log(4)
        assert math.isclose(d["entropy"][l], h)
        # gates of a token sum to 1, the first is the larger
        g1, g2 = d["slot_gate"][l]
        assert math.isclose(g1 + g2, 1, rel_tol=1e-5) and g1 > 0.5
        mean = sum(n * g for n, g in zip(both, d["gate"][l]) if n) / d["tokens"]
        assert math.isclose(mean, 1, rel_tol=1e-5)
assert len(r["p_value"]) == len(r["chance"]) == 2
assert all(0 < p <= 1 for p in r["p_value"])
PY
}

@test "routes: the permutation test" {
    for i in 1 2 3 4 5 6 7 8; do
        echo '{"domain": "a", "instruction": "hello hello hello", "output": "hello hello"}'
        echo '{"domain": "b", "instruction": "0 1 2 3 4 5", "output": "6 7 8 9"}'
    done > "$BATS_TEST_TMPDIR/two.jsonl"
    for i in 1 2 3 4 5 6 7 8; do
        echo '{"domain": "a", "instruction": "hello", "output": "same"}'
        echo '{"domain": "b", "instruction": "hello", "output": "same"}'
    done > "$BATS_TEST_TMPDIR/one.jsonl"
    pesc routes "$D/sparse" --data "$BATS_TEST_TMPDIR/two.jsonl" --permutations 99 -o "$BATS_TEST_TMPDIR" -q
    [ "$status" = 0 ]
    has '^domains differ by more than chance in 2 of 2 layers \(p < 0\.05; domains were exchanged among records 99 times\)$'
    pesc routes "$D/sparse" --data "$BATS_TEST_TMPDIR/one.jsonl" --permutations 99 -o "$BATS_TEST_TMPDIR" --json -q
    has '"p_value":\[1,1\]'
    pesc routes "$D/sparse" --data "$BATS_TEST_TMPDIR/two.jsonl" --permutations 99 --seed 1 -o "$BATS_TEST_TMPDIR" --json -q
    has '"p_value":\[0\.01,0\.01\]'
    pesc routes "$D/sparse" --data "$BATS_TEST_TMPDIR/two.jsonl" --permutations 0 -o "$BATS_TEST_TMPDIR" --json -q
    has '"p_value":\[null,null\]'
}

@test "routes: one layer closely" {
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" --layer 1 -o "$BATS_TEST_TMPDIR" -q
    [ "$status" = 0 ]
    has '^layer 1: percent of tokens by choice 1, 2; mean gate where chosen$'
    has '^  expert   3 +[0-9.]+ +[0-9.]+ +([0-9.]+|nan)$'
    has '^tokens that choose the expert more often than its share, with their lift$'
    has '^expert   0 .*\|[0-9.]+x'
    for f in svg png; do
        [ -s "$BATS_TEST_TMPDIR/plots/routing-layer.$f" ]
    done
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" --layer 1 -o "$BATS_TEST_TMPDIR" --json -q
    python3 - "$output" <<'PY'
import json, sys
r = json.loads(sys.argv[1])
assert r["layer"] == 1 and len(r["tokens"]) == 4 and len(r["plots"]) == 4
tokens = sum(d["tokens"] for d in r["domains"])
for e, best in enumerate(r["tokens"]):
    part = sum(sum(slot[e] for slot in d["counts"][1]) for d in r["domains"]) / tokens
    for t in best:
        assert 0 < t["chosen"] <= t["seen"] and t["lift"] > 1
        assert abs(t["lift"] - t["chosen"] / t["seen"] / part) < 1e-9
    above = [t["chosen"] - part * t["seen"] for t in best]
    assert above == sorted(above, reverse=True)
PY
    pesc routes "$D/sparse" --data "$D/mixed.jsonl" --layer 2 -q
    fails 2 'layer: found 2, which has no router; expected 0 to 1'
}

@test "routes: a run over time" {
    local run=$BATS_TEST_TMPDIR/run
    mkdir "$run"
    cat > "$run/routing.jsonl" <<'JSON'
{"step":10,"layers":[[0.25,0.25,0.25,0.25],[0.4,0.3,0.2,0.1]]}
{"step":20,"layers":[[0.5,0.25,0.25,0],[0.997,0.001,0.001,0.001]]}
JSON
    pesc routes --over-time "$run" -o "$BATS_TEST_TMPDIR" --json -q
    [ "$status" = 0 ]
    python3 - "$output" <<'PY'
import json, math, sys
r = json.loads(sys.argv[1])
assert (r["experts"], r["layers"], r["steps"]) == (4, 2, [10, 20])
assert r["dead"] == [[0, 1], [0, 3]]
for found, expected in zip(r["load"], [[1, 2], [1.6, 3.988]]):
    assert all(math.isclose(a, b) for a, b in zip(found, expected)), r
assert math.isclose(r["entropy"][0][0], 1) and math.isclose(r["entropy"][0][1], 0.75) and r["entropy"][1][1] < 0.02
assert len(r["plots"]) == 6
PY
    for what in load entropy dead; do
        for f in svg png; do
            [ -s "$BATS_TEST_TMPDIR/plots/routing-$what.$f" ]
        done
    done
    pesc routes --over-time "$run" -o "$BATS_TEST_TMPDIR" -q
    has '^      20   2\.99,  3\.99 \(layer  1\)  0\.3[0-9]+, 0\.01[0-9] \(layer  1\)  4, 3 \(layer 1\)$'
    pesc routes --over-time "$D/model"
    fails 3 "$D/model: routing.jsonl has no steps; expected the directory of a run that trains a model with experts"
    pesc routes --data "$D/mixed.jsonl"
    fails 2 'routes: MODEL is missing; usage: pesc routes MODEL --data FILE...'
    echo '{"step":1,"layers":[[1],[0,1]]}' > "$run/routing.jsonl"
    pesc routes --over-time "$run"
    fails 3 "$run/routing.jsonl: layers: expected rows of the same number of shares"
}
