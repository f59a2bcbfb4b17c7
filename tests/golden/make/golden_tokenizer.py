#!/usr/bin/env python3
"""Makes tests/golden/tokenizer: what Hugging Face `tokenizers` and `sentencepiece` do with small things.

    python tests/golden/make/golden_tokenizer.py tests/golden/tokenizer

steps.json: single normalizers, pre-tokenizers and decoders, with texts and results. tokenizers.json: whole small
tokenizers, trained here or written by hand, with lines and ids. *.model: small SentencePiece models, with
sentencepiece.json for their lines. Needs tokenizers and sentencepiece; the results are committed.
"""
import io
import json
import pathlib
import random
import sys

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog, however, didn't mind it at all; it's a calm dog.",
    "In the beginning there was nothing, and then there were 12 or 345 things, and the things were good.",
    "Übergröße naïve café déjà vu. Привет, мир! Привет, как дела? 你好，世界。你好吗？ こんにちは世界。",
    "def f(x):\n    return x ** 2\n\nfor i in range(10):\n    print(f(i))\n", "aaaa aaa aa a    b\t\tc\n\n\n",
    "He said: \"I'll be there, won't I?\" They've gone; we're here. She'd know. THE END.",
] * 4
LINES = [
    "", " ", "a", "The quick brown fox", " the dog ", "  two  spaces ", "it's I'll WE'VE don't", "12345 678", "naïve café",
    "Привет, мир", "你好世界", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\n\n\n", "a\tb",
    "e\u0301 \u0301", "😀👨‍👩‍👧", "\u0000x\u0001", "x\u00a0y\u3000z", "<s>a</s>", "<s> a </s> b", "a<mask> b", "a <mask>b", "[X]a [X] b[X]c",
    "aword word word.", "AWORD Word", "<a><ab><abc>", "▁a▁▁b", "Ġa <0x41> <0xFF>", "zzz\u1234\u1235 q", "\ufffd",
    "def f(x):\n    return x", "lower UPPER <Tok> <tok>", "¡¿§", "abcabcabc" * 12,
]


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(prefix, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def whole(model, **parts):
    d = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    d.update(parts)
    return d


ANY_MODEL = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")

PRE_TOKENIZERS = [
    (split({"Regex": "x*"}, "Isolated"), ["axxb"]),
    (split({"Regex": ""}, "Isolated"), ["ab"]),
    (split({"Regex": "(?<=a)b|^c"}, "Isolated"), ["abb\nc cb"]),
    (split({"Regex": LLAMA3}, "Isolated"), ["HE'LL go\u180e to 12345  km\r\n\r\n\t!!\n x ſ'ſ"]),
    # letters, a digit and a mark that came with Unicode 15, 16 and 17
    (split({"Regex": LLAMA3}, "Isolated"), ["a\u1c89b.\U000323b0'x \U0001e4f5\U0001e4f6\U0001e4f7\U0001e4f8 \ua7cbA", "x\U00010efdy!\U000105c0!"]),
    (split({"Regex": "[^\\s\\p{L}]+|\\P{N}"}, "Isolated"), ["\u1c89-\U0001e4f5\u0897"]),
    (byte_level(False, True), ["I'll say  hello'S\n\n x1y22", "  a", "é 你好 \t", "don't\u00a0stop"]),
    (byte_level(True, True), ["a b", " a"]),
    (byte_level(True, False), ["a b"]),
    (byte_level(False, False), ["a b"]),
    ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, ["a b"]),
    ({"type": "Digits", "individual_digits": True}, ["a12b٣½"]),
    ({"type": "Digits", "individual_digits": False}, ["a12b٣4"]),
    ({"type": "Whitespace"}, ["Hey man! What_you  do~ing? é\u0301x"]),
    ({"type": "WhitespaceSplit"}, ["a \u3000b\u00a0c\nd"]),
    ({"type": "Punctuation", "behavior": "Isolated"}, ["a,b!?c¿d~e_f"]),
    ({"type": "Punctuation", "behavior": "Removed"}, ["a.b"]),
    ({"type": "CharDelimiterSplit", "delimiter": "-"}, ["a-b--c"]),
    (sequence("pretokenizers", split({"Regex": "\\p{N}{1,3}"}, "Isolated"), metaspace("first", True)), ["a 12345 b"]),
    (sequence("pretokenizers", {"type": "WhitespaceSplit"},
              sequence("pretokenizers", {"type": "Digits", "individual_digits": True}), byte_level(True, True)),
     ["a1 b22'll"]),
]
for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
    for invert in (False, True):
        PRE_TOKENIZERS.append((split({"String": "-"}, behavior, invert), ["ab--c-d--", "-a-", "--"]))
        PRE_TOKENIZERS.append((split({"Regex": "\\d+"}, behavior, invert), ["1a22b", "33"]))
