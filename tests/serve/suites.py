#!/usr/bin/env python3
"""What the tests of llama.cpp's and vLLM's servers expect of any server, as tables: suites.py MODEL runs them all.

Each row is a request and a condition on its answer; the conditions are written for a model of any quality, so none of them knows a text."""
import json
import sys

from running import Server

PROMPT = "Once upon a time"
IDS = [5, 6, 7, 8, 9]
CHAT = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "What is the best book?"}]
TOOL = {"type": "function", "function": {"name": "look_up", "description": "", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}
COMPLETION, CHATS = "/v1/completions", "/v1/chat/completions"


def completion(**fields):
    return COMPLETION, {"prompt": PROMPT, "max_tokens": 5, "temperature": 0, **fields}


def by_ids(**fields):
    return completion(**{"prompt": IDS, "ignore_eos": True, **fields})


def chat(**fields):
    return CHATS, {"messages": CHAT, "max_tokens": 5, "temperature": 0, "ignore_eos": True, **fields}


def native(**fields):
    return "/completion", {"prompt": IDS, "n_predict": 8, "temperature": 0, "ignore_eos": True, **fields}


def first(a):
    return a["choices"][0]


def counts(usage):
    return usage["prompt_tokens"] > 0 and usage["completion_tokens"] > 0 and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


# (what, (path, body; None: GET), condition on the answer)
ANSWERS = [
    ("health", ("/health", None), lambda a: a == {"status": "ok"}),
    ("models", ("/v1/models", None), lambda a: a["object"] == "list" and [(m["object"], m["root"], m["parent"]) for m in a["data"]] == [("model", m["id"], None) for m in a["data"]]),
    ("models without a prefix", ("/models", None), lambda a: len(a["data"]) == 1 and a["data"][0]["max_model_len"] > 0),
    ("version", ("/version", None), lambda a: list(a) == ["version"] and a["version"]),
    ("requests", ("/v1/requests", None), lambda a: a == {"object": "list", "data": []}),
    ("slots", ("/slots", None), lambda a: [(t["id"], t["is_processing"]) for t in a] == [(i, False) for i in range(64)] and all(t["n_ctx"] > 0 for t in a)),
    ("props", ("/props", None), lambda a: a["default_generation_settings"]["n_ctx"] > 0 and a["default_generation_settings"]["params"]["seed"] == -1 and a["total_slots"] == 64 and a["build_info"]),
    ("llama.cpp's completion", native(), lambda a: a["stop"] is True and a["stop_type"] == "limit" and a["tokens_predicted"] == a["timings"]["predicted_n"] == 8 and a["truncated"] is False
     and type(a["has_new_line"]) is bool and type(a["content"]) is str and a["tokens"] == [] and a["tokens_evaluated"] == len(IDS)),
    ("llama.cpp's completion of a text", native(prompt=PROMPT, ignore_eos=False), lambda a: a["prompt"].endswith(PROMPT) and a["stop_type"] in ("eos", "limit") and a["stopping_word"] == ""),
    ("n_predict -1 fills the context", native(n_predict=-1, temperature=1, seed=1), lambda a: a["truncated"] and a["tokens_predicted"] + len(IDS) == a["generation_settings"]["n_predict"] + len(IDS)),
    ("settings of llama.cpp's completion", native(seed=42, top_k=3, stop=["x"], n_probs=2),
     lambda a: (g := a["generation_settings"])["n_predict"] == 8 and g["seed"] == 42 and g["top_k"] == 3 and g["stop"] == ["x"] and g["n_probs"] == 2 and g["min_p"] == 0 and g["temperature"] == 0),
    ("several prompts of llama.cpp's completion", native(prompt=[IDS, PROMPT]), lambda a: [c["index"] for c in a] == [0, 1] and a[1]["prompt"].endswith(PROMPT)),
    ("cache_prompt false", native(cache_prompt=False, id_slot=0), lambda a: a["tokens_cached"] == a["timings"]["cache_n"] == 0 and a["timings"]["prompt_n"] == len(IDS)),
    ("return_tokens", native(return_tokens=True), lambda a: len(a["tokens"]) == 8),
    ("n_probs", native(n_probs=10), lambda a: len(a["completion_probabilities"]) == 8 and all(
        type(t["id"]) is int and type(t["token"]) is str and t["logprob"] <= 0 and type(t["bytes"]) is list and len(t["top_logprobs"]) == 10 and all("id" in u for u in t["top_logprobs"])
        for t in a["completion_probabilities"])),
    ("no n_probs", native(), lambda a: "completion_probabilities" not in a),
    ("one completion", completion(), lambda a: a["id"].startswith("cmpl-") and a["object"] == "text_completion" and len(a["choices"]) == 1 and counts(a["usage"])),
    ("a completion of ids", by_ids(), lambda a: first(a)["finish_reason"] == "length" and a["usage"]["completion_tokens"] == 5 and a["usage"]["prompt_tokens"] == 5),
    ("the build is named", completion(), lambda a: a["system_fingerprint"].startswith("b")),
    ("a completion has null where nothing was asked", by_ids(), lambda a: first(a)["logprobs"] is first(a)["prompt_logprobs"] is first(a)["token_ids"] is None),
    ("a model that is null", completion(model=None), lambda a: a["model"]),
    ("logprobs null", by_ids(logprobs=None), lambda a: first(a)["logprobs"] is None),
    ("logprobs 0", by_ids(logprobs=0), lambda a: [len(t) for t in first(a)["logprobs"]["top_logprobs"]] == [1] * 5),
    ("logprobs 5", by_ids(logprobs=5), lambda a: all(5 <= len(t) <= 6 for t in first(a)["logprobs"]["top_logprobs"]) and all(v <= 0 for v in first(a)["logprobs"]["token_logprobs"])),
    ("prompt_logprobs of two prompts", completion(prompt=["A robot may not", "My name is"], prompt_logprobs=1), lambda a: all(len(c["prompt_logprobs"]) > 1 for c in a["choices"])),
    ("prompt_logprobs 0", completion(prompt_logprobs=0), lambda a: first(a)["prompt_logprobs"][0] is None and all(len(p) == 1 for p in first(a)["prompt_logprobs"][1:])),
    ("three choices", completion(n=3, temperature=1, seed=42, max_tokens=40, logprobs=0, ignore_eos=True), lambda a: [c["index"] for c in a["choices"]] == [0, 1, 2] and len({c["text"] for c in a["choices"]}) == 3),
    ("two prompts of one text", completion(prompt=[PROMPT] * 2), lambda a: a["choices"][0]["text"] == a["choices"][1]["text"]),
    ("two prompts of ids", by_ids(prompt=[IDS] * 2), lambda a: a["choices"][0]["text"] == a["choices"][1]["text"] and [c["index"] for c in a["choices"]] == [0, 1]),
    ("choices of prompts in order", completion(prompt=["a", "b"], n=2, echo=True), lambda a: [c["text"][0] for c in a["choices"]] == ["a", "a", "b", "b"]),
    *((f"an echo with logprobs {k}", completion(echo=True, logprobs=k),
       lambda a, k=k: first(a)["text"].startswith(PROMPT) and first(a)["logprobs"]["token_logprobs"][0] is first(a)["logprobs"]["top_logprobs"][0] is None
       and all(max(k, 1) <= len(t) <= k + 1 for t in first(a)["logprobs"]["top_logprobs"][1:])) for k in (0, 1)),
    ("an echo without logprobs", completion(echo=True), lambda a: first(a)["text"].startswith(PROMPT)),
    ("an echo of one token", completion(prompt="a", echo=True, max_tokens=1, logprobs=1), lambda a: len({len(v) for v in first(a)["logprobs"].values()}) == 1),
    ("ids of tokens", completion(return_token_ids=True), lambda a: first(a)["prompt_token_ids"] and len(first(a)["token_ids"]) == a["usage"]["completion_tokens"]),
    ("ids of tokens, of the echo and of logprobs", completion(return_token_ids=True, return_tokens_as_token_ids=True, echo=True, logprobs=1, prompt_logprobs=1),
     lambda a: first(a)["logprobs"]["tokens"] == [f"token_id:{i}" for i in first(a)["prompt_token_ids"] + first(a)["token_ids"]]),
    ("stop_token_ids", by_ids(stop_token_ids=list(range(3, 200))), lambda a: first(a)["finish_reason"] in ("stop", "length")),
    ("min_tokens", completion(min_tokens=5), lambda a: a["usage"]["completion_tokens"] == 5),
    ("a chat", chat(), lambda a: a["id"].startswith("chatcmpl-") and a["object"] == "chat.completion" and first(a)["message"]["role"] == "assistant" and counts(a["usage"])),
    ("a chat at /chat/completions", ("/chat/completions", chat()[1]), lambda a: a["object"] == "chat.completion"),
    ("a chat has null where nothing was asked", chat(), lambda a: first(a)["logprobs"] is a["prompt_logprobs"] is a["prompt_token_ids"] is None),
    ("max_completion_tokens", chat(max_tokens=None, max_completion_tokens=3), lambda a: a["usage"]["completion_tokens"] == 3 and first(a)["finish_reason"] == "length"),
    ("a chat with logprobs false", chat(logprobs=False), lambda a: first(a)["logprobs"] is None),
    *((f"a chat with top_logprobs {k}", chat(logprobs=True, top_logprobs=k),
       lambda a, k=k: [len(t["top_logprobs"]) for t in first(a)["logprobs"]["content"]] == [k] * 5) for k in (0, 5, 20)),
    ("logprobs of a chat spell its text", chat(logprobs=True, top_logprobs=2, max_tokens=12),
     lambda a: "".join(t["token"] for t in first(a)["logprobs"]["content"]) == first(a)["message"]["content"] and all(t["logprob"] <= 0 and t["bytes"] for t in first(a)["logprobs"]["content"])),
    *((f"a chat with prompt_logprobs {k}", chat(prompt_logprobs=k), lambda a, k=k: all(max(k, 1) <= len(p) <= k + 1 for p in a["prompt_logprobs"][1:])) for k in (0, 1, 2)),
    ("parts of a message", chat(messages=[{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " it"}]}]), lambda a: first(a)["message"]["content"] is not None),
    ("several turns", chat(messages=[*CHAT, {"role": "assistant", "content": "None"}, {"role": "user", "content": "Why?"}]), lambda a: counts(a["usage"])),
    ("two choices of a chat", chat(n=2, temperature=0.7, seed=42), lambda a: [c["index"] for c in a["choices"]] == [0, 1]),
    ("ids of a chat", chat(return_token_ids=True), lambda a: a["prompt_token_ids"] and len(first(a)["token_ids"]) == 5),
    ("response_format text", chat(response_format={"type": "text"}), lambda a: first(a)["message"]["content"] is not None),
    ("tools that are empty", chat(tools=[], tool_choice=None), lambda a: "tool_calls" not in first(a)["message"]),
    ("logit_bias", chat(logit_bias={"5": -100, "6": 1.5}), lambda a: first(a)["message"]["content"] is not None),
    ("fields that clients add", chat(user="u", metadata={"a": "b"}, service_tier="auto", safety_identifier="x", store=False, parallel_tool_calls=True), lambda a: counts(a["usage"])),
    ("null for every optional field", chat(**dict.fromkeys(
        ("model", "top_p", "top_k", "min_p", "n", "seed", "stop", "logit_bias", "logprobs", "top_logprobs", "stream", "stream_options", "response_format", "tools", "tool_choice",
         "presence_penalty", "frequency_penalty", "functions", "function_call", "audio", "modalities", "prediction", "store", "user", "metadata", "service_tier"))),
     lambda a: counts(a["usage"])),
    ("tokenize prompt", ("/tokenize", {"prompt": PROMPT}), lambda a: a["count"] == len(a["tokens"]) > 0 and a["max_model_len"] > 0 and a["token_strs"] is None),
    ("tokenize with strings", ("/tokenize", {"prompt": PROMPT, "return_token_strs": True}), lambda a: len(a["token_strs"]) == a["count"] and all(a["token_strs"])),
    ("tokenize with pieces", ("/tokenize", {"content": "x \u5abd \U0001f917", "with_pieces": True}), lambda a: all(t["id"] >= 0 and len(t["piece"]) > 0 for t in a["tokens"])),
    ("tokenize messages", ("/tokenize", {"messages": CHAT, "add_generation_prompt": False}), lambda a: a["count"] > 5),
    ("tokenizer_info", ("/tokenizer_info", None), lambda a: a["tokenizer_class"] and a["model_max_length"] > 0),
    ("apply-template", ("/apply-template", {"messages": CHAT, "tools": None}), lambda a: CHAT[1]["content"] in a["prompt"]),
]

