#!/usr/bin/env python3
"""One model with expert patches and a LoRA, each a model name of its own (--patch NAME=DIR, --lora NAME=DIR).

    tests/serve/patches.py BASE PATCH OTHER_PATCH ADAPTER

16 requests for the base and the three names run in the same batch. Every answer, with its log-probabilities and the experts
that its routers have chosen, is the one that the base opened with that patch or LoRA gives, and its tokens are those of
`pesc generate`."""
import concurrent.futures
import json
import os
import subprocess
import sys

from running import Server

TOKENS, EACH = 24, 4


def prompt_of(i):
    return [(i * 7 + k * 5 + 3) % 67 for k in range(9 + i)]


def ask(s, i, model, experts):
    answer = s.json("/v1/completions", {"model": model, "prompt": prompt_of(i), "max_tokens": TOKENS, "temperature": 0,
                                        "ignore_eos": True, "logprobs": 5, "return_token_ids": True,
                                        "return_routed_experts": True})
    assert answer["model"] == model
    c = answer["choices"][0]
    chosen = [e for token in c["routed_experts"]["experts"] for layer in token for e in layer]
    assert chosen and all(0 <= e < experts for e in chosen)
    return c["token_ids"], c["logprobs"], c["routed_experts"]


def generate(base, i, *options):
    out = subprocess.run([os.environ["PESC"], "generate", base, "--ids", "-", "-n", str(TOKENS), "--ignore-eos", "--json",
                          *options], input=json.dumps(prompt_of(i)), capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["ids"]


def main(base, patch, other, adapter):
    name = os.path.basename(base)
    experts = json.loads(subprocess.run([os.environ["PESC"], "info", base, "--json"], capture_output=True, check=True).stdout)["experts"]
    options = {name: [], "one": ["--patch", patch], "two": ["--patch", other], "lora": ["--lora", adapter]}
    named = [part for n, o in options.items() for part in o[:1] + [f"{n}={d}" for d in o[1:]]]
    keys = [(n, i) for i in range(EACH) for n in options]
    with Server(base, *named) as s:
        assert {m["id"] for m in s.json("/v1/models")["data"]} == set(options)
        with concurrent.futures.ThreadPoolExecutor(len(keys)) as pool:
            among = dict(zip(keys, pool.map(lambda k: ask(s, k[1], k[0], experts), keys)))
        load = s.json("/v1/experts")
        assert load["experts"] == experts and all(len(layer) == experts for layer in load["counts"])
    for n, o in options.items():
        with Server(base, *o) as s:
            for i in range(EACH):
                assert ask(s, i, name, experts) == among[n, i], (n, i)
                assert generate(base, i, *o) == among[n, i][0], (n, i)
    for i in range(EACH):
        assert len({json.dumps(among[n, i][1]) for n in options}) == len(options)


if __name__ == "__main__":
    main(*sys.argv[1:])
