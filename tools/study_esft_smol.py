#!/usr/bin/env python3
"""The study of docs/study-esft-smol.md: ESFT on SmolLM2-135M, upcycled to 16 experts and tuned, on one GPU.

    study_esft_smol.py prepare --source DIR --data DATA                   DATA is what study_smol.py prepare has written
    study_esft_smol.py run --model SMOL.gguf --data DATA --results OUT    trains and evaluates; starts where it stopped
    study_esft_smol.py report --results OUT                               docs/study-esft-smol.md

Targets: intent and law (ESFT's own records), maths and code (records of the larger mix that the mixture has not seen). Of ESFT's
summary and translation there are no training records, so these two are left out. `pesc craft` makes no fine-grained experts: the 16
have the width of the FFN, 2 a token, in every second layer. Jobs, --minutes and --only are as in study_smol.py.
"""
import json
import lzma
import os
import random
import shutil
from pathlib import Path
from statistics import mean

import study_gpu_report
import study_smol
from study_smol import ROOT, routing, speed
from study_smol_report import fill, line, table

TARGETS = ["intent", "maths", "law", "code"]
TASKS = "arc_easy,arc_challenge,piqa,hellaswag"
MIXTURE = "--kind upcycle --experts 16 --top-k 2"
# name: what trains, options of train, experts (None: no choice), the first rates; in the order of importance
METHODS = {
    "full": ("every weight", "--method full", None, "2.5e-5 6.3e-5"),
    "esft-token": ("experts by token score, p 0.2", "--method esft", "--metric token --p 0.2", "6.3e-5 1.6e-4"),
    "lora-experts": ("LoRA of rank 8 on attention and experts", "--method lora --lora-r 8 --lora-alpha 16 --lora-targets all,experts", None,
                     "4e-4 1e-3"),
    "random": ("as many random experts", "--method esft", "--random", "6.3e-5 1.6e-4"),
    "esft-gate": ("experts by gate score, p 0.27 of the sum", "--method esft", "--metric gate --p-relative --p 0.27", "6.3e-5 1.6e-4"),
    "lora": ("LoRA of rank 8 on attention and dense FFNs", "--method lora --lora-r 8 --lora-alpha 16", None, "4e-4 1e-3"),
    "esft-rest": ("esft-token's experts and all that is no expert", "--method esft", "--metric token --p 0.2 --non-expert-modules", "2.5e-5 6.3e-5"),
}
SAMPLES = [1 << n for n in (11, 13, 15, 17)]  # tokens that scores are made from, to see how many are needed


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [x.rstrip("\n") for x in f]  # splitlines() would also split at U+2028


