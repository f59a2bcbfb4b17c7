#!/usr/bin/env python3
"""Training steps of pesc beside its peers on this machine, in one interleaved run: 4 sequences of 256 tokens of a random Llama of 135 M weights (or
15 M), in f32 and bf16: LoRA of rank 16 on all projections (pesc beside peft), and PESC with 8 adapters of 64, top 2, beside the same in PyTorch: each
expert on the rows that chose it, or all experts on all rows. For pesc also the peak memory of the run. Each round runs every program once; the best of
the rounds counts, so a noisy minute hurts all alike.

    python bench/peers_train.py --pesc build/pesc [--rounds 2] [--shape 135M|15M] [--threads 2] [--experts 8] [--only NAME,NAME]

Nothing is downloaded. Training in bf16 is timed beside PyTorch only on CPUs with bf16 instructions.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

from peer_files import SHAPES, model_of

SHAPE, THREADS = dict(SHAPES["135M"]), 2
BATCH, LENGTH, RANK, ADAPTER, TOP = 4, 256, 16, 64, 2
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def pesc_train(binary, model, work, method, dtype):
    data = work / "data.jsonl"
    rng = random.Random(1)
    rows = [[rng.randrange(SHAPE["vocab_size"]) for _ in range(LENGTH)] for _ in range(4 * BATCH)]
    data.write_text("".join(json.dumps({"input_ids": r, "labels": r}) + "\n" for r in rows))

    def run():
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([binary, "train", model, "--data", str(data), "-o", out + "/run", "--method", method,
                            "--steps", "4", "--batch", str(BATCH), "--seq-len", str(LENGTH),
                            "--micro-tokens", str(BATCH * LENGTH), "--base-dtype", dtype, "--compute-dtype", dtype,
                            "--lora-r", str(RANK), "--lora-dropout", "0", "--adapter-dropout", "0",
                            "--threads", str(THREADS), "-q"], check=True, capture_output=True)
            lines = pathlib.Path(out, "run", "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(line) for line in lines[1:]]
            return max(m["tok_s"] for m in steps), steps[-1]["mem_bytes"] / (1 << 20)
    return run


def mixture(mlp, experts, routed):
    """A layer's FFN with PESC's adapters behind it: y + the gated sum of the adapters of y."""
    import torch

    class Mixture(torch.nn.Module):
        def __init__(self):
            super().__init__()
            width = SHAPE["hidden_size"]
            kind = {"dtype": next(mlp.parameters()).dtype}
            self.mlp = mlp
            self.router = torch.nn.Linear(width, experts, bias=False, **kind)
            self.down = torch.nn.Parameter(torch.randn(experts, ADAPTER, width, **kind) * 0.02)
            self.up = torch.nn.Parameter(torch.zeros(experts, width, ADAPTER, **kind))

        def forward(self, h):
            y = self.mlp(h)
            x, gelu = y.reshape(-1, y.shape[-1]), torch.nn.functional.gelu
            top, ids = self.router(h.reshape(x.shape)).float().topk(TOP)
            gates = top.softmax(-1).to(x.dtype)
            if routed:
                added = torch.zeros_like(x)
                for e in range(experts):
                    rows, slot = (ids == e).nonzero(as_tuple=True)
                    out = gelu(x[rows] @ self.down[e].T) @ self.up[e].T
                    added = added.index_add(0, rows, out * gates[rows, slot, None])
            else:
                weight = torch.zeros(x.shape[0], experts, dtype=x.dtype).scatter(1, ids, gates)
                mid = gelu(x @ self.down.reshape(-1, x.shape[-1]).T).view(-1, experts, ADAPTER) * weight[..., None]
                added = mid.flatten(1) @ self.up.transpose(1, 2).reshape(-1, x.shape[-1])
            return y + added.view(y.shape)

    return Mixture()


def torch_train(path, dtype, experts=0, routed=False):
    import peft
    import torch
    import transformers
    torch.set_num_threads(THREADS)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=16, target_modules=list(PROJECTIONS)))
    for layer in model.base_model.model.model.layers if experts else ():
        layer.mlp = mixture(layer.mlp, experts, routed)
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=2e-4, fused=True)

    def run():
        best = 0.0
        for _ in range(2):
            ids = torch.randint(0, SHAPE["vocab_size"], (BATCH, LENGTH))
            t0 = time.perf_counter()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            best = max(best, BATCH * LENGTH / (time.perf_counter() - t0))
        return best, 0
    return run


def has_bf16():
    """Whether the CPU multiplies bf16; where it does not, PyTorch trains in bf16 by plain loops, for minutes a step."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def training_runs(binary, model, work, a):
    sparse = str(work / "sparse")
    subprocess.run([binary, "craft", model, "-o", sparse, "--experts", str(a.experts), "--top-k", str(TOP),
                    "--adapter-dim", str(ADAPTER), "-q"], check=True, stdout=subprocess.DEVNULL)
    runs = {f"pesc {method} {d}": lambda method=method, m=m, d=d: pesc_train(binary, m, work, method, d)
            for method, m in (("lora", model), ("pesc", sparse)) for d in ("f32", "bf16")}
    for d, name in (("float32", "f32"), ("bfloat16", "bf16")) if has_bf16() else (("float32", "f32"),):
        runs[f"peft lora {name}"] = lambda d=d: torch_train(model, d)
        runs[f"torch pesc routed {name}"] = lambda d=d: torch_train(model, d, a.experts, True)
        runs[f"torch pesc dense {name}"] = lambda d=d: torch_train(model, d, a.experts)
    return runs


def opened(runs, only):
    """Those that were asked for and can run here."""
    ready = {}
    for name, make in runs.items():
        if any(o in name for o in only.split(",")):
            try:
                ready[name] = make()
            except ImportError as e:
                print(f"without {name}: {e}")
    return ready


def main():
    global THREADS
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--shape", choices=("135M", "15M"), default="135M")
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--experts", type=int, default=8)
    p.add_argument("--only", default="", help="names, or parts of them, of what takes part")
    a = p.parse_args()
    SHAPE.update(SHAPES[a.shape])
    THREADS = a.threads
    with tempfile.TemporaryDirectory() as tmp:
        work = pathlib.Path(tmp)
        runs = opened(training_runs(a.pesc, str(model_of(a.pesc, a.shape, work)), work, a), a.only)
        best = {}
        for _ in range(a.rounds):
            for name, run in runs.items():
                best[name] = [max(pair) for pair in zip(best.get(name, (0.0, 0.0)), run())]
        heads = [f"training {BATCH}x{LENGTH}, tokens/s", "peak memory, MiB"]
        print("| program, weights/compute |", " | ".join(heads), "|\n" + "|---" * (1 + len(heads)) + "|")
        for name, rates in best.items():
            print(f"| {name} |", " | ".join(f"{r:,.1f}" if r else "" for r in rates), "|")


main()
