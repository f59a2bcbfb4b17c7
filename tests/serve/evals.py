"""`pesc eval` of a server: python3 evals.py MODEL NAME runs one of the functions below. A scripted server stands for those of others."""
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from running import Server

MODEL = sys.argv[1]
WORK = Path(tempfile.mkdtemp(prefix="evals."))

CHOICE = {"task": "pick", "kind": "choice", "version": 1, "columns": {"question": "text", "choices": "texts", "gold": "integer"},
          "question": "Question: {{ question }}\nAnswer:", "choices": "{{ choices }}", "gold": "{{ gold }}", "target_delimiter": " ",
          "judge": "choice", "metrics": ["acc", "acc_norm"], "shots": 0,
          "rows": [{"question": f"what comes after {i}", "choices": ["the cat and the dog", f"number {i + 1}", "no"], "gold": i % 3} for i in range(5)]}
FILL = {**{k: v for k, v in CHOICE.items() if k not in ("choices", "question")}, "task": "fill", "target_delimiter": " ",
        "columns": {"sentence": "text", "options": "texts", "gold": "integer"}, "inputs": "{{ options }}",
        "choices": "{{ options }}", "continuation": "is the one that came home. ",
        "rows": [{"sentence": "x", "options": [f"The dog number {i}", "The cat "], "gold": i % 2} for i in range(3)]}
TEXT = {"task": "tell", "kind": "text", "version": 1, "columns": {"prompt": "text", "answers": "texts"}, "question": "{{ prompt }}",
        "target": "{{ answers }}", "max_tokens": 24, "judge": "overlap", "metrics": ["rouge_l", "chrf"], "filters": [{"name": "none", "strip": True}],
        "stops": ["\n\n", "7", "zz", "yy", "STOP"], "rubric": "It names the number.",
        "rows": [{"prompt": f"Write the number {i} and a word", "answers": [f"{i} word"]} for i in range(6)]}


def task_file(name, task):
    (WORK / name).write_text(json.dumps(task))
    return str(WORK / name)


def pesc(*words, key=None, judge_key=None, quiet=True):
    env = {k: v for k, v in os.environ.items() if "API_KEY" not in k}
    env.update({"OPENAI_API_KEY": key} if key else {}, **({"PESC_JUDGE_API_KEY": judge_key} if judge_key else {}))
    return subprocess.run([os.environ["PESC"], "eval", *words, *["-q"] * quiet], capture_output=True, text=True, env=env, timeout=120)


def fine(*words, **more):
    r = pesc(*words, "--json", **more)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def samples(directory, task):
    return [json.loads(line) for line in (Path(directory) / f"samples_{task}.jsonl").read_text().splitlines()]


class Stub:
    """A server that answers as `script(path, body, number)` says: (status, object or bytes, headers), or None: it closes the connection."""

    def __init__(self, script):
        self.asked, self.keys, self.times, self.now, self.most, self.lock = [], [], [], 0, 0, threading.Lock()
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
                with stub.lock:
                    number = len(stub.asked)
                    stub.asked.append((self.path, body))
                    stub.times.append(time.monotonic())
                    stub.keys.append(self.headers.get("Authorization"))
                    stub.now += 1
                    stub.most = max(stub.most, stub.now)
                try:
                    got = script(self.path, body, number)
                finally:
                    with stub.lock:
                        stub.now -= 1
                if got is None:
                    self.close_connection = True
                    return
                status, content, headers = got
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if content == "endless":
                    self.end_headers()
                    try:
                        while True:
                            self.wfile.write(b'{"choices": "' + b"x" * (1 << 20))
                    except OSError:
                        self.close_connection = True
                    return
                content = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # a client that left
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def of(self, path):
        return [body for p, body in self.asked if p == path]


MODELS = (200, {"object": "list", "data": [{"id": "stub"}]}, {})


def text_answer(text):
    return (200, {"choices": [{"text": text, "message": {"role": "assistant", "content": text}}], "usage": {"prompt_tokens": 3}}, {})


def plain(path, body, number):
    return MODELS if body is None else text_answer(" 3 word STOP more 7 still")


# ---- the functions

