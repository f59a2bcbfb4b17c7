#!/usr/bin/env python3
"""What a step of preference tuning takes beside one of instruction tuning over the same tokens.

    python3 bench/preferences.py [--pesc build/pesc] [--shape bench/shapes/29m-pesc.json] [--objective dpo] [--method pesc] [--rounds 3]

A model of the shape with random weights is tuned on random pairs, and on the same sequences as instructions: the same prompts, answers and
targets, in as many steps. The two run in turns. Printed are the median and the least time of a step of each, and the ratios; the log-probabilities
of the reference, which are computed once before the first step, are no part of a step.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write_data(work, a):
    """Pairs and, as two records each, the same sequences as instructions."""
    rng = random.Random(1)

    def ids(n):
        return [rng.randrange(3, 900) for _ in range(n)]

    with open(work / "pairs.jsonl", "w") as pairs, open(work / "instructions.jsonl", "w") as instructions:
        for _ in range(a.steps * a.pairs):
            prompt, answers = ids(a.prompt), [ids(a.answer), ids(a.answer)]
            print(json.dumps({"prompt_ids": prompt, "chosen_ids": answers[0], "rejected_ids": answers[1]}), file=pairs)
            for answer in answers:
                print(json.dumps({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}), file=instructions)


def step_times(a, work, objective):
    """Seconds of each step but the first."""
    sft = objective == "sft"
    data, batch = (work / "instructions.jsonl", 2 * a.pairs) if sft else (work / "pairs.jsonl", a.pairs)
    run = work / objective
    subprocess.run([a.pesc, "train", work / "model", "--data", data, "-o", run, "--overwrite", "--objective", objective, "--method", a.method,
                    "--batch", str(batch), "--steps", str(a.steps), "--seq-len", str(a.prompt + a.answer), "--micro-tokens", str(a.micro_tokens),
                    "--save-every", "0", "--shuffle", "false", "--device", a.device, "--threads", str(a.threads), "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(run / "metrics.jsonl")]
    return [(b["tokens"] - c["tokens"]) / b["tok_s"] for c, b in zip(rows, rows[1:])]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--shape", default=str(ROOT / "bench/shapes/29m-pesc.json"))
    p.add_argument("--objective", default="dpo", choices=["dpo", "ipo", "orpo", "simpo"])
    p.add_argument("--method", default="pesc")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--pairs", type=int, default=8, help="of a step")
    p.add_argument("--prompt", type=int, default=64, help="tokens")
    p.add_argument("--answer", type=int, default=64, help="tokens")
    p.add_argument("--micro-tokens", type=int, default=2048)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    times = {"sft": [], a.objective: []}
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        subprocess.run([a.pesc, "new", a.shape, "-o", work / "model", "-q"], check=True, stdout=subprocess.DEVNULL)
        write_data(work, a)
        for _ in range(a.rounds):
            for objective, all_times in times.items():
                all_times += step_times(a, work, objective)
    middle, least = ({k: f(t) for k, t in times.items()} for f in (statistics.median, min))
    for k in times:
        print(f"{k}: {len(times[k])} steps of {2 * a.pairs * (a.prompt + a.answer)} tokens, median {1e3 * middle[k]:.1f} ms, least {1e3 * least[k]:.1f} ms")
    print(f"{a.objective} / sft: median {middle[a.objective] / middle['sft']:.3f}, least {least[a.objective] / least['sft']:.3f}")


if __name__ == "__main__":
    main()
