#!/usr/bin/env python3
"""Runs the attempts of sandbox_attempts.py in both modes of the sandbox, as root and as an ordinary
user, and checks the verdicts and that nothing on the host has changed.

    tests/faults/run_sandbox.py --pesc build/pesc [--only REGEX]

A mode that this kernel forbids is SKIPPED with the reason.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import errno
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

import sandbox_attempts as table

ORDINARY = 65534
CANARY = "canary-4f1d"
GROUP = 16

# A run of the suite. Without Landlock it shows that mode A holds by itself.
Part = collections.namedtuple("Part", "mode user uid landlock")


class Host:
    """What the attempts try to reach, and whether it was touched."""

    def __init__(self, binary):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pesc-sandbox-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.open = self.folder / "open"  # everyone may write here
        self.open.mkdir()
        self.open.chmod(0o777)
        self.secret = self.open / "secret"
        self.secret.write_text(CANARY)
        self.secret.chmod(0o666)
        self.state = self.look()
        self.program = self.folder / "sandbox_programs"  # an ordinary user may not see the build directory
        shutil.copy(binary, self.program)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(self.tcp.getsockname())
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.folder.name)
        self.abstract.listen()
        self.victim = subprocess.Popen(["sleep", "1000"], **as_user(ORDINARY if os.getuid() == 0 else None))

    def look(self):
        s = self.secret.stat()
        return (sorted(os.listdir(self.open)), self.secret.read_text(), s.st_mode, s.st_uid, s.st_mtime_ns, s.st_nlink)

    def touched(self):
        """Sentences about what has changed."""
        if self.look() != self.state:
            yield f"{self.open} was {self.state}, is {self.look()}"
        for name in ("tcp", "udp", "abstract"):
            s = getattr(self, name)
            s.setblocking(False)
            try:
                s.recv(1) if name == "udp" else s.accept()
                yield f"the {name} socket was reached"
            except BlockingIOError:
                pass
        if self.victim.poll() is not None:
            yield "the other process was killed"
        if orphans():
            yield f"these processes are left: {orphans()}"

    def fill_in(self, code):
        words = {"SECRET": self.secret, "DIR": self.open, "PID": os.getpid(), "VICTIM": self.victim.pid,
                 "PORT": self.tcp.getsockname()[1], "ABSTRACT": self.folder.name, "CANARY": CANARY}
        return re.sub(r"'?@([A-Z]+)@'?", lambda m: self.word(m, words), code)

    @staticmethod
    def word(match, words):
        value = words.get(match.group(1), match.group(0))
        if isinstance(value, int):  # a number loses the quotes of repr()
            return str(value)
        return match.group(0).replace("@" + match.group(1) + "@", str(value))

    def close(self):
        self.victim.kill()
        self.victim.wait()
        for s in (self.tcp, self.udp, self.abstract):
            s.close()
        shutil.rmtree(self.folder)


def orphans():
    """Processes of a sandbox whose parent is not one of the programs that start them."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"marshal.loads(posix.pread(7" in (p / "cmdline").read_bytes():
                parent = re.search(r"PPid:\s*(\d+)", (p / "status").read_text()).group(1)
                name = pathlib.Path("/proc", parent, "comm").read_text()
                if not name.startswith(("sandbox_prog", "test_sandbox", "sandbox", "pesc")):
                    found.append(p.name)
        except OSError:
            pass  # it has ended
    return found


def as_user(uid):
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}


def run(host, programs, part, *options):
    """The verdicts of the programs; a text where there is no sandbox."""
    lines = "".join(json.dumps(p) + "\n" for p in programs)
    done = subprocess.run([host.program, *options], input=lines, capture_output=True, text=True, cwd="/",
                          env={"CANARY": CANARY}, timeout=300, preexec_fn=None if part.landlock else forbid(NO_LANDLOCK), **as_user(part.uid))
    if done.returncode:
        return done.stderr.strip() or f"exit code {done.returncode}"
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


# ---- the cases: (name, program, the function that says what is wrong with a verdict)

def attempt_program(host, code):
    return {"kind": "mbpp", "completion": host.fill_in(table.PRELUDE + code), "test_list": ["assert attempt() == 'blocked'"]}


def escapes(part):
    """The rows of the table that hold here: (name, code, whether it needs a process for itself)."""
    for name, code, *tags in table.ESCAPES:
        if ("A" not in tags or part.mode == "A") and ("landlock" not in tags or part.landlock):
            yield name, code, "alone" in tags


def blocked(v):
    return None if v["passed"] and v["reference"] else v["reason"] or "done by the reference rule"


def escape_case(host, name, code):
    return name, attempt_program(host, code), blocked


def group_cases(host, part):
    """Many attempts as functions of one program, because starting Python takes longer than an attempt."""
    rows = [(name, code) for name, code, alone in escapes(part) if not alone]
    for first in range(0, len(rows), GROUP):
        names, codes = zip(*rows[first:first + GROUP])
        code = "".join(c.replace("def attempt(", f"def attempt_{i}(") for i, c in enumerate(codes))
        program = {"kind": "mbpp", "completion": host.fill_in(table.PRELUDE + code),
                   "test_list": [f"assert attempt_{i}() == 'blocked'" for i in range(len(codes))]}
        yield names, program, blocked


def limit_cases(host, rows):
    for name, code, reason in rows:
        def wrong(v, reason=reason):
            good = not v["passed"] and not v["reference"] and re.search(reason, v["reason"])
            return None if good else f"expected {reason}, got {v['reason']!r}"
        yield name, attempt_program(host, code), wrong


MBPP = ["assert f(1) == 2", "assert f(2) == 3", "assert sorted(f(x) for x in [1, 2]) == [2, 3]"]
HUMANEVAL = {"prompt": "def f(x):\n    \"\"\"x + 1\"\"\"\n", "entry_point": "f",
             "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n"}


def forgery_cases():
    def wrong(v):
        return "it was accepted" if v["passed"] else None
    for name, code in table.FORGERIES:
        code = code.replace("@NAME@", "f")
        yield name + " (MBPP)", {"kind": "mbpp", "completion": code, "test_list": MBPP}, wrong
        yield name + " (HumanEval)", {"kind": "humaneval", "completion": "    return x\n\n" + code, **HUMANEVAL}, wrong


def right_cases():
    def wrong(v):
        return None if v["passed"] and v["reference"] else v["reason"] or "the reference rule failed"
    yield "a right solution (MBPP)", {"kind": "mbpp", "completion": "def f(x): return x + 1", "test_list": MBPP}, wrong
    yield "a right solution (HumanEval)", {"kind": "humaneval", "completion": "    return x + 1\n", **HUMANEVAL}, wrong


def judge(host, cases, part, wall=10):
    """[(name, what is wrong or None)]; a text where there is no sandbox."""
    verdicts = run(host, [c[1] for c in cases], part, "mode=" + part.mode, "cpu=1", f"wall={wall}")
    if isinstance(verdicts, str):
        return verdicts
    return [(name, v["error"] if "error" in v else wrong(v)) for (name, _, wrong), v in zip(cases, verdicts)]


def suite(host, part, only):
    """(number that passed, lines of failures, reason for skipping) of one part."""
    single = [escape_case(host, name, code) for name, code, alone in escapes(part) if alone]
    if part.landlock == LANDLOCK:
        single += [*limit_cases(host, table.LIMITS), *forgery_cases(), *right_cases()]
    groups = list(group_cases(host, part))
    if only:
        single = [c for c in single if re.search(only, c[0])]
        groups = [g for g in groups if any(re.search(only, name) for name in g[0])]
    found = judge(host, groups + single, part)
    if isinstance(found, str):
        return 0, [], found
    sleeping = [c for c in limit_cases(host, table.SLEEPING) if re.search(only, c[0])]
    found += judge(host, sleeping, part, wall=1)
    # the attempts of a group that failed, one by one
    again = {name for names, wrong in found[:len(groups)] if wrong for name in names}
    cases = [escape_case(host, name, code) for name, code, _ in escapes(part) if name in again]
    results = (judge(host, cases, part) if cases else []) + found[len(groups):]
    bad = [f"{name}: {wrong}" for name, wrong in results if wrong]
    if again and not any(wrong for name, wrong in results if name in again):
        bad.append(f"one of these, only together: {sorted(again)}")
    return sum(len(g[0]) for g in groups) + len(single) + len(sleeping) - len(bad), bad, ""


# ---- systems that have less

def forbid(errors):
    """A function that makes system calls of this process fail: {number: errno}, by a seccomp filter."""
    def apply():
        libc = ctypes.CDLL(None, use_errno=True)
        code = [struct.pack("HBBI", 0x20, 0, 0, 0)]  # load the number
        for number, error in errors.items():
            code += [struct.pack("HBBI", 0x15, 0, 1, number), struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | error)]
        code.append(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))
        text = ctypes.create_string_buffer(b"".join(code))
        program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")
    return apply


