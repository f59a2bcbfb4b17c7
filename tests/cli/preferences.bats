# pesc train --objective, and the commands that read pairs of answers.
setup() {
    cd "$BATS_TEST_DIRNAME/../.." || return
    PESC=${PESC:-build/pesc}
    T=$BATS_TEST_TMPDIR
    head -32 share/pairs.jsonl > "$T/pairs.jsonl"
    head -12 share/pairs-test.jsonl > "$T/held.jsonl"
    tune=(train share/base --method lora --lora-r 4 --lora-alpha 8 --template camelidae --seq-len 96
          --batch 8 --lr 1e-3 --warmup-steps 0 --log-every 1 --threads 1 -q)
    loud=("${tune[@]::${#tune[@]}-1}") # without -q
}

labels() { # a labelled file of the pairs
    python3 - "$T/pairs.jsonl" "$T/labels.jsonl" <<'P'
import json, sys
with open(sys.argv[2], "w") as out:
    for i, line in enumerate(open(sys.argv[1])):
        r = json.loads(line)
        good = i % 3 != 0
        print(json.dumps({"prompt": r["instruction"], "response": r["chosen" if good else "rejected"], "label": good}), file=out)
P
}

# The lines of a log without the fields of time.
log_of() { sed -E 's/"(tok_s|mem_bytes)":[^,]*,//g' "$1"; }

@test "every objective trains, measures what TRL measures and draws it" {
    labels
    for o in dpo ipo orpo simpo kto; do
        data=pairs && [ $o != kto ] || data=labels
        "$PESC" "${tune[@]}" --data "$T/$data.jsonl" --objective $o -o "$T/$o" 2> "$T/err"
        python3 - "$T/$o/metrics.jsonl" $o <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 4, len(rows)
keys = {"rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected"}
for r in rows:
    assert keys | {"kl" if sys.argv[2] == "kto" else "rewards/accuracies"} <= set(r), r
    assert abs(r["rewards/margins"] - r["rewards/chosen"] + r["rewards/rejected"]) < 1e-6
if sys.argv[2] in ("dpo", "ipo", "kto"):  # the model is its own reference
    assert abs(rows[0]["rewards/chosen"]) < 1e-9 and abs(rows[0]["rewards/rejected"]) < 1e-9
if sys.argv[2] == "dpo":
    assert abs(rows[0]["loss"] - 0.6931471805) < 1e-6
P
        [ -s "$T/$o/plots/rewards.svg" ]
        [ -s "$T/$o/plots/logps.svg" ]
        [ -s "$T/$o/plots/accuracy.svg" ] || [ $o = kto ]
        [ -e "$T/$o/reference.json" ] || [ $o = orpo ] || [ $o = simpo ]
    done
}

@test "a run on preferences that was stopped goes on with the same bits" {
    labels
    for o in dpo kto; do
        data=pairs && [ $o != kto ] || data=labels
        more=(--data "$T/$data.jsonl" --objective $o --epochs 2 --save-every 3 --eval-every 3)
        [ $o = kto ] || more+=(--eval-data "$T/held.jsonl")
        "$PESC" "${tune[@]}" "${more[@]}" -o "$T/$o" 2> "$T/err"
        "$PESC" "${tune[@]}" "${more[@]}" -o "$T/$o-half" --verify-every 0 2> "$T/err" &
        pid=$!
        until [ -e "$T/$o-half/checkpoint-3/manifest.json" ]; do sleep 0.05; done
        kill -9 $pid || true
        wait $pid || true
        before=$(md5sum < "$T/$o-half/reference.json")
        "$PESC" train --resume -o "$T/$o-half" --threads 2 -q 2> "$T/err"
        [ "$before" = "$(md5sum < "$T/$o-half/reference.json")" ]
        cmp "$T/$o/latest/adapter_model.safetensors" "$T/$o-half/latest/adapter_model.safetensors"
        cmp <(log_of "$T/$o/metrics.jsonl") <(log_of "$T/$o-half/metrics.jsonl")
        cmp "$T/$o/eval.jsonl" "$T/$o-half/eval.jsonl" || [ $o = kto ]
    done
}

