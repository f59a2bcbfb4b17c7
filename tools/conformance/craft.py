#!/usr/bin/env python3
"""Compares what craft, merge and export write with transformers and peft.

Tiny random models are saved by transformers, changed by pesc and opened by transformers again:
- an upcycled model opens as MixtralForCausalLM, Qwen2MoeForCausalLM or Qwen3MoeForCausalLM, has
  equal experts, and computes what its dense parent does;
- a crafted Camelidae model has the published tensors and keys, the parent's among them bit for bit;
- a merged model is peft's merge_and_unload;
- an exported GGUF file opens as its family, an exported LoRA opens in peft.
Differences are of the largest logit. Run in a Python with torch, transformers, peft; $PESC is the
command. Ends with `N passed, M failed`.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.pop(0)  # the scripts beside this one are named after the packages they compare with

import numpy as np
import peft
import torch
import transformers as hf
from safetensors import safe_open
from safetensors.torch import save_file

hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()
ROOT = pathlib.Path(__file__).resolve().parents[2]
PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))
IDS = [[(1 + i * 37) % 96 for i in range(40)]]
counts = {True: 0, False: 0}

SMALL = dict(vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
             initializer_range=0.2, bos_token_id=1, eos_token_id=2)
PARENTS = {
    "llama": (hf.LlamaConfig, dict(rope_theta=5e5, rms_norm_eps=1e-5), "MixtralForCausalLM"),
    "yi": (hf.LlamaConfig, dict(rope_theta=5e6, head_dim=16, tie_word_embeddings=True),
           "MixtralForCausalLM"),
    "mistral": (hf.MistralConfig, dict(sliding_window=11), "MixtralForCausalLM"),
    "qwen2": (hf.Qwen2Config, dict(tie_word_embeddings=True), "Qwen2MoeForCausalLM"),
    "qwen2-window": (hf.Qwen2Config, dict(use_sliding_window=True, sliding_window=9,
                                          max_window_layers=1), "Qwen2MoeForCausalLM"),
    "qwen3": (hf.Qwen3Config, dict(head_dim=16), "Qwen3MoeForCausalLM"),
}


def check(name, good, detail=""):
    counts[bool(good)] += 1
    print(f"{'ok    ' if good else 'FAILED'} {name} {detail}")


def near(name, a, b, limit):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    worst = float(np.abs(a - b).max() / np.abs(a).max()) if a.shape == b.shape else float("inf")
    check(name, worst <= limit, f"{worst:.2g} (allowed {limit:g})")


def pesc(*args):
    return subprocess.run([PESC, *map(str, args)], check=True, capture_output=True, text=True).stdout


def pesc_logits(path, work, ids=IDS):
    (work / "ids.json").write_text(json.dumps(ids[0]))
    pesc("logits", path, "--ids", work / "ids.json", "-o", work / "out.npy", "-q")
    return np.load(work / "out.npy")


def logits(model, ids=IDS):
    with torch.no_grad():
        return model.eval()(torch.tensor(ids)).logits[0].float().numpy()


def load(path):
    return hf.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                   attn_implementation="eager")


def parent(name, work, dtype=torch.float32):
    kind, extra, _ = PARENTS[name]
    torch.manual_seed(len(name))
    model = hf.AutoModelForCausalLM.from_config(kind(**SMALL, **extra), dtype=dtype,
                                                attn_implementation="eager")
    for p in model.parameters():  # biases and norms begin as constants
        if p.ndim == 1:
            p.data += 0.1 * torch.randn_like(p)
    model.save_pretrained(work / name)
    return work / name


def tensors(path):
    with safe_open(path / "model.safetensors", "pt") as f:
        return {k: f.get_tensor(k) for k in f.keys()}


def upcycle(name, work):
    dense = parent(name, work)
    out = work / f"{name}-up"
    pesc("craft", dense, "-o", out, "--kind", "upcycle", "--experts", 4, "--top-k", 2, "--seed", 3)
    model = load(out)
    check(f"upcycle {name}: class", type(model).__name__ == PARENTS[name][2], type(model).__name__)
    want = logits(load(dense))
    near(f"upcycle {name}: transformers, sparse and dense", want, logits(model), 1e-5)
    near(f"upcycle {name}: pesc and transformers", want, pesc_logits(out, work), 1e-5)


def camelidae(name, work):
    dense, out, experts, layers = parent(name, work), work / f"{name}-pesc", 4, 3
    pesc("craft", dense, "-o", out, "--experts", experts, "--adapter-dim", 8, "--adapter-scale", 0.25)
    base, made = tensors(dense), tensors(out)
    check(f"craft {name}: the parent's tensors bit for bit",
          all(torch.equal(made[k].view(torch.int32), v.view(torch.int32)) for k, v in base.items()))
    check(f"craft {name}: so many tensors", len(made) - len(base) == layers * (1 + 2 * experts))
    c = json.loads((out / "config.json").read_text())
    check(f"craft {name}: keys", [c[k] for k in ("num_experts", "topk", "adapter_dim", "moe_scaling")]
          == [experts, 2, 8, 0.25] and "auto_map" in c and "rope_theta" in c)
    near(f"craft {name}: logits are transformers' of the parent", logits(load(dense)),
         pesc_logits(out, work), 1e-5)


def lora(name, work, dtype, **extra):
    dense = parent(name, work, dtype)
    config = peft.LoraConfig(r=4, lora_alpha=7, target_modules="all-linear", task_type="CAUSAL_LM",
                             init_lora_weights=False, **extra)
    model = peft.get_peft_model(hf.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32),
                                config)
    model.save_pretrained(work / "adapter")
    return dense, work / "adapter"


def merge(name, work, dtype, label, **extra):
    dense, adapter = lora(name, work, dtype, **extra)
    out = work / f"{name}-merged"
    pesc("merge", dense, "--lora", adapter, "-o", out, "--overwrite")
    model = peft.PeftModel.from_pretrained(load(dense), adapter).merge_and_unload()
    made = tensors(out)
    if dtype == torch.float32:
        near(f"merge {label}: logits", logits(model), logits(load(out)), 1e-5)
    same = total = 0
    for key, want in model.state_dict().items():
        if key in made:
            same += int((made[key] == want.to(made[key].dtype)).sum())
            total += want.numel()
            if dtype == torch.float32:
                assert (made[key] - want).abs().max() <= 1e-6 * (1 + want.abs().max()), key
    near(f"merge {label}: pesc and transformers", logits(load(out)), pesc_logits(out, work), 1e-5)
    check(f"merge {label}: weights equal to the bit", same >= 0.98 * total, f"{same} of {total}")


def expert_lora(name, work):
    """LoRA on every expert of an upcycled model by per-expert keys, against W + (alpha / r) B A in transformers and, where it applies
    such keys to fused experts, against peft (0.21 leaves out those of qwen2_moe)."""
    model, adapter, rank = work / f"{name}-up", work / f"{name}-experts", 4
    made, names, sums = {}, set(), tensors(model)
    for key, w in tensors(model).items():
        if ".experts." in key:
            module = key.removesuffix(".weight")
            names.add(module.rsplit(".", 1)[1])
            a, b = torch.randn(rank, w.shape[1]) / 8, torch.randn(w.shape[0], rank) / 8
            made[f"base_model.model.{module}.lora_A.weight"], made[f"base_model.model.{module}.lora_B.weight"] = a, b
            sums[key] = w + 7 / rank * b @ a
    adapter.mkdir()
    shutil.copytree(model, work / f"{name}-sums")
    save_file(sums, work / f"{name}-sums" / "model.safetensors", {"format": "pt"})
    save_file(made, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(model), "r": rank, "lora_alpha": 7,
         "lora_dropout": 0.0, "bias": "none", "inference_mode": True, "target_modules": sorted(names)}))
    want = logits(load(work / f"{name}-sums"))
    (work / "ids.json").write_text(json.dumps(IDS[0]))
    pesc("logits", model, "--lora", adapter, "--ids", work / "ids.json", "-o", work / "out.npy", "-q")
    near(f"LoRA on experts of {name}: pesc and transformers", want, np.load(work / "out.npy"), 1e-5)
    if not name.startswith("qwen2"):
        near(f"LoRA on experts of {name}: peft", want, logits(peft.PeftModel.from_pretrained(load(model), adapter)), 1e-5)
    pesc("merge", model, "--lora", adapter, "-o", work / f"{name}-experts-merged")
    near(f"LoRA on experts of {name}: merged", want, pesc_logits(work / f"{name}-experts-merged", work), 1e-5)


def export_lora(work):
    dense, adapter = lora("qwen2", work, torch.float32, rank_pattern={"q_proj": 2})
    pesc("export", dense, "--lora", adapter, "--to", "peft", "-o", work / "again")
    want, got = (logits(peft.PeftModel.from_pretrained(load(dense), a))
                 for a in (adapter, work / "again"))
    near("export peft: opens in peft", want, got, 0)


def export_gguf(name, work):
    source = ROOT / "tests/golden/gguf" / f"{name}.gguf"
    out, ids = work / name, [[(1 + i * 7) % 67 for i in range(40)]]
    pesc("export", source, "--to", "hf", "-o", out, "--dtype", "f32")
    near(f"export {name}: transformers computes what pesc does of the file",
         pesc_logits(source, work, ids), logits(load(out), ids), 1e-5)


def main():
    with tempfile.TemporaryDirectory() as d:
        work = pathlib.Path(d)
        for name in PARENTS:
            upcycle(name, work)
        for name in ("llama", "yi", "qwen2"):
            camelidae(name, work)
        merge("llama", work, torch.float32, "llama")
        merge("qwen2-window", work, torch.float32, "qwen2, rsLoRA", use_rslora=True)
        merge("llama", work, torch.bfloat16, "llama in bf16", alpha_pattern={"up_proj": 3})
        for name in PARENTS:
            expert_lora(name, work)
        export_lora(work)
        for name in ("llama3-f32", "llama-square-q8_0", "qwen3_moe-f16"):
            export_gguf(name, work)
    print(f"{counts[True]} passed, {counts[False]} failed")
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
