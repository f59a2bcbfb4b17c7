#!/usr/bin/env python3
"""Compares pesc's float32 with transformers in float64 on random configurations of each family.

A configuration is drawn from the ranges below; every weight that transformers initialises to a constant (norms, biases,
the bias of a router) is random too. pesc gives the same logits to 1e-4 of the largest, or refuses the configuration by name.
config.json is written without keys, and in the older spelling of rotations, where transformers reads the same from it. COUNT
says how many a family (20; 200 take a minute or two), FIRST from which on (0), SEED which, FAMILIES (names, split by commas) of which families. Every TRAIN-th
(5) also takes three steps of full tuning on one sequence or two: loss and norm of the gradient, to 1e-3. Some draws magnify rounding, for
example those that normalise heads of two columns: there pesc may differ by twice as much as transformers' own float32 does when
weights are off by one rounding. Ends with `N passed, M failed`.
"""
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.pop(0)  # a file beside this one has the name of a package

import numpy as np
import torch
import transformers as hf

PESC = os.environ.get("PESC", "build/pesc")
TRAIN = int(os.environ.get("TRAIN", 5))
STEPS, LR, EPS = 3, 1e-3, 1e-3
FIRST, COUNT, SEED = (int(os.environ.get(name, usual)) for name, usual in (("FIRST", 0), ("COUNT", 20), ("SEED", 1)))
SIZES = ("model_type", "vocab", "layers", "size", "heads", "_dim", "rank", "expert", "window", "group", "topk", "moe_k", "layer_types", "token_id")


def base(r):
    heads = r.choice([1, 2, 3, 4, 6])
    kv = r.choice([h for h in (1, 2, 3, 4, 6) if heads % h == 0])
    return dict(vocab_size=r.randint(40, 90), num_hidden_layers=r.randint(1, 4), num_attention_heads=heads, num_key_value_heads=kv,
                max_position_embeddings=r.choice([32, 64, 128]), rms_norm_eps=r.choice([1e-6, 1e-5, 1e-3]), bos_token_id=1,
                eos_token_id=2, pad_token_id=0, tie_word_embeddings=r.random() < 0.5, hidden_act=r.choice(["silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"]),
                intermediate_size=r.randint(9, 70), hidden_size=heads * 4 * r.randint(1, 5))


def rope(r, context):
    theta = r.choice([1e4, 5e5, 77.0])
    kind = r.choice(["default", "default", "linear", "dynamic", "llama3", "yarn"])
    extra = {"default": {}, "linear": dict(factor=r.choice([2.0, 3.5])), "dynamic": dict(factor=r.choice([2.0, 3.5])),
             "llama3": dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=r.choice([2.0, 4.0]), original_max_position_embeddings=context // 4),
             "yarn": dict(factor=4.0, original_max_position_embeddings=context // 4, beta_fast=32, beta_slow=1,
                          **r.choice([{}, dict(mscale=0.7, mscale_all_dim=0.7), dict(mscale=1.0, mscale_all_dim=0.5), dict(attention_factor=1.2)]))}[kind]
    return {"rope_type": kind, "rope_theta": theta, **extra}


def width(r):
    return r.choice([2 * r.randint(1, 10)] * 6 + [64, 80, 128, 256])


def plain(r, **more):
    c = base(r)
    return {**c, "head_dim": width(r), "rope_parameters": rope(r, c["max_position_embeddings"]), **more}