@test "every method learns preferences, and its stopped run goes on with the same bits" {
    local m f more
    "$PESC" craft share/base -o "$T/sparse" --experts 4 --adapter-dim 8 --check false -q > /dev/null
    "$PESC" craft share/base -o "$T/mixture" --kind upcycle --experts 4 --check false -q > /dev/null
    echo '{"experts":{"0":[1],"1":[0,2],"2":[3],"3":[1]},"shared_experts":false,"non_expert_modules":false}' > "$T/experts.json"
    for m in pesc qlora full upcycle molora esft; do
        more=(--method $m --data "$T/pairs.jsonl" --eval-data "$T/held.jsonl" --objective dpo --batch 8 --epochs 2 --save-every 3 --lr 2e-3 --warmup-steps 0
              --lora-r 4 --template camelidae --seq-len 96 --log-every 1 --threads 1 -q)
        case $m in
        pesc) set -- "$T/sparse" ;;
        upcycle) set -- "$T/mixture" ;;
        esft) set -- "$T/mixture" --experts-config "$T/experts.json" ;;
        molora) set -- share/base --experts 4 ;;
        *) set -- share/base ;;
        esac
        "$PESC" train "$@" "${more[@]}" -o "$T/$m" > "$T/out" 2> "$T/err"
        "$PESC" train "$@" "${more[@]}" -o "$T/$m-half" --steps 3 > "$T/out" 2> "$T/err"
        "$PESC" train --resume -o "$T/$m-half" --steps 0 --threads 2 -q > "$T/out" 2> "$T/err"
        for f in "$T/$m"/latest/*.safetensors; do
            cmp "$f" "$T/$m-half/latest/${f##*/}"
        done
        cmp "$T/$m/reference.json" "$T/$m-half/reference.json"
        python3 - "$T/$m/metrics.jsonl" <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 8, len(rows)
assert rows[-1]["loss"] < rows[0]["loss"] and rows[-1]["rewards/margins"] > 0, (rows[0], rows[-1])
P
    done
}

@test "a reference that is gone or damaged is computed again, with the same bits" {
    "$PESC" "${tune[@]}" --data "$T/pairs.jsonl" --objective dpo --steps 3 --save-every 1 -o "$T/run" 2> "$T/err"
    cp "$T/run/reference.json" "$T/before"
    rm "$T/run/reference.json"
    "$PESC" train --resume -o "$T/run" --steps 4 -q 2> "$T/err"
    cmp "$T/before" "$T/run/reference.json"
    sed -i '0,/\[-[0-9]/s//[-9/' "$T/run/reference.json"
    "$PESC" train --resume -o "$T/run" --steps 5 -q 2> "$T/err"
    cmp "$T/before" "$T/run/reference.json"
}

@test "the reference does not depend on threads, batches or micro-batches" {
    "$PESC" "${tune[@]}" --data "$T/pairs.jsonl" --objective dpo --steps 1 -o "$T/a" 2> "$T/err"
    "$PESC" "${tune[@]}" --data "$T/pairs.jsonl" --objective dpo --steps 1 --threads 2 --batch 5 --micro-tokens 192 -o "$T/b" 2> "$T/err"
    "$PESC" "${tune[@]}" --data "$T/pairs.jsonl" --objective dpo --steps 1 --packing false -o "$T/c" 2> "$T/err"
    cmp <(sed 1d "$T/a/reference.json") <(sed 1d "$T/b/reference.json")
    cmp <(sed 1d "$T/a/reference.json") <(sed 1d "$T/c/reference.json")
}

@test "two processes give the bits of one" {
    labels
    for o in dpo kto; do
        data=pairs && [ $o != kto ] || data=labels
        "$PESC" "${tune[@]}" --data "$T/$data.jsonl" --objective $o --micro-tokens 192 -o "$T/$o-1" 2> "$T/err"
        "$PESC" "${tune[@]}" --data "$T/$data.jsonl" --objective $o --micro-tokens 192 -o "$T/$o-2" --device cpu --gpus 2 2> "$T/err"
        cmp "$T/$o-1/reference.json" "$T/$o-2/reference.json"
        cmp "$T/$o-1/latest/adapter_model.safetensors" "$T/$o-2/latest/adapter_model.safetensors"
    done
}

