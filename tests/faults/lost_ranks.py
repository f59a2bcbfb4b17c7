#!/usr/bin/env python3
"""Kills and stops random ranks of a run at random times, each time resuming it with another number of processes.

    tests/faults/lost_ranks.py --pesc build/pesc --kills 200 --stops 200 --jobs 8

With --jobs the faults are divided among as many runs of their own, at the same time. After each fault all other processes must have left within a minute, with exit code 1 and a sentence that names the
lost rank, and the newest checkpoint must be whole. In the end the run must equal one that was never interrupted.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

GOLDEN = pathlib.Path(__file__).parent.parent / "golden/train/pesc-a"
SILENCE = 3  # seconds after which a stopped rank counts as lost
MEET = 10  # seconds in which all must have met
LIMIT = 60


def options(run, steps):
    return ["train", str(GOLDEN / "model"), "--data", str(GOLDEN / "data.jsonl"), "-o", str(run), "--steps", str(steps),
            "--batch", "8", "--micro-tokens", "32", "--seq-len", "32", "--lora-r", "2", "--threads", "1", "--save-every", "10",
            "--optimizer", "adamw8", "--warmup-steps", "0", "--log-every", "1", "-q", "--strict", "--resume"]


def start(pesc, run, steps, size):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PESC_SILENCE=str(SILENCE), PESC_MEET=str(MEET))
    return [subprocess.Popen([pesc, *options(run, steps)], env=dict(env, RANK=str(r), LOCAL_RANK=str(r)),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for r in range(size)]


def trial(pesc, run, steps, size, kind):
    """One fault. Returns the seconds until the others were gone, or None when the run had ended before."""
    ranks = start(pesc, run, steps, size)
    lost = random.randrange(size)
    time.sleep(random.uniform(0.0, 2.0))
    if all(p.poll() is not None for p in ranks):
        return None
    began = time.monotonic()
    ranks[lost].send_signal(kind)
    errors = {}
    for r, p in enumerate(ranks):
        if r == lost:
            continue
        try:
            errors[r] = p.communicate(timeout=max(1, began + LIMIT - time.monotonic()))[1]
        except subprocess.TimeoutExpired:
            for q in ranks:
                q.kill()
            raise AssertionError(f"rank {r} is still there {LIMIT} s after rank {lost} of {size} got {kind.name}")
    seconds = time.monotonic() - began
    ranks[lost].kill()
    ranks[lost].communicate()
    codes = {r: ranks[r].returncode for r in errors}
    if all(c == 0 for c in codes.values()):
        return None
    for r, text in errors.items():
        assert codes[r] == 1, f"rank {r} ended with {codes[r]}: {text}"
        assert re.search(rf"rank {lost} |no process answers there", text), f"rank {r}, not {lost}: {text}"
    return seconds


def numbers(run):
    return [re.sub(r'"(tok_s|mem_bytes|comm_s|comm_hidden)":[^,]*,', "", line) for line in open(run / "metrics.jsonl")]


def compare(a, b):
    assert numbers(a) == numbers(b), "the metrics differ"
    for name in ("adapter_model", "trained", "optimizer"):
        one, two = ((r / "latest" / f"{name}.safetensors").read_bytes() for r in (a, b))
        assert one == two, f"{name} differs"


def job(pesc, kills, stops, steps, seed):
    """All faults of one run. Returns the last step and the longest times until the others were gone."""
    random.seed(seed)
    work = pathlib.Path(tempfile.mkdtemp())
    left = {signal.SIGKILL: kills, signal.SIGSTOP: stops}
    slowest = {k: 0.0 for k in left}
    run = work / "run"
    while any(left.values()):
        kind = random.choice([k for k in left if left[k]])
        seconds = trial(pesc, run, steps, random.choice([2, 4]), kind)
        if seconds is None:
            raise AssertionError("the run ended before the faults did; give more --steps")
        left[kind] -= 1
        slowest[kind] = max(slowest[kind], seconds)
    last = int(os.readlink(run / "latest").rsplit("-", 1)[1]) + 10
    for q in start(pesc, run, last, 2):
        _, errors = q.communicate()
        assert q.returncode == 0, errors
    subprocess.run([pesc, *options(work / "whole", last)], check=True, stdout=subprocess.DEVNULL)
    compare(run, work / "whole")
    shutil.rmtree(work)
    return last, slowest[signal.SIGKILL], slowest[signal.SIGSTOP]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", required=True)
    p.add_argument("--kills", type=int, default=20)
    p.add_argument("--stops", type=int, default=20)
    p.add_argument("--steps", type=int, default=1000000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1, help="runs at the same time, each of up to 4 processes")
    a = p.parse_args()
    share = lambda n, j: n * (j + 1) // a.jobs - n * j // a.jobs
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        jobs = [pool.submit(job, os.path.abspath(a.pesc), share(a.kills, j), share(a.stops, j), a.steps, a.seed + j)
                for j in range(a.jobs)]
        results = [j.result() for j in jobs]
    steps, killed, stopped = (max(column) for column in zip(*results))
    print(f"{a.kills} kills, {a.stops} stops in {a.jobs} runs up to step {steps}; the others were gone after at most {killed:.1f} s "
          f"and {stopped:.1f} s ({SILENCE} s of silence); each run equals one that was never interrupted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
