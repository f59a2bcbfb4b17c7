"""The report of tools/study_gpu.py: tables in Markdown and plots that libpesc draws.

results: {(method, part, seed, rate): row of runs.tsv}; part is "full" (what is reported) or "search". A difference of two
methods is "outside the spread" when every seed of the one is better than every seed of the other.
"""
import ctypes
import re
from math import isfinite, log10
from pathlib import Path
from statistics import mean, stdev

PAIRS = [
    ("pesc-8", "lora-r64", "rank of LoRA"), ("pesc-8", "lora-r122", "activated parameters that are trained"),
    ("pesc-8", "lora-r256", "trainable parameters, memory and time, about: see the table"),
    ("pesc-8", "molora-8", "number of experts; trainable parameters, about"), ("pesc-8", "upcycle-8", "number of experts"),
    ("pesc-64", "upcycle-8", "trainable parameters, about"), ("pesc-8", "full", "base"),
    ("pesc-8", "pesc-4", "adapter width"), ("pesc-16", "pesc-8", "adapter width"),
    ("pesc-32", "pesc-16", "adapter width"), ("pesc-64", "pesc-32", "adapter width"),
]

# the second plot: as many methods as there are colours, and no loss this far above the best
RATED, FAR = ("lora-r64", "lora-r256", "pesc-8", "pesc-64", "molora-8", "upcycle-8", "full"), 0.1


# ---- plots

class Series(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("x", ctypes.POINTER(ctypes.c_double)), ("y", ctypes.POINTER(ctypes.c_double)),
                ("n", ctypes.c_size_t), ("faint", ctypes.c_bool), ("dots", ctypes.c_bool)]


class Lines(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("title", ctypes.c_char_p), ("note", ctypes.c_char_p), ("x_label", ctypes.c_char_p),
                ("y_label", ctypes.c_char_p), ("series", ctypes.POINTER(Series)), ("n_series", ctypes.c_size_t)]


class Bars(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("title", ctypes.c_char_p), ("note", ctypes.c_char_p), ("groups", ctypes.POINTER(ctypes.c_char_p)),
                ("series", ctypes.POINTER(ctypes.c_char_p)), ("n_groups", ctypes.c_size_t), ("n_series", ctypes.c_size_t),
                ("values", ctypes.POINTER(ctypes.c_double)), ("errors", ctypes.POINTER(ctypes.c_double)),
                ("panels", ctypes.POINTER(ctypes.c_char_p)), ("n_panels", ctypes.c_size_t)]


def draw(library, path, function, picture):
    pesc = ctypes.CDLL(str(Path(library).resolve()))
    pesc.pesc_last_error.restype = ctypes.c_char_p
    if getattr(pesc, function)(str(path).encode(), ctypes.byref(picture)):
        raise RuntimeError(pesc.pesc_last_error().decode())


def plot_bars(library, path, groups, series, title, note):
    """pesc_plot_bars() of {name: [(value, error), ...]}, a value for each of the groups; None leaves a gap."""
    points = [p or (float("nan"), 0) for values in series.values() for p in values]
    names = (ctypes.c_char_p * len(groups))(*(g.encode() for g in groups)), (ctypes.c_char_p * len(series))(*(n.encode() for n in series))
    kind = ctypes.c_double * len(points)
    draw(library, path, "pesc_plot_bars", Bars(size=ctypes.sizeof(Bars), title=title.encode(), note=note.encode(), groups=names[0], series=names[1],
                                               n_groups=len(groups), n_series=len(series), values=kind(*(p[0] for p in points)),
                                               errors=kind(*(p[1] for p in points))))


def plot(library, path, groups, **texts):
    """pesc_plot_lines() of {name: [(x, y), ...]}."""
    series = []
    for name, points in groups.items():
        xs, ys = zip(*sorted(points))
        kind = ctypes.c_double * len(xs)
        series.append(Series(name.encode(), kind(*xs), kind(*ys), len(xs), False, True))
    lines = Lines(size=ctypes.sizeof(Lines), series=(Series * len(series))(*series), n_series=len(series),
                  **{key: text.encode() for key, text in texts.items()})
    draw(library, path, "pesc_plot_lines", lines)


# ---- tables

def best_search(results, name):
    """The row of the least validation loss of all rates that were tried; None where none worked."""
    tried = [r for (m, part, _, _), r in results.items() if (m, part) == (name, "search")]
    good = [r for r in tried if r.get("valid") is not None and isfinite(r["valid"])]
    return min(good, key=lambda r: (r["valid"], r["rate"]), default=None)


