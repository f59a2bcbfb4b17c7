#!/usr/bin/env python3
"""What must hold of answers, whatever else the server does: properties.py MODEL NAME runs the property of that name."""
import concurrent.futures
import http.client
import json
import resource
import signal
import socket
import sys
import tempfile
import threading
import time

from constraints import CONSTRAINTS_HOLD
from front import FRONT
from reports import REPORTS
from running import Server, until
from speech import SPEECH

TEXT = "Once upon a time there was a little girl who went to the market to buy some bread. "
FIXED = ("id", "created")  # differ from answer to answer


def body(i, **fields):
    """Requests of several kinds: greedy and sampled, with penalties, with a long and a short prompt."""
    kinds = [
        {"temperature": 0},
        {"temperature": 1, "seed": 7},
        {"temperature": 0.8, "top_p": 0.9, "seed": 8, "presence_penalty": 0.5, "frequency_penalty": 0.3},
        {"temperature": 1.2, "top_k": 20, "min_p": 0.02, "seed": -9, "repetition_penalty": 1.1, "logprobs": 3},
    ]
    return {"prompt": TEXT * (1 + i % 3) + f"Number {i}", "max_tokens": 12 + i % 5, **kinds[i % 4], **fields}


def content(answer):
    return {k: v for k, v in answer.items() if k not in FIXED and k != "usage"}


def same_alone_and_among_others(model):
    """Alone, in a batch of 16, cached or not, with few slots or many: the same bytes."""
    n = 16
    with Server(model) as s:
        alone = [content(s.json("/v1/completions", body(i, cache_salt=f"alone {i}"))) for i in range(n)]
        again = [content(s.json("/v1/completions", body(i, cache_salt=f"alone {i}"))) for i in range(n)]
        assert alone == again
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            assert list(pool.map(lambda i: content(s.json("/v1/completions", body(i))), range(n))) == alone
    with Server(model, "--max-streams", "3", "--threads", "1") as s:
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            assert list(pool.map(lambda i: content(s.json("/v1/completions", body(i))), range(n))) == alone


def streams_equal_whole_answers(model):
    with Server(model) as s:
        for i in range(8):
            for more in ({}, {"stop": ["e", "th"]}, {"n": 3}, {"echo": True}, {"echo": True, "logprobs": 2}, {"return_token_ids": True}):
                b = body(i, **more)
                whole = s.json("/v1/completions", b)
                texts = [""] * len(whole["choices"])
                logprobs = [[] for _ in texts]
                finish = [None] * len(texts)
                for e in s.events("/v1/completions", b):
                    (c,) = e["choices"]
                    texts[c["index"]] += c["text"]
                    finish[c["index"]] = c["finish_reason"] or finish[c["index"]]
                    if c["logprobs"]:
                        logprobs[c["index"]] += list(zip(*(c["logprobs"][k] for k in ("tokens", "token_logprobs", "text_offset"))))
                assert texts == [c["text"] for c in whole["choices"]], (b, texts, whole)
                assert finish == [c["finish_reason"] for c in whole["choices"]]
                for c, streamed in zip(whole["choices"], logprobs):
                    if c["logprobs"]:
                        assert streamed == list(zip(*(c["logprobs"][k] for k in ("tokens", "token_logprobs", "text_offset"))))


def long_echoes_are_streamed(model):
    """An echo with log-probabilities is one long event, which a reader may take its time for."""
    with Server(model, "--context", "20000") as s:
        ask = {"prompt": TEXT * 60, "echo": True, "logprobs": 5, "max_tokens": 300, "ignore_eos": True, "temperature": 0, "seed": 1}
        whole = s.json("/v1/completions", ask)["choices"][0]
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("POST", "/v1/completions", json.dumps({**ask, "stream": True}), {"Content-Type": "application/json"})
        answer, got = c.getresponse(), b""
        while part := answer.read(1 << 16):
            got += part
            time.sleep(0.3 if len(got) < 1 << 18 else 0)
        c.close()
        events = [json.loads(e[6:]) for e in got.split(b"\n\n") if e.startswith(b"data: {")]
        assert len(got) > 2 << 18 and b"data: [DONE]" in got
        assert "".join(e["choices"][0]["text"] for e in events) == whole["text"]
        assert sum((e["choices"][0]["logprobs"]["token_logprobs"] for e in events), []) == whole["logprobs"]["token_logprobs"]


