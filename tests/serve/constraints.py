"""Properties of answers that a request constrains: by a schema, a regular expression, a grammar or a list of texts."""
import concurrent.futures
import json
import os
import pathlib
import re
import time

from running import Server

PLACE = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "degrees": {"type": "integer", "minimum": -40, "maximum": 50}}, "required": ["city", "degrees"]}
CHAT = {"messages": [{"role": "user", "content": "Where?"}]}


def texts(answer):
    return [c["message"]["content"] if "message" in c else c["text"] for c in answer["choices"]]


def is_place(text):
    v = json.loads(text)
    return v["city"] in ("Rome", "Oslo") and -40 <= v["degrees"] <= 50 and len(v) == 2


CONSTRAINTS = (
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}}, is_place),
    ({"guided_json": PLACE}, is_place),
    ({"json_schema": PLACE}, is_place),
    ({"structured_outputs": {"json": PLACE, "regex": None, "disable_any_whitespace": False}}, is_place),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, lambda t: t in ("yes", "no")),
    ({"structured_outputs": {"regex": "[a-c]{3}"}}, lambda t: re.fullmatch("[a-c]{3}", t)),
    ({"structured_outputs": {"grammar": 'root ::= "(" [xy] ")"'}}, lambda t: re.fullmatch(r"\([xy]\)", t)),
    ({"grammar": 'root ::= "(" [xy] ")"'}, lambda t: re.fullmatch(r"\([xy]\)", t)),
    ({"guided_json": json.dumps(PLACE)}, is_place),
    ({"response_format": {"type": "json_object", "schema": PLACE}}, is_place),
    ({"guided_regex": "[a-c]{3}-\\d{2}"}, lambda t: re.fullmatch("[a-c]{3}-[0-9]{2}", t)),
    ({"guided_choice": ["yes", "no", "maybe not"]}, lambda t: t in ("yes", "no", "maybe not")),
    ({"guided_grammar": 'root ::= "(" inner ")"\ninner ::= [xy]{1,3} | "(" [xy] ")"'}, lambda t: re.fullmatch(r"\(([xy]{1,3}|\([xy]\))\)", t)),
)


def constrained_answers_are_right(model):
    """In every dialect, with n, streams, any seed, penalties and biases against the grammar, and with --ignore-eos; ended, or cut by max_tokens."""
    with Server(model, "--chat-format", "llama2") as s:
        for fields, right in CONSTRAINTS:
            for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "Where?"})):
                for more in ({}, {"n": 3, "seed": 5}, {"ignore_eos": True, "min_tokens": 5}, {"logit_bias": {str(i): 100 for i in range(3, 60)}, "repetition_penalty": 1.5}):
                    answer = s.json(path, {**body, "max_tokens": 300, "temperature": 1, "seed": 1, **fields, **more})
                    for choice, text in zip(answer["choices"], texts(answer)):
                        assert choice["finish_reason"] == "stop" and right(text), (fields, more, choice)
        (cut,) = s.json("/v1/chat/completions", {**CHAT, "max_tokens": 3, "temperature": 1, "seed": 1, "guided_json": PLACE})["choices"]
        assert cut["finish_reason"] == "length" and cut["message"]["content"].startswith("{"), cut
        (any_object,) = texts(s.json("/v1/chat/completions", {**CHAT, "max_tokens": 400, "temperature": 0, "response_format": {"type": "json_object"}, "logit_bias": {}}))
        assert any_object.startswith("{")


def constrained_answers_are_the_same_among_others(model):
    """The same request and seed give the same tokens alone and among 32, with and without grammars beside it."""
    def body(i):
        fields, _ = CONSTRAINTS[i % len(CONSTRAINTS)]
        return {"prompt": f"Number {i}: ", "max_tokens": 40, "temperature": 1, "seed": i, "return_token_ids": True, **(fields if i % 5 else {})}
    ids = lambda answer: answer["choices"][0]["token_ids"]
    with Server(model, "--max-streams", "8") as s:
        alone = [ids(s.json("/v1/completions", body(i))) for i in range(32)]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            together = list(pool.map(lambda i: ids(s.json("/v1/completions", body(i))), range(32)))
        assert alone == together


