#!/usr/bin/env python3
"""Compares pesc's token ids and decoded text with Hugging Face `tokenizers` and `sentencepiece`.

    tools/conformance/tokenizers.py [--pesc build/pesc] [--lines 2400] [--seed 7] TOKENIZER...

A TOKENIZER is a tokenizer.json, a SentencePiece model, or either as .xz. Each gets the same hard
lines plus spellings of its own added tokens. For a tokenizer.json four things must be equal: ids
with control tokens as text (HF: encode_special_tokens), ids with control tokens parsed, ids with
BOS/EOS, and the decoded text, with and without control tokens. For a SentencePiece model: ids and
decoded text. Raw bytes that are no UTF-8 go in as files. Exit status 1 when anything differs."""
import argparse
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile

sys.path.pop(0)  # this file's own folder: its name hides the library of that name

SCRIPTS = [
    (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587),
    (0x5D0, 0x5EA), (0x600, 0x6FF), (0x900, 0x97F), (0xB80, 0xBFF), (0xE00, 0xE5B), (0x1100, 0x11FF),
    (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0x1F300, 0x1FAFF), (0x2000, 0x2BFF),
    (0xFB00, 0xFEFF), (0xFF00, 0xFFEF), (0x300, 0x36F),
]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\u00a0", "\u3000", "\u2028", "\u180e",
          "\u200b", "\x85", "\x0b", "\x0c", "\u1680", "\u2009", "\ufeff"]
