"""What answers report beside their text: experts, times, log-probabilities of prompts; and what reaches chat templates."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from running import Server

TEXT = "Once upon a time there was a little girl who went to the market to buy some bread. "
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 3, "ignore_eos": True}


def sparse_model(model, folder):
    """The model with 4 experts a layer, of which each token takes 2."""
    subprocess.run([os.environ["PESC"], "craft", model, "-o", folder, "--experts", "4", "--top-k", "2", "--adapter-dim", "8", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    return folder


def reports_routed_experts(model):
    """Experts and gates of every generated token but the last, in whole answers and in streams; counts of all tokens that were fed."""
    with tempfile.TemporaryDirectory() as folder, Server(sparse_model(model, folder + "/sparse")) as s:
        asked = {**CHAT, "return_routed_experts": True, "logprobs": True}
        whole = s.json("/v1/chat/completions", asked)
        routed = whole["choices"][0]["routed_experts"]
        assert routed["layers"] == [0, 1] and len(routed["experts"]) == len(routed["gates"]) == 7, routed
        for experts, gates in zip(routed["experts"], routed["gates"]):
            for ids, shares in zip(experts, gates):
                assert len(set(ids)) == 2 and all(0 <= i < 4 for i in ids) and abs(sum(shares) - 1) < 0.002 and shares[0] >= shares[1]
        streamed = {"experts": [], "gates": []}
        for e in s.events("/v1/chat/completions", asked):
            for key, values in streamed.items():
                values += e["choices"][0].get("routed_experts", {}).get(key, [])
        assert streamed == {k: routed[k] for k in streamed}
        load = s.json("/v1/experts")
        assert (load["experts"], load["experts_per_token"], load["layers"]) == (4, 2, [0, 1])
        usage = whole["usage"]  # the second request takes its prompt from the cache, but for the last token
        assert load["tokens"] == usage["prompt_tokens"] + 7 + 1 + 7, (load, usage)
        assert all(sum(row) == 2 * load["tokens"] for row in load["counts"])
        for layer, row in zip(load["layers"], load["counts"]):
            assert abs(s.metric(f'pesc_expert_load{{layer="{layer}"}}') - max(row) / (2 * load["tokens"] / 4)) < 1e-4
        assert s.json("/v1/requests") == {"object": "list", "data": []}
        assert not any(slot["is_processing"] for slot in s.json("/slots"))
    with Server(model) as s:
        assert s.json("/v1/chat/completions", asked, 400)["error"]["param"] == "return_routed_experts"
        assert s.json("/v1/experts") == {"object": "expert_load", "experts": 0, "experts_per_token": 0, "layers": [], "tokens": 0, "counts": []}


def reports_times(model):
    with Server(model) as s:
        asked = {"prompt": TEXT, "max_tokens": 8, "ignore_eos": True, "timings_per_token": True}
        for cached in (0, None):
            whole = s.json("/v1/completions", asked)
            t, usage = whole["timings"], whole["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"] if cached is None else cached
            assert t["cache_n"] == cached and t["prompt_n"] == usage["prompt_tokens"] - cached and t["predicted_n"] == 8
            assert t["prompt_ms"] > 0 and t["predicted_ms"] > 0
            assert abs(t["predicted_per_second"] * t["predicted_ms"] / 7000 - 1) < 1e-9  # the first came with the prompt
            assert abs(t["predicted_per_token_ms"] * 7 / t["predicted_ms"] - 1) < 1e-9
            assert abs(t["prompt_per_token_ms"] * t["prompt_n"] / t["prompt_ms"] - 1) < 1e-9
        events = s.events("/v1/completions", asked)
        assert all("timings" in e for e in events) and events[-1]["timings"]["predicted_n"] == 8
        assert "timings" not in s.json("/v1/completions", {"prompt": "a", "max_tokens": 1})


def reports_guesses_of_a_draft(model):
    """A draft changes no token of a text, among others neither; timings say how often it was right."""
    def body(i):
        return {"prompt": f"Number {i}: ", "max_tokens": 24, "temperature": i % 2, "seed": i, "ignore_eos": True, "return_token_ids": True, "timings_per_token": True}
    ask = lambda s, i: s.json("/v1/completions", body(i))
    ids = lambda answer: answer["choices"][0]["token_ids"]
    with Server(model) as s:
        plain = [ids(ask(s, i)) for i in range(8)]
    with Server(model, "--draft", model) as s:
        alone = [ask(s, i) for i in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda i: ask(s, i), range(8)))
    assert [ids(a) for a in alone] == plain and [ids(a) for a in together] == plain
    guessed = [t for t in (a["timings"] for a in alone) if "draft_n" in t]
    assert guessed and sum(t["draft_n_accepted"] for t in guessed) > 0
    for t in guessed:
        assert abs(t["predicted_per_pass"] * (t["predicted_n"] - 1 - t["draft_n_accepted"]) - (t["predicted_n"] - 1)) < 1e-9


def reports_logprobs_of_prompts(model):
    """The values of vLLM's prompt_logprobs are those of an echo; the rank counts the tokens that are at least as likely."""
    with Server(model) as s:
        asked = {"prompt": TEXT, "max_tokens": 2, "temperature": 0}
        (choice,) = s.json("/v1/completions", {**asked, "prompt_logprobs": 3, "return_token_ids": True})["choices"]
        echo = s.json("/v1/completions", {**asked, "echo": True, "logprobs": 3})["choices"][0]["logprobs"]
        ids, found = choice["prompt_token_ids"], choice["prompt_logprobs"]
        assert len(found) == len(ids) and found[0] is None and choice["logprobs"] is None
        for i in range(1, len(ids)):
            own, ranks = found[i][str(ids[i])], [e["rank"] for e in found[i].values()]
            assert own["logprob"] == echo["token_logprobs"][i] and own["decoded_token"] == echo["tokens"][i]
            assert set(ranks) == {1, 2, 3} | {own["rank"]} and len(found[i]) == (3 if own["rank"] <= 3 else 4), found[i]
        both = s.json("/v1/completions", {**asked, "prompt_logprobs": 5, "logprobs": 1})["choices"][0]
        assert all(len(v) <= 2 for v in both["logprobs"]["top_logprobs"]) and len(both["logprobs"]["tokens"]) == 2
        assert s.json("/v1/completions", {**asked, "prompt_logprobs": 0, "max_tokens": 0})["choices"][0]["text"] == ""
        whole = s.json("/v1/chat/completions", {**CHAT, "prompt_logprobs": 1, "return_token_ids": True})
        assert len(whole["prompt_logprobs"]) == len(whole["prompt_token_ids"]) == whole["usage"]["prompt_tokens"]
        assert len(whole["choices"][0]["token_ids"]) == 8
        events = s.events("/v1/chat/completions", {**CHAT, "return_token_ids": True})
        assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"] and "prompt_token_ids" not in events[1]
        assert sum((e["choices"][0].get("token_ids", []) for e in events), []) == whole["choices"][0]["token_ids"]


