#!/usr/bin/env python3
"""Measures this machine and writes docs/performance.md, so that every figure on that page comes from one run.

    python3 bench/performance.py run cpu|cuda [--build build]   runs all commands of that device, writes bench/results/<device>.json
    python3 bench/performance.py page                           fills docs/performance.md from bench/results/*.json
    python3 bench/performance.py check                          fails when the page is not what `page` would write, or when a
                                                                document quotes another figure (tools/check.sh runs it)

`make performance` does the first for the CPU, and for the GPU where there is one, and then the second. The page is text
with marked tables; a table stands between `<!-- table NAME -->` and `<!-- end -->` and is replaced as a whole. The
results hold the output of each command as it was printed, with the commit, the date and the machine.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

import peers as peers_cpu

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/performance.md"
RESULTS = ROOT / "bench/results"
PESC_STEP = "bench/shapes/135m-pesc.json seqs=4 tokens=256 micro=1024 lora=16 steps=3"
# GFLOP of a prefill of 512 tokens without the head, which has one row, and of 4 x 256 tokens of a step, as `pesc cost --json` counts them:
# --tokens 512 and, for the step, --tokens 256 --lora-r 16.
WORK, STEP_TOKENS = {"135m.json": 118, "135m-pesc.json": 640}, 1024

COMMANDS = {
    "cpu": {
        "training": "python3 bench/peers_train.py --pesc {build}/pesc --rounds 2",
        "products": "{build}/bench/matmul 1",
        "limits": [f"{{build}}/bench/shape {what} device=cpu:{threads} base={dtype} compute={dtype}"
                   for what in ("bench/shapes/135m.json prefill=512", PESC_STEP)
                   for dtype in ("f32", "bf16") for threads in (1, 2)],
        "ops": "{build}/bench/ops 1",
        "profile": "{build}/bench/shape " + PESC_STEP + " device=cpu:1 base=bf16 profile=1",
        "data": "python3 bench/jsonl.py --pesc {build}/pesc --gb 0.1,1",
    },
    "cuda": {
        "steps": [
            "{build}/bench/shape bench/shapes/7b-pesc.json moments=8",
            "{build}/bench/shape bench/shapes/7b-pesc.json moments=8 base=bf16",
            "{build}/bench/shape bench/shapes/7b-pesc.json moments=8 micro=4096 memory=22",
            "{build}/bench/shape bench/shapes/7b-pesc.json moments=8 paged=1",
            "{build}/bench/shape bench/shapes/7b.json moments=8",
            "{build}/bench/shape bench/shapes/34b-pesc.json moments=8 seqs=2 micro=4096",
            "{build}/bench/shape bench/shapes/34b-pesc.json moments=8 micro=4096 memory=74",
            *(f"{{build}}/bench/shape bench/shapes/{shape} grads=fp8" for shape in (
                "7b-pesc.json moments=8", "7b-pesc.json moments=8 micro=4096 memory=22", "7b.json moments=8",
                "34b-pesc.json moments=8 seqs=2 micro=4096", "34b-pesc.json moments=8 micro=4096 memory=74")),
            "{build}/bench/shape bench/shapes/29m-pesc.json seqs=32 tokens=512 micro=16384 lora=16",
            *(f"{{build}}/bench/shape bench/shapes/{shape}.json moments=8 lora=16{more}" for shape, more in (
                ("qwen3-8b", " base=bf16"), ("qwen3-8b", ""), ("qwen3-8b", " grads=fp8"), ("qwen3-30b-a3b", ""),
                ("qwen3-30b-a3b", " seqs=6 micro=12288 keep=1"),
                ("qwen3-30b-a3b", " seqs=6 micro=12288 keep=1 host=1"))),
        ],
        "decode": [
            *(f"{{build}}/bench/shape bench/shapes/{shape}.json decode=64 batch={batch}"
              for shape in ("7b", "7b-pesc") for batch in (1, 8, 64)),
            "{build}/bench/shape bench/shapes/7b.json decode=64 base=bf16",
            *(f"{{build}}/bench/shape bench/shapes/{shape}.json decode=128 batch={batch} base=bf16"
              for shape in ("135m", "135m-pesc-256") for batch in (1, 8, 64)),
            *(f"{{build}}/bench/shape bench/shapes/{shape}.json decode=64 batch={batch}"
              for shape in ("mixtral-8x7b", "qwen3-30b-a3b") for batch in (1, 8, 64)),
        ],
        "prefill": [
            *(f"{{build}}/bench/shape bench/shapes/{shape}.json prefill={tokens}"
              for shape in ("7b", "7b-pesc") for tokens in (128, 2048)),
            *(f"{{build}}/bench/shape bench/shapes/{shape}.json prefill=512 batch={batch} base=bf16"
              for shape in ("135m", "135m-pesc-256") for batch in (1, 16)),
        ],
        "peers": "python3 bench/gpu_peers.py steps",
        "attention": ["{build}/bench/attention_cuda rates", "python3 bench/attention_cuda.py"],
        "grouped": "{build}/bench/grouped_cuda time",
        "power": "{build}/bench/product_cuda power",
        "few_rows": "{build}/bench/cuda",
        "idle": "bench/idle.sh {build}",
        "commands": "python3 bench/commands.py --pesc {build}/pesc",
        "profile": "{build}/bench/shape bench/shapes/7b-pesc.json moments=8 profile=1",
    },
}


# ---- running

def output_of(command, build):
    print(f"== {command.format(build=build)}", flush=True)
    done = subprocess.run(command.format(build=build).split(), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    return done.stdout if done.returncode == 0 else f"(failed with exit code {done.returncode})\n"


def text_of(*command):
    """What a command prints; nothing where it is missing or fails."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def machine_of(device):
    if device == "cuda":
        return text_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    model = re.search(r"Model name:\s*(.*)", text_of("lscpu")).group(1)
    flags = text_of("lscpu").split()
    best = [f for f in ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "bf16", "asimd") if f in flags]
    return f"{text_of('nproc')} cores of {model} ({best[0] if best else text_of('uname', '-m')})"


