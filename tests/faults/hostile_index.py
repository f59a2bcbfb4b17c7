"""Hostile model.safetensors.index.json files: group S28."""

import json
import os
import shutil

import tiny


def cases(directory):
    room = os.path.join(directory, "m")
    index = os.path.join(room, "model.safetensors.index.json")
    tensors = tiny.floats()
    names = list(tensors)
    half = len(names) // 2
    shards = {"1.safetensors": names[:half], "2.safetensors": names[half:]}
    sound = {name: shard for shard, held in shards.items() for name in held}

    def case(name, weight_map, sentence, code=3, extra=None, metadata=None):
        shutil.rmtree(room, ignore_errors=True)
        tiny.put(room, "config.json", tiny.CONFIG)
        for shard, held in shards.items():
            part = {n: tensors[n] for n in held} | (extra or {}).get(shard, {})
            tiny.put(room, shard, tiny.safetensors(*tiny.entries(part)))
        text = weight_map if isinstance(weight_map, str) else \
            json.dumps({"metadata": metadata or {"total_size": 1}, "weight_map": weight_map})
        tiny.put(room, os.path.basename(index), text)
        return name, room, ["info", room], code, sentence

    def moved(name, shard):
        return dict(sound, **{name: shard})

    first, last = names[0], names[-1]
    beside = "expected the name of a file beside the index"
    yield case("sound", sound, "", 0)
    for label, shard in [("parent", "../1.safetensors"), ("absolute", "/etc/passwd"), ("dots", ".."),
                         ("folder", "a/1.safetensors"), ("hidden", ".1.safetensors"), ("empty", ""),
                         ("backslash", "..\\1.safetensors")]:
        yield case(f"S28-{label}", moved(first, shard), beside)
    yield case("S28-nul", moved(first, "1\0.safetensors"), "found U+0000")
    yield case("S28-control", moved(first, "\x1b]0;x\x07"), "names the shard \\x1B]0;x\\x07")
    yield case("S28-long", moved(first, "x" * 5000), "more than 4096 bytes")
    yield case("S28-missing-shard", moved(first, "3.safetensors"), "names the shard 3.safetensors")
    yield case("S28-other-shard", moved(last, "1.safetensors"), "is not in 1.safetensors but in")
    yield case("S28-unknown-tensor", moved("x", "1.safetensors"), "tensor x is not in 1.safetensors")
    unnamed = dict(sound)
    del unnamed[last]
    yield case("S28-unnamed-tensor", unnamed, f"does not name tensor {last}")
    stray = {"2.safetensors": {first: tensors[first]}}
    yield case("S28-tensor-in-two-shards", sound, f"tensor {first}: is given twice", extra=stray)
    stray = {"2.safetensors": {"stray": ("F32", [1], None)}}
    yield case("S28-stray-tensor", sound, "does not name tensor stray", extra=stray)
    whole = json.dumps({"weight_map": sound})
    again = ',"\\u006d%s":"1.safetensors"}}' % first[1:]
    yield case("S28-named-twice", whole[:-2] + again, f"names tensor {first} twice")
    yield case("S28-map-twice", whole[:-1] + ',"weight_map":{}}', "weight_map is given twice")
    yield case("S28-total-size", sound, "", 0, metadata={"total_size": 1 << 60})
    yield case("S28-float-total-size", sound, "", 0, metadata={"total_size": 1.5e10})
    for label, text, sentence in [
            ("empty", "", "the text ends"), ("null", "null", "expected '{'"),
            ("array", "[]", "expected '{'"), ("no-map", "{}", "weight_map: is missing"),
            ("map-list", '{"weight_map":[]}', "expected '{'"),
            ("map-number", '{"weight_map":{"a":1}}', "expected '\"'"),
            ("trailing", whole + "x", "after the index's end"),
            ("nesting", '{"x":' + "[" * 100000, "nested more than 64 levels"),
            ("bad-number", '{"x":01,"weight_map":{}}', "not a number that JSON has"),
            ("nan", '{"x":NaN,"weight_map":{}}', "expected a JSON value")]:
        yield case(f"S28-{label}", text, sentence)
    many = {f"t{i:07}": "1.safetensors" for i in range(1000000)}
    yield case("S28-million-entries", many, "names more than 262144 tensors")
    yield case("S28-million-shards", {f"t{i}": f"s{i}" for i in range(200000)}, "names the shard s0")
    yield case("cut", whole[:len(whole) // 2], "the text ends")
