#!/usr/bin/env python3
"""Runs the commands of docs/tutorial.md and compares what they print with what the page shows.

    tests/support/tutorial.py PAGE PESC [--write]       --write fills in what commands print that show nothing yet

A command is a line `$ ...` of a console block, and what follows it up to the next is what it prints (both streams). Numbers may differ, for they depend
on the machine, and so may white space and lines of progress; every other character must be the same. A line `...` stands for any lines. A command that ends with & runs on
until the end. `make` is not run: PESC is what it built. Everything happens in a new folder with a link to share/.
"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time


def blocks(text):
    """(begin, end) of the console blocks' insides."""
    return [m.span(1) for m in re.finditer(r"^```console\n(.*?)^```", text, re.M | re.S)]


def commands(block):
    """[(command, printed)] of a block."""
    return [tuple(part.partition("\n")[::2]) for part in re.split(r"^\$ ", block, flags=re.M) if part.strip()]


def plain(text):
    """Lines without numbers and with single spaces; without the progress that is shown of what takes long."""
    text = re.sub(r"^pesc: \w+: .*\d+/\d+.*\n", "", text, flags=re.M)
    text = re.sub(r"\| eta \S+", "| eta #", text)
    return [" ".join(re.sub(r"\d[\d.,]*(e-?\d+)?", "#", line).split()) for line in text.splitlines() if line.strip()]


def same(want, got):
    """Whether the lines are equal; `...` stands for any."""
    if not want:
        return not got
    if want[0] == "...":
        return any(same(want[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and want[0] == got[0] and same(want[1:], got[1:])


class Shell:
    def __init__(self, folder, pesc, port):
        self.folder, self.port, self.background = folder, port, []
        (folder / "bin").mkdir()
        (folder / "bin/pesc").symlink_to(pesc)
        self.env = dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}")

    def run(self, command):
        command = command.replace("8080", str(self.port))
        if command.endswith("&"):
            return self.start(command[:-1].strip())
        done = subprocess.run(command, shell=True, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        return done.stdout.replace(str(self.port), "8080")

    def start(self, command):
        log = self.folder / "background.log"
        with open(log, "w") as f:
            self.background.append(subprocess.Popen(["sh", "-c", "exec " + command], cwd=self.folder, env=self.env, stdout=f, stderr=f))
        for _ in range(600):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.05)
        return log.read_text().replace(str(self.port), "8080")

    def stop(self):
        for p in self.background:
            p.send_signal(signal.SIGTERM)
            p.wait(30)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    page, pesc = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    write, text, bad, count = "--write" in sys.argv, page.read_text(), 0, 0
    out, at = "", 0
    with tempfile.TemporaryDirectory() as temp:
        (pathlib.Path(temp) / "share").symlink_to(page.resolve().parents[1] / "share")
        shell = Shell(pathlib.Path(temp), pesc, free_port())
        try:
            for begin, end in blocks(text):
                out += text[at:begin]
                at = end
                for command, want in commands(text[begin:end]):
                    count += 1
                    got = want if re.match(r"make\b|export\b", command) else shell.run(command)
                    shown = got if write and not want.strip() else want
                    out += f"$ {command}\n{shown.rstrip() + chr(10) if shown.strip() else ''}"
                    if not write and not same(plain(want), plain(got)):
                        bad += 1
                        print(f"$ {command}\n--- the page shows\n{want}--- it prints\n{got}")
        finally:
            shell.stop()
    if write:
        page.write_text(out + text[at:])
    print(f"{count} commands, {bad} print something else")
    return bad != 0


sys.exit(main())