def same(name, tasks, *options):
    """The samples and results of the model that is opened here, and of the same behind a server."""
    files = ",".join(task_file(f"{t['task']}.json", t) for t in tasks)
    here = fine(MODEL, "--tasks", files, "-o", str(WORK / f"here-{name}"), "--device", "cpu", "--compute-dtype", "f32", *options)
    with Server(MODEL, "--device", "cpu", "--compute-dtype", "f32") as s:
        url = f"http://127.0.0.1:{s.port}/v1"
        there = fine("--model", url + "/", "--tasks", files, "-o", str(WORK / f"there-{name}"), *options)
    assert there["config"]["model"] == url, there["config"]
    for task in (t["task"] for t in tasks):
        for metric, value in here["results"][task].items():
            assert metric.endswith("_reference,none") or there["results"][task][metric] == value, (task, metric)
        yield from zip(samples(WORK / f"here-{name}", task), samples(WORK / f"there-{name}", task), strict=True)


def same_as_the_model():
    """What a server of pesc answers is scored as the model that is opened here: choices of one question and of several, texts."""
    n = 0
    for a, b in same("plain", (CHOICE, FILL, TEXT)):
        assert [a[h] for h in ("prompt_hash", "target_hash", "doc_hash")] == [b[h] for h in ("prompt_hash", "target_hash", "doc_hash")]
        n += 1
        if "acc" not in a:
            assert a["resps"] == b["resps"], (a, b)
            continue
        for x, y in zip(a["resps"], b["resps"], strict=True):
            assert abs(x[0] - y[0]) < 1e-5 * abs(x[0]) and x[1] == y[1], (x, y)
    assert n == 5 + 3 + 6


def same_as_the_model_in_a_chat():
    """The chat template must write BOS where the tokenizer adds it: eval of a model adds it, as the harness does."""
    global MODEL
    shutil.copytree(MODEL, WORK / "model")
    MODEL = str(WORK / "model")
    config = WORK / "model/tokenizer_config.json"
    config.write_text(config.read_text().replace('"{% for', '"<s>{% for'))
    for a, b in same("chat", (TEXT,), "--chat"):
        assert a["resps"] == b["resps"], (a, b)


def asks_what_a_server_takes():
    """Four stop strings at most; the text is cut at all of them, in order. The key is sent, and written nowhere."""
    with Stub(plain) as s:
        got = fine(s.url, "--tasks", task_file("tell.json", TEXT), "-o", str(WORK / "out"), "--batch", "3", key="se-cret")
        probe, *bodies = s.of("/v1/completions")
        assert probe["max_tokens"] == 1
        assert len(bodies) == 6 and s.most <= 3, (len(bodies), s.most)
        assert all(b["stop"] == TEXT["stops"][:4] and b["max_tokens"] == 24 and b["temperature"] == 0 and b["model"] == "stub" for b in bodies)
        assert sorted(b["prompt"] for b in bodies) == [r["prompt"] for r in TEXT["rows"]]
        assert set(s.keys) == {"Bearer se-cret"}, s.keys
    assert all(line["resps"] == [" 3 word "] for line in samples(WORK / "out", "tell"))
    assert got["results"]["tell"]["rouge_l,none"] > 0
    assert not any("se-cret" in f.read_text(errors="replace") for f in (WORK / "out").iterdir())
    with Stub(plain) as s:
        fine(s.url, "--chat", "--served-model", "other", "--tasks", task_file("tell.json", TEXT))
        body = s.of("/v1/chat/completions")[0]
        assert body["model"] == "other" and body["messages"][-1]["role"] == "user" and not s.of("/v1/models"), body
        assert s.keys[0] is None

    def chat_alone(path, body, number):
        return MODELS if body is None else text_answer(" 3") if path == "/v1/chat/completions" else (404, {"error": {"message": "no"}}, {})
    with Stub(chat_alone) as s:
        r = pesc(s.url, "--tasks", task_file("tell.json", TEXT), "-o", str(WORK / "chat-alone"), quiet=False)
        assert r.returncode == 0 and "has no /v1/completions, so texts are asked as conversations" in r.stderr, r
        assert len(s.of("/v1/chat/completions")) == 6 and len(s.of("/v1/completions")) == 1
    assert json.loads((WORK / "chat-alone/evaluation.json").read_text())["interface"] == "chat/completions"


def goes_on_where_it_was():
    """After a failure only what is missing is asked, after one request that finds out what the server has."""
    out = WORK / "resumed"

    broken = threading.Event()
    broken.set()

    def stops(path, body, number):
        return MODELS if body is None else (400, {"error": {"message": "enough"}}, {}) if broken.is_set() and number > 4 else text_answer(" 3")
    with Stub(stops) as s:
        r = pesc(s.url, "--tasks", task_file("tell.json", TEXT), "-o", str(out), "--batch", "1")
        assert r.returncode == 3 and r.stderr == f"pesc: {s.url}/v1/completions: answers 400: enough\n", r
        assert len(samples(out, "tell")) == 3
        broken.clear()
        s.asked.clear()
        again = pesc(s.url, "--tasks", task_file("tell.json", TEXT), "-o", str(out), "--batch", "1")
        assert again.returncode == 0, again.stderr
        assert len(s.of("/v1/completions")) == 1 + 3, s.asked
        s.asked.clear()
        finished = pesc(s.url, "--tasks", task_file("tell.json", TEXT), "-o", str(out))
        assert finished.returncode == 0 and finished.stdout == again.stdout and len(s.of("/v1/completions")) == 1


