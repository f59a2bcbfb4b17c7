#!/usr/bin/env python3
"""The study of docs/study-qwen.md: base, Camel and Camelidae on Qwen2.5-Coder-1.5B-Instruct, one seed, on one GPU.

    study_smol.py prepare --model SMOL.gguf --source DIR --data DATA      the data is that of study_smol.py
    study_qwen.py run --model FILE.gguf --data DATA --results OUT         trains and evaluates; starts where it stopped
    study_qwen.py report --results OUT                                    docs/study-qwen.md

Both rows are QLoRA: the base is in NF4 in training and in all evaluations. Jobs, --minutes and --only are as in study_smol.py.
"""
import json
import os

import study_gpu_report
import study_smol
from study_smol import DOMAINS, ROOT, Row
from study_smol_report import Findings, bench_sentence, fill, line, table

NF4 = ["--base-dtype", "nf4"]
RATES = "4e-4 1e-3"
# An adapter of 192 is an eighth of the model's width, as 512 is of 4096 in the paper.
ROWS = [
    Row("lora-r64", "Camel: dense, LoRA of rank 64", "--method lora --lora-r 64 --lora-alpha 16 --base-dtype nf4", rates=RATES, keep=True),
    Row("pesc-8", "Camelidae: 8 adapters of 192, k 2, LoRA 64", "--method pesc --lora-r 64 --lora-alpha 16 --base-dtype nf4",
        "--experts 8 --adapter-dim 192", rates=RATES, keep=True),
]
# name of the job: tasks, and documents of each (MMLU has 57 parts, MATH 7)
BENCH = {
    "gsm8k": ("gsm8k", 200),
    "text": ("nq_open,triviaqa,humaneval,mbpp", 200),
    "mmlu": ("mmlu", 10),
    "choice": ("piqa,hellaswag,winogrande,arc_easy,arc_challenge", 200),
    "math": ("minerva_math", 20),
}


class Study(study_smol.Study):
    rows, full_epochs, search_epochs = {r.name: r for r in ROWS}, 0.5, 0.08

    def losses(self, path, *more):
        return super().losses(path, *NF4, *more)

    def open_rates(self, row):
        return [r for r in row.rates if r not in self.tried(row)]

    def open_wholes(self, row):
        return []  # one whole run of a row is all that there is time for

    def evaluate(self, name):
        tasks, limit = BENCH[name]
        camel, pesc = (self.kept(r.name) for r in ROWS)
        return self.bench([camel, self.o.work / "base", pesc], tasks, min(limit, self.o.bench_limit or limit), *NF4, "--batch", 64)

    def jobs(self):
        runs = [f"full/{r.name}/0" for r in ROWS]
        out = [("base", "base", [], lambda: {**self.losses(self.base()), "activated": self.pesc("info", self.base())["params"]["activated"]})]
        out += [(f"bench/{name}", "bench", runs, lambda name=name: self.evaluate(name)) for name in BENCH]
        out = [j for j in out if j[0] not in self.results]
        return self.chosen(self.search_jobs(ROWS) + self.full_jobs(ROWS, [0]) + out)


# ---- report

PAGE = """# A study on Qwen2.5-Coder-1.5B: base, Camel and Camelidae

{opening}

![Scores]({stem}.svg)

Written by `tools/study_qwen.py`, which runs pesc and nothing else: Qwen2.5-Coder-1.5B-Instruct (GGUF, Q4_K_M, held in NF4 for training and for
every evaluation, so Camel is QLoRA), half an epoch over the 18,500 instructions of [study-smol](study-smol.md), {steps} steps of about 8,192 tokens,
bf16 compute, a constant rate after 3 % warm-up, clip 0.3, no dropout, on {machine}. **One seed**, and of the rates only {rates} were tried, with
{search} steps: a difference of losses has no spread here, and a better rate may be outside. Loss: nats a token of the answers of 300 held-out records
a domain. The tuning mix has general instructions beside code and maths; the base was tuned by its publisher on far more code.

| row | what | trained M | activated M | rate | mean loss | general | code | maths | load of experts | GB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

## Search of the rates

{search_table}

Validation loss after {search} steps.
{bench}
"""

