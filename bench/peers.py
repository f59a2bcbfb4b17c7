#!/usr/bin/env python3
"""pesc beside its peers on this machine: prefill, decode after short and long contexts, and sequences decoded together, of the GGUF files that people
have, in one interleaved run.

    python3 bench/peers.py --pesc build/pesc [--files DIR] [--llama DIR] [--openvino PYTHON] [--shapes 135M,1.5B] [--types Q4_K_M,Q8_0]
                           [--columns "prefill 512,after 16"] [--rounds 3] [--threads 2] [--out bench/results/peers.json]

The peers are llama.cpp, built for this machine (--llama DIR: a directory that holds libllama.so; else the source package of the Python binding that is
installed is built in --files, some ten minutes of CPU time), for bf16 files transformers, and OpenVINO where a Python that has openvino-genai is given
and it reads the file. Models have random weights in shapes that people run; llama.cpp quantises them. Nothing else is downloaded.

Of each file every column is measured in each round, first by pesc, then by each peer. A ratio is the median over the rounds of pesc's rate by the best
peer's rate of the same round; rates are medians. What another program on the machine takes in a minute, it takes from all. With
--threads 1 the clock is CPU time.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys

import llama_native
from peer_files import TYPES, file_of, model_of

# Of each column: tokens of a prompt, tokens that are decoded after it, sequences; and whether the prompt or what is decoded counts.
COLUMNS = {"prefill 512": (512, 24, 1, 0), "after 16": (16, 64, 1, 1), "after 512": (512, 24, 1, 1), "after 4,096": (4096, 16, 1, 1),
           "8 together": (16, 16, 8, 1), "32 together": (16, 16, 32, 1)}


def pesc_rates(pesc, file, prompt, decode, sequences, threads):
    """By `pesc bench`; what it does not measure (many sequences, one long prompt without a warm-up, CPU time) by bench/shape."""
    if sequences == 1 and prompt <= 512 and threads > 1:
        out = subprocess.run([pesc, "bench", file, "--json", "-q", "--repeat", "1", "--threads", str(threads), "--prompt-tokens", str(prompt),
                              "--decode-tokens", str(decode)], check=True, capture_output=True, text=True).stdout
        r = json.loads(out)
        return r["prefill"]["best"], r["decode"]["best"]
    out = subprocess.run([pathlib.Path(pesc).parent / "bench/shape", file, f"device=cpu:{threads}", f"tokens={prompt}", f"decode={decode + 4}",
                          f"batch={sequences}"], check=True, capture_output=True, text=True).stdout
    rate = float(re.search(r"([\d.]+) tokens/s; prompt", out)[1])
    return sequences * prompt / float(re.search(r"in ([\d.]+) ms; weights", out)[1]) * 1e3, rate


class Transformers:
    """A model directory in bf16, one sequence."""

    def __init__(self, path, threads):
        import torch
        import transformers
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self.torch, self.clock = torch, llama_native.clock_of(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()

    def close(self):
        pass

    def rates(self, prompt, decode, sequences=1):
        ids = self.torch.randint(0, self.model.config.vocab_size, (sequences, prompt))
        with self.torch.inference_mode():
            t0 = self.clock()
            out = self.model(ids, use_cache=True, logits_to_keep=1)
            t1 = self.clock()
            for _ in range(decode):
                out = self.model(ids[:, -1:], past_key_values=out.past_key_values, use_cache=True)
            t2 = self.clock()
        return sequences * prompt / (t1 - t0), sequences * decode / (t2 - t1)


class Subprocess:
    """A peer in a Python of its own, which answers a line of sizes with a line of rates (openvino_peer.py)."""

    def __init__(self, python, file, threads):
        script = pathlib.Path(__file__).with_name("openvino_peer.py")
        self.process = subprocess.Popen([python, script, file, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = self.process.stdout.readline().strip()
        if ready != "ready":
            raise OSError(ready or "the program ended")

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def rates(self, *sizes):
        self.process.stdin.write(json.dumps(sizes) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def opened(makers):
    """The peers that can run, by name; what the others say is printed once a file."""
    peers = {}
    for name, make in makers.items():
        try:
            peers[name] = make()
        except (ImportError, OSError) as e:
            print(f"without {name}: {e}", file=sys.stderr)
    return peers


def measure_file(a, shape, kind):
    """{column: {program: [rate of each round]}}."""
    file = file_of(a.pesc, shape, kind, a.files, a.threads)
    makers = {"llama.cpp": lambda: llama_native.Llama(file, a.threads)}
    if kind == "BF16":
        makers["transformers"] = lambda: Transformers(model_of(a.pesc, shape, a.files), a.threads)
    if a.openvino:
        makers["OpenVINO"] = lambda: Subprocess(a.openvino, file, a.threads)
    peers, rates = opened(makers), {column: {} for column in a.columns}
    sizes = dict.fromkeys(COLUMNS[column][:3] for column in a.columns)
    for prompt, decode, sequences in list(sizes) * a.rounds:
        runs = {"pesc": lambda: pesc_rates(a.pesc, file, prompt, decode, sequences, a.threads)}
        for name, peer in peers.items():
            if sequences == 1 and prompt <= 512 or name == "llama.cpp":
                runs[name] = lambda peer=peer: peer.rates(prompt, decode, sequences)
        for name, run in runs.items():
            measured = run()
            for column in a.columns:
                *size, which = COLUMNS[column]
                if size == [prompt, decode, sequences]:
                    rates[column].setdefault(name, []).append(round(measured[which], 2))
    for peer in peers.values():
        peer.close()
    return rates


def compared(rates):
    """pesc's median rate, the best peer, its median rate, and the median of the rounds' ratios."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = max((name for name in medians if name != "pesc"), key=medians.get)
    return medians["pesc"], best, medians[best], statistics.median(x / y for x, y in zip(rates["pesc"], rates[best]))


