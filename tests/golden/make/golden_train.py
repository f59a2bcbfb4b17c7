#!/usr/bin/env python3
"""Makes tests/golden/train: twelve optimiser steps of every method, in float64 PyTorch.

The model is written out here from the papers' equations and shares no code with pesc: Llama,
PESC's adapters with the balance loss of its equation 10, LoRA, full experts (Mixtral's rule, with shared
ones Qwen2-MoE's), adapters beside full experts, and a mixture of LoRA; the z-loss, a bias that chooses, and
the gradient of routers from all experts, as autograd has it of a sum that is zero. The base of qlora is
what bitsandbytes makes of it. Each folder holds the model, the initial LoRA as a PEFT directory where the method
has one, pre-tokenised data, the options of the run and the trajectory: loss, ce, aux and gradient
norm of each step. Run with a Python that has torch, numpy, safetensors, xxhash, bitsandbytes:

    python tests/golden/make/golden_train.py tests/golden/train [NAME...]
"""
import json
import math
import pathlib
import shutil
import sys

import numpy as np
import torch
import torch.nn.functional as F
import xxhash
from safetensors.numpy import save_file

V, C, FF, L, HEADS, KV, HD = 53, 24, 40, 2, 3, 1, 8
EPS, THETA = 1e-5, 10000.0
STEPS, BATCH, LR, SEED = 12, 4, 3e-3, 7
LINEARS = {"self_attn.q_proj": (HEADS * HD, C), "self_attn.k_proj": (KV * HD, C),
           "self_attn.v_proj": (KV * HD, C), "self_attn.o_proj": (C, HEADS * HD),
           "mlp.gate_proj": (FF, C), "mlp.up_proj": (FF, C), "mlp.down_proj": (C, FF)}


# ---- pesc's counter-based numbers, for what a method initialises itself (Philox 4x32-10)

MASK = (1 << 64) - 1


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def stream(a, b, c):
    golden = 0x9E3779B97F4A7C15
    return mix((mix((mix((a + golden) & MASK) + b + golden) & MASK) + c) & MASK)


