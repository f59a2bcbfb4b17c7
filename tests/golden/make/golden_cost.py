#!/usr/bin/env python3
"""Makes tests/golden/cost.json: parameters and FLOP of models, counted by hand.

A model is written down as the list of its matrix products in the order of the forward; what `pesc cost`
prints is counted from that list alone, token by token. Products of one group read inputs that do not
depend on each other. Needs no package:

    python3 tests/golden/make/golden_cost.py > tests/golden/cost.json
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
LINEARS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


class Product:
    """out x in; E copies of which a token uses k; `name` is the LoRA target, or None."""

    def __init__(self, part, out, inp, name=None, copies=1, used=1):
        self.part, self.out, self.inp, self.name, self.copies, self.used = part, out, inp, name, copies, used
        self.count = out * inp


def attention(c):
    """Groups of a layer's attention, and the width of a query-key and a value head."""
    d, h = c["hidden_size"], c["num_attention_heads"]
    if "kv_lora_rank" in c:
        nope, rope, v, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        assert c["q_lora_rank"] is None
        first = [Product("attention", h * (nope + rope), d, "q_proj"), Product("attention", rank + rope, d, "k_proj")]
        second = [Product("attention", h * (nope + v), rank, "k_proj")]
        return [first, second, ["scores"], [Product("attention", d, h * v, "o_proj")]], nope + rope, v
    w = c.get("head_dim") or d // h
    kv = c.get("num_key_value_heads", h)
    qkv = [Product("attention", h * w, d, "q_proj"), Product("attention", kv * w, d, "k_proj"),
           Product("attention", kv * w, d, "v_proj")]
    return [qkv, [], ["scores"], [Product("attention", d, h * w, "o_proj")]], w, w


def ffn(part, d, f, copies=1, used=1):
    lora = copies == 1
    return [[Product(part, f, d, "gate_proj" if lora else None, copies, used),
             Product(part, f, d, "up_proj" if lora else None, copies, used)],
            [Product(part, d, f, "down_proj" if lora else None, copies, used)]]


def experts(c):
    return c.get("num_local_experts") or c.get("n_routed_experts") or c.get("num_experts") or 0


def is_sparse(c, layer):
    return experts(c) and layer >= c.get("first_k_dense_replace", 0) and layer not in c.get("mlp_only_layers", [])


def feed_forward(c, layer, molora):
    d, f = c["hidden_size"], c["intermediate_size"]
    e, k = experts(c), c.get("topk") or c.get("num_experts_per_tok")
    if molora:
        e, k, r = molora
        groups = ffn("ffn", d, f)
        groups[0] += [Product("router", e, d)]
        for group, names in ((0, (f, d)), (0, (f, d)), (1, (d, f))):
            out, inp = names
            groups[group] += [Product("lora-a", r, inp, None, e, k), Product("lora-b", out, r, None, e, k)]
        return groups
    if not is_sparse(c, layer):
        return ffn("ffn", d, f)
    if c["model_type"] == "camelidae":
        a = c["adapter_dim"]
        groups = ffn("ffn", d, f)
        groups[0] += [Product("router", e, d)]
        return groups + [[Product("adapters", a, d, None, e, k)], [Product("adapters", d, a, None, e, k)]]
    m = c.get("moe_intermediate_size") or f
    groups = ffn("experts", d, m, e, k)
    groups[0] += [Product("router", e, d)]
    shared = c.get("shared_expert_intermediate_size") or c.get("n_shared_experts", 0) * m
    if shared:
        beside = ffn("shared", d, shared)
        groups = [groups[0] + beside[0], groups[1] + beside[1]]
        if c["model_type"] == "qwen2_moe":
            groups[0] += [Product("router", 1, d)]
    return groups


