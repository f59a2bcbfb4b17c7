#!/usr/bin/env python3
"""Kills every command that writes a model, a file or a run at each of its file operations, once.

A row of the table is a command and where it writes. It is run once without a fault; then it is killed at its N-th
file operation (PESC_FAULT=any:N:kill) for every N, and given again. Whatever the point:

  - what stands at the output is complete, the old or the new, and never a part (a directory with config.json has all
    files of one of the two);
  - the same command works again, unless the output was complete already and it is told so;
  - afterwards there is nothing beside what a command that was never killed leaves;
  - files that a user keeps in a directory that is replaced stay.

    tests/faults/run_kill_outputs.py --pesc build/pesc [--only REGEX]
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = str(ROOT.parent / "share" / "base")
GOLDEN = ROOT / "golden"
TRAIN = GOLDEN / "train" / "pesc-a"
TUNE = ["--data", str(TRAIN / "data.jsonl"), "--seq-len", "32", "--batch", "2", "--lora-r", "2", "--threads", "1", "-q"]
# of a run, what a clock or the machine decides
UNSTEADY = re.compile(r"(^|/)(lock|run\.json|metrics\.jsonl|trainer_state\.json|events\.out.*|.*\.svg|.*\.png|\.pesc-files\.json|manifest\.json|results\.json"
                      r"|evaluation\.json)$")


def tree(path):
    """Every file below the path, with what is in it."""
    path = pathlib.Path(path)
    if path.is_file():
        return {"": hashlib.sha256(path.read_bytes()).hexdigest()}
    found = {}
    for p in sorted(path.rglob("*")):
        name = str(p.relative_to(path))
        if p.is_symlink():
            found[name] = os.readlink(p)
        elif p.is_file() and not name.startswith(("tb/", "plots/")):  # a finished run is not drawn again
            found[name] = "" if UNSTEADY.search(name) else hashlib.sha256(p.read_bytes()).hexdigest()
    return found


class Row:
    """One command. `old` is what stands at the output before; None: nothing."""

    def __init__(self, name, command, out="out", old=None, mine=(), again=None):
        self.name, self.command, self.out, self.old, self.mine = name, command, out, old, mine
        self.again = again  # options that the second time needs

    def prepare(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if self.old:
            (shutil.copytree if self.old.is_dir() else shutil.copy)(self.old, folder / self.out, **({"symlinks": True} if self.old.is_dir() else {}))
        for name in self.mine:
            (folder / self.out / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / self.out / name).write_text("mine")


class Walk:
    def __init__(self, pesc, root):
        self.pesc, self.root, self.passed, self.failed = pesc, root, 0, 0

    def run(self, folder, command, fault=None):
        env = {k: v for k, v in os.environ.items() if k != "PESC_FAULT"}
        if fault:
            env["PESC_FAULT"] = fault
        p = subprocess.run([self.pesc, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
        return p.returncode, p.stderr

    def check(self, what, good, detail=""):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED {what}: {detail}"[:600], flush=True)
        return good

    def walk(self, row):
        folder = self.root / row.name
        row.prepare(folder)
        old = tree(folder / row.out) if row.old else None
        rc, err = self.run(folder, row.command)
        if not self.check(f"{row.name} without a fault", rc == 0, err[-300:]):
            return
        new, beside = tree(folder / row.out), sorted(p.name for p in folder.iterdir())
        n = 0
        while n < 3000:
            n += 1
            row.prepare(folder)
            rc, err = self.run(folder, row.command, f"any:{n}:kill")
            if rc != -signal.SIGKILL:
                break
            self.one(f"{row.name} killed at operation {n}", row, folder, old, new, beside)
        self.check(f"{row.name} ends", rc == 0, f"{rc}: {err[-300:]}")
        print(f"{row.name}: {n - 1} operations", flush=True)
        shutil.rmtree(folder, ignore_errors=True)

    def one(self, what, row, folder, old, new, beside):
        place = folder / row.out
        there = tree(place) if place.exists() else {}
        whole = {k: v for k, v in there.items() if k not in row.mine}  # a moment later they are there again
        is_run = "train" in row.name
        complete = there == new
        same = [{k: v for k, v in one.items() if k not in row.mine} for one in (old or {}, new)]
        if not is_run and ("config.json" in there or "" in there or "model.gguf" in there):
            self.check(f"{what}: a part is taken for the whole", whole in same, str(sorted(set(there) ^ set(new))))
        rc, err = self.run(folder, [*row.command, *(row.again or [])])
        told = rc == 2 and complete and ("is not empty" in err or "exists" in err)
        if not self.check(f"{what}: the same command again", rc == 0 or told, f"{rc}: {err[-300:]}"):
            return
        now = tree(place)
        self.check(f"{what}: another result", now == new, str({k for k in now.keys() | new.keys() if now.get(k) != new.get(k)}))
        left = sorted(p.name for p in folder.iterdir())
        self.check(f"{what}: left beside it", left == beside, str(set(left) ^ set(beside)))


def rows(walk):
    """Makes what the commands read, and lists them."""
    made = walk.root / "made"
    made.mkdir()
    lines = (TRAIN / "data.jsonl").read_text().splitlines()
    (made / "eval.jsonl").write_text("\n".join(lines[:2]) + "\n")
    olmoe = GOLDEN / "esft" / "olmoe"
    craft = ["craft", BASE, "--experts", "2", "--adapter-dim", "2", "--check", "false", "-q", "--threads", "1"]
    run = ["train", str(TRAIN / "model"), *TUNE, "--save-every", "1", "--keep-checkpoints", "2", "--eval-data",
           str(made / "eval.jsonl"), "--eval-every", "1"]
    lora = ["train", BASE, "--method", "lora", *TUNE, "--steps", "1"]
    patch = ["train", str(GOLDEN / "olmoe"), "--method", "esft", "--experts-config", str(olmoe / "expert_cfg.json"), "--data",
             str(olmoe / "data.jsonl"), "--seq-len", "32", "--batch", "2", "--steps", "1", "--threads", "1", "-q"]
    for name, command in (("craft", craft), ("run", [*run, "--steps", "2"]), ("lora", lora), ("patch", patch)):
        rc, err = walk.run(made, [*command, "-o", name])
        walk.check(f"making {name}", rc == 0, err[-300:])
    lora, mine = str(made / "lora"), ("notes/one", "mine.txt")
    plain = ["--check", "false", "-q", "--threads", "1"]
    gguf = made / "old.gguf"
    shutil.copy(made / "craft" / "config.json", gguf)  # any file: it is only replaced
    records = str(made / "records.jsonl")
    pathlib.Path(records).write_text("".join(json.dumps({"instruction": f"i{i}", "output": f"o{i}"}) + "\n" for i in range(8)))
    bench = made / "bench" / "arc_easy"
    bench.mkdir(parents=True)
    for split in "train", "test":
        (bench / f"{split}.jsonl").write_text("".join(
            json.dumps({"question": f"q{i}?", "answerKey": "AB"[i % 2], "choices": {"text": ["x", "y"], "label": ["A", "B"]}}) + "\n"
            for i in range(6)))
    yield Row("craft", [*craft, "-o", "out"])
    yield Row("craft-in-a-new-folder", [*craft, "-o", "a/out/"], out="a/out")
    yield Row("craft-overwrite", [*craft, "--experts", "3", "-o", "out", "--overwrite"], old=made / "craft", mine=mine)
    yield Row("craft-checked", [c for c in craft if c not in ("--check", "false")] + ["-o", "out"])
    yield Row("merge", ["merge", lora, "-o", "out", *plain])
    yield Row("export-hf", ["export", lora, "--to", "hf", "-o", "out", *plain])
    yield Row("export-peft", ["export", lora, "--to", "peft", "-o", "out", *plain])
    yield Row("export-gguf", ["export", lora, "--to", "gguf", "-o", "out", *plain])
    yield Row("export-gguf-file", ["export", lora, "--to", "gguf", "-o", "out.gguf", *plain], out="out.gguf")
    yield Row("export-gguf-overwrite", ["export", lora, "--to", "gguf", "-o", "out.gguf", "--overwrite", *plain], out="out.gguf", old=gguf)
    yield Row("apply", ["esft", "apply", str(GOLDEN / "olmoe"), "--patch", str(made / "patch"), "-o", "out", *plain])
    yield Row("new", ["new", str(pathlib.Path(BASE) / "config.json"), "-o", "out", "-q"])
    yield Row("mix", ["data", "mix", "--domain", f"a={records}", f"b={records}", "--counts", "3,3", "-o", "out.jsonl", "--overwrite", "-q"],
              out="out.jsonl")
    yield Row("eval", ["eval", lora, "--tasks", "arc_easy", "--shots", "0", "--data-dir", str(made / "bench"), "--limit", "2", "--samples",
                       "-o", "out", "-q", "--threads", "1"])
    yield Row("train", [*run, "--steps", "2", "-o", "out"], again=["--resume"])
    yield Row("train-overwrite", [*run, "--steps", "2", "--seed", "7", "-o", "out", "--overwrite"], old=made / "run", mine=mine)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pesc", required=True, type=pathlib.Path)
    p.add_argument("--only", default="", help="rows whose name matches")
    args = p.parse_args()
    root = pathlib.Path(tempfile.mkdtemp(prefix="pesc-outputs-"))
    walk = Walk(str(args.pesc.resolve()), root)
    try:
        chosen = [r for r in rows(walk) if re.search(args.only, r.name)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(walk.walk, chosen))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{walk.passed} passed, {walk.failed} failed")
    return walk.failed != 0


if __name__ == "__main__":
    sys.exit(main())
