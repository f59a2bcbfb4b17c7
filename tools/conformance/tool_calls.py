#!/usr/bin/env python3
"""Compares what pesc trains of conversations with tools and reasoning with transformers, id for id and label for label.

Run in a Python that has transformers and trl; PESC names the command. Templates: those that TRL carries for models that call
tools, as they are and in the form for training, with {% generation %}; and templates/*.jinja beside this script, in the manner
of models that TRL has none for. Records are drawn at random and given to pesc in all the forms that data sets have (arguments
as text or with the nulls of a column, content as parts or absent, reasoning under three names, ShareGPT). What is trained is
known from {% generation %}, else from prefixes that are rendered here. Ends with `N passed, M failed`.
"""
import argparse
import json
import lzma
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.pop(0)  # the scripts beside this one are named after the packages they compare with

import trl
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
TRL = pathlib.Path(trl.__file__).parent / "chat_templates"
# key: where the template reads reasoning; ends: what closes a turn; calls: how many a message may have; silent: and no text
# beside it; text: arguments are text; apart: a result repeats the name of its call, so an answer cannot be told by its text.
ROWS = {
    "qwen2_5": {"ends": ["<|im_end|>"]},
    "qwen2_5_training": {},
    "qwen3": {"key": "reasoning_content", "ends": ["<|im_end|>"]},
    "qwen3_training": {"key": "reasoning_content"},
    "qwen3_instruct_2507": {"ends": ["<|im_end|>"]},
    "qwen3_5_think": {"key": "reasoning_content", "ends": ["<|im_end|>"]},
    "qwen3_5_think_training": {"key": "reasoning_content"},
    "qwen3_6": {"key": "reasoning_content", "ends": ["<|im_end|>"]},
    "llama3_1": {"ends": ["<|eot_id|>", "<|eom_id|>"], "calls": 1},
    "llama3_2": {"ends": ["<|eot_id|>", "<|eom_id|>"], "calls": 1},
    "deepseekv3": {"ends": ["<｜end▁of▁sentence｜>"], "text": True},
    "deepseekv3_training": {},
    "glm4moe_training": {"key": "reasoning_content"},
    "gptoss": {"key": "thinking", "ends": ["<|end|>", "<|call|>", "<|return|>"], "calls": 1, "silent": True,
               "apart": True},
    "gptoss_training": {"key": "thinking", "calls": 1, "silent": True},
    "gemma4": {"ends": ["<turn|>", "<|tool_response>"], "apart": True},
    "nemotron_3_nano_training": {"key": "reasoning_content"},
    "lfm2_v2_training": {},
    "hermes": {"ends": ["<|im_end|>"]},
    "mistral": {"ends": ["</s>"]},
    "granite": {"key": "reasoning_content"},
    "smollm3": {},
    "kimi": {"key": "reasoning_content", "ends": ["<|im_end|>"]},
}
SPECIAL = re.compile(r"<[|｜][\w▁ .-]+[|｜]>|<\|[a-z_]+>|<[a-z_]+\|>|\[/?[A-Z_]{4,}\]|</?s>|\[gMASK\]|<sop>")
WORDS = "river stone lamp quiet seven 3.5 été 你好 door grey walk 🙂 'tis x=1".split()


def template_text(name):
    path = TRL / f"{name}.jinja"
    return (path if path.exists() else HERE / "templates" / f"{name}.jinja").read_text()


def make_tokenizer(data, folder):
    """A public vocabulary with the control tokens of all templates."""
    packed = data / "tokenizers" / "qwen2.5" / "tokenizer.json.xz"
    file = os.path.join(folder, "start.json")
    pathlib.Path(file).write_bytes(lzma.decompress(packed.read_bytes()))
    tok = PreTrainedTokenizerFast(tokenizer_file=file)
    names = sorted({t for row in ROWS for t in SPECIAL.findall(template_text(row))} | {"<s>", "</s>"})
    tok.add_special_tokens({"additional_special_tokens": names})
    tok.bos_token, tok.eos_token = "<s>", "</s>"
    return tok


