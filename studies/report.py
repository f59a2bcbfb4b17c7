"""Draws a study's page and pictures from its results.

The text of a page is in its description, with a block in braces wherever figures stand: {rows a b}, {differences spread}, {picture size} ...; each block is a
method of Page below, named block_... . A block without results becomes "Not measured.".

studies/results/NAME.json holds what a page in docs/ was drawn from: {"results": {...}} as run.py wrote them, or, where these were lost, {"transcribed": page,
"tables": [...]}: the page's own tables, from which no page is drawn.
"""
import argparse
import json
import re
import sys
import tempfile
import textwrap
from math import log10, sqrt
from pathlib import Path
from statistics import mean, stdev

import benchmarks
import plots
from study import HERE, ROOT, Row, Study

NOT_MEASURED = "Not measured."
# The columns that a model has without having been tuned in a row.
OF_ANY_MODEL = ("activated K", "activated M", "loss", "mean loss", "exact match", "numbers right, %", "accuracy", "margin", "score",
                "target loss", "target exact match", "other two loss", "other two exact match", "others' loss")


def line(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(head, rows):
    rows = list(rows)
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)]) if rows else NOT_MEASURED


def fill(text):
    return textwrap.fill(" ".join(text.split()), 140, break_long_words=False, break_on_hyphens=False)


# The public names of what `pesc data fetch` calls so; tests/cli/study.bats compares.
PUBLIC = {
    "alpaca": "tatsu-lab/alpaca", "dolly": "databricks/databricks-dolly-15k", "evol-code": "theblackcat102/evol-codealpaca-v1",
    "gpteacher": "github.com/teknium1/GPTeacher (Codegen)", "gsm8k": "openai/gsm8k (main)", "math": "EleutherAI/hendrycks_math",
    "esft-train": "github.com/deepseek-ai/ESFT (datasets/train)", "esft-eval": "github.com/deepseek-ai/ESFT (datasets/eval)",
    "arc_easy": "allenai/ai2_arc (ARC-Easy)", "arc_challenge": "allenai/ai2_arc (ARC-Challenge)", "hellaswag": "Rowan/hellaswag",
    "humaneval": "openai/openai_humaneval", "mbpp": "google-research-datasets/mbpp (full)", "mmlu": "cais/mmlu (all)",
    "nq_open": "google-research-datasets/nq_open", "piqa": "baber/piqa (of ybisk/piqa)", "triviaqa": "mandarjoshi/trivia_qa (rc.nocontext)",
    "winogrande": "allenai/winogrande (winogrande_xl)",
}


def note_on_data(study):
    """The end of a page: where model and data come from, and how the study is made from them."""
    about = study.about.get("fetch", {})
    make = f"make study STUDY={study.name}"
    if not about:
        return "## Data\n\n" + fill(f"Model and data are in `share/`, and nothing is fetched: `{make}`.") + "\n"
    parts = [f"Model: {about['model']}."]
    if "data" in about:
        names = ", ".join(f"{PUBLIC[n]} (`{n}`)" for n in about["data"])
        parts.append(f"Data: {names}. `pesc data fetch NAME` prints the command that fetches and converts each; run in one folder, they make the folder "
                     f"that is given as SOURCE: `{make} MODEL=... SOURCE=...`.")
    else:
        parts.append(f"Data: `share/`, of which nothing is fetched: `{make} MODEL=...`.")
    return "## Data\n\n" + fill(" ".join(parts)) + (f"\n{about['note']}" if "note" in about else "") + "\n"


def spread(values, form):
    values = [v for v in values if v is not None]
    if not values:
        return ""
    return format(mean(values), form) + (f" ± {stdev(values):{form}}" if len(values) > 1 else "")


def worst(runs, key, most=max):
    values = [r[key] for r in runs if r.get(key) is not None]
    return most(values) if values else None


