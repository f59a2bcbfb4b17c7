load helper

GOLDEN=$BATS_TEST_DIRNAME/../golden

setup_file() {
    make_model
    python3 "$BATS_TEST_DIRNAME/../../tests/support/esft_lookalike.py" "$D/released"
}

setup() { T=$BATS_TEST_TMPDIR; }

# A summary of one table with the given layers.
summary() { printf '{"token_scores": {%s}}' "$1" > "$T/summary.json"; }

@test "esft: what the first release gives, byte for byte, on four tasks and by both metrics" {
    for t in intent law summary translation; do
        pesc esft score --from-logs "$D/released/$t" -o "$T/$t"
        [ "$status" = 0 ]
        [ -z "$stderr" ]
        cmp "$T/$t/summary.json" "$D/released/$t.summary.json"
        pesc esft select "$T/$t" --metric token --p 0.2 -o "$T/cfg.json"
        [ "$status" = 0 ]
        cmp "$T/cfg.json" "$D/released/$t.token.json"
        pesc esft select "$T/$t/summary.json" --metric gate --p 0.1 -o "$T/cfg.json"
        cmp "$T/cfg.json" "$D/released/$t.gate.json"
        pesc esft select "$T/$t" -o "$T/cfg.json" # the defaults are the paper's
        cmp "$T/cfg.json" "$D/released/$t.token.json"
        pesc esft select "$T/$t" --metric gate -o "$T/cfg.json"
        cmp "$T/cfg.json" "$D/released/$t.gate.json"
    done
}

@test "esft score: logs of several processes, and one metric alone" {
    mkdir -p "$T/logs/rank_0" "$T/logs/rank_1"
    for f in "$D"/released/law/*.txt; do
        head -n 1 "$f" > "$T/logs/rank_0/${f##*/}"
        tail -n +2 "$f" > "$T/logs/rank_1/${f##*/}"
    done
    pesc esft score --from-logs "$T/logs" -o "$T/out" --json
    [ "$status" = 0 ]
    has '"tokens":4200,"records":0,"layers":12,"experts":64,"top_k":6,'
    cmp "$T/out/summary.json" "$D/released/law.summary.json"
    pesc esft score --from-logs "$T/logs" -o "$T/out" --metric token
    [ "$(head -c 18 "$T/out/summary.json")" = '{"token_scores": {' ]
    refute grep -q gate "$T/out/summary.json"
    pesc esft select "$T/out" --metric gate -o "$T/cfg.json"
    fails 3 "$T/out: has no gate scores; choose the other metric, or score again"
}

@test "esft score: logs that cannot be" {
    cp -r "$D/released/intent" "$T/logs"
    rm "$T/logs/expert_weights_5.txt"
    pesc esft score --from-logs "$T/logs" -o "$T/out"
    fails 3 "$T/logs: the log of layer 5 is missing: expert_weights_5.txt; give MODEL too if that layer has no experts"
    [ ! -e "$T/out" ]
    printf '1\t2\t3\t4\t5\t1\t\t0.1\t0.1\t0.1\t0.1\t0.1\t0.1\n' > "$T/logs/expert_weights_5.txt"
    pesc esft score --from-logs "$T/logs" -o "$T/out"
    fails 3 "$T/logs/expert_weights_5.txt: line 1: token 1 has expert 1 twice; is top_k 6?"
    printf '1\t2\t3\t4\t5\t6\t\t0.1\t0.1\t0.1\t0.1\t0.1\tnan\n' > "$T/logs/expert_weights_5.txt"
    pesc esft score --from-logs "$T/logs" -o "$T/out"
    fails 3 "$T/logs/expert_weights_5.txt: line 1: found the gate \"nan\", expected a number of 0 or more"
    printf '1\t2\t3\t4\t5\t64\t\t0.1\t0.1\t0.1\t0.1\t0.1\t0.1\n' > "$T/logs/expert_weights_5.txt"
    pesc esft score --from-logs "$T/logs" -o "$T/out"
    fails 3 "$T/logs/expert_weights_5.txt: line 1: found the expert \"64\", expected 0 to 63"
    : > "$T/logs/expert_weights_5.txt"
    pesc esft score --from-logs "$T/logs" -o "$T/out"
    fails 3 "$T/logs: the log of layer 5 has no tokens"
    printf '1\t2\t3\t4\t5\t6\t\t0.1\t0.1\t0.1\t0.1\t0.1\t0.1\n' > "$T/logs/expert_weights_5.txt"
    pesc esft score --from-logs "$T/logs" -o "$T/out"
    [ "$status" = 0 ]
    [[ $stderr == *"layer 1 has 260 tokens, layer 5 has 1: a log may be truncated" ]]
    mkdir "$T/empty"
    pesc esft score --from-logs "$T/empty" -o "$T/out"
    fails 3 "$T/empty: has no expert_weights_<layer>.txt, nor parts rank_0, rank_1, ..."
}

