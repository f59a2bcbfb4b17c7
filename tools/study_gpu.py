#!/usr/bin/env python3
"""The study of docs/study-gpu.md: every method on a real model and three real domains, on a GPU.

    make study-gpu           everything; results are left in build/study-gpu, the report in docs/study-gpu.md
    tools/study_gpu.py fp8   instead the main methods with base_grad_dtype bf16 and fp8, every seed, at the rates that the
                             search chose: prints a table (3 minutes with JOBS=3 ASK=0)

All it runs is pesc. Settings come from the environment:
    MODEL, DATA              the dense model, and the folder of instruction sets (its layout: see SOURCES); where they are not
                             given, models/minimind2-small and instruct of PESC_DATA
    PESC, LIBPESC, STUDY     the command, the shared library (it draws the plots), where results are left
    DEVICE=cuda  JOBS=2      where it runs, and how many runs at a time after the search: hides what is not the GPU's work
    LIMIT=480                seconds; 0 only writes the report of what is there
    RATES="full=1e-5,4e-5"   other rates than the table's for some methods
    EPOCHS=1  SEEDS="0 1 2"  METHODS="pesc-8 lora-r64"  RECORDS="15000 5000 5000"  HELD=300
    ASK=200                  the most tokens of an answer; 0 asks nothing, and leaves out how many numbers are right
    REPORT=FILE  MACHINE=TEXT  NOTE=TEXT   where the page goes, what it calls the machine, a sentence it ends with

Each method gets the same budget: four learning rates with the first seed for a quarter of the steps, chosen by the loss on
records that are not trained on; then the best rate with every seed. What is reported is measured on other held-out records.
A line is added to runs.tsv for every run; one that is there is not made again, so a study that was cut off goes on.
The most telling methods come first.
"""
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median

import study_gpu_report

ROOT = Path(__file__).resolve().parent.parent
ENV = os.environ.get
PESC = ENV("PESC", "build/pesc")
LIBPESC = ENV("LIBPESC", "build/dist/libpesc.so.0")
STUDY = Path(ENV("STUDY", "build/study-gpu"))
HOME = Path(ENV("PESC_DATA", "../shared/data"))
MODEL = ENV("MODEL", str(HOME / "models/minimind2-small"))
DATA = Path(ENV("DATA", str(HOME / "instruct")))
DEVICE = ENV("DEVICE", "cuda")
JOBS = int(ENV("JOBS", "2"))
LIMIT = float(ENV("LIMIT", "480"))
EPOCHS = float(ENV("EPOCHS", "1"))
SEARCH = 0.25
SEEDS = [int(s) for s in ENV("SEEDS", "0 1 2").split()]
RECORDS = [int(n) for n in ENV("RECORDS", "15000 5000 5000").split()]
HELD = int(ENV("HELD", "300"))
REPORT = Path(ENV("REPORT", "docs/study-gpu.md"))
ASK = int(ENV("ASK", "200"))
MACHINE = ENV("MACHINE", "one GPU")
NOTE = ENV("NOTE", "")
BATCH, SEQ_LEN = 36, 512  # about 6,300 tokens, what 16 padded rows of 512 hold of them

SOURCES = {
    "general": ["alpaca/alpaca_union.jsonl", "dolly/dolly-15k.merged.jsonl"],
    "code": ["evol-code/evol-codealpaca-2k-1.json", "evol-code/evol-codealpaca-2k-2.json",
             "gpteacher/codegen-instruct.json"],
    "maths": ["gsm8k/train.jsonl", "math/train.jsonl"],
}
DOMAINS = list(SOURCES)


class Method:
    def __init__(self, name, what, train, rates, craft=None):
        self.name, self.what, self.craft = name, what, craft
        self.train, self.rates = train.split(), rates.split()


# rates for what is added to weights, and for weights themselves
ADDED, WHOLE = "6.3e-5 1.6e-4 4e-4 1e-3", "4e-6 1e-5 2.5e-5 6.3e-5"


def lora(rank):
    return Method(f"lora-r{rank}", f"dense, LoRA of rank {rank}",
                  f"--method lora --lora-r {rank} --lora-alpha {rank / 4:g}", ADDED)