# (what, (path, body), condition on the list of events)
STREAMS = [
    ("only the last event of a completion has a finish_reason, and a text", by_ids(), lambda e: [c["choices"][0]["finish_reason"] for c in e] == [None] * (len(e) - 1) + ["length"] and e[-1]["choices"][0]["text"]),
    ("one choice an event", completion(n=3, temperature=1, seed=1), lambda e: all(len(c["choices"]) == 1 for c in e) and sum(c["choices"][0]["finish_reason"] is not None for c in e) == 3),
    ("no usage without include_usage", completion(stream_options={"include_usage": False, "continuous_usage_stats": True}), lambda e: all(c.get("usage") is None for c in e)),
    ("usage at the end", completion(stream_options={"include_usage": True, "continuous_usage_stats": False}), lambda e: all(c["usage"] is None for c in e[:-1]) and e[-1]["choices"] == [] and counts(e[-1]["usage"])),
    ("usage in every event", by_ids(stream_options={"include_usage": True, "continuous_usage_stats": True}), lambda e: all(counts(c["usage"]) for c in e) and e[-1]["choices"] == []),
    ("usage of a chat grows", chat(min_tokens=5, stream_options={"include_usage": True, "continuous_usage_stats": True}),
     lambda e: (u := [c["usage"]["completion_tokens"] for c in e])[0] == 0 and u == sorted(u) and u[-1] == 5 and all(a < b for a, b in zip(u[:-3], u[1:-2]))),
    ("empty stream_options", completion(stream_options={}), lambda e: all(c.get("usage") is None for c in e)),
    ("ids of a completion", by_ids(return_token_ids=True, return_tokens_as_token_ids=True, logprobs=1),
     lambda e: e[0]["choices"][0]["prompt_token_ids"] == IDS and [f"token_id:{i}" for c in e for i in c["choices"][0]["token_ids"]] == [t for c in e for t in c["choices"][0]["logprobs"]["tokens"]]),
    ("ids of a chat", chat(return_token_ids=True), lambda e: e[0]["prompt_token_ids"] and all("prompt_token_ids" not in c for c in e[1:]) and sum(len(c["choices"][0].get("token_ids", [])) for c in e) == 5),
    ("the role, and nothing else, comes first", chat(), lambda e: e[0]["choices"][0]["delta"] == {"role": "assistant", "content": None} and all("role" not in c["choices"][0]["delta"] for c in e[1:])),
    ("the end of a chat has no content", chat(), lambda e: e[-1]["choices"][0]["delta"] == {} and e[-1]["choices"][0]["finish_reason"] == "length"),
    ("one id, one model and one time", chat(), lambda e: len({(c["id"], c["model"], c["created"], c["object"], c["system_fingerprint"]) for c in e}) == 1),
    ("logprobs of a chat spell its text", chat(logprobs=True, top_logprobs=10),
     lambda e: "".join(t["token"] for c in e if c["choices"][0]["logprobs"] for t in c["choices"][0]["logprobs"]["content"]) == "".join(c["choices"][0]["delta"].get("content") or "" for c in e)),
    ("times come with tokens", chat(timings_per_token=True, stream_options={"include_usage": True}), lambda e: "timings" not in e[0] and e[-1]["timings"]["predicted_n"] == 5),
]

