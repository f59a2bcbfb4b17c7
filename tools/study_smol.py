#!/usr/bin/env python3
"""The study of docs/study-smol.md: PESC and its neighbours on SmolLM2-135M, on one GPU, with several runs at a time.

    study_smol.py prepare --model FILE.gguf --source DIR --data DATA      real instructions, held out by record
    study_smol.py run --model FILE.gguf --data DATA --results OUT         trains and evaluates; starts where it stopped
    study_smol.py report --results OUT                                    docs/study-smol.md and its pictures

All it runs is pesc (PESC names the command). `run` obeys --minutes: jobs start in the order of their importance, and one that is
not likely to end in time does not start. A finished job is written to OUT/results.json at once; what is there is not run again.
Runs live in --work, the finished ones of the main rows until the benchmarks have read them. Small figures (--steps, --limit,
--device cpu) try the script itself.
"""
import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parent.parent
PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))
DOMAINS = ["general", "code", "maths"]
SOURCES = {
    "general": ["alpaca/alpaca_union.jsonl", "dolly/dolly-15k.merged.jsonl"],
    "code": ["evol-code/evol-codealpaca-2k-1.json", "evol-code/evol-codealpaca-2k-2.json",
             "gpteacher/codegen-instruct.json"],
    "maths": ["gsm8k/train.jsonl", "math/train.jsonl"],
}
# records of the two mixes, 3.7 % of IDAE-500K and IDAE-720K, and so with the same shares; the smaller is a part of the larger
SIZES = {"train": [11100, 3700, 3700], "train-1.44": [13320, 6660, 6660]}
SEEDS, SEQ_LEN, BATCH_TOKENS, SEARCH = [0, 1, 2], 512, 8192, 0.25

# ---- rows: what is compared

# Rates of a search, each 2.5 times the one before. A search starts with those of its row and goes on until both neighbours of the best
# were tried. Its short runs favour high rates, so the best and the one below it get a whole run, and validation decides between them.
LADDER = "1.6e-6 4e-6 1e-5 2.5e-5 6.3e-5 1.6e-4 4e-4 1e-3 2.5e-3 6.3e-3 1.6e-2".split()
ADDED, WHOLE = "4e-4 1e-3", "2.5e-5 6.3e-5"  # for what is added, and for the weights themselves


class Row:
    def __init__(self, name, what, train, craft=None, rates=None, like=None, data="train", seeds=1, keep=False):
        self.name, self.what, self.train, self.craft = name, what, train, craft
        self.rates, self.like = (rates or "").split(), like  # its own search, or the rate of another row
        self.data, self.seeds, self.keep = data, seeds, keep


def lora(rank, **kw):
    return Row(f"lora-r{rank}", f"Camel: dense, LoRA of rank {rank}", f"--method lora --lora-r {rank} --lora-alpha {rank / 4:g}",
               **kw)


PESC_TRAIN = "--method pesc --lora-r 64 --lora-alpha 16"


def camelidae(name, what, craft="", train="", experts=8, width=64, **kw):
    return Row(name, what, f"{PESC_TRAIN} {train}", f"--experts {experts} --adapter-dim {width} {craft}",
               **({"like": "pesc-8"} | kw if "rates" not in kw else kw))


