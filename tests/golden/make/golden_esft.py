#!/usr/bin/env python3
"""Makes tests/golden/esft: twelve steps of ESFT on the tiny models of tests/golden.

The model is transformers' own, in float64 throughout: its code asks for float32 by name in norms and
routers, so that name means float64 here, and a dispatch hook sees to it that no number is anything
else. Everything is frozen but what expert_cfg.json names. transformers holds the experts of a layer
in one tensor, so the gradient of the others in it is masked out. Each folder holds expert_cfg.json,
pre-tokenised data, the options of the run and the trajectory: loss, ce, aux and gradient norm of
each step. Run with a Python that has torch and transformers, where tests/golden is there already:

    python tests/golden/make/golden_esft.py tests/golden
"""
import json
import math
import pathlib
import shutil
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import transformers as hf

STEPS, BATCH, LR, VOCAB = 12, 4, 1e-3, 67
SHARED = (".shared_experts.", ".shared_expert.")

# name: model, experts of each sparse layer, flags, weight of the balance loss, seed of the data
RUNS = {
    "mixtral": ("mixtral", {0: [], 1: [4, 1, 2], 2: [0, 3]}, (False, False), 0.0, 1),
    "olmoe": ("olmoe", {0: [6, 0, 5], 1: [3]}, (False, False), 0.0, 2),
    "qwen2_moe": ("qwen2_moe", {0: [2, 1], 2: [5, 0, 3, 4]}, (False, False), 0.0, 3),
    "qwen3_moe": ("qwen3_moe", {0: [], 1: [], 2: [1, 5]}, (False, False), 0.0, 4),
    "deepseek_v2": ("deepseek_v2", {1: [5, 2], 2: [0, 1, 2, 3, 4, 5]}, (False, False), 0.0, 5),
    "deepseek_v2-aux": ("deepseek_v2", {1: [3, 0], 2: [4]}, (False, False), 0.05, 6),
    "qwen2_moe-shared": ("qwen2_moe", {0: [4], 2: []}, (True, False), 0.0, 7),
    "deepseek_v2-all": ("deepseek_v2", {1: [1], 2: [2, 5]}, (True, True), 0.02, 31),
}


class OnlyDouble(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_flatten(out)[0]:
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                assert t.dtype == torch.double, func
        return out


def load(path):
    model = hf.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager",
                                                    experts_implementation="eager")
    return model.double().eval().requires_grad_(False)


def only_double():
    """From here on, what the modelling code calls float32 is float64."""
    torch.float32 = torch.float = torch.double
    torch.Tensor.float = torch.Tensor.double


def trainable(model, experts, shared, others):
    """Parameters that train, each with what its gradient is multiplied by."""
    out = {}
    for name, p in model.named_parameters():
        mask = None
        if ".mlp.experts." in name:
            ids = experts[int(name.split(".")[2])]
            mask = torch.zeros(p.shape[0], 1, 1, dtype=torch.double)
            mask[ids] = 1
            wanted = len(ids) > 0
        else:
            wanted = shared if any(s in name for s in SHARED) else others
        if wanted:
            out[name] = (p.requires_grad_(), 1.0 if mask is None else mask)
    return out


class Router:
    """The logits of every router, from what its layer read: for the balance loss."""

    def __init__(self, model):
        c = model.config
        self.k, self.seen = c.num_experts_per_tok, {}
        for i, layer in enumerate(model.model.layers):
            if hasattr(layer.mlp, "experts"):
                layer.mlp.register_forward_pre_hook(self.hook(i))

    def hook(self, i):
        def run(module, args):
            x = args[0].reshape(-1, args[0].shape[-1])
            self.seen.setdefault(i, []).append(x @ module.gate.weight.T)
        return run

    def aux(self):
        total = 0.0
        for z in self.seen.values():
            z = torch.cat(z)
            e = z.shape[1]
            chosen = torch.nn.functional.one_hot(z.topk(self.k, -1).indices, e).sum((0, 1)).double()
            total = total + e * (chosen / (self.k * len(z)) * z.softmax(-1).mean(0)).sum()
        total = total / len(self.seen)
        self.seen = {}
        return total


def samples(g):
    out = []
    for _ in range(STEPS * BATCH):
        n = int(torch.randint(6, 20, (1,), generator=g))
        ids = torch.randint(3, VOCAB, (n,), generator=g).tolist()
        masked = int(torch.randint(1, n - 2, (1,), generator=g))
        out.append({"input_ids": ids, "labels": [-100] * masked + ids[masked:]})
    return out


def batch_ce(model, batch):
    total, count = 0.0, 0
    for sample in batch:
        logits = model(torch.tensor([sample["input_ids"]]), use_cache=False).logits[0, :-1]
        target = torch.tensor(sample["labels"][1:])
        keep = target != -100
        total = total + torch.nn.functional.cross_entropy(logits[keep], target[keep], reduction="sum")
        count += int(keep.sum())
    return total / count


def run(out, model, model_name, experts, flags, aux_coef, seed):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    train = trainable(model, experts, *flags)
    router = Router(model)
    data = samples(torch.Generator().manual_seed(seed))
    state, steps = {n: [torch.zeros_like(p), torch.zeros_like(p)] for n, (p, _) in train.items()}, []
    for t in range(1, STEPS + 1):
        ce = batch_ce(model, data[(t - 1) * BATCH:t * BATCH])
        aux = router.aux()
        loss = ce + aux_coef * aux
        grads = torch.autograd.grad(loss, [p for p, _ in train.values()])
        grads = {n: g * m for (n, (_, m)), g in zip(train.items(), grads)}
        norm = math.sqrt(sum(float(g.pow(2).sum()) for g in grads.values()))
        steps.append({**{k: float(v.detach()) for k, v in (("loss", loss), ("ce", ce), ("aux", aux))},
                      "grad_norm": norm})
        with torch.no_grad():
            for n, (p, _) in train.items():
                m, v = state[n]
                m.mul_(0.9).add_(grads[n], alpha=0.1)
                v.mul_(0.999).addcmul_(grads[n], grads[n], value=0.001)
                p -= LR * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.999 ** t)).sqrt() + 1e-8)
    (out / "data.jsonl").write_text("".join(json.dumps(s) + "\n" for s in data))
    (out / "expert_cfg.json").write_text(json.dumps({
        "experts": {str(l): ids for l, ids in experts.items()},
        "shared_experts": flags[0], "non_expert_modules": flags[1]}))
    (out / "golden.json").write_text(json.dumps({
        "model": model_name,
        "options": {"method": "esft", "steps": STEPS, "batch": BATCH, "lr": LR, "warmup_steps": 0,
                    "seed": 7, "loss": "token", "aux_coef": aux_coef},
        "steps": steps}, indent=1) + "\n")
    print(f"{out.name:20s} loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}", flush=True)


def main():
    root = pathlib.Path(sys.argv[1])
    models = [load(root / r[0]) for r in RUNS.values()]
    only_double()
    with OnlyDouble():
        for model, (name, r) in zip(models, RUNS.items()):
            run(root / "esft" / name, model, *r)


if __name__ == "__main__":
    main()
