#!/usr/bin/env python3
"""Models with adapters (PESC) as `pesc export --to hf` writes them, opened by transformers with the modelling file that
is written along: logits equal those of the golden files, or pesc's own, and generating with a cache equals without."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.pop(0)  # tokenizers.py in this folder hides the library of that name
import numpy as np
import torch
import transformers

PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))
FOLDERS = ["camelidae", "camelidae-bin", "camelidae-choices", "sparsetral", "qwen2idae"]
CRAFTED = ["qwen2", "qwen3", "mistral", "llama3"]
LIMIT = 1e-4
failed = 0


def pesc(*args):
    subprocess.run([PESC, *map(str, args), "-q"], check=True, capture_output=True)


def crafted(name, temp):
    """A dense golden model with adapters whose `up` is random instead of 0."""
    from safetensors.torch import load_file, save_file
    folder = temp / f"{name}-crafted"
    pesc("craft", ROOT / "tests/golden" / name, "-o", folder, "--experts", 4, "--adapter-dim", 8)
    weights = load_file(folder / "model.safetensors")
    g = torch.Generator().manual_seed(1)
    for key, w in weights.items():
        if "adapter_up" in key:
            w.copy_(torch.randn(w.shape, generator=g) * 0.3)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "ids.json").write_text((ROOT / "tests/golden" / name / "ids.json").read_text())
    pesc("logits", folder, "--ids", folder / "ids.json", "-o", folder / "logits.npy")
    return folder


def check(folder, temp):
    global failed
    out = temp / f"{folder.name}-hf"
    pesc("export", folder, "--to", "hf", "-o", out, "--dtype", "f32")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        out, trust_remote_code=True, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    model.eval()
    ids = torch.tensor([json.loads((folder / "ids.json").read_text())])
    want = np.load(folder / "logits.npy").reshape(ids.shape[1], -1)
    with torch.no_grad():
        got = model(ids).logits[0].numpy()
        cached = model.generate(ids[:, :9], max_new_tokens=8, do_sample=False, use_cache=True)
        plain = model.generate(ids[:, :9], max_new_tokens=8, do_sample=False, use_cache=False)
    worst = float(np.abs(got - want).max() / np.abs(want).max())
    whole = not info["missing_keys"] and not info["unexpected_keys"]
    ok = worst <= LIMIT and whole and torch.equal(cached, plain)
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {folder.name:20} {type(model).__name__:24} logits differ by {worst:.1e}, "
          f"{'all' if whole else 'not all'} tensors used, cache {'equal' if torch.equal(cached, plain) else 'differs'}",
          flush=True)


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as name:
        temp = pathlib.Path(name)
        os.environ["HF_MODULES_CACHE"] = str(temp / "modules")
        for folder in [ROOT / "tests/golden" / f for f in FOLDERS] + [crafted(n, temp) for n in CRAFTED]:
            check(folder, temp)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