class Findings:
    def __init__(self, methods, results, about):
        self.methods, self.results, self.about = sorted(methods, key=place), results, about

    def tried(self, name):
        """Rates of the search with what they gave, ascending."""
        found = [(rate, r) for (m, part, _, rate), r in self.results.items() if (m, part) == (name, "search")]
        return sorted(found, key=lambda f: float(f[0]))

    def best_rate(self, name):
        best = best_search(self.results, name)
        return best["rate"] if best else "0"

    def of(self, name):
        """The finished runs of a method with its best rate, a row a seed."""
        return [r for (m, part, _, rate), r in sorted(self.results.items(), key=str)
                if (m, part, rate) == (name, "full", self.best_rate(name)) and r.get("mean") is not None]

    def most(self, name, part, column):
        """The most that a run of a method had."""
        return max((r.get(column) or 0 for (m, p, _, _), r in self.results.items() if (m, p) == (name, part)), default=0)

    def edge(self, name, rate):
        return rate in (self.tried(name)[0][0], self.tried(name)[-1][0])

    def by_size(self):
        """Points of the first plot, by family."""
        groups = {}
        for m in self.methods:
            family = ("PESC, adapters of 256" if m.name.startswith("pesc") else
                      "dense LoRA" if re.fullmatch(r"lora-r\d+", m.name) else m.name)
            rows = self.of(m.name)
            if rows:
                groups.setdefault(family, []).append((rows[0]["trained"] / 1e6, mean(r["mean"] for r in rows)))
        return groups

    def by_rate(self):
        """Points of the second: losses of the search, but for those far above the best of all."""
        tried = {name: [(log10(float(rate)), r["valid"]) for rate, r in self.tried(name) if r.get("valid")]
                 for name in RATED}
        most = min((loss for points in tried.values() for _, loss in points), default=0) + FAR
        near = {name: [p for p in points if p[1] <= most] for name, points in tried.items()}
        return {name: points for name, points in near.items() if points}

    def line(self, m, rows):
        loads = [r for r in rows if r.get("most_load") is not None]
        load = (f"{min(r['least_load'] for r in loads):.2f} to {max(r['most_load'] for r in loads):.2f}, "
                f"{max(r['dead'] for r in loads):.0f} dead") if loads else ""
        rate, speed = self.best_rate(m.name), self.most(m.name, "search", "tokens_per_second")
        return [m.name, m.what, f"{rows[0]['trained'] / 1e6:.2f}", f"{rows[0]['activated'] / 1e6:.1f}",
                rate + ("\\*" if self.edge(m.name, rate) else ""), spread(rows, "mean"),
                *(f"{mean(r[d] for r in rows):.3f}" for d in self.about["domains"]),
                average(rows, "numbers"), load, f"{self.most(m.name, 'search', 'bytes') / 1e9:.2f}",
                f"{speed / 1e3:.0f} k", f"{rows[0]['tokens'] / speed:.1f}", str(len(rows))]

    def table(self):
        domains = self.about["domains"]
        yield row(["method", "what trains", "trained M", "activated M", "rate", "mean loss", *domains, "numbers right, %",
                   "load of experts", "GB", "tokens/s", "s", "seeds"])
        yield row(["---"] * (12 + len(domains)))
        for b in self.of("base"):
            yield row(["not tuned", "", "0", f"{b['activated'] / 1e6:.1f}", "", f"{b['mean']:.4f}",
                       *(f"{b[d]:.3f}" for d in domains), average([b], "numbers"), "", "", "", "", ""])
        for m in self.methods:
            if self.of(m.name):
                yield row(self.line(m, self.of(m.name)))

    def differences(self):
        yield row(["difference", "at equal", "mean loss", "numbers right"])
        yield row(["---"] * 4)
        for a, b, why in PAIRS:
            x, y = self.of(a), self.of(b)
            if x and y:
                yield row([f"{a} - {b}", why, difference(x, y, "mean", "+.4f"),
                           difference(x, y, "numbers", "+.1f")])

    def search(self):
        yield row(["method", "trained M", "rate: validation loss"])
        yield row(["---"] * 3)
        for m in self.methods:
            tried = self.tried(m.name)
            if tried:
                losses = [f"{rate}: " + (f"{r['valid']:.4f}" if r.get("valid") else "failed") for rate, r in tried]
                trained = tried[0][1].get("trained") or 0
                yield row([m.name, f"{trained / 1e6:.2f}", ", ".join(losses)])

    def edges(self):
        found = [m for m in self.methods if self.of(m.name) and self.edge(m.name, self.best_rate(m.name))]
        return ("\\* the best of the rates tried is the lowest or highest of them: a better one may be beyond it.\n\n"
                if found else "")

    def missing(self):
        names = [m.name for m in self.methods if self.tried(m.name) and not self.of(m.name)]
        return f"\nOf {', '.join(names)} there is only the search." if names else ""


