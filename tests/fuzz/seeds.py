#!/usr/bin/env python3
"""Writes the first inputs of the tokenizer fuzzers: seeds.py DIR makes DIR/fuzz_spmodel/* and
DIR/fuzz_tokenizer_json/*, small valid files that together use every part of the formats."""
import base64
import json
import pathlib
import struct
import sys

SPACE = "\u2581"


def varint(v):
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7F | 0x80])
        v >>= 7
    return out + bytes([v])


def number(field, v):
    return varint(field << 3) + varint(v)


def text(field, v):
    v = v.encode() if isinstance(v, str) else v
    return varint(field << 3 | 2) + varint(len(v)) + v


def piece(s, score=0.0, kind=1):
    return text(1, text(1, s) + b"\x15" + struct.pack("<f", score) + number(3, kind))


def charsmap(rules):
    """A double array in which each node's children have 256 units of their own."""
    unit, blocks, strings = [0] * 64 * 256, 2, b"x\0"
    unit[0] = 256 << 10
    for key, to in rules:
        at = 0
        for c in key.encode():
            at ^= unit[at] >> 10 ^ c
            if unit[at] == 0:
                unit[at] = c | (at ^ blocks * 256) << 10
                blocks += 1
        unit[at] |= 1 << 8
        unit[at ^ unit[at] >> 10] = 1 << 31 | len(strings)
        strings += to.encode() + b"\0"
    n = blocks * 256
    return struct.pack("<I", n * 4) + struct.pack(f"<{n}I", *unit[:n]) + strings


def model(kind, byte_fallback=False, table=b"", spaces=True, suffix=False):
    out = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<ud>", 0, 4)
    for i, p in enumerate([SPACE, "e", "l", "o", "He", "llo", SPACE + "w", "or", "ld", "fi", "\u4f60", "H"]):
        out += piece(p, -1.0 - i / 4)
    out += piece("gone", -9, 5)
    if byte_fallback:
        out += b"".join(piece(f"<0x{b:02X}>", 0, 6) for b in range(256))
    trainer = number(3, kind) + number(24, suffix) + number(35, byte_fallback) + text(46, "<s>") + text(47, "</s>")
    normalizer = text(1, "seed") + (text(2, table) if table else b"")
    normalizer += number(3, 1) + number(4, spaces) + number(5, 1)
    return out + text(2, trainer) + text(3, normalizer)


RULES = [("\ufb01", "fi"), ("\t", " "), ("e\u0301", "\u00e9")]


def added(i, content, special=True, **flags):
    base = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}
    return {**base, **flags}


def tokenizer(model, normalizer=None, pre=None, post=None, decoder=None, tokens=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens),
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post, "decoder": decoder,
            "model": model}


def byte_letters():
    """GPT-2's printable stand-ins for the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return [chr(b) for b in keep] + [chr(256 + i) for i in range(len(rest))]


def byte_level():
    letters = byte_letters()
    merges = [("l", "l"), ("H", "e"), ("ll", "o"), ("\u0120", "w"), ("1", "2")]
    vocab = {t: i for i, t in enumerate(letters + [a + b for a, b in merges])}
    split = {"type": "Split", "behavior": "Isolated", "invert": False,
             "pattern": {"Regex": r"'s|\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    post = {"type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}}}
    return tokenizer({"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": True, "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]},
                     {"type": "NFC"}, {"type": "Sequence", "pretokenizers": [split, level]}, post,
                     {"type": "ByteLevel"}, [added(300, "<s>"), added(301, "<|a|>", False, lstrip=True)])


def metaspace():
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)
    for t in [SPACE, "H", "e", "l", "o", "He", "ll", "llo", "Hello"]:
        vocab[t] = len(vocab)
    merges = [["H", "e"], ["l", "l"], ["ll", "o"], ["He", "llo"]]
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]}
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return tokenizer({"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": vocab, "merges": merges}, normalizer, None, None, decoder,
                     [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>", rstrip=True)])


def unigram():
    pieces = [["<unk>", 0.0], ["<s>", 0.0], [SPACE, -2.0], ["He", -3.0], ["llo", -3.5], ["l", -4.0], ["o", -4.0]]
    table = base64.b64encode(charsmap(RULES)).decode()
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": table},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Lowercase"}]}
    mark = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return tokenizer({"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}, normalizer,
                     mark, None, mark, [added(0, "<unk>"), added(1, "<s>", normalized=True, single_word=True)])


def main():
    root = pathlib.Path(sys.argv[1])
    files = {
        "fuzz_spmodel": {"bpe": model(2, True), "unigram": model(1), "table": model(1, True, charsmap(RULES[:1])),
                         "suffix": model(1, suffix=True, spaces=False)},
        "fuzz_tokenizer_json": {"model": model(1), "model_bpe": model(2),
                                **{f.__name__: json.dumps(f(), ensure_ascii=False).encode()
                                   for f in (byte_level, metaspace, unigram)}},
    }
    for folder, seeds in files.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (root / folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