class Cells:
    """The columns of tables by their heading; `runs` are the finished runs of a row, `study` knows the rest."""

    def __init__(self, study):
        self.study = study

    def cell(self, column, row, runs):
        name, _, digits = column.partition(".")
        found = {"method": row.method, "row": row.method, "what": row.what, "what trains": row.what, "seeds": len(runs)}.get(name)
        if found is not None:
            return found
        if name in ("trained M", "trained K", "activated M", "activated K"):
            value = runs[0].get(name.split()[0])
            return f"{value / (1e6 if name[-1] == 'M' else 1e3):.{digits or (1 if name[-1] == 'M' else 0)}f}"
        if name in ("GB", "MB"):
            return f"{worst(runs, 'bytes') / (1e9 if name == 'GB' else 1e6):.{digits or (1 if name == 'GB' else 0)}f}"
        if name in self.study.about.get("domains", []):
            return f"{mean(r['loss'][name] for r in runs):.3f}"
        if name.startswith("exact ") and name != "exact match":
            return f"{100 * mean(r['exact'][name.removeprefix('exact ')] for r in runs):.1f}"
        return getattr(self, "cell_" + re.sub(r"\W+", "_", name).strip("_"))(row, runs)

    def cell_rate(self, row, runs):
        return runs[0]["rate"] + ("\\*" if self.study.edge(row) else "")

    def cell_loss(self, row, runs):
        return spread([r["mean"] for r in runs], ".4f")

    cell_mean_loss = cell_loss

    def cell_by_seed(self, row, runs):
        return ", ".join(f"{r['mean']:.4f}" for r in runs)

    def cell_exact_match(self, row, runs):
        return spread([100 * r["exact_mean"] for r in runs if r["exact_mean"] is not None], ".1f")

    def cell_numbers_right(self, row, runs):
        values = [r["numbers"] for r in runs if r.get("numbers") is not None]
        return f"{mean(values):.1f}" if values else ""

    def cell_accuracy(self, row, runs):
        return spread([100 * r["accuracy"] for r in runs], ".1f")

    def cell_margin(self, row, runs):
        return spread([r["margin"] for r in runs], ".2f")

    def cell_load_of_experts(self, row, runs):
        if worst(runs, "most_load") is None:
            return ""
        return f"{worst(runs, 'least_load', min):.2f} to {worst(runs, 'most_load'):.2f}, {worst(runs, 'dead')} dead"

    def cell_s(self, row, runs):
        return f"{runs[0]['tokens'] / self.study.fastest(row):.1f}"

    def cell_tokens_s(self, row, runs):
        return f"{self.study.fastest(row) / 1e3:.0f} k"

    def cell_experts(self, row, runs):
        of = self.study.about["report"].get("experts")
        return (f"{runs[0]['experts']} of {of}" if of else runs[0]["experts"]) if runs[0].get("experts") else ""

    # ---- with a target: its loss, and that of all else

    def cell_target_loss(self, row, runs):
        return spread([self.study.value(row.target, r, "target loss") for r in runs], ".4f")

    def cell_target_exact_match(self, row, runs):
        return spread([self.study.value(row.target, r, "target exact") for r in runs], ".1f")

    def cell_other_two_loss(self, row, runs):
        return spread([self.study.value(row.target, r, "other loss") for r in runs], ".4f")

    cell_others_loss = cell_other_two_loss

    def cell_other_two_exact_match(self, row, runs):
        return spread([self.study.value(row.target, r, "other exact") for r in runs], ".1f")

    def cell_forgotten(self, row, runs):
        return spread([self.study.forgotten(row.target, r, row.start) for r in runs], "+.4f")

    def cell_score(self, row, runs):
        return f"{mean(runs[0]['scores'].values()):.1f}" if runs[0].get("scores") else ""