def pesc(experts):
    return Method(f"pesc-{experts}", f"{experts} adapters of 256, LoRA 64",
                  "--method pesc --lora-r 64 --lora-alpha 16", ADDED,
                  craft=f"--experts {experts} --top-k 2 --adapter-dim 256 --adapter-scale 1")


# Rank 122 has as many trainable parameters as pesc-8 activates of its own.
ALL = [pesc(8), lora(64), lora(256), pesc(16), pesc(4), pesc(32),
       Method("full", "every weight of the dense model", "--method full", WHOLE),
       Method("upcycle-8", "8 copies of each FFN, LoRA 64", "--method upcycle --lora-r 64 --lora-alpha 16", WHOLE,
              craft="--kind upcycle --experts 8 --top-k 2"),
       Method("molora-8", "8 LoRA experts of rank 64 in the FFN",
              "--method molora --experts 8 --top-k 2 --lora-r 64 --lora-alpha 16", ADDED),
       pesc(64), lora(122)]
CORE = 6
FP8 = {"lora-r64": "4e-4", "pesc-8": "1.6e-4", "pesc-32": "1.6e-4"}  # rates


def in_fp8(m):
    return Method(m.name + "-fp8", m.what, " ".join(m.train) + " --base-grad-dtype fp8", "", m.craft)


for name, rates in (pair.split("=") for pair in ENV("RATES", "").split()):
    next(m for m in ALL if m.name == name).rates = rates.split(",")
METHODS = [m for m in ALL if m.name in ENV("METHODS", " ".join(m.name for m in ALL)).split()]
BY_NAME = {m.name: m for m in ALL + [in_fp8(m) for m in ALL if m.name in FP8]}


def tell(text):
    print(text, file=sys.stderr, flush=True)


# ---- data: held out by record, nothing longer than a sequence

def unpack(name):
    to = STUDY / "sources" / name.replace("/", "_")
    if not to.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(lzma.open(DATA / (name + ".xz")).read())
    return str(to)


def lengths(lines):
    """Tokens of each record's turns, with room for the marks around them."""
    texts = "".join(json.dumps("\n".join(m["content"] for m in json.loads(l)["messages"])) + "\n" for l in lines)
    (STUDY / "texts.jsonl").write_text(texts)
    ids = subprocess.run([PESC, "tokenize", MODEL, "--jsonl", str(STUDY / "texts.jsonl"), "-q"], check=True,
                         capture_output=True, text=True)
    return [line.count(",") + 1 + 16 for line in ids.stdout.splitlines()]


