#!/usr/bin/env python3
"""Makes tests/golden/formats: small files written by the programs that own the formats.

    tests/golden/make/golden_formats.py [DIR]

sample.safetensors      by safetensors: every kind of entry, an empty tensor and a scalar
sample.bin              by torch.save: shared storages, a view, a parameter, _metadata
nf4.safetensors         by bitsandbytes: x.weight with double quantisation, y.weight without
nf4-values.safetensors  what bitsandbytes gives back for the two
"""

import pathlib
import sys

import torch
from bitsandbytes import functional
from safetensors.torch import save_file


def sample():
    return {
        "w": torch.tensor([[1.5, -2.25, 3.0], [0.0, 1e-3, 65504.0]]),
        "h": torch.tensor([1.5, -0.333251953125], dtype=torch.float16),
        "b.weight": torch.tensor([[1.0], [3.140625]], dtype=torch.bfloat16),
        "n": torch.tensor([-7, 9]),
        "e": torch.zeros((0, 4)),
        "s": torch.tensor(2.5),
    }


def state_dict():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    state = Module().state_dict()
    shared = torch.arange(6, dtype=torch.bfloat16)
    state["tail"] = shared[2:].view(2, 2)
    state["head"] = shared[:2]
    state["tied"] = shared
    state["param"] = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float16))
    state["long"] = torch.tensor([1, -2, 3])
    return state


def nf4():
    torch.manual_seed(3)
    # rows of whole blocks: bitsandbytes' CPU kernel takes the wrong scale for narrower ones
    weight = torch.randn(3, 64) * 0.05
    weight[1, :32] = 0
    files, values = {}, {}
    for name, double in (("x.weight", True), ("y.weight", False)):
        codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4",
                                                compress_statistics=double)
        files[name] = codes
        files |= {f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()}
        values[name] = functional.dequantize_4bit(codes, state)
    return files, values


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/formats")
    out.mkdir(parents=True, exist_ok=True)
    pt = {"format": "pt"}
    save_file(sample(), out / "sample.safetensors", metadata=pt)
    torch.save(state_dict(), out / "sample.bin")
    files, values = nf4()
    save_file(files, out / "nf4.safetensors", metadata=pt)
    save_file(values, out / "nf4-values.safetensors", metadata=pt)


if __name__ == "__main__":
    main()
