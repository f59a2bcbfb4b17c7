#!/usr/bin/env python3
"""Every class of character, and random tokenizer.json files, against Hugging Face `tokenizers`.

Characters: for each pre-tokenizer and each pattern of the table, every character of Unicode stands before and after a
letter, a digit and others, in files whose merges show where a text was cut. Configurations: random normalizers,
pre-tokenizers, models, decoders and added tokens, on random texts. Ids and decoded texts are equal, or the file is refused by
name, by a sentence that begins with one of REFUSALS. Options: --cases N, --first N, --seed N, --only TEXT (characters whose
row has it; `random`: none). Ends with `N passed, M failed`.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).with_name("support"))

import tokenizers
import cases
from cases import PESC, counts

REFUSALS = ["is not supported", "are supported", "pesc does not support", "not support", "inside brackets", "expected"]
BYTES = {}
for _b in range(256):
    _plain = 33 <= _b <= 126 or 161 <= _b <= 172 or 174 <= _b <= 255
    BYTES[_b] = chr(_b) if _plain else chr(256 + sum(not (33 <= i <= 126 or 161 <= i <= 172 or 174 <= i <= 255) for i in range(_b)))

CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn".split()
NAMED = "Alphabetic Uppercase Lowercase Letter Mark Number Punctuation Symbol Separator Other".split()
SCRIPTS = "Han Hiragana Katakana Hangul Thai Latin Cyrillic Greek Arabic Hebrew Devanagari Common Inherited Lao Myanmar".split()
POSIX = "alpha digit alnum word punct upper lower space xdigit cntrl graph print blank".split()


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def class_rows():
    yield "Whitespace", {"type": "Whitespace"}
    yield "WhitespaceSplit", {"type": "WhitespaceSplit"}
    yield "BertPreTokenizer", {"type": "BertPreTokenizer"}
    yield "UnicodeScripts", {"type": "UnicodeScripts"}
    for behavior in ("Isolated", "Removed", "Contiguous"):
        yield f"Punctuation {behavior}", {"type": "Punctuation", "behavior": behavior}
    for each in (True, False):
        yield f"Digits {each}", {"type": "Digits", "individual_digits": each}
    for escape in "wWdDsShHbBNOR":
        yield f"\\{escape}", split(f"\\{escape}", "Contiguous" if escape in "bB" else "Isolated")
    for escape in "wdsh":
        yield f"[\\{escape}]", split(f"[\\{escape}]")
        yield f"[^\\{escape}]", split(f"[^\\{escape}]")
        yield f"[_\\{escape}]+", split(f"[_\\{escape}]+")
    for name in CATEGORIES + NAMED + SCRIPTS:
        yield f"\\p{{{name}}}", split(f"\\p{{{name}}}")
        yield f"\\P{{{name}}}", split(f"\\P{{{name}}}")
        yield f"[^\\p{{{name}}}x]+", split(f"[^\\p{{{name}}}x]+")
    for name in POSIX:
        yield f"[[:{name}:]]", split(f"[[:{name}:]]")
        yield f"[^[:{name}:]]", split(f"[^[:{name}:]]")
    yield "gpt2", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    yield "llama3", split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
    yield "(?i)k", split("(?i)k")
    yield "(?i)s", split("(?i)s")
    yield "(?i:[a-z])", split("(?i:[a-z])")
    yield ".", split(".")


class Pesc:
    def __init__(self, path):
        self.path = path

    def run(self, verb, rows, *flags):
        lines = self.path.with_suffix(".jsonl")
        lines.write_text("".join(json.dumps(r) + "\n" for r in rows))
        p = subprocess.run([PESC, verb, self.path, "--jsonl", lines, *flags], capture_output=True)
        if p.returncode:
            return p.stderr.decode("utf-8", "replace").strip()
        return [json.loads(x) for x in p.stdout.split(b"\n") if x]


def check(what, good, detail=""):
    cases.check("", what, good, detail)


def refused(what, sentence):
    counts["refused"] += 1
    check(f"{what} refused", any(words in sentence for words in REFUSALS), sentence[:300])


def compare(what, path, texts):
    """Ids and texts of one file, or its refusal."""
    hf = tokenizers.Tokenizer.from_file(str(path))
    pesc = Pesc(path)
    got = pesc.run("tokenize", texts, "--parse-special")
    if isinstance(got, str):
        return refused(what, got)
    want = [e.ids for e in hf.encode_batch(texts, add_special_tokens=False)]
    bad = [(t, a, b) for t, a, b in zip(texts, got, want) if a != b]
    check(what, not bad and len(got) == len(want), f"{len(bad)} texts, first {bad[:1]!r:.400}")
    rows = [ids for ids in want if ids]
    got = pesc.run("detokenize", rows)
    want = [hf.decode(ids, skip_special_tokens=False) for ids in rows]
    if isinstance(got, str):
        return refused(what + " decoded", got)
    bad = [(t, a, b) for t, a, b in zip(rows, got, want) if a != b]
    check(what + " decoded", not bad, f"{len(bad)} texts, first {bad[:1]!r:.400}")


# ---- characters ----

def byte_level(pre, beside, before):
    """All bytes, and a merge of the byte `beside` with each byte before, or after, it."""
    vocab = {c: i for i, c in enumerate(BYTES.values())}
    merges = []
    for c in BYTES.values():
        pair = (c, BYTES[ord(beside)]) if before else (BYTES[ord(beside)], c)
        merges.append(list(pair))
        vocab.setdefault("".join(pair), len(vocab))
    steps = [pre] if pre["type"] == "ByteLevel" else [pre, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges}}


def characters(folder, only):
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not 0x3400 < c < 0x4D00 and not 0x4E10 < c < 0x9FF0 and
             not 0xAC10 < c < 0xD790 and not 0xE010 < c < 0xF8F0 and not 0x20010 < c < 0x2A6D0 and not 0x32400 < c < 0xE0000 and
             not 0xE0200 < c < 0xFFFFD and not 0x100010 < c < 0x10FFF0]
    for name, pre in class_rows():
        if only and only not in name:
            continue
        for beside, before in (("a", True), ("a", False), ("1", True), (".", False), (" ", True)):
            path = folder / "tokenizer.json"
            path.write_text(json.dumps(byte_level(pre, beside, before)))
            try:
                tokenizers.Tokenizer.from_file(str(path))
            except Exception:  # not a pattern of Oniguruma either
                continue
            texts = ["".join(c + beside for c in every[i:i + 64]) for i in range(0, len(every), 64)]
            compare(f"{name} beside {beside!r}", path, texts)


# ---- configurations ----

LETTERS = list("abAB12 .,'_\n\t▁é中\u0301İßﬁ²\u200d\u200c\u00a0😀") + ["<s>", "<x>", "  ", "\r\n", "▁▁"]


def random_text(r):
    return "".join(r.choice(LETTERS) for _ in range(r.choice([0, 1, 2, 5, 12, 30])))


def normalizers(r):
    one = [lambda: {"type": r.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"])},
           lambda: {"type": "Strip", "strip_left": r.random() < 0.7, "strip_right": r.random() < 0.5},
           lambda: {"type": "Prepend", "prepend": r.choice(["▁", " ", "a"])},
           lambda: {"type": "Replace", "pattern": r.choice([{"String": " "}, {"Regex": " {2,}"}, {"String": "a"}, {"Regex": "\\s+"}, {"Regex": "^\\s"}]),
                    "content": r.choice(["▁", "", " ", "b"])}]
    return [r.choice(one)() for _ in range(r.choice([0, 0, 1, 1, 2, 3]))]


def pre_tokenizers(r):
    behavior = lambda: r.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    one = [lambda: {"type": "Metaspace", "replacement": r.choice(["▁", "▁", "_"]), "prepend_scheme": r.choice(["always", "first", "never"]), "split": r.random() < 0.7},
           lambda: {"type": r.choice(["Whitespace", "WhitespaceSplit"])},
           lambda: {"type": "Punctuation", "behavior": behavior()},
           lambda: {"type": "Digits", "individual_digits": r.random() < 0.5},
           lambda: {"type": "CharDelimiterSplit", "delimiter": r.choice(["a", "▁", " "])},
           lambda: split(r.choice(["\\s+", "\\w+", "\\b", "a|b", " ?\\p{L}+", "[^\\w]", "\\d{1,2}", "(?<=a)b", "a*"]), behavior(), r.random() < 0.3)]
    return [r.choice(one)() for _ in range(r.choice([0, 1, 1, 1, 2, 3]))]


def decoders(r, bytes_too):
    if bytes_too:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    one = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
           {"type": "Strip", "content": " ", "start": r.choice([0, 1]), "stop": r.choice([0, 0, 1])},
           {"type": "Metaspace", "replacement": "▁", "prepend_scheme": r.choice(["always", "first", "never"]), "split": True}]
    k = r.random()
    if k < 0.3:
        return {"type": "Sequence", "decoders": [one[0], one[1], one[2], one[3]]}
    if k < 0.6:
        return one[4]
    return {"type": "Sequence", "decoders": r.sample(one, r.choice([1, 2, 3]))} if k < 0.9 else None


def configuration(r):
    byte_level_too = r.random() < 0.35
    steps = pre_tokenizers(r)
    if byte_level_too:
        steps.append({"type": "ByteLevel", "add_prefix_space": r.random() < 0.4, "trim_offsets": True, "use_regex": r.random() < 0.5})
        alphabet = list(BYTES.values())
        if r.random() < 0.4:
            alphabet = r.sample(alphabet, r.choice([40, 150, 250]))
    else:
        alphabet = r.sample([c for c in LETTERS if len(c) == 1], r.choice([8, 14, 20]))
    fallback = r.random() < 0.4
    pieces = ["<unk>", "<s>"] + ([f"<0x{b:02X}>" for b in range(256)] if fallback else []) + alphabet
    pieces = list(dict.fromkeys(pieces))
    words = []
    while len(words) < 25:
        parts = r.sample(alphabet, 2) if not words or r.random() < 0.5 else [r.choice(words), r.choice(alphabet)]
        words.append("".join(parts))
        if words[-1] not in pieces:
            pieces.append(words[-1])
    if r.random() < 0.65:
        vocab, merges, seen = {p: i for i, p in enumerate(pieces)}, [], set()
        for w in words:
            for cut in range(1, len(w)):
                if w[:cut] in vocab and w[cut:] in vocab and (w[:cut], w[cut:]) not in seen and r.random() < 0.8:
                    seen.add((w[:cut], w[cut:]))
                    merges.append([w[:cut], w[cut:]])
        model = {"type": "BPE", "dropout": None, "unk_token": r.choice([None, "<unk>", "<unk>"]), "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": r.random() < 0.5, "byte_fallback": fallback, "ignore_merges": r.random() < 0.3,
                 "vocab": vocab, "merges": merges}
    else:
        model = {"type": "Unigram", "unk_id": 0, "byte_fallback": fallback,
                 "vocab": [[p, -r.choice([0.5, 1, 2, 3.25, 4.5, 7]) if i else 0.0] for i, p in enumerate(pieces)]}
    added = [{"id": 1, "content": "<s>", "single_word": False, "lstrip": r.random() < 0.2, "rstrip": r.random() < 0.2, "normalized": False, "special": True}]
    if r.random() < 0.5:
        content = r.choice(["<x>", "ab", "a b"])
        added.append({"id": pieces.index(content) if content in pieces else len(pieces), "content": content, "single_word": r.random() < 0.3, "lstrip": r.random() < 0.3,
                      "rstrip": r.random() < 0.3, "normalized": r.random() < 0.5, "special": r.random() < 0.5})
    norms = normalizers(r)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": norms} if norms else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if steps else None, "post_processor": None,
            "decoder": decoders(r, byte_level_too), "model": model}


def configurations(folder, args):
    for number in range(args.first, args.first + args.cases):
        r = random.Random(args.seed * 1000003 + number)
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(configuration(r)))
        try:
            tokenizers.Tokenizer.from_file(str(path))
        except Exception:
            counts["not a file of tokenizers"] += 1
            continue
        texts = [random_text(r) for _ in range(200)]
        try:
            compare(f"case {number}", path, texts)
        except BaseException as e:  # a panic of the library
            counts["the library fails"] += 1
            if isinstance(e, KeyboardInterrupt):
                raise


def main():
    args = cases.options(500)
    args.add_argument("--only", default="")
    args, _ = args.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="pesc-classes-") as folder:
        if args.only != "random":
            characters(pathlib.Path(folder), args.only)
        if not args.only or args.only == "random":
            configurations(pathlib.Path(folder), args)
    print({k: v for k, v in counts.items() if isinstance(k, str)})
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
