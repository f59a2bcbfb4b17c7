#!/usr/bin/env python3
"""Whole commands on a device: how fast `pesc perplexity` is beside a prefill, and what share of a run is spent in its steps.

    python3 bench/commands.py [--pesc build/pesc] [--device cuda:0] [--steps 400]

A 135 M shape with random weights. The time to start a process and to load the model is left out of perplexity's rate: it is
the difference between a long text and a short one. A run validates four times, writes two checkpoints and its plots; the
share is the sum of its steps' times in the time of the command.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEQ_LEN, BATCH = 512, 16


def run(pesc, *words):
    """What a command printed as JSON, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run([pesc, *map(str, words), "--json", "-q"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - began


def perplexity_rate(a, model, work):
    words = (ROOT / "docs/architecture.md").read_text() + (ROOT / "docs/numerics.md").read_text()
    found = []
    for times in (4, 40):
        text = work / f"text{times}"
        text.write_text(words * times)
        best = min((run(a.pesc, "perplexity", model, text, "--ctx", SEQ_LEN, "--device", a.device) for _ in range(2)),
                   key=lambda r: r[1])
        found.append((best[0]["tokens"], best[1]))
    (few, short), (many, long) = found
    return (many - few) / (long - short)


def measured_run(a, model, work):
    rng = random.Random(1)
    with open(work / "data.jsonl", "w") as f:
        for _ in range(a.steps * BATCH // 4):
            ids = [rng.randrange(3, 900) for _ in range(SEQ_LEN - 12)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return run(a.pesc, "train", model, "--data", work / "data.jsonl", "-o", work / "run", "--device", a.device,
               "--steps", a.steps, "--batch", BATCH, "--seq-len", SEQ_LEN, "--compute-dtype", "bf16", "--val-split", "0.05",
               "--eval-every", a.steps // 4, "--save-every", a.steps // 2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--steps", type=int, default=400)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        model = work / "model"
        (work / "tokenizer").mkdir()
        shutil.copy(ROOT / "tests/golden/tokenizer/bpe.model", work / "tokenizer/tokenizer.model")
        subprocess.run([a.pesc, "new", str(ROOT / "bench/shapes/135m-pesc-256.json"), "-o", str(model), "--tokenizer",
                        str(work / "tokenizer"), "-q"], check=True, stdout=subprocess.DEVNULL)
        bench, _ = run(a.pesc, "bench", model, "--device", a.device, "--decode-tokens", 8)
        prefill = bench["prefill"]["best"]
        rate = perplexity_rate(a, model, work)
        print(f"prefill {prefill:.0f} tokens/s, perplexity {rate:.0f} tokens/s, {100 * rate / prefill:.0f} %", flush=True)
        result, seconds = measured_run(a, model, work)
        parts = {name: s for name, s in result["seconds"].items() if name != "total"}
        inside = parts.pop("steps")
        print(f"run of {a.steps} steps: {seconds:.1f} s, {inside:.1f} s of them in steps, {100 * inside / seconds:.0f} %; "
              + ", ".join(f"{name} {s:.1f} s" for name, s in parts.items()))


if __name__ == "__main__":
    main()
