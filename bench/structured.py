#!/usr/bin/env python3
"""What a schema costs the streams of a server, and the first token of one that it knows.

    pesc serve MODEL --context 512 --max-streams 32
    python3 bench/structured.py http://127.0.0.1:8080 --streams 32 --rounds 7

In each round as many streams as asked for are generated with a schema and without, in turns; printed are the medians of the
tokens a second and their ratio, and of the time to the first token of a request that runs alone. Any server that takes
`guided_json` and `return_token_ids` beside OpenAI's fields will do; the answers are drawn at temperature 1.
"""
import argparse
import concurrent.futures
import json
import statistics
import time
import urllib.request

SCHEMA = {"type": "object", "required": ["title", "parts"],
          "properties": {"title": {"type": "string", "minLength": 40, "maxLength": 200},
                         "parts": {"type": "array", "minItems": 8, "items": {"type": "string", "minLength": 60, "maxLength": 100}}}}


def answer(url, body):
    """(seconds to the first token, tokens) of a stream."""
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    began, first, n = time.perf_counter(), None, 0
    with urllib.request.urlopen(request, timeout=600) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - began
                n += len(json.loads(line[6:])["choices"][0].get("token_ids") or [])
    return first, n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("--streams", type=int, default=32)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=7)
    a = p.parse_args()
    rates, firsts = {True: [], False: []}, {True: [], False: []}

    def body(seed, schema):
        own = {"guided_json": SCHEMA} if schema else {}
        return {"prompt": [300 + seed % 50] * 16, "max_tokens": a.tokens, "temperature": 1, "seed": seed, "stream": True, "ignore_eos": True,
                "return_token_ids": True, **own}
    for schema in (True, False):
        answer(a.url, body(1, schema))
    with concurrent.futures.ThreadPoolExecutor(a.streams) as pool:
        for r in range(a.rounds):
            for schema in (True, False) if r % 2 else (False, True):
                began = time.perf_counter()
                got = list(pool.map(lambda k: answer(a.url, body(1000 * r + k, schema)), range(a.streams)))
                rates[schema].append(sum(n for _, n in got) / (time.perf_counter() - began))
                firsts[schema] += [answer(a.url, body(5000 + 10 * r + k, schema))[0] for k in range(3)]
    with_schema, without = (statistics.median(rates[s]) for s in (True, False))
    ratios = [x / y for x, y in zip(rates[True], rates[False])]
    first, plain = (1e3 * statistics.median(firsts[s]) for s in (True, False))
    print(f"{a.streams} streams: {with_schema:.0f} tokens/s with a schema, {without:.0f} without; ratio {statistics.median(ratios):.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"first token alone: {first:.1f} ms with a schema that is known, {plain:.1f} without")


if __name__ == "__main__":
    main()
