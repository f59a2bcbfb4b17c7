load helper
setup_file() {
    make_model
    "$PESC" craft "$D/model" -o "$D/sparse" --adapter-dim 8 --check false -q > "$D/craft.out"
    "$PESC" craft "$D/model" -o "$D/copies" --kind upcycle --experts 4 --check false -q >> "$D/craft.out"
    printf '{"experts": {"0": [1], "1": [0, 3]}, "shared_experts": false, "non_expert_modules": false}' > "$D/expert_cfg.json"
    printf '{"prompt": "hello", "completion": "world"}\n%.0s' {1..4} > "$D/train.jsonl"
}
setup() { Y=$BATS_TEST_TMPDIR/run.yaml; }

# recipe: the model it is for
recipes='pesc:sparse qlora-pesc:sparse qlora:model lora:model full:model upcycle:copies molora:model esft:copies'

@test "init: every recipe is a run file that plan and train take as it is" {
    cd "$BATS_TEST_TMPDIR"
    cp "$D/expert_cfg.json" .
    for r in $recipes; do
        "$PESC" init "${r%:*}" --model "$D/${r#*:}" --data "$D/train.jsonl" --output "${r%:*}" --steps 1 --seq-len 64 > run.yaml
        pesc plan -c run.yaml --json
        [ "$status" = 0 ]
        has '"fits":true'
        pesc train -c run.yaml -q --json
        [ "$status" = 0 ]
        has '"step":1,"steps":1,'
    done
}

@test "init: a run from the file is the run without it" {
    for r in $recipes; do
        local options="--data $D/train.jsonl --steps 1 --seq-len 64"
        case $r in
        qlora-pesc:*) options+=" --method pesc --base-dtype nf4" ;;
        full:* | upcycle:*) options+=" --method ${r%:*} --lr 2e-5" ;;
        esft:*) options+=" --method esft --preset esft --experts-config $D/expert_cfg.json" ;;
        *) options+=" --method ${r%:*}" ;;
        esac
        (
            cd "$D"
            "$PESC" init "${r%:*}" --model "${r#*:}" --data train.jsonl --steps 1 --seq-len 64 > "$Y"
            # commented keys have their default values, so they may become real keys; left out are those whose value
            # is only a placeholder, and the experts, which a sparse model has already
            sed -i -E '/^#[a-z0-9_]+: (FILE|NAME|NAME=FILE,\.\.\.|DIR|N|[a-z0-9]+\|[a-z0-9|]+) /d; /^#(experts|top_k|adapter_dim|adapter_scale):/d
                s/^#([a-z0-9_]+: )/\1/' "$Y"
            "$PESC" train -c "$Y" -o "$BATS_TEST_TMPDIR/a" --overwrite -q
            "$PESC" train "${r#*:}" $options -o "$BATS_TEST_TMPDIR/b" --overwrite -q
        )
        cd "$BATS_TEST_TMPDIR"
        # aux_coef is written out where the method would decide it; double_quant and paths are equal
        diff <(grep -Ev '^(output|aux_coef|warmup_)' a/run.yaml) <(grep -Ev '^(output|aux_coef|warmup_)' b/run.yaml)
    done
}

@test "init: options given are in the file, whatever is in them" {
    pesc init lora --model 'a "b" \ c' --data x.jsonl 'y z.jsonl' --lr 3e-5 --warmup-steps 7 --shuffle false --output null
    [ "$status" = 0 ]
    cp "$BATS_TEST_TMPDIR/stdout" "$Y"
    has '^data: \[x.jsonl, "y z.jsonl"\] '
    has '^lr: 3e-5 '
    has '^warmup_steps: 7 '
    has '^shuffle: false '
    has '^output: "null" '
    pesc plan -c "$Y"
    fails 3 'a "b" \ c: there is no such file or directory'
    # and again from that file
    pesc init lora -c "$Y"
    diff "$Y" "$BATS_TEST_TMPDIR/stdout"
}

@test "init: -o writes a file, but not over one" {
    pesc init -o "$Y"
    gives ""
    diff <("$PESC" init | sed "s#run.yaml#$Y#g") "$Y"
    pesc init full -o "$Y"
    fails 2 "$Y: exists already; give another -o, or remove it"
    pesc init -o "$BATS_TEST_TMPDIR/none/run.yaml"
    fails 4 "$BATS_TEST_TMPDIR/none/run.yaml: cannot be written: No such file or directory"
    pesc init --json
    has '^\{"recipe":"pesc","text":"# pesc: '
}

@test "init: --preset esft is the recipe esft" {
    diff <("$PESC" init --preset esft) <("$PESC" init esft)
}

@test "init: lines fit a screen of 100 columns" {
    for r in $recipes; do
        [ -z "$("$PESC" init "${r%:*}" | awk 'length > 100')" ]
    done
}

@test "init: what is wrong" {
    pesc init pecs
    fails 2 'init: there is no recipe "pecs"; did you mean pesc?'
    pesc init chocolate
    fails 2 'init: there is no recipe "chocolate", expected one of pesc, qlora-pesc, qlora, lora, full, upcycle, molora, esft'
    pesc init lora --learning-rate 1
    [ "$status" = 2 ]
    pesc init lora --lr much
    fails 2 'init: --lr: found "much", expected a number from 0 to 1e30'
}
