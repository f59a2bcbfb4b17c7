#!/usr/bin/env python3
"""Makes the folders of tests/golden that end in -adapters: mixtures of transformers with adapters beside their experts, which are
written out as in golden_families.py. Run with a Python that has torch, transformers and safetensors:

    python tests/golden/make/golden_beside.py tests/golden [name ...]
"""
import pathlib
import shutil
import sys
import types

import transformers as hf
from golden_families import BASE, MLA, Adapters, edit_config, randomise, randomise_buffers, record
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=24, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             tie_word_embeddings=True)


def beside(config_class, seed, experts, **kw):
    """Adapters beside the experts of a mixture of transformers: y = m + s sum_k g_k U_k gelu(D_k m), where m is what the mixture gives,
    with shared experts, and the adapters' own router reads what the mixture reads."""
    def make(out):
        config = config_class(**{**BASE, **kw})
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        randomise(model, seed)
        randomise_buffers(model, seed)
        model.save_pretrained(out)
        (out / "generation_config.json").unlink(missing_ok=True)
        state = load_file(out / "model.safetensors")
        size = dict(num_experts=experts, topk=2, adapter_dim=6, moe_scaling=0.25, hidden_size=config.hidden_size)
        for number, layer in enumerate(model.model.layers):
            if not hasattr(layer.mlp, "experts"):
                continue
            layer.mlp.moe_adapter = Adapters(types.SimpleNamespace(**size))
            randomise(layer.mlp.moe_adapter, seed + number)
            state.update({f"model.layers.{number}.mlp.moe_adapter.{k}": v
                          for k, v in layer.mlp.moe_adapter.state_dict().items()})
            full = type(layer.mlp).forward
            layer.mlp.forward = (lambda m, full: lambda x: m.moe_adapter(x, full(m, x)))(layer.mlp, full)
        record(model, out, seed)
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
        edit_config(out, lambda c: c.update(adapter_experts=experts, adapter_top_k=2, adapter_dim=6, moe_scaling=0.25))
    return make


FIXTURES = {
    "qwen2_moe-adapters": beside(hf.Qwen2MoeConfig, 71, 4, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12,
                                 shared_expert_intermediate_size=20, mlp_only_layers=[1], norm_topk_prob=False, **SMALL),
    "deepseek_v3-adapters": beside(hf.DeepseekV3Config, 74, 4, q_lora_rank=14, n_group=3, topk_group=2, norm_topk_prob=True,
                                   routed_scaling_factor=2.5, **{**MLA, "hidden_size": 24, "moe_intermediate_size": 12}),
    "flex_olmo-adapters": beside(hf.FlexOlmoConfig, 73, 5, num_experts=5, num_experts_per_tok=4, norm_topk_prob=True, **SMALL),
}

for name in sys.argv[2:] or FIXTURES:
    out = pathlib.Path(sys.argv[1]) / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    FIXTURES[name](out)
