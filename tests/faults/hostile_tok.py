"""Hostile tokenizer.json and tokenizer.model files: groups T1 to T18."""

import copy
import json
import pathlib
import struct

SOUND = {
    "version": "1.0", "added_tokens": [
        {"id": 4, "content": "<s>", "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}],
    "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
    "decoder": None,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3, "<s>": 4},
              "merges": ["a b"], "unk_token": "<unk>"},
}


def changed(path, value):
    """SOUND with the value at a dotted path replaced."""
    d = copy.deepcopy(SOUND)
    at = d
    keys = path.split(".")
    for k in keys[:-1]:
        at = at[int(k) if k.isdigit() else k]
    at[int(keys[-1]) if keys[-1].isdigit() else keys[-1]] = value
    return d


def token(content, number, **kw):
    return {**SOUND["added_tokens"][0], "content": content, "id": number, **kw}


FORGED = "x\npesc: all is well\u202e\u2028\u061c\x1b[2J"  # two lines and marks of direction
VOCAB = SOUND["model"]["vocab"]

# name, changed path, value, part of the sentence
CHANGES = [
    ("T1-model-null", "model", None, "model"),
    ("T1-model-array", "model", [], "model"),
    ("T1-model-type", "model.type", "WordPiece", "WordPiece"),
    ("T18-model-type-forged", "model.type", FORGED, "x\\x0Apesc"),
    ("T18-token-forged", "model.merges", [["a", FORGED]], "x\\x0Apesc"),
    ("T18-added-forged", "added_tokens", [token(FORGED, 0)], "x\\x0Apesc"),
    ("T18-normalizer-forged", "normalizer", {"type": FORGED}, "x\\x0Apesc"),
    ("T1-model-type-number", "model.type", 3, "type"),
    ("T2-id-duplicate", "model.vocab", {**VOCAB, "c": 0}, "0"),
    ("T2-id-negative", "model.vocab", {**VOCAB, "c": -1}, "-1"),
    ("T2-id-2^31", "model.vocab", {**VOCAB, "c": 2**31}, "2147483648"),
    ("T2-id-10^9", "model.vocab", {**VOCAB, "c": 10**9}, "1000000000"),
    ("T2-id-string", "model.vocab", {**VOCAB, "c": "5"}, "found a string"),
    ("T2-id-float", "model.vocab", {**VOCAB, "c": 5.0}, "found a fraction"),
    ("T2-id-null", "model.vocab", {**VOCAB, "c": None}, "found null"),
    ("T2-vocab-empty", "model.vocab", {}, "vocab"),
    ("T2-vocab-array", "model.vocab", ["a"], "vocab"),
    ("T4-merge-unknown-left", "model.merges", ["x b"], "x"),
    ("T4-merge-unknown-right", "model.merges", ["a x"], "x"),
    ("T4-merge-unknown-result", "model.merges", ["b a"], "ba"),
    ("T4-merge-one-part", "model.merges", ["ab"], "merges"),
    ("T4-merge-three-parts", "model.merges", [["a", "b", "c"]], "merges"),
    ("T4-merge-empty-part", "model.merges", [["", "b"]], "merges"),
    ("T4-merge-number", "model.merges", [7], "merges"),
    ("T4-merges-object", "model.merges", {}, "merges"),
    ("T4-unk-unknown", "model.unk_token", "<none>", "<none>"),
    ("T4-dropout", "model.dropout", 0.1, "dropout"),
    ("T4-prefix", "model.continuing_subword_prefix", "##", "continuing_subword_prefix"),
    ("T4-suffix", "model.end_of_word_suffix", "</w>", "end_of_word_suffix"),
    ("T6-added-clash", "added_tokens", [token("<x>", 0)], "0"),
    ("T6-added-id-10^9", "added_tokens", [token("<x>", 10**9)], "1000000000"),
    ("T6-added-negative", "added_tokens", [token("<x>", -1)], "-1"),
    ("T6-added-no-content", "added_tokens", [{"id": 5}], "content"),
    ("T6-added-no-id", "added_tokens", [{"content": "x"}], "id"),
    ("T6-added-object", "added_tokens", {}, "added_tokens"),
    ("T6-added-string", "added_tokens", ["x"], "added_tokens"),
    ("T7-normalizer", "normalizer", {"type": "Magic"}, "Magic"),
    ("T7-normalizer-string", "normalizer", "NFC", "normalizer"),
    ("T7-normalizer-no-type", "normalizer", {}, "type"),
    ("T7-pre-tokenizer", "pre_tokenizer", {"type": "Magic"}, "Magic"),
    ("T7-decoder", "decoder", {"type": "Magic"}, "Magic"),
    ("T7-post-processor", "post_processor", {"type": "Magic"}, "Magic"),
    ("T7-sequence-of-unknown", "normalizer", {"type": "Sequence", "normalizers": [{"type": "Magic"}]}, "Magic"),
    ("T7-split-behavior", "pre_tokenizer",
     {"type": "Split", "pattern": {"String": " "}, "behavior": "Magic", "invert": False}, "Magic"),
    ("T8-regex-bad", "pre_tokenizer",
     {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}, "missing closing parenthesis"),
    ("T8-regex-number", "pre_tokenizer",
     {"type": "Split", "pattern": {"Regex": 5}, "behavior": "Isolated", "invert": False}, "Regex"),
    ("T7-charsmap-not-base64", "normalizer", {"type": "Precompiled", "precompiled_charsmap": "!!"}, "base64"),
    ("T7-charsmap-short", "normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAA="}, "at least 4"),
    ("T7-template-unknown-token", "post_processor",
     {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}], "pair": [],
      "special_tokens": {}}, "<x>"),
]

