load helper

setup_file() {
    make_model
    "$PESC" craft "$D/model" -o "$D/sparse" --experts 16 --top-k 1 --adapter-dim 8 -q > "$D/craft.out"
    echo '{"instruction": "or", "output": "2"}' > "$D/data.jsonl"
}

@test "train: dead experts and a collapsed layer are said, once each, with what to try" {
    pesc train "$D/sparse" --data "$D/data.jsonl" -o "$BATS_TEST_TMPDIR/run" --steps 45 --batch 1 --seq-len 32 --lora-r 0 --lr 0
    [ "$status" = 0 ]
    grep -Eq '^pesc: note: layer [01]: expert [0-9]+ has had less than 1 % of an even load for 20 steps; .*aux_coef' <<< "$stderr"
    [ "$(grep -c 'of an even load' <<< "$stderr")" = 1 ]
    [ "$(grep -c 'few experts have most of the choices' <<< "$stderr")" = 1 ]
    grep -Eq 'experts H=0\.[0-9]{2} \(layer [01]: 0\.[0-9]{2}\) dead [0-9]+' <<< "$stderr"
    refute grep -q 'balance loss does not fall' <<< "$stderr"
}

@test "train: a dense model is not watched" {
    pesc train "$D/model" --data "$D/data.jsonl" -o "$BATS_TEST_TMPDIR/run" --method lora --steps 25 --batch 1 --seq-len 32 --lora-r 2
    [ "$status" = 0 ]
    refute grep -q 'experts' <<< "$stderr"
}