BENCH_TEXT = """
## Benchmarks

{table}

Percent, ± one standard error over documents; in brackets the difference to lora-r64 (Camel), paired by document, with its standard error.
`--suite paper`, the first documents of each task (of MMLU 10 a subject, of MATH 20 a subject).{notes}"""


def opening(f):
    base, (camel, pesc) = f.results["base"], ({**f.seeds(r.name)}.get(0) for r in ROWS)
    verb = "lower" if pesc["mean"] < camel["mean"] else "higher"
    out = (f"On Qwen2.5-Coder-1.5B-Instruct, 8 adapters as experts (Camelidae) end with a held-out loss {abs(pesc['mean'] - camel['mean']):.4f} nats {verb} than "
           f"dense QLoRA (Camel): {pesc['mean']:.4f} against {camel['mean']:.4f}, untuned {base['mean']:.4f}; one seed. ")
    return out + bench_sentence(f) + base_sentence(f)


def base_sentence(f):
    """Where tuning itself moved a score: Camel against the base."""
    moved = []
    for task, row in f.scores().items():
        a, b = row.get("base"), row.get("lora-r64-0")
        if a and b and abs(a[2]) > 2 * a[3]:
            moved.append(f"{task.split(' ')[0].rstrip('?')} {a[0]:.1f} to {b[0]:.1f}")
    return f" Tuning itself moves {len(moved)} of them by more than that (base to Camel: {', '.join(moved)})." if moved else ""


def picture(f, library, path):
    scores = f.scores()
    names = {"base": "base", "lora-r64-0": "Camel", "pesc-8-0": "Camelidae"}
    series = {title: [row.get(m, (None,) * 2)[:2] if row.get(m) else None for row in scores.values()] for m, title in names.items()}
    study_gpu_report.plot_bars(library, path, [t.split(" ")[0].rstrip("?") for t in scores], series, "Qwen2.5-Coder-1.5B: twelve benchmarks",
                               "percent, with one standard error")


def write(o, results):
    f = Findings(Study.rows, results)
    library = os.environ.get("LIBPESC", str(ROOT / "build/dist/libpesc.so.0"))
    bench = ""
    if f.scores():
        picture(f, library, o.page.with_suffix(".svg"))
        notes = "".join(f" {r['note']}." for k, r in results.items() if k.startswith("bench/") and r.get("note"))
        bench = BENCH_TEXT.format(table=table(f.bench_table()), notes=notes)
    base, searches = results["base"], [r for k, r in results.items() if k.startswith("search/")]
    rows = [line(["base", "not tuned", "0", f"{base['activated'] / 1e6:.1f}", "", f"{base['mean']:.4f}", *(f"{base[d]:.3f}" for d in DOMAINS), "", ""])]
    rows += [line(f.cells(r.name)[:-1]) for r in ROWS if f.seeds(r.name)]
    o.page.write_text(PAGE.format(opening=fill(opening(f)), stem=o.page.stem, machine=o.machine, steps=max(r["steps"] for r in f.seeds("pesc-8").values()),
                                  rates=RATES.replace(" ", " and "), search=max(r["steps"] for r in searches), rows=table(rows),
                                  search_table=table(f.search_table()), bench=bench))
    print(o.page)


def main():
    o = study_smol.options(__doc__, "study-qwen", "Qwen2.5-Coder-1.5B-Instruct")
    if o.action == "run":
        Study(o).run()
    elif o.action == "report":
        write(o, json.loads((o.results / "results.json").read_text()))
    else:
        raise SystemExit("study_qwen.py: the data is prepared by study_smol.py prepare")


if __name__ == "__main__":
    main()
