"""A GGUF LoRA against the PEFT directory it was made from: gguf_lora.py LORA.gguf PEFT. Reads both formats by itself.
gguf_lora.py LORA.gguf BASE.gguf MERGED.gguf: the base and the LoRA must add up to a model that the LoRA was merged into."""

import json
import math
import struct
import sys


def floats(data, start, n):
    return struct.unpack_from(f"<{n}f", data, start)


def rows(values, n):
    return [values[at:at + n] for at in range(0, len(values), n)]


def read_gguf(path):
    data = open(path, "rb").read()
    at = [8]

    def take(form):
        value = struct.unpack_from("<" + form, data, at[0])
        at[0] += struct.calcsize("<" + form)
        return value[0]

    def text():
        n = take("Q")
        at[0] += n
        return data[at[0] - n:at[0]].decode()
    assert data[:4] == b"GGUF"
    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}

    def value(kind):
        if kind == 9:
            each, n = take("I"), take("Q")
            return [value(each) for _ in range(n)]
        return text() if kind == 8 else take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])
    for _ in range(n_keys):
        key, kind = text(), take("I")
        keys[key] = value(kind)
    infos = [(text(), [take("Q") for _ in range(take("I"))], take("I"), take("Q")) for _ in range(n_tensors)]
    start = -(-at[0] // 32) * 32
    tensors = {}
    for name, dims, kind, offset in infos:
        assert kind == 0, "f32"
        width, n_rows = dims[0], math.prod(dims[1:])
        tensors[name] = rows(floats(data, start + offset, width * n_rows), width)
    return keys, tensors


def read_safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack_from("<Q", data)[0]
    head = json.loads(data[8:8 + n])
    tensors = {}
    for name, t in head.items():
        if name != "__metadata__":
            n_rows, width = t["shape"]
            tensors[name] = rows(floats(data, 8 + n + t["data_offsets"][0], n_rows * width), width)
    return tensors


def product(b, a, scale):
    columns = list(zip(*a))
    return [[scale * sum(x * y for x, y in zip(row, column)) for column in columns] for row in b]


NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
         "up_proj": "ffn_up", "down_proj": "ffn_down"}
HEADS = {"q_proj": 4, "k_proj": 2}  # of share/base

keys, tensors = read_gguf(sys.argv[1])
if len(sys.argv) == 4:
    base, merged = (read_gguf(path)[1] for path in sys.argv[2:])
    stems = {name.rsplit(".", 1)[0] for name in tensors}
    assert stems and stems <= set(base), stems - set(base)
    for name, was in base.items():
        want = [list(row) for row in was]
        if name in stems:
            b = tensors[name + ".lora_b"]
            for row, more in zip(want, product(b, tensors[name + ".lora_a"], keys["adapter.lora.alpha"] / len(b[0])), strict=True):
                row[:] = [x + y for x, y in zip(row, more, strict=True)]
        off = max(abs(x - y) for row, other in zip(want, merged[name], strict=True) for x, y in zip(row, other, strict=True))
        assert off <= 1e-5, (name, off)
    sys.exit()
peft, config = read_safetensors(sys.argv[2] + "/adapter_model.safetensors"), json.load(open(sys.argv[2] + "/adapter_config.json"))
assert (keys["general.type"], keys["adapter.type"], keys["general.architecture"]) == ("adapter", "lora", "llama"), keys
assert len(tensors) == len(peft) > 20, (len(tensors), len(peft))
for name, a in peft.items():
    if not name.endswith("lora_A.weight"):
        continue
    parts = name.split(".")
    layer, module = parts[parts.index("layers") + 1], parts[-3]
    alpha = (config.get("alpha_pattern") or {}).get(module, config["lora_alpha"])
    delta = product(peft[name.replace("lora_A", "lora_B")], a, alpha / config["r"])
    if module in HEADS:  # rows of a head: those of its first half and of its second half alternate
        head = len(delta) // HEADS[module]
        delta = [delta[h + half * head // 2 + i] for h in range(0, len(delta), head) for i in range(head // 2) for half in (0, 1)]
    stem = f"blk.{layer}.{NAMES[module]}.weight"
    ours_b = tensors[stem + ".lora_b"]
    ours = product(ours_b, tensors[stem + ".lora_a"], keys["adapter.lora.alpha"] / len(ours_b[0]))
    largest = max(abs(x) for row in delta for x in row)
    off = max(abs(x - y) for row, other in zip(delta, ours, strict=True) for x, y in zip(row, other, strict=True))
    assert off <= 1e-6 * max(largest, 1e-9), (stem, off)