def norms(c):
    """Weights that are in no product: of norms, and biases of attention."""
    d, layers = c["hidden_size"], c["num_hidden_layers"]
    per_layer, bias = 2 * d, 0
    if "kv_lora_rank" in c:
        per_layer += c["kv_lora_rank"]
    if c["model_type"] in ("qwen2", "qwen2_moe"):
        w = c.get("head_dim") or d // c["num_attention_heads"]
        bias = (c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * w * layers
    return per_layer * layers + d, bias


TRAINS = {"lora": set(), "qlora": set(), "pesc": {"adapters", "router"}, "upcycle": {"experts", "router"},
          "molora": {"lora-a", "lora-b", "router"}}


def count(c, method, tokens, lora_r=64, targets=LINEARS, molora=None):
    def trains(p):
        return method == "full" or p.part in TRAINS[method]

    def rank(p):
        in_ffn = p.name in ("gate_proj", "up_proj", "down_proj")
        lora = method not in ("full",) and p.name in targets and not (molora and in_ffn)
        return lora_r if lora else 0

    parts = {}

    def add(part, key, n):
        parts.setdefault("lora" if part.startswith("lora") else part, {}).setdefault(key, 0)
        parts["lora" if part.startswith("lora") else part][key] += n

    groups = []
    for layer in range(c["num_hidden_layers"]):
        half, qk, v = attention(c)
        groups += [(layer, g) for g in half + feed_forward(c, layer, molora)]
    d, vocab = c["hidden_size"], c["vocab_size"]
    below = method == "full"  # whether something that trains is below the group
    for layer, group in groups:
        for p in group:
            if p == "scores":
                window = c["sliding_window"] if c.get("layer_types", [])[layer:layer + 1] == ["sliding_attention"] else 0
                for t in range(tokens):
                    keys = min(t + 1, window) if window else t + 1
                    one = 2 * c["num_attention_heads"] * keys
                    add("scores", "inference", one * (qk + v))
                    add("scores", "forward", one * (qk + v))
                    add("scores", "backward", one * (3 * qk + 2 * v) if below else 0)
                continue
            n, r = p.count, rank(p)
            flop = 2 * n * p.used * tokens
            mixture = p.part.startswith("lora")  # exists in training only
            if not mixture and not (molora and p.part == "router"):
                add(p.part, "params", n * p.copies)
                add(p.part, "activated", n * p.used)
                add(p.part, "inference", flop)
            add(p.part, "trained", n * p.copies if trains(p) else 0)
            add(p.part, "forward", flop)
            again = p.part == "lora-b"
            add(p.part, "backward", flop * (trains(p) + (below or again) + again))
            if r:
                a, b = r * p.inp, r * p.out
                add("lora", "trained", a + b)
                add("lora", "forward", 2 * (a + b) * tokens)
                add("lora", "backward", 2 * (a + b + b + (a if below else 0)) * tokens)
        below = below or any(p != "scores" and (trains(p) or rank(p)) for p in group)
    weights, bias = norms(c)
    add("norms", "params", weights)
    add("norms", "activated", weights)
    add("norms", "trained", weights if method == "full" else 0)
    if bias:
        for key, n in (("params", bias), ("activated", bias), ("trained", bias if method == "full" else 0)):
            add("attention", key, n)
    tied = c.get("tie_word_embeddings", False)
    for part in ["embedding"] + ([] if tied else ["head"]):
        for key, n in (("params", vocab * d), ("activated", vocab * d),
                       ("trained", vocab * d if method == "full" else 0)):
            add(part, key, n)
    head = 2 * vocab * d * tokens
    add("head", "inference", head)
    add("head", "forward", head)
    add("head", "backward", head * (2 if method == "full" else 1))
    keys = ("params", "activated", "trained", "inference", "forward", "backward")
    rows = {part: [row.get(k, 0) for k in keys] for part, row in parts.items()}
    rows["total"] = [sum(row[i] for row in rows.values()) for i in range(6)]
    return rows


def config(path):
    return json.loads((ROOT / path).read_text())


def main():
    dense, sparse = config("bench/shapes/7b.json"), config("bench/shapes/7b-pesc.json")
    small = config("bench/shapes/135m-pesc.json")
    b13 = dict(sparse, hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40,
               num_key_value_heads=40)
    golden = {f: config(f"tests/golden/{f}/config.json") for f in ("mixtral", "qwen2_moe", "deepseek_v2", "qwen2-window")}
    cases = [
        ("7B, dense", dense, "lora", 512, {}),
        ("8x7B", sparse, "pesc", 512, {}),
        ("8x13B", b13, "pesc", 64, {}),
        ("8x34B", config("bench/shapes/34b-pesc.json"), "pesc", 64, {}),
        ("8x7B without LoRA", sparse, "pesc", 64, {"lora_r": 0}),
        ("7B, mixture of LoRA", dense, "molora", 64, {"lora_r": 16, "molora": [4, 2, 16]}),
        ("135M, tied, all of it", small, "full", 64, {}),
        ("mixtral, experts", golden["mixtral"], "upcycle", 33, {"lora_r": 4}),
        ("qwen2_moe, all of it", golden["qwen2_moe"], "full", 20, {}),
        ("qwen2_moe, LoRA on two linears", golden["qwen2_moe"], "lora", 20, {"lora_r": 4, "targets": ["o_proj", "down_proj"]}),
        ("deepseek_v2", golden["deepseek_v2"], "upcycle", 20, {"lora_r": 4}),
        ("qwen2 with a window", golden["qwen2-window"], "lora", 20, {"lora_r": 4, "targets": ["q_proj"]}),
    ]
    out = []
    for name, c, method, tokens, extra in cases:
        options = ["--method", method, "--tokens", str(tokens)]
        if "lora_r" in extra:
            options += ["--lora-r", str(extra["lora_r"])]
        if "targets" in extra:
            options += ["--lora-targets", ",".join(extra["targets"])]
        if "molora" in extra:
            options += ["--experts", str(extra["molora"][0]), "--top-k", str(extra["molora"][1])]
        out.append({"name": name, "config": c, "options": options, "parts": count(c, method, tokens, **extra)})
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