def philox(seed, strm, block):
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    x = [block & 0xFFFFFFFF, block >> 32, strm & 0xFFFFFFFF, strm >> 32]
    for _ in range(10):
        p0, p1 = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        x = [(p1 >> 32) ^ x[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ x[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x


def uniform(name, shape, bound):
    """U(-bound, bound) as pesc draws it: stream (2, xxh64(name), 0) of the run's seed."""
    n = int(np.prod(shape))
    s = stream(2, xxhash.xxh64(name.encode()).intdigest(), 0)
    u = np.array([philox(SEED, s, b) for b in range((n + 3) // 4)], dtype=np.uint64).reshape(-1)[:n]
    u = (u >> np.uint64(8)).astype(np.float32) * np.float32(2.0 ** -24)
    return ((u * np.float32(2) - np.float32(1)) * np.float32(bound)).reshape(shape)


# ---- the model

def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rope(x):
    n = x.shape[0]
    inv = THETA ** (-torch.arange(0, HD, 2, dtype=torch.float64) / HD)
    a = torch.arange(n, dtype=torch.float64)[:, None] * inv
    cos, sin = a.cos()[:, None], a.sin()[:, None]
    lo, hi = x[..., :HD // 2], x[..., HD // 2:]
    return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], -1)


class Model:
    def __init__(self, method, p, lora_scale, moe):
        self.method, self.p, self.scale, self.moe = method, p, lora_scale, moe
        self.router_logits, self.chosen = [], []
        self.bias = [0.0] * L  # of each expert, for choosing alone

    def linear(self, name, x):
        y = x @ self.p[name + ".weight"].T
        if name + ".lora_A.weight" in self.p:
            y = y + self.scale * (x @ self.p[name + ".lora_A.weight"].T) @ self.p[name + ".lora_B.weight"].T
        return y

    def route(self, layer, x):
        z = x @ self.p[self.moe["router"].format(layer)].T
        index = (z + self.bias[layer]).argsort(dim=-1, descending=True, stable=True)[:, :self.moe["k"]]
        self.router_logits[layer].append(z)
        self.chosen[layer].append(index)
        value = z.gather(-1, index)
        return value.softmax(-1) if "act" not in self.moe else z.softmax(-1).gather(-1, index), index

    def mix_experts(self, layer, gate, index, expert, like):
        """With `dense` routers learn from all experts, as if each token had chosen all: d/dz of sum_i softmax(z)_i <dy, E_i>, whose
        value is taken away again."""
        y = torch.zeros_like(like)
        dense = self.moe.get("dense_gradient")
        gate = gate.detach() if dense else gate
        for e in range(self.moe["experts"]):
            out = expert(e)
            y = y + ((index == e) * gate).sum(-1, keepdim=True) * out
            if dense:
                p = self.router_logits[layer][-1].softmax(-1)[:, e:e + 1]
                y = y + (p - p.detach()) * out.detach()
        return y

    def glu(self, names, x):
        gate, up, down = (self.p[n + ".weight"].T for n in names)
        return (F.silu(x @ gate) * (x @ up)) @ down

    def inner_experts(self, layer, x):
        """The mixture that adapters are beside: Mixtral's, with a router of its own."""
        b = f"model.layers.{layer}.block_sparse_moe."
        value, index = (x @ self.p[b + "gate.weight"].T).topk(self.moe["beside"]["k"], -1)
        y = torch.zeros_like(x)
        for e in range(self.moe["beside"]["experts"]):
            y = y + ((index == e) * value.softmax(-1)).sum(-1, keepdim=True) * self.glu(
                [f"{b}experts.{e}.{w}" for w in ("w1", "w3", "w2")], x)
        return y

    def ffn(self, layer, x):
        n = f"model.layers.{layer}.mlp."
        p = self.p
        if self.method == "upcycle":
            b = f"model.layers.{layer}.block_sparse_moe.experts."
            gate, index = self.route(layer, x)
            return self.mix_experts(layer, gate, index, lambda e: self.glu([f"{b}{e}.{w}" for w in ("w1", "w3", "w2")], x), x)
        if self.moe and "shared" in self.moe:
            ffn = lambda at: self.glu([n + at + w for w in (".gate_proj", ".up_proj", ".down_proj")], x)
            gate, index = self.route(layer, x)
            routed = self.mix_experts(layer, gate, index, lambda e: ffn(f"experts.{e}"), x)
            return routed + (x @ p[n + "shared_expert_gate.weight"].T).sigmoid() * ffn("shared_expert")
        if self.method == "molora":
            gate, index = self.route(layer, x)

            def lin(which, v):
                name = n + which
                delta = lambda e: self.scale * (v @ p[f"{name}.experts.{e}.lora_A.weight"].T) @ p[f"{name}.experts.{e}.lora_B.weight"].T
                base = v @ p[name + ".weight"].T
                return base + self.mix_experts(layer, gate, index, delta, base)
            return lin("down_proj", F.silu(lin("gate_proj", x)) * lin("up_proj", x))
        f = self.inner_experts(layer, x) if self.moe and "beside" in self.moe else self.linear(n + "down_proj", F.silu(self.linear(n + "gate_proj", x)) * self.linear(n + "up_proj", x))
        if self.method != "pesc" or layer in self.moe.get("dense", []):
            return f
        gate, index = self.route(layer, x)
        ex = n + "moe_adapter.experts.expert_{}.adapter_{}.weight"
        act = getattr(F, self.moe.get("act", "gelu"))
        return f + self.mix_experts(layer, gate, index, lambda e: self.moe["s"] * act(
            f @ p[ex.format(e, "down")].T) @ p[ex.format(e, "up")].T, f)

    def logits(self, ids):
        x = self.p["model.embed_tokens.weight"][torch.tensor(ids)]
        n = len(ids)
        mask = torch.full((n, n), -math.inf, dtype=torch.float64).triu(1)
        for l in range(L):
            b = f"model.layers.{l}."
            h = rms(x, self.p[b + "input_layernorm.weight"])
            q = rope(self.linear(b + "self_attn.q_proj", h).view(n, HEADS, HD))
            k = rope(self.linear(b + "self_attn.k_proj", h).view(n, KV, HD))
            v = self.linear(b + "self_attn.v_proj", h).view(n, KV, HD)
            k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (k, v))
            w = (torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(HD) + mask).softmax(-1)
            o = torch.einsum("hqk,khd->qhd", w, v).reshape(n, HEADS * HD)
            x = x + self.linear(b + "self_attn.o_proj", o)
            x = x + self.ffn(l, rms(x, self.p[b + "post_attention_layernorm.weight"]))
        return rms(x, self.p["model.norm.weight"]) @ self.p["lm_head.weight"].T

    def aux(self):
        """Mean over layers of E * sum_i f_i P_i over all tokens of the batch (equation 10)."""
        total, sparse = 0.0, [l for l in range(L) if self.router_logits[l]]
        for l in sparse:
            z = torch.cat(self.router_logits[l])
            share = self.loads(l) / (self.moe["k"] * len(z))
            total = total + z.shape[1] * (share * z.softmax(-1).mean(0)).sum()
        return total / len(sparse)

    def z_loss(self):
        sparse = [torch.cat(z) for z in self.router_logits if z]
        return sum(z.logsumexp(-1).pow(2).mean() for z in sparse) / len(sparse)

    def loads(self, layer):
        return F.one_hot(torch.cat(self.chosen[layer]), self.moe["experts"]).sum((0, 1)).double()

    def move_bias(self, rate):
        for l in (l for l in range(L) if self.chosen[l]):
            loads = self.loads(l)
            self.bias[l] = self.bias[l] + rate * (loads.mean() - loads).sign()

    def batch_loss(self, batch, kind):
        self.router_logits, self.chosen = [[] for _ in range(L)], [[] for _ in range(L)]
        terms, counts = [], []
        for sample in batch:
            logits = self.logits(sample["input_ids"])[:-1]
            target = torch.tensor(sample["labels"][1:])
            keep = target != -100
            terms.append(F.cross_entropy(logits[keep], target[keep], reduction="sum"))
            counts.append(int(keep.sum()))
        if kind == "token":
            ce = sum(terms) / sum(counts)
        else:
            ce = sum(t / c for t, c in zip(terms, counts)) / len(terms)
        none = torch.zeros((), dtype=torch.float64)
        return ce, self.aux() if self.moe else none, self.z_loss() if self.moe else none


# ---- weights

def dense(g):
    def normal(*shape, std=None):
        std = std or 1.2 / math.sqrt(shape[-1])
        return (torch.randn(shape, generator=g) * std).numpy().astype(np.float32)
    p = {"model.embed_tokens.weight": normal(V, C, std=1.0), "lm_head.weight": normal(V, C, std=0.6),
         "model.norm.weight": 1 + normal(C, std=0.2)}
    for l in range(L):
        b = f"model.layers.{l}."
        for name, shape in LINEARS.items():
            p[b + name + ".weight"] = normal(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            p[b + name + ".weight"] = 1 + normal(C, std=0.2)
    return p, normal


def config(**kw):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": C,
            "intermediate_size": FF, "num_hidden_layers": L, "num_attention_heads": HEADS,
            "num_key_value_heads": KV, "head_dim": HD, "vocab_size": V, "rms_norm_eps": EPS,
            "rope_theta": THETA, "max_position_embeddings": 64, "hidden_act": "silu",
            "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": 1,
            "eos_token_id": 2, **kw}


def samples(g):
    out = []
    for _ in range(STEPS * BATCH):
        n = int(torch.randint(6, 20, (1,), generator=g))
        ids = torch.randint(3, V, (n,), generator=g).tolist()
        masked = int(torch.randint(1, n - 2, (1,), generator=g))
        out.append({"input_ids": ids, "labels": [-100] * masked + ids[masked:]})
    return out


def lora_pairs(normal, names, r):
    out = {}
    for name in names:
        o, i = LINEARS[name.split(".", 3)[3]]
        out[name + ".lora_A.weight"] = normal(r, i)
        out[name + ".lora_B.weight"] = normal(o, r, std=0.05)
    return out


def adamw(params, state, t):
    for n, p in params.items():
        m, v = state.setdefault(n, [torch.zeros_like(p), torch.zeros_like(p)])
        m.mul_(0.9).add_(p.grad, alpha=0.1)
        v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
        with torch.no_grad():
            p -= LR * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.999 ** t)).sqrt() + 1e-8)


def held_in_nf4(w):
    """What bitsandbytes gives back of a weight in NF4 with double quantisation. Blocks are 64 numbers in the order of memory; its CPU kernel
    takes the wrong scale for rows that are narrower, so the weight has rows of one block here."""
    from bitsandbytes import functional
    rows = torch.tensor(w).reshape(-1, 64)
    codes, state = functional.quantize_4bit(rows, blocksize=64, quant_type="nf4", compress_statistics=True)
    return functional.dequantize_4bit(codes, state).reshape(w.shape).numpy()


def run(out, method, seed, r=3, alpha=6.0, loss="token", aux_coef=0.0, z_coef=0.0, bias_rate=0.0, base_dtype=None, moe=None):
    g = torch.Generator().manual_seed(seed)
    base, normal = dense(g)
    cfg, trained, lora = config(), {}, {}
    names = [f"model.layers.{l}.{n}" for l in range(L) for n in LINEARS]
    options = {"method": method, "steps": STEPS, "batch": BATCH, "lr": LR, "warmup_steps": 0,
               "seed": SEED, "loss": loss, "aux_coef": aux_coef, "lora_r": r, "lora_alpha": alpha}
    if z_coef:
        options["router_z_coef"] = z_coef
    if bias_rate:
        options.update(balance="bias", bias_rate=bias_rate)
    if base_dtype:
        options["base_dtype"] = base_dtype
    if moe and moe.get("dense_gradient"):
        options["router_gradient"] = "dense"
    if method == "pesc":
        e, d = moe["experts"], moe["d"]
        moe["router"] = "model.layers.{}.mlp.moe_adapter.router.weight"
        for l in (l for l in range(L) if l not in moe.get("dense", [])):
            trained[moe["router"].format(l)] = normal(e, C)
            for i in range(e):
                n = f"model.layers.{l}.mlp.moe_adapter.experts.expert_{i}.adapter_"
                trained[n + "down.weight"], trained[n + "up.weight"] = normal(d, C), normal(C, d, std=0.1)
        cfg.update(model_type="camelidae", num_experts=e, topk=moe["k"], adapter_dim=d,
                   moe_scaling=moe["s"], moe_dtype="bfloat16", output_router_logits=False)
        if "beside" in moe:
            inner = moe["beside"]
            for l in range(L):
                b = f"model.layers.{l}.block_sparse_moe."
                base[b + "gate.weight"] = normal(inner["experts"], C)
                for i in range(inner["experts"]):
                    for w, shape in (("w1", (FF, C)), ("w3", (FF, C)), ("w2", (C, FF))):
                        base[f"{b}experts.{i}.{w}.weight"] = normal(*shape)
            base = {n: w for n, w in base.items() if ".mlp." not in n}
            names = [n for n in names if "self_attn" in n]
            for key in ("num_experts", "topk", "moe_dtype"):
                del cfg[key]
            cfg.update(model_type="mixtral", architectures=["MixtralForCausalLM"], sliding_window=None, num_local_experts=inner["experts"],
                       num_experts_per_tok=inner["k"], adapter_experts=e, adapter_top_k=moe["k"])
        if "act" in moe:  # what pesc has beside the paper's: another activation, Switch's gates, dense layers
            cfg.update(adapter_act=moe["act"], adapter_router="softmax-before", mlp_only_layers=moe["dense"])
    if method == "upcycle":
        moe["router"] = "model.layers.{}.block_sparse_moe.gate.weight"
        shards = moe.get("granularity", 1)
        for l in range(L):
            trained[moe["router"].format(l)] = normal(moe["experts"] // shards, C).repeat(shards, 0)
            for i in range(moe["experts"]):
                for w, name in (("w1", "gate"), ("w3", "up"), ("w2", "down")):
                    full = base[f"model.layers.{l}.mlp.{name}_proj.weight"]
                    if shards > 1:  # the shard of a copy, down times their number
                        full = np.split(full, shards, 1)[i % shards] * shards if w == "w2" else np.split(full, shards)[i % shards]
                    trained[f"model.layers.{l}.block_sparse_moe.experts.{i}.{w}.weight"] = full + 0.05 * normal(*full.shape)
        base = {n: w for n, w in base.items() if ".mlp." not in n}
        names = [n for n in names if "self_attn" in n]
        cfg.update(model_type="mixtral", architectures=["MixtralForCausalLM"], sliding_window=None,
                   num_local_experts=moe["experts"], num_experts_per_tok=moe["k"], intermediate_size=FF // shards)
    if method in ("pesc", "lora", "upcycle"):
        lora = lora_pairs(normal, names, r)
    if method == "molora":
        options.update(experts=moe["experts"], top_k=moe["k"])
        moe["router"] = "model.layers.{}.mlp.molora.router.weight"
        for l in range(L):
            n = moe["router"].format(l)
            trained[n] = uniform(n, (moe["experts"], C), 1 / math.sqrt(C))
            for which in ("gate_proj", "up_proj", "down_proj"):
                o, i = LINEARS["mlp." + which]
                for e in range(moe["experts"]):
                    n = f"model.layers.{l}.mlp.{which}.experts.{e}"
                    trained[n + ".lora_A.weight"] = uniform(n + ".lora_A.weight", (r, i), 1 / math.sqrt(i))
                    trained[n + ".lora_B.weight"] = np.zeros((o, r), np.float32)
        for l in range(L):
            for n in (n for n in LINEARS if "self_attn" in n):
                full = f"model.layers.{l}.{n}"
                o, i = LINEARS[n]
                lora[full + ".lora_A.weight"] = uniform(full + ".lora_A.weight", (r, i), 1 / math.sqrt(i))
                lora[full + ".lora_B.weight"] = np.zeros((o, r), np.float32)
    if method == "full" and moe:
        moe["router"] = "model.layers.{}.mlp.gate.weight"
        base = {n: w for n, w in base.items() if ".mlp." not in n}
        for l in range(L):
            b = f"model.layers.{l}.mlp."
            base[b + "gate.weight"], base[b + "shared_expert_gate.weight"] = normal(moe["experts"], C), normal(1, C)
            for at, width in [(f"experts.{e}", moe["d"]) for e in range(moe["experts"])] + [("shared_expert", moe["shared"])]:
                for w, shape in (("gate", (width, C)), ("up", (width, C)), ("down", (C, width))):
                    base[f"{b}{at}.{w}_proj.weight"] = normal(*shape)
        cfg.update(model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"], num_experts=moe["experts"], norm_topk_prob=True,
                   num_experts_per_tok=moe["k"], moe_intermediate_size=moe["d"], shared_expert_intermediate_size=moe["shared"],
                   qkv_bias=False, decoder_sparse_step=1, mlp_only_layers=[])
    if method == "full":
        trained, base = base, {}
    data = samples(g)

    disk = {**base, **({} if method == "molora" else trained)}
    (out / "model").mkdir(parents=True)
    save_file(disk, out / "model" / "model.safetensors", metadata={"format": "pt"})
    (out / "model" / "config.json").write_text(json.dumps(cfg, indent=1) + "\n")
    if lora and method != "molora":
        (out / "lora").mkdir()
        save_file({"base_model.model." + n: w for n, w in lora.items()},
                  out / "lora" / "adapter_model.safetensors", metadata={"format": "pt"})
        (out / "lora" / "adapter_config.json").write_text(json.dumps({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": r, "lora_alpha": alpha, "bias": "none",
            "lora_dropout": 0.0, "fan_in_fan_out": False, "base_model_name_or_path": "",
            "target_modules": sorted({n.rsplit(".", 1)[1] for n in names})}, indent=1) + "\n")
    (out / "data.jsonl").write_text("".join(json.dumps(s) + "\n" for s in data))

    if base_dtype == "nf4":
        base |= {n + ".weight": held_in_nf4(base[n + ".weight"]) for n in names}
    p = {n: torch.tensor(w, dtype=torch.float64) for n, w in {**base, **trained, **lora}.items()}
    train = {n: p[n].requires_grad_() for n in {**trained, **lora}}
    model = Model(method, p, alpha / r if r else 0.0, moe)
    steps, state = [], {}
    for t in range(STEPS):
        ce, aux, z = model.batch_loss(data[t * BATCH:(t + 1) * BATCH], loss)
        total = ce + aux_coef * aux + z_coef * z
        for q in train.values():
            q.grad = None
        total.backward()
        for q in train.values():
            if q.grad is None:
                q.grad = torch.zeros_like(q)
        norm = math.sqrt(sum(float(q.grad.pow(2).sum()) for q in train.values()))
        steps.append({"loss": float(total), "ce": float(ce), "aux": float(aux), "grad_norm": norm})
        adamw(train, state, t + 1)
        model.move_bias(bias_rate)
    (out / "golden.json").write_text(json.dumps({"options": options, "steps": steps}, indent=1) + "\n")
    print(f"{out.name:10s} loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}", flush=True)


RUNS = {
    "pesc-a": dict(method="pesc", seed=1, aux_coef=0.01, moe=dict(experts=4, k=2, d=6, s=1.0)),
    "pesc-b": dict(method="pesc", seed=2, aux_coef=0.1, loss="sequence", r=2,
                   moe=dict(experts=6, k=3, d=5, s=0.25)),
    "pesc-choices": dict(method="pesc", seed=7, aux_coef=0.05, moe=dict(experts=5, k=2, d=7, s=0.5, act="silu", dense=[0])),
    "pesc-bias": dict(method="pesc", seed=8, bias_rate=0.05, moe=dict(experts=5, k=2, d=6, s=1.0)),
    "pesc-dense": dict(method="pesc", seed=9, aux_coef=0.01, z_coef=0.003, moe=dict(experts=5, k=2, d=6, s=0.5, dense_gradient=True)),
    "pesc-beside": dict(method="pesc", seed=10, aux_coef=0.02, moe=dict(experts=4, k=2, d=6, s=1.0, beside=dict(experts=3, k=2))),
    "lora": dict(method="lora", seed=3),
    "qlora": dict(method="lora", seed=8, base_dtype="nf4"),
    "full": dict(method="full", seed=4, r=0, alpha=16.0),
    "upcycle": dict(method="upcycle", seed=5, aux_coef=0.02, moe=dict(experts=4, k=2)),
    "upcycle-fine": dict(method="upcycle", seed=12, aux_coef=0.02, z_coef=0.001, moe=dict(experts=8, k=4, granularity=2)),
    "upcycle-dense": dict(method="upcycle", seed=13, moe=dict(experts=5, k=2, dense_gradient=True)),
    "full-shared": dict(method="full", seed=14, r=0, alpha=16.0, aux_coef=0.01, z_coef=0.002, moe=dict(experts=4, k=2, d=12, shared=20)),
    "molora": dict(method="molora", seed=6, aux_coef=0.01, moe=dict(experts=4, k=2)),
}


def main():
    root = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or RUNS:
        kw = RUNS[name]
        shutil.rmtree(root / name, ignore_errors=True)
        kw = dict(kw)
        if kw.get("r") == 0:
            kw["alpha"] = 16.0
        run(root / name, **kw)


if __name__ == "__main__":
    main()