# (what, (path, body), status, parts of the message)
REFUSALS = [
    ("another model", completion(model="none-such"), 404, ["none-such", "does not exist"]),
    ("another model at /v1/models", ("/v1/models/none-such", None), 404, ["none-such", "does not exist"]),
    ("a token outside the vocabulary", completion(prompt=[999999]), 400, ["out of vocabulary", "999999"]),
    ("a negative token", completion(prompt=[[-1]]), 400, ["-1"]),
    ("no prompt", completion(prompt=None), 400, ["prompt"]),
    ("no prompts", completion(prompt=[]), 400, ["prompt"]),
    ("a long prompt", completion(prompt=[1] * 100000), 400, ["maximum context length", "exceeds the available context size", "100000"]),
    ("a long prompt in a stream", completion(prompt=[1] * 100000, stream=True), 400, ["maximum context length"]),
    *((f"logprobs {k}", completion(logprobs=k, stream=k == 30), 400, ["logprobs"]) for k in (21, 30, -1)),
    *((f"top_logprobs {k}", chat(logprobs=True, top_logprobs=k, stream=k == 21), 400, ["top_logprobs"]) for k in (21, 30, -1)),
    ("top_logprobs without logprobs", chat(top_logprobs=2), 400, ["logprobs"]),
    ("prompt_logprobs -1", completion(prompt_logprobs=-1), 400, ["prompt_logprobs"]),
    *((f"stream_options {o} without a stream", completion(stream_options=o), 400, ["stream_options"])
      for o in ({"include_usage": None}, {"include_usage": True}, {"continuous_usage_stats": None}, {"continuous_usage_stats": True})),
    ("a grammar", completion(structured_outputs={"regex": "[.*"}), 400, ["structured_outputs"]),
    ("a schema", completion(response_format={"type": "json_schema"}), 400, ["response_format"]),
    ("a format that is not known", chat(response_format={"type": "sound"}), 400, ["response_format"]),
    *((f"the seed {v}", chat(seed=v), 400, ["seed"]) for v in (2**64, -2**63 - 1)),
    ("a key of logit_bias", chat(logit_bias={"not_a_token_id": 50}), 400, ["logit_bias", "not_a_token_id"]),
    ("a value of logit_bias", chat(logit_bias={"1": "x"}), 400, ["logit_bias", "1"]),
    ("an empty cache_salt", chat(cache_salt=""), 400, ["cache_salt"]),
    ("a forced tool", chat(tools=[TOOL], tool_choice="required"), 400, ["tool"]),
    ("an image", chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file://x"}}]}]), 400, ["text"]),
    ("an unknown field", chat(none_such=1), 400, ["none_such"]),
    ("a field of another completion", native(max_completion_tokens=1), 400, ["max_completion_tokens"]),
    ("n_probs 21", native(n_probs=21), 400, ["n_probs"]),
    ("n_predict -2", native(n_predict=-2), 400, ["n_predict"]),
    ("llama.cpp's completion without a prompt", native(prompt=None), 400, ["prompt"]),
    ("a path that is not offered", ("/infill", {}), 404, ["/infill", "/v1/completions"]),
    *((f"messages: {m}", chat(messages=m), 400, []) for m in (None, "string", [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}], [{"role": "system", "content": "test"}, {}])),
    *((f"the body {json.dumps(b)}", (CHATS, b), 400, []) for b in ("this is not an object", ["not", "an", "object"], 42, None)),
]