@test "esft score: a model's own routers, the same bytes as transformers" {
    for m in olmoe deepseek_v2; do
        pesc esft score "$GOLDEN/$m" --data "$GOLDEN/esft_score/ids.jsonl" -o "$T/$m" -q
        [ "$status" = 0 ]
        cmp "$T/$m/summary.json" "$GOLDEN/esft_score/$m.json"
    done
    pesc esft score "$GOLDEN/olmoe" --data "$GOLDEN/esft_score/ids.jsonl" -o "$T/few" --tokens 100 --json
    [ "$status" = 0 ]
    has '"tokens":100,"records":[0-9]+,"layers":2,"experts":7,"top_k":3,"gate_sum":0\.'
    [ -z "$stderr" ]
    pesc esft score "$GOLDEN/olmoe" --data "$GOLDEN/esft_score/ids.jsonl" -o "$T/many"
    [[ $stderr == "pesc: note: the data has "*" tokens, 131072 were asked for: all are scored" ]]
}

@test "esft score: what is missing or wrong" {
    local f=$GOLDEN/esft_score/ids.jsonl
    pesc esft score "$D/model" --data "$f" -o "$T/out"
    fails 3 "the model is dense: it has no experts to choose from; a mixture is needed"
    pesc esft score --data "$f" -o "$T/out"
    fails 2 "esft score: MODEL is missing; usage: pesc esft score MODEL --data FILE... -o DIR"
    pesc esft score "$D/model" -o "$T/out"
    fails 2 "esft score: --data is missing; usage: pesc esft score MODEL --data FILE... -o DIR"
    pesc esft score "$D/model" --data "$f"
    fails 2 "esft score: -o DIR is missing; usage: pesc esft score MODEL --data FILE... -o DIR"
    pesc esft score a b --data "$f" -o "$T/out"
    fails 2 'esft score: unexpected argument "b"; one model is scored'
    pesc esft score "$GOLDEN/olmoe" --data "$f" -o "$T/out" --tokens 0
    fails 2 'esft: --tokens: found "0", expected a whole number from 1 to 1000000000000000'
    pesc esft sore
    fails 2 'esft: found "sore", expected score, select, apply, unapply or prune; did you mean score?'
    pesc esft apply x --patch y --budget 3 -o z
    [ "$status" = 2 ]
    [[ $stderr == "pesc: esft apply: --budget has no effect here; select: "* ]]
    pesc esft
    fails 2 "esft: ACTION is missing; usage: pesc esft score|select|apply|unapply|prune INPUT... -o OUT"
}

@test "esft select: what is printed and drawn" {
    pesc esft select "$GOLDEN/esft_score/deepseek_v2.json" --p 0.3 --model "$GOLDEN/deepseek_v2" -o "$T/cfg.json"
    [ "$status" = 0 ]
    has '^layer  experts$'
    has '^    1    2  3 1$'
    has "^$T/cfg.json: 4 of 12 experts in 2 layers, 2.00 a layer$"
    has '^trainable: .* of .* parameters \([0-9.]+ %\), '
    [ "$(head -c 4 "$T/cfg.png" | tail -c 3)" = PNG ]
    grep -q '<svg' "$T/cfg.svg"
    pesc esft select "$GOLDEN/esft_score/deepseek_v2.json" --p 0.3 --model "$GOLDEN/deepseek_v2" -o "$T/cfg.json" \
        --shared-experts --json
    has '"experts":4,"experts_per_layer":2,"layers":\[\{"layer":1,"experts":\[3,1\]\},\{"layer":2,"experts":\[[0-9],[0-9]\]\}\],"trainable":19200,"params":'
    grep -q '"shared_experts": true, "non_expert_modules": false}$' "$T/cfg.json"
    pesc esft select "$GOLDEN/esft_score/deepseek_v2.json" --model "$GOLDEN/olmoe" -o "$T/no.json"
    [ "$status" = 3 ]
    [ ! -e "$T/no.json" ]
}

