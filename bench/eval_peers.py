#!/usr/bin/env python3
"""`pesc eval` beside lm-evaluation-harness (Hugging Face backend, batched, its merging of requests on): the same model,
documents and shots on the CPU, in turns; seconds of each and their ratio.

    python bench/eval_peers.py MODEL [--pesc build/pesc] [--threads 2] [--rounds 1] [--dtype float32,bfloat16] [--only mmlu,gsm8k]
                               [--documents N] [--batch N]

MODEL is a directory in Hugging Face layout; PESC_DATA names the folder above bench. The harness is timed without loading the
model, pesc with it. The best of the rounds counts. Needs lm_eval with torch; nothing is downloaded.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tools/conformance"))
import eval_text  # noqa: E402  the harness on local data

sys.path.pop(0)  # it has a tokenizers.py, which hides the library of that name

# Tasks, shots, documents of each task, batch of the harness: the fastest of 1, 2, 4, 8 and 16 on the CPU this was written on.
CASES = {"mmlu": (["mmlu_anatomy", "mmlu_college_physics", "mmlu_world_religions"], 5, 40, 4),
         "hellaswag": (["hellaswag"], 10, 16, 4),
         "gsm8k": (["gsm8k"], 5, 16, 16)}


def harness(model, dtype, threads):
    import torch
    from lm_eval.models.huggingface import HFLM
    torch.set_num_threads(threads)
    return HFLM(pretrained=model, dtype=dtype, device="cpu", batch_size=1)


def time_harness(lm, case, batch):
    import lm_eval
    tasks, shots, documents, _ = case
    eval_text.prepare_harness()
    lm.batch_size_per_gpu = batch
    began = time.perf_counter()
    lm_eval.simple_evaluate(model=lm, tasks=tasks, num_fewshot=shots, limit=documents, log_samples=False,
                            task_manager=eval_text.task_manager())
    return time.perf_counter() - began


def time_pesc(a, case, data):
    """Seconds, and the tokens computed of those requested."""
    tasks, shots, documents, _ = case
    began = time.perf_counter()
    done = subprocess.run([a.pesc, "eval", a.model, "--tasks", ",".join(tasks), "--shots", str(shots), "--limit", str(documents),
                           "--data-dir", data, "--base-dtype", "f32", "--compute-dtype", "f32", "--threads", str(a.threads),
                           "--json", "-q"], check=True, stdout=subprocess.PIPE)
    seconds = time.perf_counter() - began
    tokens = json.loads(done.stdout)["tokens"]
    return seconds, tokens["computed"] / tokens["requested"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--dtype", default="float32", help="of the harness, with commas")
    p.add_argument("--only", default=",".join(CASES))
    p.add_argument("--documents", type=int, help="of each task")
    p.add_argument("--batch", type=int, help="of the harness")
    a = p.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    peers = {d: harness(a.model, d, a.threads) for d in a.dtype.split(",") if d}
    columns = ["pesc f32", *[f"lm-eval {d}" for d in peers]]
    print("| task | documents |", " | ".join(f"{c}, s" for c in columns), "| ratio | tokens computed |\n" + "|---" * (len(columns) + 4) + "|")
    with tempfile.TemporaryDirectory() as work:
        data = eval_text.data_dir(pathlib.Path(work))
        for name in a.only.split(","):
            tasks, shots, documents, batch = CASES[name]
            case = (tasks, shots, a.documents or documents, batch)
            best = dict.fromkeys(columns, float("inf"))
            for _ in range(a.rounds):
                seconds, share = time_pesc(a, case, data)
                best["pesc f32"] = min(best["pesc f32"], seconds)
                for d, lm in peers.items():
                    best[f"lm-eval {d}"] = min(best[f"lm-eval {d}"], time_harness(lm, case, a.batch or batch))
            ratio = min(v for k, v in best.items() if k != "pesc f32") / best["pesc f32"] if peers else float("nan")
            print(f"| {name} {shots}-shot | {len(tasks)} x {case[2]} |", " | ".join(f"{v:.1f}" for v in best.values()),
                  f"| {ratio:.1f} | {share:.3f} |", flush=True)


main()
