"""What the pages of studies say of `pesc eval`, `cost`, `routes` and `compare`: tables and sentences from their output."""
import re
from math import sqrt
from statistics import mean, stdev

# A line of the table of `pesc eval`: task, shots, metric, documents; scores of all models; differences of all but the first.
ROW = re.compile(r"(\S+) +(\d+)  (.*?) +(\d+)((?:  +[-+]?(?:[\d.]+(?: ± [\d.]+)?)?)+) *$")
VALUE = re.compile(r"([-+]?[\d.]+)(?: ± ([\d.]+))?")
METRICS = {"piqa": "acc", "hellaswag": "acc_norm", "winogrande": "acc", "arc_easy": "acc", "arc_challenge": "acc_norm", "mmlu": "acc",
           "gsm8k": "exact_match flexible-extract", "minerva_math": "math_verify", "nq_open": "exact_match", "triviaqa": "exact_match",
           "humaneval": "pass@1", "mbpp": "pass_at_1"}


def short(task):
    return task.split(" ")[0].rstrip("?")


def rows(job):
    """{model: {task (metric, documents): (score, error, difference to the first model, error)}} of one evaluation; one metric a task."""
    models = job.get("models", [])
    found = {m: {} for m in models}
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
        for i, model in enumerate(models):
            found[model][name] = numbers[i] + (numbers[len(models) + i - 1] if i else (None, None))
    return found


def scores(page):
    """{task: {model: (score, error, difference, its error)}} of the first seed's evaluations, in percent."""
    found = {}
    for key, job in page.results.items():
        if key.startswith("bench/") and job.get("seed", page.seeds[0]) == page.seeds[0]:
            for model, tasks in rows(job).items():
                for task, values in tasks.items():
                    found.setdefault(task, {})[model] = values
    return found


def cell(values):
    if not values:
        return ""
    score, error, diff, diff_error = values
    text = f"{score:.1f} ± {error:.1f}"
    return text if diff is None else f"{text} ({diff:+.1f} ± {diff_error:.1f})"


def table_of(page, table):
    found = scores(page)
    models = [m for m in ["base", *page.rows] if any(m in row for row in found.values())]
    return table(["task", *models], [[task, *(cell(row.get(m)) for m in models)] for task, row in found.items()])


def seeds_table(page, table, name):
    """The row less what it is compared with, in percent: by seed, and over the seeds."""
    found, seeds = {}, []
    for key, job in page.results.items():
        if key.startswith("bench/") and "seed" in job:
            seeds = sorted({*seeds, job["seed"]})
            for task, values in rows(job).get(name, {}).items():
                found.setdefault(short(task), {})[job["seed"]] = values
    lines = []
    for task, row in found.items():
        diffs = [v[2] for v in row.values()]
        if len(diffs) > 1:
            lines.append([task, *(f"{row[s][2]:+.1f} ± {row[s][3]:.1f}" if s in row else "" for s in seeds),
                          f"{mean(diffs):+.2f} ± {stdev(diffs) / sqrt(len(diffs)):.2f}"])
    return table(["task", *(f"seed {s}" for s in seeds), "mean over seeds, with its standard error"], lines)


def sentences(page, row, other):
    """Where two rows differ by more than two standard errors, and where tuning itself moved a score."""
    found = scores(page)
    if not found:
        return
    apart = [f"{short(t)} {r[row][0]:.1f} against {r[other][0]:.1f}" for t, r in found.items()
             if r.get(row) and r.get(other) and r[row][2] is not None and abs(r[row][2]) > 2 * r[row][3]]
    if not apart:
        yield (f"On the {len(found)} benchmarks that were evaluated (one seed) Camelidae and Camel differ by less than two standard errors everywhere: no difference "
               "shows in scores.")
    else:
        chance = ", about what chance gives of so many" if len(apart) == 1 else ""
        yield (f"Of {len(found)} benchmarks (one seed) Camelidae and Camel differ by more than two standard errors in {len(apart)}{chance} ({'; '.join(apart)})." +
               (" So the gain in loss does not show in scores at this size." if chance else ""))
    moved = [f"{short(t)} {r['base'][0]:.1f} to {r[other][0]:.1f}" for t, r in found.items()
             if r.get("base") and r.get(other) and r["base"][2] is not None and abs(r["base"][2]) > 2 * r["base"][3]]
    if moved:
        yield f"Tuning itself moves {len(moved)} of them by more than that (base to Camel: {', '.join(moved)})."


def cost_table(models, table):
    """What was measured, a line for each phase and size, a column for each model."""
    def measured(r, first):
        return f"{1e3 * r['seconds']:.2f} ms ({r['seconds'] / first['seconds']:.2f}), {r['bytes'] / 1e9:.2f} GB" if r["seconds"] else "does not fit"
    parts = [{p["part"]: p for p in m["parts"]} for m in models]
    merged = [p["total"]["inference"] - (m["kind"] != "molora") * p["lora"]["inference"] for m, p in zip(models, parts)]
    trained = [p["total"]["forward"] + p["total"]["backward"] for p in parts]
    lines = [[name, *(f"{n / m['tokens'] / 1e6:.0f} ({n / costs[0]:.2f})" for n, m in zip(costs, models))]
             for name, costs in (("inference, MFLOP a token", merged), ("training, MFLOP a token", trained))]
    for runs in zip(*(m["measured"] for m in models)):
        r = runs[0]
        lines.append([f"{r['phase']} {r['sequences']} x {r['tokens']}", *(measured(x, r) for x in runs)])
    return table(["", *(re.sub(r"-\d+-[\d.e-]+$", "", m["model"].rsplit("/", 1)[-1]) for m in models)], lines)


def routes_text(out, name, table, fill):
    """Figure 4: the layer that was looked at closely, choices of each domain in percent, and the tokens of the highest lift."""
    sure = sum(p <= 0.01 for p in out["p_value"])
    text = (f"{name}, first seed, {out['domains'][0]['records']} held-out records a domain: in {sure} of {len(out['layers'])} layers the domains' choices differ by "
            f"more than chance (p at most 0.01, 1000 exchanges of the records' domains), though not by much: Jensen-Shannon divergence {mean(out['difference']):.3f} on "
            f"average, {max(out['difference']):.3f} at most, where 1 is no expert in common. Layer {out['layer']}, share of all choices in percent:")
    at = out["layers"].index(out["layer"])
    lines = []
    for e in range(out["experts"]):
        tokens = sorted(out["tokens"][e], key=lambda t: -t["lift"])[:5]
        words = ", ".join("`" + t["text"].replace("\n", "\\n").replace("|", "\\|").replace("`", "'") + "`" for t in tokens)
        lines.append([e, *(f"{100 * d['share'][at][e]:.1f}" for d in out["domains"]), words])
    return fill(text) + "\n\n" + table(["expert", *(d["domain"] for d in out["domains"]), "tokens it takes most, by lift"], lines)


def distance_cells(out):
    layers = [x for x in out["layers"] if x.get("experts") is not None]
    same, near = (mean(x[k] for x in layers) for k in ("experts", "nearest"))
    return [f"{same:.3f}", f"{near:.3f}", f"{out['kl']:.4f}", f"{100 * out['agreement']:.1f} %"]
