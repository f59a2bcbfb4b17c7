#!/usr/bin/env python3
"""`pesc eval` beside lm-evaluation-harness (Hugging Face backend, batched, its merging of requests on): the same model,
documents and shots on the CPU, in turns. Prints the wall time and the CPU time of each and the ratios; on a machine that others
use too only the CPU times can be compared.

    python bench/eval_peers.py MODEL [--pesc build/pesc] [--threads 2] [--rounds 1] [--dtype float32,bfloat16] [--only mmlu,gsm8k]
                               [--documents N] [--batch N]

MODEL is a directory in Hugging Face layout; PESC_DATA names the folder above bench. The harness is timed without loading
model and data, pesc with both. The best of the rounds counts. Needs lm_eval with torch; nothing is downloaded.
"""
import argparse
import functools
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tools/conformance"))
import eval_text  # noqa: E402  the harness on local data

sys.path.pop(0)  # it has a tokenizers.py, which hides the library of that name

# Tasks, shots, documents of each task, batch of the harness (--batch tries another).
CASES = {"mmlu": (["mmlu_anatomy", "mmlu_world_religions"], 5, 32, 4),
         "hellaswag": (["hellaswag"], 10, 8, 4),
         "gsm8k": (["gsm8k"], 5, 8, 8)}


def harness(model, dtype, threads):
    import torch
    from lm_eval.models.huggingface import HFLM
    torch.set_num_threads(threads)
    return HFLM(pretrained=model, dtype=dtype, device="cpu", batch_size=1)


def time_harness(lm, case, batch):
    import lm_eval
    tasks, shots, documents, _ = case
    for task in tasks:
        eval_text.load_task(task)  # reading the data is not timed
    lm.batch_size_per_gpu = batch
    began, cpu = time.perf_counter(), time.process_time()
    lm_eval.simple_evaluate(model=lm, tasks=tasks, num_fewshot=shots, limit=documents, log_samples=False,
                            task_manager=eval_text.task_manager())
    return time.perf_counter() - began, time.process_time() - cpu


def child_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_pesc(a, case, data):
    """Wall time, CPU time, and the tokens computed of those requested."""
    tasks, shots, documents, _ = case
    began, cpu = time.perf_counter(), child_seconds()
    done = subprocess.run([a.pesc, "eval", a.model, "--tasks", ",".join(tasks), "--shots", str(shots), "--limit", str(documents),
                           "--data-dir", data, "--base-dtype", "f32", "--compute-dtype", "f32", "--threads", str(a.threads),
                           "--json", "-q"], check=True, stdout=subprocess.PIPE)
    seconds = time.perf_counter() - began, child_seconds() - cpu
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
    eval_text.local_dataset = functools.cache(eval_text.local_dataset)
    peers = {d: harness(a.model, d, a.threads) for d in a.dtype.split(",") if d}
    columns = ["pesc f32", *[f"lm-eval {d}" for d in peers]]
    print("| task | documents |", " | ".join(f"{c}, wall and CPU s" for c in columns), "| ratio, wall and CPU | tokens computed |")
    print("|---" * (len(columns) + 4) + "|")
    with tempfile.TemporaryDirectory() as work:
        data = eval_text.data_dir(pathlib.Path(work))
        for name in a.only.split(","):
            tasks, shots, documents, batch = CASES[name]
            case = (tasks, shots, a.documents or documents, batch)
            best = {c: (float("inf"), float("inf")) for c in columns}
            for _ in range(a.rounds):
                seconds, share = time_pesc(a, case, data)
                best["pesc f32"] = min(best["pesc f32"], seconds)
                for d, lm in peers.items():
                    best[f"lm-eval {d}"] = min(best[f"lm-eval {d}"], time_harness(lm, case, a.batch or batch))
            ratios = [min(v[i] for k, v in best.items() if k != "pesc f32") / best["pesc f32"][i] for i in (0, 1)] if peers else []
            print(f"| {name} {shots}-shot | {len(tasks)} x {case[2]} |", " | ".join(f"{w:.1f}, {c:.1f}" for w, c in best.values()),
                  "|", ", ".join(f"{r:.1f}" for r in ratios), f"| {share:.3f} |", flush=True)


main()