def asks_again():
    """A busy, broken or lost server is asked again, after the time that it names."""
    for first in (429, {}, {"Retry-After": "1"}), (500, {}, {}), (503, {}, {}), None:
        with Stub(lambda path, body, number, first=first: MODELS if body is None else first if number == 2 else text_answer(" 3")) as s:
            fine(s.url, "--tasks", task_file("tell.json", TEXT), "--limit", "1")
            assert len(s.of("/v1/completions")) == 1 + 2, (first, s.asked)
            waited = s.times[3] - s.times[2]
        if first:  # libcurl itself asks again at once where a connection that was kept is closed
            assert waited >= (0.95 if "Retry-After" in first[2] else 0.4), (first, waited)


def says_what_is_wrong():
    """Each wrong answer is one sentence, at once or after --retries."""
    def always(status, content, headers=None):
        return lambda path, body, number: MODELS if body is None else (status, content, headers or {})
    url = None
    for script, code, sentence in (
            (always(429, {"error": {"message": "slow down"}}), 3, "answers 429: slow down"),
            (always(500, b"<html>"), 3, "answers 500"),
            (always(401, {"error": {"message": "no \x1b[31mkey\n"}}), 3, "answers 401: no \\x1B[31mkey\\x0A"),
            (always(400, {"message": "flat"}), 3, "answers 400: flat"),
            (always(302, {}, {"Location": "http://127.0.0.1:9/steal"}), 3,
             "answers 302 and sends to http://127.0.0.1:9/steal, where the key is not sent; give the address that is meant"),
            (always(200, b"hello"), 3, "found \"hello\", expected a JSON object"),
            (always(200, b""), 3, "found \"\", expected a JSON object"),
            (always(200, [1]), 3, "found \"[1]\", expected a JSON object"),
            (always(200, "endless"), 3, "answers more than 64 MiB"),
            (lambda p, body, n: MODELS if body is None else None, 3, "Empty reply from server"),
    ):
        with Stub(script) as s:
            r = pesc(s.url, "--tasks", task_file("tell.json", TEXT), "--retries", "1", "--batch", "1")
            url = s.url
            assert r.returncode == code and r.stderr == f"pesc: {url}/v1/completions: {sentence}\n", (sentence, r)
            n = len(s.of("/v1/completions"))  # libcurl itself asks once more where a connection that was kept is closed
            assert n == 1 if not sentence.startswith(("answers 429", "answers 500", "Empty")) else 2 <= n <= 4, (sentence, n)
    for content, sentence in (({}, "found an answer without \"choices\", expected one of OpenAI's interface"), ({"choices": [{}]}, "found a choice without \"text\", expected a completion"),
                              ({"choices": [{"text": 5}]}, "found a choice without \"text\", expected a completion")):
        with Stub(always(200, content)) as s:
            r = pesc(s.url, "--tasks", task_file("tell.json", TEXT))
            assert r.returncode == 3 and r.stderr == f"pesc: {s.url}/v1: {sentence}\n", r
    r = pesc(url, "--tasks", task_file("tell.json", TEXT))  # the server has ended
    assert r.returncode == 3 and r.stderr.startswith(f"pesc: {url}/v1/models: ") and "connect" in r.stderr, r
    with Stub(lambda *_: time.sleep(1) or MODELS) as s:
        r = pesc(s.url, "--tasks", task_file("tell.json", TEXT), "--request-timeout", "0.2", "--retries", "0")
        assert r.returncode == 3 and "timed out" in r.stderr, r


def models_are_told_apart():
    """The only model that a server lists; of several, one must be named."""
    for listed, sentence in (([], "lists no model; name one (--served-model, --judge-model)"),
                             ([{"id": "a"}, {"id": "b"}], "lists 2 models (a, b); name one of them (--served-model, --judge-model)")):
        with Stub(lambda *_, listed=listed: (200, {"data": listed}, {})) as s:
            r = pesc(s.url, "--tasks", task_file("tell.json", TEXT))
            assert r.stderr == f"pesc: {s.url}/v1: {sentence}\n", r