def of_vocabulary(n):
    """The same of ids at the end of a vocabulary of n tokens."""
    over = [str(n + 1), str(n)]
    return [("the largest id in logit_bias", chat(logit_bias={str(n - 1): 1.0}), 200, []),
            ("an id of logit_bias", chat(logit_bias={over[0]: 1}), 400, over),
            ("an id of stop_token_ids", chat(stop_token_ids=[n + 1]), 400, over)]


def holds(condition, value):
    try:
        return bool(condition(value))
    except (KeyError, IndexError, TypeError, AttributeError) as e:
        print(f"  {e!r}")
        return False


def native_streams(s):
    """The events of llama.cpp's completion add up to its whole answer, and end without [DONE]."""
    path, body = native(n_probs=3, n_predict=20)
    whole = s.json(path, {**body, "return_tokens": True})
    status, headers, text = s.ask("POST", path, {**body, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    events = [json.loads(b.removeprefix("data: ")) for b in text.decode().split("\n\n") if b]
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True], text
    assert "".join(e["content"] for e in events) == whole["content"]
    assert [t for e in events for t in e["tokens"]] == whole["tokens"] and all(e["tokens"] for e in events[:-1])
    assert [p for e in events for p in e.get("completion_probabilities", [])] == whole["completion_probabilities"]
    assert events[-1]["stop_type"] == "limit" and events[-1]["generation_settings"]["n_predict"] == 20
    word = whole["content"][3:6]
    ended = s.json(path, {**body, "stop": [word]})
    assert (ended["stop_type"], ended["stopping_word"]) == ("word", word) and whole["content"].startswith(ended["content"]), ended
    a, b, c = (s.json(path, {**body, "temperature": 1, "n_predict": 30, "seed": seed})["content"] for seed in (1, 1, 2))
    assert a == b != c
    seeds = {s.json(path, {**body, "seed": -1})["generation_settings"]["seed"] for _ in range(3)}
    assert len(seeds) == 3, seeds


def refused(s, path, body, status, parts):
    get = body is None and path != CHATS
    got, _, text = s.ask("GET" if get else "POST", path, None if get else json.dumps(body).encode())
    error = json.loads(text).get("error", {})
    if status == 200:
        return got == 200 and not error
    return got == status and set(error) == {"message", "type", "param", "code"} and all(p in error["message"] for p in parts)


def frames_conversations(s):
    """add_special_tokens puts the tokenizer's own tokens around what a template has written; a text of llama.cpp's field is never framed unasked."""
    ask = lambda **b: s.json("/tokenize", b)["tokens"]
    plain, framed = ask(prompt=PROMPT, add_special_tokens=False), ask(prompt=PROMPT)
    assert ask(content=PROMPT) == plain and ask(content=PROMPT, add_special=True) == framed
    assert s.json("/detokenize", {"tokens": ask(content=PROMPT)})["content"] == PROMPT
    turns = ask(messages=CHAT)
    assert ask(messages=CHAT, add_special_tokens=False) == turns
    assert ask(messages=CHAT, add_special_tokens=True) == framed[:len(framed) - len(plain)] + turns


def main():
    failed = []
    with Server(sys.argv[1], "--chat-format", "vicuna") as s:
        for what, (path, body), condition in ANSWERS:
            if not holds(condition, a := s.json(path, body)):
                failed.append(f"{what}: {json.dumps(a)}")
        for what, (path, body), condition in STREAMS:
            if not holds(condition, a := s.events(path, body)):
                failed.append(f"a stream: {what}: {json.dumps(a)}")
        refusals = REFUSALS + of_vocabulary(s.json("/v1/models")["data"][0]["meta"]["n_vocab"])
        for what, (path, body), status, parts in refusals:
            if not refused(s, path, body, status, parts):
                failed.append(f"refused: {what}")
        frames_conversations(s)
        native_streams(s)
    with Server(sys.argv[1], "--chat-format", "vicuna", "--lenient") as s:
        assert s.json(CHATS, chat(messages=[{"role": "user", "content": "a", "extra_field": "0"}], none_such=1)[1])["choices"]
    n = len(ANSWERS) + len(STREAMS) + len(refusals)
    for what in failed:
        print(what)
    print(f"{n - len(failed)} of {n} answers are as expected")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