@test "patience and the best checkpoint go by the measure that was chosen" {
    "$PESC" "${tune[@]}" --data "$T/pairs.jsonl" --objective dpo --eval-data "$T/held.jsonl" --epochs 3 --eval-every 2 \
        --metric-for-best-model rewards/margins -o "$T/run" 2> "$T/err"
    python3 - "$T/run" <<'P'
import json, os, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/eval.jsonl")]
best = max(rows, key=lambda r: r["eval_rewards/margins"])
assert os.readlink(sys.argv[1] + "/best") == f"checkpoint-{best['step']}", (os.readlink(sys.argv[1] + "/best"), rows)
assert all(r["eval_answers"] == 24 for r in rows)
P
}

@test "info and the last lines of train name the measure that chose the best checkpoint" {
    "$PESC" "${loud[@]}" --data "$T/pairs.jsonl" --objective dpo --eval-data "$T/held.jsonl" --epochs 3 --eval-every 2 \
        --metric-for-best-model logps/rejected -o "$T/run" > "$T/out" 2> "$T/err"
    "$PESC" info "$T/run" --json > "$T/info"
    "$PESC" info "$T/run" > "$T/text"
    python3 - "$T" <<'P'
import json, math, re, sys
T = sys.argv[1]
rows = [json.loads(line) for line in open(T + "/run/eval.jsonl")]
best = min(rows, key=lambda r: r["eval_logps/rejected"])
assert best is not rows[-1], rows
run = json.load(open(T + "/info"))["run"]
assert run["metric_for_best_model"] == "logps/rejected" and run["best_step"] == best["step"], run
assert math.isclose(run["best_metric"], best["eval_logps/rejected"], rel_tol=1e-8), run
assert math.isclose(run["eval_metric"], rows[-1]["eval_logps/rejected"], rel_tol=1e-8), run
assert math.isclose(run["eval_loss"], rows[-1]["eval_loss"], rel_tol=1e-8) and run["best_eval_loss"] is None, run
value = f"{best['eval_logps/rejected']:.4f}"
assert re.search(rf"^validation +[0-9.]+; logps/rejected -[0-9.]+, best {value} at step {best['step']}$", open(T + "/text").read(), re.M)
assert f"the best validation logps/rejected is that of step {best['step']}, {value}" in open(T + "/err").read()
P
}

@test "a run that goes on by another measure forgets the best by the old one" {
    more=(--data "$T/pairs.jsonl" --objective dpo --eval-data "$T/held.jsonl" --eval-every 1)
    "$PESC" "${tune[@]}" "${more[@]}" --steps 2 -o "$T/run" 2> "$T/err"
    run "$PESC" train --resume -o "$T/run" --steps 3 --metric-for-best-model rewards/margins
    [ "$status" -eq 0 ]
    [[ $output == *"metric_for_best_model: was loss and is rewards/margins"* ]]
    [ "$(readlink "$T/run/best")" = checkpoint-3 ]
    "$PESC" info "$T/run" --json > "$T/info"
    python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))["run"]; assert abs(r["best_metric"] - r["eval_metric"]) < 1e-6 and r["best_step"] == 3, r' "$T/info"
    run "$PESC" train --resume -o "$T/run" --steps 4
    [ "$status" -eq 0 ]
    [[ $output != *"was loss"* ]]
}

@test "with the same weights nothing measured depends on the micro-batches; gradients are the same within rounding" {
    head -32 share/train.jsonl > "$T/train.jsonl"
    labels
    for o in sft dpo ipo orpo simpo kto; do
        data=pairs
        [ $o != kto ] || data=labels
        [ $o != sft ] || data=train
        for cut in "--micro-tokens 2048" "--micro-tokens 192" "--packing false"; do
            # shellcheck disable=SC2086
            "$PESC" "${tune[@]}" --data "$T/$data.jsonl" --objective $o --batch 16 --compute-dtype f32 --lora-dropout 0 $cut -o "$T/run" --overwrite 2> "$T/err"
            cat "$T/run/metrics.jsonl" >> "$T/$o.log"
        done
        python3 - "$T/$o.log" <<'P'
import json, math, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
whole, *cut = [rows[i:i + 2] for i in range(0, len(rows), 2)]
assert len(cut) == 2 and all(len(r) == 2 for r in cut)
free = {"tok_s", "mem_bytes"}
for steps in cut:
    for key, value in whole[0].items():
        if key not in free | {"grad_norm"}:
            assert steps[0][key] == value, (key, steps[0][key], value)
    for i in range(2):
        for key, value in whole[i].items():
            near = value is None or key in free or math.isclose(steps[i][key], value, rel_tol=1e-5, abs_tol=1e-6)
            assert near, (i, key, steps[i][key], value)
P
    done
}

