"""The report of tools/study_smol.py: docs/study-smol.md, its tables and pictures, from results.json.

Keys of results: "base", "search/ROW/RATE", "whole/ROW/RATE" (a whole run of seed 0 at a rate that was not chosen), "full/ROW/SEED",
"bench/choice", "bench/text", "bench/seed-SEED", "compare/ROW", "routes/ROW", "cost".
The sentences that open the page are chosen by the figures: what is not measured is not said.
"""
import os
import re
import textwrap
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

import study_gpu_report

DOMAINS = ["general", "code", "maths"]
MAIN = ["lora-r64", "pesc-8", "molora-8", "upcycle-8"]
GROUPS = [
    ("Main rows", ["lora-r64", "lora-r122", "pesc-8", "molora-8", "upcycle-8", "upcycle-8-full", "full"]),
    ("Number of experts (Table 4)", ["pesc-4", "pesc-8", "pesc-16", "pesc-32", "pesc-64"]),
    ("Experts a token", ["pesc-8-k1", "pesc-8", "pesc-8-k4"]),
    ("Width of an adapter", ["pesc-8", "pesc-8-d128", "pesc-8-d256", "pesc-8-d512"]),
    ("Scale s", ["pesc-8-s0.25", "pesc-8", "pesc-8-s4"]),
    ("Balance loss", ["pesc-8-aux0", "pesc-8", "pesc-8-auxsum"]),
    ("Data, the mix of 500K and of 720K", ["lora-r64", "lora-r64-x1.44", "pesc-8", "pesc-8-x1.44"]),
    ("A base in NF4", ["lora-r64", "lora-r64-nf4", "pesc-8", "pesc-8-nf4"]),
    ("Choices beside the paper's", ["pesc-8", "pesc-8-silu", "pesc-8-relu", "pesc-8-before", "pesc-8-upper", "pesc-8-lower"]),
]
PAIRS = [("pesc-8", "lora-r64"), ("pesc-8", "lora-r122"), ("pesc-8", "molora-8"), ("pesc-8-d256", "molora-8"), ("pesc-8", "upcycle-8"),
         ("pesc-8-d512", "upcycle-8"), ("pesc-16", "pesc-4"), ("pesc-32", "pesc-16"), ("pesc-64", "pesc-32"), ("pesc-8-d512", "pesc-8-d256"),
         ("pesc-8-auxsum", "pesc-8"), ("pesc-8-aux0", "pesc-8"), ("pesc-8-k4", "pesc-8"), ("pesc-8-k1", "pesc-8")]


