#!/usr/bin/env python3
"""Seeds of fuzz_request: the table of hostile requests, where they are not large, and a good request with every field."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
import hostile  # noqa: E402

folder = pathlib.Path(sys.argv[1]) / "fuzz_request"
folder.mkdir(parents=True, exist_ok=True)
for number, ((*_, request), _, _, _) in enumerate(hostile.TABLE):
    if len(request) < 4000:
        (folder / f"hostile-{number}").write_bytes(request)
(folder / "fields").write_bytes(hostile.completion(
    temperature=0.5, top_p=0.5, top_k=5, min_p=0.1, repetition_penalty=1.1, presence_penalty=1, frequency_penalty=-1, n=2, best_of=2,
    seed=-5, stop=["a", "b"], stop_token_ids=[1, 2], ignore_eos=True, min_tokens=1, logit_bias={"5": 1.5}, logprobs=2, echo=True,
    stream=True, stream_options={"include_usage": True}, return_token_ids=True, cache_salt="x", user="u"))
(folder / "talk").write_bytes(hostile.chat(
    messages=[{"role": "user", "content": "a", "name": "b"},
              {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": [1]}'}}]},
              {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "c"}]}],
    tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}], tool_choice="none", chat_template_kwargs={"extra": "d"},
    prompt_logprobs=1, return_routed_experts=True, timings_per_token=True))
(folder / "messages").write_bytes(json.dumps({
    "model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "s"}], "stop_sequences": ["a"], "thinking": {"type": "disabled"}, "output_config": {"effort": "low"},
    "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}, {"type": "text", "text": "b"}]}],
    "tools": [{"name": "f", "input_schema": {}}, {"type": "x"}], "tool_choice": {"type": "tool", "name": "f"}}).encode())
(folder / "responses").write_bytes(json.dumps({
    "input": [{"role": "developer", "content": "d"}, {"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
              {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "r"}],
    "instructions": "i", "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "namespace", "tools": []}], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, "reasoning": {"effort": "high"}, "top_logprobs": 1}).encode())
(folder / "body").write_bytes(json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}).encode())