def prepare():
    if all((STUDY / f"{part}.jsonl").exists() for part in ("train", "valid", "test")):
        return
    valid = max(HELD // 3, 1)
    wanted = [n + HELD + valid for n in RECORDS]
    mix = STUDY / "mix.jsonl"
    files = [word for d in DOMAINS for word in ["--" + d, *map(unpack, SOURCES[d])]]
    counts = ",".join(str(int(n * f)) for n, f in zip(wanted, (1.15, 1.45, 1.3)))
    subprocess.run([PESC, "data", "mix", *files, "--counts", counts, "--seed", "1", "-o", str(mix), "--overwrite",
                    "-q"], check=True, stdout=subprocess.DEVNULL)
    lines = mix.read_text().splitlines()
    seen, parts = dict.fromkeys(DOMAINS, 0), {"train": [], "valid": [], "test": []}
    for line, n in zip(lines, lengths(lines)):
        domain = json.loads(line)["domain"]
        i, most = seen[domain], wanted[DOMAINS.index(domain)]
        if n > SEQ_LEN or i == most:
            continue
        seen[domain] = i + 1
        parts["test" if i < HELD else "valid" if i < HELD + valid else "train"].append(line)
    for part, chosen in parts.items():
        (STUDY / f"{part}.jsonl").write_text("\n".join(chosen) + "\n")
    tell("records: " + ", ".join(f"{part} {len(chosen)}" for part, chosen in parts.items()))


# ---- runs: a line of runs.tsv each

COLUMNS = ["method", "part", "seed", "rate", "epochs", "valid", *DOMAINS, "mean", "numbers", "trained", "activated",
           "bytes", "tokens", "tokens_per_second", "least_load", "most_load", "dead"]
began = time.monotonic()
lock = threading.Lock()
results = {}  # of (method, part, seed, rate)


def left():
    return LIMIT - (time.monotonic() - began)


def command(*words):
    """What it printed, as JSON."""
    done = subprocess.run([PESC, *words, "--json", "-q"], capture_output=True, text=True, timeout=max(left(), 1))
    if done.returncode:
        raise RuntimeError(f"pesc {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def last_number(text):
    """What a solution ends in: after ####, in a box, or the last number there is."""
    for pattern in (r"####\s*([^\s]+)", r"\\boxed\{([^{}]*)\}", r"(-?\d[\d,]*(?:\.\d+)?)"):
        found = re.findall(pattern, text)
        if found:
            return found[-1].replace(",", "").replace("$", "").rstrip(".")
    return None


def judge(path):
    task = command("eval", str(path), "--tasks", str(STUDY / "test.jsonl"), "--template", "chatml", "--samples",
                   "--ctx", "1024", "--max-tokens", str(max(ASK, 1)), "--batch", "256", "--device", DEVICE)["tasks"][0]
    scores = {d["domain"]: d["loss"] for d in task["domains"]}
    maths = [last_number(s["answer"]) == last_number(s["expected"]) for s in task["samples"] if s["domain"] == "maths"]
    return {**scores, "mean": mean(scores[d] for d in DOMAINS), "numbers": 100 * mean(maths) if ASK else None}


def loads(run):
    """The smallest and largest share of a layer's choices over the second half of the run, 1 is even, and the dead."""
    log = run / "routing.jsonl"
    lines = [json.loads(l)["layers"] for l in log.read_text().splitlines()] if log.exists() else []
    lines = lines[len(lines) // 2:]
    if not lines or not lines[0]:
        return {}
    shares = [mean(col) for layer in zip(*lines) for col in zip(*layer)]
    even = 1 / len(lines[0][0])
    return {"least_load": min(shares) / even, "most_load": max(shares) / even,
            "dead": sum(s < 0.01 * even for s in shares)}


def train(m, part, seed, rate):
    run, model = STUDY / f"{m.name}-{part}-{seed}-{rate}", MODEL
    epochs = EPOCHS * (SEARCH if part == "search" else 1)
    try:
        if m.craft:
            model = str(run) + ".model"
            command("craft", MODEL, "-o", model, "--overwrite", "--seed", str(seed), "--check", "false",
                    *m.craft.split())
        done = command("train", model, "-o", str(run), "--overwrite", *m.train, "--lr", rate, "--seed", str(seed),
                       "--epochs", str(epochs), "--data", str(STUDY / "train.jsonl"), "--eval-data", str(STUDY / "valid.jsonl"),
                       "--eval-every", "1000000", "--template", "chatml", "--batch", str(BATCH),
                       "--seq-len", str(SEQ_LEN), "--micro-tokens", "16384", "--lora-dropout", "0",
                       "--adapter-dropout", "0", "--compute-dtype", "bf16", "--save-every", "0", "--device", DEVICE)
        steps = [json.loads(l) for l in (run / "metrics.jsonl").read_text().splitlines()]
        row = {"valid": done["eval_loss"], "trained": done["params_trained"], "tokens": done["tokens"],
               "bytes": max(s["mem_bytes"] for s in steps),
               "tokens_per_second": median(s["tok_s"] for s in steps), **loads(run)}
        if part == "full":
            row.update(judge(run), activated=command("info", str(run))["params"]["activated"])
        return row
    finally:  # the numbers stay, the weights go
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(str(run) + ".model", ignore_errors=True)


def text(v):
    return "" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v)


def record(key, row):
    m, part, seed, rate = key
    row = {"method": m, "part": part, "seed": seed, "rate": rate, "epochs": EPOCHS, **row}
    results[key] = row
    with open(STUDY / "runs.tsv", "a") as f:
        f.write("\t".join("" if row.get(c) is None else str(row[c]) for c in COLUMNS) + "\n")  # all digits: a report made again is the same
    told = ", ".join(f"{c} {text(row.get(c))}" for c in ("valid", "mean", "numbers", "tokens_per_second"))
    tell(f"{time.monotonic() - began:5.0f} s  {m} {part} seed {seed} rate {rate}: {told}")


def read_results():
    path = STUDY / "runs.tsv"
    for line in path.read_text().splitlines() if path.exists() else []:
        row = dict(zip(COLUMNS, line.split("\t")))
        for c in COLUMNS[4:]:
            row[c] = float(row[c]) if row[c] else None
        row["seed"] = int(row["seed"])
        if row["epochs"] == EPOCHS:
            results[row["method"], row["part"], row["seed"], row["rate"]] = row


def make(name, part, seed, rate):
    """One run, unless it is there; a failure is a line without numbers. False: no time is left."""
    key = (name, part, seed, rate)
    if key in results:
        return True
    if left() < 5:
        return False
    try:
        if name == "base":
            row = {**judge(MODEL), "activated": command("info", MODEL)["params"]["activated"]}
        else:
            row = train(BY_NAME[name], part, seed, rate)
    except subprocess.TimeoutExpired:
        return False
    except (RuntimeError, OSError, ValueError, KeyError) as e:
        tell(f"{' '.join(map(str, key))}: {e}")
        row = {}
    with lock:
        record(key, row)
    return True


def best_rate(m):
    best = study_gpu_report.best_search(results, m.name)
    return best and best["rate"]


def search():
    """One run at a time: it also tells the speed of a run that has the device for itself."""
    for m in METHODS:
        for rate in m.rates:
            make(m.name, "search", SEEDS[0], rate)


def repeat():
    """The best rates with every seed, JOBS at a time: the main methods one by one, of the others a seed of each in turn."""
    core, rest = METHODS[:CORE], METHODS[CORE:]
    runs = [("base", "full", 0, "0")] + [(m.name, "full", s, best_rate(m)) for m in core for s in SEEDS]
    runs += [(m.name, "full", s, best_rate(m)) for s in SEEDS for m in rest]
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda run: make(*run), [r for r in runs if r[3]]))


