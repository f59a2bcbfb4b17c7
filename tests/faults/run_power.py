#!/usr/bin/env python3
"""Cuts the power of a training run at every moment, and sees it end as if nothing had happened.

The file operations of a tiny run are recorded with strace. A model of a disk then tells what may be left when the power goes
after any of them: what was synced is there; of what was not, each write may be missing or read as zeros, and each new name,
rename or removal may not have happened, in any combination of up to two (ALICE, OSDI 2014, found most bugs with that many).
Every different state is written out and the run resumed from it; weights, moments, counts and metrics must equal those of a
run with steady power. A run that leaves more than UNSYNCED changes without a sync at any moment has forgotten one: that is
a failure of its own, and the states, which grow with the square of that number, are not tried.

    tests/faults/run_power.py --pesc build/pesc [--states 600] [--seed 1]        --states 0: all of them
"""
import argparse
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from tiny_run import Runs, digest

TRACED = "openat,write,pwrite64,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir," \
         "mkdirat,symlink,symlinkat,link,linkat,lseek,close"

UNSYNCED = 64  # three times what a run that syncs as it should leaves at most


class Node:
    """A file (bytes, with what is not synced yet), a directory (names of nodes) or a link (its target)."""

    def __init__(self, kind, target=None):
        self.kind, self.target = kind, target
        self.synced, self.now = b"", bytearray()
        self.names = {}  # as synced
        self.view = {}  # as running programs see them
        self.copy = b""  # of now; shared by all states in which the file has this content

    def bytes(self):
        if len(self.copy) != len(self.now) or self.copy != self.now:
            self.copy = bytes(self.now)
        return self.copy


class Forgotten(Exception):
    """Too much was never synced."""


class Disk:
    def __init__(self, root):
        self.root_path, self.root = root, Node("dir")
        self.fds = {}  # fd -> [node, offset, append]
        self.pending = []  # (directory, [(name, node or None), ...]): not synced, each atomic
        self.unknown = []

    def find(self, path):
        node = self.root
        for part in self.parts(path):
            node = node.view.get(part) if node and node.kind == "dir" else None
        return node

    def parts(self, path):
        return [p for p in os.path.relpath(path, self.root_path).split("/") if p != "."]

    def inside(self, path):
        return path == self.root_path or path.startswith(self.root_path + "/")

    def change(self, *effects):
        """effects: (path, node or None), all at once or not at all."""
        done = []
        for path, node in effects:
            parent, name = self.find(os.path.dirname(path)), os.path.basename(path)
            if node is None:
                parent.view.pop(name, None)
            else:
                parent.view[name] = node
            done.append((parent, name, node))
        self.pending.append(done)

    def open(self, path, flags, fd):
        node = self.find(path)
        if node is None and "O_CREAT" in flags:
            node = Node("file")
            self.change((path, node))
        if node is None:
            self.unknown.append(path)
            return
        if "O_TRUNC" in flags:
            node.now = bytearray()
        self.fds[fd] = [node, 0, "O_APPEND" in flags]

    def write(self, fd, data, at=None):
        entry = self.fds[fd]
        where = at if at is not None else len(entry[0].now) if entry[2] else entry[1]
        now = entry[0].now
        now.extend(bytes(max(0, where - len(now))))
        now[where:where + len(data)] = data
        entry[1] = entry[1] if at is not None else where + len(data)

    def resize(self, fd, size, grow_only):
        now = self.fds[fd][0].now
        now.extend(bytes(max(0, size - len(now))))
        if not grow_only:
            del now[size:]

    def sync(self, fd):
        node = self.fds[fd][0]
        if node.kind == "file":
            node.synced = node.bytes()
            return
        left = []
        for done in self.pending:
            if any(parent is node for parent, _, _ in done):
                apply(done)
            else:
                left.append(done)
        self.pending = left

    def unsynced_files(self):
        seen, stack = [], [self.root]
        while stack:
            node = stack.pop()
            stack.extend(node.view.values())
            if node.kind == "file" and node.bytes() != node.synced:
                seen.append(node)
        return seen

    def states(self):
        """What may be left if the power goes now, as trees {path: bytes | ('link', target) | 'dir'}."""
        files, changes = self.unsynced_files(), self.pending
        if len(files) + len(changes) > UNSYNCED:
            raise Forgotten(f"{len(changes)} names and {len(files)} files are not synced: a sync is missing")
        losses = [("name", i) for i in range(len(changes))] + [("lost", f) for f in files] + [("zero", f) for f in files]
        every = [("name", i) for i in range(len(changes))] + [("lost", f) for f in files]
        zeros = {id(f): zeroed(f) for f in files}
        for lost in itertools.chain([(), every], ((one,) for one in losses), itertools.combinations(losses, 2)):
            yield self.tree(lost, changes, zeros)

    def tree(self, lost=(), changes=(), zeros=None):
        names = {i for kind, i in lost if kind == "name"}
        content = {id(f): f.synced if kind == "lost" else zeros[id(f)] for kind, f in lost if kind != "name"}
        view = {}

        def entries(node):
            return view.setdefault(id(node), dict(node.names))

        for i, done in enumerate(changes):
            for parent, name, node in done if i not in names else ():
                entries(parent)[name] = node
                if node is None:
                    del entries(parent)[name]
        out, stack = {}, [("", self.root)]
        while stack:
            path, node = stack.pop()
            for name, child in entries(node).items():
                where = f"{path}/{name}"
                if child.kind == "dir":
                    out[where] = "dir"
                    stack.append((where, child))
                else:
                    out[where] = ("link", child.target) if child.kind == "link" else content.get(id(child), child.bytes())
        return out