for scheme in ("always", "first", "never"):
    for cut in (True, False):
        PRE_TOKENIZERS.append((metaspace(scheme, cut), ["a  b c", " a", "▁a"]))
# Oniguruma's spellings that PCRE2 reads otherwise, or not at all.
for pattern, text in [
        ("\\h+", "xyzAF09g"), ("[\\s]", "a\u180eb c"), ("[^\\s]+", "a\u180eb c"), ("[\\S]+", "a\u180eb c"), ("\\w+", "a_b-é1"),
        ("\\W", "a_b-é"), ("[[:punct:]]", "a+b!"), ("[[:alpha:]]+", "aéß1"), ("\\p{Han}+", "a一々二"), ("(?m:a.b)", "a\nb"),
        ("a.b", "a\nb"), ("\\u0061", "bab"), ("\\p{Letter}+", "a1b"), ("\\p{^L}", "a1"), ("b$", "ab\nb"), ("[]x]", "a]x"),
        ("a{2}", "aaaaa"), ("\\R", "a\r\nb"), ("\\d+", "1٣a")]:
    PRE_TOKENIZERS.append((split({"Regex": pattern}, "Isolated"), [text]))

FORMS = ["e\u0301 é \u1100\u1161\u11a8 각 ﬁ ① Å ﷺ a\u0323\u0302 a\u0302\u0323 \u0344 ２", "\u0302\u0323\u0302\u0323a\u0301",
         "plain ASCII", "क़ \u0958", "a\u0315\u0300\u05aeb", "\u0323\u0301" * 20, "a\u0899\u0301 a\u0898\u0323 \u32ff"]
NORMALIZERS = [
    ({"type": "Prepend", "prepend": "▁"}, ["ab", ""]),
    ({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, [" a  b"]),
    ({"type": "Replace", "pattern": {"String": "ab"}, "content": ""}, ["aabbab"]),
    ({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "<>"}, ["baaac aa"]),
    ({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, ["a    b c"]),
    ({"type": "NFC"}, FORMS), ({"type": "NFD"}, FORMS), ({"type": "NFKC"}, FORMS), ({"type": "NFKD"}, FORMS),
    ({"type": "Lowercase"}, ["ÀİΣ Straße ǅ", "ABC"]),
    ({"type": "Strip", "strip_left": True, "strip_right": False}, [" \u3000a b \n"]),
    ({"type": "Strip", "strip_left": False, "strip_right": True}, [" a b \n\u00a0"]),
    ({"type": "Strip", "strip_left": True, "strip_right": True}, ["  \t "]),
    ({"type": "StripAccents"}, ["e\u0301a\u0323 é"]),
    (sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
              sequence("normalizers", {"type": "Prepend", "prepend": "_"})), ["Éa Çb", ""]),
    (sequence("normalizers"), ["x"]),
]

BLANK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
LLAMA2 = sequence("decoders", BLANK, {"type": "ByteFallback"}, {"type": "Fuse"},
                  {"type": "Strip", "content": " ", "start": 1, "stop": 0})
DECODERS = [
    (LLAMA2, [["▁Hello", "▁w", "orld"], ["▁", "▁", "a"], ["<0xE4>", "<0xBD>", "<0xA0>", "a"],
              ["<0xE4>", "<0xBD>", "▁x", "<0xF0>"], ["a", "<0xE4>", "<0x41>", "<0xBD>"], ["<0x20>", "<0x20>", "a"],
              ["x", "<0xZZ>"], []]),
    (byte_level(True, True), [["Hello", "Ġworld", "ä½", "ł"], ["ð", "Ł", "ĺ"], ["<｜x｜>", "Ġa"], ["Ã", "a"], ["a b"], ["é", "é"]]),
    (metaspace("always", True), [["▁Hey", "▁you"], ["▁▁a", "▁▁b"], ["a▁b"]]),
    (metaspace("never", True), [["▁Hey", "▁you"]]),
    (sequence("decoders", {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "abc"}, "content": "-"}),
     [["xab", "cab", "c", "ab"], ["a", "b", "b", "c"], ["aabc"]]),
    (sequence("decoders", {"type": "Fuse"}, {"type": "Strip", "content": "x", "start": 2, "stop": 2}),
     [["x", "xx", "axx", "xx"], ["a", "x"], ["xaxbxxx"]]),
    ({"type": "Strip", "content": "H", "start": 1, "stop": 1}, [["Hey", " HH", "HaH"]]),
    ({"type": "Replace", "pattern": {"Regex": "[ab]"}, "content": "."}, [["ab", "ca"]]),
    ({"type": "ByteFallback"}, [["<0x61>", "<0xff>", "b"]]),
    ({"type": "Fuse"}, [["a", "b"]]),
]


