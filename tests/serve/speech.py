"""Calls of tools and thoughts, in the dialects of chat, /v1/responses and /v1/messages; embeddings. The model's words are random:
what a call needs is the grammar's doing."""
import base64
import concurrent.futures
import contextlib
import json
import math
import pathlib
import re
import shutil
import struct
import tempfile

from running import Server

TEMPLATE = """{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t | tojson }}
{% endfor %}answer in <tool_call></tool_call><|im_end|>{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}<|im_end|>{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking %}<think>
{% elif enable_thinking is defined %}<think>

</think>

{% endif %}{% endif %}"""
ASK = [{"role": "user", "content": "hello"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "the weather", "parameters": CITY}}
NOW = {"type": "function", "function": {"name": "now"}}
BOTH = [WEATHER, NOW]
NAMED = {"type": "function", "function": {"name": "weather"}}


@contextlib.contextmanager
def speaking(model, *options, template=TEMPLATE):
    """A server of the model with a template that has tools and thoughts."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(shutil.copytree(model, folder + "/copy"))
        settings = json.loads((copy / "tokenizer_config.json").read_text())
        (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
        with Server(str(copy), "--context", "1000", *options) as s:
            yield s


def check_calls(calls):
    for c in calls:
        assert c["type"] == "function" and c["id"].startswith("call_") and len(c["id"]) == 29, c
        arguments = json.loads(c["function"]["arguments"])
        assert arguments == {} if c["function"]["name"] == "now" else arguments["city"] in ("Rome", "Oslo") and len(arguments) == 1, c
    assert len({c["id"] for c in calls}) == len(calls)


def joined(events, index=0):
    """The message that the deltas of a stream add up to, with its finish_reason."""
    m, finish = {"role": None, "content": None}, None
    for e in events:
        for c in e["choices"]:
            if c["index"] != index:
                continue
            d, finish = c["delta"], c["finish_reason"] or finish
            assert not (c["finish_reason"] and d)
            m["role"] = d.get("role") or m["role"]
            for key in ("content", "reasoning_content", "reasoning"):
                if d.get(key) is not None:
                    m[key] = (m.get(key) or "") + d[key]
            for part in d.get("tool_calls", []):
                calls = m.setdefault("tool_calls", [])
                if part["index"] == len(calls):
                    assert part["function"]["arguments"] == "" and part["function"]["name"], part
                    calls.append({"id": part["id"], "type": part["type"], "function": dict(part["function"])})
                else:
                    assert part["index"] == len(calls) - 1 and set(part) == {"index", "function"} and set(part["function"]) == {"arguments"}, part
                    calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    return m, finish


def calls_are_made(model):
    """Required and named ones, by any seed, one or several, whole and in streams, and the same among others."""
    body = lambda **f: {"messages": ASK, "tools": BOTH, "max_tokens": 300, "temperature": 1.5, "enable_thinking": False, **f}
    with speaking(model) as s:
        seen = set()
        for seed in range(12):
            for fields in ({"tool_choice": "required"}, {"tool_choice": "required", "parallel_tool_calls": False}, {"tool_choice": NAMED},
                           {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}}):
                (c,) = s.json("/v1/chat/completions", body(seed=seed, **fields))["choices"]
                if c["finish_reason"] == "length":
                    continue
                m = c["message"]
                assert m["content"] is None and c["finish_reason"] == ("stop" if fields.get("tool_choice") == NAMED else "tool_calls"), c
                check_calls(m["tool_calls"])
                names = [t["function"]["name"] for t in m["tool_calls"]]
                seen.update(names)
                assert set(names) == {"weather"} or fields["tool_choice"] == "required"
                assert len(names) == 1 or not (fields.get("parallel_tool_calls") is False or fields["tool_choice"] == NAMED)
                streamed, finish = joined(s.events("/v1/chat/completions", body(seed=seed, **fields)))
                ids = lambda v: [{**t, "id": None} for t in v]
                assert ids(streamed["tool_calls"]) == ids(m["tool_calls"]) and finish == c["finish_reason"]
        assert seen == {"weather", "now"}
        many = body(tool_choice="required", n=4, seed=1, max_tokens=60)
        whole = [{k: v for k, v in c.items() if k != "message"} | {"text": [t["function"] for t in c["message"].get("tool_calls", [])]} for c in s.json("/v1/chat/completions", many)["choices"]]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for events in pool.map(lambda _: s.events("/v1/chat/completions", many), range(4)):
                for i, c in enumerate(whole):
                    m, finish = joined(events, i)
                    assert [t["function"] for t in m.get("tool_calls", [])] == c["text"] and finish == c["finish_reason"]
        cut = s.json("/v1/chat/completions", body(tool_choice=NAMED, max_tokens=45, temperature=0))["choices"][0]
        assert cut["finish_reason"] == "length" and cut["message"]["tool_calls"][0]["function"]["name"] == "weather", cut


def calls_are_chosen(model):
    """What tool_choice may be, and with which tools; the template shows them, and what was called."""
    with speaking(model) as s:
        chat = lambda status=200, **f: s.json("/v1/chat/completions", {"messages": ASK, "max_tokens": 4, "seed": 1, **f}, status)
        for choice in (None, "auto", "none", "required", NAMED, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}):
            chat(tools=BOTH, tool_choice=choice)
        chat(tool_choice="none")
        for fields in ({"tool_choice": "auto"}, {"tools": BOTH, "tool_choice": "any"}, {"tools": BOTH, "tool_choice": 1}, {"tools": BOTH, "tool_choice": {"type": "function", "function": {"name": "none"}}},
                       {"tools": BOTH, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}):
            assert chat(400, **fields)["error"]["param"] == "tool_choice", fields
        for tools in ([WEATHER, WEATHER], [{"type": "function", "function": {"name": "a b"}}], [{"type": "function", "function": {"name": "x" * 129}}],
                      [{"type": "function", "function": {"name": "a", "parameters": []}}]):
            assert chat(400, tools=tools)["error"]["param"] == "tools", tools
        strict = {"type": "function", "function": {"name": "a", "strict": True, "parameters": {"type": "object", "properties": {"b": {"type": "array", "uniqueItems": True}}}}}
        assert "uniqueItems" in chat(400, tools=[strict])["error"]["message"]
        loose = json.loads(json.dumps(strict).replace("true", "false", 1))
        loose["function"]["parameters"]["properties"]["b"]["uniqueItems"] = True
        status, headers, _ = s.ask("POST", "/v1/chat/completions", {"messages": ASK, "max_tokens": 1, "tools": [loose]})
        assert status == 200 and "uniqueItems" in headers["x-pesc-ignored"], headers
        apply = lambda **f: s.json("/apply-template", {"messages": ASK, **f})["prompt"]
        assert '"name": "weather"' in apply(tools=BOTH) and apply(tools=BOTH, tool_choice="none") == apply()
        call = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        talk = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "why"}, {"role": "tool", "tool_call_id": "x", "content": "warm"}]
        prompt = apply(messages=talk)
        assert "<think>why</think><tool_call>" in prompt and '"city": "Rome"' in prompt and "tool\nwarm" in prompt, prompt
        for nothing in ("", None, "null", {}):
            call["function"]["arguments"] = nothing
            assert '"arguments": {}' in apply(messages=talk), nothing
        call["function"]["arguments"] = '{"city": "Rome"}'
        assert apply(messages=[{**m, "thinking": m.get("reasoning"), "reasoning": None} for m in talk]) == prompt
    with speaking(model, template=TEMPLATE.replace("{{ t | tojson }}", "")) as s:
        body = {"messages": ASK, "tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(1000)], "tool_choice": "required", "max_tokens": 200, "enable_thinking": False, "temperature": 0}
        (c,) = s.json("/v1/chat/completions", body)["choices"]
        assert c["message"]["tool_calls"][0]["function"]["name"].startswith("f")
        body["tool_choice"] = {"type": "function", "function": {"name": "f999"}}
        assert s.json("/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f999"
    late = [{"role": "system", "content": "one"}, *ASK, {"role": "system", "content": [{"type": "text", "text": "two"}]}, *ASK]
    told = lambda s: s.json("/apply-template", {"messages": late})["prompt"]
    with speaking(model) as s:  # which writes a late message of the system where it stands
        assert re.findall("\n(one|two|hello)<", told(s)) == ["one", "hello", "two", "hello"]
    only_first = TEMPLATE.replace("<|im_start|>{{ m.role }}", "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}<|im_start|>{{ m.role }}")
    with speaking(model, template=only_first) as s:  # which refuses one, so all are the first
        assert re.findall("system\none\n\ntwo<|\n(hello)<", told(s)) == ["", "hello", "hello"]
        late[0]["role"] = "user"
        assert told(s).startswith("<|im_start|>system\ntwo<|im_end|>")
    with speaking(model, template=TEMPLATE.replace("tool_call>", "none>")) as s:  # whose calls are not known
        chat = lambda status=200, **f: s.json("/v1/chat/completions", {"messages": ASK, "max_tokens": 4, "tools": BOTH, **f}, status)
        assert "--tool-format" in chat(400, tool_choice="required")["error"]["message"]
        chat(), chat(tool_choice="none")
    ids = TEMPLATE.replace("{{ m.content }}", "{{ m.tool_call_id or m.content }}").replace("{{ c.function | tojson }}", "{{ c.id }}")
    with speaking(model, "--tool-format", "mistral", template=ids) as s:  # whose ids have nine letters and digits, those of others as well
        (c,) = s.json("/v1/chat/completions", {"messages": ASK, "tools": BOTH, "tool_choice": NAMED, "max_tokens": 300, "temperature": 0, "enable_thinking": False})["choices"]
        (call,) = c["message"]["tool_calls"]
        assert len(call["id"]) == 9 and call["id"].isalnum(), call
        talk = lambda name: [*ASK, {"role": "assistant", "tool_calls": [{**call, "id": name}]}, {"role": "tool", "tool_call_id": name, "content": "a"}]
        prompt = lambda name: s.json("/apply-template", {"messages": talk(name)})["prompt"]
        assert prompt(call["id"]).count(call["id"]) == 2
        (one, two) = re.findall(r"\n([a-z0-9]{9})\n?<", prompt("call_0123456789"))
        assert one == two and prompt("call_0123456789") != prompt("call_012345678")
    with speaking(model, "--tool-format", "llama-3", template=TEMPLATE.replace("tool_call>", "none>")) as s:
        (c,) = s.json("/v1/chat/completions", {"messages": ASK, "tools": BOTH, "tool_choice": "required", "max_tokens": 200, "temperature": 0, "enable_thinking": False})["choices"]
        check_calls(c["message"]["tool_calls"])


def thoughts_are_told(model):
    """Where the template opens a thought the answer begins inside one; a constrained answer follows it."""
    with speaking(model) as s:
        ask = lambda **f: {"messages": ASK, "max_tokens": 12, "seed": 3, "temperature": 1, "ignore_eos": True, **f}
        chat = lambda **f: s.json("/v1/chat/completions", ask(**f))["choices"][0]
        inside = chat(reasoning_effort="low")["message"]
        assert inside["reasoning"] == inside["reasoning_content"] and inside["content"] == "" and "</think>" not in inside["reasoning"]
        assert chat(chat_template_kwargs={"enable_thinking": True}) == chat(enable_thinking=True) == chat(reasoning_effort="high")
        assert "reasoning" not in chat(enable_thinking=False)["message"] and "reasoning" not in chat(reasoning_effort="none")["message"]
        assert "reasoning" not in chat(reasoning_effort="high", chat_template_kwargs={"enable_thinking": False})["message"]
        assert "reasoning" not in chat(enable_thinking=True, include_reasoning=False)["message"]
        raw = chat(enable_thinking=True, reasoning_format="none")["message"]
        assert "reasoning" not in raw and raw["content"].strip().startswith(inside["reasoning"][:2])
        m, finish = joined(s.events("/v1/chat/completions", ask(enable_thinking=True)))
        assert m["reasoning"] == m["reasoning_content"] == inside["reasoning"] and finish == "length"
        usage = s.json("/v1/chat/completions", ask(enable_thinking=True))["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["completion_tokens"] == 12
        closed = {"guided_choice": ["yes", "no"], "max_tokens": 30, "ignore_eos": False}
        assert chat(enable_thinking=False, **closed)["message"]["content"] in ("yes", "no")
        bias = {str(i): 100 for i in "</think>".encode()}  # the letters of the end, which the byte tokens are
        ended = chat(enable_thinking=True, **closed, logit_bias=bias)
        assert ended["finish_reason"] == "length" or ended["message"]["content"] in ("yes", "no")
        for name in ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"):
            cut = chat(enable_thinking=True, max_tokens=40, **{name: 5})["message"]  # a token is a byte
            assert inside["reasoning"].startswith(cut["reasoning"]) and len(cut["reasoning"]) < len(inside["reasoning"]) and cut["content"], cut
        usage = s.json("/v1/chat/completions", ask(enable_thinking=True, max_tokens=40, thinking_token_budget=5))["usage"]
        assert 5 <= usage["completion_tokens_details"]["reasoning_tokens"] <= 5 + len("</think>"), usage
        assert chat(enable_thinking=True, max_tokens=40, thinking_token_budget=0)["message"]["content"]
        assert chat(enable_thinking=True, thinking_token_budget=-1) == chat(enable_thinking=True)
        both = chat(enable_thinking=True, thinking_token_budget=5, **{**closed, "max_tokens": 40})["message"]
        assert both["content"] in ("yes", "no") and both["reasoning"], both
        for bad in ({"thinking_token_budget": -2}, {"thinking_token_budget": "x"}, {"reasoning_effort": "most"}, {"reasoning_effort": 1}, {"enable_thinking": "no"}, {"reasoning_format": "x"}, {"guided_regex": "a", "enable_thinking": True}):
            s.json("/v1/chat/completions", ask(**bad), 400)


def dialect_events(s, path, body):
    status, headers, text = s.ask("POST", path, {**body, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), (status, text)
    events = []
    for block in text.decode().split("\n\n"):
        if block and not block.startswith(":"):
            name, data = block.split("\n")
            v = json.loads(data[6:])
            assert name == "event: " + v["type"], block
            events.append(v)
    return events


def check_message_events(events, whole):
    assert [e["type"] for e in events[:2]] == ["message_start", "ping"] and [e["type"] for e in events[-2:]] == ["message_delta", "message_stop"]
    start = events[0]["message"]
    assert start["content"] == [] and start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] > 0
    blocks, open_index = [], None
    for e in events[2:-2]:
        if e["type"] == "content_block_start":
            assert open_index is None and e["index"] == len(blocks)
            open_index = e["index"]
            blocks.append({**e["content_block"], "json": ""})
        elif e["type"] == "content_block_delta":
            assert e["index"] == open_index
            d = e["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}[d["type"]]
            if key == "partial_json":
                blocks[-1]["json"] += d[key]
            else:
                blocks[-1][key] += d[key]
        else:
            assert e["type"] == "content_block_stop" and e["index"] == open_index
            open_index = None
    for b in blocks:
        text = b.pop("json")
        if b["type"] == "tool_use":
            b["input"] = json.loads(text)
            b["id"] = None
    assert blocks == [{**b, "id": None} if "id" in b else b for b in whole["content"]], (blocks, whole)
    assert events[-2]["delta"] == {k: whole[k] for k in ("stop_reason", "stop_sequence")} and events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def messages_are_answered(model):
    """/v1/messages: blocks, tools, thoughts, stops, streams and tokens, as anthropic's client expects them."""
    tools = [{"name": "weather", "description": "d", "input_schema": CITY}, {"name": "now", "input_schema": {"type": "object"}}]
    with speaking(model) as s:
        ask = lambda **f: {"model": "copy", "max_tokens": 200, "temperature": 0, "messages": ASK, "thinking": {"type": "disabled"}, **f}
        text = s.json("/v1/messages", ask(max_tokens=5))
        assert text["type"] == "message" and text["role"] == "assistant" and text["id"].startswith("msg_") and text["stop_reason"] in ("max_tokens", "end_turn"), text
        assert text["content"][0]["type"] == "text"
        used = s.json("/v1/messages", ask(tools=tools, tool_choice={"type": "tool", "name": "weather"}))
        (block,) = used["content"]
        assert used["stop_reason"] == "tool_use" and block["type"] == "tool_use" and block["input"]["city"] in ("Rome", "Oslo"), used
        for fields in ({"max_tokens": 9}, {"tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 9}):
            check_message_events(dialect_events(s, "/v1/messages", ask(**fields)), s.json("/v1/messages", ask(**fields)))
        thought = s.json("/v1/messages", ask(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=9))["content"]
        assert thought[0]["type"] == "thinking" and thought[0]["signature"] == ""
        talk = [{"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "why", "signature": ""}, {"type": "text", "text": "Let me look."},
                                                  {"type": "tool_use", "id": "x", "name": "weather", "input": {"city": "Rome"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "warm"}]}, {"type": "text", "text": "So?"}]}]
        count = lambda **f: s.json("/v1/messages/count_tokens", {"model": "copy", "messages": ASK, **f})["input_tokens"]
        chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"},
                {"role": "assistant", "content": "Let me look.", "reasoning_content": "why", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
                {"role": "tool", "tool_call_id": "x", "content": "warm"}, {"role": "user", "content": "So?"}]
        tokens = s.json("/tokenize", {"messages": chat, "add_generation_prompt": True})["count"]
        assert count(messages=talk, system=[{"type": "text", "text": "x-anthropic-billing-header: cch=12345;"}, {"type": "text", "text": "Be kind."}]) == tokens
        assert count(tools=tools) > count() + 50 and s.json("/v1/messages", ask(messages=talk, max_tokens=1))["usage"]["input_tokens"] > 0
        again = s.json("/v1/messages", ask(max_tokens=1))["usage"]
        assert again["input_tokens"] + again["cache_read_input_tokens"] == s.json("/tokenize", {"messages": ASK, "chat_template_kwargs": {"enable_thinking": False}})["count"]
        said = s.json("/v1/messages", ask(max_tokens=30, temperature=1))["content"][0]["text"]
        if len(said) > 3:
            stop = s.json("/v1/messages", ask(max_tokens=30, temperature=0, stop_sequences=["zzz"]))
            assert stop["stop_sequence"] is None
        status, headers, _ = s.ask("POST", "/v1/messages?beta=true", ask(max_tokens=1, metadata={"user_id": "u"}, tools=[{"type": "web_search_20250305", "name": "web_search"}], context_management={}))
        assert status == 200 and "web_search_20250305" in headers["x-pesc-ignored"]
        for bad in ({"max_tokens": None}, {"max_tokens": 0}, {"messages": []}, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"nonsense": 1}, {"tool_choice": {"type": "x"}, "tools": tools}):
            error = s.json("/v1/messages", ask(**bad), 400)
            assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error" and error["request_id"], error
        assert s.json("/v1/messages", ask(model="none"), 404)["error"]["type"] == "not_found_error"


