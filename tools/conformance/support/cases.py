"""What comparisons of random cases share: the command, its options, counting.

A script in the folder above names this folder first in sys.path, in the place of its own, whose files have the names of packages.
"""
import argparse
import collections
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))
counts = collections.Counter()


class Refused(Exception):
    """pesc ended with an error: what it said last."""


def pesc(*args):
    p = subprocess.run([PESC, *map(str, args)], capture_output=True, text=True)
    if p.returncode:
        raise Refused(f"exit {p.returncode}: {p.stderr.strip().splitlines()[-1] if p.stderr.strip() else ''}")
    return p.stdout


def check(case, what, good, detail=""):
    counts["passed" if good else "failed"] += 1
    counts[what, bool(good)] += 1
    if not good:
        print(f"FAILED {case} {what}: {detail}", flush=True)


def options(cases):
    """--cases N from --first N on, of --seed N; a script may add its own."""
    p = argparse.ArgumentParser()
    p.add_argument("--cases", type=int, default=cases)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--seed", type=int, default=31)
    return p


def finish():
    """Prints what was counted; the exit status."""
    for key in sorted(k for k in counts if isinstance(k, tuple)):
        print(*key, counts[key])
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0