class Findings(Study):
    """What a page says of results."""

    def all_runs(self, name):
        return list(self.finished(name).values())

    def there(self, names=()):
        rows = [self.rows[n] for n in names if n in self.rows] or ([] if names else list(self.rows.values()))
        order = self.about["report"].get("order", "").split()
        rows.sort(key=lambda r: order.index(r.method) if order and not names else 0)
        return [r for r in rows if self.all_runs(r.name)]

    def edge(self, row):
        """Whether a better rate may be beyond those that were tried; of a search that only goes up, whether the best is the highest."""
        tried = sorted(self.tried(row), key=float)
        best = self.best_rate(row)
        return not row.like and len(tried) > 1 and best in (tried[-1:] if self.search["extend"] == "up" else (tried[0], tried[-1]))

    def fastest(self, row):
        return max(r["tokens_per_second"] for kind in ("search", "full") for r in self.runs(kind, row.name).values() if r.get("tokens_per_second"))

    def started(self, name, target):
        """What is known of a model that rows start from, before they are tuned."""
        return self.results.get(self.model_key(name, target) if name else "base")

    def mixture(self, target):
        return self.started(self.about["start"], target)

    def value(self, target, r, what):
        which, measure = what.split()
        values = [v for d, v in r[measure].items() if (d == target) == (which == "target")]
        if any(v is None for v in values):
            return None
        return mean(values) * (100 if measure == "exact" else 1)

    def forgotten(self, target, r, start=None):
        """The rise of the mean loss of all but the target."""
        return self.value(target, r, "other loss") - self.value(target, self.started(start or self.about["start"], target), "other loss")

    def paired(self, a, b):
        """The mean of the differences of equal seeds, its standard error, how many, and whether all have one sign; None without common seeds."""
        x, y = self.finished(a), self.finished(b)
        diffs = [x[s]["mean"] - y[s]["mean"] for s in sorted(x.keys() & y.keys())]
        if not diffs:
            return None
        error = stdev(diffs) / sqrt(len(diffs)) if len(diffs) > 1 else None
        return mean(diffs), error, len(diffs), all(d < 0 for d in diffs) or all(d > 0 for d in diffs)


