#!/usr/bin/env python3
"""Compares src/chat with transformers' apply_chat_template, id for id.

Run in a Python that has transformers; needs a C compiler and the libraries of src/base,
src/jinja, src/tokenizer and src/chat. Arguments are tokenizer directories (tokenizer.json, or .xz of it, and
tokenizer_config.json); without any, those in $PESC_DATA. For each directory every
template below that its tokens allow is tried, and the directory's own: pesc must recognise it by the
expected name, give the same ids for every conversation with and without a place for the answer, and
mark exactly the assistant's words as trained. Ends with `N passed, M failed`.
"""
import ctypes
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

sys.path.pop(0)  # the scripts beside this one are named after the packages they compare with

import jinja2
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parents[2]

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('roles must alternate') }}{% endif %}")
CHATML = ("{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
FOLD = ('{%- if messages[0]["role"] == "system" %}\n    {%- set system_message = messages[0]["content"] %}\n'
        "    {%- set loop_messages = messages[1:] %}\n{%- else %}\n"
        "    {%- set loop_messages = messages %}\n{%- endif %}\n\n{{- bos_token }}\n"
        "{%- for message in loop_messages %}\n"
        "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
        "        {{- raise_exception('roles must alternate') }}\n    {%- endif %}\n"
        '    {%- if message["role"] == "user" %}\n')


def default_system(text):
    return ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
            "{{ '<|im_start|>system\n" + text + "<|im_end|>\n' }}{% endif %}" + CHATML)


def plain(system, before, user, between, assistant, default="", bos="{{ bos_token }}"):
    """Formats without a published template, said in Jinja."""
    return (bos + ("{% if messages[0]['role'] != 'system' %}{{ '" + default + "' }}{% endif %}" if default else "") +
            "{% for message in messages %}{% if message['role'] == 'system' %}" + system +
            "{% elif message['role'] == 'user' %}" + before + "{{ message['content'] }}" + user +
            "{% else %}" + between + assistant + "{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}" + between + "{% endif %}")


TEMPLATES = {
    "chatml": "{% for message in messages %}" + CHATML,
    "qwen1.5": default_system("You are a helpful assistant"),
    "qwen2": default_system("You are a helpful assistant."),
    "smollm2": default_system("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    "qwen3": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in message.content %}
                {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
                {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
        "{% set system_message = false %}{% endif %}{% for message in loop_messages %}" + ALTERNATE +
        "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + "
        "system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
        "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
        "{% endif %}{% endfor %}"),
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
        "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
        "{% endif %}"),
    "llama3.1": (
        '{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = "26 Jul 2024" %}\n'
        "{%- endif %}\n{%- if messages[0]['role'] == 'system' %}\n"
        "    {%- set system_message = messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n"
        '{%- else %}\n    {%- set system_message = "" %}\n{%- endif %}\n'
        '{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}\n'
        '{{- "Cutting Knowledge Date: December 2023\\n" }}\n{{- "Today Date: " + date_string + "\\n\\n" }}\n'
        '{{- system_message }}\n{{- "<|eot_id|>" }}\n{%- for message in messages %}\n'
        "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim"
        " + '<|eot_id|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
        "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n"),
    "mistral": (
        FOLD + "        {%- if loop.first and system_message is defined %}\n"
        '            {{- " [INST] " + system_message + "\\n\\n" + message["content"] + " [/INST]" }}\n'
        '        {%- else %}\n            {{- " [INST] " + message["content"] + " [/INST]" }}\n'
        '        {%- endif %}\n    {%- else %}\n        {{- " " + message["content"] + eos_token}}\n'
        "    {%- endif %}\n{%- endfor %}\n"),
    "mistral-v1": (
        "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
        "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
        "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    "mistral-v3": (
        FOLD + "        {%- if loop.last and system_message is defined %}\n"
        '            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}\n'
        '        {%- else %}\n            {{- "[INST] " + message["content"] + "[/INST]" }}\n'
        '        {%- endif %}\n    {%- else %}\n        {{- " " + message["content"]|trim + eos_token}}\n'
        "    {%- endif %}\n{%- endfor %}\n"),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
        "{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
        "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
        "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    "deepseek": (
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
        "{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}"
        "{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}"
        "{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"),
    "camelidae": plain("{% if message['content'] %}{{ '### System:\n' + message['content'] + '\n' }}{% endif %}",
                       "{{ '### Human:\n' }}", "{{ '\n' }}", "{{ '### Assistant:\n' }}",
                       "{{ message['content'] + eos_token }}"),
    "alpaca": plain("{{ message['content'] + '\n\n' }}", "{{ '### Instruction:\n' }}", "{{ '\n\n' }}",
                    "{{ '### Response:\n' }}", "{{ message['content'] + eos_token + '\n\n' }}",
                    "Below is an instruction that describes a task. Write a response that "
                    "appropriately completes the request.\n\n"),
    "vicuna": plain("{{ message['content'] + ' ' }}", "{{ 'USER: ' }}", "{{ ' ' }}", "{{ 'ASSISTANT:' }}",
                    "{{ ' ' + message['content'] + eos_token }}",
                    "A chat between a curious user and an artificial intelligence assistant. The "
                    "assistant gives helpful, detailed, and polite answers to the user\\'s questions. "),
}
NAMED_ONLY = {"camelidae", "alpaca", "vicuna"}  # no template to recognise them by
NEEDS = {"chatml": "<|im_end|>", "qwen1.5": "<|im_end|>", "qwen2": "<|im_end|>", "qwen3": "<|im_end|>",
         "smollm2": "<|im_end|>", "llama3": "<|eot_id|>", "llama3.1": "<|eot_id|>"}