def choices_need_logprobs():
    """A server that does not score prompts is refused before anything is asked, in one sentence."""
    refused = "gives no log-probabilities of a prompt (/v1/completions with echo and logprobs), which multiple choice needs"
    tasks = f"{task_file('tell.json', TEXT)},{task_file('pick.json', CHOICE)}"
    for script in plain, lambda path, body, n: MODELS if body is None else (400, {"error": {"message": "no echo"}}, {}):
        with Stub(script) as s:
            r = pesc(s.url, "--tasks", tasks)
            assert r.returncode == 3 and r.stderr.startswith(f"pesc: {s.url}/v1: {refused}"), r
            assert r.stderr.count("\n") == 1 and len(s.asked) == 2, s.asked
    assert ": answers 400: no echo; evaluate tasks that generate" in r.stderr.replace(f" {s.url}/v1/completions", ""), r.stderr
    with Stub(plain) as s:
        r = pesc(s.url, "--chat", "--tasks", tasks)
        assert r.returncode == 2 and r.stderr.startswith("pesc: --chat: a server does not say how likely"), r


def echoes_without_bos():
    """llama-cpp-python counts BOS among the tokens of a prompt and leaves it out of the echo: which figure is of which token is not certain."""
    for left_out, code in (0, 0), (1, 3):
        def script(path, body, number, left_out=left_out):
            if body is None:
                return MODELS
            values = [None] + [-len(w) / 8 for w in body["prompt"].split(" ")] + [-0.5]
            values = values[left_out:]
            return (200, {"choices": [{"text": body["prompt"], "logprobs": {"token_logprobs": values, "top_logprobs": [{} for _ in values]}}],
                          "usage": {"prompt_tokens": len(body["prompt"].split(" ")) + 1, "completion_tokens": 1}}, {})
        with Stub(script) as s:
            r = pesc(s.url, "--tasks", task_file("pick.json", CHOICE), "-o", str(WORK / f"echo{left_out}"))
            assert r.returncode == code and (code == 0 or "gives no log-probabilities of a prompt" in r.stderr), (left_out, r)
        for line, row in zip(samples(WORK / f"echo{left_out}", "pick") if code == 0 else [], CHOICE["rows"]):
            for (logprob, _), choice in zip(line["resps"], row["choices"]):
                assert abs(logprob + len(choice.replace(" ", "")) / 8) < 1e-9, (left_out, line, choice)


def llama_cpp_shape():
    """Log-probabilities as a list of objects, as llama.cpp writes them."""
    def script(path, body, number):
        if body is None:
            return MODELS
        words = body["prompt"].split(" ")
        content = [{"token": w, "logprob": -len(w) / 8, "top_logprobs": [{"token": w, "logprob": -len(w) / 8}]} for w in words]
        return (200, {"choices": [{"text": body["prompt"], "logprobs": {"content": content + content[:1]}}], "usage": {"prompt_tokens": len(words)}}, {})
    with Stub(script) as s:
        fine(s.url, "--tasks", task_file("pick.json", CHOICE), "-o", str(WORK / "shape"))
    for line, row in zip(samples(WORK / "shape", "pick"), CHOICE["rows"]):
        for (logprob, greedy), choice in zip(line["resps"], row["choices"]):
            assert abs(logprob + len(choice.replace(" ", "")) / 8) < 1e-9 and greedy, (line, choice)


def calls_of_tools():
    """The message of a chat completion is judged as a turn of a model that is opened here."""
    def script(path, body, number):
        if body is None:
            return MODELS
        tool = body["tools"][0]["function"]
        called = {"id": "1", "type": "function", "function": {"name": tool["name"], "arguments": "{}"}}
        return (200, {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [called]}}]}, {})
    with Stub(script) as s:
        got = fine(s.url, "--tasks", "calls_simple,calls_none", "--limit", "3", "-o", str(WORK / "calls"))
        assert len(s.of("/v1/chat/completions")) == 6 and got["results"]["calls_none"]["exact_match,none"] == 0
        assert "tool_calls" in samples(WORK / "calls", "calls_simple")[0]["resps"][0]
    with Stub(lambda path, body, n: MODELS if body is None else text_answer("none")) as s:
        assert fine(s.url, "--tasks", "calls_none", "--limit", "3")["results"]["calls_none"]["exact_match,none"] == 1


