#!/usr/bin/env python3
"""Times masks beside llguidance (PyPI): for the same schemas and tokenizer, how long it takes to find the tokens that may follow, over answers that are drawn
from what is allowed. Both find each mask on one thread; llguidance is called through its Python module, whose share is about a microsecond.

masks.py TOKENIZER.json [SCHEMA.json...] [--program build/bench/masks]
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import llguidance

ANSWERS, MOST, SOON = 20, 400, 60
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": "string", "format": "email"},
                                           "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10}}, "required": ["name", "age"], "additionalProperties": False}
WORK = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 200}, "kind": {"enum": ["book", "film", "song"]}, "parts": {"type": "array", "items": {"$ref": "#"}},
                                         "score": {"type": "number", "minimum": 0, "maximum": 10}}, "required": ["title", "kind", "parts"], "additionalProperties": False}
NOTE = {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}, "at": {"type": "string", "format": "date-time"}, "note": {"type": "string", "pattern": "^[A-Za-z ,.]*$"}},
        "required": ["id", "at", "note"], "additionalProperties": False}


def line(what, seconds):
    us = sorted(1e6 * s for s in seconds)
    print(f"  {what:14} {len(us):6} tokens: mean {statistics.fmean(us):7.1f} us, median {us[len(us) // 2]:7.1f}, p99 {us[len(us) * 99 // 100]:7.1f}, largest {us[-1]:8.1f}")


def answer(tokenizer, grammar, texts, seed):
    """The times of the masks of one answer; a token that closes something is preferred after a while."""
    draw, times = random.Random(seed), []
    m = llguidance.LLMatcher(tokenizer, grammar)
    while len(times) < MOST and not m.is_stopped():
        began = time.perf_counter()
        mask = m.compute_bitmask()
        times.append(time.perf_counter() - began)
        bits = int.from_bytes(mask, "little")
        ids = [i for i in range(len(texts)) if bits >> i & 1] if len(texts) < 64 else [8 * k + b for k, byte in enumerate(mask) if byte for b in range(8) if byte >> b & 1]
        closing = [i for i in ids if texts[i][:1] in (b'"', b"]", b"}")] if len(times) > SOON else []
        m.consume_token(draw.choice(closing or ids))
    assert not m.is_error(), m.get_error()
    return times


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tokenizer")
    p.add_argument("schemas", nargs="*")
    p.add_argument("--program", default="build/bench/masks")
    a = p.parse_args()
    schemas = [json.loads(pathlib.Path(s).read_text()) for s in a.schemas] or [{"type": "object"}, PERSON, WORK, NOTE]
    began = time.perf_counter()
    tokenizer = llguidance.LLTokenizer(pathlib.Path(a.tokenizer).read_text())
    texts = [bytes(tokenizer.decode_bytes([i])) for i in range(tokenizer.vocab_size)]
    with tempfile.TemporaryDirectory() as folder:
        for i, s in enumerate(schemas):
            path = pathlib.Path(folder, f"{i}.json")
            path.write_text(json.dumps(s))
            print(subprocess.run([a.program, a.tokenizer, str(path)], check=True, capture_output=True, text=True).stdout, end="")
            began = time.perf_counter()
            grammar = llguidance.grammar_from("json_schema", json.dumps(s))
            llguidance.LLMatcher(tokenizer, grammar)
            print(f"  llguidance {llguidance.__version__ if hasattr(llguidance, '__version__') else ''}: ready in {1e3 * (time.perf_counter() - began):.2f} ms")
            line("first answer", answer(tokenizer, grammar, texts, 0))
            line("later answers", [t for seed in range(1, ANSWERS) for t in answer(tokenizer, grammar, texts, seed)])


if __name__ == "__main__":
    main()