@test "the reference is that of the start of its own run" {
    "$PESC" "${tune[@]}" --data share/train.jsonl --steps 2 -o "$T/sft" 2> "$T/err"
    "$PESC" "${tune[@]}" --data share/train.jsonl --steps 3 -o "$T/sft-2" 2> "$T/err"
    dpo=("${tune[@]}" --data "$T/pairs.jsonl" --objective dpo --steps 2)
    "$PESC" "${dpo[@]}" --init-from "$T/sft" -o "$T/run" 2> "$T/err"
    "$PESC" "${dpo[@]}" --init-from "$T/sft-2" -o "$T/other" 2> "$T/err"
    cp "$T/run/reference.json" "$T/own"
    # that of another run
    sed "s/\"key\": \"[0-9a-f]*\"/$(grep -o '"key": "[0-9a-f]*"' "$T/own")/" "$T/other/reference.json" > "$T/run/reference.json"
    run "$PESC" train --resume -o "$T/run" --steps 3 -q
    [ "$status" -eq 2 ]
    [[ $output == *"/run/reference.json: belongs to a run that began with other weights"* ]]
    # the start is another now, and the reference is gone
    rm "$T/run/reference.json"
    mv "$T/sft" "$T/sft-1"
    cp -r "$T/sft-2" "$T/sft"
    run "$PESC" train --resume -o "$T/run" --steps 3 -q
    [ "$status" -eq 2 ]
    [[ $output == *"reference.json is gone, and the weights that the run began with are not what they were"* ]]
    [ ! -e "$T/run/reference.json" ]
    # with its reference the run needs its start no more
    rm -r "$T/sft"
    cp "$T/own" "$T/run/reference.json"
    "$PESC" train --resume -o "$T/run" --steps 3 -q 2> "$T/err"
    # a run without a checkpoint begins with the weights of now
    rm -r "$T/run"/checkpoint-* "$T/run/latest"
    cp -r "$T/sft-2" "$T/sft"
    "$PESC" train --resume -o "$T/run" --steps 2 -q 2> "$T/err"
    cmp <(sed 's/"key": "[0-9a-f]*"//' "$T/run/reference.json") <(sed 's/"key": "[0-9a-f]*"//' "$T/other/reference.json")
}

@test "an option that the objective does not read is told" {
    run "$PESC" "${loud[@]}" --data "$T/pairs.jsonl" --objective orpo --beta 0.3 --simpo-gamma 1 --steps 1 -o "$T/run"
    [ "$status" -eq 0 ]
    [[ $output == *"beta 0.3 is not used: it is for objective dpo ipo simpo kto, and the run has orpo"* ]]
    [[ $output == *"simpo_gamma 1 is not used: it is for objective simpo"* ]]
    run "$PESC" "${loud[@]}" --data "$T/pairs.jsonl" --objective simpo --beta 0.3 --simpo-gamma 1 --steps 1 -o "$T/run2"
    [ "$status" -eq 0 ]
    [[ $output != *"is not used"* ]]
}

@test "data inspect shows both answers, stats both lengths" {
    "$PESC" data inspect share/base --data "$T/pairs.jsonl" --records 1 --template camelidae --json > "$T/out"
    python3 - "$T/out" <<'P'
import json, sys
r = json.load(open(sys.argv[1]))[0]
for side in ("chosen", "rejected"):
    assert [x for x in r[side]["runs"] if x["trained"]], side
    assert len(r[side]["ids"]) == len(r[side]["labels"])
assert r["chosen"]["ids"] != r["rejected"]["ids"]
P
    "$PESC" data stats share/base --data "$T/pairs.jsonl" --template camelidae --json > "$T/out"
    python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["rejected"]["longest"] > 0 and r["records"] == 32' "$T/out"
    run "$PESC" data stats share/base --data "$T/pairs.jsonl" --template camelidae
    [ "$status" -eq 0 ]
    [[ $output == *"length of chosen"*"of rejected"* ]]
}