def answers_as_other_servers(model):
    """What the tests of vLLM's and llama.cpp's servers expect of any server."""
    ids = [5, 6, 7, 8, 9]
    chat = {"messages": [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}], "max_tokens": 5}
    with Server(model, "--chat-format", "vicuna") as s:
        ask = lambda path, **fields: s.json("/v1/" + path, fields)
        whole = ask("completions", prompt=ids, max_tokens=5, temperature=0, ignore_eos=True)
        assert whole["choices"][0]["prompt_logprobs"] is None and whole["choices"][0]["token_ids"] is None
        assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        answer = ask("chat/completions", **chat)
        assert answer["prompt_logprobs"] is None and answer["prompt_token_ids"] is None and answer["choices"][0]["token_ids"] is None
        for n in (0, 1, 5):
            (first, *_) = ask("completions", prompt=ids, max_tokens=2, logprobs=n)["choices"][0]["logprobs"]["top_logprobs"]
            assert max(n, 1) <= len(first) <= n + 1
            entry = ask("chat/completions", **chat, logprobs=True, top_logprobs=n)["choices"][0]["logprobs"]["content"][0]
            assert len(entry["top_logprobs"]) == n and entry["logprob"] <= 0 and entry["bytes"] is not None
        for n in (1, 2):
            ranked = ask("chat/completions", **chat, prompt_logprobs=n)["prompt_logprobs"]
            assert ranked[0] is None and n <= len(ranked[3]) <= n + 1
        named = ask("completions", prompt=ids, max_tokens=4, echo=True, logprobs=1, return_token_ids=True, return_tokens_as_token_ids=True)["choices"][0]
        assert [f"token_id:{i}" for i in ids + named["token_ids"]] == named["logprobs"]["tokens"]
        # the last event of a completion has text, and no choice has more events than tokens
        events = s.events("/v1/completions", {"prompt": ids, "max_tokens": 5, "temperature": 0, "ignore_eos": True})
        assert [e["choices"][0]["finish_reason"] for e in events] == [None] * (len(events) - 1) + ["length"]
        assert events[-1]["choices"][0]["text"] and len(events) <= 5
        assert "".join(e["choices"][0]["text"] for e in events) == whole["choices"][0]["text"]
        # usage in events
        for options, every in (({"include_usage": False, "continuous_usage_stats": True}, False), ({}, False), ({"include_usage": True, "continuous_usage_stats": True}, True)):
            events = s.events("/v1/completions", {"prompt": ids, "max_tokens": 5, "stream_options": options})
            assert all((e.get("usage") is not None) == every for e in events)
            assert not every or (all(e["usage"]["completion_tokens"] > 0 for e in events) and events[-1]["choices"] == [])
        for options in ({"include_usage": None}, {"include_usage": True}, {"continuous_usage_stats": None}, {"continuous_usage_stats": True}):
            s.json("/v1/completions", {"prompt": ids, "stream": False, "stream_options": options}, status=400)
        # times, and the role, which is the first event alone
        events = s.events("/v1/chat/completions", {**chat, "stream_options": {"include_usage": True}, "timings_per_token": True})
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None} and "timings" not in events[0]
        assert events[-1]["timings"]["predicted_n"] <= 5 and events[-1]["timings"]["prompt_per_second"] > 0
        assert "content" not in events[-2]["choices"][0]["delta"]
        # refusals that name what is wrong
        vocab = s.json("/v1/models")["data"][0]["meta"]["n_vocab"]
        refused = s.json("/v1/chat/completions", {**chat, "stop_token_ids": [vocab + 1]}, status=400)["error"]["message"]
        assert f" {vocab + 1}, " in refused and f" {vocab} " in refused, refused
        for bad in ({"stop_token_ids": [-1]}, {"seed": 2**64}, {"seed": -2**63 - 1}, {"logprobs": True, "top_logprobs": 21}, {"response_format": {"type": "sound"}},
                    {"prompt_logprobs": -1}, *({"messages": m} for m in (None, "text", [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}], [{"role": "user", "content": "a"}, {}]))):
            s.json("/v1/chat/completions", {**chat, **bad}, status=400)
        pieces = s.json("/tokenize", {"content": "unicode \u5abd and emoji \U0001f917", "with_pieces": True})["tokens"]
        assert all(t["id"] >= 0 and len(t["piece"]) > 0 for t in pieces)
        parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "the best book"}]
        assert ask("chat/completions", **{**chat, "messages": [{"role": "user", "content": parts}]})["choices"][0]["message"]["role"] == "assistant"
        joined = [s.json("/apply-template", {"messages": [{"role": "user", "content": c}]})["prompt"] for c in (parts, "What is \nthe best book")]
        assert joined[0] == joined[1], joined
        assert len(ask("chat/completions", **chat, n=2)["choices"]) == 2


