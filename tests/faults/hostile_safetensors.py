"""Hostile .safetensors files: groups S1 to S27 of the checklist."""

import json
import os
import random
import shutil
import struct

import tiny

F32 = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'


def one(fields):
    return '{"a":{%s}}' % fields


def shape(text):
    return one('"dtype":"F32","shape":%s,"data_offsets":[0,4]' % text)


def offsets(text):
    return one('"dtype":"F32","shape":[1],"data_offsets":%s' % text)


def u8(begin, end, dims=None):
    return '{"dtype":"U8","shape":%s,"data_offsets":[%d,%d]}' % (json.dumps(dims or [end - begin]),
                                                                 begin, end)


# name, header text or bytes, bytes of data, sentence
HEADERS = [
    ("S5-header-0", "", 0, "the header does not begin with '{'"),
    ("S5-header-1", "{", 0, "the text ends"),
    ("S6-array", "[]", 0, "the header does not begin with '{'"),
    ("S6-tab", "\t{}", 0, "the header does not begin with '{'"),
    ("S6-text", "hello, world", 0, "the header does not begin with '{'"),
    ("S7-invalid-utf8", b'{"\xff":{' + F32.encode() + b"}}", 4, "not valid UTF-8"),
    ("S7-overlong-nul", b'{"\xc0\x80":{' + F32.encode() + b"}}", 4, "not valid UTF-8"),
    ("S7-surrogate-bytes", b'{"\xed\xa0\x80":{' + F32.encode() + b"}}", 4, "not valid UTF-8"),
    ("S7-lone-surrogate", '{"\\ud800":{%s}}' % F32, 4, "half of a surrogate pair"),
    ("S7-nul-escape", '{"a\\u0000b":{%s}}' % F32, 4, "found U+0000 in a name"),
    ("S7-raw-nul", '{"a\0b":{%s}}' % F32, 4, "control character 0x00"),
    ("S7-raw-newline", '{"a\nb":{%s}}' % F32, 4, "control character 0x0A"),
    ("S7-bad-escape", '{"\\x41":{%s}}' % F32, 4, "not an escape that JSON has"),
    ("S9-nesting", '{"__metadata__":{"a":' + "[" * 100000, 0, "is not a string"),
    ("S9-nesting-as-tensor", '{"a":' + '{"a":' * 100000, 0, "found the field a"),
    ("S10-name-twice", '{"a":%s,"a":%s}' % (u8(0, 1), u8(1, 2)), 2, "tensor a: is given twice"),
    ("S10-name-twice-escaped", '{"a":%s,"\\u0061":%s}' % (u8(0, 1), u8(1, 2)), 2,
     "tensor a: is given twice"),
    ("S10-dtype-twice", one(F32 + ',"dtype":"F32"'), 4, "has dtype twice"),
    ("S10-shape-twice", one(F32 + ',"shape":[1]'), 4, "has shape twice"),
    ("S10-offsets-twice", one(F32 + ',"data_offsets":[0,4]'), 4, "has data_offsets twice"),
    ("S10-shape-twice-escaped", one(F32 + ',"sh\\u0061pe":[1]'), 4, "has shape twice"),
    ("S10-metadata-twice", '{"__metadata__":{},"__metadata__":{}}', 0, "__metadata__ is given twice"),
    ("S11-unknown-dtype", one(F32.replace("F32", "F33")), 4, "found dtype F33"),
    ("S11-lower-dtype", one(F32.replace("F32", "f32")), 4, "found dtype f32"),
    ("S11-number-dtype", one(F32.replace('"F32"', "32")), 4, "expected '\"'"),
    ("S11-fp8", one('"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]'), 4,
     "dtype F8_E5M2, which pesc does not read"),
    ("S11-no-dtype", one('"shape":[1],"data_offsets":[0,4]'), 4, "has no dtype"),
    ("S11-no-shape", one('"dtype":"F32","data_offsets":[0,4]'), 4, "has no shape"),
    ("S11-no-offsets", one('"dtype":"F32","shape":[1]'), 4, "has no data_offsets"),
    ("S11-extra-field", one(F32 + ',"strides":[1]'), 4, "found the field strides"),
    ("S12-negative", shape("[-1]"), 4, "found '-', expected a whole number"),
    ("S12-minus-zero", shape("[-0]"), 4, "found '-', expected a whole number"),
    ("S12-float", shape("[1.0]"), 4, "has a fraction or exponent"),
    ("S12-exponent", shape("[1e0]"), 4, "has a fraction or exponent"),
    ("S12-string", shape('["1"]'), 4, "expected a whole number"),
    ("S12-null", shape("[null]"), 4, "expected a whole number"),
    ("S12-2^64", shape("[18446744073709551616]"), 4, "does not fit 64 bits"),
    ("S12-digits", shape("[" + "9" * 5000 + "]"), 4, "does not fit 64 bits"),
    ("S12-leading-zero", shape("[01]"), 4, "leading zero"),
    ("S12-not-a-list", shape("1"), 4, "expected '['"),
    ("S12-trailing-comma", shape("[1,]"), 4, "expected a whole number"),
    ("S13-size-overflow", shape("[4611686018427387904]"), 4, "span 4 bytes"),
    ("S13-nine-dims", shape("[1,1,1,1,1,1,1,1,1]"), 4, "more than 8 dimensions"),
    ("S13-million-dims", shape("[" + "1," * 1000000 + "1]"), 4, "more than 8 dimensions"),
    ("S14-zero-first", shape("[0,9223372036854775808,4]"), 4, "more elements than 64 bits"),
    ("S14-zero-last", shape("[9223372036854775808,4,0]"), 4, "more elements than 64 bits"),
    ("S14-zero-first-2^62", shape("[0,4611686018427387904,4]"), 4, "more elements than 64 bits"),
    ("S14-zero-last-2^62", shape("[4611686018427387904,4,0]"), 4, "more elements than 64 bits"),
    ("S15-reversed", offsets("[4,0]"), 4, "run backwards"),
    ("S15-negative", offsets("[-4,0]"), 4, "found '-', expected a whole number"),
    ("S15-equal", offsets("[0,0]"), 4, "span 0 bytes"),
    ("S15-one", offsets("[4]"), 4, "expected ','"),
    ("S15-three", offsets("[0,4,8]"), 4, "expected ']'"),
    ("S15-past-end", offsets("[4,8]"), 4, "ends at 8, but the file has only 4"),
    ("S15-wrapping", offsets("[18446744073709551612,18446744073709551615]"), 4, "has only 4 bytes"),
    ("S15-overlap", '{"a":%s,"b":%s}' % (u8(0, 4), u8(3, 7)), 7, "an overlap with another tensor"),
    ("S15-same-place", '{"a":%s,"b":%s}' % (u8(0, 4), u8(0, 4)), 4, "an overlap with another tensor"),
    ("S15-empty-inside", '{"a":%s,"b":%s}' % (u8(0, 4), u8(2, 2, [0])), 4,
     "an overlap with another tensor"),
    ("S15-hole", '{"a":%s,"b":%s}' % (u8(0, 3), u8(4, 7)), 7, "a hole before it"),
    ("S15-hole-first", '{"a":%s}' % u8(1, 4), 4, "a hole before it"),
    ("S16-too-small", shape("[2]"), 4, "span 4 bytes"),
    ("S16-too-large", one('"dtype":"F32","shape":[1],"data_offsets":[0,8]'), 8, "span 8 bytes"),
    ("S16-mlx-1000x1000", shape("[1000,1000]"), 4, "span 4 bytes"),
    ("S17-trailing-byte", one(F32), 5, "1 belong to no tensor"),
    ("S19-odd-f4", one('"dtype":"F4","shape":[3],"data_offsets":[0,2]'), 2, "dtype F4"),
    ("S20-metadata-number", '{"__metadata__":{"a":1}}', 0, "__metadata__: a: is not a string"),
    ("S20-metadata-null", '{"__metadata__":{"a":null}}', 0, "__metadata__: a: is not a string"),
    ("S20-metadata-list", '{"__metadata__":[]}', 0, "expected '{'"),
    ("S21-name-1MB", '{"%s":{%s}}' % ("x" * 1000000, F32), 4, "more than 4096 bytes"),
    ("S21-name-1000", '{"%s":{%s}}' % ("x" * 1000, F32), 4, "1000 bytes, expected at most 512"),
    ("garbage-behind", "{}{}", 0, "after the header's end"),
    ("newline-behind", "{}\n", 0, "after the header's end"),
    ("comma-behind", "{},", 0, "after the header's end"),
    ("no-comma", '{"a":%s"b":%s}' % (u8(0, 1), u8(1, 2)), 2, "expected ','"),
    ("two-commas", '{"a":%s,,"b":%s}' % (u8(0, 1), u8(1, 2)), 2, "expected '\"'"),
    ("unquoted", '{a:%s}' % u8(0, 1), 1, "expected '\"'"),
    ("comment", '{/**/"a":%s}' % u8(0, 1), 1, "expected '\"'"),
]

