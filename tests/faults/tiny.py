"""A tiny valid model and the containers it is stored in, for the hostile generators to damage."""

import copy
import json
import math
import os
import struct

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 11,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}

MOE_CONFIG = dict(CONFIG, model_type="mixtral", architectures=["MixtralForCausalLM"],
                  num_local_experts=3, num_experts_per_tok=2)

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "U8": 1, "I8": 1,
         "BOOL": 1}


def shapes(config=None):
    """{name: shape} of a config of the llama or mixtral family."""
    c = config or CONFIG
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    out = {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d], "lm_head.weight": [v, d]}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        out |= {
            layer + "input_layernorm.weight": [d],
            layer + "post_attention_layernorm.weight": [d],
            layer + "self_attn.q_proj.weight": [d, d],
            layer + "self_attn.k_proj.weight": [kv, d],
            layer + "self_attn.v_proj.weight": [kv, d],
            layer + "self_attn.o_proj.weight": [d, d],
        }
        if "num_local_experts" in c:
            out[layer + "block_sparse_moe.gate.weight"] = [c["num_local_experts"], d]
            for e in range(c["num_local_experts"]):
                expert = f"{layer}block_sparse_moe.experts.{e}."
                out |= {expert + "w1.weight": [f, d], expert + "w2.weight": [d, f],
                        expert + "w3.weight": [f, d]}
        else:
            out |= {layer + "mlp.gate_proj.weight": [f, d], layer + "mlp.up_proj.weight": [f, d],
                    layer + "mlp.down_proj.weight": [d, f]}
    return out


def entries(tensors):
    """(header dict, data bytes) of {name: (dtype, shape, bytes or None)}."""
    header, data, at = {}, [], 0
    for name, (dtype, shape, raw) in tensors.items():
        n = math.prod(shape) * SIZES[dtype]
        data.append(raw if raw is not None else bytes(n))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    return header, b"".join(data)


def floats(config=None):
    return {name: ("F32", shape, None) for name, shape in shapes(config).items()}


def safetensors(header, data=b""):
    """A file of a header (dict, text or bytes)."""
    if isinstance(header, dict):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header)) + header + data


def put(directory, name, content):
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if isinstance(content, (dict, list)):
        content = json.dumps(content)
    if isinstance(content, str):
        content = content.encode()
    with open(path, "wb") as f:
        f.write(content)
    return path


def model(directory, config=None, tensors=None):
    """Writes a whole model directory and returns its path."""
    config = copy.deepcopy(config or CONFIG)
    put(directory, "config.json", config)
    put(directory, "model.safetensors", safetensors(*entries(tensors or floats(config))))
    return directory


# ---- torch ----

def string(text):
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(n):
    return b"\x8a\x08" + struct.pack("<q", n)


def integers(values):
    return b"(" + b"".join(integer(v) for v in values) + b"t"


def storage(key, elements, kind="FloatStorage"):
    return (b"(" + string("storage") + f"ctorch\n{kind}\n".encode() + string(key) + string("cpu") +
            integer(elements) + b"tQ")


def tensor(key, shape, strides=None, offset=0, elements=None, kind="FloatStorage"):
    if strides is None:
        strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    n = math.prod(shape) if elements is None else elements
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(key, n, kind) + integer(offset) +
            integers(shape) + integers(strides) + b"\x89}tR")


def pickle(items):
    """A dictionary of {name: program of its value}."""
    return (b"\x80\x02}(" + b"".join(string(k) + v for k, v in items.items()) + b"u.")


def archive(files, method=0, flags=0, extra=b""):
    """A ZIP archive of {name: bytes} with stored entries; CRCs are left 0."""
    out, directory = b"", b""
    for name, data in files.items():
        raw = name.encode()
        head = struct.pack("<HHHIIIIHH", 20, flags, method, 0, 0, len(data), len(data), len(raw), 0)
        directory += (b"PK\x01\x02\x14\0" + head + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + raw)
        out += b"PK\x03\x04" + head + raw + data
    end = struct.pack("<HHHHIIH", 0, 0, len(files), len(files), len(directory), len(out), len(extra))
    return out + directory + b"PK\x05\x06" + end + extra


def torch_files(shaped):
    """The archive's files for {name: shape}, all float32."""
    items = {name: tensor(str(i), shape) for i, (name, shape) in enumerate(shaped.items())}
    files = {"archive/data.pkl": pickle(items), "archive/byteorder": b"little"}
    for i, shape in enumerate(shaped.values()):
        files[f"archive/data/{i}"] = bytes(4 * math.prod(shape))
    return files
