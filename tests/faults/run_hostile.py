#!/usr/bin/env python3
"""Hostile files against the reader contract.

    tests/faults/run_hostile.py --pesc build/pesc [--keep DIR] [--only WORD] [--list]

Every format has a module hostile_<format>.py beside this one with one function

    cases(dir) -> iterable of (name, path, argv, exit_code, sentence_part)

`dir` is an empty directory of its own. A case writes its file, then yields: `name` for the report,
`path` the hostile file or directory (its size sets the limits), `argv` what follows `pesc` on the
command line, `exit_code` and a part of the sentence that must stand on standard error ("" when the
exit code is 0). The generator resumes after the case has run, so it may remove what it wrote.

The contract: the exit code and the sentence are exact; the message is one line (notes apart), and
neither control characters nor bidi marks reach the terminal; no signal; at most 1 s plus 1 s for each 100 MB; at most
the file's size plus 64 MiB of memory above what `pesc --version` itself takes. Python's standard
library only; files are made from fixed bytes or a fixed seed, so a failure repeats.
"""

import argparse
import importlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata

INVISIBLE = ("Cc", "Cf", "Zl", "Zp")  # controls, bidi marks and the like, line separators
MODULES = ["safetensors", "index", "config", "torchbin", "peft", "patch", "bnb", "camelidae", "gguf", "tok"]
SECONDS = 1.0
SECONDS_PER_BYTE = 1.0 / 100e6
SLACK_BYTES = 64 << 20


def size_of(path):
    """Bytes on disk: a sparse file counts for what is there."""
    path = pathlib.Path(path)
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(min(f.stat().st_size, f.stat().st_blocks * 512) for f in files)


def execute(argv):
    """(exit code, stderr, seconds of CPU, peak bytes); a negative code is a signal, None a hang."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as err:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=err)
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > start + 60:
                child.kill()
                os.wait4(child.pid, 0)
                child.returncode = -9
                return None, "", 60.0, 0
            time.sleep(0.001)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        text = err.read().decode("utf-8", "replace")
    return child.returncode, text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


class Runner:
    """Runs commands from a small process of its own: a program's peak memory begins with that of
    the process that starts it, and this one grows with the files it makes."""

    def __init__(self):
        to_child, self.ask = os.pipe()
        self.answer, from_child = os.pipe()
        if os.fork() == 0:
            os.close(self.ask)
            os.close(self.answer)
            with open(to_child) as requests, open(from_child, "w") as replies:
                for line in requests:
                    print(json.dumps(execute(json.loads(line))), file=replies, flush=True)
            os._exit(0)
        os.close(to_child)
        os.close(from_child)
        self.ask, self.answer = open(self.ask, "w"), open(self.answer)

    def run(self, argv):
        print(json.dumps(argv), file=self.ask, flush=True)
        return json.loads(self.answer.readline())


def judge(case, result, floor):
    """What is wrong, or None."""
    _, path, _, want, part = case
    code, text, seconds, peak = result
    size = size_of(path)
    lines = text.removesuffix("\n").split("\n")
    line = "\n".join(x for x in lines if not x.startswith("pesc: note: "))
    if code is None:
        return "hangs"
    if code < 0:
        return f"dies of signal {-code}"
    if code != want:
        return f"exit code {code}, expected {want}: {line[:300]}"
    if part not in text:
        return f"says {line[:300]!r}, expected {part!r}"
    if want and "\n" in line:
        return f"message is not one line: {line[:300]!r}"
    if any(unicodedata.category(c) in INVISIBLE for x in text.split("\n") for c in x):
        return f"control or invisible characters on the terminal: {text[:300]!r}"
    if seconds > SECONDS + size * SECONDS_PER_BYTE:
        return f"takes {seconds:.2f} s for {size} bytes"
    if peak > floor + size + SLACK_BYTES:
        return f"takes {peak >> 20} MiB for {size} bytes"
    return None


def modules(names):
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    for name in names:
        path = pathlib.Path(__file__).with_name(f"hostile_{name}.py")
        if path.exists():
            yield name, importlib.import_module(f"hostile_{name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pesc", default="build/pesc", help="the command to test")
    parser.add_argument("--keep", help="write the files here and leave them")
    parser.add_argument("--only", default="", help="only cases whose name holds this word")
    parser.add_argument("--format", choices=MODULES, action="append", help="only these formats")
    parser.add_argument("--list", action="store_true", help="print name, code and sentence; run nothing")
    args = parser.parse_args()
    if not args.list and not os.access(args.pesc, os.X_OK):
        parser.error(f"{args.pesc} is not there; make builds it")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["LC_ALL"] = "C.UTF-8"
    top = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="pesc-hostile-"))
    runner = Runner()
    floor = 0 if args.list else runner.run([args.pesc, "--version"])[3]
    passed = failed = 0
    try:
        for name, module in modules(args.format or MODULES):
            room = top / name
            room.mkdir(parents=True, exist_ok=True)
            for case in module.cases(str(room)):
                label = f"{name}/{case[0]}"
                if args.only not in label:
                    continue
                if args.list:
                    print(f"{label}\t{case[3]}\t{case[4]}")
                    continue
                wrong = judge(case, runner.run([args.pesc, *case[2]]), floor)
                passed += wrong is None
                failed += wrong is not None
                if wrong:
                    print(f"FAIL {label}: {wrong}")
    finally:
        if not args.keep:
            shutil.rmtree(top, ignore_errors=True)
    if not args.list:
        print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
