#!/usr/bin/env python3
"""LoRAs on experts as models of their own (--lora NAME=DIR), in one batch with the base.

    tests/serve/expert_loras.py BASE NAME=LORA=MERGED...

Every answer of a name has the tokens of the model that the LoRA was merged into, with log-probabilities that are equal up to
rounding, and no two names answer alike."""
import concurrent.futures
import os
import sys

from running import Server

TOKENS, EACH = 12, 3


def ask(s, i, model):
    prompt = [(i * 7 + k * 5 + 3) % 67 for k in range(9 + i)]
    c = s.json("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                                   "logprobs": 1, "return_token_ids": True})["choices"][0]
    return c["token_ids"], c["logprobs"]["token_logprobs"]


def main(base, *loras):
    rows = [row.split("=") for row in loras]
    merged = {os.path.basename(base): base, **{name: m for name, _, m in rows}}
    keys = [(n, i) for i in range(EACH) for n in merged]
    with Server(base, *[part for name, lora, _ in rows for part in ("--lora", f"{name}={lora}")]) as s:
        with concurrent.futures.ThreadPoolExecutor(len(keys)) as pool:
            among = dict(zip(keys, pool.map(lambda k: ask(s, k[1], k[0]), keys)))
    for n, model in merged.items():
        with Server(model) as s:
            for i in range(EACH):
                ids, logprobs = ask(s, i, os.path.basename(model))
                assert ids == among[n, i][0], (n, i, ids, among[n, i][0])
                assert max(abs(a - b) for a, b in zip(logprobs, among[n, i][1])) < 1e-3, (n, i)
    for i in range(EACH):
        assert len({str(among[n, i][1]) for n in merged}) == len(merged)


if __name__ == "__main__":
    main(*sys.argv[1:])