# name, bytes of a whole file, part of the sentence
RAW = [
    ("T1-empty", b"", ""),
    ("T1-null", b"null", "expected"),
    ("T1-array", b"[]", "expected"),
    ("T1-number", b"7", "expected"),
    ("T1-truncated", json.dumps(SOUND).encode()[:-20], ""),
    ("T1-trailing", json.dumps(SOUND).encode() + b"x", ""),
    ("T3-duplicate-token", json.dumps(SOUND).replace('"b": 1', '"a": 1').encode(), "a"),
    ("T3-duplicate-by-escape", json.dumps(SOUND).replace('"b": 1', '"\\u0061": 1').encode(), "a"),
    ("T9-deep", b'{"model":' + b"[" * 100000, ""),
    ("T9-deep-sequence", json.dumps(SOUND).replace(
        '"normalizer": null', '"normalizer": ' + '{"type":"Sequence","normalizers":[' * 500 + "]}" * 500).encode(), ""),
    ("T12-invalid-utf8", json.dumps(SOUND).replace('"b": 1', '"\x01": 1').encode().replace(b"\\u0001", b"\xff"), ""),
    ("T12-lone-surrogate", json.dumps(SOUND).replace('"b": 1', '"\\ud800": 1').encode(), ""),
]


def varint(v):
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7F | 0x80])
        v >>= 7
    return out + bytes([v])


def field(number, wire, payload):
    return varint(number << 3 | wire) + payload


def text(number, s):
    return field(number, 2, varint(len(s)) + s)


def piece(s, score=0.0, kind=1):
    return text(1, text(1, s) + field(2, 5, struct.pack("<f", score)) + field(3, 0, varint(kind)))


PIECES = piece(b"<unk>", 0, 2) + piece(b"a", -1.0) + piece(b"b", -2.0)
BPE = text(2, field(3, 0, varint(2)))

