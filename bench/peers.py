#!/usr/bin/env python3
"""pesc beside its peers on this machine, in one interleaved run: prefill of 512 tokens and decoding
of 128, 2 threads, on one random Llama of 135 M weights (or 15 M). Each round runs every program
once; the best of the rounds counts, so a noisy minute hurts all alike.

    python bench/peers.py --pesc build/pesc [--rounds 3] [--shape 135m|15m] [--prompt 512] [--decode 128]
                          [--streams N] [--threads 2] [--train] [--experts 8] [--only NAME,NAME]

--prompt 8192 measures decoding in a long context. --streams N decodes N sequences together, after prompts of --prompt tokens: pesc by
build/bench/shape, llama.cpp by its C interface with a batch of N sequences. --streams N --threads 1 measures CPU time instead of time,
which other programs on the machine disturb less.

With --train it times training steps of 4 sequences of 256 tokens instead, in f32 and bf16: LoRA of rank 16 on all
projections (pesc beside peft), and PESC with 8 adapters of 64, top 2, beside the same in PyTorch: each expert on the
rows that chose it, or all experts on all rows. For pesc also the peak memory of the run.

Peers that are importable take part: torch with transformers (f32, bf16) and llama-cpp-python on a
GGUF of the same weights (F32, BF16, Q8_0, Q4_0); pesc opens the quantised ones too. Nothing is downloaded. Training in bf16 is timed
beside PyTorch only on CPUs with bf16 instructions.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import tempfile
import time

SHAPE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576,
         "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
         "intermediate_size": 1536, "vocab_size": 49152, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "max_position_embeddings": 2048, "hidden_act": "silu", "tie_word_embeddings": True,
         "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0}
SHAPES = {"135m": {},
          "15m": {"hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 6,
                  "intermediate_size": 768, "vocab_size": 32000}}
PROMPT, DECODE, THREADS = 512, 128, 2
BATCH, LENGTH, RANK, ADAPTER, TOP = 4, 256, 16, 64, 2
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def pesc(binary, model, *dtypes):
    def run():
        out = subprocess.run([binary, "bench", model, "--json", "-q", "--repeat", "1", "--threads", str(THREADS),
                              *dtypes, "--prompt-tokens", str(PROMPT), "--decode-tokens", str(DECODE)],
                             check=True, capture_output=True, text=True).stdout
        r = json.loads(out)
        return r["prefill"]["best"], r["decode"]["best"]
    return run


def torch_peer(path, dtype):
    import torch
    import transformers
    torch.set_num_threads(THREADS)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()

    def run():
        ids = torch.randint(0, SHAPE["vocab_size"], (1, PROMPT))
        with torch.inference_mode():
            t0 = time.perf_counter()
            out = model(ids, use_cache=True, logits_to_keep=1)
            t1 = time.perf_counter()
            past, last = out.past_key_values, ids[:, -1:]
            for _ in range(DECODE):
                out = model(last, past_key_values=past, use_cache=True)
                past, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
            t2 = time.perf_counter()
        return PROMPT / (t1 - t0), DECODE / (t2 - t1)
    return run


def write_gguf(path, model, kind):
    """The model's weights as a GGUF for llama.cpp, with a vocabulary of made-up tokens."""
    import gguf
    import numpy as np
    from safetensors import safe_open
    c = SHAPE
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("llama")
    w.add_token_list([f"t{i}" for i in range(c["vocab_size"])])
    w.add_token_scores([0.0] * c["vocab_size"])
    w.add_token_types([2] + [1] * (c["vocab_size"] - 1))  # the first is the unknown token
    q = getattr(gguf.GGMLQuantizationType, kind)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    parts = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    with safe_open(pathlib.Path(model) / "model.safetensors", "pt") as f:
        for name in f.keys():
            t = f.get_tensor(name).float().numpy()
            stem = name.removesuffix(".weight")
            if stem in names:
                to = names[stem]
            else:
                _, _, layer, part = stem.split(".", 3)
                to = f"blk.{layer}.{parts[part]}"
            if t.ndim == 1:
                w.add_tensor(to + ".weight", t)
            else:
                w.add_tensor(to + ".weight", gguf.quants.quantize(t, q), raw_dtype=q)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def llama_cpp(path):
    import llama_cpp
    model = llama_cpp.Llama(str(path), n_ctx=PROMPT + DECODE + 384, n_batch=512, n_ubatch=512, n_threads=THREADS,
                            n_threads_batch=THREADS, verbose=False)

    def run():
        rng = random.Random(1)
        model.reset()
        t0 = time.perf_counter()
        model.eval([rng.randrange(SHAPE["vocab_size"]) for _ in range(PROMPT)])
        t1 = time.perf_counter()
        for _ in range(DECODE):
            model.eval([rng.randrange(SHAPE["vocab_size"])])
        t2 = time.perf_counter()
        return PROMPT / (t1 - t0), DECODE / (t2 - t1)
    return run


def pesc_streams(binary, config, streams, base, compute):
    shape = pathlib.Path(binary).parent / "bench/shape"

    def run():
        out = subprocess.run([shape, config, f"device=cpu:{THREADS}", f"base={base}", f"compute={compute}", f"decode={DECODE}", f"batch={streams}",
                              f"tokens={PROMPT}"], check=True, capture_output=True, text=True).stdout
        rate = float(re.search(r"([\d.]+) tokens/s; prompt", out)[1])
        return streams * PROMPT / float(re.search(r"in ([\d.]+) ms; weights", out)[1]) * 1e3, rate
    return run