def run(device, build):
    outputs = {}
    for name, commands in COMMANDS[device].items():
        commands = [commands] if isinstance(commands, str) else commands
        outputs[name] = [[c.format(build="build"), output_of(c, build)] for c in commands]
        found = {"machine": machine_of(device), "date": datetime.date.today().isoformat(),
                 "commit": text_of("git", "rev-parse", "--short", "HEAD"), "outputs": outputs}
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{device}.json").write_text(json.dumps(found, indent=1) + "\n")


# ---- tables

def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(c) for c in line) + " |" for line in lines)


def number(text):
    return f"{float(text):,.0f}"


def about(found):
    return f"{found['machine']}; {found['date']}, commit {found['commit']}."


def verbatim(pairs):
    return "\n".join(f"```\n$ {command}\n{text.rstrip()}\n```" for command, text in pairs)


def markdown(pairs):
    """The table that the command printed."""
    lines = [line for _, text in pairs for line in text.splitlines() if line.startswith("|")]
    return "\n".join(lines + ["", *(f"`{command}`" for command, _ in pairs)])


def steps(pairs):
    rows = []
    for command, text in pairs:
        m = re.search(r"(\d+) tokens/s \(best step (\d+)\), ([\d.]+) ms a step.*?([\d.]+) GiB", text)
        rows.append([f"`{command.replace('build/bench/', '')}`", *([number(m[1]), m[3], m[4]] if m else ["-"] * 3)])
    return table(["command", "tokens/s", "ms a step", "GiB"], rows)