UNSHARE, LANDLOCK_CREATE = 272, 444
CONTAINER = {UNSHARE: errno.EPERM}  # as Docker's default profile does
NO_LANDLOCK = {LANDLOCK_CREATE: errno.ENOSYS}
NOTHING = {UNSHARE: errno.EPERM, LANDLOCK_CREATE: errno.ENOSYS}


def system_cases():
    """(name, system calls that fail, options, exit code, what is printed)"""
    yield "without namespaces mode B is used", CONTAINER, [], 0 if LANDLOCK else 4, "mode B" if LANDLOCK else "Mode B"
    yield "mode A is refused without namespaces", CONTAINER, ["mode=A"], 4, "Mode A: creating namespaces: Operation not permitted"
    yield "without both the programs are refused", NOTHING, [], 4, "Mode B: the kernel has no Landlock. --unsafe-code"
    yield "a forced mode is not replaced", NOTHING, ["mode=none"], 4, "--unsafe-code"
    yield "unsafe runs them all the same", NOTHING, ["unsafe=1"], 0, '"passed":true'


def system_results(host):
    program = json.dumps(next(right_cases())[1]) + "\n"
    for name, errors, options, code, text in system_cases():
        done = subprocess.run([host.program, *options], input=program, capture_output=True, text=True, cwd="/",
                              preexec_fn=forbid(errors), timeout=60)
        good = done.returncode == code and text in done.stdout + done.stderr
        yield name, None if good else f"exit code {done.returncode}: {done.stdout}{done.stderr}"


