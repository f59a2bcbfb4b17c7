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