class Page(Findings):
    def __init__(self, name, results, o):
        super().__init__(name, results, o.seeds)
        self.o, self.report, self.path, self.cells = o, self.about["report"], o.page, Cells(self)

    def text(self):
        def block(match):
            name, _, words = match[1].partition(" ")
            made = getattr(self, "block_" + name.replace("-", "_"))(*words.split())
            return NOT_MEASURED if made is None else str(made)
        text = re.sub(r"(?<!\$)\{([a-z][^{}\n]*)\}", block, self.report["text"].lstrip("\n"))
        return re.sub("\n\n\n+", "\n\n", text).rstrip("\n") + "\n\n" + note_on_data(self)

    # ---- words

    def block_epochs(self):
        return f"{self.about['epochs'] * self.results['settings']['scale']:g}"

    def block_seeds(self):
        return " ".join(map(str, self.seeds)) if self.targets or self.search["part"] == 1 else ", ".join(map(str, self.seeds))

    def block_study(self):
        return self.name

    def block_machine(self):
        return self.o.machine

    def block_model(self):
        return (self.o.model or self.about.get("model") or self.about["base"]).rstrip("/").rsplit("/", 1)[-1]

    def block_steps(self, name):
        steps = sorted(r["steps"] for r in self.all_runs(name))
        return (f"{steps[0]} to {steps[-1]}" if steps[0] != steps[-1] else steps[0]) if steps else 0

    def block_mixture_tokens(self):
        return f"{self.mixture('all')['tokens']:,}"

    def block_edges(self):
        if not any(self.edge(r) for r in self.there()) or self.search["extend"] == "up":
            return ""
        return "\n\\* the best of the rates tried is the lowest or highest of them: a better one may be beyond it.\n\n"

    def block_missing(self):
        names = [n for n in self.rows if not self.all_runs(n)]
        out = ""
        for what, chosen in (("Only searched", [n for n in names if self.tried(self.rows[n])]), ("Not run", [n for n in names if not self.tried(self.rows[n])])):
            out += f"{what}: {', '.join(chosen)}. " if chosen else ""
        missing = [a["name"] for a in self.about.get("analyses", []) if "failed" in self.results.get(a["name"], {"failed": ""})]
        return fill(out + (f"Not measured: {', '.join(missing)}." if missing else ""))

    def block_by_hand(self, heading):
        """The sections that a person wrote below the page that is replaced, from the heading on, without the page's own note on data."""
        old = self.path.read_text() if self.path.exists() else ""
        at = old.find(f"\n## {heading}\n")
        return old[at:].split("\n## Data\n")[0].rstrip("\n") if at >= 0 else ""

    def block_opening(self):
        """Does the row help, against what, and do benchmarks show it?"""
        o, out = self.report["opening"], []
        d, base = self.paired(o["row"], o["other"]), self.results.get("base", {})
        if d:
            sure = "one seed" if d[2] == 1 else f"{'with this sign in all' if d[3] else 'not with this sign in all'} of {d[2]} seeds"
            losses = [mean(r["mean"] for r in self.all_runs(n)) for n in (o["row"], o["other"])]
            out.append(f"On {o['model']}, {o['said']} end with a held-out loss {abs(d[0]):.4f} nats {'lower' if d[0] < 0 else 'higher'} than {o['other_said']}: "
                       f"{losses[0]:.4f} against {losses[1]:.4f}, untuned {base.get('mean', float('nan')):.4f}, {sure}.")
        rest = [(said, self.paired(o["row"], name)) for name, said in o.get("rest", {}).items()]
        said = [f"{x[0]:+.4f} against {name}" + ("" if x[3] and x[2] > 1 else " (seeds disagree)" if x[2] > 1 else " (one seed)") for name, x in rest if x]
        if said:
            out.append("The difference is " + ", ".join(said) + "; negative favours Camelidae.")
        return fill(" ".join([*out, *benchmarks.sentences(self, o["row"], o["other"])]))

    # ---- tables

    def block_rows(self, *names):
        out = []
        if ("base" in names or not names) and self.about["page"] != "study.md":  # there the base has never seen a question
            for name in [None, *self.models]:
                out += self.before(name, None, "not tuned" if not name else self.models[name].get("what", ""))
        rows = self.there([n for n in names if n != "base"])
        return table(self.heads(), out + [[self.cells.cell(c, r, self.all_runs(r.name)) for c in self.about["columns"]] for r in rows])

    def heads(self):
        domains = self.about.get("domains", [])
        return [re.sub(r"\.\d$", "", c.removeprefix("exact ") if c.removeprefix("exact ") in domains else c) for c in self.about["columns"]]

    def block_targets(self):
        out = []
        for t in self.targets:
            first = [x for name, about in self.models.items() for x in self.before(name, t, about.get("what", "nothing: where all begin"))]
            rows = [[self.cells.cell(c, r, self.all_runs(r.name)) for c in self.about["columns"]] for r in self.there() if r.target == t]
            out += [f"## Target {t}\n\n" + table(self.heads(), first + rows)] if first else []
        return "\n\n".join(out) + "\n" if out else NOT_MEASURED

    def before(self, name, target, what):
        """The line of a model that rows start from, of the base without a name; none while it is not measured."""
        r, own = self.started(name, target), (*OF_ANY_MODEL, *self.about.get("domains", []))
        if not r or "failed" in r:
            return []
        known = {"method": name or "base", "row": name or "base", "what": what, "what trains": what, "trained K": "0", "trained M": "0"}
        row = Row({"name": name or "base"}, target)
        return [[known.get(c.split(".")[0], self.cells.cell(c, row, [r]) if c in own else "") for c in self.about["columns"]]]

    def block_differences(self, kind):
        pairs = [p for p in self.report["pairs"]]
        return getattr(self, "differences_" + kind)(pairs)

    def differences_spread(self, pairs):
        exact = "numbers" if any(t.get("numbers") for t in self.about["tests"]) else "exact_mean"
        head = ["difference", "at equal", "mean loss" if exact == "numbers" else "loss", "numbers right" if exact == "numbers" else "exact match"]
        rows = [[f"{a} - {b}", why, self.difference(a, b, "mean", "+.4f", 1), self.difference(a, b, exact, "+.1f", 100 if exact == "exact_mean" else 1)]
                for a, b, why in pairs if a in self.rows and b in self.rows and self.all_runs(a) and self.all_runs(b)]
        return table(head, rows)

    def differences_preference(self, pairs):
        return table(["difference", "at equal", "accuracy", "margin", "loss of instructions"],
                     [[f"{a} - {b}", why, self.difference(a, b, "accuracy", "+.1f", 100), self.difference(a, b, "margin", "+.2f", 1),
                       self.difference(a, b, "mean", "+.4f", 1)] for a, b, why in pairs if self.all_runs(a) and self.all_runs(b)])

    def difference(self, a, b, key, form, scale):
        x, y = ([scale * r[key] for r in self.all_runs(n) if r.get(key) is not None] for n in (a, b))
        if min(len(x), len(y)) < 2:
            return "not measured"
        return f"{mean(x) - mean(y):{form}}, {'outside' if max(x) < min(y) or max(y) < min(x) else 'inside'} the spread"

    def differences_paired(self, pairs):
        rows = []
        for a, b in pairs:
            d = self.paired(a, b)
            if d:
                rows.append([f"{a} - {b}", f"{d[0]:+.4f}", f"{d[1]:.4f}" if d[1] is not None else "one seed", d[2], ("yes" if d[3] else "no") if d[2] > 1 else ""])
        return table(["difference of mean loss", "mean", "standard error", "seeds", "all seeds agree in sign"], rows)

    def differences_targets(self, pairs):
        rows = []
        for a, b in pairs:
            for t in self.targets:
                x, y = (self.all_runs(f"{t}/{n}") for n in (a, b))
                if x and y:
                    rows.append([f"{a} - {b}", t, *(self.better(t, x, y, what) for what in ("target loss", "target exact", "other loss", "other exact"))])
        return table(["difference", "target", "target loss", "target exact match", "other two loss", "other two exact match"], rows)

    def better(self, target, a, b, what):
        x, y = ([self.value(target, r, what) for r in runs] for runs in (a, b))
        verdict = "better" if max(x) < min(y) else "worse" if max(y) < min(x) else "(inside)"
        if "exact" in what:
            verdict = {"better": "worse", "worse": "better"}.get(verdict, verdict)
        return f"{mean(x) - mean(y):{'+.1f' if 'exact' in what else '+.4f'}} {verdict}"

    def block_search(self, trained=None):
        head = ["method", "trained M", "rate: validation loss"] if trained else ["row", "rate: validation loss"]
        rows = []
        for row in self.rows.values():
            runs = self.runs("search" if self.search["part"] < 1 else "full", row.name).items()
            found = sorted(((rate, r) for (seed, rate), r in runs if seed == self.seeds[0]), key=lambda x: float(x[0]))
            losses = ", ".join(f"{rate}: " + (f"{r['valid']:.4f}" if r["valid"] < float("inf") else "failed") for rate, r in found)
            if found:
                rows.append([row.name, *([f"{(found[0][1].get('trained') or 0) / 1e6:.2f}"] if trained else []), losses])
        return table(head, rows)

    def block_wholes(self):
        rows = []
        for row in self.rows.values():
            runs = sorted(((rate, r) for (seed, rate), r in self.runs("full", row.name).items() if seed == self.seeds[0] and "mean" in r), key=lambda x: float(x[0]))
            if len(runs) > 1:
                rows.append([row.name, "; ".join(f"{rate}: {r['valid']:.4f}, {r['mean']:.4f}" for rate, r in runs)])
        return table(["row", "rate: validation loss, held-out loss"], rows)

    def block_samples(self):
        known = [t for t in self.targets if "shared" in self.results.get(f"samples/{t}", {})]
        head = ["tokens", *(f"{t} ({self.results[f'samples/{t}']['experts']} experts)" for t in known)]
        return table(head, [[f"{n:,}", *(f"{100 * self.results[f'samples/{t}']['shared'][str(n)]:.0f} %" for t in known)] for n in self.about["samples"]] if known else [])

    def mean_of(self, method, value):
        """Over the targets that have all methods of `means` but random; None where one of these lacks this method: means could not be compared."""
        needed = [m for m in self.report["means"] if m != "random"]
        known = [t for t in self.targets if all(self.all_runs(f"{t}/{m}") for m in needed)]
        runs = [(t, self.all_runs(f"{t}/{method}")) for t in known]
        return mean(value(t, r[0]) for t, r in runs) if runs and all(r for _, r in runs) else None

    def block_target_means(self):
        def said(value, form):
            found = {name: self.mean_of(m, value) for m, name in self.report["means"].items()}
            return ", ".join(f"{'not run' if x is None else format(x, form)} {name}" for name, x in found.items())
        n = len([t for t in self.targets if all(self.all_runs(f"{t}/{m}") for m in self.report["means"] if m != "random")])
        return fill(f"Mean loss on the target over {n} of {len(self.targets)} targets, one seed: {said(lambda t, r: r['loss'][t], '.4f')}. "
                    f"The loss on the other tasks rises by: {said(self.forgotten, '+.4f')}. Negative numbers in the second sentence are a gain; the tables have each target.")

    # ---- commands that looked at runs

    def block_bench(self):
        return benchmarks.table_of(self, table)

    def block_bench_seeds(self):
        return benchmarks.seeds_table(self, table, self.report["opening"]["row"])

    def block_notes(self):
        return "".join(f" {r['note']}." for k, r in sorted(self.results.items()) if k.startswith("bench/") and r.get("note"))

    def block_cost(self):
        return benchmarks.cost_table(self.results["cost"]["out"]["models"], table) if "out" in self.results.get("cost", {}) else None

    def block_routes(self, name):
        return benchmarks.routes_text(self.results[f"routes/{name}"]["out"], name, table, fill) if "out" in self.results.get(f"routes/{name}", {}) else None

    def block_information(self):
        """What the choice of an expert says of the domain: their mutual information, all domains with one weight, as a part of its largest value."""
        found = {a["name"].removeprefix("routes/"): self.results.get(a["name"], {}).get("out") for a in self.about["analyses"] if a["name"].startswith("routes/")}
        return table(["row", "information, mean of the layers", "by layer", "by chance", "layers beyond chance"],
                     [[n, f"{mean(out['difference']):.3f}", ", ".join(f"{x:.3f}" for x in out["difference"]), f"{mean(out['chance']):.3f}",
                       f"{sum(p <= 0.01 for p in out['p_value'])} of {len(out['layers'])}"] for n, out in found.items() if out])

    def block_distances(self):
        found = [(n, self.results.get(f"compare/{n}", {}).get("out")) for n in self.rows]
        return table(["adapters of", "same expert", "nearest expert", "KL of the next token", "greedy tokens the same"],
                     [[self.rows[n].craft.split("--adapter-dim ")[1].split()[0], *benchmarks.distance_cells(out)] for n, out in found if out])

    # ---- pictures

    def block_picture(self, name):
        about = self.report["pictures"][name]
        file = self.path.with_name(f"{self.path.stem}{about.get('suffix', '')}.svg")
        if not getattr(self, "picture_" + name)(about, file):
            return NOT_MEASURED
        return f"![{about['title']}]({file.name})"

    def draw(self, about, file, groups):
        groups = {name: points for name, points in groups.items() if points}
        if groups:
            plots.lines(file, groups, title=about["title"], note=about["note"], x_label=about["x"], y_label=about["y"])
        return groups

    def picture_size(self, about, file):
        return self.draw(about, file, {title: [(r[0]["trained"] / 1e6, mean(x["mean"] for x in r)) for r in map(self.all_runs, names.split()) if r]
                                       for title, names in about["groups"].items()})

    def picture_rates(self, about, file):
        tried = {n: {rate: loss for rate, loss in self.tried(self.rows[n]).items()} for n in about["rows"].split()}
        most = min((loss for losses in tried.values() for loss in losses.values()), default=0) + about["far"]
        return self.draw(about, file, {n: [(log10(float(rate)), loss) for rate, loss in losses.items() if loss <= most] for n, losses in tried.items()})

    def picture_load(self, about, file):
        found = {title: self.finished(n).get(self.seeds[0], {}).get("load_over_time", []) for title, n in about["groups"].items()}
        return self.draw(about, file, {title: series for title, series in found.items() if len(series) > 1})

    def picture_routes(self, about, file):
        out = self.results.get(about["of"], {}).get("out")
        return self.draw(about, file, {"domains of the records": list(zip(out["layers"], out["difference"])),
                                       "domains exchanged at random": list(zip(out["layers"], out["chance"]))} if out else {})

    def picture_forgetting(self, about, file):
        def fall(t, r):
            return self.mixture(t)["loss"][t] - r["loss"][t]
        return self.draw(about, file, {m: [(self.mean_of(m, fall), self.mean_of(m, self.forgotten))]
                                       for m in {r.method: 0 for r in self.rows.values()} if self.mean_of(m, fall) is not None})

    def picture_scores(self, about, file):
        scores = benchmarks.scores(self)
        if scores:
            series = {title: [row[m][:2] if row.get(m) else None for row in scores.values()] for title, m in about["bars"].items()}
            plots.bars(file, [benchmarks.short(t) for t in scores], series, about["title"], about["note"])
        return scores


