#!/usr/bin/env python3
"""What products of the frozen weights in fp8 cost in quality, simulated in PyTorch: pesc computes only gradients in fp8
(base_grad_dtype), and this says why not the forward pass.

    fp8_forward.py MODEL --train FILE --test FILE [--steps 60] [--tokens 1024] [--records 40] [--seeds 1] [--lr 1e-3]

MODEL is a Hugging Face directory (`pesc export --to hf` makes one of a GGUF file), the files hold records with `messages` and a `domain`, as
`studies/run.py smol run` prepares them. Operands of the seven projections of a layer are rounded to e4m3 with a scale for each row of
activations or gradients and for each row of the weights across the sum, which is finer than pesc's one scale for a weight
matrix; products are then computed in bf16. First the loss of the model as it is, then after some steps with LoRA of rank 64 on all
projections: nothing in fp8, gradients (dX) in fp8, the forward pass, both. All start from the same weights and see the same records in the
same order. The loss is the mean over the domains of the cross-entropy of answers in nats a token.
"""
import argparse
import json
import random

import torch
import torch.nn.functional as F
import transformers

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MODES = {"bf16": (False, False), "gradients in fp8": (False, True), "forward in fp8": (True, False), "both in fp8": (True, True)}
RANK, ALPHA, CLIP, WARM_UP = 64, 16, 0.3, 0.1


def rounded(x):
    """Rows of x in e4m3, whose largest number is 448."""
    scale = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
    return ((x.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(x.dtype)


class Frozen(torch.autograd.Function):
    """y = x w^T with operands as the mode says; w is rounded along the dimension that is summed over."""
    @staticmethod
    def forward(ctx, x, layer, mode):
        ctx.layer, ctx.mode = layer, mode
        return F.linear(rounded(x), layer.by_output) if mode[0] else F.linear(x, layer.weight)

    @staticmethod
    def backward(ctx, dy):
        return (rounded(dy) @ ctx.layer.by_input if ctx.mode[1] else dy @ ctx.layer.weight), None, None


class Projection(torch.nn.Module):
    mode = MODES["bf16"]

    def __init__(self, linear):
        super().__init__()
        assert linear.bias is None, "projections with a bias are not simulated"
        self.weight = linear.weight.detach()
        self.by_output = rounded(self.weight)
        self.by_input = rounded(self.weight.T.contiguous()).T.contiguous()
        self.a = torch.nn.Parameter(torch.empty(RANK, self.weight.shape[1]))
        self.b = torch.nn.Parameter(torch.zeros(self.weight.shape[0], RANK))

    def restart(self, generator):
        bound = self.weight.shape[1] ** -0.5
        self.a.data.uniform_(-bound, bound, generator=generator)
        self.b.data.zero_()

    def forward(self, x):
        small = F.linear(F.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))
        return Frozen.apply(x, self, Projection.mode) + ALPHA / RANK * small


def opened(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    model.requires_grad_(False)
    found = [(m, name) for m in model.modules() for name in PROJECTIONS if isinstance(getattr(m, name, None), torch.nn.Linear)]
    for m, name in found:
        setattr(m, name, Projection(getattr(m, name)))
    model.model.embed_tokens.register_forward_hook(lambda _, __, out: out.requires_grad_(torch.is_grad_enabled()))
    return model, [getattr(m, name) for m, name in found]


def encoded(tokenizer, record):
    """Ids, and labels that are -100 before the answer."""
    turns = [{"role": m["role"], "content": m["content"]} for m in record["messages"]]
    before = tokenizer.apply_chat_template(turns[:-1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    head, ids = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (before, whole))
    return ids, [-100] * len(head) + ids[len(head):]


def loss_of(model, pairs, reduction="mean"):
    width = max(len(ids) for ids, _ in pairs)
    ids = torch.tensor([i + [0] * (width - len(i)) for i, _ in pairs])
    labels = torch.tensor([l + [-100] * (width - len(l)) for _, l in pairs])
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    kept = labels[:, 1:] != -100
    return F.cross_entropy(model.lm_head(hidden[kept]).float(), labels[:, 1:][kept], reduction=reduction), int(kept.sum())


@torch.no_grad()
def tested(model, domains):
    """The mean over the domains; a batch has records of about equal length, so that little is padding."""
    means = []
    for pairs in domains.values():
        pairs, total, count = sorted(pairs, key=lambda p: len(p[0])), 0.0, 0
        for i in range(0, len(pairs), 8):
            loss, n = loss_of(model, pairs[i:i + 8], "sum")
            total, count = total + loss.item(), count + n
        means.append(total / count)
    return sum(means) / len(means)


def batches(pairs, tokens, seed):
    order = random.Random(seed).sample(pairs, len(pairs))
    batch = []
    for pair in order:
        if batch and sum(len(ids) for ids, _ in batch) + len(pair[0]) > tokens:
            yield batch
            batch = []
        batch.append(pair)


def tuned(model, layers, pairs, seed, o):
    generator = torch.Generator().manual_seed(seed)
    for layer in layers:
        layer.restart(generator)
    params = [p for layer in layers for p in (layer.a, layer.b)]
    optimizer = torch.optim.AdamW(params, lr=o.lr, weight_decay=0, fused=True)
    chosen = list(batches(pairs, o.tokens, seed))[:o.steps]
    assert len(chosen) == o.steps, f"the records fill {len(chosen)} of {o.steps} steps"
    for step, batch in enumerate(chosen):
        optimizer.param_groups[0]["lr"] = o.lr * min(1, (step + 1) / (WARM_UP * o.steps))
        loss_of(model, batch)[0].backward()
        torch.nn.utils.clip_grad_norm_(params, CLIP)
        optimizer.step()
        optimizer.zero_grad()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    for name in ("--train", "--test"):
        p.add_argument(name, required=True)
    for name, kind, default in (("--steps", int, 60), ("--tokens", int, 1024), ("--records", int, 40), ("--seeds", int, 1),
                                ("--lr", float, 1e-3)):
        p.add_argument(name, type=kind, default=default)
    o = p.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(o.model)
    model, layers = opened(o.model)
    train = [encoded(tokenizer, json.loads(line)) for line in open(o.train)]
    domains = {}
    for line in open(o.test):
        record = json.loads(line)
        domains.setdefault(record["domain"], []).append(encoded(tokenizer, record))
    domains = {name: pairs[:o.records] for name, pairs in domains.items()}
    for layer in layers:
        layer.restart(torch.Generator())
    print("| | loss | against bf16 |\n| --- | --- | --- |")
    for tuning in [None, *range(o.seeds)]:
        for name, mode in MODES.items():
            if tuning is None and mode[1]:
                continue  # gradients change nothing before the first step
            Projection.mode = mode
            if tuning is not None:
                tuned(model, layers, train, tuning, o)
            loss = tested(model, domains)
            base = loss if mode == MODES["bf16"] else base
            what = "not tuned" if tuning is None else f"{o.steps} steps, seed {tuning}"
            print(f"| {what}, {name} | {loss:.4f} | {loss - base:+.4f} |", flush=True)


if __name__ == "__main__":
    main()
