#!/usr/bin/env python3
"""Judges the canonical solutions of HumanEval and MBPP in the sandbox, and forged ones.

    make build/tests/faults/sandbox_programs
    tests/faults/sandbox_canonical.py --data DIR [--mode A] [--jobs 2] [--forgeries] [--limit N]

DIR/humaneval/test.jsonl and DIR/mbpp/test.jsonl are the published data sets (plain, .gz or .xz). All
canonical solutions must pass by both rules, but for tasks with set-up code: the reference rule leaves it
out. With --forgeries every forgery of sandbox_attempts.py stands in for every solution: none may pass.
"""
import argparse
import gzip
import json
import lzma
import pathlib
import subprocess
import sys

import sandbox_attempts

OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def rows(folder, task):
    for suffix, opener in OPENERS.items():
        path = pathlib.Path(folder, task, "test.jsonl" + suffix)
        if path.exists():
            with opener(path, "rt", encoding="utf-8") as f:
                return [json.loads(line) for line in f]
    sys.exit(f"{folder}/{task}/test.jsonl: not found, neither plain nor .gz or .xz")


def programs(folder):
    """(name, program, name of the function under test, whether it has set-up code)"""
    for r in rows(folder, "humaneval"):
        yield r["task_id"], {"kind": "humaneval", "completion": r["canonical_solution"], "prompt": r["prompt"],
                             "test": r["test"], "entry_point": r["entry_point"]}, r["entry_point"], False
    for r in rows(folder, "mbpp"):
        if 11 <= r["task_id"] <= 510:
            test = r["test_list"][0]
            name = test[len("assert"):].split("(")
            name = next(n.split()[-1] for n in name if n.split() and n.split()[-1].isidentifier() and n.strip() not in ("set", "sorted"))
            yield f"MBPP/{r['task_id']}", {"kind": "mbpp", "completion": r["code"], "test_list": r["test_list"],
                                             "setup": r["test_setup_code"]}, name, \
                bool(r["test_setup_code"])


def judge(binary, cases, options):
    lines = "".join(json.dumps(c) + "\n" for c in cases)
    done = subprocess.run([binary, *options], input=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    out = [json.loads(line) for line in done.stdout.splitlines()]
    return out[0]["sandbox"], out[1:]


def canonical(binary, tasks, options):
    about, verdicts = judge(binary, [t[1] for t in tasks], options)
    print(about)
    bad = 0
    for task in ("HumanEval", "MBPP"):
        part = [(t, v) for t, v in zip(tasks, verdicts) if t[0].startswith(task)]
        print(f"{task}: {sum(v['passed'] for _, v in part)} of {len(part)} pass,"
              f" {sum(v['reference'] for _, v in part)} by the reference rule")
        for (name, _, _, setup), v in part:
            if v["passed"] and v["reference"]:
                continue
            print(f"  {name}: {v['reason'] or 'fails by the reference rule only'}{' (has set-up code)' if setup else ''}")
            bad += not (v["passed"] and setup)
    print("values that are not literals:", " ".join(t[0] for t, v in zip(tasks, verdicts) if v["not_literal"]) or "none")
    return bad


def forged(binary, tasks, options):
    """How many forgeries are accepted. Each is put at the place of the solution."""
    bad = 0
    for title, code in sandbox_attempts.FORGERIES:
        cases = []
        for _, program, name, _ in tasks:
            stub = "    pass\n\n" if program["kind"] == "humaneval" else ""
            cases.append({**program, "completion": stub + code.replace("@NAME@", name)})
        _, verdicts = judge(binary, cases, options)
        accepted = [t[0] for t, v in zip(tasks, verdicts) if v["passed"]]
        print(f"{title}: {len(accepted)} of {len(tasks)} accepted, {sum(v['reference'] for v in verdicts)} by the"
              f" reference rule {' '.join(accepted)}", flush=True)
        bad += len(accepted)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--pesc", default="build/pesc")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--forgeries", action="store_true")
    parser.add_argument("--task", default="", help="HumanEval or MBPP only")
    parser.add_argument("--limit", type=int, help="the first N tasks only")
    args = parser.parse_args()
    binary = pathlib.Path(args.pesc).resolve().parent / "tests/faults/sandbox_programs"
    tasks = [t for t in programs(args.data) if t[0].startswith(args.task)][:args.limit]
    run = forged if args.forgeries else canonical
    return run(binary, tasks, [f"mode={args.mode}", f"jobs={args.jobs}"]) != 0


if __name__ == "__main__":
    sys.exit(main())
