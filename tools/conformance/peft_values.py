#!/usr/bin/env python3
"""Every value of PEFT's enumerations: an adapter is applied as PEFT applies it, or refused by name.

- Each value of init_lora_weights that this PEFT lists (and those that its code accepts besides), with rslora and with patterns
  of rank and alpha: the adapter is made, changed and loaded by PEFT, and pesc's logits are PEFT's, or pesc refuses it. PEFT changes the
  base for some values; those must be refused.
- Each field of LoraConfig is on pesc's list, and each peft_type but LORA is refused.
Run in a Python with torch, transformers, peft; $PESC is the command. Ends with `N passed, M failed`.
"""
import dataclasses
import json
import pathlib
import re
import sys
import tempfile
import typing

sys.path[0] = str(pathlib.Path(__file__).with_name("support"))

import numpy as np
import peft
import torch
import transformers as hf
import cases
from cases import ROOT, Refused, pesc

hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
IDS = [(1 + i * 37) % 96 for i in range(40)]
CODE_ACCEPTS = [True, False, "lora_ga", "pissa_niter_4", "OLoRA", "Gaussian"]
PATTERNS = [{}, {"use_rslora": True}, {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}}]


def listed_values():
    """The texts in the annotation of init_lora_weights."""
    hint = typing.get_type_hints(peft.LoraConfig)["init_lora_weights"]
    texts = [v for part in typing.get_args(hint) for v in typing.get_args(part)]
    return [v for v in texts if "[" not in v] + [v for v in CODE_ACCEPTS if v not in texts]


def base_of(folder):
    return hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def saved_by_peft(work, value, pattern):
    """The logits of an adapter that PEFT made, changed and loaded again; None where this PEFT needs more for the value: data,
    or a package. Then only its file is made."""
    config = dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", **pattern)
    try:
        model, made = peft.get_peft_model(base_of(work / "base"), peft.LoraConfig(init_lora_weights=value, **config)), True
    except Exception:
        model, made = peft.get_peft_model(base_of(work / "base"), peft.LoraConfig(**config)), False
    for name, p in model.named_parameters():
        if "lora_" in name:
            p.data += 0.1 * torch.randn_like(p)
    model.save_pretrained(work / "adapter")
    if not made:
        file = work / "adapter/adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "init_lora_weights": value}))
        return None
    with torch.no_grad():
        return peft.PeftModel.from_pretrained(base_of(work / "base"), work / "adapter").eval()(torch.tensor([IDS])).logits[0].numpy()


def check_value(work, value, pattern):
    case = f"init_lora_weights {value!r} {pattern or ''}"
    want = saved_by_peft(work, value, pattern)
    try:
        pesc("logits", work / "base", "--lora", work / "adapter", "--ids", work / "ids.json", "-o", work / "out.npy", "-q", "--threads", 1)
    except Refused as e:
        cases.check(case, "refused by name", "init_lora_weights" in str(e) and str(value) in str(e), e)
        return
    got = np.load(work / "out.npy")
    bad = None if want is None else float(np.abs(got - want).max() / np.abs(want).max())
    cases.check(case, "equal", bad is not None and bad <= 1e-5, f"differs by {bad}")


def check_lists(work):
    rows = set(re.findall(r'\{ "([a-z_]+)", FIELD_', (ROOT / "src/format/peftfields.c").read_text()))
    for field in dataclasses.fields(peft.LoraConfig):
        cases.check(field.name, "is on the list", field.name in rows)
    file = work / "adapter/adapter_config.json"
    config = json.loads(file.read_text())
    for kind in peft.PeftType:
        if kind.value == "LORA":
            continue
        file.write_text(json.dumps({**config, "peft_type": kind.value}))
        try:
            pesc("logits", work / "base", "--lora", work / "adapter", "--ids", work / "ids.json", "-o", work / "out.npy", "-q")
            cases.check(kind.value, "is refused", False)
        except Refused as e:
            cases.check(kind.value, "is refused", f"peft_type: found {kind.value}" in str(e), e)


def main():
    with tempfile.TemporaryDirectory(prefix="pesc-peft-") as folder:
        work = pathlib.Path(folder)
        torch.manual_seed(1)
        hf.LlamaForCausalLM(hf.LlamaConfig(
            vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, initializer_range=0.15, bos_token_id=1, eos_token_id=2)).save_pretrained(work / "base")
        (work / "ids.json").write_text(json.dumps(IDS))
        for value in listed_values():
            for pattern in PATTERNS:
                check_value(work, value, pattern)
        check_lists(work)
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
