#!/usr/bin/env python3
"""Models of every family as `pesc export --to hf` writes them, opened by transformers: all tensors are used, and logits equal those of the
golden files."""
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
NO_CLASS = ["bailing_moe_v2", "qwen", "deepseek"]
LIMIT = 1e-5


def check(folder, out):
    """What is wrong, or None."""
    done = subprocess.run([PESC, "export", folder, "--to", "hf", "-o", out, "--dtype", "f32", "-q"], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager",
                                                                    output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        return f"missing {info['missing_keys']}, unexpected {info['unexpected_keys']}"
    ids = torch.tensor([json.loads((folder / "ids.json").read_text())])
    want = np.load(folder / "logits.npy")
    with torch.no_grad():
        got = model(ids).logits[0].numpy()
    worst = float(np.abs(got - want).max() / np.abs(want).max())
    return None if worst <= LIMIT else f"logits differ by {worst:.1e}"


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    passed = failed = 0
    for config in sorted((ROOT / "tests/golden").glob("*/config.json")):
        folder = config.parent
        if folder.name in NO_CLASS or "auto_map" in config.read_text() or not (folder / "model.safetensors").exists():
            continue
        with tempfile.TemporaryDirectory() as name:
            wrong = check(folder, pathlib.Path(name) / "out")
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong:
            print(f"{folder.name}: {wrong}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
