#!/usr/bin/env python3
"""Makes tests/golden: tiny models of every family with what Hugging Face computes from them.

Each folder holds a model as its users would find it on disk, `ids.json` (two sequences), and
`logits.npy`: float32 logits of the first sequence from transformers in eager float32; and
`greedy.json`: what transformers' greedy generate continues the second sequence with. Camelidae has
no class in transformers, so its FFN is written out here from equation 7 of the PESC paper, over
transformers' Llama. Run with a Python that has torch, transformers, peft, bitsandbytes:

    python tests/golden/make/golden_families.py tests/golden [name ...]
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers as hf
from transformers.models.llama.modeling_llama import LlamaMLP

VOCAB = 67
POSITIONS = 48
NEW_TOKENS = 24


def randomise(model, seed, norm=1):
    """Weights that make every term matter: norms away from 1, biases away from 0. norm 0: norms multiply by 1 + w, but for those of a
    delta net."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("A_log", "dt_bias")):
                p.copy_(torch.randn(p.shape, generator=g))
            elif "norm" in name:
                p.copy_((1 if "linear_attn" in name else norm) + 0.3 * torch.randn(p.shape, generator=g))
            elif name.endswith(("bias", "sinks")):
                p.copy_(0.2 * torch.randn(p.shape, generator=g))
            elif "embed" in name or "lm_head" in name:
                p.copy_(torch.randn(p.shape, generator=g))
            else:
                p.copy_(torch.randn(p.shape, generator=g) * 1.5 / p.shape[-1] ** 0.5)


def randomise_buffers(model, seed):
    """The bias by which a router chooses, and Gemma 4's factor of a layer, are no parameters."""
    g = torch.Generator().manual_seed(seed + 100)
    for name, b in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            b.copy_(0.1 * torch.randn(b.shape, generator=g))
        if name.endswith("layer_scalar"):
            b.copy_(0.8 + 0.2 * torch.randn(b.shape, generator=g))


def ids_for(seed):
    g = torch.Generator().manual_seed(1000 + seed)
    return [torch.randint(3, VOCAB, (n,), generator=g).tolist() for n in (POSITIONS, 11)]


def record(model, out, seed):
    model = model.float().eval()
    ids = ids_for(seed)
    with torch.no_grad():
        logits = model(torch.tensor([ids[0]])).logits[0].float().numpy()
        x = torch.tensor([ids[1]])
        greedy = []
        for _ in range(NEW_TOKENS):
            step = model(x, use_cache=False).logits[0, -1]
            best = torch.topk(step, 2).values
            greedy.append(int(step.argmax()))
            assert best[0] - best[1] > 1e-3, "a tie: choose another seed"
            x = torch.cat([x, torch.tensor([[greedy[-1]]])], 1)
    assert np.isfinite(logits).all() and logits.std() > 0.1
    np.save(out / "logits.npy", logits.astype(np.float32))
    (out / "ids.json").write_text(json.dumps(ids[0]))
    (out / "greedy.json").write_text(json.dumps({"prompt": ids[1], "ids": greedy}))


def edit_config(out, change):
    path = out / "config.json"
    c = json.loads(path.read_text())
    change(c)
    path.write_text(json.dumps(c, indent=2) + "\n")


def v4_spelling(out):
    """Rewrites config.json the way transformers 4 wrote it."""
    path = out / "config.json"
    c = json.loads(path.read_text())
    if "dtype" in c:
        c["torch_dtype"] = c.pop("dtype")
    rope = c.pop("rope_parameters", None)
    if rope:
        c["rope_theta"] = rope.pop("rope_theta")
        kind = rope.get("rope_type", "default")
        c["rope_scaling"] = None if kind == "default" else rope
    c["transformers_version"] = "4.57.1"
    path.write_text(json.dumps(c, indent=2) + "\n")


def save(model, out, seed, v4=False):
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    if v4:
        v4_spelling(out)
    record(model, out, seed)


BASE = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            max_position_embeddings=128, attn_implementation="eager")


def family(config_class, seed, v4=False, norm=1, **kw):
    def make(out):
        config = config_class(**{**BASE, **kw})
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        randomise(model, seed, norm)
        randomise_buffers(model, seed)
        save(model, out, seed, v4)
    return make


DENSE = dict(hidden_size=36, intermediate_size=52, num_hidden_layers=3, num_attention_heads=3,
             num_key_value_heads=1, head_dim=12, rms_norm_eps=1e-5, tie_word_embeddings=False)
SQUARE = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, rms_norm_eps=1e-6)


