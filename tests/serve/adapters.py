#!/usr/bin/env python3
"""One model with several LoRAs, each a model name of its own (--lora NAME=DIR).

    tests/serve/adapters.py BASE ADAPTER [RUN]         RUN: a run that trained ADAPTER, which must answer like it

Requests for different names run in the same batch; every answer is the one that the name gives alone, and the one that
the base opened with that LoRA gives."""
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile

from running import Server


def ask(s, i, model):
    prompt = [(i * 7 + k * 5 + 3) % 67 for k in range(9 + i)]
    answer = s.json("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0.7, "seed": i,
                                        "ignore_eos": True, "return_token_ids": True, "cache_salt": None})
    assert answer["model"] == model
    return answer["choices"][0]["token_ids"]


def main(base, adapter, run=None):
    with tempfile.TemporaryDirectory() as name:
        other = pathlib.Path(name) / "other"
        shutil.copytree(adapter, other)
        config = json.loads((other / "adapter_config.json").read_text())
        config["lora_alpha"] *= 2
        (other / "adapter_config.json").write_text(json.dumps(config))
        names = ["base", "one", "two"]
        if run:
            with Server(base, "--lora", f"one={adapter}", "--lora", f"run={run}") as s:
                assert [ask(s, i, "one") for i in range(6)] == [ask(s, i, "run") for i in range(6)]
        with Server(base, "--lora", f"one={adapter}", "--lora", f"two={other}") as s:
            assert [m["id"] for m in s.json("/v1/models")["data"]] == names
            alone = {(n, i): ask(s, i, n) for n in names for i in range(6)}
            with concurrent.futures.ThreadPoolExecutor(18) as pool:
                keys = sorted(alone, key=lambda k: k[1])
                among = dict(zip(keys, pool.map(lambda k: ask(s, k[1], k[0]), keys)))
            assert among == alone
            s.json("/v1/completions", {"model": "three", "prompt": [1], "max_tokens": 1}, status=404)
        for n, lora in zip(names, (None, adapter, other)):
            with Server(base, *(["--lora", str(lora)] if lora else [])) as s:
                assert [ask(s, i, "base") for i in range(6)] == [alone[n, i] for i in range(6)], n
        assert all(alone["base", i] != alone["one", i] != alone["two", i] for i in range(6))


if __name__ == "__main__":
    main(*sys.argv[1:])