def chat_streams(model):
    with Server(model) as s:
        b = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 3, "logprobs": True, "top_logprobs": 2}
        whole = s.json("/v1/chat/completions", b)
        events = s.events("/v1/chat/completions", {**b, "stream_options": {"include_usage": True}})
        assert whole["object"] == "chat.completion" and events[0]["object"] == "chat.completion.chunk"
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
        assert all("role" not in e["choices"][0]["delta"] for e in events[1:-1])
        assert events[-1]["choices"] == [] and events[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
        assert all(e["usage"] is None for e in events[:-1])
        assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
        assert events[-2]["choices"][0]["delta"] == {} and events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1])
        assert text == whole["choices"][0]["message"]["content"]
        entries = [x for e in events[:-1] if e["choices"][0]["logprobs"] for x in e["choices"][0]["logprobs"]["content"]]
        assert entries == whole["choices"][0]["logprobs"]["content"] and len(entries) == whole["usage"]["completion_tokens"]
        assert all(len(x["top_logprobs"]) == 2 and x["logprob"] <= 0 for x in entries)


def scores_echoed_prompts(model):
    """The values of an echo are those of the generation that made the text, and greedy tokens are the largest."""
    with Server(model) as s:
        ids = s.json("/tokenize", {"prompt": TEXT})["tokens"]
        made = s.json("/v1/completions", {"prompt": ids, "max_tokens": 9, "temperature": 0, "logprobs": 1, "return_token_ids": True})["choices"][0]
        new = made["token_ids"]
        scored = s.json("/v1/completions", {"prompt": ids + new, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True})["choices"][0]["logprobs"]
        only = s.json("/v1/completions", {"prompt": ids + new, "max_tokens": 0, "logprobs": 1, "echo": True})["choices"][0]
        assert scored["token_logprobs"][0] is None and scored["top_logprobs"][0] is None
        assert len({len(v) for v in scored.values()}) == 1 and len(scored["tokens"]) == len(ids + new) + 1
        assert scored["token_logprobs"][len(ids):-1] == made["logprobs"]["token_logprobs"]
        for value, top in list(zip(scored["token_logprobs"], scored["top_logprobs"]))[len(ids):-1]:
            assert value == max(top.values())
        assert only["logprobs"]["token_logprobs"] == scored["token_logprobs"][:-1] and only["finish_reason"] == "length"
        assert scored["text_offset"] == sorted(scored["text_offset"])


def characters_stay_whole(model):
    """The tokens of the tiny model are bytes: characters are cut anywhere, in prompts and in answers."""
    with Server(model) as s:
        ids = s.json("/tokenize", {"prompt": "h\u00e9 \U0001f600 x", "add_special_tokens": False})["tokens"]
        for cut in range(1, len(ids) + 1):
            b = {"prompt": ids[:cut], "max_tokens": 40, "seed": cut, "ignore_eos": True, "echo": True, "logprobs": 3, "temperature": 2}
            (whole,) = s.json("/v1/completions", b)["choices"]
            events = s.events("/v1/completions", b)
            assert "".join(e["choices"][0]["text"] for e in events) == whole["text"]
            assert {len(v) for v in whole["logprobs"].values()} == {cut + 40}, whole
            chat = {"messages": [{"role": "user", "content": "\U0001f600"}], "max_tokens": 40, "seed": cut, "ignore_eos": True, "logprobs": True}
            (answer,) = s.json("/v1/chat/completions", chat)["choices"]
            entries = answer["logprobs"]["content"]
            assert len(entries) == 40 and all(len(e["bytes"]) > 0 for e in entries)


