"""What clients may rely on, whatever they ask for: keys, limits of time, numbers, states and figures that are true."""
import hashlib
import http.client
import json
import socket
import tempfile
import time

from running import Server, until

TEXT = "Once upon a time there was a little girl who went to the market to buy some bread. "


def digest_begins_like(key, at):
    """Another key, of whose SHA-256 the byte at this place is the same."""
    byte = hashlib.sha256(key.encode()).digest()[at]
    return next(k for k in (f"other-secret-{i}" for i in range(100000)) if hashlib.sha256(k.encode()).digest()[at] == byte)


def asks_for_keys(model):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("first-secret\n\nsecond-secret\n")
        f.flush()
        with Server(model, "--api-key-file", f.name) as s:
            assert s.ask("GET", "/health")[0] == 200
            alike = [{"X-Api-Key": digest_begins_like("first-secret", at)} for at in (0, 1, 31)]
            for headers in (*alike, {}, {"Authorization": "Bearer first-secre"}, {"Authorization": "Bearer first-secret2"},
                            {"Authorization": "Basic first-secret"}, {"X-Api-Key": ""}, {"Authorization": "Bearer "}):
                status, got, text = s.ask("GET", "/v1/models", headers=headers)
                assert status == 401 and got["www-authenticate"] == "Bearer", (headers, status)
                assert json.loads(text)["error"]["type"] == "authentication_error"
            for headers in ({"Authorization": "Bearer first-secret"}, {"Authorization": "bearer second-secret"}, {"X-Api-Key": "second-secret"},
                            {"X-Api-Key": "second-secret \t"}, {"Authorization": "Bearer first-secret  "}):
                assert s.ask("GET", "/v1/models", headers=headers)[0] == 200, headers


def keys_see_their_own_requests(model):
    """What one key asks for is neither shown to another nor cached for it; that it runs is no secret."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("first-secret\nsecond-secret\n")
        f.flush()
        with Server(model, "--api-key-file", f.name, "--context", "20000", "--max-streams", "2") as s:
            keys = [{"Authorization": f"Bearer {k}-secret"} for k in ("first", "second")]
            ask = lambda key, path: json.loads(s.ask("GET", path, headers=key)[2])
            data = json.dumps({"prompt": TEXT, "max_tokens": 100000, "ignore_eos": True, "stream": True}).encode()
            with socket.create_connection(("127.0.0.1", s.port), timeout=30) as c:
                c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: \tfirst-secret \t \r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
                assert b" 200 " in c.recv(1000)
                until(lambda: ask(keys[0], "/v1/requests")["data"][0]["state"] == "running", lambda: "the request does not run")
                (own,) = ask(keys[0], "/v1/requests")["data"]
                assert ask(keys[1], "/v1/requests")["data"] == []
                mine, other = (ask(k, "/slots")[0] for k in keys)
                assert mine["is_processing"] and mine["request"] == own["id"] and mine["n_prompt_tokens"] == own["prompt_tokens"] > 0
                assert other == {**mine, "request": None, "n_prompt_tokens": 0, "n_decoded": 0}, other
            cached = {}
            for salt in (None, "salt"):
                for i in (0, 0, 1):
                    b = {"prompt": "Of two keys: " + TEXT * 6, "max_tokens": 1, "cache_salt": salt}
                    usage = json.loads(s.ask("POST", "/v1/completions", b, keys[i])[2])["usage"]
                    cached.setdefault(salt, []).append(usage["prompt_tokens_details"]["cached_tokens"])
            for counts in cached.values():
                assert counts[0] <= 1 and counts[2] == 0 < counts[1], cached  # the first prompt began with the same token


def finished_requests_do_not_run(model):
    """A client that has its answer sees the server idle."""
    with Server(model) as s:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)

        def get(method, path, body=None):
            c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            return c.getresponse().read()
        for i in range(200):
            get("POST", "/v1/completions", {"prompt": f"{i}", "max_tokens": 1 + i % 3, "n": 1 + i % 2, "stream": i % 4 > 1, "ignore_eos": True})
            idle = {"/slots": lambda text: not any(slot["is_processing"] for slot in json.loads(text)),
                    "/v1/requests": lambda text: json.loads(text)["data"] == [],
                    "/metrics": lambda text: b"\npesc_requests_running 0\n" in text}
            paths = list(idle)
            for path in paths[i % 3:] + paths[:i % 3]:  # each of them is the first to be asked
                assert idle[path](get("GET", path)), (i, path)
        c.close()


def numbers_out_of_range_name_their_field(model):
    with Server(model) as s:
        b = {"prompt": TEXT, "max_tokens": 8, "temperature": 1}
        text = lambda seed: s.json("/v1/completions", {**b, "seed": seed})["choices"][0]["text"]
        assert text(2**64 - 1) == text(-1) and text(2**63) == text(-2**63) != text(0)
        for field, value in (("seed", str(2**64)), ("seed", str(-2**63 - 1)), ("max_tokens", "9" * 30), ("max_tokens", str(2**63)), ("temperature", "1e999"),
                             ("top_p", "-1E+400"), ("logit_bias", '{"1": 1e999}'), ("prompt", "[[1, 99999999999999999999]]")):
            status, _, got = s.ask("POST", "/v1/completions", f'{{"user": "a\\": b", {"" if field == "prompt" else chr(34) + "prompt" + chr(34) + ": " + chr(34) + "1e999" + chr(34) + ","} "{field}" : {value}}}'.encode())
            error = json.loads(got)["error"]
            assert status == 400 and error["param"] == field and "JSON" not in error["message"] and field in error["message"], (field, value, error)


def ends_slow_heads(model):
    """A head that comes byte by byte: the first one of a connection, and one after an answer. A client that only waits may go on."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Padding: "
    with Server(model) as s:
        clients = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(3)]
        for c in clients[1:]:
            c.sendall(head + b"\r\n\r\n")
            assert b" 200 " in c.recv(4096)
        began, ended, asked = time.monotonic(), [None, None], False
        for c in clients[:2]:
            c.setblocking(False)
            c.send(head)
        while None in ended:
            time.sleep(0.5)
            now = time.monotonic() - began
            assert now < 40, ended
            for i, c in enumerate(clients[:2]):
                if ended[i] is None:
                    try:
                        got = c.recv(4096)
                    except BlockingIOError:
                        c.send(b"a")
                        continue
                    assert got == b"" or b" 408 " in got, got
                    ended[i] = now
            if now > 12 and not asked:
                asked = True
                clients[2].sendall(head + b"\r\n\r\n")
                assert b" 200 " in clients[2].recv(4096)
        assert 9 < ended[0] < 13 and ended[1] < 28, ended


