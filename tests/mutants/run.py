#!/usr/bin/env python3
"""Builds pesc with one fault at a time and sees the tests notice each of them.

A row of tests/mutants/*.toml is one seeded fault:

    [[mutant]]
    id = "topk-ties"                            unique
    file = "src/backend/cpu/ops/routing.c"
    old = 'a > b'                               occurs exactly once in the file
    new = 'a >= b'
    test = "ops/run topk*"                      a program and the tests of it; or "bats FILE -f REGEX", "faults/run_power.py ..."
    why = "of equal scores the first wins"

Every worker has a copy of the tree and of the objects that `make` built. For each row it changes the one file, builds what the
test needs, and runs the test, which must fail; then file and objects are put back. First every test is run without a fault, where
it must pass. The last line is `N killed, M survived`.

    tests/mutants/run.py [--only REGEX] [--jobs N] [--limit SECONDS]        BUILD=dir: what was built
    tests/mutants/run.py --file src/model/moe.c                             lists the guarded lines of a file and their tests
"""
import argparse
import concurrent.futures
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = ("Makefile", "include", "src", "tests", "share", "tools")
FIELDS = {"id", "file", "old", "new", "test", "why"}


def rows(only):
    """The rows asked for, and the sentences that say what is wrong with them."""
    table, wrong, seen = [], [], set()
    for path in sorted((ROOT / "tests/mutants").glob("*.toml")):
        table += tomllib.loads(path.read_text())["mutant"]
    table = [r for r in table if re.search(only, r.get("id", "") + " " + r.get("file", ""))]
    for row in table:
        name = row.get("id", "?")
        if set(row) != FIELDS:
            wrong.append(f"{name}: has the fields {sorted(row)}, expected {sorted(FIELDS)}")
            continue
        if name in seen:
            wrong.append(f"{name}: stands twice")
        seen.add(name)
        source = ROOT / row["file"]
        found = source.read_text().count(row["old"]) if source.is_file() else -1
        if found != 1:
            wrong.append(f"{name}: {row['file']}: " + ("does not exist" if found < 0 else f"has the old text {found} times, expected once"))
        if source.suffix not in (".c", ".h") or row["old"] == row["new"]:
            wrong.append(f"{name}: changes nothing that a .c or .h file holds")
    return table, wrong


def guarded(name):
    """Prints the rows of a file in the order of the lines they change."""
    table = [r for r in rows("")[0] if pathlib.PurePath(r["file"]).match(name)]
    for row in table:
        text = (ROOT / row["file"]).read_text()
        row["line"] = 1 + text[:text.find(row["old"].lstrip("\n"))].count("\n")
    for row in sorted(table, key=lambda r: (r["file"], r["line"])):
        print(f"{row['file']}:{row['line']}  {row['id']}\n    {row['why']}\n    {shlex.join(command(row['test']))}")
    if not table:
        print(f"no row of tests/mutants/*.toml changes {name}; its tests are named in tests/README.md")
    return not table


def target(test):
    """What make must build for a test."""
    first = test.split()[0]
    if first == "faults/run_sandbox.py":
        return "build/tests/faults/sandbox_programs"
    return "build/pesc" if first == "bats" or first.startswith("faults/") else f"build/tests/{first}"


def command(test):
    words = shlex.split(test)
    if words[0] == "bats":
        return words
    if words[0].startswith("faults/"):
        return ["python3", f"tests/{words[0]}", "--pesc", "build/pesc", *words[1:]]
    return ["env", f"PESC_TEST_FILTER={words[1] if words[1:] else '*'}", f"build/tests/{words[0]}"]