def counts_what_is_cached(model):
    with Server(model) as s:
        b = {"prompt": TEXT * 6, "max_tokens": 1, "temperature": 0}
        first, second = s.json("/v1/completions", b)["usage"], s.json("/v1/completions", b)["usage"]
        other = s.json("/v1/completions", {**b, "cache_salt": "other"})["usage"]
        n = first["prompt_tokens"]
        assert n > 64 and first["prompt_tokens_details"]["cached_tokens"] == 0
        assert second["prompt_tokens_details"]["cached_tokens"] == n - 1, second
        assert other["prompt_tokens_details"]["cached_tokens"] == 0
        assert s.metric("pesc_prompt_tokens_total") == 3 * n and s.metric("pesc_prompt_tokens_cached_total") == n - 1
        # a prompt counts once, whatever the number of its choices, of which all but the first find what that one computes
        several = [s.json("/v1/completions", {**b, "cache_salt": "n", "n": 4})["usage"] for _ in range(2)]
        assert [u["prompt_tokens"] for u in several] == [n, n], several
        assert [u["prompt_tokens_details"]["cached_tokens"] for u in several] == [0, n - 1], several


def open_stream(s, **fields):
    """A socket of a stream that has sent its first event."""
    data = json.dumps({"prompt": TEXT, "max_tokens": 100000, "ignore_eos": True, "stream": True, **fields}).encode()
    c = socket.create_connection(("127.0.0.1", s.port), timeout=30)
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return c


def leaving_frees_pages(model):
    """A client that leaves is noticed while it is served and while it waits; the others go on."""
    with Server(model, "--max-streams", "2", "--context", "20000") as s:
        running = [open_stream(s), open_stream(s)]
        for c in running:
            assert c.recv(1000)
        waiting = [open_stream(s) for _ in range(3)]
        s.wait_for("pesc_requests_waiting", 3)
        s.wait_for("pesc_requests_running", 2)
        until(lambda: s.metric("pesc_kv_pages_used") > 0, lambda: "no pages are used")
        for c in waiting:
            c.close()
        s.wait_for("pesc_requests_waiting", 0)
        s.wait_for("pesc_requests_running", 2)
        began = time.monotonic()
        for c in running:
            c.close()
        s.wait_for("pesc_kv_pages_used", 0)
        took = time.monotonic() - began
        s.wait_for("pesc_requests_running", 0)
        s.wait_for("pesc_disconnects_total", 5)
        assert took < 2, took
        assert s.json("/v1/completions", {"prompt": "a", "max_tokens": 2})["usage"]["completion_tokens"] >= 1


def slots_are_free_soon(model):
    """Within 100 ms: the best of ten tries, because other programs may have the machine meanwhile."""
    took = []
    with Server(model, "--max-streams", "2", "--context", "20000") as s:
        for _ in range(10):
            c = open_stream(s)
            assert c.recv(1000)
            began = time.monotonic()
            c.close()
            s.wait_for("pesc_kv_pages_used", 0)
            took.append(time.monotonic() - began)
    assert min(took) < 0.1, took


def long_prompts_do_not_stop_streams(model):
    """While a prompt of 8000 tokens is read, every forward continues the stream that runs."""
    with Server(model, "--context", "20000") as s:
        vocab = s.json("/tokenizer_info")["vocab_size"]
        c = open_stream(s)
        assert c.recv(1000)
        threading.Thread(target=lambda: [None for _ in iter(lambda: c.recv(1 << 16), b"")], daemon=True).start()
        figures = lambda: s.metrics("pesc_generation_tokens_total", "pesc_forwards_total", "pesc_forward_tokens_total")
        before = figures()
        s.json("/v1/completions", {"prompt": [i * 31 % vocab for i in range(8000)], "max_tokens": 1})
        tokens, forwards, computed = (b - a for a, b in zip(before, figures()))
        assert computed >= 8000 and forwards >= 8000 / 128, (forwards, computed)
        assert tokens >= forwards - 3, f"{tokens} tokens in {forwards} forwards"
        c.shutdown(socket.SHUT_RDWR)


