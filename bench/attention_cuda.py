"""PyTorch's attention at the shapes of attention_cuda, counted the same way."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SHAPES = [(4, 2048, 32, 32, 128), (1, 8192, 32, 32, 128), (4, 2048, 56, 8, 128),
          (16, 512, 32, 32, 128), (8, 2048, 9, 3, 64)]
BACKENDS = [("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)]


def median_ms(work):
    times = []
    for i in range(15):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(8):
            work()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 8)
    return sorted(times[3:])[6]


for batch, length, heads, kv, dim in SHAPES:
    x = [torch.randn(batch, length, n, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
         .requires_grad_() for n in (heads, kv, kv)]
    flops = 2.0 * batch * length * length * dim * heads
    for name, backend in BACKENDS:
        try:
            with sdpa_kernel(backend):
                attend = lambda: scaled_dot_product_attention(*x, is_causal=True, enable_gqa=heads != kv)
                with torch.no_grad():
                    fwd = median_ms(attend)
                out = attend()
                grad = torch.randn_like(out)
                bwd = median_ms(lambda: torch.autograd.grad(out, x, grad, retain_graph=True))
            print(f"{name:6} {batch:2} x {length:5}  {heads:2}/{kv:<2} {dim:3}  fwd {fwd:8.3f} ms "
                  f"{flops / fwd * 1e-9:6.1f} TF/s   bwd {bwd:8.3f} ms {2.5 * flops / bwd * 1e-9:6.1f} TF/s",
                  flush=True)
        except RuntimeError as error:
            print(f"{name:6} {batch:2} x {length:5}  {heads:2}/{kv:<2} {dim:3}  {str(error).splitlines()[0]}", flush=True)