OWN = {"deepseek-v3": "deepseek-v3", "llama3": "llama3", "mistral-nemo": "mistral-nemo", "qwen2.5": "qwen2.5",
       "minimind2-small": "qwen1.5"}

TEXTS = ["Hi", " leading", "trailing ", "\nnewline first", "two\n\nlines\n", "", "  \t ", "1234567 + 1 = ?",
         "naïve café – 你好，世界 🙂👩‍👩‍👧", "def f(x):\n    return x**2\n", "\u00a0nbsp\u3000", "'s don't I'LL",
         "<think>\nhm\n</think>\n\nyes", "### Human:\n", "a" * 300, "مرحبا", "\r\n\r\n", "[INST", "e\u0301"]


class IdList(ctypes.Structure):
    _fields_ = [("ids", ctypes.POINTER(ctypes.c_int32)), ("n", ctypes.c_size_t), ("cap", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [("role", ctypes.c_char_p), ("content", ctypes.c_char_p)]


class Request(ctypes.Structure):
    _fields_ = [("messages", ctypes.c_void_p), ("list", ctypes.POINTER(Message)), ("n", ctypes.c_size_t),
                ("end", ctypes.c_int), ("masked", ctypes.c_void_p), ("tools", ctypes.c_void_p),
                ("variables", ctypes.c_void_p), ("now", ctypes.c_void_p), ("reasoning", ctypes.c_int),
                ("apart", ctypes.c_void_p)]


class Pesc:
    def __init__(self, folder):
        lib = os.path.join(folder, "text.so")
        sources = [p for room in ("base", "jinja", "tokenizer", "chat") for p in sorted((ROOT / "src" / room).glob("*.c"))]
        formats = os.path.join(folder, "embedded_chat.c")
        with open(formats, "w") as f:
            subprocess.run([ROOT / "tools/embed.sh", "chat", *sorted((ROOT / "share/chat").glob("*.jinja"))], check=True, stdout=f)
        packages = ["jansson", "libpcre2-8", "libutf8proc", "libxxhash"]
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", *packages], check=True,
                               capture_output=True, text=True).stdout.split()
        subprocess.run([os.environ.get("CC", "cc"), "-std=c17", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC",
                        f"-I{ROOT}/include", f"-I{ROOT}/src", *map(str, sources), formats, "-o", lib, *flags,
                        "-lpthread", "-lm"], check=True)
        self.c = ctypes.CDLL(lib)
        for name in ("pesc_last_error", "chat_name"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("chat_recognise",):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.chat_name.argtypes = [ctypes.c_void_p]
        self.c.mem_free.argtypes = [ctypes.c_void_p]
        self.c.chat_close.argtypes = [ctypes.c_void_p]
        self.c.tokenizer_close.argtypes = [ctypes.c_void_p]

    def open(self, folder):
        tok = ctypes.c_void_p()
        if self.c.tokenizer_open_dir(ctypes.byref(tok), folder.encode()) or not tok:
            raise SystemExit(f"{folder}: {self.c.pesc_last_error().decode()}")
        return tok

    def recognise(self, template):
        row = self.c.chat_recognise(template.encode())
        return self.c.chat_name(row).decode() if row else None

    def encode(self, tok, name, messages, generation):
        rows = (Message * len(messages))(*[Message(m["role"].encode(), m["content"].encode()) for m in messages])
        ids, trained, writer = IdList(), ctypes.POINTER(ctypes.c_ubyte)(), ctypes.c_void_p()
        if self.c.chat_open(ctypes.byref(writer), tok, name.encode(), None):
            raise SystemExit(f"{name}: {self.c.pesc_last_error().decode()}")
        request = Request(list=rows, n=len(messages), end=1 if generation else 0)
        status = self.c.chat_write(writer, ctypes.byref(request), None, ctypes.byref(ids), ctypes.byref(trained))
        self.c.chat_close(writer)
        if status:
            return None, None
        out = ids.ids[:ids.n], trained[:ids.n] if ids.n else []
        self.c.mem_free(ids.ids)
        self.c.mem_free(trained)
        return out


def conversations():
    """Every text in every place, short and long, with and without a system message."""
    n = len(TEXTS)
    for i in range(n):
        a, b, c, d = (TEXTS[(i * k + k) % n] for k in (1, 3, 5, 7))
        for system in ([], [{"role": "system", "content": d}], [{"role": "system", "content": "Be brief."}]):
            turns = [{"role": "user", "content": a}, {"role": "assistant", "content": b},
                     {"role": "user", "content": c}, {"role": "assistant", "content": d},
                     {"role": "user", "content": b}]
            for k in (1, 2, 3, 4, 5):
                yield system + turns[:k]


def unpack(source, folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = source / name
        if path.exists():
            data = path.read_bytes()
        elif (source / (name + ".xz")).exists():
            data = lzma.decompress((source / (name + ".xz")).read_bytes())
        else:
            return None
        (pathlib.Path(folder) / name).write_bytes(data)
    return json.loads((pathlib.Path(folder) / "tokenizer_config.json").read_text())


def token_text(v):
    return v["content"] if isinstance(v, dict) else v


class Tally:
    passed = failed = 0

    def check(self, ok, *what):
        self.passed += bool(ok)
        self.failed += not ok
        if not ok and self.failed <= 20:
            print("FAILED", *what)


def said(tok, messages, ids, trained):
    """Whether the trained ids hold every answer's words and nothing of the questions' turns."""
    text = tok.decode([i for i, t in zip(ids, trained) if t], clean_up_tokenization_spaces=False)
    text = unicodedata.normalize("NFC", text)
    at = 0
    for m in messages:
        words = m["content"].split() if m["role"] == "assistant" and "think" not in m["content"] else []
        for w in words:
            w = unicodedata.normalize("NFC", w)
            at = text.find(w, at)
            if at < 0:
                return False
            at += len(w)
    return True


def compare(pesc, tally, where, tok, hf, name, template):
    jinja_error = jinja2.exceptions.TemplateError
    for messages in conversations():
        for generation in (True, False):
            try:
                expected = hf.apply_chat_template(messages, chat_template=template, tokenize=True,
                                                  add_generation_prompt=generation, return_dict=False)
            except jinja_error:
                expected = None
            if name == "llama3" and where.endswith("own") and not generation:
                continue  # this template opens the answer always
            ids, trained = pesc.encode(tok, name, messages, generation)
            tally.check(ids == expected, where, name, generation, messages, "\n ", ids, "\n ", expected)
            if ids is not None and expected is not None:
                answers = any(m["role"] == "assistant" for m in messages)
                tally.check(any(trained) == answers and said(hf, messages, ids, trained), "trained", where,
                            name, messages)


def main():
    data = pathlib.Path(os.environ.get("PESC_DATA", "data"))
    sources = [pathlib.Path(a) for a in sys.argv[1:]] or sorted(data.glob("tokenizers/*")) + sorted(data.glob("models/*"))
    tally = Tally()
    with tempfile.TemporaryDirectory() as build:
        pesc = Pesc(build)
        for name, template in TEMPLATES.items():
            expected = None if name in NAMED_ONLY else name
            tally.check(pesc.recognise(template) == expected, "recognise", name, pesc.recognise(template))
        for source in sources:
            with tempfile.TemporaryDirectory() as folder:
                config = unpack(source, folder)
                if config is None:
                    print(f"skipped {source}: no tokenizer.json with tokenizer_config.json")
                    continue
                tok = pesc.open(folder)
                specials = {k: token_text(config.get(k)) for k in ("bos_token", "eos_token", "unk_token")}
                hf = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"),
                                             **{k: v for k, v in specials.items() if v})
                before = tally.passed
                own = config.get("chat_template")
                if own:
                    name = pesc.recognise(own)
                    tally.check(name == OWN.get(source.name), "recognise", source.name, name)
                    if name:
                        compare(pesc, tally, f"{source.name} own", tok, hf, name, own)
                for name, template in TEMPLATES.items():
                    # Where the markers are ordinary text, pesc refuses the format and transformers does not.
                    if name in NEEDS and len(hf.encode(NEEDS[name], add_special_tokens=False)) != 1:
                        ids, _ = pesc.encode(tok, name, [{"role": "user", "content": "Hi"}], True)
                        tally.check(ids is None, source.name, name, "is not refused", ids)
                        continue
                    if "bos_token" in template and not specials["bos_token"]:
                        continue
                    compare(pesc, tally, source.name, tok, hf, name, template)
                print(f"{source.name}: {tally.passed - before} passed")
                pesc.c.tokenizer_close(tok)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return tally.failed > 0


if __name__ == "__main__":
    sys.exit(main())