def rope(kind, theta=10000.0, **kw):
    return {"rope_type": kind, "rope_theta": theta, **kw}


LLAMA3 = rope("llama3", 5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32,
            beta_slow=1, mscale=0.707, mscale_all_dim=0.707)
MINISTRAL = rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=10, beta_fast=32, beta_slow=1, mscale=1.0,
                 mscale_all_dim=1.0, llama_4_scaling_beta=0.4)
MLA = dict(hidden_size=40, intermediate_size=56, moe_intermediate_size=20, num_hidden_layers=3,
           num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=16, qk_nope_head_dim=12,
           qk_rope_head_dim=8, v_head_dim=10, n_routed_experts=6, num_experts_per_tok=2,
           n_shared_experts=2, first_k_dense_replace=1, tie_word_embeddings=False)


GPT_OSS = dict(hidden_size=36, intermediate_size=20, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=12,
               tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=3, sliding_window=9,
               rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                    original_max_position_embeddings=32))


GRANITE_MOE = dict(num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=12.0, attention_multiplier=0.11,
                   residual_multiplier=0.22, logits_scaling=0.6, attention_bias=True, intermediate_size=20)
DELTA = dict(rms_norm_eps=1e-3, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4)
DELTA_DENSE = {**{k: v for k, v in DENSE.items() if k != "rms_norm_eps"}, "head_dim": 16}
DELTA_LAYERS = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]
GEMMA4 = {**DENSE, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "global_head_dim": 20,
          "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "sliding_window": 9,
          "layer_types": ["sliding_attention", "full_attention"] * 2, "final_logit_softcapping": 12.0, "tie_word_embeddings": True,
          "rope_parameters": {"full_attention": rope("proportional", 50000.0, partial_rotary_factor=0.5), "sliding_attention": rope("default", 5000.0)}}


class Adapters(torch.nn.Module):
    """Experts of PESC: s * W_up gelu(W_down f), routed by the FFN's input; with another activation or Switch's gates
    (softmax over all experts) where the configuration has pesc's own keys."""

    def __init__(self, config):
        super().__init__()
        self.k, self.s = config.topk, config.moe_scaling
        self.act = getattr(torch.nn.functional, getattr(config, "adapter_act", "gelu"))
        self.before = getattr(config, "adapter_router", "") == "softmax-before"
        self.router = torch.nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = torch.nn.ModuleDict()
        for e in range(config.num_experts):
            self.experts[f"expert_{e}"] = torch.nn.ModuleDict({
                "adapter_down": torch.nn.Linear(config.hidden_size, config.adapter_dim, bias=False),
                "adapter_up": torch.nn.Linear(config.adapter_dim, config.hidden_size, bias=False)})

    def forward(self, x, f):
        logits = self.router(x)
        value, index = logits.topk(self.k, -1)
        gate = logits.softmax(-1).gather(-1, index) if self.before else value.softmax(-1)
        y = f
        for slot in range(self.k):
            for e in range(len(self.experts)):
                ex = self.experts[f"expert_{e}"]
                out = self.s * ex["adapter_up"](self.act(ex["adapter_down"](f)))
                chosen = (index[..., slot] == e).unsqueeze(-1)
                y = y + torch.where(chosen, gate[..., slot:slot + 1] * out, torch.zeros_like(y))
        return y