def options_of_models_are_refused():
    with Stub(plain) as s:
        for words, sentence in (
                (["--lora", "x"], "eval: --lora is for models that are opened here, found the address of a server; leave it out"),
                (["--device", "cpu"], "eval: --device is for models that are opened here, found the address of a server; leave it out"),
                (["--ctx", "64"], "eval: --ctx is for models that are opened here, found the address of a server; leave it out"),
        ):
            r = pesc(s.url, "--tasks", "esft_law", *words)
            assert r.returncode == 2 and r.stderr == f"pesc: {sentence}\n", r
        (WORK / "records.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
        r = pesc(s.url, "--tasks", str(WORK / "records.jsonl"))
        assert r.returncode == 2 and "a file of records needs a model that is opened here" in r.stderr, r
        assert not s.asked
    for url in "http://", "http:///", "https:///v1", "https://a b", "http://me:key@127.0.0.1:1", "http://127.0.0.1:1/v1?x=1":
        r = pesc(url, "--tasks", task_file("tell.json", TEXT))
        assert r.returncode == 2 and "expected http://HOST:PORT or https://HOST/v1" in r.stderr, r
    r = pesc(MODEL, "--tasks", "esft_law", "--served-model", "x")
    assert r.returncode == 2 and "--served-model is for the address of a server" in r.stderr, r


def judges_in_both_orders():
    """Each answer is judged twice, its place swapped; the score is the mean, and the verdicts are in the samples."""
    def judge(path, body, number):
        if body is None:
            return (200, {"data": [{"id": "wise"}]}, {})
        text = body["messages"][0]["content"]
        answer_first = "[Answer 1]\n 3 word" in text
        assert answer_first or "[Answer 2]\n 3 word" in text, text
        mine, other = (6, 8) if answer_first else (5, 9)
        one, two = (mine, other) if answer_first else (other, mine)
        if "number 4 " in text and answer_first:
            return text_answer("I cannot say. Answer 1: 11")
        return text_answer(f"Answer 1: 1 at first sight.\n**Answer 1:** {one}/10\nAnswer 2: {two}.")
    out = WORK / "judged"
    with Stub(plain) as s, Stub(judge) as j:
        words = (s.url, "--tasks", task_file("tell.json", TEXT), "-o", str(out), "--judge", j.url)
        r = pesc(*words, key="k", judge_key="jk")
        assert r.returncode == 0, r.stderr
        assert set(s.keys) == {"Bearer k"} and set(j.keys) == {"Bearer jk"}
        asked = [b["messages"][0]["content"] for b in j.of("/v1/chat/completions")]
        assert len(asked) == 12 and all("It names the number." in a and "from 0" in a for a in asked)
        got = fine(*words, key="k", judge_key="jk")
        assert len(j.of("/v1/chat/completions")) == 12, "a finished evaluation asks no judge"
    lines = samples(out, "tell")
    for i, line in enumerate(lines):
        assert line["judge"] == (2.5 if i == 4 else 5.5), line
        assert [v["place"] for v in line["verdicts"]] == [1, 2], line
        assert [v["score"] for v in line["verdicts"]] == ([None, 5] if i == 4 else [6, 5]), line
        assert [v["reference_score"] for v in line["verdicts"]] == ([None, 9] if i == 4 else [8, 9]), line
        assert line.get("unreadable_verdict", False) == (i == 4)
        assert "rouge_l" in line and "chrf" in line
    assert abs(got["results"]["tell"]["judge,none"] - (5 * 5.5 + 2.5) / 6) < 1e-12
    assert got["config"]["judge"]["model"] == "wise" and len(got["config"]["judge"]["prompt_hash"]) == 64
    with Stub(plain) as s:
        r = pesc(s.url, "--tasks", task_file("none.json", {k: v for k, v in TEXT.items() if k != "rubric"}), "--judge", s.url)
        assert r.returncode == 2 and "none of the tasks has a rubric" in r.stderr, r


def judges_a_model_that_is_open():
    def judge(path, body, number):
        return MODELS if body is None else text_answer("Answer 1: 4\nAnswer 2: 4")
    with Stub(judge) as j:
        got = fine(MODEL, "--tasks", task_file("tell.json", TEXT), "--judge", j.url, "--limit", "3", "--device", "cpu")
        assert got["results"]["tell"]["judge,none"] == 4 and len(j.of("/v1/chat/completions")) == 6
    with Stub(lambda path, body, n: MODELS if body is None else (403, {"error": {"message": "no"}}, {})) as j:
        r = pesc(MODEL, "--tasks", task_file("tell.json", TEXT), "--judge", j.url, "--limit", "3", "--device", "cpu")
        assert r.returncode == 3 and r.stderr == f"pesc: {j.url}/v1/chat/completions: answers 403: no\n", r


globals()[sys.argv[2]]()