TEMPLATE = """{%- if tools %}<|im_start|>tools
{% for t in tools %}{{ t.function.name }} {% endfor %}<|im_end|>{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments.city }}]{% endfor %}<|im_end|>{% endfor %}
{%- if loud is defined and loud %}<|im_start|>loud<|im_end|>{% endif %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


def gives_templates_tools_and_variables(model):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(shutil.copytree(model, folder + "/copy"))
        settings = json.loads((copy / "tokenizer_config.json").read_text())
        (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
        with Server(str(copy)) as s:
            apply = lambda **f: s.json("/apply-template", {"messages": [{"role": "user", "content": "a"}], **f})["prompt"]
            plain = "<|im_start|>user\na<|im_end|><|im_start|>assistant\n"
            assert apply() == apply(tools=[], chat_template_kwargs={}) == plain
            assert apply(tools=[TOOL, TOOL]) == "<|im_start|>tools\nweather weather <|im_end|>" + plain
            assert "<|im_start|>loud<|im_end|>" in apply(chat_template_kwargs={"loud": True}) and apply(chat_template_kwargs={"loud": False}) == plain
            call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
            talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
                    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "rain"}]}]
            assert "assistant\n[weather Bern]<|im_end|><|im_start|>tool\nrain<|im_end|>" in apply(messages=talk)
            chat = lambda status, **f: s.json("/v1/chat/completions", {**CHAT, **f}, status)
            chat(200, tools=[TOOL])
            chat(200, tools=[TOOL], tool_choice="none")
            assert chat(400, tools=[TOOL], tool_choice="auto")["error"]["param"] == "tool_choice"  # how it writes calls is not known
            call["function"]["arguments"] = "{"
            assert "are not JSON" in chat(400, messages=talk)["error"]["message"]
        call["function"]["arguments"] = "{}"
        with Server(model, "--chat-format", "chatml") as s:  # which has no place for them
            assert s.json("/v1/chat/completions", {**CHAT, "tools": [TOOL]}, 400)["error"]["param"] == "tools"
            assert s.json("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {"a": 1}}, 400)["error"]["param"] == "chat_template_kwargs"
            assert "cannot write calls" in s.json("/v1/chat/completions", {**CHAT, "messages": talk}, 400)["error"]["message"]


def byte_token_model(model, folder):
    """The model with a tokenizer as Llama-2's: what it does not know is written in tokens of single bytes."""
    copy = pathlib.Path(shutil.copytree(model, folder))
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    replace = lambda a, b: {"type": "Replace", "pattern": {"String": a}, "content": b}
    (copy / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": text, **added} for i, text in enumerate(("<unk>", "<s>", "</s>"))],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")]},
        "decoder": {"type": "Sequence", "decoders": [replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                  "ignore_merges": False, "merges": [],
                  "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{b:02X}>": 3 + b for b in range(256)}, "\u2581": 259, "a": 260}}}))
    (copy / "tokenizer_config.json").write_text("{}")
    return str(copy)