def ends_slow_bodies(model):
    """A body that stops is answered 408, and so it is in the log; a malformed head is in the log, too."""
    with tempfile.TemporaryFile("w+") as f:
        with Server(model, "--log-json", log=f) as s:
            began = time.monotonic()
            slow = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", wait=30)
            took = time.monotonic() - began
            assert b" 408 " in slow.split(b"\r\n")[0] and b'"body_timeout"' in slow and 14 < took < 20, (took, slow)
            assert b" 400 " in s.raw(b"GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n")[0]
            assert b" 400 " in s.raw(b"\x16\x03\x01\r\n").split(b"\r\n")[0]
        f.seek(0)
        lines = [json.loads(line) for line in f]
        assert [(v["status"], v["method"], v["path"]) for v in lines] == [(408, "POST", "/v1/completions"), (400, "GET", "/\\x01"), (400, "-", "-")], lines


def names_models_as_vllm_does(model):
    """--metrics-alias vllm: each figure has the label that dashboards select by. What is not implemented is not tried again."""
    with Server(model, "--metrics-alias", "vllm", "--served-name", 'a "b"') as s:
        s.json("/v1/completions", {"prompt": "a", "max_tokens": 2})
        lines = [line for line in s.ask("GET", "/metrics")[2].decode().split("\n") if line.startswith("vllm:")]
        assert len(lines) > 40 and all('{model_name="a \\"b\\""' in line for line in lines), lines
        assert 'vllm:generation_tokens_total{model_name="a \\"b\\""} 2' in lines
        assert any(line.startswith('vllm:time_to_first_token_seconds_bucket{model_name="a \\"b\\"",le="') for line in lines)
        assert s.ask("POST", "/v1/completions", {}, {"Transfer-Encoding": "gzip"})[1]["x-should-retry"] == "false"


FRONT = (asks_for_keys, keys_see_their_own_requests, finished_requests_do_not_run, numbers_out_of_range_name_their_field, ends_slow_heads, ends_slow_bodies, names_models_as_vllm_does)
