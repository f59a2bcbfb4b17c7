"""Runs a command on a terminal of its own and types to it.

    typist.py WAIT TYPE [WAIT TYPE ...] -- COMMAND...

waits until the command has shown WAIT (since what was typed last), then types TYPE, and so on; both may hold escapes such as
\\n, \\x03 (Ctrl-C) and \\x04 (Ctrl-D). Prints what the terminal showed and exits as the command did. No step depends on
time: one that does not come within LIMIT seconds ends the command, and the exit status is 99. Each key is pressed once.
"""
import os
import pty
import select
import signal
import sys
import time

LIMIT = 20


def unescape(text):
    return text.encode().decode("unicode_escape").encode("latin-1")


def main():
    cut = sys.argv.index("--")
    words, command = sys.argv[1:cut], sys.argv[cut + 1:]
    steps = list(zip(words[::2], words[1::2]))
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    shown, since = b"", 0
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if steps and unescape(steps[0][0]) in shown[since:]:
            since, deadline = len(shown), time.monotonic() + LIMIT
            os.write(terminal, unescape(steps.pop(0)[1]))
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the command has closed its side
            part = b""
        if not part:
            break
        shown += part
    else:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.stdout.buffer.write(shown)
    print(f"\n[not typed: {steps}]" if steps else "")
    sys.exit(99 if status == -signal.SIGKILL or steps else status if status >= 0 else 128 - status)


main()