MAIN = [
    lora(64, rates=ADDED, seeds=3, keep=True),
    camelidae("pesc-8", "Camelidae: 8 adapters of 64, k 2, LoRA 64", rates=ADDED, seeds=3, keep=True),
    Row("molora-8", "8 LoRA experts of rank 64 in the FFN, k 2", "--method molora --experts 8 --lora-r 64 --lora-alpha 16",
        rates=ADDED, seeds=3, keep=True),
    Row("upcycle-8", "8 copies of each FFN, k 2, LoRA 64", "--method upcycle --lora-r 64 --lora-alpha 16",
        "--kind upcycle --experts 8", rates=WHOLE, seeds=3, keep=True),
]
COUNTS = [camelidae(f"pesc-{n}", f"{n} adapters of 64", experts=n, rates=ADDED, seeds=3) for n in (16, 4, 32, 64)]
WIDTHS = [camelidae(f"pesc-8-d{d}", f"8 adapters of {d}", width=d, rates=ADDED, keep=True) for d in (128, 256, 512)]
CHOICES = [
    camelidae("pesc-8-aux0", "no balance loss", train="--aux-coef 0"),
    camelidae("pesc-8-auxsum", "balance loss summed over layers", train="--aux-reduction sum"),
    camelidae("pesc-8-k1", "k 1", craft="--top-k 1"),
    camelidae("pesc-8-k4", "k 4", craft="--top-k 4"),
    camelidae("pesc-8-x1.44", "1.44 times the records, the larger mix", data="train-1.44"),
    Row("lora-r64-x1.44", "Camel, 1.44 times the records", MAIN[0].train, like="lora-r64", data="train-1.44"),
    camelidae("pesc-8-s0.25", "s 0.25", craft="--adapter-scale 0.25", rates=ADDED),
    camelidae("pesc-8-s4", "s 4", craft="--adapter-scale 4", rates="1.6e-4 4e-4"),
    lora(122, rates=ADDED, seeds=3),
    Row("full", "every weight of the dense model", "--method full", rates=WHOLE),
    Row("upcycle-8-full", "every weight of the upcycled model", "--method full", "--kind upcycle --experts 8", rates=WHOLE),
    camelidae("pesc-8-nf4", "on a base in NF4 (QLoRA)", train="--base-dtype nf4"),
    Row("lora-r64-nf4", "Camel on a base in NF4 (QLoRA)", MAIN[0].train + " --base-dtype nf4", like="lora-r64"),
    camelidae("pesc-8-silu", "silu in the adapters", craft="--activation silu"),
    camelidae("pesc-8-relu", "relu in the adapters", craft="--activation relu"),
    camelidae("pesc-8-before", "gates of Switch: softmax before top-k", craft="--router softmax-before"),
    camelidae("pesc-8-upper", "adapters in the upper half of the layers", craft="--layers 15-29"),
    camelidae("pesc-8-lower", "adapters in the lower half", craft="--layers 0-14"),
]
ROWS = {r.name: r for r in MAIN + COUNTS + WIDTHS + CHOICES}
CHOICE_TASKS = "piqa,hellaswag,winogrande,arc_easy,arc_challenge,mmlu"
TEXT_TASKS = "gsm8k,minerva_math,nq_open,triviaqa,humaneval,mbpp"
SEED_TASKS = "piqa,hellaswag,winogrande,arc_easy,arc_challenge"  # of the other seeds of Camel and Camelidae


def tell(text):
    print(text, file=sys.stderr, flush=True)


# ---- prepare: records held out, none longer than a sequence

def unpack(source, name, to):
    path = to / name.replace("/", "_")
    path.write_bytes(lzma.open(source / (name + ".xz")).read())
    return str(path)


def lengths(model, lines, scratch):
    """Tokens of each record's turns, with room for the marks around them."""
    texts = ("\n".join(m["content"] for m in json.loads(line)["messages"]) for line in lines)
    scratch.write_text("".join(json.dumps(t) + "\n" for t in texts))
    ids = subprocess.run([PESC, "tokenize", model, "--jsonl", str(scratch), "-q"], check=True, capture_output=True, text=True)
    return [line.count(",") + 1 + 16 for line in ids.stdout.splitlines()]


def prepare(o):
    """DATA/train.jsonl, train-1.44.jsonl, valid.jsonl, test.jsonl and the benchmarks' files."""
    scratch = o.data / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    held, valid = 300, 100
    most = [n + held + valid for n in SIZES["train-1.44"]]
    files = [w for d in DOMAINS for w in ["--" + d, *(unpack(o.source / "instruct", f, scratch) for f in SOURCES[d])]]
    counts = ",".join(str(int(n * f)) for n, f in zip(most, (1.2, 1.19, 1.3)))
    subprocess.run([PESC, "data", "mix", *files, "--counts", counts, "--seed", "1", "-o", str(scratch / "mix.jsonl"),
                    "--overwrite", "-q"], check=True, stdout=subprocess.DEVNULL)
    lines = (scratch / "mix.jsonl").read_text().rstrip("\n").split("\n")
    seen, parts = dict.fromkeys(DOMAINS, 0), {name: [] for name in ["test", "valid", *SIZES]}
    for line, n in zip(lines, lengths(o.model, lines, scratch / "texts.jsonl")):
        domain = json.loads(line)["domain"]
        at, i = DOMAINS.index(domain), seen[domain]
        if n > SEQ_LEN or i == most[at]:
            continue
        seen[domain] += 1
        if i < held + valid:
            parts["test" if i < held else "valid"].append(line)
            continue
        for name, sizes in SIZES.items():
            if i - held - valid < sizes[at]:
                parts[name].append(line)
    for name, chosen in parts.items():
        (o.data / f"{name}.jsonl").write_text("\n".join(chosen) + "\n")
    shutil.copytree(o.source / "bench", o.data / "bench", dirs_exist_ok=True)
    shutil.rmtree(scratch)
    tell("records: " + ", ".join(f"{name} {len(chosen)}" for name, chosen in parts.items()))