@test "esft select: several tasks, and what they have in common" {
    local r=$D/released
    pesc esft select "$r/intent.summary.json" "$r/law.summary.json" "$r/intent.summary.json" -o "$T/u.json" --json
    [ "$status" = 0 ]
    has '"tasks":\[\{"name":"intent.summary","path":"[^"]*","experts":48,"common":\[48,([0-9]+),48\],"overlap":\[1,0[.0-9]*,1\]\}'
    [ -s "$T/u.overlap.svg" ]
    [ -s "$T/u.overlap.png" ]
    [ -s "$T/u.svg" ]
    python3 - "$r" "$T/u.json" <<'PY'
import json, sys
a, b, u = (json.load(open(p))["experts"] for p in
           (sys.argv[1] + "/intent.token.json", sys.argv[1] + "/law.token.json", sys.argv[2]))
assert all(u[k] == a[k] + [e for e in b[k] if e not in a[k]] for k in u) and list(u) == list(a)
PY
    pesc esft select "$r/intent.summary.json" "$GOLDEN/esft_score/olmoe.json" -o "$T/u.json"
    [ "$status" = 3 ]
    [[ $stderr == *"they are not of one model" ]]
}

@test "esft select: a budget, and a relative p" {
    local r=$D/released/law.summary.json
    pesc esft select "$r" --budget 20 -o "$T/b.json" --json
    [ "$status" = 0 ]
    has '"experts":20,'
    python3 - "$r" "$T/b.json" <<'PY'
import json, sys
scores = json.load(open(sys.argv[1]))["token_scores"]
ranked = sorted((-x, list(scores).index(l), int(e)) for l, v in scores.items() for e, x in v.items())
want = {l: [e for _, i, e in ranked[:20] if i == n] for n, l in enumerate(scores)}
assert json.load(open(sys.argv[2]))["experts"] == want
PY
    pesc esft select "$r" --budget 20 --p 0.05 -o "$T/b.json" --json
    has '"experts":1[2-9],' # p takes one or two of each of 12 layers
    pesc esft select "$r" --metric gate --p-relative -o "$T/b.json"
    [ "$status" = 0 ]
    python3 - "$r" "$T/b.json" <<'PY'
import json, sys
for layer, s in json.load(open(sys.argv[1]))["gate_scores"].items():
    s, taken, reached = [s[str(e)] for e in range(64)], [], 0.0
    for e in sorted(range(64), key=lambda e: -s[e]):
        if reached >= 0.27 * sum(s):
            break
        taken.append(e)
        reached += s[e]
    assert json.load(open(sys.argv[2]))["experts"][layer] == taken, layer
PY
}

