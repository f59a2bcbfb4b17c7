#!/usr/bin/env python3
"""Training from a file that is larger than one wants in memory: files of several sizes, made on the
spot from the records of share/train.jsonl, each trained on for a few steps, packed and shuffled. What
a run takes must not grow with the file but for half a byte of index a record; what it needs to start
is one reading of the file.

    python bench/jsonl.py [--pesc build/pesc] [--gb 0.1,10] [--dir DIR] [--steps 20]
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIECE = 64 << 20


def make(path, size):
    """At least `size` bytes of whole records; returns how many records."""
    records = (ROOT / "share" / "train.jsonl").read_bytes()
    piece = records * (PIECE // len(records))
    wanted, lines = -(-size // len(piece)), piece.count(b"\n")
    with open(path, "wb") as f:
        for _ in range(wanted):
            f.write(piece)
    return wanted * lines


def run(binary, data, out, steps):
    """Seconds and peak bytes of a run, and its seconds before the first step."""
    began = time.time()
    child = subprocess.Popen([binary, "train", str(ROOT / "share" / "base"), "-o", str(out), "--data", str(data),
                              "--method", "lora", "--steps", str(steps), "--batch", "8", "--seq-len", "256",
                              "--save-every", "0", "-q"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{data}: exit {child.returncode}")
    took = time.time() - began
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    before = [0] + [m["tokens"] for m in lines]
    training = sum((m["tokens"] - b) / m["tok_s"] for m, b in zip(lines, before))
    return took - training, training / len(lines), used.ru_maxrss << 10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--gb", default="0.1,10", help="sizes of the files, in 10^9 bytes")
    p.add_argument("--dir", default=None, help="where the files are made; they are removed again")
    p.add_argument("--steps", type=int, default=20)
    a = p.parse_args()
    print("| file, GB | records | before and after the steps, s | a step, ms | peak memory, MiB |\n" + "|---" * 5 + "|")
    for size in (int(float(g) * 1e9) for g in a.gb.split(",")):
        with tempfile.TemporaryDirectory(dir=a.dir) as work:
            if shutil.disk_usage(work).free < size * 1.1:
                raise SystemExit(f"{work}: {size / 1e9:.1f} GB do not fit on the disk")
            data = pathlib.Path(work, "data.jsonl")
            records = make(data, size)
            around, step, peak = run(a.pesc, data, pathlib.Path(work, "run"), a.steps)
            print(f"| {data.stat().st_size / 1e9:.2f} | {records:,} | {around:.1f} | {step * 1e3:.1f} | {peak / (1 << 20):.0f} |",
                  flush=True)


main()
