#!/usr/bin/env python3
"""Runs a study: methods compared on one model and one set of data, by the description in NAME.toml beside this file.

    studies/run.py NAME run [options]       prepares the data, trains and measures; starts where it stopped
    studies/run.py NAME report [options]    draws the page in docs/ and its pictures from the results
    studies/run.py NAME check               compares the page with studies/results/NAME.json

All it runs is pesc (PESC names the command, LIBPESC the library that draws). README.md beside this file explains descriptions, results and
pages. A finished job is written to WORK/results.json at once; what is there is not run again. `run` obeys --minutes: jobs start in the
order of their importance, and one that is not likely to end in time does not start. Small figures (--scale, --limit, --device cpu) try a study.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import mean, median

import prepare
import report
from study import HERE, ROOT, Study

PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))


def tell(text):
    print(text, file=sys.stderr, flush=True)


class Driver(Study):
    def __init__(self, name, o):
        self.file = o.work / "results.json"
        super().__init__(name, json.loads(self.file.read_text()) if self.file.exists() else {}, o.seeds)
        self.o, self.data = o, o.data or o.work / "data"
        self.runs_dir, self.workers = o.work / "runs", o.workers or self.about.get("workers", 1)
        self.began, self.lock = time.monotonic(), threading.Lock()
        self.took, self.given_up = {}, set()
        self.runs_dir.mkdir(parents=True, exist_ok=True)

    def settle(self):
        """Results of one file are of one scale and limit: others could not be compared with them."""
        asked, known = {"scale": self.o.scale, "limit": self.o.limit}, self.results.get("settings")
        if known and known != asked:
            sys.exit(f"studies: {self.file} was made with {known}, found {asked} now; give these or another --work")
        self.results["settings"] = asked

    def left(self):
        return 60 * self.o.minutes - (time.monotonic() - self.began)

    # ---- pesc

    def text(self, *words):
        done = subprocess.run([PESC, *map(str, words), "-q"], capture_output=True, text=True, timeout=max(self.left(), 1))
        if done.returncode:
            raise RuntimeError(f"pesc {' '.join(map(str, words))}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def pesc(self, *words):
        return json.loads(self.text(*words, "--json"))

    def options(self, command):
        """Those that the description gives for every call of a command, and those of this machine."""
        return [*shlex.split(self.about.get(command, "")), "--device", self.o.device, "--threads", self.o.threads]

    # ---- models

    def base(self):
        """The model that all rows start from; a GGUF file once as bf16 weights."""
        path = self.o.model or self.about.get("base")
        if not path:
            raise SystemExit(f"studies: {self.name} needs a model: give --model, {self.about['model']}")
        if not self.about.get("export") or not (ROOT / path).exists():
            return ROOT / path
        to = self.runs_dir / "base"
        if not (to / "config.json").exists():
            self.pesc("export", ROOT / path, "--to", "hf", "-o", to, "--overwrite", "--check", "false", "--dtype", "bf16")
        return to

    def craft(self, model, to, options, seed=0):
        self.pesc("craft", model, "-o", to, "--overwrite", "--seed", seed, "--check", "false", *options)
        return to

    def model_dir(self, name, target):
        """The model that is called so in the description; without a name the base."""
        return self.runs_dir / self.model_key(name, target).removesuffix("/all").replace("/", "-") if name else self.base()

    def tuned(self, name, target):
        """A model that rows start from: crafted, where its description says how, and tuned."""
        about, run, model = self.models[name], self.model_dir(name, target), self.base()
        craft = about.get("craft", "").split()
        if about.get("every"):
            layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
            craft += ["--layers", ",".join(map(str, range(about["every"] - 1, layers, about["every"])))]
        if craft:
            model = self.craft(model, Path(f"{run}.crafted"), craft)
        done = self.pesc("train", model, "-o", run, "--overwrite", "--epochs", about["epochs"] * self.o.scale, "--data", self.file_of(about["data"], target),
                         *self.options("train"), *about["train"].split())
        return {"trained": done["params_trained"], "tokens": done["tokens"], **routing(run), **speed(run), **self.measured(run)}

    def file_of(self, name, target):
        return self.data / (name.format(target=target) + ".jsonl")

    def scores_key(self, name, target):
        return f"scores/{name}/{target or 'all'}"

    def scores_dir(self, name, target):
        return self.runs_dir / "-".join(filter(None, ["scores", name, target]))

    def scores(self, name, target, to=None, *more):
        """Which experts of a model the target uses, and where the description has a background, which ones that uses."""
        if self.about.get("background"):
            more = [*more, "--background", self.file_of(self.about["background"], target)]
        self.text("esft", "score", self.model_dir(name, target), "--data", self.file_of(self.about["scores"], target), "-o",
                  to or self.scores_dir(name, target), *more, *self.options("score"))
        return {}

    def samples(self, target):
        """{tokens: share of the experts that the largest sample chooses, which a sample of so many tokens chooses too}"""
        chosen = {}
        for n in self.about["samples"]:
            to = self.runs_dir / f"sample-{target}-{n}"
            self.scores(self.about["start"], target, to, "--tokens", n, "--seed", 1)
            chosen[n] = {(layer, e) for layer, experts in self.select(to, self.about["samples_by"], to / "experts.json").items() for e in experts}
        most = chosen[self.about["samples"][-1]]
        return {"shared": {str(n): len(c & most) / len(most) for n, c in chosen.items()}, "experts": len(most)}

    def select(self, scores, options, to):
        self.text("esft", "select", scores, *options.split(), "-o", to)
        return json.loads(to.read_text())["experts"]

    def choose(self, row, seed, to):
        """The experts that train, and how many; `random OPTIONS` draws as many a layer as these options choose."""
        scores, options = self.scores_dir(row.start, row.target), row.choose.removeprefix("random ")
        layers = self.select(scores, options.format(background=scores / "background"), to)
        if options != row.choose:
            experts = int(self.models[row.start]["craft"].split("--experts ")[1].split()[0])
            layers = prepare.draw(layers, experts, seed)
            to.write_text(json.dumps({"experts": layers, "shared_experts": False, "non_expert_modules": False}))
        return sum(map(len, layers.values()))

    # ---- runs

    def donors(self, row):
        """The models of the description that the options of craft name in braces."""
        return re.findall(r"\{(\w+)\}", row.craft or "")

    def with_models(self, row):
        places = {name: self.model_dir(name, row.target) for name in self.donors(row)}
        return [word.format_map(places) for word in row.craft.split()]

    def run_dir(self, row, seed, rate):
        return self.runs_dir / f"{row.name.replace('/', '-')}-{seed}-{rate}"

    def train(self, kind, row, seed, rate):
        run = self.run_dir(row, seed, rate) if kind == "full" else self.runs_dir / f"{row.name.replace('/', '-')}-search-{rate}"
        part = row.times * self.o.scale * (self.search["part"] if kind == "search" else 1)
        length = ["--steps", max(1, int(self.about["steps"] * part))] if "steps" in self.about else ["--epochs", f"{self.about['epochs'] * part:g}"]
        model, experts, chosen, keep = self.model_dir(row.start, row.target), [], 0, False
        try:
            if row.craft:
                model = self.craft(model, Path(f"{run}.crafted"), self.with_models(row), seed)
            if row.choose:
                chosen, experts = self.choose(row, seed, Path(f"{run}.experts")), ["--experts-config", f"{run}.experts"]
            data, valid = (self.file_of(name, row.target) for name in (row.data, row.valid or self.about.get("valid", "valid")))
            done = self.pesc("train", model, "-o", run, "--overwrite", "--data", data, "--eval-data", valid, "--eval-every", 1000000, "--save-every", 0,
                             *self.options("train"), *length, *row.train.split(), *experts, "--lr", rate, "--seed", seed)
            result = {"seed": seed, "rate": rate, "valid": done["eval_loss"], "trained": done["params_trained"], "tokens": done["tokens"],
                      "experts": chosen, **routing(run), **speed(run)}
            if kind == "full" and (self.search["part"] < 1 or seed != self.seeds[0] or
                                   all(result["valid"] < v for v in self.tried(row).values())):
                result.update(self.measured(run))
            keep = kind == "full" and (row.name, seed) in self.wanted()
            return result
        finally:
            if not keep:
                self.remove(run)

    def remove(self, run):
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(f"{run}.crafted", ignore_errors=True)

    def measured(self, path):
        return {**self.measure(path), "activated": self.pesc("info", path)["params"]["activated"]}

    def measure(self, path):
        """Losses and exact answers by domain, their means, numbers that are right, the preference for chosen answers, and scores of benchmarks, as
        far as the description asks."""
        out = {"loss": {}, "exact": {}}
        for test in self.about["tests"]:
            file = ROOT / test["file"] if test["file"].startswith("share/") else self.data / test["file"]
            measured = self.pesc("eval", path, "--tasks", file, "--limit", self.o.limit, *self.options("eval"))["tasks"][0]
            if "pairs" in measured:
                out.update({key: measured[key] for key in ("accuracy", "margin")})
                continue
            task = measured
            for d in task["domains"]:
                if d["domain"] in test.get("domains", [d["domain"]]):
                    out["loss"][d["domain"]], out["exact"][d["domain"]] = d["loss"], d["exact_match"]
            if test.get("numbers"):
                right = [prepare.last_number(s["answer"]) == prepare.last_number(s["expected"]) for s in task["samples"] if s["domain"] == test["numbers"]]
                out["numbers"] = 100 * mean(right)
        out["mean"] = task["all"]["loss"] if self.about.get("mean") == "tokens" else mean(out["loss"].values())
        out["exact_mean"] = task["all"]["exact_match"]
        if self.about.get("scores_of") and (self.data / "bench").is_dir():
            report = self.pesc("eval", path, "--tasks", self.about["scores_of"], "--data-dir", self.data / "bench", "--limit",
                               min(self.o.bench_limit, 200), "-o", self.o.work / "bench" / path.name, *self.options("eval_tasks"))
            out["scores"] = {name: 100 * r.get("acc_norm,none", r.get("acc,none")) for name, r in report["results"].items()}
        return out

    # ---- analyses: commands that look at finished runs

    def needs(self, analysis):
        """The rows that an analysis names in braces, with its seed."""
        return [(n, analysis.get("seed", self.seeds[0])) for n in re.findall(r"\{([^}]+)\}", analysis["run"]) if n in self.rows]

    def analyses(self):
        return [a for a in self.about.get("analyses", []) if a["name"] not in self.results]

    def wanted(self):
        """Runs that analyses still have to look at."""
        return {n for a in self.analyses() for n in self.needs(a)}

    def analyse(self, analysis):
        needs = dict(self.needs(analysis))
        paths = {n: self.run_dir(self.rows[n], seed, self.best_rate(self.rows[n])) for n, seed in needs.items()}
        words = shlex.split(analysis["run"].format_map({**paths, "base": self.base(), "data": self.data}))
        if "--limit" in words and analysis.get("table"):
            at = words.index("--limit") + 1
            words[at] = min(int(words[at]), self.o.bench_limit)
        words += ["-o", self.o.work / analysis["name"].replace("/", "-"), *self.options(words[0] if words[0] != "eval" else "eval_tasks")]
        about = {"models": [n for n in re.findall(r"\{([^}]+)\}", analysis["run"]) if n != "data"], "seed": analysis.get("seed", self.seeds[0]),
                 "rates": {n: self.best_rate(self.rows[n]) for n in needs}}
        if not analysis.get("table"):
            return {**about, "out": self.pesc(*words)}
        try:
            return {**about, "table": self.text(*words)}  # the table has the paired differences
        except RuntimeError as e:
            if "sandbox" not in str(e):
                raise
            at = words.index("--tasks") + 1
            words[at] = words[at].replace(",humaneval,mbpp", "")
            return {**about, "table": self.text(*words), "note": "no sandbox here: humaneval and mbpp are left out"}

    # ---- jobs: (key, kind, keys it needs, function), in the order of their importance

    def run_jobs(self, kind, rows, seeds, rates):
        out = []
        for seed in seeds:
            for r in rows:
                needs = [self.scores_key(r.start, r.target)] if r.choose else [self.model_key(r.start, r.target)] if r.start else []
                needs += [self.model_key(name, r.target) for name in self.donors(r)]
                out += [(f"{kind}/{r.name}/{seed}/{rate}", kind, needs, lambda r=r, seed=seed, rate=rate: self.train(kind, r, seed, rate))
                        for rate in rates(r, seed) if f"{kind}/{r.name}/{seed}/{rate}" not in self.results]
        return out

    def group_jobs(self, rows, analyses):
        """Rows from their search to their last seed, with the analyses that need only them and those before."""
        first, later = self.seeds[:1], self.seeds[1:]
        kind = "search" if self.search["part"] < 1 else "full"

        def best(r, seed):
            return [x for x in [self.best_rate(r)] if x and seed in self.seeds_of(r)]

        def analysis_jobs(seeds):
            chosen = [a for a in analyses if a.get("seed", first[0]) in seeds]
            return [(a["name"], "alone" if a.get("alone") else "analysis", [("run", *n) for n in self.needs(a)], lambda a=a: self.analyse(a)) for a in chosen]

        return (self.run_jobs(kind, rows, first, lambda r, _: self.open_rates(r)) + self.run_jobs("full", rows, first, lambda r, _: self.open_wholes(r)) +
                self.run_jobs("full", rows, first, best) + analysis_jobs(first) + self.run_jobs("full", rows, later, best) + analysis_jobs(later))

    def jobs(self):
        out = []
        if not self.targets:
            out.append(("base", "base", [], lambda: self.measured(self.base())))
        for name, t in [(name, t) for name in self.models for t in self.targets or [None]]:
            key = self.model_key(name, t)
            out.append((key, "model", [], lambda name=name, t=t: self.tuned(name, t)))
            if any(r.choose and r.start == name for r in self.rows.values()):
                out.append((self.scores_key(name, t), "scores", [key], lambda name=name, t=t: self.scores(name, t)))
        out += [(f"samples/{t}", "scores", [self.model_key(self.about["start"], t)], lambda t=t: self.samples(t)) for t in self.targets if self.about.get("samples")]
        main, rest = ([r for r in self.rows.values() if bool(r.main) == m] for m in (True, False))
        done = set()
        for group in (main, rest):
            done |= {r.name for r in group}
            out += self.group_jobs(group, [a for a in self.analyses() if {n for n, _ in self.needs(a)} <= done])
        once = {j[0]: j for j in reversed(out) if j[0] not in self.results and re.search(self.o.only, j[0])}
        order = {j[0]: i for i, j in reversed(list(enumerate(out)))}
        return sorted(once.values(), key=lambda j: (j[1] == "alone", order[j[0]]))

    # ---- scheduling

    def ready(self, need, running):
        if isinstance(need, tuple):
            _, name, seed = need
            row = self.rows[name]
            return self.best_rate(row) is not None and self.run_dir(row, seed, self.best_rate(row)).exists() and not any(k.startswith(f"full/{name}/") for k in running)
        return "failed" not in self.results.get(need, {"failed": ""})

    def next_job(self, running):
        """The first job whose needs are there and that is likely to end in time; None: none now. A run of an upcycled model takes so much
        disk and memory that two of them at a time are enough."""
        for key, kind, needs, work in self.jobs():
            if key in running or key in self.given_up or not all(self.ready(n, running) for n in needs):
                continue
            large = "/upcycle" in key and sum("/upcycle" in k for k in running) == 2
            likely = min(self.took.get(kind, [])[-4:], default=5)
            if not large and likely < self.left() and not (kind == "alone" and running):
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
            row = {"failed": f"{type(e).__name__}: {e}"}
        seconds = time.monotonic() - began
        self.took.setdefault(kind, []).append(seconds)
        if row is None or "failed" in row:
            self.given_up.add(key)
        if row is not None:
            self.save(key, {**row, "seconds": round(seconds, 1)})
        said = "no time" if row is None else row.get("failed") or ", ".join(
            f"{k} {row[k]:.4f}" for k in ("valid", "mean") if isinstance(row.get(k), float))
        tell(f"{time.monotonic() - self.began:6.0f} s  {key} ({seconds:.0f} s): {said}")

    def save(self, key, row):
        with self.lock:
            self.results[key] = row
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps(self.results, indent=1) + "\n")
            new.replace(self.file)
            wanted = self.wanted()
            for r in self.rows.values():  # runs at a rate that was not chosen, and those that everything has looked at
                best = self.best_rate(r)
                for seed in self.seeds if best else []:
                    for rate in {x for s, x in self.runs("full", r.name) if s == seed and (x != best or (r.name, seed) not in wanted)}:
                        self.remove(self.run_dir(r, seed, rate))

    def forget(self):
        """Drops the results that are to be made again: what failed without diverging, and what is gone but still to be looked at."""
        for key in [k for k, r in self.results.items() if "failed" in r and "finite" not in r["failed"]]:
            del self.results[key]
        for name, seed in self.wanted():
            rate = self.best_rate(self.rows[name])
            if rate and not self.run_dir(self.rows[name], seed, rate).exists() and re.search(self.o.only, f"full/{name}/{seed}/{rate}"):
                self.results.pop(f"full/{name}/{seed}/{rate}", None)
        if any(k.startswith(("full/", "search/", "scores/")) for k, *_ in self.jobs()):
            for name, t in [(name, t) for name in self.models for t in self.targets or [None]]:
                if not (self.model_dir(name, t) / "latest").exists():
                    self.results.pop(self.model_key(name, t), None)
                if not self.scores_dir(name, t).exists():
                    self.results.pop(self.scores_key(name, t), None)

    def run(self):
        self.settle()
        prepare.data(self)
        self.base()
        self.forget()
        running = {}
        while True:
            for key in [k for k, t in running.items() if not t.is_alive()]:
                del running[key]
            alone = any(a["name"] in running for a in self.about.get("analyses", []) if a.get("alone"))
            job = self.next_job(running) if len(running) < self.workers and not alone else None
            if job:
                running[job[0]] = threading.Thread(target=self.do, args=(job,))
                running[job[0]].start()
            elif not running:
                break
            else:
                time.sleep(0.1)
        tell(f"{len(self.results) - 1} results, {len(self.jobs())} jobs not run; {self.file}")


def routing(run):
    """Shares of choices: the extremes over the second half of the run, 1 is even, and the largest of any layer over time."""
    log = run / "routing.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    lines = [line for line in lines if line["layers"]]
    if not lines:
        return {}
    late = [line["layers"] for line in lines[len(lines) // 2:]]
    shares, even = [mean(col) for layer in zip(*late) for col in zip(*layer)], 1 / len(late[0][0])
    series = [[line["step"], max(max(layer) for layer in line["layers"]) / even] for line in lines]
    return {"least_load": min(shares) / even, "most_load": max(shares) / even, "dead": sum(s < 0.01 * even for s in shares), "load_over_time": series}


def speed(run):
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {"steps": len(steps), "bytes": max(s["mem_bytes"] for s in steps), "tokens_per_second": median(s["tok_s"] for s in steps)}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", help="of the description: " + ", ".join(sorted(f.stem for f in HERE.glob("*.toml"))) + ", or a file FILE.toml of your own")
    p.add_argument("action", choices=["run", "report", "check"])
    p.add_argument("--work", type=Path, help="where results.json, data and runs are; build/studies/NAME if absent")
    p.add_argument("--model", help="the model, where the description does not name one: a GGUF file or a directory")
    p.add_argument("--source", type=Path, help="folder of raw data (instruct/, bench/), where the description needs one")
    p.add_argument("--data", type=Path, help="prepared data; WORK/data if absent")
    p.add_argument("--minutes", type=float, default=600)
    p.add_argument("--workers", type=int, help="runs at a time; the description's if absent")
    p.add_argument("--only", default="", help="jobs whose key matches this regular expression, such as ^(base|full/pesc-8/)")
    p.add_argument("--seeds", type=lambda s: [int(x) for x in s.split(",")], help="instead of the description's, such as 0,1")
    p.add_argument("--scale", type=float, default=1, help="of the length of all runs")
    p.add_argument("--limit", type=int, default=0, help="held-out records of a domain; 0 is all")
    p.add_argument("--bench-limit", type=int, default=10 ** 9, help="most documents of a benchmark")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", default="0")
    p.add_argument("--machine", default="this machine", help="report: what the machine is called")
    p.add_argument("--page", type=Path, help="report: where the page goes; if absent docs/, and the results to studies/results; of a trial (--scale, --limit) WORK")
    o = p.parse_args()
    o.work = o.work or ROOT / "build/studies" / Path(o.name).stem
    return o


def main():
    o = options()
    if o.action == "run":
        Driver(o.name, o).run()
        return 0
    return report.write(o) if o.action == "report" else report.check(o.name)


if __name__ == "__main__":
    sys.exit(main())
