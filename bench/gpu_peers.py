"""The work of `make bench-cuda` in PyTorch, as fast as a careful user makes it: the figures to stand beside.

Products, attention, and training steps of a Llama shape with random weights: NF4 base unpacked for every
product, LoRA on seven linears, adapters over sorted tokens, fused AdamW with bf16 weights and moments; in some
rows the gradient through the base in fp8 (torch._scaled_mm).
  gpu_peers.py [products] [attention] [steps]     all three when none is named
"""
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

GPU = torch.device("cuda")
BF16 = torch.bfloat16
CODES = torch.tensor(
    [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803, 0.1609302,
     0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0])


def seconds(work, times):
    """Median of five series of `times` calls."""
    work()
    series = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        series.append((time.perf_counter() - begin) / times)
    return sorted(series)[2]


def products():
    for t, i, o in [(8192, 4096, 4096), (8192, 4096, 11008), (8192, 11008, 4096), (2048, 4096, 32000)]:
        x = torch.randn(t, i, device=GPU, dtype=BF16)
        w = torch.randn(o, i, device=GPU, dtype=BF16)
        s = seconds(lambda: F.linear(x, w), 20)
        print(f"NT T {t} I {i} O {o}: {s * 1e6:.1f} us, {2 * t * i * o / s / 1e12:.1f} TFLOP/s")


def attention():
    flops = 4 * 4 * 32 * 2048 * 2048 * 128 / 2
    shape = (4, 32, 2048, 128)
    for name, backend in [("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)]:
        q, k, v = (torch.randn(shape, device=GPU, dtype=BF16, requires_grad=True) for _ in range(3))
        dy = torch.randn(shape, device=GPU, dtype=BF16)
        with sdpa_kernel(backend):
            forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 10)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            backward = seconds(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True), 10)
        print(f"attention 4 x 2048, 32 heads of 128, {name}: forward {flops / forward / 1e12:.0f}, "
              f"backward {2.5 * flops / backward / 1e12:.0f} TFLOP/s")


# ---- a training step ----


@torch.compile
def unpack(codes, scales, table):
    pairs = torch.stack((table[(codes >> 4).long()], table[(codes & 15).long()]), -1)
    return (pairs.view(-1, 64) * scales[:, None]).to(BF16)


LARGEST = 448  # of e4m3


@torch.compile
def unpack_fp8(codes, scales, table, shape):
    """W^T in e4m3, and the scale of every column of W."""
    scale = scales.max() / LARGEST
    pairs = torch.stack((table[(codes >> 4).long()], table[(codes & 15).long()]), -1)
    w = (pairs.view(-1, 64) * (scales / scale)[:, None]).view(shape)
    return w.to(torch.float8_e4m3fn).T.contiguous(), scale.expand(1, shape[1]).contiguous()


@torch.compile
def round_rows(dy):
    scale = dy.abs().amax(-1, keepdim=True).float().clamp(min=1e-30) / LARGEST
    return (dy / scale).to(torch.float8_e4m3fn), scale


def times_fp8(dy, codes, scales, table, shape):
    """dy W with both rounded to e4m3: dy by row, W as a whole."""
    w, by_column = unpack_fp8(codes, scales, table, shape)
    rows, by_row = round_rows(dy)
    return torch._scaled_mm(rows, w.T, by_row, by_column, out_dtype=BF16, use_fast_accum=True)


class Frozen(torch.autograd.Function):
    """x W^T with W in NF4: nothing of W is kept but its codes. fp8: dX is computed in e4m3."""

    @staticmethod
    def forward(ctx, x, codes, scales, table, shape, fp8):
        ctx.w, ctx.fp8 = (codes, scales, table, shape), fp8
        return x @ unpack(codes, scales, table).view(shape).T

    @staticmethod
    def backward(ctx, dy):
        codes, scales, table, shape = ctx.w
        dx = times_fp8(dy, *ctx.w) if ctx.fp8 else dy @ unpack(codes, scales, table).view(shape)
        return dx, None, None, None, None, None


