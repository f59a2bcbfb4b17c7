#!/usr/bin/env python3
"""Kills an evaluation with SIGKILL, lets it go on, and compares its files with those of one that was never interrupted.

The embedded base answers multiple choice, generated text and programs on data made here. Half of the kills come at a
random time, half at a random file operation (PESC_FAULT=any:N:kill); a third of the evaluations are killed a second time
while they go on. results.json, evaluation.json, every samples_*.jsonl and the printed table must be the same bytes.

    tests/faults/run_kill_eval.py --pesc build/pesc [--kills 100] [--seed 1]      (make test KILLS=100)
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BASE = pathlib.Path(__file__).resolve().parents[2] / "share/base"
OPERATIONS = 130  # file operations of such an evaluation
WORDS = "the sum of two and one is three so how many are left in a box".split()


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_data(root, rng):
    def text(n):
        return " ".join(rng.choice(WORDS) for _ in range(n))
    for split in "train", "test":
        write_rows(root / f"arc_easy/{split}.jsonl", [
            {"question": text(6) + "?", "answerKey": "ABC"[i % 3], "choices": {"text": [text(3) for _ in range(3)], "label": list("ABC")}}
            for i in range(24)])
    write_rows(root / "nq_open/validation.jsonl", [{"question": text(5), "answer": [text(1)]} for _ in range(16)])
    write_rows(root / "nq_open/train.jsonl", [{"question": text(5), "answer": [text(1)]} for _ in range(8)])
    write_rows(root / "mbpp/test.jsonl", [
        {"task_id": 11 + i, "text": text(4), "code": "def f(x): return x", "test_list": [f"assert f({i}) == {i}"] * 3} for i in range(6)])


class Evaluations:
    def __init__(self, pesc, root):
        self.pesc, self.root, self.n = pesc, root, 0
        self.passed = self.failed = self.killed = self.continued = 0

    def directory(self):
        self.n += 1
        return self.root / f"out{self.n}"

    def start(self, out, fault=None):
        env = {k: v for k, v in os.environ.items() if k != "PESC_FAULT"}
        if fault:
            env["PESC_FAULT"] = fault
        return subprocess.Popen([self.pesc, "eval", BASE, "--tasks", "arc_easy,nq_open,mbpp", "--shots", "1", "--data-dir",
                                 self.root / "bench", "-o", out, "-q", "--batch", "4", "--threads", "1"],
                                env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, out, fault=None):
        p = self.start(out, fault)
        table, err = p.communicate(timeout=120)
        return p.returncode, table, err

    def files(self, out):
        return {p.name: p.read_bytes() for p in out.iterdir() if p.suffix in (".json", ".jsonl")}

    def judged(self, out):
        return sum(len(p.read_bytes().splitlines()) for p in out.glob("samples_*.jsonl")) if out.exists() else 0

    def check(self, what, good, detail=""):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED {what}: {detail}", flush=True)

    def same(self, what, out, reference):
        """Ends the evaluation, then compares."""
        whole = sum(text.count(b"\n") for name, text in reference[1].items() if name.endswith(".jsonl"))
        self.continued += 0 < self.judged(out) < whole
        rc, table, err = self.finish(out)
        if rc != 0:
            return self.check(what, False, f"the evaluation gave {rc}: {err[-400:]}")
        files = self.files(out)
        differs = sorted(name for name in reference[1].keys() | files.keys() if files.get(name) != reference[1].get(name))
        self.check(what, table == reference[0] and not differs, f"differs: {differs or 'the table'}")
        shutil.rmtree(out)


def kill_at_time(runs, out, seconds):
    p = runs.start(out)
    time.sleep(seconds)
    p.kill()
    p.communicate()
    return p.returncode


def kill(runs, reference, seconds, number, rng):
    out = runs.directory()
    for _ in range(1 if rng.random() < 0.67 else 2):
        if number % 2:
            code, _, _ = runs.finish(out, f"any:{rng.randint(1, OPERATIONS)}:kill")
        else:
            code = kill_at_time(runs, out, rng.uniform(0, seconds))
        runs.killed += code == -signal.SIGKILL
    runs.same(f"kill {number}", out, reference)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pesc", required=True)
    ap.add_argument("--kills", type=int, default=int(os.environ.get("KILLS", "8")))
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    rng = random.Random(args.seed)
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as name:
        root = pathlib.Path(name)
        make_data(root / "bench", rng)
        runs = Evaluations(os.path.abspath(args.pesc), root)
        out = runs.directory()
        began = time.monotonic()
        rc, table, err = runs.finish(out)
        seconds = time.monotonic() - began
        if rc == 4 and "sandbox" in err:
            print(f"SKIPPED {err.strip()}\n0 passed, 0 failed")
            return 0
        if rc != 0:
            print(f"the reference evaluation gave {rc}: {err}\n0 passed, 1 failed")
            return 1
        reference = table, runs.files(out)
        runs.check("all tasks are there", sum(n.startswith("samples_") for n in reference[1]) == 3, sorted(reference[1]))
        for number in range(args.kills):
            kill(runs, reference, seconds, number, rng)
        runs.check("evaluations went on from what was there", runs.continued > 0)
        print(f"{args.kills} evaluations of {seconds:.2f} s, killed {runs.killed} times; {runs.continued} left a part of the samples")
    print(f"{runs.passed} passed, {runs.failed} failed")
    return runs.failed != 0


sys.exit(main())