def landlock():
    return ctypes.CDLL(None).syscall(LANDLOCK_CREATE, None, 0, 1) > 0


LANDLOCK = landlock()


def parts():
    users = [("root", None), ("user 65534", ORDINARY)] if os.getuid() == 0 else [("this user", None)]
    for user, uid in users:
        yield Part("A", user, uid, LANDLOCK)
        yield Part("B", user, uid, LANDLOCK)
    if LANDLOCK:
        yield Part("A", *users[0], False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pesc", default="build/pesc")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    binary = pathlib.Path(args.pesc).resolve().parent / "tests/faults/sandbox_programs"
    host = Host(binary)
    passed = failed = skipped = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = [(part, pool.submit(suite, host, part, args.only)) for part in parts()]
        for part, result in results:
            good, bad, reason = result.result()
            title = f"mode {part.mode}{'' if part.landlock else ' without Landlock'}, {part.user}"
            if reason:
                print(f"SKIPPED {title}: {reason}")
                skipped += 1
            else:
                print(f"{title}: {good} attempts blocked, forgeries refused")
            for line in bad:
                print(f"FAILED {title}: {line}")
            passed, failed = passed + good, failed + len(bad)
        for line in host.touched():
            failed += 1
            print(f"FAILED on the host: {line}")
        for name, wrong in system_results(host):
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print(f"FAILED {name}: {wrong}")
    finally:
        host.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
