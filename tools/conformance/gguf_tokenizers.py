#!/usr/bin/env python3
"""Compares the tokenizer pesc reads out of a GGUF file, and the tokenizer.json it writes of it, with
the one the file was made from.

    tools/conformance/gguf_tokenizers.py [--pesc build/pesc] [--lines 2400] [--seed 7] [NAME=TOKENIZER...]

Without any, those in $PESC_DATA. TOKENIZER is a tokenizer.json (or .xz) or a SentencePiece model;
NAME is what llama.cpp calls its split pattern (tokenizer.ggml.pre), and "llama" for SentencePiece. The vocabulary is written into a GGUF file
without tensors by the `gguf` package, and pesc's ids of hard lines are compared with those of Hugging
Face `tokenizers` or `sentencepiece`. Then pesc writes tokenizer.json from the GGUF file, and what
`tokenizers` makes of that file is compared too. Exit status 1 when anything differs."""
import argparse
import importlib.util
import json
import lzma
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.pop(0)  # tokenizers.py in this folder hides the library of that name
spec = importlib.util.spec_from_file_location("hard", HERE / "tokenizers.py")
hard = importlib.util.module_from_spec(spec)
sys.path.insert(0, "")  # it takes one away as well
spec.loader.exec_module(hard)

import gguf
from gguf import TokenType


# What llama.cpp calls them; SmolLM's file here splits like GPT-2.
KNOWN = {"llama3/tokenizer.json.xz": "llama-bpe", "qwen2.5/tokenizer.json.xz": "qwen2",
         "deepseek-v3/tokenizer.json.xz": "deepseek-v3", "mistral-nemo/tokenizer.json.xz": "tekken",
         "smollm2/tokenizer.json.xz": "gpt-2", "llama2/tokenizer.model": "llama",
         "mistral/tokenizer.model.v1": "llama"}


def found():
    data = pathlib.Path(os.environ.get("PESC_DATA", "data")) / "tokenizers"
    return [f"{name}={data / path}" for path, name in KNOWN.items() if (data / path).exists()]


def writer(path, kind, tokens, types, bos, eos):
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_tokenizer_model(kind)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if bos is not None:
        w.add_bos_token_id(bos)
    if eos is not None:
        w.add_eos_token_id(eos)
    w.add_add_bos_token(False)
    return w


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def write_bpe(out, source, pre):
    """As llama.cpp's converter: holes of the vocabulary are filled with unused tokens."""
    j = json.loads(source.read_text())
    words = dict(j["model"]["vocab"])
    types = {}
    for t in j["added_tokens"]:
        words[t["content"]] = t["id"]
        types[t["id"]] = TokenType.CONTROL if t["special"] else TokenType.USER_DEFINED
    by_id = {i: s for s, i in words.items()}
    n = max(by_id) + 1
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(n)]
    kinds = [types.get(i, TokenType.NORMAL if i in by_id else TokenType.UNUSED) for i in range(n)]
    w = writer(out, "gpt2", tokens, kinds, None, None)
    w.add_tokenizer_pre(pre)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]])
    finish(w)


def write_sp(out, source):
    from sentencepiece import SentencePieceProcessor
    sp = SentencePieceProcessor(model_file=str(source))
    ids = range(sp.vocab_size())
    kind = [TokenType.UNKNOWN if sp.is_unknown(i) else TokenType.CONTROL if sp.is_control(i)
            else TokenType.UNUSED if sp.is_unused(i) else TokenType.BYTE if sp.is_byte(i)
            else TokenType.NORMAL for i in ids]
    w = writer(out, "llama", [sp.id_to_piece(i) for i in ids], kind, sp.bos_id(), sp.eos_id())
    w.add_token_scores([sp.get_score(i) for i in ids])
    w.add_unk_token_id(sp.unk_id())
    finish(w)
    return sp


def written(gguf_file, args, folder):
    """The tokenizer.json that pesc writes of the file's vocabulary, as `tokenizers` reads it."""
    from tokenizers import Tokenizer
    model, config = folder / f"{gguf_file.stem}-model", folder / "config.json"
    config.write_text(json.dumps(dict(model_type="llama", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                      num_attention_heads=1, vocab_size=1 << 18, rms_norm_eps=1e-5)))
    subprocess.run([args.pesc, "new", config, "-o", model, "--tokenizer", gguf_file, "--overwrite", "-q"], check=True,
                   stdout=subprocess.DEVNULL)
    return Tokenizer.from_file(str(model / "tokenizer.json"))


def ids(tokenizer, lines, as_text):
    tokenizer.encode_special_tokens = as_text
    return [e.ids for e in tokenizer.encode_batch(lines, add_special_tokens=False)]


def original(source):
    """GGUF has one type for all that is added and not special. pesc takes what has the form of a control
    token for one, since else a user's text could spell it; here it is marked in the same way."""
    from tokenizers import AddedToken, Tokenizer
    hf = Tokenizer.from_file(str(source))
    hf.no_truncation()
    hf.no_padding()
    added = [t.content for t in hf.get_added_tokens_decoder().values()]
    hf.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in added
                           if t.startswith(("<|", "<｜"))])
    return hf, added


def check(name, source, args, report, folder):
    out = folder / f"{source.stem}.gguf"
    pesc = hard.Pesc(args.pesc, str(out), str(folder))
    r = random.Random(args.seed)
    if name == "llama":
        sp = write_sp(out, source)
        lines = hard.hard_lines(r, args.lines, ["<s>", "</s>"])
        theirs = [sp.encode(x) for x in lines]
        report.compare("ids", lines, pesc.lines("tokenize", lines), theirs)
        again = written(out, args, folder)
        report.compare("tokenizer.json written: ids", lines, ids(again, lines, True), theirs)
        report.compare("tokenizer.json written: text", lines, [again.decode(x) for x in theirs],
                       [sp.decode(x) for x in theirs])
        return
    write_bpe(out, source, name)
    (hf, added), again = original(source), written(out, args, folder)
    lines = hard.hard_lines(r, args.lines, added)
    for what, flag, as_text in (("ids", [], True), ("ids, control tokens parsed", ["--parse-special"], False)):
        theirs = ids(hf, lines, as_text)
        report.compare(what, lines, pesc.lines("tokenize", lines, *flag), theirs)
        report.compare(f"tokenizer.json written: {what}", lines, ids(again, lines, as_text), theirs)
    report.compare("tokenizer.json written: text", lines, [again.decode(x) for x in theirs],
                   [hf.decode(x) for x in theirs])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pesc", default=os.environ.get("PESC", "build/pesc"))
    parser.add_argument("--lines", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("tokenizers", nargs="*")
    args = parser.parse_args()
    report = hard.Report()
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        for given in args.tokenizers or found():
            name, path = given.split("=", 1)
            source = pathlib.Path(path)
            print(f"{path} as {name}")
            if source.suffix == ".xz":
                source = folder / source.stem
                source.write_bytes(lzma.open(path).read())
            check(name, source, args, report, folder)
    return report.failed


if __name__ == "__main__":
    sys.exit(main())
