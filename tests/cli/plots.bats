# The pictures of a run: drawn at checkpoints from what was logged, and never worth a run.
load helper

G=$BATS_TEST_DIRNAME/../golden/train

tiny() { # -o RUN ...
    pesc train "$G/pesc-a/model" --data "$G/pesc-a/data.jsonl" --steps 8 --batch 2 --lr 3e-3 --seq-len 32 \
        --lora-r 2 --threads 1 --log-every 2 "$@"
}

@test "plots: loss and expert load, as SVG and PNG" {
    tiny -o "$BATS_TEST_TMPDIR/run" -q
    [ "$status" = 0 ]
    [ "$(ls "$BATS_TEST_TMPDIR/run/plots")" = $'experts.png\nexperts.svg\nloss.png\nloss.svg' ]
    python3 - "$BATS_TEST_TMPDIR/run/plots" <<'PY'
import pathlib, sys, xml.dom.minidom
for svg in pathlib.Path(sys.argv[1]).glob("*.svg"):
    assert xml.dom.minidom.parse(str(svg)).documentElement.tagName == "svg"
for png in pathlib.Path(sys.argv[1]).glob("*.png"):
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
PY
}

@test "plots: a dense run has no experts to draw" {
    pesc train "$G/lora/model" --method lora --data "$G/lora/data.jsonl" --steps 2 --batch 2 --seq-len 32 --lora-r 2 \
        -o "$BATS_TEST_TMPDIR/run" -q
    [ "$(ls "$BATS_TEST_TMPDIR/run/plots")" = $'loss.png\nloss.svg' ]
}

@test "plots: a resumed run draws what an uninterrupted one draws" {
    tiny -o "$BATS_TEST_TMPDIR/a" -q
    tiny -o "$BATS_TEST_TMPDIR/b" -q --save-every 3
    rm -rf "$BATS_TEST_TMPDIR/b/checkpoint-8" "$BATS_TEST_TMPDIR/b/plots"
    pesc train -o "$BATS_TEST_TMPDIR/b" --resume -q
    [ "$status" = 0 ]
    for f in loss.svg experts.svg loss.png experts.png; do
        cmp "$BATS_TEST_TMPDIR/a/plots/$f" "$BATS_TEST_TMPDIR/b/plots/$f"
    done
}

@test "plots: what cannot be drawn is one note, not a failure" {
    mkdir -p "$BATS_TEST_TMPDIR/run"
    tiny -o "$BATS_TEST_TMPDIR/run" -q
    rm -r "$BATS_TEST_TMPDIR/run/plots"
    echo 'in the way' > "$BATS_TEST_TMPDIR/run/plots"
    rm -rf "$BATS_TEST_TMPDIR/run/checkpoint-8"
    pesc train -c "$BATS_TEST_TMPDIR/run/run.yaml" -o "$BATS_TEST_TMPDIR/run" --resume --save-every 2
    [ "$status" = 0 ]
    [ "$(grep -c "^pesc: note: no plots: $BATS_TEST_TMPDIR/run/plots" <<< "$stderr")" = 1 ]
    has 'done at step 8 of 8'
}