MODELS = [
    ("T16-varint-11", PIECES + field(9, 0, b"\xff" * 10 + b"\x01"), "64 bits"),
    ("T16-length-past-end", field(1, 2, varint(1000)) + b"x", "byte"),
    ("T16-length-2^32", field(1, 2, varint(2**32 - 1)), "byte"),
    ("T16-length-2^63", field(1, 2, varint(2**63)), "byte"),
    ("T16-empty-piece", PIECES + piece(b"") + BPE, "has no text"),
    ("T16-wire-3", PIECES + field(9, 3, b"") + BPE, "wire type 3"),
    ("T16-wire-4", PIECES + field(9, 4, b"") + BPE, "wire type 4"),
    ("T16-wire-6", PIECES + field(9, 6, b"") + BPE, "wire type 6"),
    ("T16-wire-7", PIECES + field(9, 7, b"") + BPE, "wire type 7"),
    ("T16-groups", PIECES + field(9, 3, b"") * 100000, "wire type 3"),
    ("T16-field-0", PIECES + field(0, 0, b"\x01"), "field number 0"),
    ("T16-score-nan", PIECES + piece(b"c", float("nan")) + BPE, "score"),
    ("T16-score-inf", PIECES + piece(b"c", float("inf")) + BPE, "score"),
    ("T16-duplicate", PIECES + piece(b"a") + BPE, "both"),
    ("T16-no-unk", piece(b"a") + piece(b"b") + BPE, "unknown"),
    ("T16-two-unk", PIECES + piece(b"<x>", 0, 2) + BPE, "unknown"),
    ("T16-type-9", PIECES + piece(b"c", 0, 9) + BPE, "type 9"),
    ("T16-not-utf8", PIECES + piece(b"\xff") + BPE, "UTF-8"),
    ("T16-model-type", PIECES + text(2, field(3, 0, varint(3))), "model_type 3"),
    ("T16-byte-piece", PIECES + piece(b"<0xZZ>", 0, 6) + BPE, "byte piece"),
    ("T16-charsmap-short", PIECES + BPE + text(3, text(2, b"abc")), "byte"),
    ("T16-charsmap-wild", PIECES + BPE + text(3, text(2, struct.pack("<I", 1 << 30) + b"x" * 8)), "byte"),
    ("T16-garbage", b"\x0a\x05hello" * 3, "byte"),
    ("T16-truncated", (PIECES + BPE)[:-3], "byte"),
]


DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BLANKS = {"type": "Metaspace", "replacement": "  ", "split": False}

BOMBS = [
    ("T17-normalizer-doubles", "normalizer", {"type": "Sequence", "normalizers": [DOUBLE] * 32}, "a", "multiplies"),
    ("T17-metaspace-doubles", "pre_tokenizer", {"type": "Sequence", "pretokenizers": [BLANKS] * 32}, "a a", "multiplies"),
    ("T17-prepend-long", "normalizer", {"type": "Prepend", "prepend": "a" * 5000}, "a", "at most 4096"),
]


def cases(dir):
    dir = pathlib.Path(dir)
    for name, path, value, part in CHANGES:
        file = dir / "tokenizer.json"
        file.write_text(json.dumps(changed(path, value)))
        yield name, file, ["tokenize", str(file)], 3, part
    for name, data, part in RAW:
        file = dir / "tokenizer.json"
        file.write_bytes(data)
        yield name, file, ["tokenize", str(file)], 3, part
    for name, data, part in MODELS:
        file = dir / "tokenizer.model"
        file.write_bytes(data)
        yield name, file, ["tokenize", str(file)], 3, part
    # steps that double a text, and patterns that never end
    for name, component, steps, text, part in BOMBS:
        file, words = dir / "tokenizer.json", dir / "words.txt"
        file.write_text(json.dumps({**SOUND, component: steps}))
        words.write_text(text)
        yield name, file, ["tokenize", str(file), str(words)], 3, part
    # no faults: an empty added token (ignored, as tokenizers does), many, a long one with a prefix
    file = dir / "tokenizer.json"
    file.write_text(json.dumps(changed("added_tokens", [token("", 5)])))
    yield "T6-added-empty", file, ["tokenize", str(file)], 0, ""
    many = changed("added_tokens", [token("<x%d>" % i, 5 + i) for i in range(100000)])
    file.write_text(json.dumps(many))
    yield "T6-added-10^5", file, ["tokenize", str(file)], 0, ""
    file.write_text(json.dumps(changed("added_tokens", [token("y" * (1 << 20), 5), token("y", 6)])))
    yield "T6-added-1MB", file, ["tokenize", str(file)], 0, ""
    merges = changed("model.vocab", {**VOCAB, **{"%06d" % i: 5 + i for i in range(200000)}})
    file.write_text(json.dumps(merges))
    yield "T10-vocab-200k", file, ["tokenize", str(file)], 0, ""