class Copy:
    """A tree of its own to change and build in."""

    def __init__(self, top, build):
        self.top = top
        top.mkdir()
        for name in COPIED:
            subprocess.run(["cp", "-a", str(ROOT / name), str(top / name)], check=True)
        # the objects with their times, so that make builds only what changes
        for o in list(build.rglob("src/**/*.[od]")) + list(build.rglob("tests/**/*.[od]")):
            inside = o.relative_to(build)
            if inside.parts[0] in ("src", "tests"):
                (top / "build" / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(o, top / "build" / inside)

    def run(self, words, limit):
        """(exit code or None when it ran out of time, output)"""
        env = dict(os.environ, PESC=str(self.top / "build/pesc"), BUILD="build", TMPDIR=str(self.top))
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            env.pop(name, None)
        with open(self.top / "log", "w+") as log:
            p = subprocess.Popen(words, cwd=self.top, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                 start_new_session=True)
            try:
                code = p.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            if code is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
            log.seek(0)
            return code, log.read()

    def make(self, test):
        return self.run(["make", "-s", "-j1", "MAKELEVEL=1", "NVCC=", "WARN=-w", "OPT=-O1", target(test)], 600)

    def objects(self, file):
        """Those that are compiled of a .c file, or of the files that include a header."""
        if file.endswith(".h"):
            users = [d for d in (self.top / "build").rglob("*.d") if file in d.read_text().split()]
            return [d.with_suffix(".o") for d in users]
        stem = self.top / "build" / file.removesuffix(".c")
        return [*stem.parent.glob(stem.name + ".o"), *stem.parent.glob(stem.name + ".*.o")]

    def baseline(self, test, limit):
        code, out = self.make(test)
        if code == 0:
            code, out = self.run(command(test), limit)
        if code == 0 and re.search(r"^1\.\.0$|^\[==========\] 0 test", out, re.M) and not re.search(r"^(ok|\[       OK)", out, re.M):
            return f"{test}: names no test"
        return None if code == 0 else f"{test}: fails without a fault\n{out[-2000:]}"

    def mutant(self, row, limit):
        """("killed" | "survived" | what is wrong, seconds)"""
        began, source = time.monotonic(), self.top / row["file"]
        kept = self.top / "kept"
        kept.mkdir()
        shutil.copy2(source, kept / source.name)
        objects = self.objects(row["file"])
        for i, o in enumerate(objects):
            shutil.copy2(o, kept / f"{i}.o")
        source.write_text(source.read_text().replace(row["old"], row["new"]))
        code, out = self.make(row["test"])
        if code != 0:
            verdict = f"does not build\n{out[-2000:]}"
        else:
            code, out = self.run(command(row["test"]), limit)
            verdict = "survived" if code == 0 else "killed"
        shutil.copy2(kept / source.name, source)
        for i, o in enumerate(objects):
            shutil.copy2(kept / f"{i}.o", o)
        shutil.rmtree(kept)
        # linked with the fault; to be made again of the objects that were put back
        (self.top / "build/libpesc.a").unlink(missing_ok=True)
        (self.top / target(row["test"])).unlink(missing_ok=True)
        return verdict, time.monotonic() - began


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--only", default="", help="rows whose id or file matches this regular expression")
    ap.add_argument("--file", help="builds nothing: the guarded lines of this source file, each with what it keeps true and the test that fails without it")
    ap.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--limit", type=int, default=120, help="seconds that a test may take; one that takes longer has failed")
    args = ap.parse_args()
    if args.file:
        return guarded(args.file)
    build = (ROOT / os.environ.get("BUILD", "build")).resolve()
    table, wrong = rows(args.only)
    if wrong:
        print("\n".join(wrong))
    counts = {"killed": 0, "survived": 0}
    with tempfile.TemporaryDirectory(prefix="pesc-mutants-") as top, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        free = queue.SimpleQueue()
        for copy in pool.map(lambda i: Copy(pathlib.Path(top) / str(i), build), range(args.jobs)):
            free.put(copy)

        def borrow(work, *what):
            copy = free.get()
            try:
                return getattr(copy, work)(*what, args.limit)
            finally:
                free.put(copy)

        tests = sorted({r["test"] for r in table})
        for sentence in filter(None, pool.map(lambda t: borrow("baseline", t), tests)):
            print(sentence)
            wrong.append(sentence)
        table = [r for r in table if not any(w.startswith((r["id"] + ":", r["test"] + ":")) for w in wrong)]
        for row, (verdict, seconds) in zip(table, pool.map(lambda r: borrow("mutant", r), table)):
            if verdict in counts:
                counts[verdict] += 1
            else:
                wrong.append(row["id"])
            print(f"{verdict.split(chr(10))[0]:14} {seconds:6.1f} s  {row['id']:32} {row['test']}", flush=True)
            if verdict == "survived":
                print(f"    {row['why']}\n    {row['file']}: {row['old']!r} -> {row['new']!r}", flush=True)
            elif verdict != "killed":
                print(verdict.split("\n", 1)[1], flush=True)
    if wrong:
        print(f"{len(wrong)} rows or tests are wrong")
    print(f"{counts['killed']} killed, {counts['survived']} survived")
    return bool(wrong or counts["survived"])


sys.exit(main())