class Linear(torch.nn.Module):
    def __init__(self, inputs, outputs, rank, table, fp8):
        super().__init__()
        self.shape = outputs, inputs
        self.table, self.fp8 = table, fp8
        n = inputs * outputs
        self.codes = torch.randint(0, 256, (n // 2,), dtype=torch.uint8, device=GPU)
        self.scales = torch.full((n // 64,), 0.04, device=GPU)
        self.a = torch.nn.Parameter(torch.randn(rank, inputs, device=GPU, dtype=BF16) / math.sqrt(inputs))
        self.b = torch.nn.Parameter(torch.zeros(outputs, rank, device=GPU, dtype=BF16))

    def forward(self, x):
        base = Frozen.apply(x, self.codes, self.scales, self.table, self.shape, self.fp8)
        return base + 0.25 * ((x @ self.a.T) @ self.b.T)


class Experts(torch.nn.Module):
    def __init__(self, width, count, inner):
        super().__init__()
        self.count = count
        bound = 1 / math.sqrt(width)
        uniform = lambda *shape: torch.nn.Parameter(torch.empty(shape, device=GPU, dtype=BF16).uniform_(-bound, bound))
        self.router, self.down = uniform(count, width), uniform(count, width, inner)
        self.up = torch.nn.Parameter(torch.zeros(count, inner, width, device=GPU, dtype=BF16))

    def forward(self, f, h):
        logits = h @ self.router.T
        gates, chosen = logits.topk(2, -1)
        order = chosen.flatten().argsort(stable=True)
        ends = torch.bincount(chosen.flatten(), minlength=self.count).cumsum(0).to(torch.int32)
        rows = order // 2
        out = torch._grouped_mm(F.gelu(torch._grouped_mm(f[rows], self.down, offs=ends)), self.up, offs=ends)
        weight = gates.softmax(-1).flatten()[order, None]
        return f.index_add(0, rows, (out * weight).to(BF16)), logits


class Layer(torch.nn.Module):
    def __init__(self, s, table):
        super().__init__()
        self.s = s
        make = lambda i, o: Linear(i, o, 64, table, s.fp8)
        self.q, self.k, self.v, self.o = (make(s.width, s.width) for _ in range(4))
        self.gate, self.up, self.down = make(s.width, s.ffn), make(s.width, s.ffn), make(s.ffn, s.width)
        self.experts = Experts(s.width, 8, 512) if s.experts else None
        self.one = torch.ones(s.width, device=GPU)

    def norm(self, x):
        return F.rms_norm(x.float(), (self.s.width,), self.one, 1e-5).to(BF16)

    def turn(self, x, cos, sin):
        x = x.view(self.s.seqs, -1, self.s.heads, 128).transpose(1, 2)
        left, right = x.chunk(2, -1)
        return (x * cos + torch.cat((-right, left), -1) * sin).to(BF16)

    def forward(self, x, cos, sin):
        h = self.norm(x)
        q, k = self.turn(self.q(h), cos, sin), self.turn(self.k(h), cos, sin)
        v = self.v(h).view(self.s.seqs, -1, self.s.heads, 128).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        h = self.norm(x)
        y = self.down(F.silu(self.gate(h)) * self.up(h))
        if not self.experts:
            return x + y, x.new_zeros(())
        y, logits = self.experts(y, h)
        share = logits.float().softmax(-1).mean(0)
        return x + y, 8 * (share * share.detach()).sum()


class Shape:
    width, ffn, heads, layers, vocabulary, seqs, tokens = 4096, 11008, 32, 32, 32000, 4, 2048


def step_of(name, experts, keep, compiled, fp8, steps=4):
    s = Shape()
    s.experts, s.fp8 = experts, fp8
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    table = CODES.to(GPU)
    layers = [Layer(s, table) for _ in range(s.layers)]
    trained = [p for layer in layers for p in layer.parameters()]
    run = [torch.compile(layer) if compiled else layer for layer in layers]
    embed = torch.randn(s.vocabulary, s.width, device=GPU, dtype=BF16) * 0.02
    head = torch.randn(s.vocabulary, s.width, device=GPU, dtype=BF16) * 0.02
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0, fused=True)
    angle = torch.outer(torch.arange(s.tokens, device=GPU), 10000 ** (-torch.arange(0, 128, 2, device=GPU) / 128))
    cos, sin = (torch.cat((f(angle), f(angle)), -1).to(BF16) for f in (torch.cos, torch.sin))
    took = []
    for _ in range(steps):
        ids = torch.randint(0, s.vocabulary, (s.seqs * s.tokens,), device=GPU)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        x, aux = embed[ids].requires_grad_(), 0
        for layer in run:
            x, more = layer(x, cos, sin) if keep else checkpoint(layer, x, cos, sin, use_reentrant=False)
            aux = aux + more
        logits = F.rms_norm(x.float(), (s.width,), layers[0].one, 1e-5).to(BF16) @ head.T
        (F.cross_entropy(logits.float(), ids) + 0.01 * aux).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - begin)
    best = sorted(took[1:])[len(took[1:]) // 2]
    print(f"{name}: {s.seqs * s.tokens / best:.0f} tokens/s, {best * 1e3:.1f} ms a step, "
          f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB", flush=True)


def steps():
    for row in [("7B with adapters, kept", True, True, False, False), ("7B with adapters, kept, compiled", True, True, True, False),
                ("7B with adapters, kept, compiled, dX in fp8", True, True, True, True),
                ("7B with adapters, computed again", True, False, False, False),
                ("7B with adapters, computed again, compiled, dX in fp8", True, False, True, True),
                ("7B dense, kept", False, True, False, False),
                ("7B dense, kept, compiled, dX in fp8", False, True, True, True)]:
        try:
            step_of(*row)
        except torch.cuda.OutOfMemoryError:
            print(f"{row[0]}: out of memory")


if __name__ == "__main__":
    for part in sys.argv[1:] or ["products", "attention", "steps"]:
        {"products": products, "attention": attention, "steps": steps}[part]()
