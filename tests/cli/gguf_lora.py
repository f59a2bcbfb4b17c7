"""A GGUF LoRA against the PEFT directory it was made from: gguf_lora.py LORA.gguf PEFT. Reads both formats by itself."""

import json
import struct
import sys

import numpy


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
    for _ in range(n_keys):
        key, kind = text(), take("I")
        keys[key] = text() if kind == 8 else take({4: "I", 6: "f", 7: "?"}[kind])
    infos = [(text(), [take("Q") for _ in range(take("I"))], take("I"), take("Q")) for _ in range(n_tensors)]
    start = -(-at[0] // 32) * 32
    tensors = {}
    for name, ne, kind, offset in infos:
        assert kind == 0, "f32"
        tensors[name] = numpy.frombuffer(data, "<f4", int(numpy.prod(ne)), start + offset).reshape(ne[::-1])
    return keys, tensors


def read_safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack_from("<Q", data)[0]
    head = json.loads(data[8:8 + n])
    return {name: numpy.frombuffer(data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]], "<f4").reshape(t["shape"])
            for name, t in head.items() if name != "__metadata__"}


NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
         "up_proj": "ffn_up", "down_proj": "ffn_down"}
HEADS = {"q_proj": 4, "k_proj": 2}  # of share/base

keys, tensors = read_gguf(sys.argv[1])
peft, config = read_safetensors(sys.argv[2] + "/adapter_model.safetensors"), json.load(open(sys.argv[2] + "/adapter_config.json"))
assert (keys["general.type"], keys["adapter.type"], keys["general.architecture"]) == ("adapter", "lora", "llama"), keys
assert len(tensors) == len(peft) > 20, (len(tensors), len(peft))
for name, a in peft.items():
    if not name.endswith("lora_A.weight"):
        continue
    parts = name.split(".")
    layer, module = parts[parts.index("layers") + 1], parts[-3]
    b = peft[name.replace("lora_A", "lora_B")]
    alpha = (config.get("alpha_pattern") or {}).get(module, config["lora_alpha"])
    delta = b @ a * alpha / config["r"]
    if module in HEADS:  # rows of a head: first halves and second halves alternate
        delta = delta.reshape(HEADS[module], 2, -1, delta.shape[1]).swapaxes(1, 2).reshape(delta.shape)
    stem = f"blk.{layer}.{NAMES[module]}.weight"
    ours_a, ours_b = tensors[stem + ".lora_a"], tensors[stem + ".lora_b"]
    ours = ours_b @ ours_a * keys["adapter.lora.alpha"] / ours_b.shape[1]
    assert abs(ours - delta).max() <= 1e-6 * max(abs(delta).max(), 1e-9), (stem, abs(ours - delta).max())