class Draw:
    def __init__(self, rng, row):
        self.r, self.row, self.n = rng, row, 0

    def text(self, least=1):
        self.n += 1
        return f"T{self.n} " + " ".join(self.r.choice(WORDS) for _ in range(self.r.randint(least, 8)))

    def value(self, depth=0):
        kind = self.r.randint(0, 6 if depth < 2 else 4)
        return [lambda: self.text(), lambda: self.r.randint(-9, 999), lambda: self.r.random() < 0.5, lambda: 2.5,
                lambda: "", lambda: [self.value(depth + 1) for _ in range(self.r.randint(0, 3))],
                lambda: {self.r.choice("abc"): self.value(depth + 1)}][kind]()

    def tools(self):
        return [{"type": "function", "function": {
            "name": name, "description": self.text(), "parameters": {
                "type": "object", "properties": {k: {"type": "string", "description": self.text()} for k in "ab"},
                "required": ["a"]}}} for name in ("get_weather", "find_road")[: self.r.randint(1, 2)]]

    def conversation(self, tools, thinks):
        talk = [{"role": "system", "content": self.text()}] if self.r.random() < 0.5 else []
        for _ in range(self.r.randint(1, 3)):
            talk.append({"role": "user", "content": self.text()})
            for _ in range(self.r.randint(0, 2) if tools else 0):
                calls = [{"id": f"c{self.r.randrange(10**8):08d}", "type": "function", "function": {
                    "name": self.r.choice(tools)["function"]["name"],
                    "arguments": {k: self.value() for k in "ab"[: self.r.randint(1, 2)]}}}
                    for _ in range(self.r.randint(1, min(2, self.row.get("calls", 2))))]
                said = "" if self.row.get("silent") or self.r.random() < 0.6 else self.text()
                talk.append(self.think({"role": "assistant", "content": said, "tool_calls": calls}, thinks))
                talk += [{"role": "tool", "name": c["function"]["name"], "tool_call_id": c["id"],
                          "content": self.text()} for c in calls]
            talk.append(self.think({"role": "assistant", "content": self.text()}, thinks))
        return talk

    def think(self, m, thinks):
        if thinks and self.r.random() < 0.7:
            m[self.row["key"]] = "why " + self.text(3)
        return m

    def disguise(self, talk):
        """The same conversation as some data set has it."""
        out = json.loads(json.dumps(talk))
        for m in out:
            if self.row.get("key") in m:
                m[self.r.choice(["reasoning_content", "thinking", "reasoning"])] = m.pop(self.row["key"])
            for c in m.get("tool_calls", []):
                f = c["function"]
                if isinstance(f["arguments"], str):
                    continue
                if self.r.random() < 0.3:
                    f["arguments"] = json.dumps(f["arguments"], ensure_ascii=False)
                elif self.r.random() < 0.3:
                    f["arguments"]["zzz"] = None
            if self.r.random() < 0.2:
                m["name"] = m.get("name")
            if m["role"] == "user" and self.r.random() < 0.2:
                m["content"] = [{"type": "text", "text": m["content"]}]
        return out


def native(row, talk):
    """As a user of transformers would write it for this template."""
    out = json.loads(json.dumps(talk))
    for m in out:
        for c in m.get("tool_calls", []):
            if row.get("text"):
                c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
    return out


class Oracle:
    def __init__(self, tok, row, template):
        self.tok, self.row, self.template = tok, row, template
        self.marked = "{% generation" in template or "{%- generation" in template

    def render(self, talk, tools, generation=False):
        return self.tok.apply_chat_template(talk, tools=tools, chat_template=self.template, tokenize=False,
                                            add_generation_prompt=generation)

    def marks(self, talk, tools):
        """[ids], [trained] of what {% generation %} holds."""
        out = self.tok.apply_chat_template(talk, tools=tools, chat_template=self.template, tokenize=True,
                                           return_dict=True, return_assistant_tokens_mask=True)
        return list(out["input_ids"]), list(out["assistant_masks"])

    def spans(self, talk, tools, whole, answers):
        """Bytes of the answers by prefixes; None: the template is not stable."""
        spans = []
        for i in answers:
            before, prompt = self.render(talk[:i], tools) if i else "", self.render(talk[:i], tools, True)
            if not whole.startswith(before):
                return None
            start = len(os.path.commonprefix([prompt, whole]))
            if start == len(before) < len(prompt):  # the turn begins in another way than its prompt
                return None
            alone = len(os.path.commonprefix([self.render(talk[: i + 1], tools), whole]))
            found = [m.end() for e in self.row["ends"] for m in re.finditer(re.escape(e), whole) if start < m.end()]
            inside = [f for f in found if f <= alone]
            end = max(inside) if inside else min(found) if found else alone
            spans.append((start, end))
        return spans

    def sample(self, talk, tools, answers):
        """ids and labels of one rendering; None: it cannot hold these answers."""
        whole = self.render(talk, tools)
        for i in answers:
            thought = talk[i].get(self.row.get("key"))
            if thought and thought not in whole:
                return None
        if self.marked:
            ids, marks = self.marks(talk, tools)
            if len(answers) == 1 and sum(m["role"] == "assistant" for m in talk) > 1:
                last = max(i for i, m in enumerate(marks) if m)
                first = max([i for i in range(last) if not marks[i]], default=-1)
                marks = [0] * (first + 1) + marks[first + 1:]
        else:
            spans = self.spans(talk, tools, whole, answers)
            if spans is None:
                return None
            e = self.tok(whole, add_special_tokens=False, return_offsets_mapping=True)
            ids = e["input_ids"]
            marks = [any(b < end and a >= start or start < b <= end for start, end in spans) and b > a for a, b in
                     e["offset_mapping"]]
        return ids, [i if m else -100 for i, m in zip(ids, marks)]

    def record(self, talk, tools):
        answers = [i for i, m in enumerate(talk) if m["role"] == "assistant"]
        apart = self.row.get("apart") and any("tool_calls" in m for m in talk)
        one = None if apart else self.sample(talk, tools, answers)
        if one:
            return one, False
        ids, labels = [], []
        for i in answers:
            s = self.sample(talk[: i + 1], tools, [i])
            if s is None:
                return None, True
            ids, labels = ids + s[0], labels + s[1]
        return (ids, labels), True