MARKS = {"llama.cpp": "", "transformers": "¹", "OpenVINO": "²"}  # of the best peer in a cell


def table(found, shape):
    """The rows of a shape as Markdown: pesc's rate, the best peer's, and their ratio; below 1 in bold."""
    types = found["rates"].get(shape)
    if not types:
        return "Not measured."
    lines = [f"| {shape} | " + " | ".join(COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for kind, rates in types.items():
        cells = []
        for column in COLUMNS:
            if column not in rates:
                cells.append("")
                continue
            own, best, other, ratio = compared(rates[column])
            text = f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"
            cells.append(f"{own:,.0f} / {other:,.0f}{MARKS[best]}: {text}")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text_of(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--files", type=pathlib.Path, default=pathlib.Path("build/peers"), help="where models and builds are kept")
    p.add_argument("--llama", help="a directory with libllama.so")
    p.add_argument("--openvino", help="a Python that has openvino-genai")
    p.add_argument("--shapes", default="135M,1.5B")
    p.add_argument("--types", default=",".join(TYPES))
    p.add_argument("--columns", type=lambda text: re.findall(r"[^,]+(?:,\d{3})*", text), default=list(COLUMNS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--out", type=pathlib.Path, help="the results as JSON; what is there of this machine and not measured now is kept")
    a = p.parse_args()
    a.files.mkdir(parents=True, exist_ok=True)
    llama_native.use(a.llama or llama_native.build(a.files, a.threads))
    cpu = re.search(r"Model name:\s*(.*)", text_of("lscpu"))[1]
    machine = f"{a.threads} threads of {cpu}" if a.threads > 1 else f"1 thread of {cpu}, by CPU time"
    found = json.loads(a.out.read_text()) if a.out and a.out.exists() else {}
    if found.get("machine") != machine:
        found = {"rates": {}}
    found |= {"machine": machine, "date": datetime.date.today().isoformat(), "commit": text_of("git", "rev-parse", "--short", "HEAD"),
              "rounds": a.rounds}
    for shape in a.shapes.split(","):
        for kind in a.types.split(","):
            found["rates"].setdefault(shape, {}).setdefault(kind, {}).update(measure_file(a, shape, kind))
            if a.out:
                a.out.write_text(json.dumps(found, indent=1) + "\n")
        print(table(found, shape), flush=True)


if __name__ == "__main__":
    main()
