# pesc runs: the page of training runs.
load helper

setup_file() {
    export R=$BATS_FILE_TMPDIR
    mkdir -p "$R/all/deep/one/eval" "$R/all/.hidden/two" "$R/all/three/checkpoint-5"
    for i in $(seq 1 5000); do echo "{\"step\":$i,\"tokens\":$((i * 10)),\"loss\":$((5000 - i)).5,\"lr\":0.1}"; done > "$R/all/deep/one/metrics.jsonl"
    printf '{"step":10,"eval_loss":2}\n{"step":20,"eval_loss":1.5}\n{"step":30,"ev' > "$R/all/deep/one/eval.jsonl"
    printf '{"step":1,"layers":[[0.5,0.5],[1,0]]}\nno json\n[1]\n{"step":2,"layers":[[0.25,0.75],[0,1]]}\n' > "$R/all/deep/one/routing.jsonl"
    printf 'method: lora\nsteps: 9000\n' > "$R/all/deep/one/run.yaml"
    echo '{"results":{"x":{"acc,none":0.5}}}' > "$R/all/deep/one/eval/results.json"
    echo '{"step":1}' > "$R/all/.hidden/two/metrics.jsonl"
    echo '{}' > "$R/all/three/run.json"
    echo '{"step":1}' > "$R/all/three/checkpoint-5/metrics.jsonl"
}

# What a server on the folders given says to the Python program on standard input, which has s.
asks() {
    python3 - "$@" <<PY
import sys
sys.path.insert(0, "$BATS_TEST_DIRNAME/../serve")
import json
from running import Server
with Server(sys.argv[1], *sys.argv[2:], command="runs") as s:
$(sed 's/^/    /')
PY
}

@test "runs: folders are searched, and each run is described by its logs" {
    asks "$R/all" <<'PY'
answer = s.json("/v1/runs")
runs = {r["name"]: r for r in answer["runs"]}
assert set(runs) == {"deep/one", "three"}, runs
one = runs["deep/one"]
assert one["last"]["step"] == 5000 and one["last_eval"]["eval_loss"] == 1.5 and one["method"] == "lora" and one["steps"] == "9000", one
assert not one["running"] and runs["three"]["last"] is None
PY
}

@test "runs: a page gets what follows the bytes it has, and of a long log lines at even distances" {
    asks "$R/all" <<PY
one = next(r for r in s.json("/v1/runs")["runs"] if r["name"] == "deep/one")["id"]
log = s.json(f"/v1/runs/{one}/metrics/0")
steps = [m["step"] for m in log["lines"]]
assert 1000 < len(steps) <= 2001 and steps[:2] == [1, 4] and steps[-1] == 5000, (len(steps), steps[:3])
assert s.json(f"/v1/runs/{one}/metrics/{log['to']}") == {"to": log["to"], "again": False, "lines": []}
open("$R/all/deep/one/metrics.jsonl", "a").write('{"step":5001,"loss":1}\n{"step":50')
more = s.json(f"/v1/runs/{one}/metrics/{log['to']}")
assert [m["step"] for m in more["lines"]] == [5001]
assert s.json(f"/v1/runs/{one}/metrics/99999999")["again"] is True
routing = s.json(f"/v1/runs/{one}/routing/0")["lines"]
assert [r["step"] for r in routing] == [1, 2], routing
details = s.json(f"/v1/runs/{one}/details")
assert details["yaml"].startswith("method: lora") and details["results"][0]["results"]["results"]["x"]["acc,none"] == 0.5
PY
}

@test "runs: what is not there is refused, and names of hosts are known" {
    asks "$R/all/three" <<'PY'
three = s.json("/v1/runs")["runs"][0]
assert three["name"] == "three", three
for path in ("/v1/runs/nothing/metrics/0", f"/v1/runs/{three['id']}", f"/v1/runs/{three['id']}/other", f"/v1/runs/{three['id']}/metrics/-1",
             f"/v1/runs/{three['id']}/metrics/x", "/v1/models", "/v1/runs/..%2f..%2fetc/details"):
    assert s.ask("GET", path)[0] == 404, path
assert s.ask("POST", "/v1/runs", {})[0] == 405
assert s.ask("GET", "/v1/runs", headers={"Host": "evil.example"})[0] == 421
assert "access-control-allow-origin" not in s.ask("GET", "/v1/runs", headers={"Origin": "http://evil.example"})[1]
status, headers, text = s.ask("GET", "/")
assert status == 200 and "default-src" in headers["content-security-policy"] and b"pesc runs" in text
assert s.json(f"/v1/runs/{three['id']}/metrics/0") == {"to": 0, "again": False, "lines": []}
PY
    pesc runs "$R/nowhere"
    fails 3 "$R/nowhere: is not a directory; expected a run, or a folder of runs"
    pesc runs "$R" --host 0.0.0.0
    fails 2 "0.0.0.0 is an address that other machines can reach: give --api-key-file, or listen on 127.0.0.1"
}

@test "runs: the page works in a browser" {
    if ! python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import browser; sys.exit(not browser.PROGRAM)' "$BATS_TEST_DIRNAME/../serve"; then
        skip "Chromium is not installed"
    fi
    run python3 "$BATS_TEST_DIRNAME/../serve/runs_page.py" "$BATS_TEST_DIRNAME/../../share"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    has '^the page of runs works$'
}