@test "esft select: nothing, too much, and scores that are none" {
    local one='"1": {"0": 0.5, "1": 0.5}'
    summary "$one"
    pesc esft select "$T" --p 0 -o "$T/cfg.json"
    fails 2 "p: found 0, which selects no expert; expected more than 0"
    pesc esft select "$T" --p 1.5 -o "$T/cfg.json"
    fails 2 'esft: --p: found "1.5", expected auto or a number from 0 to 1'
    pesc esft select "$T" --p nan -o "$T/cfg.json"
    fails 2 'esft: --p: found "nan", expected auto or a number from 0 to 1'
    pesc esft select "$T" --budget -1 -o "$T/cfg.json"
    fails 2 'esft: --budget: found "-1", expected a whole number from 0 to 2147483647'
    pesc esft select "$T" --metric both -o "$T/cfg.json"
    fails 2 'metric: found "both", expected token or gate'
    pesc esft select "$T" --p 1 -o "$T/cfg.json"
    [ "$status" = 0 ]
    summary '"1": {"0": 0.2, "1": 0.1}'
    pesc esft select "$T" --p 0.5 -o "$T/cfg.json"
    [ "$status" = 0 ]
    [[ $stderr == "pesc: note: in 1 of 1 layers all scores together are less than p, so all 2 experts are chosen (layer 1: 0.3000)" ]]
    summary ''
    pesc esft select "$T" -o "$T/cfg.json"
    fails 3 "$T/summary.json: token_scores: has no layers"
    summary '"1": {}'
    pesc esft select "$T" -o "$T/cfg.json"
    fails 3 "$T/summary.json: token_scores: its layers have no experts"
    summary '"1": {"0": NaN, "1": 0.5}'
    pesc esft select "$T" -o "$T/cfg.json"
    fails 3 "$T/summary.json: byte 29: a score is NaN, as when no token was counted; score the task again"
    summary "$one, \"1\": {\"0\": 0.5, \"1\": 0.5}"
    pesc esft select "$T" -o "$T/cfg.json"
    [ "$status" = 3 ]
    [[ $stderr == *"duplicate object key"* ]]
    summary "$one}, \"gate_scores\": {\"2\": {\"0\": 1, \"1\": 1}"
    pesc esft select "$T" -o "$T/cfg.json"
    fails 3 "$T/summary.json: gate_scores: layer 1 is missing; token_scores has it"
    pesc esft select -o "$T/cfg.json"
    fails 2 "esft select: SUMMARY is missing; usage: pesc esft select SUMMARY... -o expert_cfg.json"
    pesc esft select "$T"
    fails 2 "esft select: -o expert_cfg.json is missing; usage: pesc esft select SUMMARY... -o expert_cfg.json"
}

@test "esft apply: what is missing" {
    pesc esft apply
    fails 2 "esft apply: BASE is missing; usage: pesc esft apply BASE --patch DIR [-o OUT]"
    pesc esft apply "$GOLDEN/olmoe"
    fails 2 "esft apply: --patch is missing; usage: pesc esft apply BASE --patch DIR [-o OUT]"
    pesc esft apply "$GOLDEN/olmoe" "$GOLDEN/olmoe" --patch "$T"
    [ "$status" = 2 ]
    pesc esft apply "$GOLDEN/olmoe" --patch "$T/nothing"
    [ "$status" = 3 ]
}

@test "esft select: random experts, spread over the layers, the same with the same seed" {
    local r=$D/released/law.summary.json
    pesc esft select "$r" --random 30 --seed 5 -o "$T/a.json" --json
    [ "$status" = 0 ]
    has '"experts":30,'
    pesc esft select "$r" --random 30 --seed 5 -o "$T/b.json"
    cmp "$T/a.json" "$T/b.json"
    pesc esft select "$r" --random 30 --seed 6 -o "$T/b.json"
    refute cmp -s "$T/a.json" "$T/b.json"
    python3 - "$T/a.json" <<'PY'
import json, sys
experts = json.load(open(sys.argv[1]))["experts"]
assert sorted(len(set(e)) for e in experts.values()) == [2] * 6 + [3] * 6, experts
assert len(experts) == 12 and all(0 <= i < 64 for e in experts.values() for i in e)
PY
    pesc esft select "$r" --random 30 --p 0.2 -o "$T/c.json"
    fails 2 "random: takes experts whatever their scores; p and budget cannot be given with it"
    pesc esft select "$r" --random 769 -o "$T/c.json"
    fails 2 "random: found 769, but the model has 768 experts"
    [ ! -e "$T/c.json" ]
}

