#!/usr/bin/env python3
"""Kills, starves and damages a training run, and sees it end as if nothing had happened.

A tiny PESC run with checkpoints every two steps is the reference. Then the same run is killed at its
N-th file operation (PESC_FAULT=any:N:kill) for N spread over all of them, at random times, and once
more while it resumes; each is resumed until it is done. Weights, moments, counts and metrics must
equal the reference bit for bit (but for tok_s, which a clock gives). The same with failing calls,
short writes, a full disk, and bits flipped in a checkpoint; and kills of a run on preferences, which
computes log-probabilities of the start and keeps them before its first step.

    tests/faults/run_kill.py --pesc build/pesc [--kills 400] [--seed 1]
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tiny_run import Runs, digest


def operations(runs):
    """How many file operations a run makes: the first N at which nothing is killed."""
    low, high = 1, 4096
    while low < high:
        middle = (low + high) // 2
        run = runs.directory()
        rc, _ = runs.finish(run, fault=f"any:{middle}:kill")
        shutil.rmtree(run, ignore_errors=True)
        low, high = (low, middle) if rc == 0 else (middle + 1, high)
    return low - 1


def kill_at_operations(runs, reference, kills, rng):
    total = operations(runs)
    step = max(1, total // kills)
    for n in range(1, total + 1, step):
        run = runs.directory()
        rc, err = runs.finish(run, fault=f"any:{n}:kill")
        if rc != -signal.SIGKILL:
            runs.check(f"kill at operation {n}", False, f"ended with {rc}: {err[-300:]}")
            continue
        if rng.random() < 0.3:  # and again while it resumes
            runs.finish(run, "--resume", fault=f"any:{rng.randint(1, total)}:kill")
        runs.same(f"kill at operation {n}", run, reference)


def kill_at_times(runs, reference, kills, rng):
    run = runs.directory()
    began = time.monotonic()
    runs.finish(run)
    whole = time.monotonic() - began
    shutil.rmtree(run)
    for i in range(kills):
        run = runs.directory()
        p = runs.start(run)
        time.sleep(rng.uniform(0.1, 1.0) * whole)
        p.kill()
        p.communicate()
        runs.same(f"kill at a random time, {i}", run, reference)


def stop_by_signal(runs, reference, times, rng):
    for i in range(times):
        run = runs.directory()
        p = runs.start(run, "--steps", "6")
        time.sleep(rng.uniform(0.02, 0.2))
        p.send_signal(rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]))
        _, err = p.communicate(timeout=60)
        # before the handler stands, the signal's own meaning holds
        fine = p.returncode in (75, 0) or p.returncode < 0
        if fine:
            runs.same(f"signal {i}", run, reference)
        else:
            runs.check(f"signal {i}", False, f"{p.returncode}: {err[-300:]}")


def failing_calls(runs, reference, rng):
    """A call that fails ends the run with a sentence, or is overcome; either way it can go on."""
    cases = [(op, n, what) for op, what in (("write", "ENOSPC"), ("write", "short"), ("fsync", "EIO"),
                                            ("rename", "EIO"), ("reserve", "ENOSPC"), ("open", "EMFILE"),
                                            ("mkdir", "EROFS"), ("link", "EIO"), ("unlink", "EIO"))
             for n in sorted(rng.sample(range(1, 40), 3))]
    for op, n, what in cases:
        run = runs.directory()
        rc, err = runs.finish(run, fault=f"{op}:{n}:{what}")
        if rc not in (0, 3, 4) or (rc and not err.strip()):
            runs.check(f"{op}:{n}:{what}", False, f"ended with {rc}: {err[-300:]}")
        elif rc == 0 and not (run / "latest").exists():
            runs.check(f"{op}:{n}:{what}", False, "done without a checkpoint")
        else:
            runs.same(f"{op}:{n}:{what}", run, reference)


def damaged(runs, reference, times, rng):
    """Flipped bits, cut and missing files in the newest checkpoint: named, and the one before used."""
    whole = runs.directory()
    runs.finish(whole)
    names = sorted(p.name for p in (whole / "checkpoint-6").iterdir())
    for i in range(times):
        run, name = runs.directory(), names[i % len(names)]
        shutil.copytree(whole, run, symlinks=True)
        path = run / "checkpoint-6" / name
        content = bytearray(path.read_bytes())
        how = rng.choice(["flip", "flip", "cut", "gone"])
        if how == "flip":
            at = rng.randrange(len(content))
            content[at] ^= 1 << rng.randrange(8)
            if name == "manifest.json" and chr(content[at]).isspace():
                content[at] ^= 0xFF  # white space is not information
            path.write_bytes(content)
        elif how == "cut":
            path.write_bytes(content[:rng.randrange(len(content))])
        else:
            path.unlink()
        rc, err = runs.finish(run, "--resume")
        told = name in err and "not used" in err
        good = rc == 0 and told and digest(run) == reference
        runs.check(f"{how} {name}", good, f"{rc}: {err[-400:]}")
        shutil.rmtree(run)


def preferences(pesc, root, kills, rng):
    """Another kind of run; its own counts."""
    share = pathlib.Path(__file__).resolve().parent.parent.parent / "share"
    model = root / "sparse"
    craft = [pesc, "craft", str(share / "base"), "-o", str(model), "--experts", "4", "--adapter-dim", "8", "--check", "false", "-q"]
    subprocess.run(craft, check=True, stdout=subprocess.DEVNULL)
    runs = Runs(pesc, root / "preferences", model, share / "pairs.jsonl", ["--objective", "dpo", "--template", "camelidae", "--seq-len", "96"])
    first = runs.directory()
    rc, err = runs.finish(first)
    runs.check("a run on preferences", rc == 0 and (first / "reference.json").exists(), err[-300:])
    if rc == 0:
        kill_at_operations(runs, digest(first), kills, rng)
    return runs


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pesc", required=True)
    ap.add_argument("--kills", type=int, default=400)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    rng = random.Random(args.seed)
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of runs
    with tempfile.TemporaryDirectory(dir=fast) as root:
        runs = Runs(os.path.abspath(args.pesc), pathlib.Path(root))
        first = runs.directory()
        rc, err = runs.finish(first)
        if rc != 0:
            print(f"the reference run gave {rc}: {err}\n0 passed, 1 failed")
            return 1
        reference = digest(first)
        again = runs.directory()
        runs.finish(again)
        runs.check("two runs are the same", digest(again) == reference)
        kill_at_operations(runs, reference, args.kills * 3 // 4, rng)
        kill_at_times(runs, reference, args.kills // 4, rng)
        stop_by_signal(runs, reference, 8, rng)
        failing_calls(runs, reference, rng)
        damaged(runs, reference, 14, rng)
        more = preferences(runs.pesc, pathlib.Path(root), args.kills // 8, rng)
        passed, failed = runs.passed + more.passed, runs.failed + more.failed
    print(f"{passed} passed, {failed} failed")
    return failed != 0


sys.exit(main())