# S21: names that are data elsewhere; the file is fine, the model does not know the tensor
NAMES = ["../../x", "%n%s%n%s", "\\u001b]0;title\\u0007", "a b", "\\u202egnp", ""]


def overflowing():
    for dims in range(2, 9):
        side = 1 << (64 // dims + (64 % dims > 0))
        yield f"S13-product-{dims}-dims", shape(json.dumps([side] * dims))


def lengths(data):
    real = struct.unpack("<Q", data[:8])[0]
    for name, n in [("file+1", len(data) - 7), ("2^63", 1 << 63), ("2^64-1", (1 << 64) - 1),
                    ("2^64-8", (1 << 64) - 8), ("limit+1", 100000001)]:
        reason = "is cut short" if n <= 100000000 else "expected at most 100000000"
        yield f"S2-S3-length-{name}", struct.pack("<Q", n) + data[8:], reason
    yield "S2-length-minus-1", struct.pack("<Q", real - 1) + data[8:], "the text ends"


def damaged_model(base, sound):
    """S22: the file is in order, but it is not this model."""
    def change(name, **tensors):
        changed = dict(sound)
        for key, value in tensors.items():
            key = key.replace("__", ".")
            if value is None:
                del changed[key]
            else:
                changed[key] = value
        return name, changed

    norm, query = "model.norm.weight", "model.layers.0.self_attn.q_proj.weight"
    yield *change("S22-missing", **{norm: None}), "1 missing: model.norm.weight"
    yield *change("S22-extra", **{"extra.weight": ("F32", [1], None)}), "1 left over: extra.weight"
    yield *change("S22-rank", **{query: ("F32", [64], None)}), "of a wrong shape"
    yield *change("S22-transposed", **{"model.layers.0.mlp.up_proj.weight": ("F32", [8, 12], None)}), \
        "of a wrong shape"
    yield *change("S22-dtype", **{query: ("I32", [8, 8], None)}), "1 not floating point"
    yield *change("S22-rename", **{norm: None, "model.norm.wieght": ("F32", [8], None)}), \
        "1 missing: model.norm.weight"


def cases(directory):
    sound = tiny.floats()
    good = tiny.safetensors(*tiny.entries(sound))
    room = os.path.join(directory, "m")
    path = os.path.join(room, "model.safetensors")

    def case(name, data, sentence, code=3):
        tiny.put(room, "config.json", tiny.CONFIG)
        tiny.put(room, "model.safetensors", data)
        return name, path, ["info", room], code, sentence

    yield case("sound", good, "", 0)
    for n in range(8):
        yield case(f"S1-{n}-bytes", good[:n], "too few for a safetensors file")
    for name, data, sentence in lengths(good):
        yield case(name, data, sentence)
    for name, header, n, sentence in HEADERS:
        yield case(name, tiny.safetensors(header, bytes(n)), sentence)
    for name, header in overflowing():
        yield case(name, tiny.safetensors(header, bytes(4)), "more elements than 64 bits")
    for i, name in enumerate(NAMES):
        header = '{"%s":{%s}}' % (name, F32)
        yield case(f"S21-name-{i}", tiny.safetensors(header, bytes(4)), "1 left over")
    yield case("S15-aliased-100000", tiny.safetensors(
        "{" + ",".join('"t%d":%s' % (i, u8(0, 1000)) for i in range(100000)) + "}", bytes(1000)),
        "an overlap with another tensor")
    yield case("S17-polyglot", good + tiny.archive({"a": b"b"}), "belong to no tensor")
    yield from big(case, good)
    for name, tensors, sentence in damaged_model(room, sound):
        yield case(name, tiny.safetensors(*tiny.entries(tensors)), sentence)
    yield from places(directory, good)
    yield from random_cuts(case, good)


def big(case, good):
    entries, n = [], 0
    while n < 99000000:
        i = len(entries)
        entries.append('"%x":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1))
        n += len(entries[-1]) + 1
    header = "{" + ",".join(entries) + "}"
    yield case("S18-as-many-as-fit", tiny.safetensors(header, bytes(len(entries))),
               "found more than 262144 tensors")
    yield case("S18-empty-tensors", tiny.safetensors(
        "{" + ",".join('"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i
                       for i in range(200000)) + "}"), "left over")
    header = '{"__metadata__":{' + ",".join('"%d":"x"' % i for i in range(5000000)) + "}}"
    yield case("S18-metadata-of-90MB", tiny.safetensors(header), "missing")
    yield case("S4-header-limit+1", tiny.safetensors("{}" + " " * 99999999),
               "found a header of 100000001 bytes")
    yield case("spaces-of-99MB", tiny.safetensors("{}" + " " * 99000000), "missing")


def places(directory, good):
    """S24 and S26: what is not a plain small file."""
    room = os.path.join(directory, "places")
    path = os.path.join(room, "model.safetensors")
    tiny.put(room, "config.json", tiny.CONFIG)

    def case(name, sentence, code=3):
        return name, path, ["info", room], code, sentence

    os.mkfifo(path)
    yield case("S24-fifo", "is not a regular file")
    os.unlink(path)
    os.mkdir(path)
    yield case("S24-directory", "is not a regular file")
    os.rmdir(path)
    os.symlink("/dev/zero", path)
    yield case("S24-dev-zero", "is not a regular file")
    os.unlink(path)
    os.symlink("model.safetensors", path)
    yield case("S24-symlink-loop", "Too many levels of symbolic links")
    os.unlink(path)
    if os.geteuid() != 0:
        tiny.put(room, "model.safetensors", good)
        os.chmod(path, 0)
        yield case("S24-unreadable", "Permission denied")
        os.unlink(path)
    # S26: 13 GB of holes behind one header; only the header may be touched
    config = dict(tiny.CONFIG, hidden_size=1024, num_attention_heads=8, num_key_value_heads=8,
                  intermediate_size=262144, vocab_size=1000000, num_hidden_layers=1)
    tiny.put(room, "config.json", config)
    header, at = {}, 0
    for name, dims in tiny.shapes(config).items():
        n = 4
        for d in dims:
            n *= d
        header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [at, at + n]}
        at += n
    head = tiny.safetensors(header)
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(len(head) + at)
    yield case("S26-sparse-11-GB", "", 0)
    with open(path, "r+b") as f:
        f.truncate(len(head) + at - 1)
    yield case("S26-sparse-cut-by-1", "but the file has only")
    shutil.rmtree(room)


def random_cuts(case, good):
    rng = random.Random(5)
    header = 8 + struct.unpack("<Q", good[:8])[0]
    for n in sorted(rng.sample(range(8, len(good)), 40)):
        yield case(f"S8-cut-at-{n}", good[:n], "model.safetensors: ")
    for _ in range(40):
        bit = rng.randrange(8 * 8, header * 8)
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        yield case(f"S8-bit-{bit}", bytes(data), ": ")
