"""Hostile bitsandbytes NF4 checkpoints: group C10."""

import json
import math
import os
import struct

import tiny

CODE = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
        0.7229568362236023, 1.0]
QUERY = "model.layers.0.self_attn.q_proj.weight"  # [8, 8]: 64 elements, one block
STATE = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [8, 8],
         "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
STATE_NAME = QUERY + ".quant_state.bitsandbytes__nf4"


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def packed(state):
    raw = state if isinstance(state, bytes) else json.dumps(state).encode()
    return "U8", [len(raw)], raw


def group(state=None):
    return {
        QUERY: ("U8", [32, 1], bytes(range(32))),
        QUERY + ".absmax": ("U8", [1], b"\x05"),
        QUERY + ".quant_map": ("F32", [16], floats(*CODE)),
        QUERY + ".nested_absmax": ("F32", [1], floats(0.01)),
        QUERY + ".nested_quant_map": ("F32", [256], floats(*([0.25] * 256))),
        STATE_NAME: packed(STATE if state is None else state),
    }


def plain(scale):
    """Without double quantisation."""
    parts = group({k: v for k, v in STATE.items() if not k.startswith("nested")})
    del parts[QUERY + ".nested_absmax"], parts[QUERY + ".nested_quant_map"]
    parts[QUERY + ".absmax"] = ("F32", [1], floats(scale))
    return parts


# name, changes to the JSON of the quantisation, sentence
STATES = [
    ("C10-fp4", {"quant_type": "fp4"}, "is quantised as fp4"),
    ("C10-no-type", {"quant_type": None}, "quant_type: is missing"),
    ("C10-block-0", {"blocksize": 0}, "blocksize: found 0"),
    ("C10-block-negative", {"blocksize": -64}, "blocksize: found -64"),
    ("C10-block-100", {"blocksize": 100}, "blocksize is not a multiple of 64"),
    ("C10-block-2^40", {"blocksize": 2**40}, "blocksize: found"),
    ("C10-block-string", {"blocksize": "64"}, "blocksize: found a string"),
    ("C10-shape-missing", {"shape": None}, "shape is not a list"),
    ("C10-shape-empty", {"shape": []}, "shape is not a list"),
    ("C10-shape-negative", {"shape": [8, -8]}, "shape holds something that is not a size"),
    ("C10-shape-zero", {"shape": [0, 8]}, "shape holds something that is not a size"),
    ("C10-shape-overflow", {"shape": [2**62, 4]}, "shape holds something that is not a size"),
    ("C10-shape-float", {"shape": [8.0, 8]}, "shape holds something that is not a size"),
    ("C10-shape-larger", {"shape": [8, 9]}, "bytes of codes, expected 36"),
    ("C10-shape-other", {"shape": [4, 16]}, "of a wrong shape"),
    ("C10-nested-block-0", {"nested_blocksize": 0}, "nested_blocksize: found 0"),
    ("C10-nested-block-missing", {"nested_blocksize": None}, "nested_blocksize: is missing"),
    ("C10-nested-offset-string", {"nested_offset": "x"}, "nested_offset: found a string"),
    ("C10-nested-offset-missing", {"nested_offset": None}, "1 elements of u8, expected 1 of f32"),
]

# name, part, what it becomes (None: absent), sentence
PARTS = [
    ("C10-no-codes", "", None, "is missing, though its quant_state is there"),
    ("C10-codes-short", "", ("U8", [31, 1], None), "31 bytes of codes, expected 32"),
    ("C10-no-absmax", ".absmax", None, "has no absmax"),
    ("C10-absmax-long", ".absmax", ("U8", [2], None), "found 2 elements of u8, expected 1"),
    ("C10-absmax-type", ".absmax", ("F32", [1], None), "found 1 elements of f32, expected 1 of u8"),
    ("C10-no-map", ".quant_map", None, "has no quant_map"),
    ("C10-map-15", ".quant_map", ("F32", [15], None), "found 15 elements"),
    ("C10-map-17", ".quant_map", ("F32", [17], None), "found 17 elements"),
    ("C10-map-other", ".quant_map", ("F32", [16], None), "quant_map is not the 16 values of NF4"),
    ("C10-no-nested-absmax", ".nested_absmax", None, "has no nested_absmax"),
    ("C10-nested-absmax-long", ".nested_absmax", ("F32", [2], None), "found 2 elements"),
    ("C10-no-nested-map", ".nested_quant_map", None, "has no nested_quant_map"),
    ("C10-nested-map-255", ".nested_quant_map", ("F32", [255], None), "found 255 elements"),
    ("C10-state-type", ".quant_state.bitsandbytes__nf4", ("F32", [2], None), "not a short JSON text"),
    ("C10-state-5000", ".quant_state.bitsandbytes__nf4", ("U8", [5000], None), "not a short JSON text"),
    ("C10-state-zeros", ".quant_state.bitsandbytes__nf4", ("U8", [10], None), "is not JSON"),
    ("C10-state-alone", "", None, "is missing, though its quant_state is there"),
]


def cases(directory):
    room = os.path.join(directory, "m")
    path = os.path.join(room, "model.safetensors")
    ids = tiny.put(directory, "ids.json", [1, 2, 3])
    out = os.path.join(directory, "out.npy")
    config = dict(tiny.CONFIG, quantization_config={
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"})

    def case(name, parts, sentence, code=3, argv=None):
        tensors = {k: v for k, v in tiny.floats().items() if k != QUERY} | parts
        tiny.model(room, config, tensors)
        return name, path, argv or ["info", room], code, sentence

    def changed(name, part):
        parts = group()
        if part is None:
            del parts[QUERY + name]
        else:
            parts[QUERY + name] = part
        return parts

    logits = ["logits", room, "--ids", ids, "-o", out, "-q"]
    yield case("sound", group(), "", 0)
    yield case("sound-logits", group(), "", 0, logits)
    yield case("sound-plain", plain(1.0), "", 0, logits)
    for name, changes, sentence in STATES:
        yield case(name, group(dict(STATE, **changes)), sentence)
    for name, part, value, sentence in PARTS:
        yield case(name, changed(part, value), sentence)
    twice = json.dumps(STATE).encode()[:-1] + b',"blocksize":64}'
    yield case("C10-state-twice", group(twice), "is not JSON: duplicate")
    yield case("C10-eight-bit", {QUERY: ("I8", [8, 8], None), QUERY + ".SCB": ("F32", [8], None)},
               "quantised to 8 bits by bitsandbytes")
    yield case("S23-absmax-0", plain(0.0), "", 0, logits)
    yield case("S23-absmax-nan", plain(math.nan), "the absmax of block 0 is nan", 3, logits)
    yield case("S23-absmax-infinite", plain(math.inf), "the absmax of block 0 is inf", 3, logits)
    yield case("S23-nested-absmax-nan", changed(".nested_absmax", ("F32", [1], floats(math.nan))),
               "the absmax of block 0 is nan", 3, logits)