# ---- run: jobs of pesc on one device

class Study:
    rows, full_epochs, search_epochs = ROWS, 1, SEARCH

    def __init__(self, o):
        self.o, self.file = o, o.results / "results.json"
        self.began, self.lock = time.monotonic(), threading.Lock()
        self.took, self.given_up = {}, set()  # seconds of the last jobs of a kind; keys that failed or had no time
        o.results.mkdir(parents=True, exist_ok=True)
        o.work.mkdir(parents=True, exist_ok=True)
        self.results = json.loads(self.file.read_text()) if self.file.exists() else {}

    def left(self):
        return 60 * self.o.minutes - (time.monotonic() - self.began)

    def text(self, *words):
        done = subprocess.run([PESC, *map(str, words), "-q"], capture_output=True, text=True, timeout=max(self.left(), 1))
        if done.returncode:
            raise RuntimeError(f"pesc {' '.join(map(str, words))}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def pesc(self, *words):
        return json.loads(self.text(*words, "--json"))

    def save(self, key, row):
        with self.lock:
            old = self.results.get(key, {})
            if key.startswith("full/") and key.endswith(f"/{SEEDS[0]}") and "valid" in old and old["rate"] != row.get("rate"):
                self.results[f"whole/{key.split('/')[1]}/{old['rate']}"] = old
            self.results[key] = row
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps(self.results, indent=1) + "\n")
            new.replace(self.file)

    def device(self):
        return ["--device", self.o.device, "--threads", self.o.threads]

    # -- what a job does

    def base(self):
        """The GGUF file as bf16 weights, which all rows start from."""
        to = self.o.work / "base"
        if not (to / "config.json").exists():
            self.pesc("export", self.o.model, "--to", "hf", "-o", to, "--overwrite", "--check", "false", "--dtype", "bf16")
        return to

    def losses(self, path, *more):
        task = self.pesc("eval", path, "--tasks", self.o.data / "test.jsonl", "--loss-only", "--template", "chatml", "--ctx", "1024",
                         "--limit", self.o.limit, "--compute-dtype", self.o.compute, *more, *self.device())["tasks"][0]
        found = {d["domain"]: d["loss"] for d in task["domains"]}
        return {**found, "mean": mean(found[d] for d in DOMAINS)}

    def train(self, row, seed, rate, part):
        if part == "full" and seed == SEEDS[0] and not row.keep and f"whole/{row.name}/{rate}" in self.results:
            return self.results[f"whole/{row.name}/{rate}"]  # the same run
        run = self.o.work / (f"{row.name}-{seed}" if part == "full" else f"{row.name}-{part}-{rate}")
        model, epochs = self.o.work / "base", self.search_epochs if part == "search" else self.full_epochs
        length = ["--epochs", str(epochs)] if not self.o.steps else ["--steps", str(max(1, int(self.o.steps * epochs)))]
        try:
            if row.craft:
                model = Path(str(run) + ".model")
                self.pesc("craft", self.o.work / "base", "-o", model, "--overwrite", "--seed", seed, "--check", "false", *row.craft.split())
            done = self.pesc("train", model, "-o", run, "--overwrite", *row.train.split(), "--lr", rate, "--seed", seed, *length,
                             "--data", self.o.data / f"{row.data}.jsonl", "--eval-data", self.o.data / "valid.jsonl",
                             "--eval-every", "1000000", "--template", "chatml", "--batch-tokens", self.o.batch_tokens, "--seq-len", SEQ_LEN,
                             "--micro-tokens", self.o.batch_tokens * 3 // 2, "--lora-dropout", "0", "--adapter-dropout", "0",
                             "--compute-dtype", self.o.compute, "--save-every", "0", "--verify-every", "0", *self.device())
            result = {"rate": rate, "valid": done["eval_loss"], "trained": done["params_trained"], "tokens": done["tokens"],
                      **routing(run), **speed(run)}
            if part != "search":
                result.update(self.losses(run), activated=self.pesc("info", run)["params"]["activated"])
            return result
        finally:
            if part != "full" or not self.keeps(row, seed):
                shutil.rmtree(run, ignore_errors=True)
                shutil.rmtree(str(run) + ".model", ignore_errors=True)

    def keeps(self, row, seed):
        """Whether a run is to be looked at later: the first seed, and all seeds that have benchmarks."""
        return row.keep and (seed == SEEDS[0] or row in MAIN[:2])

    def kept(self, name, seed=SEEDS[0]):
        return self.o.work / f"{name}-{seed}"

    def main_models(self):
        camel, *others = [self.kept(r.name) for r in MAIN]
        return [camel, self.o.work / "base", *others]  # differences are to the first

    def bench(self, models, tasks, limit, *more):
        to = self.o.results / f"bench-{models[0].name}-{tasks.split(',')[0]}"
        words = ["eval", *models, "--tasks", tasks, "--suite", "paper", "--data-dir", self.o.data / "bench", "--compute-dtype",
                 self.o.compute, "--limit", limit, "-o", to, *self.device(), *more]
        about = {"models": [m.name for m in models], "rates": self.rates_of(models)}
        try:
            return {**about, "table": self.text(*words)}  # the table has the paired differences
        except RuntimeError as e:
            if "sandbox" not in str(e):
                raise
            words[words.index(tasks)] = tasks.replace(",humaneval,mbpp", "")
            return {**about, "table": self.text(*words), "note": "no sandbox here: humaneval and mbpp are left out"}

    def routes(self, name):
        return {"out": self.pesc("routes", self.kept(name), "--data", self.o.data / "test.jsonl", "--template", "chatml", "--layer", "15",
                                 "-o", self.o.results / f"routes-{name}", *self.device())}

    def distance(self, name):
        models = [self.kept(name), self.kept("upcycle-8")]
        return {"rates": self.rates_of(models), "out": self.pesc("compare", *models, "--data", self.o.data / "test.jsonl", "--template",
                                 "chatml", "--limit", "30", "--compute-dtype", self.o.compute, "-o", self.o.results / f"compare-{name}", *self.device())}

    def cost(self):
        models = [self.o.work / "base"] + [self.kept(n) for n in ("pesc-8", "molora-8", "upcycle-8") if self.kept(n).exists()]
        return {"out": self.pesc("cost", *models, "--measure", "--compute-dtype", self.o.compute, "-o", self.o.results, *self.device())}

    # -- rates

    def tried(self, row):
        """{rate: validation loss} of a row's search; infinite where the run diverged."""
        found = {k.rsplit("/", 1)[1]: r for k, r in list(self.results.items()) if k.startswith(f"search/{row.name}/")}
        return {rate: r.get("valid") or float("inf") for rate, r in found.items() if "failed" not in r or "finite" in r["failed"]}

    def best_rate(self, row):
        """Of the whole runs where two rates have one, otherwise of the search."""
        row = self.searched(row)
        tried = self.wholes(row)
        return lowest(tried if len(tried) > 1 else self.tried(row))

    def wholes(self, row):
        """{rate: validation loss} of the whole runs of the first seed."""
        found = {r["rate"]: r["valid"] for k, r in list(self.results.items()) if k.startswith(f"whole/{row.name}/") and "valid" in r}
        first = self.results.get(f"full/{row.name}/{SEEDS[0]}", {})
        return {**found, **({first["rate"]: first["valid"]} if "valid" in first else {})}

    def open_wholes(self, row):
        """The rates that still need a whole run: the best of an ended search, and the one below it."""
        if not row.rates or self.open_rates(row) or not self.tried(row):
            return []
        at = LADDER.index(lowest(self.tried(row)))
        return [r for r in LADDER[max(at - 1, 0):at + 1] if r not in self.wholes(row)]

    def searched(self, row):
        return self.rows[row.like] if row.like else row

    def open_rates(self, row):
        """What a search still has to try: its first rates, then the neighbours of the best."""
        tried = self.tried(row)
        open_ = [r for r in row.rates if r not in tried]
        if tried and not open_ and min(tried.values()) < float("inf"):
            at = LADDER.index(lowest(tried))
            open_ = [r for r in LADDER[max(at - 1, 0):at + 2] if r not in tried]
        return open_

    def rates_of(self, models):
        runs = {m.name.removesuffix("-0"): self.results.get(f"full/{m.name.removesuffix('-0')}/0") for m in models}
        return {name: r["rate"] for name, r in runs.items() if r}

    # -- jobs: (key, kind, keys it needs, function); those that are still to be done

    def search_jobs(self, rows):
        return [(f"search/{r.name}/{rate}", "search", [], lambda r=r, rate=rate: self.train(r, SEEDS[0], rate, "search"))
                for r in rows for rate in self.open_rates(r)]

    def whole_jobs(self, rows):
        return [(f"whole/{r.name}/{rate}", "full", [], lambda r=r, rate=rate: self.train(r, SEEDS[0], rate, "whole"))
                for r in rows for rate in self.open_wholes(r)]

    def full_jobs(self, rows, seeds):
        """Runs at the best rate, once it is known. One at another rate is made again."""
        out = []
        for s in seeds:
            for r in rows:
                key = f"full/{r.name}/{s}"
                like, rate = self.searched(r), self.best_rate(r)
                if s >= r.seeds or self.open_rates(like) or self.open_wholes(like) or self.results.get(key, {}).get("rate") == rate:
                    continue
                out.append((key, "full", [], lambda r=r, s=s: self.train(r, s, self.best_rate(r), "full")))
        return out

    def rest_jobs(self):
        """Benchmarks and the commands that look at runs."""
        main, pair = [f"full/{r.name}/0" for r in MAIN], ["full/pesc-8/0", "full/upcycle-8/0"]
        seeds = [(f"bench/seed-{s}", "bench", [f"full/{r.name}/{s}" for r in MAIN[:2]],
                  lambda s=s: self.bench([self.kept(r.name, s) for r in MAIN[:2]], SEED_TASKS, min(self.o.bench_limit or 500, 500)))
                 for s in SEEDS[1:]]
        bench = [("bench/choice", "bench", main, lambda: self.bench(self.main_models(), CHOICE_TASKS, self.o.bench_limit)),
                 ("bench/text", "bench", main, lambda: self.bench(self.main_models(), TEXT_TASKS, min(self.o.bench_limit or 200, 200)))]
        routes = [("routes/pesc-8", "analysis", ["full/pesc-8/0"], lambda: self.routes("pesc-8"))]
        compare = [(f"compare/{n}", "analysis", [*pair, f"full/{n}/0"], lambda n=n: self.distance(n))
                   for n in ["pesc-8"] + [r.name for r in WIDTHS]]
        return bench, routes, compare, seeds + [("cost", "alone", main, self.cost)]

    def jobs(self):
        first, later = SEEDS[:1], SEEDS[1:]
        bench, routes, compare, last = ([j for j in part if j[0] not in self.results] for part in self.rest_jobs())
        out = [] if "base" in self.results else [("base", "base", [], lambda: {
            **self.losses(self.base()), "activated": self.pesc("info", self.base())["params"]["activated"]})]
        out += self.search_jobs(MAIN) + self.whole_jobs(MAIN) + self.full_jobs(MAIN, first) + bench + routes
        out += self.full_jobs(MAIN, later) + last[:-1] + self.search_jobs(CHOICES + WIDTHS + COUNTS) + self.whole_jobs(COUNTS + CHOICES + WIDTHS)
        out += self.full_jobs(COUNTS + CHOICES + WIDTHS, first) + compare + self.full_jobs(COUNTS + CHOICES, later) + last[-1:]
        return self.chosen(out)

    def chosen(self, jobs):
        """Each job once, and only those that --only names."""
        return [j for i, j in enumerate(jobs) if j[0] not in {k[0] for k in jobs[:i]} and re.search(self.o.only, j[0])]

    # -- scheduling

    def likely(self, kind):
        """Seconds that a job of this kind takes, by the shortest of the last: fewer run beside each other towards the end."""
        return min(self.took.get(kind, [])[-4:], default=5)

    def next_job(self, running):
        """The first job whose needs are there and that is likely to end in time; None: none now. Two upcycled models at a time are
        trained: a run of one takes 9 GB of disk and 30 GB of the GPU."""
        waiting = [j for j in self.jobs() if j[0] not in running and j[0] not in self.given_up]
        missing = {j[0] for j in waiting} | set(running)
        for key, kind, needs, work in waiting:
            ready = not missing & set(needs) and all("failed" not in self.results.get(n, {"failed": ""}) for n in needs)
            large = "/upcycle" in key and sum("/upcycle" in k for k in running) == 2
            if ready and not large and self.likely(kind) < self.left() and not (kind == "alone" and running):
                return key, kind, needs, work
        return None

    def do(self, job):
        key, kind, _, work = job
        began = time.monotonic()
        try:
            row = work()
        except subprocess.TimeoutExpired:
            row = None
        except (RuntimeError, OSError, ValueError, KeyError, TypeError) as e:
            row = {"failed": str(e)}
        seconds = time.monotonic() - began
        self.took.setdefault(kind, []).append(seconds)
        if row is None or "failed" in row:
            self.given_up.add(key)
        if row is not None:
            self.save(key, {**row, "seconds": round(seconds, 1)})
        told = "no time" if row is None else row.get("failed") or ", ".join(
            f"{k} {row[k]:.4f}" for k in ("valid", "mean") if isinstance(row.get(k), float))
        tell(f"{time.monotonic() - self.began:6.0f} s  {key} ({seconds:.0f} s): {told}")

    def forget(self):
        """Drops the results that are to be made again: what failed without diverging, and runs that are gone but still to be looked at."""
        for key in [k for k, r in self.results.items() if "failed" in r and "finite" not in r["failed"]]:
            del self.results[key]
        needed = {n for j in self.jobs() if j[1] in ("bench", "analysis", "alone") for n in j[2]}
        for row, seed in [(r, s) for r in self.rows.values() for s in SEEDS if self.keeps(r, s) and not self.kept(r.name, s).exists()]:
            old = self.results.pop(f"full/{row.name}/{seed}", None) if f"full/{row.name}/{seed}" in needed else None
            if old and seed == SEEDS[0]:
                self.results.setdefault(f"whole/{row.name}/{old['rate']}", old)

    def run(self):
        self.base()
        self.forget()
        running = {}
        while True:
            for key in [k for k, t in running.items() if not t.is_alive()]:
                del running[key]
            job = self.next_job(running) if len(running) < self.o.workers and "cost" not in running else None
            if job:
                running[job[0]] = threading.Thread(target=self.do, args=(job,))
                running[job[0]].start()
            elif not running:
                break
            else:
                time.sleep(0.1)
        tell(f"{len(self.results)} results, {len(self.jobs())} jobs not run; {self.file}")