def prepare(o):
    """DATA/esft/TARGET-{train,valid,test}.jsonl."""
    to = o.data / "esft"
    to.mkdir(exist_ok=True)
    seen = set(lines(o.data / "train.jsonl"))
    new = [json.loads(x) for x in lines(o.data / "train-1.44.jsonl") if x not in seen]
    for target in TARGETS:
        if target in ("intent", "law"):
            with lzma.open(o.source / f"instruct/esft/train/{target}.jsonl.xz", "rt") as f:
                records = [{"messages": json.loads(x)["messages"], "domain": target} for x in f]
        else:
            records = [r for r in new if r["domain"] == target]
        random.Random(0).shuffle(records)
        at, sizes = 0, {"test": min(150, len(records) // 5), "valid": min(60, len(records) // 10), "train": 3000}
        for part, n in sizes.items():
            chosen = records[at:at + n]
            at += n
            (to / f"{target}-{part}.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in chosen))
    study_smol.tell(f"{to}: {', '.join(TARGETS)}")


class Study(study_smol.Study):
    rows = {}

    # -- what a job does

    def mixture(self):
        """The upcycled model, tuned in full on the general mix; a run of 9 GB, from which all others start."""
        up, run = self.o.work / "upcycled", self.o.work / "mixture"
        layers = range(1, json.loads((self.base() / "config.json").read_text())["num_hidden_layers"], 2)
        self.pesc("craft", self.base(), "-o", up, "--overwrite", "--check", "false", *MIXTURE.split(), "--layers", ",".join(map(str, layers)))
        length = ["--epochs", 1] if not self.o.steps else ["--steps", self.o.steps]
        done = self.pesc("train", up, "-o", run, "--overwrite", "--method", "full", "--lr", "6.3e-5", *length, "--data",
                         self.o.data / "train.jsonl", *self.common(8192))
        result = {"trained": done["params_trained"], "tokens": done["tokens"], **routing(run), **speed(run)}
        return {**result, **self.tests(run), **self.benchmarks(run)}

    def common(self, tokens):
        return ["--template", "chatml", "--batch-tokens", min(tokens, self.o.batch_tokens), "--seq-len", 1024, "--over-length", "truncate",
                "--micro-tokens", min(tokens, self.o.batch_tokens) * 3 // 2, "--lora-dropout", 0, "--compute-dtype", self.o.compute, "--save-every", 0,
                "--verify-every", 0, *self.device()]

    def tests(self, path):
        """Losses of all targets' test records and of the general ones."""
        found = {}
        for name, file in [(t, f"esft/{t}-test.jsonl") for t in TARGETS] + [("general", "test.jsonl")]:
            task = self.pesc("eval", path, "--tasks", self.o.data / file, "--loss-only", "--template", "chatml", "--ctx", 1024, "--limit",
                             self.o.limit, "--compute-dtype", self.o.compute, *self.device())["tasks"][0]
            found[name] = next(d["loss"] for d in task["domains"] if d["domain"] == name)
        return {"losses": found}

    def benchmarks(self, path):
        if not (self.o.data / "bench").is_dir():
            return {}
        out = self.o.results / "bench"
        text = self.text("eval", path, "--tasks", TASKS, "--data-dir", self.o.data / "bench", "--limit", min(self.o.bench_limit, 200), "--compute-dtype",
                         self.o.compute, "-o", out / path.name, *self.device(), "--json")
        return {"scores": scores_of(json.loads(text))}

    def scores(self, target):
        to = self.o.work / f"scores-{target}"
        self.text("esft", "score", self.o.work / "mixture", "--data", self.o.data / f"esft/{target}-train.jsonl", "--template", "chatml", "-o", to,
                  *self.device())
        return {}

    def samples(self, target):
        """{tokens: share of the experts that the largest sample chooses}, of which this many tokens choose."""
        chosen = {}
        for n in SAMPLES:
            to = self.o.work / f"sample-{target}-{n}"
            self.text("esft", "score", self.o.work / "mixture", "--data", self.o.data / f"esft/{target}-train.jsonl", "--template", "chatml", "-o", to,
                      "--tokens", n, "--seed", 1, *self.device())
            self.text("esft", "select", to, *METHODS["esft-token"][2].split(), "-o", to / "experts.json")
            layers = json.loads((to / "experts.json").read_text())["experts"]
            chosen[n] = {(layer, e) for layer, experts in layers.items() for e in experts}
        most = chosen[SAMPLES[-1]]
        return {"shared": {str(n): len(c & most) / len(most) for n, c in chosen.items()}, "experts": len(most)}

    def choose(self, target, method, config):
        """The experts that train; random ones are as many as those by token score."""
        scores, which = self.o.work / f"scores-{target}", METHODS[method][2]
        if which == "--random":
            like = Path(f"{config}.like")
            self.text("esft", "select", scores, *METHODS["esft-token"][2].split(), "-o", like)
            which = f"--random {sum(len(e) for e in json.loads(like.read_text())['experts'].values())} --seed 1"
        self.text("esft", "select", scores, *which.split(), "-o", config)
        return sum(len(e) for e in json.loads(config.read_text())["experts"].values())

    def tune(self, target, method, rate):
        run, data = self.o.work / f"{target}-{method}-{rate}", self.o.data / "esft"
        _, how, which, _ = METHODS[method]
        experts, chosen = [], 0
        try:
            if which:
                config = Path(f"{run}.experts")
                chosen, experts = self.choose(target, method, config), ["--experts-config", config]
            done = self.pesc("train", self.o.work / "mixture", "-o", run, "--overwrite", *how.split(), *experts, "--lr", rate, "--aux-coef", 0,
                             "--base-dtype", "bf16", "--steps", min(self.o.steps or 60, 60), "--data", data / f"{target}-train.jsonl", "--eval-data",
                             data / f"{target}-valid.jsonl", "--eval-every", 1000000, *self.common(4096))
            result = {"rate": rate, "valid": done["eval_loss"], "trained": done["params_trained"], "experts": chosen, **speed(run)}
            others = [r["valid"] for k, r in list(self.results.items()) if k.startswith(f"tune/{target}/{method}/") and "valid" in r]
            if all(result["valid"] < v for v in others):
                result.update(self.tests(run), **self.benchmarks(run))
            return result
        finally:
            shutil.rmtree(run, ignore_errors=True)

    # -- jobs

    def open_rates(self, target, method):
        """The first rates, and as long as the highest tried is the best, the next one."""
        first, ladder = METHODS[method][3].split(), study_smol.LADDER
        tried = {r["rate"]: r["valid"] for k, r in list(self.results.items()) if k.startswith(f"tune/{target}/{method}/") and "valid" in r}
        best = study_smol.lowest(tried)
        if best and best == max(tried, key=float) and all(r in tried for r in first):
            return ladder[ladder.index(best) + 1:][:1]
        return [r for r in first if r not in tried]

    def jobs(self):
        out = [("mixture", "mixture", [], self.mixture)] + [(f"scores/{t}", "scores", ["mixture"], lambda t=t: self.scores(t)) for t in TARGETS]
        out += [(f"samples/{t}", "scores", ["mixture"], lambda t=t: self.samples(t)) for t in TARGETS]
        for methods in (list(METHODS)[:4], list(METHODS)[4:]):
            out += [(f"tune/{t}/{m}/{rate}", "tune", [f"scores/{t}"] if METHODS[m][2] else ["mixture"],
                     lambda t=t, m=m, rate=rate: self.tune(t, m, rate)) for m in methods for t in TARGETS for rate in self.open_rates(t, m)]
        return self.chosen([j for j in out if j[0] not in self.results])

    def forget(self):
        super().forget()
        if not (self.o.work / "mixture" / "latest").exists():  # without it nothing that is missing can be made
            self.results.pop("mixture", None)
        for t in TARGETS:
            if not (self.o.work / f"scores-{t}").exists():
                self.results.pop(f"scores/{t}", None)


def scores_of(report):
    """{task: percent} of `pesc eval --json`: acc_norm where a task has it, as lm-eval reports HellaSwag and ARC challenge."""
    return {name: 100 * r.get("acc_norm,none", r["acc,none"]) for name, r in report["results"].items()}


# ---- report

PAGE = """# A study of ESFT on an upcycled SmolLM2-135M

{opening}

![Learning and forgetting]({stem}.svg)

Written by `tools/study_esft_smol.py`, which runs pesc and nothing else. SmolLM2-135M-Instruct is upcycled to 16 experts of the FFN's width (not fine-grained: `pesc
craft` makes none), 2 a token, in every second layer, and tuned in full on the mix of [study-smol](study-smol.md) ({tokens:,} tokens, rate 6.3e-5). From there
each method has {steps} steps of about 4,096 tokens of one target, and nothing else, on {machine}; of two rates, and of higher ones as long as the highest is
the best, the one with the lower loss on the target's validation records is shown (\\*: no higher one was tried). **One seed.** Targets: ESFT's own intent and
law records (Chinese, which SmolLM2 hardly knows), and maths and code instructions that the mixture has not seen; ESFT's summary and translation have no training records here. Loss: nats a token of held-out answers. Others: the mean over
the other three targets and the general instructions; what it rises is forgotten. Score: the mean of ARC easy and challenge, PIQA and HellaSwag, 200
documents each, in percent (one standard error of the mean is about 1.7).
{tables}
"""


class Findings:
    def __init__(self, results):
        self.results = results

    def best(self, target, method):
        """The run with the lower validation loss; None: there is none that was evaluated."""
        runs = [r for k, r in self.results.items() if k.startswith(f"tune/{target}/{method}/") and "losses" in r]
        return min(runs, key=lambda r: r["valid"], default=None)

    def rate(self, target, method):
        """Of the best run; marked where no higher one was tried."""
        tried = [r["rate"] for k, r in self.results.items() if k.startswith(f"tune/{target}/{method}/") and "valid" in r]
        best = self.best(target, method)["rate"]
        return best + r" \*" * (best == max(tried, key=float))

    def forgotten(self, target, r):
        """The rise of the mean loss of all but the target."""
        return others(target, r["losses"]) - others(target, self.results["mixture"]["losses"])

    def mean_of(self, method, value):
        """Over the targets that have full tuning, esft-token and LoRA on experts; None where one lacks this method: means could not be compared."""
        there = [t for t in TARGETS if all(self.best(t, m) for m in ("full", "esft-token", "lora-experts"))]
        if not there or not all(self.best(t, method) for t in there):
            return None
        return mean(value(t, self.best(t, method)) for t in there)


def others(target, losses):
    return mean(v for k, v in losses.items() if k != target)


def score(r):
    return f"{mean(r['scores'].values()):.1f}" if r.get("scores") else ""


def target_table(f, target):
    yield f"\n## Target {target}\n"
    yield line(["method", "what trains", "experts", "trained M", "GB", "rate", "target loss", "others' loss", "forgotten", "score"])
    yield line(["---"] * 10)
    base = f.results["mixture"]
    yield line(["mixture", "nothing: where all begin", "", "0", "", "", f"{base['losses'][target]:.4f}", f"{others(target, base['losses']):.4f}", "", score(base)])
    for name, (what, *_) in METHODS.items():
        r = f.best(target, name)
        if r:
            yield line([name, what, r["experts"] or "", f"{r['trained'] / 1e6:.2f}", f"{r['bytes'] / 1e9:.1f}", f.rate(target, name), f"{r['losses'][target]:.4f}",
                        f"{others(target, r['losses']):.4f}", f"{f.forgotten(target, r):+.4f}", score(r)])


def samples_table(f):
    yield line(["tokens", *(f"{t} ({f.results[f'samples/{t}']['experts']} experts)" for t in TARGETS)])
    yield line(["---"] * (1 + len(TARGETS)))
    for n in SAMPLES:
        yield line([f"{n:,}", *(f"{100 * f.results[f'samples/{t}']['shared'][str(n)]:.0f} %" for t in TARGETS)])


def opening(f):
    def said(method, value, form):
        x = f.mean_of(method, value)
        return "not run" if x is None else form.format(x)

    methods = {"full": "full tuning", "esft-token": "ESFT by token scores", "lora-experts": "LoRA with experts", "random": "random experts"}
    loss = ", ".join(f"{said(m, lambda t, r: r['losses'][t], '{:.4f}')} {name}" for m, name in methods.items())
    lost = ", ".join(f"{said(m, f.forgotten, '{:+.4f}')} {name}" for m, name in methods.items())
    n = len([t for t in TARGETS if all(f.best(t, m) for m in ("full", "esft-token", "lora-experts"))])
    return (f"Mean loss on the target over {n} of {len(TARGETS)} targets, one seed: {loss}. The loss on the other tasks rises by: {lost}. "
            "Negative numbers in the second sentence are a gain; the tables have each target.")


def write(o, results):
    f = Findings(results)
    library = os.environ.get("LIBPESC", str(ROOT / "build/dist/libpesc.so.0"))
    fall = lambda t, r: results["mixture"]["losses"][t] - r["losses"][t]  # noqa: E731
    dots = {m: [(f.mean_of(m, fall), f.mean_of(m, f.forgotten))] for m in METHODS if f.mean_of(m, fall) is not None}
    study_gpu_report.plot(library, o.page.with_suffix(".svg"), dots, title="Learning and forgetting, means over the targets",
                          note="lower right is better", x_label="target loss falls by, nats", y_label="other tasks' loss rises by, nats")
    tables = "\n".join(table(target_table(f, t)) for t in TARGETS if any(f.best(t, m) for m in METHODS))
    if all(f"samples/{t}" in results for t in TARGETS):
        tables += ("\n\n## Tokens that are scored\n\n" + table(samples_table(f)) + "\n\nOf the experts that scores of 131,072 tokens choose (token score, p 0.2; "
                   "fewer where the target has fewer), the share that scores of so many tokens choose, too.")
    steps = max(r["steps"] for k, r in results.items() if k.startswith("tune/") and "steps" in r)
    o.page.write_text(PAGE.format(opening=fill(opening(f)), stem=o.page.stem, tokens=results["mixture"]["tokens"], steps=steps, machine=o.machine, tables=tables))
    print(o.page)


def main():
    o = study_smol.options(__doc__, "study-esft-smol", "SmolLM2-135M-Instruct")
    if o.action == "prepare":
        prepare(o)
    elif o.action == "run":
        Study(o).run()
    else:
        write(o, json.loads((Path(o.results) / "results.json").read_text()))


if __name__ == "__main__":
    main()