def check_response_events(events, whole):
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"] and events[0]["response"]["output"] == []
    assert events[-1]["type"] == "response." + whole["status"]
    items = []
    for e in events[2:-1]:
        kind = e["type"]
        if kind == "response.output_item.added":
            assert e["output_index"] == len(items)
            items.append([e["item"], ""])
        elif kind.endswith(".delta"):
            assert e["item_id"] == items[-1][0]["id"] and e["output_index"] == len(items) - 1
            items[-1][1] += e["delta"]
        elif kind == "response.output_item.done":
            items[-1][0] = e["item"]
            text = e["item"]["arguments"] if e["item"]["type"] == "function_call" else e["item"]["content"][0]["text"]
            assert text == items[-1][1]
    plain = lambda items: [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]
    assert plain(i for i, _ in items) == plain(events[-1]["response"]["output"]) == plain(whole["output"])


def responses_are_answered(model):
    """/v1/responses: items, tools, thoughts, formats, streams; conversations that are kept, and by whom."""
    tools = [{"type": "function", "name": "weather", "parameters": CITY, "strict": True}, {"type": "web_search"}]
    with speaking(model, "--store") as s:
        ask = lambda **f: {"input": "hello", "max_output_tokens": 200, "temperature": 0, "reasoning": {"effort": "none"}, **f}
        text = s.json("/v1/responses", ask(max_output_tokens=5))
        assert text["object"] == "response" and text["id"].startswith("resp_") and text["usage"]["total_tokens"] == text["usage"]["input_tokens"] + text["usage"]["output_tokens"], text
        assert text["status"] == "incomplete" and text["incomplete_details"] == {"reason": "max_output_tokens"} or text["status"] == "completed"
        called = s.json("/v1/responses", ask(tools=tools, tool_choice={"type": "function", "name": "weather"}))
        (item,) = called["output"]
        assert called["status"] == "completed" and item["type"] == "function_call" and json.loads(item["arguments"])["city"] in ("Rome", "Oslo") and item["call_id"].startswith("call_")
        formed = s.json("/v1/responses", ask(text={"format": {"type": "json_schema", "name": "place", "schema": CITY, "strict": True}}))
        assert json.loads(formed["output"][0]["content"][0]["text"])["city"] in ("Rome", "Oslo")
        for fields in ({"max_output_tokens": 7}, {"tools": tools, "tool_choice": "required"}, {"reasoning": {"effort": "low"}, "max_output_tokens": 7},
                       {"text": {"format": {"type": "json_schema", "name": "place", "schema": CITY}}}):
            check_response_events(dialect_events(s, "/v1/responses", ask(**fields)), s.json("/v1/responses", ask(**fields)))
        for fields in ({"max_output_tokens": 7}, {"max_output_tokens": 40, "reasoning": {"effort": "low"}, "chat_template_kwargs": {"enable_thinking": True}, "top_logprobs": 2}):
            fields = ask(include=["message.output_text.logprobs"], top_logprobs=2, **{k: v for k, v in fields.items() if k != "top_logprobs"})
            whole = s.json("/v1/responses", fields)
            events = dialect_events(s, "/v1/responses", fields)
            for i, part in enumerate(p for o in whole["output"] if o["type"] == "message" for p in o["content"]):
                told = b"".join(bytes(t["bytes"]) for t in part["logprobs"]).decode(errors="replace")
                assert told.strip() == part["text"].strip() and all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in part["logprobs"]), part
                deltas = [t for e in events if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
                assert deltas == part["logprobs"] == next(e for e in events if e["type"] == "response.output_text.done")["logprobs"], (deltas, part)
            assert fields["reasoning"]["effort"] != "none" or whole["output"], whole
        plain = s.json("/v1/responses", ask(max_output_tokens=7))["output"][0]["content"][0]
        assert plain["logprobs"] == [], plain
        assert s.json("/v1/responses", ask(include="x"), 400)["error"]["param"] == "include"
        result = [{"type": "function_call_output", "call_id": item["call_id"], "output": "warm"}]
        one = s.json("/v1/responses", ask(input=[{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}, item, *result], max_output_tokens=3))
        two = s.json("/v1/responses", ask(input=result, previous_response_id=called["id"], max_output_tokens=3))
        assert one["usage"]["input_tokens"] == two["usage"]["input_tokens"] and two["previous_response_id"] == called["id"]
        assert one["output"][0]["content"] == two["output"][0]["content"] if one["output"] else not two["output"]
        s.json("/v1/responses", ask(previous_response_id="resp_none"), 404)
        unkept = s.json("/v1/responses", ask(store=False, max_output_tokens=1))
        assert not unkept["store"] and s.json("/v1/responses", ask(previous_response_id=unkept["id"]), 404)["error"]["param"] == "previous_response_id"
        codex = ask(instructions="Be kind.", include=["reasoning.encrypted_content"], stream=False, prompt_cache_key="k", max_output_tokens=1,
                    input=[{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]}, {"type": "reasoning", "summary": [], "encrypted_content": "a"}, {"role": "user", "content": "hello"}])
        s.json("/v1/responses", codex)
        for bad in ({"input": None}, {"input": []}, {"input": [{"type": "item_reference", "id": "a"}]}, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, {"background": True}, {"nonsense": 1}):
            assert s.json("/v1/responses", ask(**bad), 400)["error"]["type"] == "invalid_request_error"
    with speaking(model) as s:
        assert "--store" in s.json("/v1/responses", {"input": "a", "previous_response_id": "resp_x"}, 404)["error"]["message"]