# ---- what main calls

def tables_of(page):
    """The tables of a Markdown page: [[cells of a line, ...], ...]."""
    out, open_table = [], False
    for text in page.read_text().splitlines():
        if text.startswith("|"):
            cells = [c.strip() for c in re.split(r"(?<!\\)\|", text.strip("|"))]
            if not open_table:
                out.append([])
            if not all(re.fullmatch(r"-+", c) for c in cells):
                out[-1].append(cells)
        open_table = text.startswith("|")
    return out


def write(o):
    results = json.loads((o.work / "results.json").read_text()) if (o.work / "results.json").exists() else {}
    if not results:
        sys.exit(f"studies: {o.work}/results.json holds no results; run `studies/run.py {o.name} run` first")
    study = Study(o.name)
    name, kept = study.about.get("page"), None
    if not o.page and name:
        whole = results["settings"] == {"scale": 1, "limit": 0}  # a trial replaces no page
        kept = HERE / "results" / f"{study.name}.json" if whole else None
        o.page = ROOT / "docs" / name if whole else o.work / name
    page = Page(o.name, results, o)
    text = page.text()
    if o.page:
        o.page.write_text(text)
        print(o.page)
    else:
        print(text)
    if kept:
        about = {"machine": o.machine, "model": o.model, "seeds": o.seeds}
        kept.write_text(json.dumps({**{k: v for k, v in about.items() if v}, "results": results}, indent=1) + "\n")
    return 0