@test "eval of a file of pairs gives accuracy and margin" {
    "$PESC" "${tune[@]}" --data share/pairs.jsonl --objective dpo --lr 3e-3 --batch 16 -o "$T/run" 2> "$T/err"
    "$PESC" eval share/base "$T/run" --tasks share/pairs-test.jsonl --template camelidae --json > "$T/out" 2> "$T/err"
    python3 - "$T/out" <<'P'
import json, sys
before, after = (m["tasks"][0] for m in json.load(open(sys.argv[1])))
assert before["pairs"] == after["pairs"] == 120
assert abs(before["margin"] - before["logp_chosen"] + before["logp_rejected"]) < 1e-4
assert after["accuracy"] > before["accuracy"] + 0.05 and after["margin"] > before["margin"] + 1, (before, after)
P
}

@test "what cannot be trained on is refused in one sentence, before step 1" {
    refuse() { # STATUS SENTENCE OPTIONS...
        local status_wanted=$1 sentence=$2
        shift 2
        run "$PESC" "${tune[@]}" -o "$T/refused" "$@"
        [ "$status" -eq "$status_wanted" ] || { echo "$status $output"; false; }
        [[ $output == *"$sentence"* ]] || { echo "$output"; false; }
        [ ! -e "$T/refused/checkpoint-1" ]
    }
    printf '%s\n' '{"question":"a","chosen":"x","rejected":"y"}' '{"question":"b","chosen":"x","rejected":"x"}' > "$T/equal.jsonl"
    refuse 3 "equal.jsonl:2: chosen and rejected: are the same answer" --data "$T/equal.jsonl" --objective dpo
    printf '%s\n' '{"question":"a","chosen":"x","rejected":"y"}' '{"question":"b","chosen":"x"}' > "$T/half.jsonl"
    refuse 3 "half.jsonl:2: rejected: found nothing" --data "$T/half.jsonl" --objective dpo
    refuse 3 "holds a pair of answers" --data "$T/pairs.jsonl"
    refuse 3 "fits no format of pairs" --data share/train.jsonl --objective dpo
    refuse 3 "fits no format of labelled answers" --data "$T/pairs.jsonl" --objective kto
    refuse 2 "over_length: found split with objective dpo" --data "$T/pairs.jsonl" --objective dpo --over-length split
    refuse 2 "reasoning: found mask with objective orpo" --data "$T/pairs.jsonl" --objective orpo --reasoning mask
    refuse 2 "label_smoothing: is for objective dpo simpo, found ipo" --data "$T/pairs.jsonl" --objective ipo --label-smoothing 0.1
    refuse 2 "sft_coef" --data share/train.jsonl --sft-coef 0.1
    refuse 2 "batch: found 1 with objective kto" --data "$T/pairs.jsonl" --objective kto --batch 1
    refuse 2 "every record is longer than seq_len 8" --data "$T/pairs.jsonl" --objective dpo --seq-len 8
    refuse 3 "or choose over_length drop or truncate:" --data share/pairs.jsonl --objective dpo --seq-len 40 --over-length error
    refuse 2 "objective" --data "$T/pairs.jsonl" --objective ppo
}

@test "a pair with one answer too long is dropped as a pair" {
    long=$(python3 -c 'print("word " * 200)')
    printf '{"question":"a","chosen":"x","rejected":"%s"}\n' "$long" >> "$T/pairs.jsonl"
    run "$PESC" "${loud[@]}" --data "$T/pairs.jsonl" --objective dpo --steps 1 -o "$T/run"
    [ "$status" -eq 0 ]
    [[ $output == *"1 of 33 records are longer than seq_len 96 and are dropped"* ]]
}

@test "texts are trained as plain text, and a notice says so" {
    printf '%s\n' '{"prompt":"One and two make","chosen":" three.","rejected":" four."}' > "$T/text.jsonl"
    run "$PESC" "${loud[@]}" --data "$T/text.jsonl" --objective dpo --steps 1 -o "$T/run"
    [ "$status" -eq 0 ]
    [[ $output == *"trained as plain text, without the chat format"* ]]
}
