load helper
setup_file() { make_model; }

@test "new: prints what was created" {
    [ "$(cat "$D/new.out")" = "$D/model: llama, 32.5 K parameters, 127 KiB" ]
    [ -f "$D/model/config.json" ]
    [ -f "$D/model/tokenizer.json" ]
}

@test "new: JSON, bf16 by default, half the bytes" {
    pesc new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" --json
    gives "{\"path\":\"$BATS_TEST_TMPDIR/m\",\"family\":\"llama\",\"params\":32544,\"bytes\":65088}"
}

@test "new: a tokenizer is copied from any name, and must be one" {
    local t=$BATS_TEST_TMPDIR m=$BATS_TEST_TMPDIR/m
    cp "$D/model/tokenizer.json" "$t/mine.json"
    pesc new "$D/config.json" -o "$m" --tokenizer "$t/mine.json"
    [ "$status" = 0 ]
    cmp "$m/tokenizer.json" "$D/model/tokenizer.json"
    mkdir "$t/none"
    pesc new "$D/config.json" -o "$t/a" --tokenizer "$t/none"
    fails 3 "$t/none: has neither tokenizer.json nor tokenizer.model"
    pesc new "$D/config.json" -o "$t/a" --tokenizer "$D/config.json"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $D/config.json: "* ]]
    [ -z "$(ls -A "$t/a")" ]
}

@test "new: the seed decides the weights" {
    local m=$BATS_TEST_TMPDIR
    "$PESC" new "$D/config.json" -o "$m/a" --dtype f32 --seed 1
    "$PESC" new "$D/config.json" -o "$m/b" --dtype f32 --seed 2
    cmp "$m/a/model.safetensors" "$D/model/model.safetensors"
    refute cmp -s "$m/b/model.safetensors" "$D/model/model.safetensors"
}

@test "new: refuses a directory that is not empty" {
    mkdir "$BATS_TEST_TMPDIR/m"
    touch "$BATS_TEST_TMPDIR/m/mine"
    pesc new "$D/config.json" -o "$BATS_TEST_TMPDIR/m"
    fails 2 "$BATS_TEST_TMPDIR/m: is not empty; give another -o, or --overwrite"
    [ "$(ls "$BATS_TEST_TMPDIR/m")" = mine ]
}

@test "new: --overwrite replaces the model and nothing else" {
    local m=$BATS_TEST_TMPDIR/m
    cp -r "$D/model" "$m"
    touch "$m/mine" "$m/model.safetensors.index.json"
    pesc new "$D/config.json" -o "$m" --overwrite --dtype f32 --seed 2
    fails 2 "$m: holds model.safetensors.index.json, which pesc did not write and which would be taken for a part of the new model; remove it, or give another -o"
    rm "$m/model.safetensors.index.json"
    pesc new "$D/config.json" -o "$m" --overwrite --dtype f32 --seed 2
    [ "$status" = 0 ]
    [ "$(ls "$m" | paste -sd' ')" = "config.json mine model.safetensors" ]
    refute cmp -s "$m/model.safetensors" "$D/model/model.safetensors"
    [ "$(ls "$BATS_TEST_TMPDIR" | grep -c '^m')" = 1 ]
}

@test "new: a failed --overwrite leaves the old model" {
    local m=$BATS_TEST_TMPDIR/m
    cp -r "$D/model" "$m"
    pesc new "$D/nothing.json" -o "$m" --overwrite
    [ "$status" = 3 ]
    diff -r "$m" "$D/model"
    [ "$(ls "$BATS_TEST_TMPDIR" | grep -c '^m')" = 1 ]
}

@test "new: an empty directory is accepted, a file in its place is refused" {
    mkdir "$BATS_TEST_TMPDIR/m"
    pesc new "$D/config.json" -o "$BATS_TEST_TMPDIR/m"
    [ "$status" = 0 ]
    touch "$BATS_TEST_TMPDIR/f"
    pesc new "$D/config.json" -o "$BATS_TEST_TMPDIR/f"
    fails 2 "$BATS_TEST_TMPDIR/f: is not a directory; give another -o"
}

@test "new: usage errors" {
    pesc new "$D/config.json"
    fails 2 "new: -o DIR is missing; usage: pesc new CONFIG -o DIR"
    pesc new -o "$BATS_TEST_TMPDIR/m"
    fails 2 "new: CONFIG is missing; usage: pesc new CONFIG -o DIR"
    pesc new "$D/config.json" -o "$BATS_TEST_TMPDIR/m" --dtype f8
    fails 2 'new: --dtype: found "f8", expected bf16 or f32'
    pesc new "$D/none.json" -o "$BATS_TEST_TMPDIR/m"
    [ "$status" = 3 ]
    echo '{"model_type": "llama", "hidden_size": -3}' > "$BATS_TEST_TMPDIR/bad.json"
    pesc new "$BATS_TEST_TMPDIR/bad.json" -o "$BATS_TEST_TMPDIR/m"
    [ "$status" = 3 ]
    [[ $stderr == *bad.json*hidden_size* ]]
    pesc new "$D/config.json" -o /proc/nowhere
    [ "$status" = 4 ]
}

# The names and shapes in the header of a safetensors file.
header() { python3 -c 'import json,struct,sys;b=open(sys.argv[1],"rb").read();h=json.loads(b[8:8+struct.unpack("<Q",b[:8])[0]]);print(sorted((k,v["shape"]) for k,v in h.items() if k!="__metadata__"))' "$1"; }

@test "new: fused tensors are written as transformers has them" {
    local f
    for f in phi3 glm4 gpt_oss; do
        "$PESC" new "$BATS_TEST_DIRNAME/../golden/$f/config.json" -o "$BATS_TEST_TMPDIR/$f" --dtype bf16 -q
        [ "$(header "$BATS_TEST_TMPDIR/$f/model.safetensors")" = "$(header "$BATS_TEST_DIRNAME/../golden/$f/model.safetensors")" ]
        "$PESC" info "$BATS_TEST_TMPDIR/$f" > "$BATS_TEST_TMPDIR/info"
    done
}