def lowest(tried):
    return min(tried, key=tried.get, default=None)


def routing(run):
    """Shares of choices: the extremes over the second half of the run, 1 is even, and what the layers' entropies were over time."""
    log = run / "routing.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    lines = [line for line in lines if line["layers"]]
    if not lines:
        return {}
    late = [line["layers"] for line in lines[len(lines) // 2:]]
    shares, even = [mean(col) for layer in zip(*late) for col in zip(*layer)], 1 / len(late[0][0])
    series = [[line["step"], max(max(layer) for layer in line["layers"]) / even,
               sum(s < 0.01 * even for layer in line["layers"] for s in layer)] for line in lines]
    return {"least_load": min(shares) / even, "most_load": max(shares) / even, "dead": sum(s < 0.01 * even for s in shares),
            "load_over_time": series}


def speed(run):
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {"steps": len(steps), "bytes": max(s["mem_bytes"] for s in steps), "tokens_per_second": median(s["tok_s"] for s in steps)}


def options(doc, page, model):
    """The options that the studies on one GPU have in common."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("action", choices=["prepare", "run", "report"])
    p.add_argument("--model", help=f"{model} as a GGUF file")
    p.add_argument("--source", type=Path, help="prepare: folder with instruct/ and bench/")
    p.add_argument("--data", type=Path, help="what prepare has written")
    p.add_argument("--results", type=Path, default=ROOT / "build" / page, help="where results.json is")
    p.add_argument("--work", type=Path, help="run: where runs live; RESULTS/work if absent")
    p.add_argument("--minutes", type=float, default=15)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--device", default="cuda")
    p.add_argument("--threads", type=int, default=4)
    p.add_argument("--compute", default="bf16", choices=["bf16", "f32"])
    p.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS)
    p.add_argument("--steps", type=int, default=0, help="of a run over one epoch; 0 is as many as the data gives")
    p.add_argument("--limit", type=int, default=0, help="held-out records of a domain; 0 is all")
    p.add_argument("--bench-limit", type=int, default=1000, help="documents of a benchmark; 0 is all")
    p.add_argument("--only", default="", help="run: jobs whose name matches this regular expression, such as ^(base|search|full/pesc-8/)")
    p.add_argument("--machine", default="one NVIDIA H200", help="report: what the machine is called")
    p.add_argument("--page", type=Path, default=ROOT / "docs" / f"{page}.md")
    o = p.parse_args()
    o.work = o.work or o.results / "work"
    return o


def main():
    o = options(__doc__, "study-smol", "SmolLM2-135M-Instruct")
    if o.action == "prepare":
        prepare(o)
    elif o.action == "run":
        Study(o).run()
    else:
        import study_smol_report
        study_smol_report.write(o, ROWS, json.loads((o.results / "results.json").read_text()))


if __name__ == "__main__":
    main()