def zeroed(f):
    """The file with the size it had, but nothing in what was written since the last sync."""
    kept = len(os.path.commonprefix([f.synced, f.bytes()]))
    return f.synced[:kept] + bytes(len(f.now) - kept)


def apply(done):
    for parent, name, node in done:
        if node is None:
            parent.names.pop(name, None)
        else:
            parent.names[name] = node


LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
BEGUN = re.compile(r"^(\d+) +(.*?) *<unfinished \.\.\.>$")
ENDED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


def unhex(text):
    return bytes.fromhex(text.replace("\\x", ""))


def whole_calls(trace):
    """The calls of all threads. One that another thread's interrupts happens when it ends, but a close when it begins: its number
    may be another file's before it ends."""
    begun = {}
    for line in trace:
        half, rest = BEGUN.match(line), ENDED.match(line)
        if half and half[2].startswith("close("):
            yield half[2] + ") = 0"
        elif half:
            begun[half[1]] = half[2]
        elif rest and rest[1] in begun:
            yield begun.pop(rest[1]) + rest[2]
        elif not rest:
            yield line


def replay(trace, disk):
    """Yields after each operation that changed the disk."""
    for line in whole_calls(trace):
        m = LINE.match(line)
        if not m or int(m[3]) < 0:
            continue
        call, args, result = m[1], m[2], int(m[3])
        texts = [unhex(t) for t, cut in TEXT.findall(args)]
        paths = [t.decode("utf-8", "replace") for t in texts]
        first = re.match(r"\d+", args)
        fd = int(first[0]) if first else -1
        if call == "openat":
            if disk.inside(paths[0]):
                disk.open(paths[0], args, result)
            else:
                disk.fds.pop(result, None)
        elif call == "close":
            disk.fds.pop(fd, None)
            continue
        elif call in ("mkdir", "mkdirat") and disk.inside(paths[0]):
            if paths[0] == disk.root_path:
                continue
            disk.change((paths[0], Node("dir")))
        elif call in ("symlink", "symlinkat") and disk.inside(paths[1]):
            disk.change((paths[1], Node("link", paths[0])))
        elif call.startswith("rename") and disk.inside(paths[1]):
            disk.change((paths[0], None), (paths[1], disk.find(paths[0])))
        elif call in ("unlink", "unlinkat", "rmdir") and disk.inside(paths[0]):
            disk.change((paths[0], None))
        elif fd in disk.fds:
            if call == "write":
                disk.write(fd, texts[0][:result])
            elif call == "pwrite64":
                disk.write(fd, texts[0][:result], int(args.rsplit(",", 1)[1]))
            elif call == "ftruncate":
                disk.resize(fd, int(args.rsplit(",", 1)[1]), False)
            elif call == "fallocate":
                disk.resize(fd, sum(int(x) for x in args.rsplit(",", 2)[1:]), True)
            elif call == "lseek":
                disk.fds[fd][1] = result
            elif call in ("fsync", "fdatasync"):
                disk.sync(fd)
        else:
            continue
        yield


def materialise(tree, run):
    run.mkdir()
    for path, what in sorted(tree.items()):
        where = run / path[1:]
        if what == "dir":
            where.mkdir()
        elif isinstance(what, tuple):
            os.symlink(what[1], where)
        else:
            where.write_bytes(what)


def record(runs, run, log):
    p = subprocess.run(["strace", "-f", "-xx", "-s", "99999999", "-e", "trace=" + TRACED, "-o", str(log), *runs.command(run)],
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return p.returncode, p.stderr


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pesc", required=True)
    ap.add_argument("--states", type=int, default=600)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    if not shutil.which("strace") or subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode:
        print("SKIPPED: strace cannot be used here\n0 passed, 0 failed")
        return 0
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as root:
        runs = Runs(os.path.abspath(args.pesc), pathlib.Path(root))
        run, log = runs.directory(), pathlib.Path(root) / "trace"
        rc, err = record(runs, run, log)
        if rc != 0:
            print(f"the recorded run gave {rc}: {err}\n0 passed, 1 failed")
            return 1
        reference = digest(run)
        disk, found, n = Disk(str(run)), {}, 0
        try:
            with log.open() as trace:
                for n, _ in enumerate(replay(trace, disk)):
                    for tree in disk.states():
                        found.setdefault(hash(frozenset(tree.items())), (n, tree))
        except Forgotten as e:
            print(f"FAILED after operation {n}: {e}\n0 passed, 1 failed")
            return 1
        whole = {"/" + str(p.relative_to(run)) for p in run.rglob("*")}
        runs.check("the model of the disk ends as the run did", set(disk.tree(changes=disk.pending)) == whole, f"{whole}")
        chosen = sorted(found.values(), key=lambda s: s[0])
        if args.states and len(chosen) > args.states:
            chosen = random.Random(args.seed).sample(chosen, args.states)
        for n, tree in chosen:
            state = runs.directory()
            materialise(tree, state)
            runs.same(f"power cut after operation {n}", state, reference)
    print(f"{len(found)} states, {len(chosen)} tried\n{runs.passed} passed, {runs.failed} failed")
    return runs.failed != 0


sys.exit(main())