def camelidae(seed, parent=hf.LlamaConfig, naming="expert_{}", torch_bin=False, **kw):
    moe = dict(num_experts=5, topk=2, adapter_dim=14, moe_scaling=0.25, moe_dtype="bfloat16",
               output_router_logits=False)
    moe.update({k: kw.pop(k) for k in list(kw) if k in moe or k in ("adapter_act", "adapter_router", "mlp_only_layers")})

    def make(out):
        config = parent(**{**BASE, **DENSE, **kw})
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for key, value in moe.items():
            setattr(config, key, value)
        for number, layer in enumerate(model.model.layers):
            mlp = layer.mlp
            if number in moe.get("mlp_only_layers", []):
                continue
            mlp.moe_adapter = Adapters(config)
            dense = type(mlp).forward
            mlp.forward = (lambda m, d: lambda x: m.moe_adapter(x, d(m, x)))(mlp, dense)
        randomise(model, seed)
        record(model, out, seed)
        state = {k.replace("experts.expert_", "experts." + naming.format("")): v.contiguous()
                 for k, v in model.state_dict().items()}
        c = config.to_dict()
        c.update(moe)
        c.update(model_type="camelidae", architectures=["modeling_camelidae.LlamaForCausalLM"],
                 auto_map={"AutoConfig": "configuration_camelidae.CamelidaeConfig",
                           "AutoModelForCausalLM": "modeling_camelidae.LlamaForCausalLM"})
        if parent is not hf.LlamaConfig:
            c.update(model_type=config.model_type, architectures=["modeling_qwen2idae.Qwen2ForCausalLM"])
        (out / "config.json").write_text(json.dumps(c, indent=2, default=str) + "\n")
        v4_spelling(out)
        if not torch_bin:
            from safetensors.torch import save_file
            save_file(state, out / "model.safetensors", metadata={"format": "pt"})
            return
        names = list(state)
        shards = [names[:len(names) // 2], names[len(names) // 2:]]
        index = {"metadata": {"total_size": sum(v.numel() * 4 for v in state.values())},
                 "weight_map": {}}
        for i, part in enumerate(shards):
            file = f"pytorch_model-{i + 1:05d}-of-00002.bin"
            torch.save({n: state[n] for n in part}, out / file)
            index["weight_map"].update({n: file for n in part})
        (out / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2))
    return make


class Experts(torch.nn.Module):
    """DeepSeekMoE: softmax over all experts, the k best, not renormalised unless asked for, and shared experts beside them."""

    def __init__(self, config):
        super().__init__()
        def glu(width):
            return LlamaMLP(hf.LlamaConfig(hidden_size=config.hidden_size, intermediate_size=width, num_attention_heads=1))
        self.k, self.renormalise = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = torch.nn.Linear(config.hidden_size, config.n_routed_experts, bias=False)
        self.experts = torch.nn.ModuleList(glu(config.moe_intermediate_size) for _ in range(config.n_routed_experts))
        self.shared_experts = glu(config.moe_intermediate_size * config.n_shared_experts)

    def forward(self, x):
        value, index = self.gate(x).softmax(-1).topk(self.k, -1)
        if self.renormalise:
            value = value / (value.sum(-1, keepdim=True) + 1e-20)
        y = self.shared_experts(x)
        for e, expert in enumerate(self.experts):
            y = y + (value * (index == e)).sum(-1, keepdim=True) * expert(x)
        return y


def deepseek(seed, **kw):
    """The first DeepSeekMoE has no class in transformers: Llama with the mixture above."""
    def make(out):
        config = hf.LlamaConfig(**{**BASE, **kw})
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for layer in model.model.layers[config.first_k_dense_replace:]:
            layer.mlp = Experts(config)
        randomise(model, seed)
        save(model, out, seed, v4=True)
        edit_config(out, lambda c: c.update(model_type="deepseek", architectures=["DeepseekForCausalLM"], moe_layer_freq=1, scoring_func="softmax"))
    return make


def renamed(config_class, seed, names, keys, more, **kw):
    """A family whose own code is not in transformers, but computes what a class there does: its tensors under its names, where the
    rows of several are one matrix, in the order of `names`; its keys under its keys."""
    def make(out):
        from safetensors.torch import load_file, save_file
        family(config_class, seed, v4=True, **kw)(out)
        def order(name):
            return [i for i, (old, _) in enumerate(names) if old in name][:1]
        whole, state = load_file(out / "model.safetensors"), {}
        for name in sorted(whole, key=order):
            new = name
            for old, own in names:
                new = new.replace(old, own)
            state[new] = torch.cat([state[new], whole[name]]) if new in state else whole[name]
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
        path = out / "config.json"
        c = {keys.get(k, k): v for k, v in json.loads(path.read_text()).items() if k not in ("architectures", "layer_types")}
        path.write_text(json.dumps({**c, **more}, indent=2) + "\n")
    return make


def fp8(config, seed, block):
    """Linears in FP8 with scales, for blocks or for each matrix. transformers needs a GPU for it, so its logits are those of the
    numbers that the codes stand for, in bf16."""
    def make(out):
        from safetensors.torch import load_file, save_file
        load = hf.AutoModelForImageTextToText if hasattr(config, "text_config") else hf.AutoModelForCausalLM
        model = load.from_config(config, attn_implementation="eager").float()
        randomise(model, seed)
        randomise_buffers(model, seed)
        model.save_pretrained(out)
        (out / "generation_config.json").unlink(missing_ok=True)
        state = load_file(out / "model.safetensors")
        codes = {}
        for name in [n for n in state if n.endswith("_proj.weight") and "vision" not in n]:
            x = state[name]
            rows, cols = block or x.shape
            grid = [-(-x.shape[0] // rows), -(-x.shape[1] // cols)]
            tiles = torch.zeros(grid[0] * rows, grid[1] * cols)
            tiles[:x.shape[0], :x.shape[1]] = x
            tiles = tiles.reshape(grid[0], rows, grid[1], cols)
            scale = tiles.abs().amax((1, 3), keepdim=True) / 448
            code = (tiles / scale).to(torch.float8_e4m3fn)
            def cut(t):
                return t.reshape(grid[0] * rows, grid[1] * cols)[:x.shape[0], :x.shape[1]].contiguous()
            state[name] = cut(code.float() * scale).bfloat16().float()
            codes[name] = cut(code)
            codes[name + "_scale_inv"] = scale.reshape(grid if block else ())
            if not block:
                codes[name.replace("weight", "activation_scale")] = torch.tensor(0.5)
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
        record(load.from_pretrained(out, attn_implementation="eager", dtype=torch.float32), out, seed)
        save_file({**state, **codes}, out / "model.safetensors", metadata={"format": "pt"})
        edit_config(out, lambda c: c.update(quantization_config={"quant_method": "fp8", "weight_block_size": block}))
    return make


def multimodal(config, seed, norm=1, **spelled):
    """The text of a model that also sees: its tensors stand among those of the other parts. `spelled`: what the publisher writes into
    text_config and transformers does not keep; with it come tensors of multi-token prediction."""
    def make(out):
        from safetensors.torch import load_file, save_file
        model = hf.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
        randomise(model, seed, norm)
        randomise_buffers(model, seed)
        save(model, out, seed)
        if spelled:
            edit_config(out, lambda c: c["text_config"].update(spelled))
            save_file({**load_file(out / "model.safetensors"), "mtp.fc.weight": torch.zeros(3, 5)}, out / "model.safetensors")
    return make


def qwen3_5_multimodal(config_class, text, seed):
    """As Qwen3.5 is published."""
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, out_hidden_size=36, num_position_embeddings=16)
    positions = dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True)
    config = config_class(text_config=dict(**{**BASE, **DELTA, **DELTA_DENSE, "tie_word_embeddings": True}, rope_parameters=positions, **text),
                          vision_config=vision, tie_word_embeddings=True)
    return multimodal(config, seed, 0, attn_output_gate=True, mtp_num_hidden_layers=1, full_attention_interval=4, mamba_ssm_dtype="float32")


VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
GLM4_MOE = dict(n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=1, first_k_dense_replace=1,
                routed_scaling_factor=2.5, use_qk_norm=True, attention_bias=True, partial_rotary_factor=0.5)

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(out):
    """gpt-oss as it is published: experts in MXFP4. transformers needs a GPU for it, so its logits are those of the numbers that
    the blocks stand for, in matrices that it holds transposed."""
    from safetensors.torch import load_file, save_file
    seed = 41
    config = hf.GptOssConfig(**{**BASE, **GPT_OSS, "hidden_size": 64, "intermediate_size": 32})
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
    randomise(model, seed)
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    state = load_file(out / "model.safetensors")
    for name in [n for n in state if n.endswith(("gate_up_proj", "down_proj"))]:
        x = state.pop(name).transpose(1, 2).contiguous()  # [E,out,in]
        x = x.reshape(*x.shape[:-1], -1, 32)
        scale = torch.floor(torch.log2(x.abs().amax(-1, keepdim=True))) - 2
        code = ((x / 2 ** scale).abs().unsqueeze(-1) - FP4).abs().argmin(-1) + 8 * (x < 0)
        state[name + "_blocks"] = (code[..., ::2] + 16 * code[..., 1::2]).to(torch.uint8)
        state[name + "_scales"] = (scale.squeeze(-1) + 127).to(torch.uint8)
        value = FP4[code % 8] * torch.where(code > 7, -1.0, 1.0) * 2 ** scale
        model.get_parameter(name).data.copy_(value.flatten(-2).transpose(1, 2))
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    edit_config(out, lambda c: c.update(quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router"]}))
    record(model, out, seed)


def peft_lora(out):
    """A base and a LoRA directory made by peft, with rank and alpha patterns."""
    import peft
    seed = 31
    base = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**{**BASE, **DENSE}),
                                               attn_implementation="eager")
    randomise(base, seed)
    base.save_pretrained(out / "base")
    (out / "base" / "generation_config.json").unlink(missing_ok=True)
    config = peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", use_rslora=False,
                             target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                             "up_proj", "down_proj"],
                             rank_pattern={"q_proj": 2}, alpha_pattern={"down_proj": 3})
    model = peft.get_peft_model(base, config)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
    model.save_pretrained(out / "adapter")
    (out / "adapter" / "README.md").unlink(missing_ok=True)
    record(model, out, seed)


