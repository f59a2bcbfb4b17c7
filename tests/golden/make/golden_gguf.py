#!/usr/bin/env python3
"""Makes GGUF files of the models in tests/golden, and checks that pesc reads them as the same model.

    python tests/golden/make/golden_gguf.py make tests/golden/llama llama.gguf [--type Q8_0] [--split-kv]
    python tests/golden/make/golden_gguf.py fixtures tests/golden          writes tests/golden/gguf/*.gguf
    python tests/golden/make/golden_gguf.py check tests/golden build/pesc  every family, every type that fits

Names and keys are those of the `gguf` package (llama.cpp's own), rows of q and k are permuted as
llama.cpp's converter does, experts are stacked. Logits of an F32 file must equal transformers'
(logits.npy of the folder) as well as those of the folder itself do; those of other types must equal
the logits of an F32 file with the same rounded weights. Needs numpy, safetensors and gguf.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from safetensors.numpy import load_file

Type = gguf.GGMLQuantizationType

ARCHS = {
    "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA, "camelidae": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "olmoe": gguf.MODEL_ARCH.OLMOE, "deepseek_v2": gguf.MODEL_ARCH.DEEPSEEK2,
    "lfm2_moe": gguf.MODEL_ARCH.LFM2MOE, "qwen3_5_text": gguf.MODEL_ARCH.QWEN35,
    "qwen3_5_moe_text": gguf.MODEL_ARCH.QWEN35MOE, "qwen3_next": gguf.MODEL_ARCH.QWEN3NEXT,
}
FOLDERS = ["llama", "llama-square", "llama3", "yi", "mistral", "qwen2", "qwen3", "mixtral",
           "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v2-yarn", "camelidae",
           "qwen2idae", "lfm2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next"]
# Together they show names, permutation, stacking, MLA, adapters, delta nets and blocks, and stay small.
FIXTURES = [("llama3", "F32", False), ("llama-square", "Q8_0", False),
            ("camelidae", "F16", False), ("qwen3_moe", "F16", False),
            ("deepseek_v2", "F16", True), ("qwen3_5", "F16", False), ("qwen3_next", "F16", False)]


def rope_of(config):
    """(theta, scaling) in either spelling of transformers."""
    new = config.get("rope_parameters") or {}
    theta = new.get("rope_theta", config.get("rope_theta", 10000.0))
    scaling = config.get("rope_scaling") or (new if new.get("rope_type", "default") != "default" else None)
    return theta, scaling


def llama3_factors(scaling, theta, head_dim):
    """Llama 3's rule, pair by pair, as llama.cpp's converter stores it."""
    factor, low, high = (scaling[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    old = scaling["original_max_position_embeddings"]
    out = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (i / head_dim)
        if wavelength < old / high:
            out.append(1.0)
        elif wavelength > old / low:
            out.append(factor)
        else:
            smooth = (old / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


def permute(w, heads):
    return (w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2)
            .reshape(w.shape))


def add_keys(w, config, arch, split_kv):
    c = config
    pesc = "adapter_dim" in c
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    if "intermediate_size" in c:
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    if "conv_L_cache" in c:
        w.add_head_count_kv([c["num_key_value_heads"] * (t == "full_attention") for t in c["layer_types"]])
        w.add_shortconv_l_cache(c["conv_L_cache"])
        w.add_leading_dense_block_count(c["num_dense_layers"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(c["routed_scaling_factor"])
    else:
        w.add_head_count_kv(1 if split_kv else c["num_key_value_heads"])
    if "linear_num_key_heads" in c:
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"])
        w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
        w.add_array(f"{arch}.attention.recurrent_layers", [t != "full_attention" for t in c["layer_types"]])
        w.add_expert_weights_norm(c.get("norm_topk_prob", True))
    w.add_layer_norm_rms_eps(c["norm_eps"] if "conv_L_cache" in c else c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    theta, scaling = rope_of(c)
    w.add_rope_freq_base(theta)
    if arch == "deepseek2":
        nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        if split_kv:
            w.add_key_length(c["kv_lora_rank"] + rope)
            w.add_value_length(c["kv_lora_rank"])
            w.add_key_length_mla(nope + rope)
            w.add_value_length_mla(v)
        else:
            w.add_key_length(nope + rope)
            w.add_value_length(v)
        w.add_rope_dimension_count(rope)
        if c["q_lora_rank"]:
            w.add_q_lora_rank(c["q_lora_rank"])
        w.add_kv_lora_rank(c["kv_lora_rank"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_shared_count(c["n_shared_experts"])
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        w.add_expert_weights_norm(c["norm_topk_prob"])
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])
    elif c.get("head_dim"):
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
        partial = (c.get("rope_parameters") or {}).get("partial_rotary_factor", 1)
        w.add_rope_dimension_count(int(c["head_dim"] * partial))
    if scaling and scaling["rope_type"] == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(scaling["factor"])
        w.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        if "mscale_all_dim" in scaling:
            w.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])
    if c["model_type"] == "mistral" and c.get("sliding_window"):
        w.add_sliding_window(c["sliding_window"])
    experts = next((c[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if k in c), 0)
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(c["topk"] if pesc else c["num_experts_per_tok"])
    if "moe_intermediate_size" in c:
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if pesc:
        w.add_uint32("pesc.adapter_length", c["adapter_dim"])
        w.add_float32("pesc.adapter_scale", c["moe_scaling"])


def stacked(tensors):
    """Experts 0..n-1 under one name without the number; everything else as it is."""
    out, groups = {}, {}
    for name, t in list(tensors.items()):
        if name.endswith("experts.gate_up_proj"):
            tensors[name.replace("gate_up_proj", "gate_proj.weight")], tensors[name.replace("gate_up_proj", "up_proj.weight")] = \
                np.split(tensors.pop(name), 2, axis=1)
        elif name.endswith("experts.down_proj"):
            tensors[name + ".weight"] = tensors.pop(name)
    for name, t in tensors.items():
        m = re.fullmatch(r"(.*\.experts)\.(?:expert_)?(\d+)(\..*)", name)
        if m:
            groups.setdefault(m[1] + m[3], {})[int(m[2])] = t
        else:
            out[name] = t
    for name, parts in groups.items():
        out[name] = np.stack([parts[i] for i in range(len(parts))])
    return out


def halves(name, t, config):
    """kv_b_proj as llama.cpp splits it since it caches the latent: k transposed, v as it is."""
    heads, nope, v = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
    kv = t.reshape(heads, nope + v, t.shape[-1])
    yield name.replace("kv_b_proj", "k_b_proj"), kv[:, :nope].transpose(0, 2, 1)
    yield name.replace("kv_b_proj", "v_b_proj"), kv[:, nope:]


def delta(name, t, config):
    """A tensor of a gated delta net as llama.cpp has it: its conversion/qwen.py in NumPy."""
    nk, nv = config["linear_num_key_heads"], config["linear_num_value_heads"]
    dk, dv, r = config["linear_key_head_dim"], config["linear_value_head_dim"], nv // nk
    if ".in_proj_qkvz." in name:
        q, k, v, z = np.split(t.reshape(nk, -1, t.shape[-1]), [dk, 2 * dk, 2 * dk + r * dv], axis=1)
        yield name.replace("qkvz", "qkv"), np.concatenate([x.reshape(-1, t.shape[-1]) for x in (q, k, v)])
        yield name.replace("qkvz", "z"), z.reshape(-1, t.shape[-1])
        return

    def tiled(x, width):
        return x.reshape(nk, r, width, -1).swapaxes(0, 1).reshape(x.shape)

    t = t[:, 0] if "conv1d" in name else t
    if config["model_type"] != "qwen3_next":
        if ".in_proj_qkv." in name or "conv1d" in name:
            t = np.concatenate([t[:2 * nk * dk], tiled(t[2 * nk * dk:], dv)])
        elif ".in_proj_z." in name:
            t = tiled(t, dv)
        elif re.search(r"in_proj_[ab]\.|A_log|dt_bias", name):
            t = tiled(t, 1)
        elif ".out_proj." in name:
            t = tiled(t.T, dv).T
    yield name, -np.exp(t) if name.endswith("A_log") else t


def gguf_name(name, names):
    special = re.fullmatch(r"model\.layers\.(\d+)\.(linear_attn\.dt_bias|linear_attn\.A_log|feed_forward\.expert_bias)", name)
    if special:
        part = {"linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a",
                "feed_forward.expert_bias": "exp_probs_b.bias"}[special[2]]
        return f"blk.{special[1]}.{part}"
    adapter = re.fullmatch(r"model\.layers\.(\d+)\.mlp\.moe_adapter\.(.*)\.weight", name)
    if adapter:
        part = {"router": "inp", "experts.adapter_down": "down_exps",
                "experts.adapter_up": "up_exps"}[adapter[2]]
        return f"blk.{adapter[1]}.ffn_adapter_{part}.weight"
    for table in names:
        for spelt in (name, name.removeprefix("model.")):
            found = table.get_name(spelt, try_suffixes=(".weight", ".bias"))
            if found:
                return found
    raise KeyError(name)


def tensors_of(folder, config, split_kv):
    """(GGUF name, f32 array) of every tensor."""
    arch = ARCHS[config["model_type"]]
    # llama.cpp knows no plain FFN in Qwen's mixtures; the names of a plain Llama's serve
    names = [gguf.get_tensor_name_map(a, config["num_hidden_layers"])
             for a in (arch, gguf.MODEL_ARCH.LLAMA)]
    permuted = arch == gguf.MODEL_ARCH.LLAMA or "adapter_dim" in config
    theta, scaling = rope_of(config)
    if scaling and scaling["rope_type"] == "llama3":
        yield "rope_freqs.weight", llama3_factors(scaling, theta, config["head_dim"])
    for name, t in stacked(load_file(folder / "model.safetensors")).items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        if permuted and ".q_proj." in name:
            t = permute(t, config["num_attention_heads"])
        if permuted and ".k_proj." in name:
            t = permute(t, config["num_key_value_heads"])
        if "linear_num_key_heads" in config and name.endswith("norm.weight") and ".linear_attn." not in name:
            t = t + 1
        t = t[:, 0] if ".conv.conv." in name else t
        parts = halves(name, t, config) if split_kv and "kv_b_proj" in name else \
            delta(name, t, config) if ".linear_attn." in name else [(name, t)]
        for part, value in parts:
            yield gguf_name(part, names), np.ascontiguousarray(value, np.float32)


def stored_as(name, t, kind):
    """What llama.cpp keeps in f32, and what does not fit into blocks, stays f32."""
    block = gguf.GGML_QUANT_SIZES[kind][0]
    conv = name.endswith(("ssm_conv1d.weight", "shortconv.conv.weight"))
    plain = t.squeeze().ndim < 2 or name.endswith("_inp.weight") or conv or t.shape[-1] % block
    return Type.F32 if plain else kind


def make(folder, out, kind="F32", split_kv=False, rounded=False):
    """Writes the model; `rounded`: as F32, but with the values that `kind` would have kept."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    arch = "pesc" if "adapter_dim" in config else gguf.MODEL_ARCH_NAMES[ARCHS[config["model_type"]]]
    w = gguf.GGUFWriter(str(out), arch)
    w.add_name(folder.name)
    add_keys(w, config, arch, split_kv)
    kind = Type[kind]
    used = set()
    for name, t in tensors_of(folder, config, split_kv):
        t = t.squeeze() if t.ndim == 2 else t
        as_kind = stored_as(name, t, kind)
        used.add(as_kind)
        data = gguf.quants.quantize(t, as_kind)
        if rounded:
            w.add_tensor(name, gguf.quants.dequantize(data, as_kind).reshape(t.shape))
        else:
            w.add_tensor(name, data, raw_dtype=as_kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return used


def logits(pesc, model, ids, folder):
    out = pathlib.Path(folder) / "out.npy"
    subprocess.run([pesc, "logits", str(model), "--ids", str(ids), "-o", str(out), "-q"], check=True)
    return np.load(out)


def check(golden, pesc):
    failed = 0
    with tempfile.TemporaryDirectory() as temp:
        file, plain = pathlib.Path(temp) / "m.gguf", pathlib.Path(temp) / "f32.gguf"

        def report(what, got, want, limit):
            nonlocal failed
            worst = float(np.abs(got.reshape(want.shape) - want).max())
            failed += not worst <= limit
            print(f"{'ok  ' if worst <= limit else 'FAIL'} {what:32} largest difference {worst:.2e}")

        for name in FOLDERS:
            folder = golden / name
            ids = folder / "ids.json"
            want = np.load(folder / "logits.npy")
            for split in ([False, True] if "deepseek" in name else [False]):
                make(folder, file, "F32", split)
                report(f"{name} F32{' split' if split else ''}", logits(pesc, file, ids, temp), want, 1e-4)
            for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
                if Type[kind] not in make(folder, file, kind):
                    continue
                make(folder, plain, kind, rounded=True)
                report(f"{name} {kind}", logits(pesc, file, ids, temp), logits(pesc, plain, ids, temp), 1e-5)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--type", default="F32", choices=[t.name for t in Type])
    one.add_argument("--split-kv", action="store_true")
    fixtures = commands.add_parser("fixtures")
    fixtures.add_argument("golden", type=pathlib.Path)
    compare = commands.add_parser("check")
    compare.add_argument("golden", type=pathlib.Path)
    compare.add_argument("pesc")
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.out, args.type, args.split_kv)
    if args.command == "fixtures":
        (args.golden / "gguf").mkdir(exist_ok=True)
        for name, kind, split in FIXTURES:
            make(args.golden / name, args.golden / "gguf" / f"{name}-{kind.lower()}.gguf", kind, split)
    return check(args.golden, args.pesc) if args.command == "check" else 0


if __name__ == "__main__":
    sys.exit(min(main(), 1))