@test "esft: experts that are adapters are refused before anything is scored" {
    local m=$GOLDEN/camelidae
    local why="$m: its experts are adapters (PESC), and ESFT selects and trains full experts: --method esft could train none of them; pesc routes shows which of them a task uses"
    pesc esft score "$m" --data "$GOLDEN/esft_score/ids.jsonl" -o "$T/out"
    fails 3 "$why"
    [ ! -e "$T/out" ]
    summary '"0": {"0": 0.2, "1": 0.2, "2": 0.2, "3": 0.2, "4": 0.2}, "1": {"0": 0.2, "1": 0.2, "2": 0.2, "3": 0.2, "4": 0.2}'
    pesc esft select "$T" --model "$m" -o "$T/cfg.json"
    fails 3 "$why"
    [ ! -e "$T/cfg.json" ]
}

@test "esft select: against a background, by the ratio above a floor" {
    mkdir "$T/task" "$T/general"
    printf '{"token_scores": {"0": {"0": 0.5, "1": 0.3, "2": 0.15, "3": 0.05}}}' > "$T/task/summary.json"
    printf '{"token_scores": {"0": {"0": 0.5, "1": 0.1, "2": 0.1, "3": 0.0}}}' > "$T/general/summary.json"
    chosen() { python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["experts"]["0"])' "$T/cfg.json"; }
    pesc esft select "$T/task" --p 0.4 -o "$T/cfg.json"
    [ "$(chosen)" = "0" ]
    pesc esft select "$T/task" --background "$T/general" --p 0.4 -o "$T/cfg.json" # ratios 1, 3, 1.5; expert 3 is below half of 0.25
    [ "$status" = 0 ]
    [ "$(chosen)" = "1 2" ]
    pesc esft select "$T/task" --background "$T/general" --p 0.4 --floor 0.01 -o "$T/cfg.json" # 0.05 / 0.0001
    [ "$(chosen)" = "3 1 2" ]
    pesc esft select "$T/task" --background "$T/general" --p 0.4 --floor 0.4 -o "$T/cfg.json"
    [ "$(chosen)" = "0" ]
    pesc esft select "$T/task" --background "$T/general" --p 0.6 --floor 0.2 -o "$T/cfg.json"
    [ "$(chosen)" = "1 0" ]
    pesc esft select "$T/task" --floor 0.2 -o "$T/cfg.json"
    fails 2 "esft select: --floor is for scores against a background; give --background, or leave it out"
    summary '"1": {"0": 1.0, "1": 0.0}'
    pesc esft select "$T/task" --background "$T/summary.json" -o "$T/cfg.json"
    fails 3 "$T/summary.json: is over other layers or experts than the scores of the task: it is not of this model"
}

@test "esft score: --background scores general data beside the task's" {
    head -n 1 "$GOLDEN/esft_score/ids.jsonl" > "$T/one.jsonl"
    pesc esft score "$GOLDEN/olmoe" --data "$GOLDEN/esft_score/ids.jsonl" --background "$T/one.jsonl" -o "$T/s"
    [ "$status" = 0 ]
    pesc esft score "$GOLDEN/olmoe" --data "$T/one.jsonl" -o "$T/b"
    cmp "$T/s/background/summary.json" "$T/b/summary.json"
    refute cmp -s "$T/s/summary.json" "$T/b/summary.json"
    pesc esft select "$T/s" --background "$T/s/background" -o "$T/cfg.json" --json
    [ "$status" = 0 ]
}

@test "esft select: counts by task and layer, and how few experts carry a task" {
    local f
    pesc esft select "$D/released/law.summary.json" "$D/released/intent.summary.json" -o "$T/cfg.json" --json
    [ "$status" = 0 ]
    for f in counts concentration; do
        [ -s "$T/cfg.$f.svg" ]
        [ -s "$T/cfg.$f.png" ]
    done
    python3 - "$output" "$D/released/law.summary.json" <<'PY'
import json, sys
found = json.loads(sys.argv[1])
summary = json.load(open(sys.argv[2]))
for task, counts in zip(found["tasks"], found["counts"], strict=True):
    assert sum(counts) == task["experts"]
for metric in ("token", "gate"):
    layers = [sorted(of.values(), reverse=True) for of in summary[metric + "_scores"].values()]
    for n in (1, 7, 64):
        want = sum(sum(x[:n]) / sum(x) for x in layers) / len(layers)
        assert abs(found["concentration"][0][metric][n - 1] - want) < 1e-5, (metric, n)
PY
}