def check(name):
    """Whether the page in docs/ has the tables of studies/results/NAME.json, and says where its data comes from."""
    kept = json.loads((HERE / "results" / f"{name}.json").read_text())
    page = ROOT / "docs" / Study(name).about["page"]
    wanted = kept.get("tables")
    if wanted is None:
        with tempfile.TemporaryDirectory() as temp:
            o = argparse.Namespace(machine=kept.get("machine", "this machine"), model=kept.get("model"), seeds=kept.get("seeds"), page=Path(temp) / page.name)
            o.page.write_text(page.read_text())  # what was written by hand stays
            o.page.write_text(Page(name, kept["results"], o).text())
            wanted = tables_of(o.page)
    got = tables_of(page)
    for number, (a, b) in enumerate(zip(wanted, got), 1):
        for x, y in zip(a, b):
            if x != y:
                print(f"{page.relative_to(ROOT)}: table {number}: found {line(y)}\n  expected {line(x)}")
    note = page.read_text().endswith("\n\n" + note_on_data(Study(name)))
    if not note:
        print(f"{page.relative_to(ROOT)}: ends otherwise than with\n{note_on_data(Study(name))}")
    same = wanted == got
    print(f"{page.relative_to(ROOT)}: {len(got)} tables, " + (("as transcribed" if "transcribed" in kept else "as drawn from the results") if same else "not those of the results"))
    return not (same and note)
