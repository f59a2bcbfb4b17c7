"""What `pesc compare A B` must print, in plain Python over float64: python3 compare_oracle.py A B records.jsonl

Reads Hugging Face directories of llama, camelidae (PESC) and mixtral models with one safetensors file;
records are {"input_ids": [...]}.
"""
import json
import math
import struct
import sys


def read_tensors(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*t["data_offsets"])]
        if t["dtype"] == "F32":
            v = struct.unpack(f"<{len(raw) // 4}f", raw)
        else:
            assert t["dtype"] == "BF16", t
            v = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
        out[name] = list(v) if len(t["shape"]) == 1 else [list(v[i * t["shape"][1]:(i + 1) * t["shape"][1]])
                                                          for i in range(t["shape"][0])]
    return out


def times(w, x):
    return [sum(a * b for a, b in zip(row, x)) for row in w]


def add(a, b, scale=1):
    return [x + scale * y for x, y in zip(a, b)]


def norm(x, w, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * g for v, g in zip(x, w)]


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    return [v / sum(e) for v in e]


def silu(v):
    return v / (1 + math.exp(-v))


def gelu(v):
    return 0.5 * v * (1 + math.erf(v / math.sqrt(2)))


class Model:
    def __init__(self, path):
        self.c = json.load(open(f"{path}/config.json"))
        self.w = read_tensors(f"{path}/model.safetensors")
        self.kind = self.c["model_type"]
        self.experts = self.c.get("num_local_experts") or self.c.get("num_experts")

    def layer(self, i, name):
        return self.w[f"model.layers.{i}.{name}.weight"]

    def attention(self, i, xs):
        c, heads, kv = self.c, self.c["num_attention_heads"], self.c["num_key_value_heads"]
        d = c["hidden_size"] // heads
        rope = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]

        def rotate(v, pos):
            out = list(v)
            for h in range(0, len(v), d):
                for j in range(d // 2):
                    angle = pos * rope ** (-2 * j / d)
                    a, b = v[h + j], v[h + j + d // 2]
                    out[h + j] = a * math.cos(angle) - b * math.sin(angle)
                    out[h + j + d // 2] = b * math.cos(angle) + a * math.sin(angle)
            return out

        hs = [norm(x, self.layer(i, "input_layernorm"), c["rms_norm_eps"]) for x in xs]
        q = [rotate(times(self.layer(i, "self_attn.q_proj"), h), t) for t, h in enumerate(hs)]
        k = [rotate(times(self.layer(i, "self_attn.k_proj"), h), t) for t, h in enumerate(hs)]
        v = [times(self.layer(i, "self_attn.v_proj"), h) for h in hs]
        out = []
        for t in range(len(xs)):
            row = []
            for h in range(heads):
                g = h // (heads // kv)
                scores = [sum(a * b for a, b in zip(q[t][h * d:(h + 1) * d], k[s][g * d:(g + 1) * d])) / math.sqrt(d)
                          for s in range(t + 1)]
                p = softmax(scores)
                row += [sum(p[s] * v[s][g * d + j] for s in range(t + 1)) for j in range(d)]
            out.append(add(xs[t], times(self.layer(i, "self_attn.o_proj"), row)))
        return out

    def ffn(self, i, h, names):
        gate, up, down = (self.layer(i, n) for n in names)
        return times(down, [silu(a) * b for a, b in zip(times(gate, h), times(up, h))])

    def plain(self, i, h):
        return self.ffn(i, h, ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"))

    def expert(self, i, e, h):
        """The output of expert e alone."""
        if self.kind == "mixtral":
            return self.ffn(i, h, [f"block_sparse_moe.experts.{e}.{w}" for w in ("w1", "w3", "w2")])
        f, at = self.plain(i, h), f"mlp.moe_adapter.experts.expert_{e}"
        mid = [gelu(v) for v in times(self.layer(i, at + ".adapter_down"), f)]
        return add(f, times(self.layer(i, at + ".adapter_up"), mid), self.c["moe_scaling"])

    def feed_forward(self, i, h):
        if self.kind == "llama":
            return self.plain(i, h)
        router = "block_sparse_moe.gate" if self.kind == "mixtral" else "mlp.moe_adapter.router"
        z = times(self.layer(i, router), h)
        k = self.c.get("topk") or self.c["num_experts_per_tok"]
        best = sorted(range(len(z)), key=lambda e: -z[e])[:k]
        out = [0.0] * len(h)
        for g, e in zip(softmax([z[e] for e in best]), best):
            out = add(out, self.expert(i, e, h), g)
        return out


def square(v):
    return sum(x * x for x in v)


def main():
    a, b = Model(sys.argv[1]), Model(sys.argv[2])
    layers, n = a.c["num_hidden_layers"], 0
    sums = [[0.0] * 4 for _ in range(layers)]
    kinds = {a.kind: a, b.kind: b}
    pair = (kinds["mixtral"], kinds["camelidae"]) if set(kinds) == {"mixtral", "camelidae"} else None
    pair = pair if pair and pair[0].experts == pair[1].experts else None
    e = pair[0].experts if pair else 0
    far = [[[0.0] * e for _ in range(e)] for _ in range(layers)]
    size = [[0.0] * e for _ in range(layers)]
    kl = same = targets = loss_a = loss_b = 0
    for line in open(sys.argv[3]):
        ids = json.loads(line)["input_ids"]
        n += len(ids)
        xs = [[list(m.w["model.embed_tokens.weight"][t]) for t in ids] for m in (a, b)]
        for i in range(layers):
            after = []
            for which, m in enumerate((a, b)):
                mid = m.attention(i, xs[which])
                hs = [norm(x, m.layer(i, "post_attention_layernorm"), m.c["rms_norm_eps"]) for x in mid]
                if which == 0 and pair:
                    for h in hs:
                        small = [pair[1].expert(i, j, h) for j in range(e)]
                        for x in range(e):
                            full = pair[0].expert(i, x, h)
                            size[i][x] += square(full)
                            for y in range(e):
                                far[i][x][y] += square(add(full, small[y], -1))
                outs = [m.feed_forward(i, h) for h in hs]
                after.append(outs)
                xs[which] = [add(x, y) for x, y in zip(mid, outs)]
            for t in range(len(ids)):
                sums[i][0] += square(add(after[0][t], after[1][t], -1))
                sums[i][1] += square(after[0][t])
                sums[i][2] += square(add(xs[0][t], xs[1][t], -1))
                sums[i][3] += square(xs[0][t])
        for t in range(len(ids)):
            p, q = (softmax(times(m.w["lm_head.weight"], norm(x[t], m.w["model.norm.weight"], m.c["rms_norm_eps"])))
                    for m, x in ((a, xs[0]), (b, xs[1])))
            kl += sum(x * math.log(x / y) for x, y in zip(p, q))
            same += p.index(max(p)) == q.index(max(q))
            if t + 1 < len(ids):
                targets += 1
                loss_a -= math.log(p[ids[t + 1]])
                loss_b -= math.log(q[ids[t + 1]])
    rows = []
    for i in range(layers):
        row = {"layer": i, "ffn": math.sqrt(sums[i][0] / sums[i][1]), "residual": math.sqrt(sums[i][2] / sums[i][3]),
               "experts": None, "nearest": None}
        if pair:
            row["experts"] = sum(math.sqrt(far[i][x][x] / size[i][x]) for x in range(e)) / e
            row["nearest"] = sum(math.sqrt(min(far[i][x]) / size[i][x]) for x in range(e)) / e
        rows.append(row)
    print(json.dumps({"tokens": n, "kl": kl / n, "greedy_same": same, "targets": targets,
                      "loss_model": loss_a / targets, "loss_other": loss_b / targets, "layers": rows}))


if __name__ == "__main__":
    main()