def line(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


class Findings:
    def __init__(self, rows, results):
        self.rows, self.results = rows, results

    def seeds(self, name):
        """Finished full runs of a row, {seed: result}; where they were run at several rates, those at the best."""
        found = {}
        for key, r in self.results.items():
            kind, *rest = key.split("/")
            if kind == "full" and rest[0] == name and "mean" in r:
                found[int(rest[1])] = r
        best = self.best(self.rows[name].like or name)
        return {s: r for s, r in sorted(found.items()) if r["rate"] == best} or found

    def best(self, name):
        """The rate of a row: of whole runs of seed 0 that with the lowest validation loss; of the search, where fewer than two rates have one."""
        tried = self.wholes(name)
        if len(tried) < 2:
            tried = {text: r for _, text, r in self.searched(name)}
        return min(tried, key=lambda rate: tried[rate]["valid"], default=None)

    def wholes(self, name):
        """Whole runs of seed 0, {rate: result}, from the lowest rate."""
        runs = [r for k, r in self.results.items() if k.startswith(f"whole/{name}/") or k == f"full/{name}/0"]
        return {r["rate"]: r for r in sorted((r for r in runs if "mean" in r), key=lambda r: float(r["rate"]))}

    def loss(self, name):
        return mean(r["mean"] for r in self.seeds(name).values())

    def searched(self, row):
        found = [(float(k.rsplit("/", 1)[1]), k.rsplit("/", 1)[1], r) for k, r in self.results.items()
                 if k.startswith(f"search/{row}/") and r.get("valid")]
        return sorted(found)

    def edge(self, name):
        """Whether the best rate of its own search is the lowest or the highest tried."""
        tried = [t[1] for t in self.searched(name)]
        return len(tried) > 1 and self.best(name) in (tried[0], tried[-1])

    def cells(self, name):
        row, runs = self.rows[name], list(self.seeds(name).values())
        values = [r["mean"] for r in runs]
        spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
        load = (f"{min(r['least_load'] for r in runs):.2f} to {max(r['most_load'] for r in runs):.2f}, {max(r['dead'] for r in runs)} dead"
                if all("most_load" in r for r in runs) else "")
        return [name, row.what, f"{runs[0]['trained'] / 1e6:.1f}", f"{runs[0]['activated'] / 1e6:.1f}",
                runs[0]["rate"] + ("\\*" if not row.like and self.edge(name) else ""), f"{mean(values):.4f}{spread}",
                *(f"{mean(r[d] for r in runs):.3f}" for d in DOMAINS), load, f"{max(r['bytes'] for r in runs) / 1e9:.1f}", len(runs)]

    def tables(self):
        head = ["row", "what", "trained M", "activated M", "rate", "mean loss", *DOMAINS, "load of experts", "GB", "seeds"]
        for title, names in GROUPS:
            there = [n for n in names if n in self.rows and self.seeds(n)]
            if names != GROUPS[0][1] and not set(there) - set(MAIN):
                continue
            yield f"## {title}\n\n{line(head)}\n{line(['---'] * len(head))}"
            if names == GROUPS[0][1] and "mean" in self.results.get("base", {}):
                b = self.results["base"]
                yield line(["base", "not tuned", "0", f"{b['activated'] / 1e6:.1f}", "", f"{b['mean']:.4f}",
                            *(f"{b[d]:.3f}" for d in DOMAINS), "", "", ""])
            for n in there:
                yield line(self.cells(n))
            yield ""

    def paired(self, a, b):
        """The mean of the differences of equal seeds, and whether all have one sign; None without two common seeds."""
        x, y = self.seeds(a), self.seeds(b)
        common = sorted(x.keys() & y.keys())
        if not common:
            return None
        diffs = [x[s]["mean"] - y[s]["mean"] for s in common]
        error = stdev(diffs) / sqrt(len(diffs)) if len(diffs) > 1 else None
        return mean(diffs), error, len(diffs), all(d < 0 for d in diffs) or all(d > 0 for d in diffs)

    def differences(self):
        yield line(["difference of mean loss", "mean", "standard error", "seeds", "all seeds agree in sign"])
        yield line(["---"] * 5)
        for a, b in PAIRS:
            d = self.paired(a, b) if a in self.rows and b in self.rows else None
            if d:
                error = f"{d[1]:.4f}" if d[1] is not None else "one seed"
                yield line([f"{a} - {b}", f"{d[0]:+.4f}", error, d[2], ("yes" if d[3] else "no") if d[2] > 1 else ""])

    # ---- benchmarks

    def scores(self):
        """{task: {model: (score, error, difference to lora-r64, its error)}} of all evaluations, in percent."""
        found = {}
        for job in (r for key, r in self.results.items() if key.startswith("bench/") and not key.startswith("bench/seed-")):
            for model, tasks in bench_rows(job):
                for task, values in tasks.items():
                    found.setdefault(task, {})[model] = values
        return found

    def bench_table(self):
        scores = self.scores()
        models = [m for m in ["base", *(f"{n}-0" for n in MAIN)] if any(m in row for row in scores.values())]
        yield line(["task", *(m.removesuffix("-0") for m in models)])
        yield line(["---"] * (1 + len(models)))
        for task, row in scores.items():
            yield line([task, *(score_text(row.get(m)) for m in models)])

    def seeds_table(self):
        """Camelidae less Camel, in percent: by seed, and over the seeds."""
        by_seed = {0: bench_rows(self.results.get("bench/choice", {}))}
        by_seed |= {int(k.split("-")[1]): bench_rows(r) for k, r in sorted(self.results.items()) if k.startswith("bench/seed-")}
        found = {}
        for seed, models in by_seed.items():
            for task, values in dict(models).get(f"pesc-8-{seed}", {}).items():
                found.setdefault(task.split(" ")[0].rstrip("?"), {})[seed] = values
        yield line(["task", *(f"seed {s}" for s in by_seed), "mean over seeds, with its standard error"])
        yield line(["---"] * (len(by_seed) + 2))
        for task, row in found.items():
            diffs = [v[2] for v in row.values()]
            if len(diffs) > 1:
                yield line([task, *(f"{row[s][2]:+.1f} ± {row[s][3]:.1f}" if s in row else "" for s in by_seed),
                            f"{mean(diffs):+.2f} ± {stdev(diffs) / sqrt(len(diffs)):.2f}"])

    def wholes_table(self):
        yield line(["row", "rate: validation loss, held-out loss"])
        yield line(["---"] * 2)
        for name in self.rows:
            tried = self.wholes(name)
            if len(tried) > 1:
                yield line([name, "; ".join(f"{rate}: {r['valid']:.4f}, {r['mean']:.4f}" for rate, r in tried.items())])

    def cost_table(self):
        """What was measured, a line for each phase and size, a column for each model."""
        models = self.results["cost"]["out"]["models"]
        yield line(["", *(Path(m["model"]).name.removesuffix("-0") for m in models)])
        yield line(["---"] * (1 + len(models)))
        parts = [{p["part"]: p for p in m["parts"]} for m in models]
        merged = [p["total"]["inference"] - (m["kind"] != "molora") * p["lora"]["inference"] for m, p in zip(models, parts)]
        yield line(["inference, MFLOP a token", *(f"{n / m['tokens'] / 1e6:.0f} ({n / merged[0]:.2f})" for n, m in zip(merged, models))])
        trained = [p["total"]["forward"] + p["total"]["backward"] for p in parts]
        yield line(["training, MFLOP a token", *(f"{n / m['tokens'] / 1e6:.0f} ({n / trained[0]:.2f})" for n, m in zip(trained, models))])
        for runs in zip(*(m["measured"] for m in models)):
            r = runs[0]
            yield line([f"{r['phase']} {r['sequences']} x {r['tokens']}", *(cost_cell(x, r) for x in runs)])

    def search_table(self):
        yield line(["row", "rate: validation loss"])
        yield line(["---"] * 2)
        for name in self.rows:
            tried = self.searched(name)
            if tried:
                yield line([name, ", ".join(f"{text}: {r['valid']:.4f}" for _, text, r in tried)])

    def distance_table(self):
        yield line(["adapters of", "same expert", "nearest expert", "KL of the next token", "greedy tokens the same"])
        yield line(["---"] * 5)
        for name, width in (("pesc-8", 64), ("pesc-8-d128", 128), ("pesc-8-d256", 256), ("pesc-8-d512", 512)):
            out = self.results.get(f"compare/{name}", {}).get("out")
            if out:
                yield line([width, *distance_cells(out)])


def cost_cell(r, first):
    if not r["seconds"]:
        return "does not fit"
    return f"{1e3 * r['seconds']:.2f} ms ({r['seconds'] / first['seconds']:.2f}), {r['bytes'] / 1e9:.2f} GB"


def score_text(values):
    if not values:
        return ""
    score, error, diff, diff_error = values
    text = f"{score:.1f} ± {error:.1f}"
    return text if diff is None else f"{text} ({diff:+.1f} ± {diff_error:.1f})"


# One line of the table of `pesc eval`: task, shots, metric, documents; scores of all models; differences of all but the first.
ROW = re.compile(r"(\S+) +(\d+)  (.*?) +(\d+)((?:  +[-+]?(?:[\d.]+(?: ± [\d.]+)?)?)+) *$")
VALUE = re.compile(r"([-+]?[\d.]+)(?: ± ([\d.]+))?")
METRICS = {"piqa": "acc", "hellaswag": "acc_norm", "winogrande": "acc", "arc_easy": "acc", "arc_challenge": "acc_norm", "mmlu": "acc",
           "gsm8k": "exact_match flexible-extract", "minerva_math": "math_verify", "nq_open": "exact_match", "triviaqa": "exact_match",
           "humaneval": "pass@1", "mbpp": "pass_at_1"}


def bench_rows(job):
    """[(model, {task (metric, documents): (score, error, difference, error)})] of one evaluation; one metric a task."""
    models = job.get("models", [])
    found = [(m, {}) for m in models]
    seen = set()
    for text in job.get("table", "").splitlines():
        m = ROW.match(text)
        if not m or m[1].rstrip("?") not in METRICS or m[1] in seen:
            continue
        values = VALUE.findall(m[5])
        wanted = METRICS[m[1].rstrip("?")]
        others = [t for t in job["table"].splitlines() if t.startswith(m[1] + " ") and wanted in t]
        if len(values) != 2 * len(models) - 1 or (others and m[3].strip() != wanted and not m[3].startswith(wanted)):
            continue
        seen.add(m[1])
        name = f"{m[1]} ({m[3].strip()}, {int(m[2])} shots, {int(m[4]):,} documents)"
        numbers = [(float(a), float(b or "nan")) for a, b in values]
        for i, (_, tasks) in enumerate(found):
            tasks[name] = numbers[i] + (numbers[len(models) + i - 1] if i else (None, None))
    return found


def distance_cells(out):
    layers = [x for x in out["layers"] if x.get("experts") is not None]
    same, near = (mean(x[k] for x in layers) for k in ("experts", "nearest"))
    return [f"{same:.3f}", f"{near:.3f}", f"{out['kl']:.4f}", f"{100 * out['agreement']:.1f} %"]


# ---- pictures

def by_layer(f):
    """Divergence of the domains' choices in each layer, and what chance gives."""
    out = f.results.get("routes/pesc-8", {}).get("out")
    return {"domains of the records": list(zip(out["layers"], out["difference"])),
            "domains exchanged at random": list(zip(out["layers"], out["chance"]))} if out else {}


def by_size(f):
    groups = {"dense LoRA": ["lora-r64", "lora-r122"], "PESC, 4 to 64 adapters of 64": ["pesc-4", "pesc-8", "pesc-16", "pesc-32", "pesc-64"],
              "PESC, 8 adapters of 128 to 512": ["pesc-8-d128", "pesc-8-d256", "pesc-8-d512"], "mixture of LoRA": ["molora-8"],
              "upcycled": ["upcycle-8", "upcycle-8-full"], "full": ["full"]}
    points = {title: [(next(iter(f.seeds(n).values()))["trained"] / 1e6, f.loss(n)) for n in names if f.seeds(n)]
              for title, names in groups.items()}
    return {title: p for title, p in points.items() if p}


def over_time(f):
    names = {"no balance loss": "pesc-8-aux0", "0.01, mean over layers": "pesc-8", "0.01, sum over layers": "pesc-8-auxsum"}
    found = {title: f.seeds(n).get(0, {}).get("load_over_time") for title, n in names.items()}
    return {title: [(step, most) for step, most, _ in series] for title, series in found.items() if series and len(series) > 1}


# ---- the page

def opening(f):
    """Three sentences with the figures that answer: does PESC help, against what, and do benchmarks show it?"""
    out = []
    d, base = f.paired("pesc-8", "lora-r64"), f.results.get("base", {})
    if d:
        sure = "with this sign in all" if d[3] else "not with this sign in all"
        verb = "lower" if d[0] < 0 else "higher"
        out.append(f"On SmolLM2-135M, 8 adapters as experts (Camelidae) end with a held-out loss {abs(d[0]):.4f} nats {verb} than dense LoRA of the "
                   f"same rank (Camel): {f.loss('pesc-8'):.4f} against {f.loss('lora-r64'):.4f}, untuned {base.get('mean', float('nan')):.4f}, "
                   f"{sure} of {d[2]} seeds.")
    rest = [(name, f.paired("pesc-8", other)) for name, other in (("dense LoRA of as many trainable parameters", "lora-r122"),
            ("a mixture of LoRA, which is larger", "molora-8"), ("the upcycled model", "upcycle-8"))]
    said = [f"{x[0]:+.4f} against {name}" + ("" if x[3] and x[2] > 1 else " (seeds disagree)" if x[2] > 1 else " (one seed)") for name, x in rest if x]
    if said:
        out.append("The difference is " + ", ".join(said) + "; negative favours Camelidae.")
    text = bench_sentence(f)
    return " ".join(out + [text] if text else out)


def bench_sentence(f):
    apart = []
    scores = f.scores()
    for task, row in scores.items():
        a, b = row.get("pesc-8-0"), row.get("lora-r64-0")
        if a and b and abs(a[2]) > 2 * a[3]:
            apart.append(f"{task.split(' ')[0].rstrip('?')} {a[0]:.1f} against {b[0]:.1f}")
    if not scores:
        return ""
    if not apart:
        return (f"On the {len(scores)} benchmarks that were evaluated (one seed) Camelidae and Camel differ by less than two standard errors "
                "everywhere: no difference shows in scores.")
    chance = ", about what chance gives of so many" if len(apart) == 1 else ""
    return (f"Of {len(scores)} benchmarks (one seed) Camelidae and Camel differ by more than two standard errors in {len(apart)}{chance} "
            f"({'; '.join(apart)})." + (" So the gain in loss does not show in scores at this size." if chance else ""))


def routes_table(out):
    """Figure 4: the layer that was looked at closely, choices of each domain in percent, and the tokens of the highest lift."""
    at = out["layers"].index(out["layer"])
    yield line(["expert", *(d["domain"] for d in out["domains"]), "tokens it takes most, by lift"])
    yield line(["---"] * (2 + len(out["domains"])))
    for e in range(out["experts"]):
        tokens = sorted(out["tokens"][e], key=lambda t: -t["lift"])[:5]
        words = ", ".join("`" + t["text"].replace("\n", "\\n").replace("|", "\\|").replace("`", "'") + "`" for t in tokens)
        yield line([e, *(f"{100 * d['share'][at][e]:.1f}" for d in out["domains"]), words])


def routes_text(f, page):
    out = f.results["routes/pesc-8"]["out"]
    sure = sum(p <= 0.01 for p in out["p_value"])
    text = (f"pesc-8, seed 0, {out['domains'][0]['records']} held-out records a domain: in {sure} of {len(out['layers'])} layers the domains' choices differ by more "
            f"than chance (p at most 0.01, 1000 exchanges of the records' domains), though not by much: Jensen-Shannon divergence {mean(out['difference']):.3f} "
            f"on average, {max(out['difference']):.3f} at most, where 1 is no expert in common. Layer {out['layer']}, share of all choices in percent:")
    return (f"## Figure 4: which experts the domains choose\n\n![Difference of the domains by layer]({page.stem}-routes.svg)\n\n{fill(text)}\n\n"
            + table(routes_table(out)))


def table(lines):
    return "\n".join(lines)


def fill(text):
    return textwrap.fill(" ".join(text.split()), 140, break_long_words=False, break_on_hyphens=False)


def rest_of(f, page):
    """Everything after the main tables."""
    out = ["## Paired differences\n\n" + table(f.differences())]
    out.append("A difference is that of runs with the same seed, and so the same order of records; its standard error is over seeds alone.")
    if over_time(f):
        out.append(f"## Load of experts over a run\n\n![Largest share of choices]({page.stem}-load.svg)\n\nThe largest share that one expert of any "
                   "layer has of its layer's choices, 1 being even, every 10 steps, seed 0.")
    if f.scores():
        notes = [f.results[k]["note"] for k in ("bench/choice", "bench/text") if f.results.get(k, {}).get("note")]
        rates = {n: r for k in ("bench/choice", "bench/text") for n, r in f.results.get(k, {}).get("rates", {}).items()}
        others = [f"{n} ({r})" for n, r in rates.items() if f.seeds(n) and f.seeds(n).get(0, {}).get("rate") != r]
        if others:
            notes.append(f"The runs that were evaluated here are earlier ones, at the best rate that was then known, of {', '.join(others)}")
        out.append("## Benchmarks\n\n" + table(f.bench_table()) + "\n\nPercent, ± one standard error; in brackets the difference to "
                   "lora-r64 (Camel), paired by document, with its standard error. Seed 0 of each row; `--suite paper`." + "".join(f" {n}." for n in notes))
    if any(k.startswith("bench/seed-") for k in f.results):
        out.append("### Seeds\n\n" + table(f.seeds_table()) + "\n\npesc-8 less lora-r64 of the same seed, in points of percent, paired by document; 1,000 documents "
                   "a task for seed 0, 500 for the others.")
    if "out" in f.results.get("routes/pesc-8", {}):
        out.append(routes_text(f, page))
    if any(k.startswith("compare/") for k in f.results):
        out.append("## Equation 6: distance of adapters and full experts\n\n" + table(f.distance_table()) +
                   "\n\n`pesc compare` of a PESC model with upcycle-8, means over layers (docs/method.md has the definition).")
    if "out" in f.results.get("cost", {}):
        out.append("## Cost\n\n" + table(f.cost_table()) + "\n\n`pesc cost --measure` with nothing else on the GPU: FLOP are means over a sequence of 2,048 tokens; below, the time and "
                   "memory of sequences x tokens; in brackets against the base. For inference LoRA is merged into the weights (molora-8: that of attention alone). The base trains by LoRA of rank 64.")
    out.append("## Search of the rates\n\n" + table(f.search_table()) + "\n\nValidation loss after a quarter of the steps, seed 0.")
    if any(len(f.wholes(n)) > 1 for n in f.rows):
        out.append("Whole runs of seed 0 at the best rate of the search and at a lower or an earlier one; the lower validation loss decides:\n\n" + table(f.wholes_table()))
    return out


def limits(f):
    """What the reader must know before the tables."""
    edges = [n for n in f.rows if f.seeds(n) and not f.rows[n].like and f.edge(n)]
    out = []
    if edges:
        out.append(f"The best rate of {', '.join(edges)} is the highest or the lowest that was tried (\\* in the tables), so a better one may be beyond it, most of all "
                   "for LoRA, whose validation loss still falls fast there; the differences between methods may be smaller than they look.")
    tried = {n: min(r["valid"] for _, _, r in f.searched(n)) for n in f.rows if f.searched(n)}
    if "full" in tried and not f.seeds("full"):
        place = sorted(tried.values()).index(tried["full"]) + 1
        out.append(f"Tuning every weight of the dense model was only searched: after a quarter of the steps its validation loss, {tried['full']:.4f}, is number {place} of "
                   f"{len(tried)} rows, from the lowest (pesc-8 {tried['pesc-8']:.4f}, upcycle-8 {tried['upcycle-8']:.4f}).")
    best = float(next(iter(f.seeds("pesc-8").values()))["rate"]) if f.seeds("pesc-8") else 0
    below = [n for n in f.rows if f.seeds(n) and n.startswith("pesc-") and f.searched(n) and f.searched(n)[-1][0] < best]
    if below:
        out.append(f"The rates of {', '.join(below)} were searched up to {f.searched(below[0])[-1][1]}, where pesc-8 is best at {best:.0e}: compare these rows with "
                   "each other rather than with pesc-8.".replace("e-0", "e-"))
    old = [n for n in f.rows if f.seeds(n) and next(iter(f.seeds(n).values()))["rate"] != f.best(f.rows[n].like or n)]
    if old:
        out.append(f"{', '.join(old)}: a better rate was found later (last table), but its run was not made; the table has the rate that was used.")
    return " ".join(out)


ABOUT = """Written by `tools/study_smol.py` (`make study-smol`), which runs pesc and nothing else: SmolLM2-135M-Instruct (GGUF, Q4_1, read as bf16), one epoch over
11,100 general (Alpaca, Dolly), 3,700 code (Evol-Instruct-Code, GPTeacher) and 3,700 maths (GSM8K, MATH) instructions of at most 512 tokens, {steps} steps of
about 8,192 tokens (records a step are fixed by a sample of each seed's order), bf16 compute, f32 master weights, a constant rate after 3 % warm-up, clip 0.3, no
dropout, on {machine}. Rates are searched with a quarter of the steps by the loss of 300 other records; the best of them and the next lower have a whole
run each, and its validation loss decides (last tables); rows without a search of their own use the rate of pesc-8 or lora-r64. Loss: nats a token of the answers of 300 held-out records a domain, mean and standard deviation over seeds where there are several. An adapter of 64
is about an eighth of the model's width of 576, as 512 is of 4096 in the paper. Load: the smallest and the largest share of a layer's choices that an expert has in the
second half of the run, 1 is even; dead is below 0.01. GB is the memory of a step. Several runs shared the GPU, so no speed is given. Some runs were made again
by a later build of pesc, which rounds differently; their losses moved by up to 0.0015, as much as other seeds do. 13-grams that training and test data share
(README of the data): 603 of 5,000 MATH, 3 GSM8K and 2 HumanEval items."""

PAGE = """# A study on SmolLM2-135M: Camel, Camelidae and their neighbours

{opening}

![Held-out loss against trainable parameters]({stem}.svg)

{limits}

{about}

{missing}
{tables}
{rest}
"""


def missing(f):
    out = ""
    names = [n for n in f.rows if not f.seeds(n)]
    for what, chosen in (("Only searched, for want of time", [n for n in names if f.searched(n)]),
                         ("Not run for want of time", [n for n in names if not f.searched(n)])):
        out += f"{what}: {', '.join(chosen)}. " if chosen else ""
    absent = [k for k in ("routes", "compare", "bench") if not any(r.startswith(k + "/") and "failed" not in v for r, v in f.results.items())]
    out += f"Not measured: {', '.join('`pesc ' + k.replace('bench', 'eval') + '`' for k in absent)}." if absent else ""
    return out.strip()


def write(o, rows, results):
    f, page = Findings(rows, results), o.page
    library = os.environ.get("LIBPESC", str(Path(__file__).resolve().parent.parent / "build/dist/libpesc.so.0"))
    study_gpu_report.plot(library, page.with_suffix(".svg"), by_size(f), title="SmolLM2-135M: held-out loss of tuned models",
                          note="means of the seeds there are, and of three domains", x_label="trainable parameters, millions", y_label="nats a token")
    if over_time(f):
        study_gpu_report.plot(library, page.with_name(page.stem + "-load.svg"), over_time(f), title="Largest load of an expert",
                              note="8 adapters of 64, 2 a token; 1 is even", x_label="step", y_label="share of its layer's choices, 1 is even")
    if by_layer(f):
        study_gpu_report.plot(library, page.with_name(page.stem + "-routes.svg"), by_layer(f), title="How much the choices of domains differ",
                              note="8 adapters of 64; general, code and maths", x_label="layer", y_label="Jensen-Shannon divergence")
    steps = sorted(r["steps"] for r in f.seeds("pesc-8").values())
    text = PAGE.format(opening=fill(opening(f)), stem=page.stem, limits=fill(limits(f)), missing=fill(missing(f)) + "\n",
                       about=fill(ABOUT.format(steps=f"{steps[0]} to {steps[-1]}" if steps else 0, machine=o.machine)),
                       tables=table(f.tables()), rest="\n\n".join(rest_of(f, page)))
    page.write_text(re.sub("\n\n\n+", "\n\n", text))  # where there is nothing to say
    print(page)