def show_difference(tok, got, want):
    """The tokens about the first difference, those that are trained in brackets."""
    pairs = [list(zip(*v)) for v in (got, want)]
    at = next((i for i, (a, b) in enumerate(zip(*pairs)) if a != b), min(map(len, pairs)))
    for what, v in zip(("pesc", "want"), pairs):
        print(" ", what, "".join(f"⟦{tok.decode([i])}⟧" if m >= 0 else tok.decode([i]) for i, m in v[max(0, at - 12) : at + 12]))


def compare(pesc, tok, name, cases, rng, folder):
    row, template = ROWS[name], template_text(name)
    oracle, draw = Oracle(tok, row, template), Draw(rng, row)
    tok.chat_template = template
    tok.save_pretrained(folder)
    expected, lines = [], []
    while len(lines) < cases:
        tools = draw.tools() if rng.random() < 0.8 else None
        talk = draw.conversation(tools, rng.random() < 0.6 and "key" in row)
        try:
            expected.append(oracle.record(native(row, talk), tools))
        except Exception as e:  # noqa: BLE001: the template refuses it
            expected.append((str(e)[:100], False))
        lines.append(json.dumps({"messages": draw.disguise(talk), **({"tools": tools} if tools else {})}, ensure_ascii=False))
    file = os.path.join(folder, "data.jsonl")
    passed = failed = apart = 0
    for line, (want, split) in zip(lines, expected):
        pathlib.Path(file).write_text(line + "\n")
        run = subprocess.run([pesc, "data", "inspect", folder, "--data", file, "--json", "-q"], capture_output=True, text=True)
        got = json.loads(run.stdout)[0] if run.returncode == 0 else None
        ok = (got["ids"], got["labels"]) == want if got and isinstance(want, tuple) else got is None and not isinstance(want, tuple)
        apart += split
        passed += ok
        failed += not ok
        if not ok and failed <= 2:
            print("FAILED", name, "apart" if split else "", run.stderr[-300:], line[:300])
            if got and isinstance(want, tuple):
                show_difference(tok, (got["ids"], got["labels"]), want)
            else:
                print("  pesc", "writes it" if got else "refuses it", "transformers", "writes it" if isinstance(want, tuple) else want)
    print(f"{name}: {passed} of {passed + failed} equal, {apart} with an answer a sample")
    return passed, failed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--cases", type=int, default=24, help="conversations of each template")
    ap.add_argument("templates", nargs="*")
    o = ap.parse_args()
    data = pathlib.Path(os.environ.get("PESC_DATA", "data"))
    if not (data / "tokenizers" / "qwen2.5").exists():
        print("skipped: PESC_DATA has no tokenizer of Qwen2.5")
        return 0
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tok = make_tokenizer(data, folder)
        for name in o.templates or ROWS:
            rng = random.Random(f"{o.seed} {name}")
            p, f = compare(os.environ.get("PESC", "build/pesc"), tok, name, o.cases, rng, folder)
            passed, failed = passed + p, failed + f
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