def decode(pairs):
    rows = []
    for command, text in pairs:
        m = re.search(r"([\d.]+) ms a token, ([\d.]+) tokens/s; prompt of .* in ([\d.]+) ms;.*read at ([\d.]+) TB/s", text)
        rows.append([f"`{command.replace('build/bench/', '')}`", *([m[1], number(m[2]), m[3], m[4]] if m else ["-"] * 4)])
    return table(["command", "ms a step", "tokens/s", "prompt of 128, ms", "weights read, TB/s"], rows)


def prefill(pairs):
    rows = []
    for command, text in pairs:
        m = re.search(r": ([\d.]+) ms \(best ([\d.]+), first ([\d.]+)\), (\d+) tokens/s", text)
        rows.append([f"`{command.replace('build/bench/', '')}`", *([m[1], m[3], number(m[4])] if m else ["-"] * 3)])
    return table(["command", "ms", "first in the process, ms", "tokens/s"], rows)


def limits(pairs, outputs):
    """Best times beside what the CPU's product instructions alone would take, one core's rate times the cores."""
    rates = dict(re.findall(r"^peak of (f32|bf16)[^:]*: (\d+)", outputs.get("products", [["", ""]])[0][1], re.M))
    rows = []
    for command, text in pairs:
        prefill, step = re.search(r"best ([\d.]+), first", text), re.search(r"\(best step (\d+)\)", text)
        shape, cores, dtype = (re.search(p, command)[1] for p in (r"shapes/(\S+)", r"cpu:(\d+)", r"compute=(\w+)"))
        rate = float(rates.get(dtype) or rates.get("f32") or 0) * int(cores)  # GFLOP/s
        ms = float(prefill[1]) if prefill else STEP_TOKENS * 1e3 / float(step[1]) if step else 0
        rows.append([f"`{command.replace('build/bench/', '')}`", f"{ms:,.0f}" if ms else "-",
                     f"{WORK[shape] / rate / ms * 1e5:.0f} %" if ms and rate else "-"])
    return table(["command", "best, ms", "of the instruction's rate"], rows)


def peers(pairs):
    rows = [m.groups() for m in re.finditer(r"^(.*): (\d+) tokens/s, ([\d.]+) ms a step, ([\d.]+) GiB", pairs[0][1], re.M)]
    return table(["PyTorch", "tokens/s", "ms a step", "GiB"], [[n, number(t), ms, g] for n, t, ms, g in rows])


SPECIAL = {"cuda.steps": steps, "cuda.decode": decode, "cuda.prefill": prefill, "cuda.peers": peers, "cpu.training": markdown, "cpu.data": markdown}


def fill(text):
    found = {p.stem: json.loads(p.read_text()) for p in RESULTS.glob("*.json")}

    special = {"cpu.limits": lambda pairs: limits(pairs, found["cpu"]["outputs"]), **SPECIAL}

    def block(match):
        device, name = match[1].split(".", 1)
        if device not in found:
            body = "Not measured."
        elif name == "about":
            body = about(found[device])
        elif device == "peers":
            body = peers_cpu.table(found[device], name)
        else:
            pairs = found[device]["outputs"].get(name)
            body = special.get(match[1], verbatim)(pairs) if pairs else "Not measured."
        return f"<!-- table {match[1]} -->\n{body}\n<!-- end -->"
    return re.sub(r"<!-- table ([\w.]+) -->\n.*?<!-- end -->", block, text, flags=re.S)


# ---- figures that texts quote