def line_ends_of_byte_tokens_come_at_once(model):
    """A byte that completes a character is final: no token more is computed to see a stop string, and a stream has it in its own event."""
    with tempfile.TemporaryDirectory() as folder, Server(byte_token_model(model, folder + "/bytes")) as s:
        newline = 3 + 10
        b = {"prompt": "a", "max_tokens": 3, "temperature": 0, "logit_bias": {str(newline): 100}, "logprobs": 0, "return_token_ids": True}
        (stopped,) = s.json("/v1/completions", {**b, "stop": ["\n"]})["choices"]
        assert stopped["finish_reason"] == "stop" and stopped["token_ids"] == [newline] and stopped["text"] == "", stopped
        (last,) = s.json("/v1/completions", {**b, "stop": ["\n"], "max_tokens": 1})["choices"]
        assert last["finish_reason"] == "stop", last
        assert s.json("/v1/completions", b)["choices"][0]["logprobs"]["text_offset"] == [0, 1, 2]
        assert [e["choices"][0]["text"] for e in s.events("/v1/completions", b)] == ["\n"] * 3


def large_texts_are_cheap(model):
    """A text of 1 MiB is tokenised and written back, and half of it written as pieces, within 2 s of CPU each."""
    text = "".join(chr(97 + i * i % 23) + " " * (i % 5 == 0) for i in range(880000))[:1 << 20]
    with Server(model) as s:
        def cheap(path, body):
            before = s.cpu_seconds()
            answer = s.json(path, body)
            assert s.cpu_seconds() - before < 2, (path, list(body), s.cpu_seconds() - before)
            return answer
        tokens = cheap("/tokenize", {"content": text})["tokens"]
        half = text[:1 << 19]
        pieces = cheap("/tokenize", {"content": half, "with_pieces": True})["tokens"]
        assert "".join(t["piece"] for t in pieces) == half
        assert cheap("/detokenize", {"tokens": tokens})["content"] == text


REPORTS = (large_texts_are_cheap, line_ends_of_byte_tokens_come_at_once, reports_routed_experts, reports_times, reports_guesses_of_a_draft, reports_logprobs_of_prompts, gives_templates_tools_and_variables)