def bnb_nf4(out):
    """A bitsandbytes checkpoint (NF4, double quantisation). bitsandbytes' own product on a CPU
    rounds to bf16, so the logits are transformers' over the weights it dequantises."""
    import bitsandbytes.functional as bnb
    from safetensors.torch import load_file
    seed = 33
    config = hf.LlamaConfig(**{**BASE, **SQUARE})
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    randomise(model, seed)
    tmp = out / "tmp"
    model.save_pretrained(tmp)
    q = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                              bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
    quantised = hf.AutoModelForCausalLM.from_pretrained(tmp, quantization_config=q, device_map="cpu",
                                                        dtype=torch.float32)
    quantised.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    shutil.rmtree(tmp)
    state = load_file(out / "model.safetensors")
    for name in [n for n, v in state.items() if v.dtype == torch.uint8 and n.endswith(".weight")]:
        parts = {n: v for n, v in state.items() if n.startswith(name + ".")}
        full = bnb.dequantize_4bit(state[name], bnb.QuantState.from_dict(parts, device="cpu"))
        model.get_parameter(name).data.copy_(full)
    record(model, out, seed)


FIXTURES = {
    "llama": family(hf.LlamaConfig, 1, **DENSE),
    "llama-square": family(hf.LlamaConfig, 2, v4=True, **SQUARE, tie_word_embeddings=True),
    "llama3": family(hf.LlamaConfig, 3, v4=True, rope_parameters=LLAMA3, **DENSE),
    "yi": family(hf.LlamaConfig, 4, rope_parameters=rope("default", 5e6), **SQUARE,
                 tie_word_embeddings=False),
    "mistral": family(hf.MistralConfig, 5, sliding_window=9, **DENSE),
    "qwen2": family(hf.Qwen2Config, 6, **{**SQUARE, "hidden_size": 56, "intermediate_size": 84},
                    tie_word_embeddings=True),
    "qwen2-window": family(hf.Qwen2Config, 7, use_sliding_window=True, sliding_window=7,
                           max_window_layers=1, v4=False, **SQUARE, tie_word_embeddings=False),
    "qwen3": family(hf.Qwen3Config, 8, **DENSE),
    "camelidae": camelidae(9),
    "camelidae-bin": camelidae(10, torch_bin=True, topk=3, moe_scaling=1.0),
    "camelidae-choices": camelidae(19, adapter_act="relu", adapter_router="softmax-before", mlp_only_layers=[0]),
    "sparsetral": camelidae(11, naming="{}", num_experts=4),
    "qwen2idae": camelidae(12, parent=hf.Qwen2Config, num_experts=6, topk=4),
    "mixtral": family(hf.MixtralConfig, 13, num_local_experts=5, num_experts_per_tok=2, **DENSE),
    "qwen2_moe": family(hf.Qwen2MoeConfig, 14, num_experts=6, num_experts_per_tok=3,
                        moe_intermediate_size=20, shared_expert_intermediate_size=28,
                        decoder_sparse_step=1, mlp_only_layers=[1], norm_topk_prob=False,
                        **{k: v for k, v in {**SQUARE, "num_hidden_layers": 3}.items()},
                        tie_word_embeddings=False),
    "qwen3_moe": family(hf.Qwen3MoeConfig, 15, num_experts=6, num_experts_per_tok=2,
                        moe_intermediate_size=24, decoder_sparse_step=1, norm_topk_prob=True,
                        **DENSE),
    "olmoe": family(hf.OlmoeConfig, 16, num_experts=7, num_experts_per_tok=3, norm_topk_prob=False,
                    **{**SQUARE, "hidden_size": 48, "intermediate_size": 20,
                       "num_key_value_heads": 4}, tie_word_embeddings=False),
    "deepseek_v2": family(hf.DeepseekV2Config, 17, q_lora_rank=None, topk_method="greedy",
                          norm_topk_prob=False, routed_scaling_factor=1.0, n_group=1, topk_group=1,
                          **MLA),
    "deepseek_v2-yarn": family(hf.DeepseekV2Config, 18, v4=True, q_lora_rank=14,
                               topk_method="group_limited_greedy", n_group=3, topk_group=2,
                               norm_topk_prob=False, routed_scaling_factor=1.7,
                               rope_parameters=YARN, **MLA),
    "deepseek_v3": family(hf.DeepseekV3Config, 21, q_lora_rank=14, n_group=3, topk_group=2, norm_topk_prob=True,
                          routed_scaling_factor=2.5, num_nextn_predict_layers=1, **MLA),
    "deepseek_v3-yarn": family(hf.DeepseekV3Config, 22, v4=True, q_lora_rank=None, n_group=1, topk_group=1, norm_topk_prob=False,
                               routed_scaling_factor=1.3, rope_interleave=False, rope_parameters=YARN, **MLA),
    "glm4_moe_lite": family(hf.Glm4MoeLiteConfig, 23, q_lora_rank=14, n_group=1, topk_group=1, routed_scaling_factor=1.8,
                            mlp_layer_types=["dense", "sparse", "sparse"], **{k: v for k, v in MLA.items() if k != "first_k_dense_replace"}),
    "dots1": family(hf.Dots1Config, 24, moe_intermediate_size=20, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
                    first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.4, sliding_window=9, max_window_layers=2,
                    n_group=2, topk_group=1, **DENSE),
    "seed_oss": family(hf.SeedOssConfig, 25, attention_dropout=0.0, residual_dropout=0.0, attention_out_bias=True, mlp_bias=True, **DENSE),
    "ernie4_5": family(hf.Ernie4_5Config, 26, use_bias=True, **{**DENSE, "tie_word_embeddings": True}),
    "ernie4_5_moe": family(hf.Ernie4_5_MoeConfig, 27, moe_num_experts=6, moe_k=3, moe_intermediate_size=20, moe_num_shared_experts=2,
                           moe_layer_start_index=1, moe_layer_end_index=2, moe_norm_min=0.3,
                           **{**DENSE, "num_hidden_layers": 4, "tie_word_embeddings": True}),
    "solar_open": family(hf.SolarOpenConfig, 28, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2,
                         attention_bias=True, n_group=2, topk_group=1, routed_scaling_factor=1.4,
                         **{k: v for k, v in DENSE.items() if k != "intermediate_size"}),
    "deepseek": deepseek(29, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2,
                         first_k_dense_replace=1, norm_topk_prob=False, **{**DENSE, "head_dim": None}),
    "smollm3": family(hf.SmolLM3Config, 27, attention_bias=True, mlp_bias=True, no_rope_layers=[1, 0, 1], use_sliding_window=True,
                      sliding_window=9, rope_parameters=rope("default", 5000.0), **{**SQUARE, "num_hidden_layers": 3}),
    "granite": family(hf.GraniteConfig, 28, v4=True, embedding_multiplier=12.0, attention_multiplier=0.11, residual_multiplier=0.22,
                      logits_scaling=0.6, attention_bias=True, **SQUARE, tie_word_embeddings=True),
    "ministral3": family(hf.Ministral3Config, 29, rope_parameters=MINISTRAL, **DENSE),
    "hunyuan_v1_dense": family(hf.HunYuanDenseV1Config, 30, attention_bias=True, rope_parameters=rope("dynamic", 10000.0, alpha=50.0, factor=1.0),
                               **DENSE),
    "gpt_oss": family(hf.GptOssConfig, 30, **GPT_OSS),
    "gpt_oss-mxfp4": mxfp4,
    "olmo2": family(hf.Olmo2Config, 31, **{**DENSE, "num_attention_heads": 4, "num_key_value_heads": 2}),
    "olmo3": family(hf.Olmo3Config, 32, sliding_window=9, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_parameters={"full_attention": {**YARN, "attention_factor": 1.2}, "sliding_attention": rope("default", 5000.0)}, **DENSE),
    "gemma2": family(hf.Gemma2Config, 35, query_pre_attn_scalar=20, sliding_window=9, attn_logit_softcapping=3.0, final_logit_softcapping=12.0,
                     **{**DENSE, "tie_word_embeddings": True}),
    "gemma3": family(hf.Gemma3TextConfig, 34, query_pre_attn_scalar=20, sliding_window=9,
                     layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                     rope_parameters={"full_attention": rope("linear", 50000.0, factor=4.0), "sliding_attention": rope("default", 5000.0)},
                     **{**DENSE, "tie_word_embeddings": True}),
    "gemma4": family(hf.Gemma4TextConfig, 67, **GEMMA4),
    "gemma4-shared": family(hf.Gemma4TextConfig, 69, **{**GEMMA4, "num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention"] * 3,
                                                        "attention_k_eq_v": False, "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
                                                        "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": VOCAB}),
    "gemma4-inputs": family(hf.Gemma4TextConfig, 70, **{**GEMMA4, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB + 3}),
    "gemma4-moe": family(hf.Gemma4TextConfig, 71, **GEMMA4, enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=20),
    "gemma4-multimodal": multimodal(hf.Gemma4Config(
        text_config={**BASE, **GEMMA4, "use_bidirectional_attention": "vision"}, audio_config=None, tie_word_embeddings=True,
        vision_config=dict(num_key_value_heads=2, head_dim=4, position_embedding_size=16, **{**VISION, "patch_size": 4})), 68),
    "phi3": family(hf.Phi3Config, 36, sliding_window=20, **{k: v for k, v in DENSE.items() if k != "head_dim"}),
    "phi3-long": family(hf.Phi3Config, 37, original_max_position_embeddings=20,
                        rope_parameters=rope("longrope", 5000.0, partial_rotary_factor=0.5, short_factor=[1.0, 1.3, 2.1, 2.4],
                                             long_factor=[1.1, 2.0, 4.0, 7.0]), **{**SQUARE, "tie_word_embeddings": True}),
    "glm4": family(hf.Glm4Config, 38, **DENSE),
    "granitemoe": family(hf.GraniteMoeConfig, 42, v4=True, **{**SQUARE, **GRANITE_MOE}, tie_word_embeddings=True),
    "granitemoehybrid": family(hf.GraniteMoeHybridConfig, 43, **{**SQUARE, **GRANITE_MOE}, shared_intermediate_size=28, layer_types=["attention"] * 2,
                               tie_word_embeddings=False),
    "granitemoehybrid-dense": family(hf.GraniteMoeHybridConfig, 44, **{**SQUARE, **GRANITE_MOE, "num_local_experts": 0},
                                     shared_intermediate_size=28, layer_types=["attention"] * 2, position_embedding_type="rope", tie_word_embeddings=True),
    "hunyuan_v1_moe": family(hf.HunYuanMoEV1Config, 45, num_experts=5, moe_topk=2, attention_bias=True,
                             rope_parameters=rope("dynamic", 10000.0, alpha=50.0, factor=1.0), **DENSE),
    "glm4_moe": family(hf.Glm4MoeConfig, 46, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2,
                       first_k_dense_replace=1, n_group=2, topk_group=1, routed_scaling_factor=1.4, use_qk_norm=True, attention_bias=True,
                       partial_rotary_factor=0.5, **DENSE),
    "minimax_m2": family(hf.MiniMaxM2Config, 47, num_local_experts=5, num_experts_per_tok=2, v4=True, rotary_dim=6, **DENSE),
    "mellum": family(hf.MellumConfig, 48, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, sliding_window=9,
                     layer_types=["sliding_attention", "full_attention", "sliding_attention"], mlp_layer_types=["dense", "sparse", "sparse"],
                     rope_parameters={"full_attention": YARN, "sliding_attention": rope("default", 5000.0)}, **DENSE),
    "exaone4": family(hf.Exaone4Config, 49, sliding_window=9, sliding_window_pattern=2, **DENSE),
    "flex_olmo": family(hf.FlexOlmoConfig, 61, num_experts=5, num_experts_per_tok=4, norm_topk_prob=True,
                        **{**DENSE, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20}),
    "afmoe": family(hf.AfmoeConfig, 51, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, num_shared_experts=2,
                    num_dense_layers=1, route_scale=1.7, mup_enabled=True, sliding_window=9, global_attn_every_n_layers=2, **DENSE),
    "bailing_moe_v2": renamed(hf.Glm4MoeConfig, 52,
                              [(".self_attn.q_proj.", ".attention.query_key_value."), (".self_attn.k_proj.", ".attention.query_key_value."),
                               (".self_attn.v_proj.", ".attention.query_key_value."), (".self_attn.o_proj.", ".attention.dense."),
                               (".self_attn.q_norm.", ".attention.query_layernorm."), (".self_attn.k_norm.", ".attention.key_layernorm."),
                               (".gate.e_score_correction_bias", ".gate.expert_bias"), ("model.embed_tokens.", "model.word_embeddings.")],
                              {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"},
                              dict(model_type="bailing_moe_v2", score_function="sigmoid", partial_rotary_factor=0.5,
                                   moe_shared_expert_intermediate_size=20, moe_router_enable_expert_bias=True),
                              n_group=4, topk_group=2, **GLM4_MOE, **{**DENSE, "head_dim": 16}),
    "qwen": renamed(hf.Qwen2Config, 53,
                    [(".self_attn.q_proj.", ".attn.c_attn."), (".self_attn.k_proj.", ".attn.c_attn."), (".self_attn.v_proj.", ".attn.c_attn."),
                     (".self_attn.o_proj.", ".attn.c_proj."), (".input_layernorm.", ".ln_1."), (".post_attention_layernorm.", ".ln_2."),
                     (".mlp.gate_proj.", ".mlp.w2."), (".mlp.up_proj.", ".mlp.w1."), (".mlp.down_proj.", ".mlp.c_proj."),
                     ("model.layers.", "transformer.h."), ("model.embed_tokens.", "transformer.wte."), ("model.norm.", "transformer.ln_f.")],
                    {"rms_norm_eps": "layer_norm_epsilon", "max_position_embeddings": "seq_length", "rope_theta": "rotary_emb_base"},
                    dict(model_type="qwen", intermediate_size=104, kv_channels=12, no_bias=True, use_dynamic_ntk=True, use_logn_attn=True),
                    **{**{k: v for k, v in DENSE.items() if k != "head_dim"}, "num_key_value_heads": 3}),
    "mistral3": multimodal(hf.Mistral3Config(text_config=dict(model_type="ministral3", **{**BASE, **DENSE}, rope_parameters=MINISTRAL),
                                             vision_config=dict(model_type="pixtral", head_dim=4, **VISION), tie_word_embeddings=False), 54),
    "gemma3-multimodal": multimodal(hf.Gemma3Config(text_config=dict(**{**BASE, **DENSE}, query_pre_attn_scalar=20, sliding_window=9),
                                                    vision_config=dict(model_type="siglip_vision_model", **VISION), mm_tokens_per_image=4), 55),
    "qwen3_5-multimodal": qwen3_5_multimodal(hf.Qwen3_5Config, dict(layer_types=DELTA_LAYERS[:3]), 63),
    "qwen3_5_moe-multimodal": qwen3_5_multimodal(hf.Qwen3_5MoeConfig, dict(
        layer_types=DELTA_LAYERS[:3], num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28), 66),
    "deepseek_v3-fp8": fp8(hf.DeepseekV3Config(**{**BASE, **MLA}, q_lora_rank=14, n_group=1, topk_group=1), 56, [16, 12]),
    "ministral3-fp8": fp8(hf.Ministral3Config(**{**BASE, **DENSE}, rope_parameters=MINISTRAL), 57, None),
    "lfm2": family(hf.Lfm2Config, 50, conv_bias=True, block_multiple_of=8, block_ffn_dim_multiplier=1.3,
                   layer_types=["conv", "full_attention", "conv", "conv"], norm_eps=1e-4,
                   **{**SQUARE, "hidden_size": 36, "intermediate_size": 60, "num_attention_heads": 6, "num_hidden_layers": 4,
                      "tie_word_embeddings": True}),
    "lfm2_moe": family(hf.Lfm2MoeConfig, 51, layer_types=["conv", "full_attention", "conv"], conv_L_cache=4, num_dense_layers=1,
                       num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, routed_scaling_factor=1.4,
                       **{**SQUARE, "num_hidden_layers": 3, "tie_word_embeddings": False}),
    "qwen3_5": family(hf.Qwen3_5TextConfig, 62, norm=0, layer_types=DELTA_LAYERS, attention_bias=True, **DELTA,
                      **{**DELTA_DENSE, "num_hidden_layers": 4, "tie_word_embeddings": True}),
    "qwen3_5_moe": family(hf.Qwen3_5MoeTextConfig, 53, norm=0, layer_types=DELTA_LAYERS[1:], num_experts=6, num_experts_per_tok=3,
                          moe_intermediate_size=20, shared_expert_intermediate_size=28, **DELTA,
                          **{k: v for k, v in DELTA_DENSE.items() if k != "intermediate_size"}),
    "qwen3_next": family(hf.Qwen3NextConfig, 54, norm=0, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                         shared_expert_intermediate_size=28, norm_topk_prob=False, mlp_only_layers=[1], **DELTA,
                         **{**DELTA_DENSE, "num_hidden_layers": 4}),
    "peft": peft_lora,
    "bnb": bnb_nf4,
}


def main():
    root = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or FIXTURES:
        out = root / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        FIXTURES[name](out)
        print(f"{name:20s} {sum(p.stat().st_size for p in out.rglob('*') if p.is_file()) / 1024:7.0f} KiB", flush=True)


if __name__ == "__main__":
    main()