def large_bodies_do_not_stop_others(model):
    """While bodies of 3 MB are parsed and tokenised, /health is answered, and a large prompt that fits is continued."""
    with Server(model, "--context", "20000") as s:
        text = "".join(chr(97 + i * i % 23) + " " * (i % 5 == 0) for i in range(800000))
        sent, took = [], []
        clients = [threading.Thread(target=lambda: sent.append(s.ask("POST", "/v1/completions", {"prompt": [text] * 3}))) for _ in range(3)]
        for c in clients:
            c.start()
        while any(c.is_alive() for c in clients):
            began = time.monotonic()
            assert s.ask("GET", "/health")[0] == 200
            took.append(time.monotonic() - began)
            time.sleep(0.01)
        assert [status for status, _, _ in sent] == [400] * 3
        assert all(json.loads(body)["error"]["code"] == "context_length_exceeded" for _, _, body in sent)
        assert sorted(took)[len(took) // 2] < 0.05, sorted(took)
        ids = [i * 31 % 300 for i in range(8000)]
        body = {"prompt": ids, "max_tokens": 8, "temperature": 0}
        whole = s.json("/v1/completions", body)["choices"][0]["text"]
        assert "".join(e["choices"][0]["text"] for e in s.events("/v1/completions", body)) == whole


def refuses_what_does_not_fit_the_queue(model):
    with Server(model, "--max-streams", "1", "--max-queue", "1", "--context", "20000") as s:
        first = open_stream(s)
        assert first.recv(1000)
        second = open_stream(s)
        s.wait_for("pesc_requests_waiting", 1)
        status, headers, text = s.ask("POST", "/v1/completions", {"prompt": "a"})
        error = json.loads(text)["error"]
        assert status == 429 and error["code"] == "queue_full" and error["type"] == "rate_limit_error", text
        assert int(headers["retry-after"]) > 0 and headers["x-should-retry"] == "true"
        first.close()
        second.close()
        s.wait_for("pesc_requests_running", 0)
        # what would never fit is not to be sent again
        for fields, param in ({"prompt": "a", "n": 3}, "n"), ({"prompt": ["a", "b", "c"]}, "prompt"):
            error = s.json("/v1/completions", {"max_tokens": 1, **fields}, status=400)["error"]
            assert error["code"] == "too_many_choices" and error["param"] == param, error
        assert len(s.json("/v1/completions", {"prompt": "a", "n": 2, "max_tokens": 1})["choices"]) == 2


def many_choices_leave_at_once(model):
    """A request of 20,000 choices whose client leaves does not keep others from being answered."""
    with Server(model, "--max-streams", "2", "--max-queue", "20000", "--context", "20000") as s:
        c = open_stream(s, prompt=["a"] * 200, n=100)
        assert c.recv(1000)
        c.close()
        longest, end = 0, time.monotonic() + 30
        while s.process.poll() is None:
            began = time.monotonic()
            waiting = s.metric("pesc_requests_waiting")
            longest = max(longest, time.monotonic() - began)
            if waiting == 0 and s.metric("pesc_requests_running") == 0:
                break
            assert time.monotonic() < end, waiting
            time.sleep(0.01)
        assert longest < 1, longest


def ends_after_a_signal(model):
    """A running stream may end; one that does not is cut with an error event; the exit status is 0."""
    with Server(model, "--drain", "1", "--context", "20000") as s:
        short = open_stream(s, max_tokens=20)
        long = open_stream(s)
        assert short.recv(1000) and long.recv(1000)
        keep = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)
        keep.request("GET", "/health")
        assert keep.getresponse().read() == b'{"status":"ok"}'
        s.process.terminate()
        time.sleep(0.2)
        keep.request("GET", "/health")
        r = keep.getresponse()
        assert r.status == 503 and b"shutting_down" in r.read() and r.getheader("retry-after") == "5"
        status, headers, text = s.ask("POST", "/v1/completions", {"prompt": "a"})
        assert status == 503 and b"shutting_down" in text and headers["retry-after"] == "5", (status, headers, text)
        texts = []
        for c in (short, long):
            got = b""
            while part := c.recv(65536):
                got += part
                if b"[DONE]" in got or b"\r\n0\r\n" in got:
                    break
            texts.append(got)
        assert b"data: [DONE]" in texts[0]
        assert b'"error"' in texts[1] and b"[DONE]" not in texts[1], texts[1][-400:]
        assert s.process.wait(20) == 0
    with Server(model, "--drain", "5", "--context", "20000") as s:
        c = open_stream(s, max_tokens=500)
        got = c.recv(1000)
        s.process.send_signal(signal.SIGHUP)
        while part := c.recv(65536):
            got += part
        assert b"data: [DONE]" in got and s.process.wait(20) == 0