def byte_letters():
    own = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in own]
    letters = {chr(b): b for b in own}
    letters.update({chr(256 + i): b for i, b in enumerate(rest)})
    return letters


def steps():
    letters, out = byte_letters(), {"pre_tokenizers": [], "normalizers": [], "decoders": []}
    for step, texts in PRE_TOKENIZERS:
        t = Tokenizer.from_str(json.dumps(whole(ANY_MODEL, pre_tokenizer=step)))
        for text in texts:
            words = [w for w, _ in t.pre_tokenizer.pre_tokenize_str(text)]
            if "ByteLevel" in json.dumps(step):
                words = [bytes(letters[c] for c in w).decode() for w in words]
            out["pre_tokenizers"].append({"step": step, "text": text, "words": words})
    for step, texts in NORMALIZERS:
        t = Tokenizer.from_str(json.dumps(whole(ANY_MODEL, normalizer=step)))
        for text in texts:
            out["normalizers"].append({"step": step, "text": text, "result": t.normalizer.normalize_str(text)})
    for step, lists in DECODERS:
        t = Tokenizer.from_str(json.dumps(whole(ANY_MODEL, decoder=step)))
        for tokens in lists:
            out["decoders"].append({"step": step, "tokens": tokens, "result": t.decoder.decode(tokens)})
    return out


def special(text, **flags):
    return AddedToken(text, special=True, normalized=False, **flags)


def with_added(t):
    t.add_special_tokens([special("<s>"), special("</s>", rstrip=True), special("<mask>", lstrip=True)])
    t.add_tokens([AddedToken("[X]", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
                  AddedToken("<a>", normalized=False), AddedToken("<ab>", normalized=False), AddedToken("<tok>", normalized=True)])
    return t


def template(d, front, back):
    ids = {t["content"]: t["id"] for t in d["added_tokens"]}
    piece = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    single = [piece(t) for t in front] + [{"Sequence": {"id": "A", "type_id": 0}}] + [piece(t) for t in back]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in front + back}}


def trained(model, trainer, pre=None, norm=None, dec=None):
    t = Tokenizer(model)
    t.pre_tokenizer, t.normalizer, t.decoder = pre, norm, dec
    t.train_from_iterator(CORPUS, trainer)
    return with_added(t)


