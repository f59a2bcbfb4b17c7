#!/usr/bin/env python3
"""Requests that a server must refuse, or accept although they look odd: raw bytes in, status and error code out.

hostile.py MODEL runs them all against `pesc serve MODEL`; after each a valid request must succeed. The model is that of
tests/cli/helper.bash: 266 tokens, a context of 128."""
import json
import sys

from running import Server

HOST = b"Host: localhost\r\n"
MIB = 1 << 20


def head(line, *fields, host=HOST):
    return line.encode() + b"\r\n" + host + b"".join(f.encode("latin-1") + b"\r\n" for f in fields) + b"\r\n"


def post(body, path="/v1/completions", *fields):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(f"POST {path} HTTP/1.1", "Content-Type: application/json", f"Content-Length: {len(data)}", *fields) + data


def completion(**fields):
    return post({"prompt": "hello", "max_tokens": 1, **fields})


def chat(**fields):
    return post({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, **fields}, "/v1/chat/completions")


def chunked(*chunks):
    return head("POST /v1/completions HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked") + b"".join(chunks)


GOOD = b'{"prompt":"hello","max_tokens":1}'
GET = "GET /version HTTP/1.1"
BAD = "bad_request"

# (what, bytes, status, code of the error object; None: there is no error or its code is null)
HEADS = [
    ("a good head", head(GET), 200, None),
    ("HTTP/1.0 without Host", b"GET /version HTTP/1.0\r\n\r\n", 200, None),
    ("HTTP/0.9", b"GET /version\r\n\r\n", 400, BAD),
    ("HTTP/2.0", head("GET /version HTTP/2.0"), 505, BAD),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, BAD),
    ("HTTP/1.2", head("GET /version HTTP/1.2"), 505, BAD),
    ("HTTP/3.0", head("GET /version HTTP/3.0"), 505, BAD),
    ("a version in lower case", head("GET /version http/1.1"), 400, BAD),
    ("a version without a point", head("GET /version HTTP/11"), 400, BAD),
    ("a version with two digits", head("GET /version HTTP/1.10"), 400, BAD),
    ("another protocol", head("GET /version SIP/2.0"), 400, BAD),
    ("two spaces before the target", head("GET  /version HTTP/1.1"), 400, BAD),
    ("two spaces before the version", head("GET /version  HTTP/1.1"), 400, BAD),
    ("a tab in the request line", head("GET\t/version HTTP/1.1"), 400, BAD),
    ("a space at the end of the request line", head("GET /version HTTP/1.1 "), 400, BAD),
    ("a space before the method", head(" GET /version HTTP/1.1"), 400, BAD),
    ("an empty line first", b"\r\n" + head(GET), 400, BAD),
    ("no method", head("/version HTTP/1.1"), 400, BAD),
    ("a method with a colon", head("GE:T /version HTTP/1.1"), 400, BAD),
    ("a method with a NUL", b"G\0ET /version HTTP/1.1\r\n" + HOST + b"\r\n", 400, BAD),
    ("bytes of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, BAD),
    ("bytes above 127 as a method", b"\xff\xfe /version HTTP/1.1\r\n\r\n", 400, BAD),
    ("CONNECT", head("CONNECT localhost:80 HTTP/1.1"), 405, BAD),
    ("CONNECT of a path", head("CONNECT /version HTTP/1.1"), 405, BAD),
    ("a whole URL", head("GET http://localhost/version HTTP/1.1"), 421, BAD),
    ("a URL of another host", head("GET http://example.com/ HTTP/1.1"), 421, BAD),
    ("a target without a slash", head("GET version HTTP/1.1"), 421, BAD),
    ("an asterisk with GET", head("GET * HTTP/1.1"), 421, BAD),
    ("an asterisk with OPTIONS", head("OPTIONS * HTTP/1.1"), 204, None),
    ("a target with a NUL", b"GET /ver\0sion HTTP/1.1\r\n" + HOST + b"\r\n", 400, BAD),
    ("a target with a byte above 127", b"GET /\xc3\xa4 HTTP/1.1\r\n" + HOST + b"\r\n", 400, BAD),
    ("a target with DEL", b"GET /\x7f HTTP/1.1\r\n" + HOST + b"\r\n", 400, BAD),
    ("a request line of 8192 bytes", head("GET /" + "a" * (8192 - 14) + " HTTP/1.1"), 404, "not_found"),
    ("a request line of 8193 bytes", head("GET /" + "a" * (8193 - 14) + " HTTP/1.1"), 414, BAD),
    ("a request line without an end", b"GET /" + b"a" * 9000, 414, BAD),
    ("bare line feeds", b"GET /version HTTP/1.1\nHost: localhost\n\n", 400, BAD),
    ("a bare line feed after a field", b"GET /version HTTP/1.1\r\nHost: localhost\n\r\n", 400, BAD),
    ("a bare line feed at the end", b"GET /version HTTP/1.1\r\nHost: localhost\r\n\n", 400, BAD),
    ("a bare carriage return in a field", head(GET, "A: b\rc"), 400, BAD),
    ("a bare carriage return in the line", b"GET /ver\rsion HTTP/1.1\r\n" + HOST + b"\r\n", 400, BAD),
    ("a folded field", head(GET, "A: b", " c"), 400, BAD),
    ("a field folded with a tab", head(GET, "A: b", "\tc"), 400, BAD),
    ("a folded first field", b"GET /version HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, BAD),
    ("a field without a colon", head(GET, "Accept"), 400, BAD),
    ("a field without a name", head(GET, ": b"), 400, BAD),
    ("a space before the colon", head(GET, "Accept : b"), 400, BAD),
    ("a space in the name", head(GET, "Acc ept: b"), 400, BAD),
    ("a tab before the colon", head(GET, "Accept\t: b"), 400, BAD),
    ("a name with a byte above 127", head(GET, "Acc\xe4pt: b"), 400, BAD),
    ("a name with a parenthesis", head(GET, "A(b): c"), 400, BAD),
    ("a value with a NUL", head(GET, "A: b\0c"), 400, BAD),
    ("a value with an escape", head(GET, "A: b\x1bc"), 400, BAD),
    ("a value with DEL", head(GET, "A: b\x7fc"), 400, BAD),
    ("a value with a tab", head(GET, "A: b\tc"), 200, None),
    ("a value with a byte above 127", head(GET, "A: b\xe4c"), 200, None),
    ("an empty value", head(GET, "A:"), 200, None),
    ("63 fields beside Host", head(GET, *("A: b" for _ in range(63))), 200, None),
    ("64 fields beside Host", head(GET, *("A: b" for _ in range(64))), 431, "headers_too_large"),
    ("1000 fields", head(GET, *("A: b" for _ in range(1000))), 431, "headers_too_large"),
    ("fields of 16 KiB", head(GET, "A: " + "b" * (16384 - len(HOST) - 2 - 5)), 200, None),
    ("fields of 16 KiB and a byte", head(GET, "A: " + "b" * (16385 - len(HOST) - 2 - 5)), 431, "headers_too_large"),
    ("fields without an end", head(GET)[:-2] + b"A: " + b"b" * 20000, 431, "headers_too_large"),
    ("a name of 17 KiB", head(GET, "A" * 17000 + ": b"), 431, "headers_too_large"),
    ("no Host", head(GET, host=b""), 400, BAD),
    ("two Hosts", head(GET, "Host: localhost"), 400, BAD),
    ("another Host", head(GET, host=b"Host: evil.example\r\n"), 421, "host_not_allowed"),
    ("an empty Host", head(GET, host=b"Host:\r\n"), 421, "host_not_allowed"),
    ("a Host that begins as one of ours", head(GET, host=b"Host: localhost.evil.example\r\n"), 421, "host_not_allowed"),
    ("a Host with a port", head(GET, host=b"Host: 127.0.0.1:8080\r\n"), 200, None),
    ("a Host of IPv6 with a port", head(GET, host=b"Host: [::1]:8080\r\n"), 200, None),
    *((f"a Host with more after its port: {v}", head(GET, host=b"Host: 127.0.0.1" + v + b"\r\n"), 421, "host_not_allowed")
      for v in (b":8080,evil", b":8080 evil", b":8080.evil", b",evil", b":80:80", b":0x50", b":8080/")),
    ("a Host with an empty port", head(GET, host=b"Host: localhost:\r\n"), 200, None),
    ("a Host in upper case", head(GET, host=b"Host: LOCALHOST\r\n"), 200, None),
    ("a Host with a user", head(GET, host=b"Host: evil@localhost\r\n"), 421, "host_not_allowed"),
    ("an Expect that is not known", head(GET, "Expect: 200-ok"), 417, BAD),
]

LENGTHS = [
    ("two equal lengths", post(GOOD, "/v1/completions", f"Content-Length: {len(GOOD)}"), 400, BAD),
    ("two different lengths", post(GOOD, "/v1/completions", "Content-Length: 5"), 400, BAD),
    *((f"Content-Length: {v!r}", head("POST /v1/completions HTTP/1.1", "Content-Type: application/json", f"Content-Length: {v}"), 400, BAD)
      for v in ("+5", "0x5", "-2", "5 5", "5,5", "", "5.0", "1e3", "five", "5;", "\x305\xb2", "'5'")),
    ("a length of 4 MiB and a byte", head("POST /v1/completions HTTP/1.1", f"Content-Length: {4 * MIB + 1}"), 413, "body_too_large"),
    ("a length beyond 64 bits", head("POST /v1/completions HTTP/1.1", "Content-Length: 99999999999999999999999"), 413, "body_too_large"),
    ("a length of 2^64 + 5", head("POST /v1/completions HTTP/1.1", "Content-Length: 18446744073709551621"), 413, "body_too_large"),
    ("a length of 2^63", head("POST /v1/completions HTTP/1.1", "Content-Length: 9223372036854775808"), 413, "body_too_large"),
    ("length and chunks", post(GOOD, "/v1/completions", "Transfer-Encoding: chunked"), 400, BAD),
    ("chunks twice", head("POST /v1/completions HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400, BAD),
    ("chunks in HTTP/1.0", head("POST /v1/completions HTTP/1.0", "Transfer-Encoding: chunked"), 400, BAD),
    *((f"Transfer-Encoding: {v}", head("POST /v1/completions HTTP/1.1", f"Transfer-Encoding: {v}"), 501, BAD)
      for v in ("gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;q=1", "")),
    *((f"Content-Encoding: {v}", post(GOOD, "/v1/completions", f"Content-Encoding: {v}"), 415, BAD) for v in ("gzip", "br", "zstd", "deflate")),
    ("Content-Encoding: identity", post(GOOD, "/v1/completions", "Content-Encoding: identity"), 200, None),
    *((f"chunks that are malformed: {c}", chunked(c), 400, BAD) for c in (
        b"x\r\n", b"\r\n", b"5\n" + GOOD, b"5 \r\n" + GOOD, b"-5\r\n" + GOOD, b"5\r\n" + GOOD + b"\r\n", b"5\r\n" + GOOD[:5] + b"\n0\r\n\r\n", b"0\r\nA: b\n\r\n", b"1" + b";" * 2000)),
    ("chunks of more than 4 MiB", chunked(b"400001\r\n"), 413, "body_too_large"),
    ("a chunk beyond 64 bits", chunked(b"10000000000000001\r\n"), 413, "body_too_large"),
    ("fields of 17 KiB after the chunks", chunked(b"0\r\n" + b"A: b\r\n" * 3000), 431, "headers_too_large"),
    ("chunks with an extension and fields after them", chunked(b"%x;a=b\r\n" % len(GOOD), GOOD + b"\r\n0\r\nA: b\r\n\r\n"), 200, None),
    ("good chunks", chunked(b"5\r\n" + GOOD[:5] + b"\r\n", b"%x\r\n" % (len(GOOD) - 5), GOOD[5:] + b"\r\n0\r\n\r\n"), 200, None),
    ("a chunk in capital hex", chunked(b"%X\r\n" % len(GOOD), GOOD + b"\r\n0\r\n\r\n"), 200, None),
    ("Expect: 100-continue", post(GOOD, "/v1/completions", "Expect: 100-continue"), 200, None),
]

PATHS = [
    ("the page", head("GET / HTTP/1.1"), 200, None),
    ("a file of the page", head("GET /page/main.js HTTP/1.1"), 200, None),
    ("POST of the page", head("POST / HTTP/1.1", "Content-Length: 0"), 405, "method_not_allowed"),
    *((f"a file that the page does not have: {p}", head(f"GET {p} HTTP/1.1"), 404, "not_found")
      for p in ("/page/", "/page", "/index.html", "/page/none.js", "/page/../page/main.js", "/page/%2e%2e/main.js", "/page/main.js/", "/page//main.js",
                "/page/MAIN.JS", "/page/main.js%00", "/page/..%2fmain.js")),
    ("an unknown path", head("GET /v2/models HTTP/1.1"), 404, "not_found"),
    ("a path outside", head("GET /../../etc/passwd HTTP/1.1"), 404, "not_found"),
    ("an escaped path outside", head("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1"), 404, "not_found"),
    ("a path with a NUL escape", head("GET /version%00 HTTP/1.1"), 404, "not_found"),
    ("two slashes", head("GET //version HTTP/1.1"), 404, "not_found"),
    ("a slash at the end", head("GET /version/ HTTP/1.1"), 404, "not_found"),
    ("upper case", head("GET /VERSION HTTP/1.1"), 404, "not_found"),
    ("a query", head("GET /version?a=b HTTP/1.1"), 200, None),
    ("a query with escapes", head("GET /version?%00=%ff HTTP/1.1"), 200, None),
    ("a model that is not there", head("GET /v1/models/other HTTP/1.1"), 404, "model_not_found"),
    ("a model with a bad escape", head("GET /v1/models/%zz HTTP/1.1"), 404, "not_found"),
    ("a model with a NUL", head("GET /v1/models/model%00 HTTP/1.1"), 404, "not_found"),
    ("a model with markup", head("GET /v1/models/%3Cscript%3E HTTP/1.1"), 404, "model_not_found"),
    ("a model with bytes that are not UTF-8", head("GET /v1/models/%ff%fe HTTP/1.1"), 404, "model_not_found"),
    ("a model of 1000 bytes", head("GET /v1/models/" + "m" * 1000 + " HTTP/1.1"), 404, "not_found"),
    *((f"{m} of a POST path", head(f"{m} /v1/completions HTTP/1.1"), 405, "method_not_allowed") for m in ("GET", "PUT", "DELETE", "PATCH", "TRACE", "get")),
    *((f"{m} of a GET path", head(f"{m} /v1/models HTTP/1.1", "Content-Length: 0"), 405, "method_not_allowed") for m in ("POST", "PUT", "DELETE", "BREW")),
    ("OPTIONS of a path", head("OPTIONS /v1/models HTTP/1.1"), 204, None),
    ("OPTIONS of an unknown path", head("OPTIONS /x HTTP/1.1"), 404, "not_found"),
    *((f"POST {p}", post({}, p), 400, code) for p, code in (("/v1/responses", None), ("/v1/embeddings", "missing_required_parameter"))),
    *((f"Content-Type: {t}", head("POST /v1/completions HTTP/1.1", *([f"Content-Type: {t}"] if t else []), f"Content-Length: {len(GOOD)}") + GOOD, 415, "not_json")
      for t in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "text/json", "")),
    ("JSON with a charset", head("POST /v1/completions HTTP/1.1", "Content-Type: application/json; charset=utf-8", f"Content-Length: {len(GOOD)}") + GOOD, 200, None),
]

BODIES = [
    ("an empty body", post(b""), 400, None),
    ("not JSON", post(b"hello"), 400, None),
    ("half an object", post(b'{"prompt":'), 400, None),
    ("text after the object", post(GOOD + b"x"), 400, None),
    ("two objects", post(GOOD + GOOD), 400, None),
    *((f"{v.decode()} instead of an object", post(v), 400, None) for v in (b"[]", b"1", b'"a"', b"null", b"true")),
    ("single quotes", post(b"{'prompt':'a'}"), 400, None),
    ("a comment", post(b'{/* */"prompt":"a"}'), 400, None),
    ("a comma at the end", post(b'{"prompt":"a",}'), 400, None),
    ("NaN", post(b'{"prompt":"a","temperature":NaN}'), 400, None),
    ("Infinity", post(b'{"prompt":"a","temperature":Infinity}'), 400, None),
    ("1e999", post(b'{"prompt":"a","temperature":1e999}'), 400, None),
    ("a key twice", post(b'{"prompt":"a","prompt":"b"}'), 400, None),
    ("an invalid byte in a string", post(b'{"prompt":"\xff"}'), 400, None),
    ("half a character", post(b'{"prompt":"\xe2\x82"}'), 400, None),
    ("an overlong form", post(b'{"prompt":"\xc0\xaf"}'), 400, None),
    ("a surrogate in UTF-8", post(b'{"prompt":"\xed\xa0\x80"}'), 400, None),
    ("half a surrogate pair", post(b'{"prompt":"\\ud800"}'), 400, None),
    ("an escaped NUL in a prompt", post(b'{"prompt":"a\\u0000b","max_tokens":1}'), 200, None),
    ("an escaped NUL in a message", post(b'{"messages":[{"role":"user","content":"a\\u0000b"}]}', "/v1/chat/completions"), 400, None),
    ("an escaped NUL in a stop string", post(b'{"prompt":"a","stop":"a\\u0000b"}'), 400, None),
    ("a NUL byte", post(b'{"prompt":"a\0b"}'), 400, None),
    ("a control character in a string", post(b'{"prompt":"a\nb"}'), 400, None),
    ("UTF-16", post('{"prompt":"a"}'.encode("utf-16")), 400, None),
    ("a byte order mark", post(b"\xef\xbb\xbf" + GOOD), 400, None),
    ("nesting of 64", post(b'{"metadata":' + b"[" * 63 + b"]" * 63 + b',"prompt":"a","max_tokens":1}'), 200, None),
    ("nesting of 65", post(b'{"metadata":' + b"[" * 64 + b"]" * 64 + b',"prompt":"a"}'), 400, None),
    ("nesting of 100000", post(b"[" * 100000), 400, None),
    ("nesting of 60000 objects", post(b'{"a":' * 60000), 400, None),
    ("brackets in a string", post(b'{"prompt":"' + b"[" * 100 + b'","max_tokens":1}'), 200, None),
    ("a prompt of 1 MiB and a byte", post({"prompt": "a" * (MIB + 1)}), 400, "string_too_long"),
    ("a message of 1 MiB and a byte", post({"messages": [{"role": "user", "content": "a" * (MIB + 1)}]}, "/v1/chat/completions"), 400, "string_too_long"),
    ("a number beyond 64 bits", post(b'{"prompt":"a","seed":99999999999999999999}'), 400, None),
    ("an unknown field", completion(best_off=1), 400, "unknown_parameter"),
    ("an unknown field with markup", completion(**{"<script>": 1}), 400, "unknown_parameter"),
    ("an empty field name", completion(**{"": 1}), 400, "unknown_parameter"),
    ("a field name of 10000 bytes", completion(**{"a" * 10000: 1}), 400, "unknown_parameter"),
]


def wrong(make, field, *values):
    """The field has none of these values."""
    return [(f"{make.__name__}: {field}: {json.dumps(v)[:60]}", make(**{field: v}), 400, None) for v in values]


def right(make, field, *values):
    return [(f"{make.__name__}: {field}: {json.dumps(v)[:60]}", make(**{field: v}), 200, None) for v in values]


FIELDS = [
    ("no prompt", post({"max_tokens": 1}), 400, "missing_required_parameter"),
    ("no messages", post({"max_tokens": 1}, "/v1/chat/completions"), 400, "missing_required_parameter"),
    ("a prompt that is null", completion(prompt=None), 400, "missing_required_parameter"),
    *wrong(completion, "prompt", 1, True, {}, [], [[]], [1.5], ["a", 1], [[1], "a", 2], [-1], [266], [[1, 266]], [2**31], [2**40], [-2**63], [[[1]]]),
    *right(completion, "prompt", "", [1, 2], [[1], [2, 3]], ["a", "b"], [265]),
    *wrong(completion, "model", 1, [], {}),
    ("another model", completion(model="gpt-4"), 404, "model_not_found"),
    *wrong(completion, "max_tokens", -1, 1.5, "1", [], 2**31, -2**63, True),
    *right(completion, "max_tokens", 0, 1, 2**31 - 1, None),
    *wrong(completion, "temperature", -0.1, 2.1, "1", [], 1e308, -1e308, True),
    *right(completion, "temperature", 0, 2, 1, 0.5, None),
    *wrong(completion, "top_p", 0, -1, 1.1, "1", []),
    *wrong(completion, "top_k", -2, 1.5, 2**31, "1"),
    *right(completion, "top_k", -1, 0, 1, 10**6),
    *wrong(completion, "min_p", -0.1, 1.1, "0"),
    *wrong(completion, "repetition_penalty", 0, -1, 1000, "1"),
    *wrong(completion, "presence_penalty", -2.1, 2.1, "0"),
    *wrong(completion, "frequency_penalty", -2.1, 2.1, []),
    *wrong(completion, "n", 0, -1, 129, 1.5, "1", 2**40),
    *wrong(completion, "best_of", 2, 0, "1"),
    *right(completion, "best_of", 1, None),
    *wrong(completion, "seed", 1.5, "1", [], True),
    *wrong(completion, "seed", 2**64, -2**63 - 1),
    *right(completion, "seed", 0, -1, 2**63 - 1, -2**63, 2**63, 2**64 - 1),
    *wrong(completion, "stop", 1, "", [""], ["a"] * 17, "a" * 257, [1], {}),
    *right(completion, "stop", "a", ["a"] * 16, "a" * 256, [], None),
    *wrong(completion, "stop_token_ids", 1, [-1], [266], ["a"], [1.5]),
    *wrong(completion, "logit_bias", [], {"a": 1}, {"-1": 1}, {"266": 1}, {"1": 101}, {"1": -101}, {"1": "a"}, {" 1": 1}, {"1e1": 1}, {"": 1}),
    *right(completion, "logit_bias", {}, {"1": 100}, {"265": -100}, None),
    *wrong(completion, "logprobs", -1, 21, 1.5, "1", True),
    *right(completion, "logprobs", 0, 20, None),
    *wrong(completion, "echo", 1, "true"),
    *wrong(completion, "stream", 1, "true", []),
    *wrong(completion, "stream_options", {}, {"include_usage": True}),
    *wrong(completion, "min_tokens", -1, 2, 1.5),
    ("suffix", completion(suffix="a"), 400, "unsupported_parameter"),
    *wrong(completion, "response_format", "text", {"type": "json_schema"}, {}),
    *wrong(completion, "guided_regex", "(", 1), *wrong(completion, "guided_grammar", "", "root ::= root"), *wrong(completion, "guided_json", 1, {"type": 1}), *wrong(completion, "guided_choice", [], "a", [1]),
    *right(completion, "response_format", {"type": "text"}, {"type": "json_object"}, None),
    *wrong(completion, "prompt_logprobs", -1, 21, 1.5, "1", True),
    *right(completion, "prompt_logprobs", 0, 20, None),
    ("prompt_logprobs in a stream", completion(prompt_logprobs=1, stream=True), 400, None),
    *wrong(completion, "return_routed_experts", 1, "true", []),
    ("experts of a dense model", completion(return_routed_experts=True), 400, "unsupported_parameter"),
    *wrong(completion, "timings_per_token", 1, "true"),
    *wrong(chat, "chat_template_kwargs", 1, "a", [], {"messages": []}, {"tools": []}, {"add_generation_prompt": True}),
    *right(chat, "chat_template_kwargs", {}, {"a": 1, "b": [{}]}, None),
    *wrong(chat, "tools", 1, {}, "a", [1], [{}], [{"type": "function"}], [{"type": "function", "function": {}}],
           [{"type": "code", "function": {"name": "a"}}], [{"type": "function", "function": {"name": "a"}}] * 129),
    ("tools for a template without them", chat(tools=[{"type": "function", "function": {"name": "a"}}]), 400, "unsupported_parameter"),
    *((f"a message with {k}: {json.dumps(v)}", chat(messages=[{"role": "user", "content": "a", k: v}]), 400, "unknown_parameter")
      for k, v in (("contents", "a"), ("audio", {"id": "a"}), ("function_call", {"name": "a"}), ("refusal", "no"), ("", 1), ("<b>", None))),
    *wrong(chat, "messages", [{"role": "assistant", "tool_calls": 1}], [{"role": "assistant", "tool_calls": [1]}],
           [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "a", "arguments": "{"}}]}]),
    *right(chat, "messages", [{"role": "user", "content": "a", "name": "b", "refusal": None, "annotations": []}]),
    *wrong(chat, "messages", [], "a", {}, [1], ["a"], [{}], [{"role": 1}], [{"role": "narrator", "content": "a"}],
           [{"role": "user", "content": 1}], [{"role": "user", "content": {}}], [{"role": "user", "content": [1]}],
           [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://example.com"}}]}],
           [{"role": "user", "content": [{"type": "text"}]}], [{"content": "a"}]),
    *right(chat, "messages", [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
           [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]),
    *wrong(chat, "logprobs", 1, "true"),
    *wrong(chat, "top_logprobs", 1, 21, -1),
    ("a prompt in a chat", chat(prompt="a"), 400, "unknown_parameter"),
    ("an echo in a chat", chat(echo=True), 400, "unknown_parameter"),
    *((f"chat: {f}", chat(**{f: v}), 400, "unsupported_parameter") for f, v in (
        ("functions", [{}]), ("function_call", "auto"), ("audio", {}), ("modalities", ["audio"]),
        ("prediction", {}), ("web_search_options", {}), ("tool_choice", "required"))),
    *right(chat, "tools", [], None),
    ("both kinds of ends", chat(continue_final_message=True, add_generation_prompt=True), 400, None),
    ("a conversation longer than the context", chat(messages=[{"role": "user", "content": "x" * 500}]), 400, "context_length_exceeded"),
    ("a prompt longer than the context", completion(prompt=[1] * 128), 400, "context_length_exceeded"),
    ("a prompt of the context less one", completion(prompt=[1] * 127), 200, None),
    ("tokens that are no list", post({"tokens": "a"}, "/detokenize"), 400, None),
    ("tokens outside the vocabulary", post({"tokens": [266]}, "/detokenize"), 400, None),
    ("no tokens", post({}, "/detokenize"), 400, "missing_required_parameter"),
    ("nothing to tokenize", post({}, "/tokenize"), 400, None),
    ("two things to tokenize", post({"prompt": "a", "messages": []}, "/tokenize"), 400, None),
    ("a number to tokenize", post({"prompt": 1}, "/tokenize"), 400, None),
    ("no template", post({}, "/apply-template"), 400, "missing_required_parameter"),
]

TABLE = [((request,), what, status, code) for what, request, status, code in HEADS + LENGTHS + PATHS + BODIES + FIELDS]
# a later request of a connection is read as strictly as the first
TABLE += [((head(GET), request), f"after another request: {what}", status, code) for what, request, status, code in HEADS + LENGTHS]


def error_of(answer):
    """(status, code) of an answer; the four keys of an error object are checked."""
    while answer.startswith(b"HTTP/1.1 100"):
        answer = answer.partition(b"\r\n\r\n")[2]
    top, _, body = answer.partition(b"\r\n\r\n")
    status = int(top.split()[1]) if top.startswith(b"HTTP/1.") else None
    if status is None or status < 400:
        return status, None
    error = json.loads(body.decode("utf-8"))["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and isinstance(error["type"], str), error
    assert error["code"] is None or isinstance(error["code"], str)
    return status, error["code"]


def main():
    failed = 0
    with Server(sys.argv[1]) as s:
        for requests, what, status, code in TABLE:
            answer = s.raw(*requests)
            try:
                got = error_of(answer)
            except Exception as e:
                got = (repr(e), answer[:300])
            if got != (status, code):
                failed += 1
                print(f"{what}: found {got}, expected {(status, code)}")
            if s.ask("GET", "/version")[0] != 200:
                raise SystemExit(f"{what}: the next request fails")
    print(f"{len(TABLE) - failed} of {len(TABLE)} requests are answered as expected")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
