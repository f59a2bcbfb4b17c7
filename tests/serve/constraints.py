"""Properties of answers that a request constrains: by a schema, a regular expression, a grammar or a list of texts."""
import concurrent.futures
import json
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


CONSTRAINTS_HOLD = (constrained_answers_are_right, constrained_answers_are_the_same_among_others, wrong_constraints_are_refused)