def answers_origins_that_are_listed(model):
    with Server(model, "--cors-origin", "https://a.example") as s:
        ask = lambda origin: s.ask("OPTIONS", "/v1/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
        status, headers, _ = ask("https://a.example")
        assert status == 204 and headers["access-control-allow-origin"] == "https://a.example" and headers["vary"] == "Origin"
        asked = "authorization,content-type,x-stainless-lang"  # as openai's client in a browser
        _, headers, _ = s.ask("OPTIONS", "/v1/chat/completions", headers={
            "Origin": "https://a.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked})
        assert headers["access-control-allow-headers"] == asked, headers
        for other in ("https://a.example.evil", "http://a.example", "null", "https://A.example"):
            assert "access-control-allow-origin" not in ask(other)[1]
    with Server(model) as s:
        assert "access-control-allow-origin" not in s.ask("GET", "/health", headers={"Origin": "https://a.example"})[1]
    with Server(model, "--cors-origin", "*") as s:
        for method, origin in (("GET", "https://a.example"), ("OPTIONS", "null")):
            assert s.ask(method, "/health", headers={"Origin": origin})[1]["access-control-allow-origin"] == "*"
        assert "access-control-allow-origin" not in s.ask("GET", "/health")[1]


def waits_without_file_descriptors(model):
    """More connections than the process may open: the server waits for one to end, and does not spin meanwhile."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (48, limit[1]))
    try:
        s = Server(model)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    with s:
        clients = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(64)]
        used = s.cpu_seconds
        time.sleep(0.2)
        before = used()
        time.sleep(2)
        assert used() - before < 0.5, used() - before
        for c in clients:
            c.close()
        assert s.json("/health")["status"] == "ok"


def accepts_unknown_fields_if_lenient(model):
    with Server(model, "--lenient") as s:
        status, headers, _ = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "best_off": 2, "use_beam": 1})
        assert status == 200 and headers["x-pesc-ignored"] == "best_off, use_beam"
        refuses_constraints(s)
    with Server(model) as s:
        refuses_constraints(s)


def names_fields_without_a_use(model):
    """What clients add to every request is accepted and named, as far as it is given."""
    unused = {"user": "u", "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "x", "store": True, "prompt_cache_key": "k", "prompt_cache_retention": "24h", "verbosity": "low"}
    with Server(model) as s:
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            status, headers, _ = s.ask("POST", path, {**body, "max_tokens": 1, **unused})
            assert status == 200 and headers["x-pesc-ignored"] == ", ".join(unused), (status, headers)
            status, headers, _ = s.ask("POST", path, {**body, "max_tokens": 1, **{k: None for k in unused}})
            assert status == 200 and "x-pesc-ignored" not in headers, headers


def refuses_constraints(s):
    """What should constrain an answer is never ignored; its default says nothing."""
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        for field, value in (("guided_decoding", {}), ("guided_anything", 1),
                             ("structured_outputs", {"structural_tag": "a"}), ("structural_tag", {}), ("regex", "a"), ("ebnf", "a")):
            error = s.json(path, {**body, "max_tokens": 1, field: value}, 400)["error"]
            assert error["param"] == field, (path, field, error)
        s.json(path, {**body, "max_tokens": 1, "grammar": "", "regex": "", "guided_json": None, "structured_outputs": None})


def obeys_options_of_a_request(model):
    with Server(model) as s:
        ask = lambda **f: s.json("/v1/completions", {"prompt": TEXT, "max_tokens": 8, "temperature": 0, **f})["choices"]
        (plain,) = ask(return_token_ids=True)
        first = plain["token_ids"][0]
        assert ask(logit_bias={str(first): -100}, return_token_ids=True)[0]["token_ids"][0] != first
        (stopped,) = ask(stop_token_ids=[plain["token_ids"][3]], return_token_ids=True)
        assert stopped["finish_reason"] == "stop" and len(stopped["token_ids"]) <= 4
        mark = plain["text"][2:4]
        (cut,) = ask(stop=mark)
        assert cut["text"] == plain["text"][:plain["text"].index(mark)] and cut["finish_reason"] == "stop"
        (kept,) = ask(stop=mark, include_stop_str_in_output=True)
        assert kept["text"] == cut["text"] + mark
        (late,) = ask(stop=mark, min_tokens=5, max_tokens=40, return_token_ids=True)
        assert late["text"].startswith(plain["text"][:4]) and len(late["token_ids"]) > 5, late
        # a control token is not in the text, and ends it all the same
        (ended,) = ask(stop="<s>", logit_bias={"1": 100}, return_token_ids=True)
        assert ended["finish_reason"] == "stop" and ended["token_ids"] == [1] and ended["text"] == "", ended
        many = ask(n=4, temperature=1, seed=5)
        assert [c["index"] for c in many] == [0, 1, 2, 3] and len({c["text"] for c in many}) > 1
        assert ask(temperature=1, seed=6)[0]["text"] == many[1]["text"]
        both = ask(prompt=[TEXT, "Other"], n=2)
        assert [c["index"] for c in both] == [0, 1, 2, 3] and both[0]["text"] == both[1]["text"] == plain["text"]
        (echo,) = ask(echo=True, max_tokens=0)
        assert echo["text"] == TEXT and echo["finish_reason"] == "length"


def continues_last_messages(model):
    """A template that trims leaves the place where the text ends; a long conversation takes no longer than another."""
    with Server(model, "--chat-format", "llama2", "--context", "20000") as s:
        def prompt(question, answer, status=200):
            talk = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            return s.json("/apply-template", {"messages": talk, "continue_final_message": True, "add_generation_prompt": False}, status)
        question = "Begin with\nAnswer:\nthen say why. Is fire hot?"
        assert prompt(question, "Answer:\n")["prompt"].endswith(f"[INST] {question} [/INST] Answer:")
        prompt(question, " ", 400)
        began = time.monotonic()
        prompt("x " * 10000, "y " * 100000)
        assert time.monotonic() - began < 5


def writes_a_log(model):
    with tempfile.TemporaryFile("w+") as f:
        with Server(model, "--log-json", log=f) as s:
            s.json("/v1/completions", {"prompt": "a", "max_tokens": 2, "ignore_eos": True})
            s.ask("GET", "/nowhere")
        f.seek(0)
        one, two = (json.loads(line) for line in f)
        assert one["status"] == 200 and one["path"] == "/v1/completions" and one["generated_tokens"] == 2 and one["id"].startswith("req-")
        assert two["status"] == 404


PROPERTIES = {f.__name__: f for f in (
    same_alone_and_among_others, streams_equal_whole_answers, long_echoes_are_streamed, answers_as_other_servers, chat_streams, scores_echoed_prompts, characters_stay_whole, counts_what_is_cached,
    leaving_frees_pages, slots_are_free_soon, long_prompts_do_not_stop_streams, large_bodies_do_not_stop_others, refuses_what_does_not_fit_the_queue, many_choices_leave_at_once, ends_after_a_signal, answers_origins_that_are_listed, waits_without_file_descriptors,
    accepts_unknown_fields_if_lenient, names_fields_without_a_use, obeys_options_of_a_request, continues_last_messages, writes_a_log, *CONSTRAINTS_HOLD, *FRONT, *REPORTS, *SPEECH)}

if __name__ == "__main__":
    PROPERTIES[sys.argv[2]](sys.argv[1])