STEP = "7b-pesc.json moments=8"
QUOTES = {
    "README.md": [
        "**A 7B PESC step on one H200 at {k[STEP]} k tokens/s** in {gib[STEP]} GiB, {k[STEP grads=fp8]} k with gradients in fp8; compiled "
        "PyTorch: {k[7B with adapters, kept, compiled]} k in {gib[7B with adapters, kept, compiled]} GiB. {k[STEP micro=4096 memory=22]} k in "
        "{gib[STEP micro=4096 memory=22]} GiB"],
    "docs/performance.md": [
        "| {n[STEP]} in {gib1[STEP]} GiB; {n[STEP grads=fp8]} with gradients in fp8 | {n[7B with adapters, kept, compiled]} compiled, "
        "{gib1[7B with adapters, kept, compiled]} GiB |",
        "| {n[STEP micro=4096 memory=22]} in {gib1[STEP micro=4096 memory=22]} GiB; {n[STEP micro=4096 memory=22 grads=fp8]} | "
        "{n[7B with adapters, computed again]} in {gib1[7B with adapters, computed again]} GiB",
        "| dense QLoRA | {n[7b.json moments=8]} in {gib1[7b.json moments=8]} GiB; {n[7b.json moments=8 grads=fp8]} | {n[7B dense, kept]} in "
        "{gib1[7B dense, kept]} GiB |",
        "| decode, batch 1 / 8 / 64 | {n[7b.json batch=1]} / {n[7b.json batch=8]} / {n[7b.json batch=64]} |",
        "| decode of the sparse model, batch 1 / 8 / 64 | {n[7b-pesc.json batch=1]} / {n[7b-pesc.json batch=8]} / {n[7b-pesc.json batch=64]} |"],
    "docs/findings.md": [
        "decoding a 7B shape takes {ratio[1]} times as long for one sequence ({n[7b.json batch=1]} and {n[7b-pesc.json batch=1]} tokens/s), {ratio[64]} times for 64"],
    "docs/which-method.md": ["a 7B shape on one H200 {ratio[1]} times for one sequence, {ratio[64]} times for 64"],
}


def measured(outputs):
    """Tokens/s and GiB of each command of steps and decode, without its folder and decode=64, and of each row of the peers."""
    found = {}
    for command, text in outputs["steps"]:
        m = re.search(r"(\d+) tokens/s .*? ([\d.]+) GiB", text)
        found[re.sub(r".*/shapes/", "", command)] = float(m[1]), float(m[2])
    for command, text in outputs["decode"]:
        if " base=" not in command:
            found[re.sub(r".*/shapes/", "", command).replace(" decode=64", "")] = float(re.search(r"([\d.]+) tokens/s", text)[1]), None
    for m in re.finditer(r"^(.*): (\d+) tokens/s, [\d.]+ ms a step, ([\d.]+) GiB", outputs["peers"][0][1], re.M):
        found[m[1]] = float(m[2]), float(m[3])
    return found


def quoted(template, found):
    """The text with the figures that were measured."""
    def figure(m):
        kind, name = m[1], m[2].replace("STEP", STEP)
        if kind == "ratio":
            return f"{found[f'7b.json batch={name}'][0] / found[f'7b-pesc.json batch={name}'][0]:.2f}"
        speed, gib = found[name]
        return {"n": f"{speed:,.0f}", "k": f"{speed / 1000:.1f}", "gib": f"{gib or 0:.0f}", "gib1": f"{gib or 0:.1f}"}[kind]
    return re.sub(r"\{(\w+)\[(.*?)\]\}", figure, template)


def wrong_quotes():
    found = measured(json.loads((RESULTS / "cuda.json").read_text())["outputs"])
    for name, templates in QUOTES.items():
        text = " ".join((ROOT / name).read_text().split())
        for expected in (quoted(t, found) for t in templates):
            if expected not in text:
                yield f"{name}: expected from bench/results/cuda.json: {expected}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("run", "page", "check"))
    p.add_argument("device", nargs="?", choices=tuple(COMMANDS))
    p.add_argument("--build", default="build")
    a = p.parse_args()
    if a.what == "run":
        if not a.device:
            sys.exit("performance: run: give cpu or cuda")
        run(a.device, a.build)
    elif a.what == "page":
        PAGE.write_text(fill(PAGE.read_text()))
    else:
        wrong = list(wrong_quotes())
        if fill(PAGE.read_text()) != PAGE.read_text():
            wrong.insert(0, "docs/performance.md: differs from bench/results; run python3 bench/performance.py page")
        sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