def wrong_constraints_are_refused(model):
    """With one sentence that names the field; and nothing is slower or wrong after them."""
    with Server(model, "--chat-format", "llama2") as s:
        for fields, part in (
                ({"response_format": {"type": "sound"}}, "sound"), ({"response_format": "text"}, "found a string"), ({"response_format": {"type": "json_schema"}}, "no schema"),
                ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}}, "not cannot be enforced"),
                ({"guided_json": {"type": "text"}}, "found text"), ({"guided_json": "{"}, "schema"), ({"guided_json": 1}, "found an integer"), ({"guided_json": {"$ref": "#"}}, "refers to itself"),
                ({"guided_regex": "(a"}, "without its )"), ({"guided_regex": "(?=a)"}, "look-ahead"), ({"guided_regex": "(" * 4000 + ")" * 4000}, "expected at most"), ({"guided_regex": ["a"]}, "expected a string"),
                ({"guided_regex": "(a{2000}){2000}"}, "too large"), ({"guided_choice": []}, "found 0"), ({"guided_choice": [1]}, "found an integer"), ({"guided_choice": ["a"] * 1001}, "1001"),
                ({"guided_grammar": "root ::= root"}, "left-recursive"), ({"grammar": "root ::= root"}, "left-recursive"), ({"grammar": 1}, "expected a string"),
                ({"structured_outputs": {}}, "found 0 of"), ({"structured_outputs": {"json": {}, "regex": "a"}}, "found 2 of"), ({"structured_outputs": {"structural_tag": "a"}}, "structural_tag"),
                ({"structured_outputs": {"json": {}, "whitespace_pattern": " "}}, "whitespace_pattern"), ({"structured_outputs": []}, "found 0 of"), ({"structured_outputs": {"regex": 1}}, "expected a string"),
                ({"json_schema": {"type": "text"}}, "found text"), ({"json_schema": 1}, "found an integer"),
                ({"guided_grammar": ""}, "no rule named root"), ({"guided_json": {"enum": list(range(1001))}}, "at most 1000"),
                ({"guided_json": {"properties": {str(i): {} for i in range(5001)}}}, "5000 properties"), ({"guided_grammar": "root ::= " + "(" * 60000 + '"a"' + ")" * 60000}, "nested")):
            began = time.monotonic()
            error = s.json("/v1/chat/completions", {**CHAT, "max_tokens": 1, **fields}, 400)["error"]
            assert error["param"] == next(iter(fields)) and part in error["message"], (fields, error)
            assert time.monotonic() - began < 20
        two = s.json("/v1/chat/completions", {**CHAT, "guided_regex": "a", "guided_choice": ["a"]}, 400)["error"]
        assert "give one of them" in two["message"]
        s.json("/v1/completions", {"prompt": "a", "max_tokens": 1, "guided_json": None, "guided_regex": None, "response_format": {"type": "text"}, "guided_choice": ["a"]})
        for _ in range(2):
            assert texts(s.json("/v1/completions", {"prompt": "a", "max_tokens": 20, "guided_regex": "ok"})) == ["ok"]
    with Server(model, "--lenient") as s:
        status, headers, _ = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "guided_json": {"properties": {"a\r\nb": {"not": {}}}, "uniqueItems": True}})
        assert status == 200 and "#/uniqueItems" in headers["x-pesc-ignored"] and "\n" not in headers["x-pesc-ignored"], headers


def hostile_constraints_cost_little(model):
    """Each class is answered or refused with one sentence, within 2 s of CPU, and the next request is answered as ever."""
    nested, names = 10000, [f"p{i}" for i in range(2000)]
    classes = {
        "schema inside schema": {"guided_json": '{"items":' * nested + "{}" + "}" * nested}, "groups inside groups": {"guided_regex": "(" * 2000 + ")" * 2000},
        "a chain of rules": {"guided_grammar": "\n".join(["root ::= r0"] + [f"r{i} ::= r{i + 1}" for i in range(40000)] + ['r40000 ::= "a"'])},
        "references in a circle": {"guided_json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}},
        "a large enum": {"guided_json": {"enum": list(range(100000))}}, "a long text": {"guided_json": {"type": "string", "maxLength": 10**9}},
        "repetitions of repetitions": {"guided_regex": "(a{1000}){1000}"}, "bounds beyond 64 bits": {"guided_json": {"type": "integer", "minimum": 2**63 - 1, "maximum": 2**64}},
        "large bounds": {"guided_json": {"type": "number", "minimum": -1e308, "maximum": 1e308}}, "bounds that leave nothing": {"guided_json": {"type": "integer", "minimum": 3, "maximum": 2}},
        "an exponential pattern": {"guided_regex": "(a+)+b"}, "many of them": {"guided_regex": "((a|a)*)*" * 20 + "b"}, "an exponential automaton": {"guided_regex": ".*a.{300}b.*c.{300}d"},
        "patterns together": {"guided_json": {"allOf": [{"type": "string", "pattern": "a.{%d}b" % i} for i in range(1, 60)]}},
        "alternatives together": {"guided_json": {"allOf": [{"anyOf": [{"properties": {f"k{i}": {"const": j}}} for j in range(8)]} for i in range(8)]}},
        "many properties": {"guided_json": {"type": "object", "properties": {n: {"type": "string", "pattern": "^(a|b)*c$"} for n in names}}},
        "an ambiguous grammar": {"guided_grammar": 'root ::= s\ns ::= "a" s s | "a" s | "a"?'}, "texts that must not occur": {"guided_grammar": "root ::= %not (" + " | ".join(f'"{"a" * i}"' for i in range(1, 400)) + ")"},
        "a surrogate": {"guided_regex": "\\ud800"}, "a NUL": {"guided_regex": "a\0b"}, "a NUL in a grammar": {"grammar": 'root ::= "a"\0 | "b"'},
    }
    with Server(model) as s:
        def spent():
            fields = pathlib.Path(f"/proc/{s.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for name, fields in classes.items():
            before = spent()
            status, _, text = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 30, "temperature": 1, "seed": 1, **fields})
            assert status in (200, 400) and spent() - before < 2, (name, status, spent() - before)
            assert status == 200 or json.loads(text)["error"]["param"] == next(iter(fields)), (name, text)
            assert status == 400 or "NUL" not in name, name
        assert texts(s.json("/v1/completions", {"prompt": "a", "max_tokens": 20, "guided_regex": "ok"})) == ["ok"]


CONSTRAINTS_HOLD = (constrained_answers_are_right, constrained_answers_are_the_same_among_others, wrong_constraints_are_refused, hostile_constraints_cost_little)