def tokenizer_files():
    quiet = {"show_progress": False}
    t = trained(models.BPE(), trainers.BpeTrainer(vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **quiet),
                pre=pre_tokenizers.ByteLevel(add_prefix_space=False), norm=normalizers.NFC(), dec=decoders.ByteLevel())
    d = json.loads(t.to_str())
    yield "byte-level", d
    strings = json.loads(json.dumps(d))
    strings["model"]["merges"] = [" ".join(m) for m in d["model"]["merges"]]
    strings["model"]["ignore_merges"] = True
    strings["model"]["merges"] = strings["model"]["merges"][:60]
    strings["post_processor"] = sequence("processors", byte_level(True, True), template(d, ["<s>"], ["</s>"]))
    yield "byte-level, string merges, ignore_merges, template", strings
    missing = json.loads(json.dumps(d))  # the bytes 1 and 10 have no token: they vanish from a word
    rename = lambda t: t.replace("\u0101", "\u4e00").replace("\u010a", "\u4e01")
    missing["model"]["vocab"] = {rename(t): i for t, i in d["model"]["vocab"].items()}
    missing["model"]["merges"] = [[rename(t) for t in m] for m in d["model"]["merges"]]
    yield "byte-level, bytes missing", missing
    alphabet = sorted(set("".join(CORPUS)) | {"▁"})
    bytes_too = [f"<0x{b:02X}>" for b in range(256)]
    llama = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    for name, fallback, fuse in (("whole text, byte fallback", True, True), ("whole text, unk", False, False),
                                 ("whole text, fused unk", False, True)):
        t = trained(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse),
                    trainers.BpeTrainer(vocab_size=480 if fallback else 220, special_tokens=["<unk>"] + (bytes_too if fallback else []),
                                        initial_alphabet=alphabet, **quiet), norm=llama,
                    dec=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)]))
        d = json.loads(t.to_str())
        d["added_tokens"] = [a for a in d["added_tokens"] if not a["content"].startswith("<0x")]
        d["post_processor"] = template(d, ["<s>"], [])
        yield name, d
    broken = json.loads(json.dumps(d))
    broken["model"]["byte_fallback"] = True  # without a single byte token: unknown stays unknown
    yield "byte fallback without byte tokens", broken
    t = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], **quiet),
                pre=pre_tokenizers.Metaspace("▁", "first"), dec=decoders.Metaspace("▁", "first"))
    yield "metaspace, first", json.loads(t.to_str())
    t = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], **quiet),
                norm=normalizers.Lowercase(), pre=pre_tokenizers.Whitespace())
    yield "lower case, words, no decoder", json.loads(t.to_str())
    t = trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=160, unk_token="<unk>", special_tokens=["<unk>"], **quiet),
                pre=pre_tokenizers.Metaspace("▁", "always"), dec=decoders.Metaspace("▁", "always"))
    yield "unigram", json.loads(t.to_str())
    yield "hand-written merges", whole(
        {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
         "vocab": {t: i for i, t in enumerate(["a", "b", "c", "ab", "bc", "aa", "abc", "aab", "aaaa", "ca", "cab"])},
         # a later merge makes what an earlier one wants; "a a" over a run; the same pair twice
         "merges": ["aa aa", "b c", "a b", "a a", "a ab", "ab c", "c a", "ca b", "a bc", "b c"]})


def tokenizer_lines():
    out, r = [], random.Random(3)
    for name, d in tokenizer_files():
        t = Tokenizer.from_str(json.dumps(d))
        lines = LINES + ["".join(r.choice("abc") for _ in range(r.randint(1, 90))) for _ in range(12)]
        rows = []
        for line in lines:
            t.encode_special_tokens = True
            text = t.encode(line, add_special_tokens=False).ids
            t.encode_special_tokens = False
            parsed = t.encode(line, add_special_tokens=False).ids
            framed = t.encode(line).ids
            rows.append({"text": line, "ids": text, "parsed": parsed, "framed": framed,
                         "decoded": t.decode(framed, skip_special_tokens=False),
                         "skipped": t.decode(framed, skip_special_tokens=True)})
        out.append({"name": name, "tokenizer": d, "lines": rows})
    return out


SP_MODELS = {
    "bpe.model": dict(model_type="bpe", vocab_size=460, byte_fallback=True, user_defined_symbols=["<u>", "dog"], split_digits=True,
                      normalization_rule_name="identity", remove_extra_whitespaces=False),
    "bpe-rules.model": dict(model_type="bpe", vocab_size=200, character_coverage=0.99, normalization_rule_tsv="rules"),
    "unigram.model": dict(model_type="unigram", vocab_size=200, user_defined_symbols=["<u>"], normalization_rule_tsv="rules"),
}


# A normalisation small enough to commit: ligature, full-width letters, no-break space, a composition.
RULES = [("ﬁ", "fi"), ("ｆ", "f"), ("ｕ", "u"), ("ｌ", "l"), ("\u00a0", " "), ("e\u0301", "é"), ("…", "...")]


def sentencepiece_models(folder):
    out = {}
    rules = folder / "rules.tsv"
    rules.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in RULES))
    for name, options in SP_MODELS.items():
        model = io.BytesIO()
        if "normalization_rule_tsv" in options:
            options = dict(options, normalization_rule_tsv=str(rules))
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, minloglevel=2,
                                                 hard_vocab_limit=False, **options)
        (folder / name).write_bytes(model.getvalue())
        sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        lines = LINES + ["<u>a<u> dog", "hot dogs", "ｆｕｌｌ ﬁ", "   lead and trail   "]
        out[name] = [{"text": x, "ids": sp.encode(x), "decoded": sp.decode(sp.encode(x))} for x in lines]
    rules.unlink()
    return out


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "steps.json", steps())
    write(folder / "tokenizers.json", tokenizer_lines())
    write(folder / "sentencepiece.json", sentencepiece_models(folder))


if __name__ == "__main__":
    main()