WORDS = """the of and I'll don't WE'VE it's they're he'D cannot naïve façade Übergröße Straße İstanbul
ſtrange K K ﬁne ﬆ Σίσυφος ὈΔΥΣΣΕΎΣ привет мир Київ שלום עולם مرحبا العالم नमस्ते दुनिया สวัสดีชาวโลก 你好世界
こんにちは 안녕하세요 ประเทศไทย Việt Nam e\u0301te\u0301 a\u0323\u0302 \u0302\u0323a \uac01\u11a8 1234567890 3.14159 0x1F 1e-10
1,000,000 ½ Ⅷ ٣٤٥ १२३ 𝟏𝟐𝟑 x² H₂O camelCase HTTPServer snake_case kebab-case FooBarBAZ ▁ ▁▁ Ġ Ċ ĠĠ <0x0A> <0xFF> ⁇ <unk> <s> </s>
<|endoftext|> <|im_start|> <|im_end|> [INST] [/INST] https://example.org/a?b=c&d=%20#e user@example.com
C:\\\\path\\\\file.txt $100 €5,00 #hashtag @mention :-) ¯\\_(ツ)_/¯ ... --- *** === /* */ // ;; }}} {{{ ''' \"\"\" ``` \\n \\t""".split()
EMOJI = ["👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️", "🧑🏿‍🚀", "😀😃😄", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☕︎", "🤷‍♀️"]
CODE = ["def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; i++) {\n\ta[i] += b[i];\n}\n",
        "SELECT * FROM t WHERE a='b' -- c\n", "<div class=\"x\">\n  <p>&nbsp;</p>\n</div>", "{\"k\": [1, 2.5e3, null]}",
        "\\begin{equation}\n\\frac{a}{b}\n\\end{equation}", "#!/bin/sh\nset -e\necho \"$1\" | sed 's/a/b/g'\n",
        "    if x:\n        y = 1\n\n\n    else:\n\tpass", "a\tb\tc\n1\t2\t3\n", "/**\n * doc\n */", "x=1;y=2;;z=3"]


def any_char(r):
    while True:
        c = r.randrange(0x110000) if r.random() < 0.5 else r.randrange(0x3000)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def fragment(r):
    k = r.randrange(12)
    if k == 0:
        lo, hi = r.choice(SCRIPTS)
        return "".join(chr(r.randint(lo, hi)) for _ in range(r.randint(1, 12)))
    if k == 1:
        return r.choice(EMOJI) * r.randint(1, 3)
    if k == 2:
        return r.choice("aA0 .\n\t-=*#_é你\u0301😀▁") * r.choice([2, 3, 5, 8, 17, 33, 64, 100, 257])
    if k == 3:
        return "".join(chr(r.randrange(0x20)) for _ in range(r.randint(1, 4)))
    if k == 4:
        return "".join(any_char(r) for _ in range(r.randint(1, 6)))
    if k == 5:
        return r.choice(CODE)
    if k == 6:
        return str(r.randrange(10 ** r.randint(1, 18)))
    if k == 7:
        return bytes(r.randrange(256) for _ in range(r.randint(1, 10))).decode("utf-8", "replace")
    if k == 8:
        return r.choice(SPACES) * r.randint(1, 4)
    if k == 9:
        return "".join(r.choice("aeiouAEIOUnrst.,'’!?;: \n") for _ in range(r.randint(1, 30)))
    return r.choice(WORDS) + r.choice([" ", "", "'s ", ". ", ", "])


def hard_lines(r, count, added):
    lines = ["", " ", "\n", "a", "\u0000", "\ufffd", "  a  ", "a" * 3000, " " * 1000, "1" * 500, "\u0301" * 300,
             "ab" * 700, "你" * 400, "😀" * 200, "a\u0301\u0323" * 100, "\r\n" * 50]
    while len(lines) < count:
        parts = [fragment(r) for _ in range(r.randint(1, 7))]
        if added and r.random() < 0.25:
            token = r.choice(added)
            cut = token[: r.randint(1, len(token))]
            parts.insert(r.randrange(len(parts) + 1), r.choice([token, token, " " + token + " ", token * 2, cut]))
        lines.append(r.choice(["", " ", ""]).join(parts))
    return lines


def raw_files(r):
    seeds = [b"\xff", b"\xe2\x82", b"a\xf0\x9f\x98b", b"\xc0\x80\xed\xa0\x80", b"\xf4\x90\x80\x80", "é".encode()[:1] + b" x"]
    return seeds + [bytes(r.choice([r.randrange(256), 0x20, 0x61, 0xE2, 0x82]) for _ in range(200)) for _ in range(20)]


class Pesc:
    def __init__(self, command, tokenizer, folder):
        self.command, self.tokenizer, self.folder = command, tokenizer, folder

    def lines(self, verb, rows, *flags):
        path = os.path.join(self.folder, "in.jsonl")
        with open(path, "w") as f:
            for row in rows:
                f.write(json.dumps(row) + "\n")
        out = subprocess.run([self.command, verb, self.tokenizer, "--jsonl", path, *flags], stdout=subprocess.PIPE, check=True)
        return [json.loads(x) for x in out.stdout.split(b"\n") if x]

    def file(self, data):
        path = os.path.join(self.folder, "in.txt")
        with open(path, "wb") as f:
            f.write(data)
        out = subprocess.run([self.command, "tokenize", self.tokenizer, path], stdout=subprocess.PIPE, check=True)
        return [int(x) for x in out.stdout.split()]


class Report:
    def __init__(self):
        self.failed = False

    def compare(self, what, inputs, ours, theirs):
        equal = differ = 0
        for given, a, b in zip(inputs, ours, theirs):
            if a == b:
                equal += 1
                continue
            differ += 1
            if differ <= 3:
                print(f"    {given!r:.200}\n      pesc  {a!r:.300}\n      other {b!r:.300}")
        self.failed |= differ > 0 or len(ours) != len(theirs)
        print(f"  {what}: {equal} lines equal, {differ} differ")


def check_json(pesc, path, args, report):
    from tokenizers import Tokenizer
    hf = Tokenizer.from_file(path)
    hf.no_truncation()
    hf.no_padding()
    added = [t.content for t in hf.get_added_tokens_decoder().values()]
    r = random.Random(args.seed)
    lines = hard_lines(r, args.lines, added)
    hf.encode_special_tokens = True
    text = [e.ids for e in hf.encode_batch(lines, add_special_tokens=False)]
    report.compare("ids, control tokens as text", lines, pesc.lines("tokenize", lines), text)
    raw = raw_files(r)
    report.compare("ids of bytes that are no UTF-8", raw, [pesc.file(b) for b in raw],
                   [hf.encode(b.decode("utf-8", "replace"), add_special_tokens=False).ids for b in raw])
    hf.encode_special_tokens = False
    ids = [e.ids for e in hf.encode_batch(lines, add_special_tokens=False)]
    report.compare("ids, control tokens parsed", lines, pesc.lines("tokenize", lines, "--parse-special"), ids)
    framed = [e.ids for e in hf.encode_batch(lines, add_special_tokens=True)]
    report.compare("ids with BOS/EOS", lines, pesc.lines("tokenize", lines, "--parse-special", "--add-special"), framed)
    odd = [[r.randrange(hf.get_vocab_size()) for _ in range(r.randint(1, 40))] for _ in range(500)]
    for what, rows in (("text of those ids", framed), ("text of random ids", odd)):
        report.compare(what, rows, pesc.lines("detokenize", rows), [hf.decode(x, skip_special_tokens=False) for x in rows])
        report.compare(what + ", control tokens left out", rows, pesc.lines("detokenize", rows, "--skip-special"),
                       [hf.decode(x, skip_special_tokens=True) for x in rows])


def check_model(pesc, path, args, report):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=path)
    control = [sp.id_to_piece(i) for i in range(sp.get_piece_size()) if sp.is_control(i)]
    r = random.Random(args.seed)
    lines = hard_lines(r, args.lines, control)
    ids = [sp.encode(x) for x in lines]
    report.compare("ids", lines, pesc.lines("tokenize", lines), ids)
    raw = raw_files(r)
    report.compare("ids of bytes that are no UTF-8", raw, [pesc.file(b) for b in raw],
                   [sp.encode(b.decode("utf-8", "replace")) for b in raw])
    known = [i for i in range(sp.get_piece_size()) if not sp.is_unknown(i)]  # sentencepiece shows <unk> always
    odd = [[r.choice(known) for _ in range(r.randint(1, 40))] for _ in range(500)]
    for what, rows in (("text of those ids", ids), ("text of random ids", odd)):
        report.compare(what, rows, pesc.lines("detokenize", rows, "--skip-special"), [sp.decode(x) for x in rows])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tokenizer", nargs="+")
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--lines", type=int, default=2400)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()
    report = Report()
    for name in args.tokenizer:
        print(name)
        with tempfile.TemporaryDirectory() as folder:
            data = lzma.open(name).read() if name.endswith(".xz") else open(name, "rb").read()
            path = os.path.join(folder, "tokenizer")
            with open(path, "wb") as f:
                f.write(data)
            check = check_json if data.lstrip()[:1] == b"{" else check_model
            check(Pesc(args.pesc, path, folder), path, args, report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