def compare_fp8():
    runs = [(name + suffix, "full", seed, rate) for name, rate in FP8.items() for seed in SEEDS for suffix in ("", "-fp8")]
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda run: make(*run), runs))
    print("| method | loss in bf16, by seed | in fp8 | difference of the means | tokens/s |\n| --- | --- | --- | --- | --- |")
    for name, rate in FP8.items():
        both = [[results.get((name + suffix, "full", seed, rate), {}) for seed in SEEDS] for suffix in ("", "-fp8")]
        losses = [[r["mean"] for r in rows if r.get("mean")] for rows in both]
        if not all(losses):
            continue
        speeds = [median(r["tokens_per_second"] for r in rows if r.get("mean")) for rows in both]
        print(f"| {name} |", " | ".join(", ".join(f"{x:.4f}" for x in part) for part in losses),
              f"| {mean(losses[1]) - mean(losses[0]):+.4f} | {speeds[0]:,.0f}, {speeds[1]:,.0f} |", flush=True)


def main():
    os.chdir(ROOT)
    STUDY.mkdir(parents=True, exist_ok=True)
    read_results()
    if LIMIT > 0:
        if not Path(MODEL).exists() or not DATA.exists():
            sys.exit(f"study-gpu: {MODEL} or {DATA} is not there; set MODEL and DATA, or PESC_DATA")
        prepare()
    if sys.argv[1:] == ["fp8"]:
        compare_fp8()
        return
    if LIMIT > 0:
        search()
        repeat()
    if results and REPORT.name != "-":
        about = {"model": Path(MODEL).name, "epochs": EPOCHS, "records": RECORDS, "seq_len": SEQ_LEN, "batch": BATCH,
                 "held": HELD, "seeds": SEEDS, "machine": MACHINE, "note": NOTE,
                 "domains": DOMAINS}
        study_gpu_report.write(REPORT, LIBPESC, ALL, results, about)
        tell(str(REPORT))


main()
