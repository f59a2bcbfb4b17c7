"""A model with adapters as experts (PESC), for Hugging Face transformers. Written by `pesc export --to hf` and `pesc craft`.

    AutoModelForCausalLM.from_pretrained(DIRECTORY, trust_remote_code=True)

The dense part is transformers' own Llama, Mistral, Qwen2 or Qwen3. In the sparse layers the output f of the FFN becomes

    y = f + s * sum_k g_k up_k(act(down_k(f)))

over the k experts that the router chooses from the input of the FFN. The gates g are the softmax over the k chosen
logits, or, with adapter_router "softmax-before", the k largest of the softmax over all of them."""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import (LlamaConfig, LlamaForCausalLM, LlamaModel, MistralConfig, MistralForCausalLM, MistralModel, Qwen2Config,
                          Qwen2ForCausalLM, Qwen2Model, Qwen3Config, Qwen3ForCausalLM)
from transformers.activations import ACT2FN


class Adapter(nn.Module):
    """One expert; `act` belongs to all of them."""

    def __init__(self, width, inner):
        super().__init__()
        self.adapter_down = nn.Linear(width, inner, bias=False)
        self.adapter_up = nn.Linear(inner, width, bias=False)

    def forward(self, f, act):
        return self.adapter_up(act(self.adapter_down(f)))


class Adapters(nn.Module):
    """The router and the experts of a layer."""

    def __init__(self, config):
        super().__init__()
        self.top_k = config.topk
        self.scale = config.moe_scaling
        self.softmax_before = getattr(config, "adapter_router", "softmax-after") == "softmax-before"
        self.act = ACT2FN[getattr(config, "adapter_act", "gelu")]
        self.router = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        prefix = getattr(config, "expert_prefix", "expert_")  # of the names of experts in the files
        self.experts = nn.ModuleDict({f"{prefix}{i}": Adapter(config.hidden_size, config.adapter_dim)
                                      for i in range(config.num_experts)})

    def route(self, x):
        """Gates and numbers of the chosen experts, both [tokens, k], in float32."""
        logits = F.linear(x.float(), self.router.weight.float())
        top, chosen = logits.topk(self.top_k, dim=-1)
        gates = logits.softmax(-1).gather(-1, chosen) if self.softmax_before else top.softmax(-1)
        return gates, chosen

    def forward(self, x, f):
        flat = f.reshape(-1, f.shape[-1])
        gates, chosen = self.route(x.reshape(-1, x.shape[-1]))
        added = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts.values()):
            row, slot = (chosen == number).nonzero(as_tuple=True)
            if row.numel():
                gate = gates[row, slot].unsqueeze(-1).to(flat.dtype)
                added.index_add_(0, row, gate * expert(flat[row], self.act))
        return f + self.scale * added.view_as(f)


class SparseMLP(nn.Module):
    """The FFN of a layer with its adapters, under the names that the weights have."""

    def __init__(self, config):
        super().__init__()
        bias = getattr(config, "mlp_bias", False)
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=bias)
        self.act_fn = ACT2FN[config.hidden_act]
        self.moe_adapter = Adapters(config)

    def forward(self, x):
        return self.moe_adapter(x, self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))


def add_adapters(model):
    plain = getattr(model.config, "mlp_only_layers", None) or []
    for number, layer in enumerate(getattr(model, "model", model).layers):
        if number not in plain:
            layer.mlp = SparseMLP(model.config)
    model.post_init()


class PescLlamaConfig(LlamaConfig):
    model_type = "camelidae"


class PescMistralConfig(MistralConfig):
    model_type = "sparsetral"


class PescQwen2Config(Qwen2Config):
    model_type = "qwen2idae"


class PescQwen3Config(Qwen3Config):
    model_type = "qwen3"


class PescLlamaModel(LlamaModel):
    config_class = PescLlamaConfig

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)


class PescLlamaForCausalLM(LlamaForCausalLM):
    config_class = PescLlamaConfig

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)


class PescMistralModel(MistralModel):
    config_class = PescMistralConfig

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)


class PescMistralForCausalLM(MistralForCausalLM):
    config_class = PescMistralConfig

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)


class PescQwen2Model(Qwen2Model):
    config_class = PescQwen2Config

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)


class PescQwen2ForCausalLM(Qwen2ForCausalLM):
    config_class = PescQwen2Config

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)


class PescQwen3ForCausalLM(Qwen3ForCausalLM):
    config_class = PescQwen3Config

    def __init__(self, config):
        super().__init__(config)
        add_adapters(self)
