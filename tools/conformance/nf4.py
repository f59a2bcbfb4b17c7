#!/usr/bin/env python3
"""Compares src/tensor/nf4.c with bitsandbytes on the CPU, bit for bit.

Run in a Python that has torch and bitsandbytes; needs a C compiler. Codes, scales and dequantised
values must be equal, double quantisation too, given the offset: bitsandbytes takes the offset as
torch's f32 mean, whose order of summation changes with the machine, so pesc's correctly rounded mean
may be a few units in the last place away; the codes are then compared at pesc's offset.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compiling each shape would take minutes

import numpy as np
import torch
import bitsandbytes.functional as bnb

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(folder):
    lib = os.path.join(folder, "nf4.so")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=c17", "-O2", "-ffp-contract=off", "-shared", "-fPIC",
         f"-I{ROOT}/src", str(ROOT / "src/tensor/nf4.c"), "-o", lib, "-lm"], check=True)
    return ctypes.CDLL(lib)


def pointer(a):
    return a.ctypes.data_as(ctypes.c_void_p)


def pesc(lib, x):
    """Codes, scales, values, then the double-quantised scales with their parts."""
    n = x.size
    blocks = -(-n // 64)
    codes_bytes = (n + 7) // 8 * 4
    span = np.full(codes_bytes + 4 * blocks, 0xAA, np.uint8)
    size = ctypes.c_int64(n)
    lib.nf4_quantize(pointer(span), pointer(x), size)
    codes = span[:(n + 1) // 2].copy()
    scales = span[codes_bytes:].view(np.float32).copy()
    values = np.empty(n, np.float32)
    lib.nf4_dequantize(pointer(values), pointer(span), size, ctypes.c_int64(0), size)
    nested = np.empty(blocks, np.uint8)
    nested_absmax = np.empty(-(-blocks // 256), np.float32)
    offset = np.empty(1, np.float32)
    lib.nf4_double_quantize(pointer(span), size, pointer(nested), pointer(nested_absmax),
                            pointer(offset))
    return codes, scales, values, (span[codes_bytes:].view(np.float32), nested, nested_absmax,
                                   offset[0])


def same(a, b):
    """Bitwise, except that any NaN equals any NaN."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.dtype == np.float32:
        return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())
    return bool((a == b).all())


def compare(lib, name, x):
    x = np.ascontiguousarray(x, np.float32)
    codes, scales, values, (scales2, nested, nested_absmax, offset) = pesc(lib, x)
    packed, state = bnb.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="nf4")
    wrong = []
    if not same(codes, packed.numpy().reshape(-1)):
        wrong.append("codes")
    if not same(scales, state.absmax.numpy()):
        wrong.append("scales")
    if not same(values, bnb.dequantize_4bit(packed, state).numpy().reshape(-1)):
        wrong.append("values")
    if np.isfinite(scales).all():
        mean = np.float32(state.absmax.mean().item())
        if abs(float(mean) - float(offset)) > 8 * np.spacing(mean):
            wrong.append("offset")
        q, state2 = bnb.quantize_blockwise(state.absmax - torch.tensor(offset), blocksize=256)
        back = bnb.dequantize_blockwise(q, state2) + torch.tensor(offset)
        if not same(nested, q.numpy()):
            wrong.append("nested codes")
        if not same(nested_absmax, state2.absmax.numpy()):
            wrong.append("nested scales")
        if not same(scales2, back.numpy()):
            wrong.append("double-quantised scales")
    if wrong:
        print(f"FAIL {name} (n {x.size}): {', '.join(wrong)} differ")
    return not wrong


def cases(rng):
    for n in (1, 2, 3, 7, 63, 64, 65, 127, 128, 129, 1000, 16384, 16385, 64 * 300 + 1, 200001):
        for power in (-30, -6, -2, 0, 3, 30):
            yield f"normal 1e{power}", rng.standard_normal(n) * 10.0**power
        yield "zeros", np.zeros(n)
        yield "negative zeros", -np.zeros(n)
        yield "ones", np.ones(n)
        yield "alternating ties of absmax", np.where(np.arange(n) % 2, 1.5, -1.5)
        yield "denormal", rng.integers(-9, 10, n) * 1.4e-45
        yield "near the least normal", rng.standard_normal(n) * 2e-38
        yield "heavy tails", rng.standard_cauchy(n)
        yield "sparse", rng.standard_normal(n) * (rng.random(n) < 0.05)
        yield "bf16", torch.randn(n).bfloat16().float().numpy()
    code = bnb.get_4bit_type("nf4", device="cpu").numpy()
    middle = (code[1:] + code[:-1]) / np.float32(2)
    edges = np.concatenate([middle, np.nextafter(middle, np.float32(2)),
                            np.nextafter(middle, np.float32(-2))])
    for scale in (1.0, 3.0, 0.1, 7e-5):
        yield "thresholds", np.concatenate([np.append(edges[i:i + 63], [1.0] * (64 - len(edges[i:i + 63])))
                                            for i in range(0, len(edges), 63)]).astype(np.float32) * np.float32(scale)
    x = rng.standard_normal(256)
    for i, v in ((3, np.nan), (70, np.inf), (140, -np.inf)):
        x[i] = v
    yield "not finite", x


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        lib = build(folder)
        results = [compare(lib, name, x) for name, x in cases(np.random.default_rng(seed))]
    print(f"nf4: {sum(results)} of {len(results)} tensors equal bitsandbytes bit for bit")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