def place(m):
    """Families one after another, small before large."""
    families = ["lora", "pesc", "molora", "upcycle", "full"]
    return families.index(m.name.split("-")[0]), int("0" + "".join(re.findall(r"\d+", m.name))), m.name


def row(cells):
    return "| " + " | ".join(cells) + " |"


def spread(rows, column):
    values = [r[column] for r in rows]
    return f"{mean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def average(rows, column):
    values = [r[column] for r in rows if r.get(column) is not None]
    return f"{mean(values):.1f}" if values else ""


def difference(a, b, column, form):
    xs, ys = ([r[column] for r in rows if r.get(column) is not None] for rows in (a, b))
    if min(len(xs), len(ys)) < 2:
        return "not measured"
    apart = max(xs) < min(ys) or max(ys) < min(xs)
    return f"{mean(xs) - mean(ys):{form}}, {'outside' if apart else 'inside'} the spread"


# ---- the page

PAGE = """# The study on a GPU: a real model, three real domains

Written by `make study-gpu` (`tools/study_gpu.py`), which runs pesc and nothing else: the chat model `{model}`,
{epochs:g} epoch over {records[0]:,} general (Alpaca, Dolly), {records[1]:,} code (Evol-Instruct-Code, GPTeacher) and {records[2]:,} maths
(GSM8K, MATH) instructions of at most {seq_len} tokens, {batch} records a step, bf16 compute, f32 master weights, a constant rate
after 3 % warm-up, clip 0.3, no dropout. Each method has learning rates searched in runs of a quarter of the steps, by
the loss of {valid} other records a domain (last table); then the best is used with seeds {seeds} (order of the records,
LoRA's A, routers, adapters). Reported is what {held} held-out records a domain give, which have no part in any choice: the
loss of the answers' tokens in nats, mean and standard deviation over the seeds, and of how many maths answers, generated
greedily, the final number is right (its standard error is 1 %, more than methods differ by; not asked of all). Load: the
smallest and the largest share of a layer's choices that an expert gets, 1 is even; a dead one gets less than 0.01. GB is
the memory of a step. tokens/s is the median step of the fastest search, which has {machine} for itself; s is the
time the steps of a whole run take at that speed.

{table}

{edges}![Held-out loss against trainable parameters]({picture})

{differences}

Outside the spread: every seed of the one is better than every seed of the other. A negative difference of loss and a positive
one of numbers favour the first.

The search, with the first seed: a quarter of the steps at a time, so a comparison of its own.{missing}{note}

{search}

![Validation loss against the learning rate]({rates})
"""


def write(path, library, methods, results, about):
    found = Findings(methods, results, about)
    sizes, rates = path.with_suffix(".svg"), path.with_name(path.stem + "-rates.svg")
    if found.by_size():
        plot(library, sizes, found.by_size(), title="Held-out loss of tuned models",
             note=f"mean of {len(about['seeds'])} seeds and {len(about['domains'])} domains",
             x_label="trainable parameters, millions", y_label="nats a token")
    if found.by_rate():
        plot(library, rates, found.by_rate(), title="Validation loss after a quarter of the steps",
             note=f"one seed; what is more than {FAR} above the best of all is left out",
             x_label="learning rate, power of ten", y_label="nats a token")
    tables = {name: "\n".join(getattr(found, name)()) for name in ("table", "differences", "search")}
    path.write_text(PAGE.format(picture=sizes.name, rates=rates.name, missing=found.missing(), edges=found.edges(),
                                valid=max(about["held"] // 3, 1), **tables,
                                **{**about, "seeds": ", ".join(map(str, about["seeds"])),
                                   "note": "\n" + about["note"] if about["note"] else ""}))
