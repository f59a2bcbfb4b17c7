"""Hostile expert patches. Each is put into a sound mixture, which must refuse it."""

import json
import os
import shutil

import tiny

CFG = {"experts": {"0": [2], "1": []}, "shared_experts": False, "non_expert_modules": False}
ABOUT = {"format": "pesc-expert-patch", "version": 1, "base": "0123456789abcdef"}
EXPERT = "model.layers.0.block_sparse_moe.experts.2."
SHAPES = tiny.shapes(tiny.MOE_CONFIG)
SOUND = {n: ("F32", SHAPES[n], None) for n in SHAPES if n.startswith(EXPERT)}
W1 = EXPERT + "w1.weight"

# name, expert_cfg.json, sentence
CONFIGS = [
    ("array", "[]", "found an array, expected an object"),
    ("empty", "", "is not JSON"),
    ("no-experts", {}, "experts: "),
    ("experts-list", {"experts": [2]}, "experts: found an array"),
    ("layer-word", {"experts": {"x": [2], "0": [], "1": []}}, 'found the key "x"'),
    ("layer-zeros", {"experts": {"00": [2], "1": []}}, 'found the key "00"'),
    ("layer-negative", {"experts": {"-1": [2]}}, 'found the key "-1"'),
    ("layer-2^40", {"experts": {"1099511627776": [2]}}, 'found the key "1099511627776"'),
    ("layer-beyond", {"experts": {"0": [2], "1": [], "2": []}}, "layers are 0 to 1"),
    ("layer-missing", {"experts": {"0": [2]}}, "layer 1 is missing"),
    ("layer-twice", '{"experts": {"0": [2], "0": [2], "1": []}}', "is not JSON: duplicate"),
    ("expert-beyond", {"experts": {"0": [3], "1": []}}, "found expert 3, expected 0 to 2"),
    ("expert-2^31", {"experts": {"0": [2**31], "1": []}}, "one out of range"),
    ("expert-negative", {"experts": {"0": [-1], "1": []}}, "one out of range"),
    ("expert-text", {"experts": {"0": ["2"], "1": []}}, "found a string"),
    ("expert-fraction", {"experts": {"0": [2.5], "1": []}}, "found a fraction"),
    ("expert-twice", {"experts": {"0": [2, 2], "1": []}}, "expert 2 is listed twice"),
    ("flag-text", dict(CFG, shared_experts="yes"), "shared_experts: found a string"),
    ("shared-of-none", dict(CFG, shared_experts=True), "shared_experts: is true, but the model has none"),
    ("unknown-key", dict(CFG, more=1), "more: is not known"),
    ("other-expert", {"experts": {"0": [1], "1": []}}, "3 missing"),
    ("one-more", {"experts": {"0": [2], "1": [0]}}, "3 missing"),
    ("deep", '{"experts":' + "[" * 100000, "is not JSON"),
]

# name, tensors, sentence
TENSORS = [
    ("no-tensor", {}, "3 missing"),
    ("one-missing", {n: t for n, t in SOUND.items() if n != W1}, "1 missing: " + W1),
    ("left-over", SOUND | {"model.norm.weight": ("F32", [8], None)}, "1 left over: model.norm.weight"),
    ("no-such", SOUND | {"x": ("F32", [8], None)}, "1 left over: model.x"),
    ("twice", SOUND | {W1.removeprefix("model."): SOUND[W1]}, "is given twice"),
    ("transposed", SOUND | {W1: ("F32", SHAPES[W1][::-1], None)}, "1 of a wrong shape"),
    ("one-dim", SOUND | {W1: ("F32", [96], None)}, "1 of a wrong shape"),
    ("integers", SOUND | {W1: ("I32", SHAPES[W1], None)}, "1 not floating point"),
]

# name, patch.json, sentence
ABOUTS = [
    ("about-array", "[]", "found an array, expected an object"),
    ("about-format", dict(ABOUT, format="x"), 'found "x" version 1'),
    ("about-version", dict(ABOUT, version=2), "version 2"),
    ("about-short", dict(ABOUT, base="12"), "expected 16 hexadecimal digits"),
    ("about-long", dict(ABOUT, base="0" * 1000), "expected 16 hexadecimal digits"),
    ("about-number", dict(ABOUT, base=12), "base: found an integer"),
    ("about-other", ABOUT, "was made for another model"),
]


def cases(directory):
    base = tiny.model(os.path.join(directory, "base"), tiny.MOE_CONFIG)
    ids = tiny.put(directory, "ids.json", [1, 2, 3])
    out = os.path.join(directory, "out.npy")
    room = os.path.join(directory, "patch")

    def case(name, cfg=CFG, tensors=SOUND, sentence="", about=None, code=3):
        shutil.rmtree(room, ignore_errors=True)
        os.mkdir(room)
        if cfg is not None:
            tiny.put(room, "expert_cfg.json", cfg)
        if about is not None:
            tiny.put(room, "patch.json", about)
        if tensors is not None:
            tiny.put(room, "model.safetensors", tensors if isinstance(tensors, bytes)
                     else tiny.safetensors(*tiny.entries(tensors)))
        argv = ["logits", base, "--ids", ids, "-o", out, "-q", "--patch", room]
        return "patch-" + name, room, argv, code, sentence

    yield case("sound", code=0)
    for name, cfg, sentence in CONFIGS:
        yield case(name, cfg=cfg, sentence=sentence)
    for name, tensors, sentence in TENSORS:
        yield case(name, tensors=tensors, sentence=sentence)
    for name, about, sentence in ABOUTS:
        yield case(name, about=about, sentence=sentence)
    yield case("no-config", cfg=None, sentence="has no expert_cfg.json")
    yield case("no-weights", tensors=None, sentence="has no safetensors")
    yield case("cut", tensors=tiny.safetensors(*tiny.entries(SOUND))[:-1], sentence="but the file has only")