def llama_streams(path, streams):
    """llama.cpp's own batched decode: one token of each of `streams` sequences a call."""
    import llama_cpp as L
    L._logger.set_verbose(False)
    model = L.llama_model_load_from_file(str(path).encode(), L.llama_model_default_params())
    p = L.llama_context_default_params()
    p.n_ctx, p.n_seq_max = streams * (PROMPT + DECODE + 64), streams
    p.n_batch = p.n_ubatch = max(512, streams)
    p.n_threads = p.n_threads_batch = THREADS
    context = L.llama_init_from_model(model, p)
    batch, rng = L.llama_batch_init(p.n_batch, 0, 1), random.Random(1)

    def decode(tokens):
        """tokens: (sequence, position, whether its logits are read)."""
        batch.n_tokens = len(tokens)
        for i, (sequence, position, logits) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = rng.randrange(SHAPE["vocab_size"]), position, logits
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        assert L.llama_decode(context, batch) == 0
        L.llama_synchronize(context)

    def run():
        L.llama_memory_clear(L.llama_get_memory(context), True)
        tokens = [(s, i, i + 1 == PROMPT) for s in range(streams) for i in range(PROMPT)]
        clock = time.perf_counter if THREADS > 1 else time.thread_time  # one thread is the caller
        t0 = clock()
        for first in range(0, len(tokens), p.n_batch):
            decode(tokens[first:first + p.n_batch])
        t1 = clock()
        for i in range(DECODE):
            decode([(s, PROMPT + i, True) for s in range(streams)])
        t2 = clock()
        return streams * PROMPT / (t1 - t0), streams * DECODE / (t2 - t1)
    return run


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


def gguf_of(work, model, kind):
    path = work / f"{kind}.gguf"
    if not path.exists():
        write_gguf(path, model, kind)
    return str(path)


def inference_runs(binary, model, work, a):
    runs = {f"pesc {b}/{c}": lambda b=b, c=c: pesc(binary, model, "--base-dtype", b, "--compute-dtype", c)
            for b, c in (("f32", "f32"), ("bf16", "bf16"), ("nf4", "f32"), ("nf4", "bf16"))}
    for kind in ("Q8_0", "Q4_0"):
        for c in ("f32", "bf16"):
            runs[f"pesc GGUF {kind}/{c}"] = lambda kind=kind, c=c: pesc(binary, gguf_of(work, model, kind), "--compute-dtype", c)
    for kind in ("F32", "BF16", "Q8_0", "Q4_0"):
        runs[f"llama.cpp {kind}"] = lambda kind=kind: llama_cpp(gguf_of(work, model, kind))
    for d in ("float32", "bfloat16"):
        runs[f"transformers {d}"] = lambda d=d: torch_peer(model, d)
    return runs


def stream_runs(binary, model, work, a):
    runs = {f"pesc {b}/{c}": lambda b=b, c=c: pesc_streams(binary, str(work / "config.json"), a.streams, b, c)
            for b, c in (("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16"), ("nf4", "f32"), ("nf4", "bf16"))}
    for kind in ("F32", "BF16", "Q8_0", "Q4_0"):
        runs[f"llama.cpp {kind}"] = lambda kind=kind: llama_streams(gguf_of(work, model, kind), a.streams)
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
    global PROMPT, DECODE, THREADS
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--shape", choices=SHAPES, default="135m")
    p.add_argument("--prompt", type=int, default=PROMPT)
    p.add_argument("--decode", type=int, default=DECODE)
    p.add_argument("--streams", type=int, default=0)
    p.add_argument("--threads", type=int, default=THREADS)
    p.add_argument("--train", action="store_true")
    p.add_argument("--experts", type=int, default=8)
    p.add_argument("--only", default="", help="names, or parts of them, of what takes part")
    a = p.parse_args()
    SHAPE.update(SHAPES[a.shape])
    PROMPT, DECODE, THREADS = a.prompt, a.decode, a.threads
    SHAPE["max_position_embeddings"] = max(2048, PROMPT + DECODE)
    with tempfile.TemporaryDirectory() as tmp:
        work = pathlib.Path(tmp)
        (work / "config.json").write_text(json.dumps(SHAPE))
        model = str(work / "model")
        subprocess.run([a.pesc, "new", str(work / "config.json"), "-o", model, "-q"], check=True, stdout=subprocess.DEVNULL)
        kind = training_runs if a.train else stream_runs if a.streams else inference_runs
        runs = opened(kind(a.pesc, model, work, a), a.only)
        best = {}
        for _ in range(a.rounds):
            for name, run in runs.items():
                best[name] = [max(pair) for pair in zip(best.get(name, (0.0, 0.0)), run())]
        each = f"{a.streams} x " if a.streams > 1 else ""
        heads = ([f"training {BATCH}x{LENGTH}, tokens/s", "peak memory, MiB"] if a.train else
                 [f"prefill {each}{PROMPT}, tokens/s", f"decode {each}{DECODE}, tokens/s"])
        print("| program, weights/compute |", " | ".join(heads), "|\n" + "|---" * (1 + len(heads)) + "|")
        for name, rates in best.items():
            print(f"| {name} |", " | ".join(f"{r:,.1f}" if r else "" for r in rates), "|")


main()
