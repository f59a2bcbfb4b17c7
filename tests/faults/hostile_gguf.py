"""GGUF files that lie, one a row: name, what changes in a valid file, what pesc must say.

G1..G20 are the groups of the list of cases that every reader here is held to. The files are made
when their turn comes: what this process holds counts in what the harness measures."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import ggufwire as w
from ggufwire import ARRAY, BOOL, F32, I32, I64, STRING, U32, U64

HUGE = 2**64 - 1
A = "llama."


def change(**fields):
    """A valid file with some of its fields replaced."""
    f = w.llama()
    for name, v in fields.items():
        setattr(f, name, v)
    return f


def tensor(name="blk.0.attn_q.weight", **fields):
    f = w.llama()
    for key, v in fields.items():
        setattr(f.tensor(name), key, v)
    return f


def key(name, kind, v):
    return w.llama().set(name, kind, v)


def small(tail, n_keys=1, n_tensors=0):
    """A file of nothing but a header, and these bytes."""
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + tail


def deep(levels):
    """Arrays inside arrays."""
    return small(w.text("deep") + struct.pack("<I", ARRAY) +
                 struct.pack("<IQ", ARRAY, 1) * levels + struct.pack("<IQ", U32, 0))


def cut(f, n=1):
    return f.bytes()[:-n]


def overlapping():
    f = w.llama()
    f.tensors[3].offset = 0
    return f


def twice(name="blk.0.attn_norm.weight"):
    f = w.llama()
    f.tensors.append(w.Tensor(name, (32,)))
    return f


def double_key():
    f = w.llama()
    f.keys.append(f.keys[-1])
    return f


def header_only():
    """Everything but the tensors."""
    return w.llama().header()


def quantised(kind, block, size, at, half):
    """token_embd in a block format whose third block has this scale."""
    f = w.llama(width=256, heads=4, kv_heads=2, ffn=32, vocab=3)
    blocks = bytearray(struct.pack("<B", 3) * (256 * 3 // block * size))
    for b in range(256 * 3 // block):
        struct.pack_into("<H", blocks, b * size + at, half if b == 2 else 0x2000)
    f.tensors[0] = w.Tensor("token_embd.weight", (256, 3), kind, bytes(blocks))
    return f


def vocabulary(change_it):
    f = w.sentencepiece(w.File())
    change_it(f)
    return f


def byte_token(token):
    def to(f):
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["a"]
        tokens[40] = token
        f.set_array("tokenizer.ggml.tokens", STRING, tokens)
        f.set_array("tokenizer.ggml.scores", F32, [0.0] * 260)
        f.set_array("tokenizer.ggml.token_type", I32, [2, 3, 3] + [6] * 256 + [1])
    return vocabulary(to)


def many_keys(n):
    return small(b"".join(w.text(f"k{i}") + struct.pack("<IB", w.U8, 1) for i in range(n)), n)


def many_tensors(n):
    info = b"".join(w.text(f"t{i}") + struct.pack("<IQIQ", 1, 8, 0, 32 * i) for i in range(n))
    return small(info + bytes(32 * n + 64), 0, n)


def stack(experts):
    """A stack of so many tiny experts."""
    f = w.mixtral()
    f.set("llama.expert_count", U32, experts)
    f.tensors[-1] = w.Tensor("blk.0.ffn_down_exps.weight", (1, 1, experts), data=bytes(4 * experts))
    return f


def factors(values):
    f = w.llama()
    f.tensors.append(w.Tensor("rope_freqs.weight", (len(values),),
                              data=struct.pack(f"<{len(values)}f", *values)))
    return f


INFO = [
    ("g1-empty", lambda: b"", "the magic number of GGUF needs 4 bytes"),
    ("g1-three-bytes", lambda: b"GGU", "byte 0: the magic number of GGUF needs 4 bytes"),
    ("g1-magic", lambda: change(magic=b"GGML"), "byte 0: found 47 47 4d 4c, expected 'GGUF'"),
    ("g1-magic-swapped", lambda: change(magic=b"FUGG"), "byte 0: found 46 55 47 47"),
    ("g1-big-endian", lambda: change(version=3 << 24), "byte 4: is a big-endian GGUF file"),
    ("g1-version-0", lambda: change(version=0), "byte 4: is GGUF version 0, expected 2 or 3"),
    ("g1-version-1", lambda: change(version=1), "byte 4: is GGUF version 1, expected 2 or 3"),
    ("g1-version-4", lambda: change(version=4), "is GGUF version 4"),
    ("g1-version-max", lambda: change(version=2**32 - 1), "is GGUF version 4294967295"),
    ("g2-keys-2^63", lambda: change(n_keys=2**63), "byte 16: the number of metadata entries is 9223372036854775808"),
    ("g2-keys-max", lambda: change(n_keys=HUGE), "the number of metadata entries is 18446744073709551615"),
    ("g2-keys-10^9", lambda: small(bytes(40), 10**9), "the number of metadata entries is 1000000000, but the 40 bytes left hold"),
    ("g2-keys-one-more", lambda: change(n_keys=9), "a tensor's name needs 11258999068426240 bytes"),
    ("g2-tensors-2^63", lambda: change(n_tensors=2**63), "byte 8: the number of tensors is 9223372036854775808"),
    ("g2-tensors-max", lambda: change(n_tensors=HUGE), "byte 8: the number of tensors is 18446744073709551615"),
    ("g2-tensors-10^9", lambda: small(bytes(40), 0, 10**9), "the number of tensors is 1000000000, but the 48 bytes left hold"),
    ("g2-keys-many", lambda: many_keys(70000), "the number of metadata entries is 70000, expected at most 65536"),
    ("g2-tensors-many", lambda: many_tensors(70000), "the number of tensors is 70000, expected at most 65536"),
    ("g3-key-max", lambda: small(struct.pack("<Q", HUGE) + bytes(40)), "byte 32: a metadata key needs 18446744073709551615 bytes"),
    ("g3-key-empty", lambda: key("", U32, 1), "a metadata key has 0 bytes, expected 1 to 65535"),
    ("g3-key-past-end", lambda: small(struct.pack("<Q", 41) + bytes(40)), "a metadata key needs 41 bytes, but the file has 40 left"),
    ("g3-key-65536", lambda: key("k" * 65536, U32, 1), "a metadata key has 65536 bytes, expected 1 to 65535"),
    ("g4-key-twice", lambda: double_key(), "metadata key llama.attention.layer_norm_rms_epsilon is given twice"),
    ("g4-key-nul", lambda: key("a\0b", U32, 1), "a metadata key 'a' is not text"),
    ("g4-key-utf8", lambda: w.llama().raw(b"a\xff", U32, struct.pack("<I", 1)), "is not text"),
    ("g5-type-13", lambda: w.llama().raw("x", 13, bytes(4)), "x has value type 13, expected 0 to 12"),
    ("g5-type-max", lambda: w.llama().raw("x", 2**32 - 1, bytes(4)), "x has value type 4294967295"),
    ("g5-array-type-13", lambda: w.llama().raw("x", ARRAY, struct.pack("<IQ", 13, 0)), "x has value type 13"),
    ("g6-bool-2", lambda: w.llama().raw("x", BOOL, b"\2"), "x is the bool 2, expected 0 or 1"),
    ("g6-bool-array", lambda: w.llama().raw("x", ARRAY, struct.pack("<IQ", BOOL, 3) + b"\0\1\7"), "x is the bool 7"),
    ("g7-string-1GiB", lambda: w.llama().raw("x", STRING, struct.pack("<Q", 2**30) + b"abc"), "a string needs 1073741824 bytes"),
    ("g7-string-max", lambda: w.llama().raw("x", STRING, struct.pack("<Q", HUGE) + b"abc"), "a string needs 18446744073709551615 bytes"),
    ("g8-deep", lambda: deep(10**6), "deep is an array of arrays"),
    ("g8-array-of-arrays", lambda: deep(1), "deep is an array of arrays"),
    ("g8-array-overflow", lambda: w.llama().raw("x", ARRAY, struct.pack("<IQ", U64, 2**61 + 1)), "x declares 2305843009213693953 elements of type u64"),
    ("g8-array-1TB", lambda: w.llama().raw("x", ARRAY, struct.pack("<IQ", U32, 2**38)), "x declares 274877906944 elements of type u32"),
    ("g8-strings-many", lambda: w.llama().raw("x", ARRAY, struct.pack("<IQ", STRING, 2**40)), "x declares 1099511627776 elements of type string"),
    ("g8-string-in-array", lambda: w.llama().raw("x", ARRAY, struct.pack("<IQQ", STRING, 1, HUGE)), "a string needs 18446744073709551615 bytes"),
    ("g9-alignment-0", lambda: key("general.alignment", U32, 0), "general.alignment: found 0, expected a power of two"),
    ("g9-alignment-3", lambda: key("general.alignment", U32, 3), "general.alignment: found 3, expected a power of two"),
    ("g9-alignment-2^31", lambda: key("general.alignment", U32, 2**31), "general.alignment: found 2147483648"),
    ("g9-alignment-i32", lambda: key("general.alignment", I32, 32), "general.alignment: found type i32, expected u32"),
    ("g9-alignment-text", lambda: key("general.alignment", STRING, "32"), "general.alignment: found type string, expected u32"),
    ("g9-alignment-list", lambda: w.llama().set_array("general.alignment", U32, [32]), "general.alignment: found type array of u32"),
    ("g9-alignment-twice", lambda: change(keys=w.llama().keys + [("general.alignment", U32, struct.pack("<I", 32))] * 2), "general.alignment is given twice"),
    ("g9-alignment-other", lambda: key("general.alignment", U32, 4096), "aligned to 4096"),
    ("g10-dims-0", lambda: tensor(dims=[]), "tensor blk.0.attn_q.weight has 0 dimensions, expected 1 to 4"),
    ("g10-dims-5", lambda: tensor(dims=[1, 1, 1, 1, 1]), "has 5 dimensions, expected 1 to 4"),
    ("g10-dims-max", lambda: tensor(n_dims=2**32 - 1), "has 4294967295 dimensions"),
    ("g11-dim-0", lambda: tensor(dims=[32, 0]), "dimension 1 of tensor blk.0.attn_q.weight is 0"),
    ("g11-dim-minus-1", lambda: tensor(dims=[-1, 32]), "is 18446744073709551615, expected 1 to 2^63-1"),
    ("g11-dim-2^62", lambda: tensor(dims=[2**62, 4]), "has more than 2^63-1 elements"),
    ("g11-product", lambda: tensor(dims=[2**32, 2**32]), "has more than 2^63-1 elements"),
    ("g11-product-wraps-to-0", lambda: tensor(dims=[2**32, 2**32, 4, 4]), "has more than 2^63-1 elements"),
    ("g11-not-blocks", lambda: tensor(dims=[33, 32], kind=w.TYPE_Q8_0), "rows of 33 elements, expected a multiple of 32 for q8_0"),
    ("g12-type-4", lambda: tensor(kind=4), "tensor blk.0.attn_q.weight has the unknown type 4"),
    ("g12-type-5", lambda: tensor(kind=5), "has the unknown type 5"),
    ("g12-type-40", lambda: tensor(kind=40), "has the unknown type 40"),
    ("g12-type-max", lambda: tensor(kind=2**32 - 1), "has the unknown type 4294967295"),
    ("g12-iq2", lambda: tensor(kind=16), "is IQ2_XXS; pesc reads F32, F16, BF16"),
    ("g12-q2_k-rows", lambda: tensor(kind=10), "has rows of 32 elements, expected a multiple of 256 for q2_k"),
    ("g12-i8", lambda: tensor(kind=24), "is I8; pesc reads F32"),
    ("g13-offset-unaligned", lambda: tensor(offset=4), "is at offset 4, expected"),
    ("g13-offset-past-end", lambda: tensor(offset=2**40), "is at offset 1099511627776, expected"),
    ("g13-offset-max", lambda: tensor(offset=HUGE - 3), "is at offset 18446744073709551612"),
    ("g13-offset-overlap", lambda: overlapping(), "is at offset 0, expected"),
    ("g13-name-64", lambda: twice("n" * 64), "a tensor's name has 64 bytes, expected 1 to 63"),
    ("g13-name-empty", lambda: twice(""), "a tensor's name has 0 bytes"),
    ("g13-name-escape", lambda: twice("\x1b]0;x\x07%n%s\0"), "is not text"),
    ("g14-cut", lambda: cut(w.llama()), "tensor blk.0.ffn_down.weight needs 6144 bytes, but the file has 6143 left"),
    ("g14-cut-to-header", lambda: header_only(), "is truncated"),
    ("g14-cut-in-header", lambda: w.llama().header()[:-5], "the offset of a tensor needs 8 bytes, but the file has 3 left"),
    ("g15-pad-wraps", lambda: tensor(dims=[2**62 - 1]), "ends beyond what memory can address"),
    ("g15-bytes-wrap", lambda: tensor(dims=[2**62]), "has more bytes than memory has addresses"),
    ("g17-heads-0", lambda: key(A + "attention.head_count", U32, 0), "attention.head_count: found 0, expected 1 to"),
    ("g17-heads-many", lambda: key(A + "attention.head_count", U32, 64), "does not divide by 64 heads"),
    ("g17-heads-5", lambda: key(A + "attention.head_count", U32, 5), "embedding_length 32 does not divide by 5 heads"),
    ("g17-heads-text", lambda: key(A + "attention.head_count", STRING, "2"), "attention.head_count: found type string, expected an integer"),
    ("g17-kv-heads-3", lambda: key(A + "attention.head_count_kv", U32, 3), "attn_k.weight has 16 rows, expected a multiple of 2 x 3 heads"),
    ("g17-layers-0", lambda: key(A + "block_count", U32, 0), "block_count: found 0, expected 1 to"),
    ("g17-layers-2^31", lambda: key(A + "block_count", U32, 2**31), "block_count: found 2147483648, expected 1 to 2147483647"),
    ("g17-layers-many", lambda: key(A + "block_count", U32, 2**31 - 1), "found 2147483647 layers, but the file has only 11 tensors"),
    ("g17-layers-missing", lambda: w.llama().drop(A + "block_count"), "the metadata key llama.block_count is missing"),
    ("g17-rope-0", lambda: key(A + "rope.dimension_count", U32, 0), "rope.dimension_count: found 0"),
    ("g17-rope-odd", lambda: key(A + "rope.dimension_count", U32, 15), "rope.dimension_count: found 15, expected 16"),
    ("g17-theta-nan", lambda: key(A + "rope.freq_base", F32, float("nan")), "rope.freq_base: is not a finite number"),
    ("g17-theta-negative", lambda: key(A + "rope.freq_base", F32, -1.0), "rope.freq_base: found -1, expected more than 0"),
    ("g17-eps-nan", lambda: key(A + "attention.layer_norm_rms_epsilon", F32, float("nan")), "is not a finite number"),
    ("g17-used-too-many", lambda: w.mixtral(3, 4), "expert_used_count: found 4, expected 1 to 3"),
    ("g17-used-0", lambda: w.mixtral(3, 0), "expert_used_count: found 0, expected 1"),
    ("g17-experts-0-used-2", lambda: w.mixtral().set(A + "expert_count", U32, 0), "3 missing: model.layers.0.mlp.gate_proj.weight"),
    ("g17-experts-max", lambda: w.mixtral().set(A + "expert_count", U32, 2**32 - 1), "expert_count: found 4294967295"),
    ("g17-experts-stacked", lambda: stack(300000), "holds 300000 experts, expected at most"),
    ("g17-list-short", lambda: w.llama().set_array(A + "attention.head_count", U32, []), "found 0 entries, expected one for each of 1 layers"),
    ("g17-list-long", lambda: w.llama().set_array(A + "attention.head_count", U32, [2, 2]), "found 2 entries, expected one for each of 1 layers"),
    ("g17-list-reals", lambda: w.llama().set_array(A + "attention.head_count", F32, [2.0]), "found type array of f32, expected integers"),
    ("g17-rope-factors-zero", lambda: factors([1.0] * 7 + [0.0]), "rope_freqs.weight: number 7 is 0, expected more than 0"),
    ("g17-rope-factors-few", lambda: factors([1.0] * 7), "rope_freqs.weight: expected 8 numbers in f32"),
    ("g17-rope-factors-odd", lambda: factors([3.0, 1.0] * 4), "do not follow Llama 3's rule"),
    ("g17-rope-longrope", lambda: key(A + "rope.scaling.type", STRING, "longrope"), "rope.scaling.type: found 'longrope'"),
    ("g17-unknown", lambda: key("general.architecture", STRING, "rwkv\x1b[2J"), "general.architecture: is 'rwkv\\x1B[2J'; pesc reads"),
    ("g17-adapter", lambda: key("general.type", STRING, "adapter"), "general.type: is 'adapter', expected 'model'"),
    ("g13-name-twice", lambda: twice(), "input_layernorm.weight: is given twice"),
    ("g13-name-extra", lambda: twice("blk.0.surprise.weight"), "1 left over: blk.0.surprise.weight"),
    ("g18-eos-vocab", lambda: key("tokenizer.ggml.eos_token_id", U32, 40), "eos_token_id: found 40, expected 0 to 39"),
    ("g18-bos-minus-1", lambda: key("tokenizer.ggml.bos_token_id", I32, -1), "bos_token_id: found -1, expected 0 to 39"),
    ("g18-pad-max", lambda: key("tokenizer.ggml.padding_token_id", U32, 2**32 - 1), "padding_token_id: found 4294967295"),
    ("g18-tokens-more-than-rows", lambda: w.llama().set_array("tokenizer.ggml.tokens", STRING, ["x"] * 41), "found 41 tokens, but token_embd.weight has 40 rows"),
    ("g19-split-0", lambda: key("split.count", U32, 0), "split.count: found 0, expected 1"),
    ("g19-split-index", lambda: key("split.count", w.U16, 2).set("split.no", w.U16, 2), "split.no: found 2, expected 0 to 1"),
    ("g19-split", lambda: key("split.count", w.U16, 3).set("split.no", w.U16, 1), "is part 2 of 3 of a split model; give the first part"),
    ("g19-split-name", lambda: key("split.count", w.U16, 3), "its name does not end in -00001-of-00003.gguf"),
    ("g19-split-many", lambda: key("split.count", U32, 100000), "split.count: found 100000, expected 1 to 99999"),
]

V = "tokenizer.ggml."
TOKENS = [
    ("g18-tokens-empty", lambda: vocabulary(lambda f: f.set_array(V + "tokens", STRING, [])), "tokens: found 0 tokens, expected 1 to"),
    ("g18-tokens-missing", lambda: vocabulary(lambda f: f.drop(V + "tokens")), "tokens: found 0 tokens"),
    ("g18-tokens-numbers", lambda: vocabulary(lambda f: f.set_array(V + "tokens", U32, [1, 2])), "tokens: found type array of u32, expected array of string"),
    ("g18-tokens-many", lambda: vocabulary(lambda f: f.raw(V + "tokens", ARRAY, struct.pack("<IQ", STRING, 1100000) + bytes(8 * 1100000))), "found 1100000 tokens, expected 1 to 1048576"),
    ("g18-scores-short", lambda: vocabulary(lambda f: f.set_array(V + "scores", F32, [0.0] * 264)), "scores: found 264 entries, expected 265, one a token"),
    ("g18-scores-wide", lambda: vocabulary(lambda f: f.set_array(V + "scores", w.F64, [0.0] * 265)), "scores: found type array of f64, expected array of f32"),
    ("g18-scores-nan", lambda: vocabulary(lambda f: f.set_array(V + "scores", F32, [0.0] * 264 + [float("nan")])), "scores: that of token 264 is not finite"),
    ("g18-types-short", lambda: vocabulary(lambda f: f.set_array(V + "token_type", I32, [1])), "token_type: found 1 entries, expected 265"),
    ("g18-types-narrow", lambda: vocabulary(lambda f: f.set_array(V + "token_type", w.U8, [1] * 265)), "token_type: found type array of u8, expected array of i32"),
    ("g18-types-wild", lambda: vocabulary(lambda f: f.set_array(V + "token_type", I32, [1] * 264 + [-9])), "token 264 has type -9, expected 0 to 6"),
    ("g18-bos-vocab", lambda: vocabulary(lambda f: f.set(V + "bos_token_id", U32, 265)), "bos_token_id: found 265, expected 0 to 264"),
    ("g18-eos-minus-1", lambda: vocabulary(lambda f: f.set(V + "eos_token_id", I64, -1)), "eos_token_id: found -1"),
    ("g18-unk-max", lambda: vocabulary(lambda f: f.set(V + "unknown_token_id", U64, HUGE)), "unknown_token_id: found 9223372036854775807"),
    ("g18-byte-minus-1", lambda: byte_token("<0x-1>"), "token 40 stands for a byte and is '<0x-1>'"),
    ("g18-byte-zz", lambda: byte_token("<0xZZ>"), "token 40 stands for a byte and is '<0xZZ>'"),
    ("g18-byte-long", lambda: byte_token("<0x1000>"), "token 40 stands for a byte and is '<0x1000>'"),
    ("g18-byte-twice", lambda: byte_token("<0x00>"), "token 40, '<0x00>', appears twice"),
    ("g18-model-missing", lambda: vocabulary(lambda f: f.drop(V + "model")), "the metadata key tokenizer.ggml.model is missing"),
    ("g18-model-unknown", lambda: vocabulary(lambda f: f.set(V + "model", STRING, "bert")), "tokenizer.ggml.model: found 'bert'"),
    ("g18-model-nul", lambda: vocabulary(lambda f: f.set(V + "model", STRING, "llama\0x")), "tokenizer.ggml.model: holds a NUL"),
    ("g18-pre-unknown", lambda: w.byte_level(w.File()).set(V + "pre", STRING, "surprise"), "tokenizer.ggml.pre: 'surprise' is not known"),
    ("g18-pre-missing", lambda: w.byte_level(w.File()).drop(V + "pre"), "tokenizer.ggml.pre: is missing, so how to split text is not known"),
    ("g18-merge-unknown", lambda: w.byte_level(w.File(), ("a b",)).set_array(V + "merges", STRING, ["a q"]), "merges[0]: 'aq' is not in the vocabulary"),
    ("g18-merge-three", lambda: w.byte_level(w.File(), ("a b",)).set_array(V + "merges", STRING, ["a b c"]), "merges[0]: found 'a b c', expected two tokens"),
    ("g18-merge-one", lambda: w.byte_level(w.File(), ("a b",)).set_array(V + "merges", STRING, ["ab"]), "merges[0]: found 'ab', expected two tokens"),
    ("g18-merge-nul", lambda: w.byte_level(w.File(), ("a b",)).set_array(V + "merges", STRING, ["a \0"]), "merges: entry 0 holds a NUL"),
    ("g18-merges-numbers", lambda: w.byte_level(w.File(), ("a b",)).set_array(V + "merges", U32, [1]), "merges: found type array of u32, expected array of string"),
    ("g18-charsmap-type", lambda: vocabulary(lambda f: f.set_array(V + "precompiled_charsmap", U32, [1])), "precompiled_charsmap: found type array of u32, expected array of u8"),
    ("g18-charsmap-wild", lambda: vocabulary(lambda f: f.set_array(V + "precompiled_charsmap", w.U8, [255] * 64)), "charsmap"),
    ("g18-no-unknown", lambda: vocabulary(lambda f: f.drop(V + "unknown_token_id").set_array(V + "token_type", I32, [3, 3, 3] + [6] * 256 + [1] * 6)), "no token is of type unknown"),
    ("g18-flag-number", lambda: vocabulary(lambda f: f.set(V + "add_bos_token", U32, 1)), "add_bos_token: found type u32, expected bool"),
    ("g20-template-long", lambda: vocabulary(lambda f: f.set("tokenizer.chat_template", STRING, "x" * (2**20 + 1))), "tokenizer.chat_template: is longer than 1 MiB"),
]

NUMBERS = [
    ("g16-q8_0-nan", lambda: quantised(8, 32, 34, 0, 0x7E00), "model.embed_tokens.weight: a q8_0 block has a scale that is not finite"),
    ("g16-q4_k-inf", lambda: quantised(12, 256, 144, 0, 0x7C00), "a q4_k block has a scale that is not finite"),
    ("g16-q4_k-min-nan", lambda: quantised(12, 256, 144, 2, 0x7E00), "a q4_k block has a scale that is not finite"),
    ("g16-q6_k-minus-inf", lambda: quantised(14, 256, 210, 208, 0xFC00), "a q6_k block has a scale that is not finite"),
]

LOADS = [
    ("valid-llama", lambda: w.llama()),
    ("valid-mixtral", lambda: w.mixtral()),
    ("valid-version-2", lambda: change(version=2)),
    ("valid-tail", lambda: change(tail=b"PK\3\4 after the last tensor")),
    ("g8-strings-of-nothing", lambda: w.llama().set_array("x", STRING, [""] * 100000)),
    ("g20-template", lambda: w.llama().set("tokenizer.chat_template", STRING, "{% for i in range(10**9) %}")),
]


def cases(folder):
    folder = pathlib.Path(folder)
    ids = folder / "ids.json"
    ids.write_text("[0, 1, 2]")
    text = folder / "text.txt"
    text.write_text("ab a")

    def put(name, f):
        path = folder / f"{name}.gguf"
        f = f()
        path.write_bytes(f if isinstance(f, bytes) else f.bytes())
        return path

    for name, f, part in INFO:
        path = put(name, f)
        yield name, path, ["info", str(path)], 3, part
        path.unlink()
    for name, f, part in TOKENS:
        path = put(name, f)
        yield name, path, ["tokenize", str(path), str(text)], 3, part
        path.unlink()
    for name, f, part in NUMBERS:
        path = put(name, f)
        yield name, path, ["logits", str(path), "--ids", str(ids), "-o", str(folder / "out.npy")], 3, part
        path.unlink()
    for name, f in LOADS:
        path = put(name, f)
        yield name, path, ["info", str(path)], 0, ""
        path.unlink()
