#!/usr/bin/env python3
"""pesc beside its peers on this machine, in one interleaved run: prefill of 512 tokens and decoding
of 128, 2 threads, on one random Llama of 135 M weights (or --config). Each round runs every program
once; the best of the rounds counts, so a noisy minute hurts all alike.

    python bench/peers.py --pesc build/pesc [--rounds 3] [--train] [--only NAME,NAME]

With --train it times training steps of 4 sequences of 256 tokens instead: LoRA of rank 16 on all projections
(pesc beside peft), and PESC with 8 adapters of 64, top 2, in f32 and bf16.

Peers that are importable take part: torch with transformers (f32, bf16) and llama-cpp-python on a
GGUF of the same weights (F32, BF16, Q8_0, Q4_0). Nothing is downloaded.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

SHAPE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576,
         "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
         "intermediate_size": 1536, "vocab_size": 49152, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "max_position_embeddings": 2048, "hidden_act": "silu", "tie_word_embeddings": True,
         "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0}
PROMPT, DECODE, THREADS = 512, 128, 2
BATCH, LENGTH, RANK = 4, 256, 16
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def pesc(binary, model, base, compute):
    def run():
        out = subprocess.run([binary, "bench", model, "--json", "-q", "--repeat", "1", "--threads", str(THREADS),
                              "--base-dtype", base, "--compute-dtype", compute,
                              "--prompt-tokens", str(PROMPT), "--decode-tokens", str(DECODE)],
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
    w.add_context_length(2048)
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
    w.add_token_types([1] * c["vocab_size"])
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
    model = llama_cpp.Llama(str(path), n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=THREADS,
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


def pesc_train(binary, model, work, method, dtype):
    data = work / "data.jsonl"
    rng = random.Random(1)
    rows = [[rng.randrange(SHAPE["vocab_size"]) for _ in range(LENGTH)] for _ in range(4 * BATCH)]
    data.write_text("".join(json.dumps({"input_ids": r, "labels": r}) + "\n" for r in rows))

    def run():
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([binary, "train", model, "--data", str(data), "-o", out + "/run", "--method", method,
                            "--steps", "3", "--batch", str(BATCH), "--seq-len", str(LENGTH),
                            "--micro-tokens", str(BATCH * LENGTH), "--base-dtype", dtype, "--compute-dtype", dtype,
                            "--lora-r", str(RANK), "--lora-dropout", "0", "--adapter-dropout", "0",
                            "--threads", str(THREADS), "-q"], check=True, capture_output=True)
            lines = pathlib.Path(out, "run", "metrics.jsonl").read_text().splitlines()
            return (max(json.loads(line)["tok_s"] for line in lines[1:]),)
    return run


def peft_train(path, dtype):
    import peft
    import torch
    import transformers
    torch.set_num_threads(THREADS)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=16, target_modules=list(PROJECTIONS)))
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
        return (best,)
    return run


def training_runs(binary, model, work):
    sparse = str(work / "sparse")
    subprocess.run([binary, "craft", model, "-o", sparse, "--experts", "8", "--top-k", "2", "--adapter-dim", "64", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    runs = {f"pesc {method} {d}": pesc_train(binary, m, work, method, d)
            for method, m in (("lora", model), ("pesc", sparse)) for d in ("f32", "bf16")}
    try:
        for d in ("float32", "bfloat16"):
            runs[f"peft lora {d}"] = peft_train(model, d)
    except ImportError as e:
        print("without peft:", e)
    return runs


def inference_runs(binary, model, work):
    runs = {f"pesc {b}/{c}": pesc(binary, model, b, c)
            for b, c in (("f32", "f32"), ("bf16", "bf16"), ("nf4", "bf16"))}
    try:
        for kind in ("F32", "BF16", "Q8_0", "Q4_0"):
            write_gguf(work / f"{kind}.gguf", model, kind)
            runs[f"llama.cpp {kind}"] = llama_cpp(work / f"{kind}.gguf")
    except ImportError as e:
        print("without llama.cpp:", e)
    try:
        for d in ("float32", "bfloat16"):
            runs[f"transformers {d}"] = torch_peer(model, d)
    except ImportError as e:
        print("without transformers:", e)
    return runs


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--train", action="store_true")
    p.add_argument("--only", default="", help="names, or parts of them, of what takes part")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        work = pathlib.Path(tmp)
        (work / "config.json").write_text(json.dumps(SHAPE))
        model = str(work / "model")
        subprocess.run([a.pesc, "new", str(work / "config.json"), "-o", model, "-q"], check=True, stdout=subprocess.DEVNULL)
        runs = (training_runs if a.train else inference_runs)(a.pesc, model, work)
        runs = {name: run for name, run in runs.items() if any(o in name for o in a.only.split(","))}
        best = {}
        for _ in range(a.rounds):
            for name, run in runs.items():
                best[name] = [max(pair) for pair in zip(best.get(name, (0.0, 0.0)), run())]
        heads = ([f"training {BATCH}x{LENGTH}, tokens/s"] if a.train else
                 [f"prefill {PROMPT}, tokens/s", f"decode {DECODE}, tokens/s"])
        print("| program, weights/compute |", " | ".join(heads), "|\n" + "|---" * (1 + len(heads)) + "|")
        for name, rates in best.items():
            print(f"| {name} |", " | ".join(f"{r:,.1f}" for r in rates), "|")


main()