def responses_have_owners(model):
    """What one key has made another does not go on with."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("first-secret\nsecond-secret\n")
        f.flush()
        with speaking(model, "--store", "--api-key-file", f.name) as s:
            def ask(key, status, **fields):
                got, _, text = s.ask("POST", "/v1/responses", {"input": "hello", "max_output_tokens": 1, **fields}, {"Authorization": f"Bearer {key}-secret"})
                assert got == status, text
                return json.loads(text)
            made = ask("first", 200)["id"]
            ask("first", 200, previous_response_id=made)
            ask("second", 404, previous_response_id=made)
            status, _, text = s.ask("POST", "/v1/messages", {"max_tokens": 1, "messages": ASK})
            assert status == 401 and json.loads(text)["error"]["type"] == "authentication_error", text


def embeddings_are_computed(model):
    """Of length 1, in their order, as numbers and as base64; the mean where the model says so."""
    with Server(model) as s:
        ask = lambda status=200, **f: s.json("/v1/embeddings", {"input": "hello", **f}, status)
        vector = lambda **f: ask(**f)["data"][0]["embedding"]
        one = vector()
        assert abs(math.sqrt(sum(x * x for x in one)) - 1) < 1e-5
        raw = base64.b64decode(vector(encoding_format="base64"))
        assert list(struct.unpack(f"<{len(one)}f", raw)) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in one]
        many = ask(input=["hello", "world", "hello " * 40])
        assert [d["index"] for d in many["data"]] == [0, 1, 2] and many["data"][0]["embedding"] == one != many["data"][1]["embedding"]
        ids = s.json("/tokenize", {"prompt": "hello"})["tokens"]
        assert vector(input=ids) == vector(input=[ids]) == one and many["usage"]["prompt_tokens"] > 3
        short = vector(dimensions=4)
        assert len(short) == 4 and abs(sum(x * x for x in short) - 1) < 1e-5 and abs(short[0] / short[1] - one[0] / one[1]) < 1e-3
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            text = pool.submit(s.json, "/v1/completions", {"prompt": "hello", "max_tokens": 20})
            assert all(v == one for v in pool.map(lambda _: vector(), range(8))) and text.result()["usage"]
        for bad in ({"input": None}, {"input": []}, {"input": [[]]}, {"input": ""}, {"input": ["a", ""]}, {"input": ["a", 1]}, {"input": [10**6]}, {"input": ["a"] * 2049}, {"input": "a " * 5000}, {"dimensions": 0}, {"dimensions": len(one) + 1}, {"encoding_format": "x"}, {"n": 1}):
            ask(400, **bad)
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(shutil.copytree(model, folder + "/copy"))
        (copy / "1_Pooling").mkdir()
        (copy / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
        with Server(str(copy)) as s:
            mean = s.json("/v1/embeddings", {"input": "hello world, how are you? " * 3})["data"][0]["embedding"]
            assert mean != one and abs(sum(x * x for x in mean) - 1) < 1e-5


SPEECH = (calls_are_made, calls_are_chosen, thoughts_are_told, messages_are_answered, responses_are_answered, responses_have_owners, embeddings_are_computed)