def router(r):
    groups = r.choice([1, 1, 2, 3])
    experts = groups * r.randint(2, 4)
    kept = r.randint(1, groups)
    return dict(n_routed_experts=experts, n_group=groups, topk_group=kept, num_experts_per_tok=r.randint(1, min(4, kept * experts // groups)),
                moe_intermediate_size=r.randint(5, 40), n_shared_experts=r.choice([1, 2]), norm_topk_prob=r.random() < 0.6,
                routed_scaling_factor=r.choice([1.0, 2.5, 0.3]))


def mla(r, **more):
    c = base(r)
    return {**c, "num_key_value_heads": c["num_attention_heads"], "q_lora_rank": r.choice([None, r.randint(4, 30)]), "kv_lora_rank": r.randint(4, 30),
            "qk_nope_head_dim": r.choice([r.randint(1, 20), 192]), "qk_rope_head_dim": 2 * r.randint(1, 8), "v_head_dim": r.choice([r.randint(2, 24), 160]),
            "attention_bias": r.random() < 0.3, "rope_interleave": r.random() < 0.7,
            "rope_parameters": rope(r, c["max_position_embeddings"]), **router(r), **more}


def layers(r, n):
    return [r.choice(["dense", "sparse"]) for _ in range(n)]


def glm4_moe_lite(r):
    c = mla(r)
    return {**c, "mlp_layer_types": layers(r, c["num_hidden_layers"])}


def dots1(r):
    c = plain(r, attention_bias=r.random() < 0.4, first_k_dense_replace=r.randint(0, 2), **router(r))
    return {**c, **windows(r, c["num_hidden_layers"])}


def windows(r, n):
    """Layers with a window: from one on, or as listed."""
    listed = dict(layer_types=[r.choice(["sliding_attention", "full_attention"]) for _ in range(n)])
    return dict(sliding_window=r.choice([5, 20]), max_window_layers=r.randint(0, n), **r.choice([{}, listed]))


def qwen2(r, **more):
    c = base(r)
    used = r.random() < 0.5
    more = {**more, **(windows(r, c["num_hidden_layers"]) if used else {})}
    return {**c, "rope_parameters": rope(r, c["max_position_embeddings"]), "use_sliding_window": used, **more}


def qwen_moe(r, **more):
    p = router(r)
    c = {**base(r), **more}
    return {**c, "rope_parameters": rope(r, c["max_position_embeddings"]), "num_experts": p["n_routed_experts"], "num_experts_per_tok": p["num_experts_per_tok"],
            "moe_intermediate_size": p["moe_intermediate_size"], "norm_topk_prob": p["norm_topk_prob"], "decoder_sparse_step": r.choice([1, 1, 2]),
            "mlp_only_layers": r.choice([[], [0]]), "use_sliding_window": r.random() < 0.5, "sliding_window": r.choice([5, 20])}


def qwen2_moe(r):
    c = qwen_moe(r, shared_expert_intermediate_size=r.randint(5, 40), qkv_bias=r.random() < 0.7)
    return {**c, "max_window_layers": r.randint(0, c["num_hidden_layers"])}


def deepseek_v2(r):
    c = mla(r, first_k_dense_replace=r.randint(0, 2), topk_method=r.choice(["greedy", "group_limited_greedy"]))
    for key in ("qk_nope_head_dim", "kv_lora_rank"):  # its complex numbers are pairs of columns
        c[key] += c[key] % 2
    return {k: v for k, v in c.items() if k != "rope_interleave"}


def ernie4_5_moe(r):
    c = plain(r, moe_num_shared_experts=r.choice([0, 1, 2]), moe_layer_interval=r.choice([1, 1, 2]), moe_norm_min=r.choice([1e-12, 0.3]),
              moe_layer_start_index=r.randint(0, 2), moe_layer_end_index=r.choice([-1, -1, 1, 2]), use_bias=r.random() < 0.1)
    p = router(r)
    return {**c, "moe_num_experts": p["n_routed_experts"], "moe_k": p["num_experts_per_tok"], "moe_intermediate_size": p["moe_intermediate_size"]}


def solar_open(r):
    c = plain(r, attention_bias=r.random() < 0.4, **router(r))
    return {k: v for k, v in c.items() if k != "intermediate_size"}
def smollm3(r):
    c = plain(r, attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    listed = dict(no_rope_layers=[r.randint(0, 1) for _ in range(c["num_hidden_layers"])]) if r.random() < 0.5 else {}
    return {**c, "no_rope_layer_interval": r.randint(1, 4), "use_sliding_window": r.random() < 0.5, "sliding_window": r.choice([5, 20]), **listed}


def granite(r):
    return plain(r, attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, embedding_multiplier=r.choice([1.0, 12.0, 0.3]),
                 attention_multiplier=r.choice([0.015625, 0.3, 1.0]), residual_multiplier=r.choice([0.22, 1.0, 2.0]),
                 logits_scaling=r.choice([1.0, 8.0, 0.7]))


def ministral3(r):
    c = plain(r, sliding_window=r.choice([None, None, 7]))
    original = r.choice([4, 10, 64])
    return {**c, "rope_parameters": {"rope_type": "yarn", "rope_theta": r.choice([1e4, 1e6]), "factor": 4.0,
                                     "original_max_position_embeddings": original, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                     "mscale_all_dim": 1.0, "llama_4_scaling_beta": r.choice([0.1, 0.5])}}


def hunyuan(r):
    c = plain(r, attention_bias=r.random() < 0.4)
    alpha = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": r.choice([50.0, 1000.0]), "factor": 1.0}
    c = {**c, "head_dim": c["head_dim"] + 2}
    return {**c, "rope_parameters": alpha if r.random() < 0.6 else c["rope_parameters"]}


def gpt_oss(r):
    c = plain(r, num_local_experts=r.randint(2, 6), sliding_window=r.choice([5, 20]), attention_bias=r.random() < 0.7)
    c["layer_types"] = r.choice([None, [r.choice(["sliding_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])]])
    return {**c, "num_experts_per_tok": r.randint(1, c["num_local_experts"])}
def olmo3(r):
    c = plain(r, attention_bias=r.random() < 0.3, sliding_window=r.choice([5, 20]))
    types = [r.choice(["sliding_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])]
    local = {"rope_type": "default", "rope_theta": r.choice([1e4, 77.0])}
    return {**c, "layer_types": types, "rope_parameters": {"full_attention": c["rope_parameters"], "sliding_attention": local}}


def gemma(r, **more):
    c = olmo3(r)
    c.pop("hidden_act")
    heads = c["num_attention_heads"]
    return {**c, "hidden_size": heads * 4 * r.randint(1, 5), "hidden_activation": r.choice(["gelu_pytorch_tanh", "silu"]),
            "query_pre_attn_scalar": r.choice([9, 16, 144]), **more}


def gemma2(r):
    c = gemma(r, attn_logit_softcapping=r.choice([None, 0.5, 50.0]), final_logit_softcapping=r.choice([None, 2.0, 30.0]))
    return {**c, "rope_parameters": {"rope_type": "default", "rope_theta": r.choice([1e4, 77.0])}}


def gemma4(r):
    c = gemma(r, attention_k_eq_v=r.random() < 0.6, hidden_size_per_layer_input=r.choice([0, 0, r.randint(2, 20)]), global_head_dim=2 * r.randint(1, 12),
              final_logit_softcapping=r.choice([None, 2.0, 30.0]))
    heads = c["num_attention_heads"]
    c["num_global_key_value_heads"] = r.choice([None] + [h for h in (1, 2, 3) if heads % h == 0])
    c["num_hidden_layers"] = n = r.randint(1, 7)
    c["layer_types"] = r.choice([None, [r.choice(["sliding_attention", "full_attention"]) for _ in range(n)]])
    types = (c["layer_types"] or ["sliding_attention"] * n)[:-1] + ["full_attention"]
    lenders = [n - i for i in range(1, n) if set(types[:i]) == set(types)]  # transformers raises for the others
    c.update(num_kv_shared_layers=r.choice([0] + lenders), use_double_wide_mlp=r.random() < 0.5)
    if c["num_kv_shared_layers"] and not c["hidden_size_per_layer_input"]:
        c["hidden_size_per_layer_input"] = 4  # without, transformers cannot share
    experts = r.randint(2, 6)
    c.update(enable_moe_block=r.random() < 0.4, num_experts=experts, top_k_experts=r.randint(1, experts), moe_intermediate_size=r.randint(5, 40))
    if r.random() < 0.7:
        c["rope_parameters"]["full_attention"] = dict(rope_type="proportional", rope_theta=r.choice([1e6, 77.0]),
                                                      partial_rotary_factor=r.choice([0.25, 0.5, 0.7, 1.0]), factor=r.choice([1.0, 2.0]))
    c["vocab_size_per_layer_input"] = c["vocab_size"] + r.randint(0, 5)
    return {k: v for k, v in c.items() if k != "query_pre_attn_scalar"}


def phi3(r):
    c = plain(r, sliding_window=r.choice([None, 7]))
    head = c["hidden_size"] // c["num_attention_heads"]
    part = r.choice([1.0, 0.5, 0.75] if head % 8 == 0 else [1.0, 0.5])
    pairs = int(head * part) // 2
    lists = {k: [r.uniform(0.8, 8) for _ in range(pairs)] for k in ("short_factor", "long_factor")}
    more = r.choice([{}, {}, dict(attention_factor=1.3), dict(factor=3.0)])
    scaling = {"rope_type": "longrope", **lists, **more} if r.random() < 0.6 else {"rope_type": "default"}
    return {**{k: v for k, v in c.items() if k != "head_dim"}, "original_max_position_embeddings": r.choice([5, 16, 32]),
            "rope_parameters": {"rope_theta": r.choice([1e4, 77.0]), "partial_rotary_factor": part, **scaling}}


def part(r, c, factors=(1.0, 0.5, 0.25)):
    """A part of each head rotates."""
    c["rope_parameters"]["partial_rotary_factor"] = r.choice(factors)
    return {**c, "head_dim": 8 * r.randint(1, 4)}


def granitemoe(r, **more):
    c = granite(r)
    c.pop("mlp_bias")
    return {**c, "num_local_experts": r.randint(2, 6), "num_experts_per_tok": r.randint(1, 2), **more}


def granitemoehybrid(r):
    c = granitemoe(r, shared_intermediate_size=r.randint(5, 40), position_embedding_type=r.choice(["rope", "rope", "nope", None]))
    return {**c, "num_local_experts": r.choice([0, c["num_local_experts"]]), "mamba_n_heads": 2, "layer_types": ["attention"] * c["num_hidden_layers"]}


def hunyuan_moe(r):
    c = hunyuan(r)
    c["num_experts"] = r.randint(2, 6)
    k = r.randint(1, c["num_experts"])
    return {**c, "moe_topk": r.choice([k, [k] * c["num_hidden_layers"]])}


def glm4_moe(r):
    c = part(r, plain(r, attention_bias=r.random() < 0.4, use_qk_norm=r.random() < 0.5, first_k_dense_replace=r.randint(0, 2), **router(r)))
    return c


def minimax_m2(r):
    c = part(r, plain(r, num_local_experts=r.randint(2, 6)))
    return {**c, "num_experts_per_tok": r.randint(1, c["num_local_experts"])}


def mellum(r):
    c = olmo3(r)
    c["num_experts"] = r.randint(2, 6)
    return {**c, "num_experts_per_tok": r.randint(1, c["num_experts"]), "moe_intermediate_size": r.randint(5, 40),
            "norm_topk_prob": r.random() < 0.6, "mlp_layer_types": layers(r, c["num_hidden_layers"])}


def flex_olmo(r):
    c = plain(r, num_experts=r.randint(2, 6), attention_bias=r.random() < 0.3, norm_topk_prob=r.random() < 0.5)
    return {**c, "num_experts_per_tok": r.randint(1, c["num_experts"])}


def afmoe(r):
    c = plain(r, num_experts=r.randint(2, 6), moe_intermediate_size=r.randint(5, 40), num_shared_experts=r.randint(1, 2),
              num_dense_layers=r.randint(0, 2), route_scale=r.choice([1.0, 2.5]), mup_enabled=r.random() < 0.5, attention_bias=r.random() < 0.3,
              sliding_window=r.choice([5, 20]), global_attn_every_n_layers=r.randint(1, 4))
    return {**c, "num_experts_per_tok": r.randint(1, c["num_experts"])}


def exaone4(r):
    c = plain(r, sliding_window=r.choice([None, 5, 20]), sliding_window_pattern=r.randint(1, 4))
    return {**c, "layer_types": ["full_attention"] * c["num_hidden_layers"]} if c["sliding_window"] is None else c


def lfm2(r, **more):
    c = plain(r, norm_eps=r.choice([1e-6, 1e-4]), conv_L_cache=r.randint(2, 6), conv_bias=r.random() < 0.5, **more)
    c["layer_types"] = [r.choice(["conv", "conv", "full_attention"]) for _ in range(c["num_hidden_layers"])]
    return {k: v for k, v in c.items() if k not in ("head_dim", "hidden_act", "rms_norm_eps")}


def lfm2_dense(r):
    return lfm2(r, block_auto_adjust_ff_dim=r.random() < 0.7, block_multiple_of=r.choice([1, 8, 32]),
                block_ffn_dim_multiplier=r.choice([1.0, 1.3, 0.7]))


def lfm2_moe(r):
    p = router(r)
    return lfm2(r, num_experts=p["n_routed_experts"], num_experts_per_tok=p["num_experts_per_tok"], use_expert_bias=r.random() < 0.7,
                moe_intermediate_size=p["moe_intermediate_size"], num_dense_layers=r.randint(0, 2), norm_topk_prob=p["norm_topk_prob"],
                routed_scaling_factor=p["routed_scaling_factor"])


def delta(r, **more):
    c = part(r, plain(r, attention_bias=r.random() < 0.3))
    keys = r.randint(1, 3)
    listed = dict(layer_types=[r.choice(["linear_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])])
    return {**c, "linear_num_key_heads": keys, "linear_num_value_heads": keys * r.randint(1, 3), "linear_key_head_dim": r.randint(1, 20),
            "linear_value_head_dim": r.randint(1, 20), "linear_conv_kernel_dim": r.randint(2, 5),
            **r.choice([listed, dict(full_attention_interval=r.randint(1, 4))]), **more}


def delta_moe(r, **more):
    p = router(r)
    return delta(r, num_experts=p["n_routed_experts"], num_experts_per_tok=p["num_experts_per_tok"], shared_expert_intermediate_size=r.randint(5, 40),
                 moe_intermediate_size=p["moe_intermediate_size"], **more)


def qwen3_next(r):
    return delta_moe(r, norm_topk_prob=r.random() < 0.6, decoder_sparse_step=r.choice([1, 1, 2]), mlp_only_layers=r.choice([[], [0]]))


FAMILIES = {
    "mistral": (hf.MistralConfig, lambda r: plain(r, sliding_window=r.choice([None, 5, 20]))),
    "qwen2": (hf.Qwen2Config, qwen2),
    "mixtral": (hf.MixtralConfig, lambda r: plain(r, num_local_experts=r.randint(2, 6), num_experts_per_tok=r.randint(1, 2),
                                                  sliding_window=r.choice([None, 5, 20]))),
    "qwen2_moe": (hf.Qwen2MoeConfig, qwen2_moe),
    "qwen3_moe": (hf.Qwen3MoeConfig, lambda r: qwen_moe(r, head_dim=width(r), attention_bias=r.random() < 0.3)),
    "olmoe": (hf.OlmoeConfig, lambda r: {k: v for k, v in plain(r, num_experts=r.randint(2, 6), num_experts_per_tok=r.randint(1, 2),
                                                                attention_bias=r.random() < 0.3, norm_topk_prob=r.random() < 0.5).items() if k != "head_dim"}),
    "deepseek_v2": (hf.DeepseekV2Config, deepseek_v2),
    "llama": (hf.LlamaConfig, lambda r: plain(r, attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)),
    "qwen3": (hf.Qwen3Config, lambda r: qwen2(r, head_dim=width(r), attention_bias=r.random() < 0.3)),
    "deepseek_v3": (hf.DeepseekV3Config, lambda r: mla(r, first_k_dense_replace=r.randint(0, 2))),
    "glm4_moe_lite": (hf.Glm4MoeLiteConfig, glm4_moe_lite),
    "dots1": (hf.Dots1Config, dots1),
    "ernie4_5_moe": (hf.Ernie4_5_MoeConfig, ernie4_5_moe),
    "solar_open": (hf.SolarOpenConfig, solar_open),
    "gpt_oss": (hf.GptOssConfig, gpt_oss),
    "seed_oss": (hf.SeedOssConfig, lambda r: plain(r, attention_bias=r.random() < 0.5, attention_out_bias=r.random() < 0.5,
                                                   mlp_bias=r.random() < 0.5, attention_dropout=0.0, residual_dropout=0.0)),
    "smollm3": (hf.SmolLM3Config, smollm3),
    "olmo2": (hf.Olmo2Config, lambda r: plain(r, attention_bias=r.random() < 0.3)),
    "olmo3": (hf.Olmo3Config, olmo3),
    "gemma2": (hf.Gemma2Config, gemma2),
    "gemma3": (hf.Gemma3TextConfig, gemma),
    "gemma4": (hf.Gemma4TextConfig, gemma4),
    "granite": (hf.GraniteConfig, granite),
    "ministral3": (hf.Ministral3Config, ministral3),
    "phi3": (hf.Phi3Config, phi3),
    "glm4": (hf.Glm4Config, lambda r: part(r, plain(r, attention_bias=r.random() < 0.6))),
    "granitemoe": (hf.GraniteMoeConfig, granitemoe),
    "granitemoeshared": (hf.GraniteMoeSharedConfig, lambda r: granitemoe(r, shared_intermediate_size=r.randint(5, 40))),
    "granitemoehybrid": (hf.GraniteMoeHybridConfig, granitemoehybrid),
    "hunyuan_v1_moe": (hf.HunYuanMoEV1Config, hunyuan_moe),
    "glm4_moe": (hf.Glm4MoeConfig, glm4_moe),
    "minimax_m2": (hf.MiniMaxM2Config, minimax_m2),
    "mellum": (hf.MellumConfig, mellum),
    "flex_olmo": (hf.FlexOlmoConfig, flex_olmo),
    "afmoe": (hf.AfmoeConfig, afmoe),
    "exaone4": (hf.Exaone4Config, exaone4),
    "hunyuan_v1_dense": (hf.HunYuanDenseV1Config, hunyuan),
    "lfm2": (hf.Lfm2Config, lfm2_dense),
    "lfm2_moe": (hf.Lfm2MoeConfig, lfm2_moe),
    "qwen3_5": (hf.Qwen3_5TextConfig, delta),
    "qwen3_5_moe": (hf.Qwen3_5MoeTextConfig, delta_moe),
    "qwen3_next": (hf.Qwen3NextConfig, qwen3_next),
    "ernie4_5": (hf.Ernie4_5Config, lambda r: plain(r, use_bias=r.random() < 0.5)),
}


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 1 if name.endswith(("A_log", "dt_bias")) else 0.2 if name.endswith(("bias", "sinks")) else 0.3 if "norm" in name else 1.5 / p.shape[-1] ** 0.5
            p.copy_((1 if "norm" in name else 0) + scale * torch.randn(p.shape, generator=g))
        for name, b in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                b.copy_(0.1 * torch.randn(b.shape, generator=g))
            if name.endswith("layer_scalar"):
                b.copy_(0.8 + 0.2 * torch.randn(b.shape, generator=g))


class Double(torch.overrides.TorchFunctionMode):
    """transformers computes norms, routers and the delta rule in float32 whatever its model is; here they are float64 too."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wide(x):
            return torch.float64 if x is torch.float32 else x
        if function is torch.Tensor.float:
            return args[0].double()
        return function(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


def in_double(function, model, *args):
    with Double():
        return function(copy.deepcopy(model).double(), *args)


def magnified(model, function, ids, want):
    """Twice the largest difference of transformers' own float32 from float64, with weights that are off by at most one rounding."""
    worst = np.zeros_like(want)
    for seed in range(16):
        near, g = copy.deepcopy(model), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in near.parameters():
                p.mul_(1 + (torch.rand(p.shape, generator=g) - 0.5) * 2**-22)
        worst = np.maximum(worst, 2 * np.abs(function(near, ids) - want))
    return worst


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def is_size(key):
    """A key without which a model may be large, or none."""
    return any(part in key for part in SIZES)


def spell(r, config, folder):
    """Leaves keys out of config.json, and spells rotations as before transformers 5, where that reads as the same configuration."""
    path = folder / "config.json"
    meant = config.to_dict()
    written = json.loads(path.read_text())

    def try_on(changed):
        path.write_text(json.dumps(changed))
        try:
            same = type(config).from_pretrained(folder).to_dict() == meant
        except Exception:  # whatever a configuration without that key is refused with
            same = False
        if not same:
            path.write_text(json.dumps(written))
        return changed if same else written

    rotation = written.get("rope_parameters", {})
    if r.random() < 0.4 and "rope_theta" in rotation:
        older = {k: v for k, v in written.items() if k != "rope_parameters"}
        scaling = {k: v for k, v in rotation.items() if k not in ("rope_theta", "partial_rotary_factor")}
        older |= {k: v for k, v in rotation.items() if k not in scaling}
        if scaling["rope_type"] != "default":
            older["rope_scaling"] = scaling
        written = try_on(older)
    if r.random() < 0.4:
        for key in [k for k in written if not is_size(k)]:
            written = try_on({k: v for k, v in written.items() if k != key})


def draw_model(r, config_class, draw):
    """Options, a configuration of them and a model; some without options that have a default."""
    while True:
        options = draw(r)
        if r.random() < 0.3:
            options = {k: v for k, v in options.items() if is_size(k) or r.random() < 0.7}
        try:
            config = config_class(**options, attn_implementation="eager")
            return options, config, hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
        except ZeroDivisionError:  # its dynamic rotations of one pair of columns
            pass


def compare(name, number, folder):
    """None where equal, or what is wrong; "refused" where pesc says why."""
    r = random.Random(f"{SEED}-{name}-{number}")
    options, config, model = draw_model(r, *FAMILIES[name])
    randomise(model, number)
    model.save_pretrained(folder)
    spell(r, config, folder)
    # not 0, the padding: transformers gives its embedding no gradient
    context = min(config.max_position_embeddings, 128)
    ids, other = ([r.randrange(1, options["vocab_size"]) for _ in range(r.choice([1, 7, 40, 65, context, context + 9]))] for _ in range(2))
    if "'dynamic'" in str(config.rope_parameters):  # transformers goes on with the rotations of the longest sequence so far
        other = other[:len(ids)]
        other += ids[len(other):]
    (folder / "ids.json").write_text(json.dumps(ids))
    done = subprocess.run([PESC, "logits", folder, "--ids", folder / "ids.json", "-o", folder / "got.npy", "--device", "cpu", "-q"],
                          capture_output=True, text=True)
    if done.returncode == 2 or done.returncode == 3:
        return "refused: " + done.stderr.strip().splitlines()[-1]
    if done.returncode != 0:
        return f"wrong: exit code {done.returncode}: {done.stderr.strip()} with {options}"
    want = in_double(logits, model, ids)
    largest = np.abs(want).max()
    worst = np.abs(np.load(folder / "got.npy") - want).max() / largest
    if not worst < 1e-4:
        rounding = magnified(model, logits, ids, want).max() / largest
        if not worst < rounding:
            return f"wrong: {worst:.2g} of the largest logit, rounding makes {rounding:.2g}, with {options}"
    rows = [row for row in r.choice([[ids], [ids, other]]) if len(row) > 1]
    return train(model, rows, folder, options) if number % TRAIN == 0 and rows else None


def steps_of(model, rows):
    """Loss and norm of the gradient of each step; all tokens of all rows weigh the same."""
    model = copy.deepcopy(model).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    adam = torch.optim.AdamW(model.parameters(), lr=LR, eps=EPS, weight_decay=0.0)
    rows, out = [torch.tensor([row]) for row in rows], []
    for _ in range(STEPS):
        adam.zero_grad()
        losses = [torch.nn.functional.cross_entropy(model(x, use_cache=False).logits[0, :-1].double(), x[0, 1:], reduction="sum") for x in rows]
        loss = sum(losses) / sum(x.shape[1] - 1 for x in rows)
        loss.backward()
        out.append((loss.item(), sum(float((p.grad.double() ** 2).sum()) for p in model.parameters() if p.grad is not None) ** 0.5))
        adam.step()
    return np.array(out)


def train(model, rows, folder, options):
    """Loss and norm of the gradient of each step. A large epsilon makes the steps follow the gradient, not its sign."""
    (folder / "data.jsonl").write_text("".join(json.dumps({"input_ids": row, "labels": row}) + "\n" for row in rows))
    done = subprocess.run([PESC, "train", folder, "--data", folder / "data.jsonl", "-o", folder / "run", "--method", "full", "--steps", str(STEPS),
                           "--batch", str(len(rows)), "--lr", str(LR), "--eps", str(EPS), "--clip", "0", "--warmup-steps", "0", "--aux-coef", "0",
                           "--base-dtype", "f32", "--compute-dtype", "f32", "--device", "cpu", "-q"], capture_output=True, text=True)
    if done.returncode:
        return f"wrong: training: exit code {done.returncode}: {done.stderr.strip()[-300:]} with {options}"
    got = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    got = [(m["loss"], m["grad_norm"]) for m in got if "grad_norm" in m]
    want = in_double(steps_of, model, rows)
    wrong = np.abs(np.array(got) - want) / np.maximum(1, np.abs(want))
    if not wrong.max() < 1e-3:
        rounding = magnified(model, steps_of, rows, want) / np.maximum(1, np.abs(want))
        magnifies = (rounding > 1e-3).any(axis=1)
        compared = 1 + int(magnifies.argmax()) if magnifies.any() else STEPS  # later steps begin with other weights
        if not (wrong < np.maximum(1e-3, rounding))[:compared].all():
            return f"wrong: training: losses and norms {got}, expected {want.tolist()}, rounding makes {rounding.tolist()}, with {options}"
    return None


def main():
    if sys.argv[1:]:
        print(__doc__)
        return
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    torch.set_num_threads(1)
    passed = failed = 0
    for name in os.environ.get("FAMILIES", ",".join(FAMILIES)).split(","):
        refused = []
        for number in range(FIRST, FIRST + COUNT):
            with tempfile.TemporaryDirectory() as folder:
                wrong = compare(name, number, pathlib.Path(folder))
            if wrong and wrong.startswith("refused"):
                refused.append(wrong)
            elif wrong:
                failed += 1
                print(f"{name} {number}: {wrong}")
            else:
                passed += 1
        print(f"{name}: {len(refused)} of {COUNT} refused" + (f", as {refused[0]}" if refused else ""), flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
