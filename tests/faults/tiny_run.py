"""A tiny PESC run that faults are tried on: started, resumed to its end, and compared with one that nothing happened to."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "train" / "pesc-a"
OPTIONS = ["--steps", "6", "--batch", "2", "--lr", "3e-3", "--save-every", "2", "--seq-len", "32",
           "--lora-r", "2", "--log-every", "1", "--eval-every", "3", "--threads", "1"]


class Runs:
    """Of a model on 16 records and 2 that validate; `more` are further options of train."""

    def __init__(self, pesc, root, model=GOLDEN / "model", data=GOLDEN / "data.jsonl", more=()):
        root.mkdir(exist_ok=True)
        self.pesc, self.root, self.n, self.model, self.more = pesc, root, 0, model, more
        self.passed = self.failed = 0
        records = data.read_text().splitlines()
        self.data, self.eval = root / "train.jsonl", root / "eval.jsonl"
        self.data.write_text("\n".join(records[:16]) + "\n")
        self.eval.write_text("\n".join(records[16:18]) + "\n")

    def directory(self):
        self.n += 1
        return self.root / f"run{self.n}"

    def command(self, run, *more):
        return [self.pesc, "train", str(self.model), "--data", str(self.data), "--eval-data", str(self.eval), "-o",
                str(run), *OPTIONS, *self.more, *more]

    def start(self, run, *more, fault=None):
        env = dict(os.environ)
        env.pop("PESC_FAULT", None)
        if fault:
            env["PESC_FAULT"] = fault
        return subprocess.Popen(self.command(run, *more), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, run, *more, fault=None):
        p = self.start(run, *more, fault=fault)
        _, err = p.communicate(timeout=60)
        return p.returncode, err

    def check(self, what, good, detail=""):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED {what}: {detail}", flush=True)

    def same(self, what, run, reference):
        """Resumes the run until it is done, then compares."""
        rc, err = self.finish(run, "--resume")
        if rc != 0:
            return self.check(what, False, f"resume gave {rc}: {err[-400:]}")
        try:
            got = digest(run)
        except (OSError, ValueError) as e:
            return self.check(what, False, f"cannot be read: {e}")
        self.check(what, got == reference, f"differs: {sorted(k for k in reference if got.get(k) != reference[k])}")
        shutil.rmtree(run)


def lines(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.pop("tok_s", None)
    return rows


def digest(run):
    """All that must be equal."""
    last = run / "latest"
    out = {"last": os.readlink(last), "metrics": lines(run / "metrics.jsonl"),
           "routing": lines(run / "routing.jsonl"), "eval": lines(run / "eval.jsonl")}
    for name in ("adapter_model.safetensors", "trained.safetensors", "optimizer.safetensors"):
        out[name] = hashlib.sha256((last / name).read_bytes()).hexdigest()
    state = json.loads((last / "trainer_state.json").read_text())
    out["state"] = {k: v for k, v in state.items() if not k.endswith("_bytes")}
    return out
