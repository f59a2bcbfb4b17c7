#!/usr/bin/env python3
"""LoRA on the experts of a mixture as `pesc export --to peft` writes it, opened by PEFT over the model in transformers:
the logits are those of the run. Families whose experts PEFT finds in one parameter have target_parameters, the others a key
for each expert, which PEFT turns into that."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.pop(0)  # tokenizers.py in this folder hides the library of that name
import numpy as np
import peft
import torch
import transformers

PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))
# Beside LoRA on other linears too; those in the second list have shared experts or plain FFNs, whose gate_proj PEFT takes for that of experts.
BOTH = ["granitemoe", "granitemoehybrid", "gpt_oss", "qwen3_5_moe", "qwen2_moe", "lfm2_moe", "mixtral", "qwen3_moe", "olmoe", "minimax_m2",
        "flex_olmo"]
FOLDERS = ["qwen3_next", "deepseek_v2", "deepseek_v3", "afmoe", "dots1", "glm4_moe", "glm4_moe_lite", "ernie4_5_moe", "hunyuan_v1_moe",
           "mellum", "solar_open"]
LIMIT = 2e-4
failed = 0


def pesc(*args):
    subprocess.run([PESC, *map(str, args), "-q"], check=True, capture_output=True)


def compare(folder, targets, temp):
    global failed
    ids = json.loads((folder / "ids.json").read_text())
    ids = ids[0] if isinstance(ids[0], list) else ids
    (temp / "ids.json").write_text(json.dumps(ids))
    (temp / "data.jsonl").write_text("".join(json.dumps({"input_ids": ids[i:i + 9], "labels": ids[i:i + 9]}) + "\n" for i in range(4)))
    pesc("train", folder, "--data", temp / "data.jsonl", "--method", "lora", "--lora-targets", targets, "--lora-r", 2, "--lora-alpha", 6,
         "--steps", 3, "--lr", "2e-2", "--base-dtype", "f32", "--compute-dtype", "f32", "-o", temp / "run", "--overwrite")
    pesc("export", temp / "run", "--to", "peft", "-o", temp / "peft", "--overwrite")
    pesc("logits", temp / "run", "--ids", temp / "ids.json", "-o", temp / "run.npy")
    pesc("logits", folder, "--ids", temp / "ids.json", "-o", temp / "base.npy")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, temp / "peft").eval()
    with torch.no_grad():
        got = model(input_ids=torch.tensor([ids])).logits[0].float().numpy()
    want, base = np.load(temp / "run.npy"), np.load(temp / "base.npy")
    off, moved = float(np.abs(got - want).max()), float(np.abs(base - want).max())
    failed += not off <= LIMIT < 0.1 < moved
    print(f"{'ok  ' if off <= LIMIT < 0.1 < moved else 'FAIL'} {folder.name:20} {targets:12} {off:.1e}, without it {moved:.1e}", flush=True)


def main():
    transformers.utils.logging.set_verbosity_error()
    for name in sys.argv[1:] or BOTH + FOLDERS:
        for targets in ("experts", "all,experts") if name in BOTH else ("experts",):
            with tempfile.TemporaryDirectory() as temp:
                compare(ROOT / "tests/golden" / name, targets, pathlib.Path(temp))
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
