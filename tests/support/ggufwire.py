"""Writes GGUF files byte by byte, right or wrong as a test wants them. Standard library only."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B",
        U64: "<Q", I64: "<q", F64: "<d"}
TYPE_F32, TYPE_F16, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q6_K = 0, 1, 8, 12, 14


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    return text(v) if kind == STRING else struct.pack(PACK[kind], v)


def array(kind, items, count=None):
    """The bytes of an array; `count` lies about their number."""
    body = b"".join(value(kind, v) for v in items)
    return struct.pack("<IQ", kind, len(items) if count is None else count) + body


class Tensor:
    """`dims` in GGUF's order (the contiguous one first); every field may be changed into a lie."""

    def __init__(self, name, dims, kind=TYPE_F32, data=None):
        self.name, self.dims, self.kind = name, list(dims), kind
        count = 1
        for d in dims:
            count *= d
        if data is None:
            data = b"".join(struct.pack("<f", (i * 37 % 101 - 50) / 200) for i in range(count))
        self.data, self.offset, self.n_dims = data, None, None


class File:
    def __init__(self, keys=(), tensors=()):
        self.keys = list(keys)  # (key, type, bytes)
        self.tensors = list(tensors)
        self.magic, self.version, self.alignment = b"GGUF", 3, 32
        self.n_keys = self.n_tensors = None
        self.tail = b""

    def set(self, key, kind, v):
        return self.raw(key, kind, value(kind, v))

    def set_array(self, key, kind, items, count=None):
        return self.raw(key, ARRAY, array(kind, items, count))

    def raw(self, key, kind, data):
        """In the place of the key, or at the end."""
        entry = (key, kind, data)
        at = [i for i, e in enumerate(self.keys) if e[0] == key]
        if at:
            self.keys[at[0]] = entry
        else:
            self.keys.append(entry)
        return self

    def drop(self, key):
        self.keys = [e for e in self.keys if e[0] != key]
        return self

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    def header(self):
        out = self.magic + struct.pack("<I", self.version)
        out += struct.pack("<Q", len(self.tensors) if self.n_tensors is None else self.n_tensors)
        out += struct.pack("<Q", len(self.keys) if self.n_keys is None else self.n_keys)
        out += b"".join(text(k) + struct.pack("<I", t) + v for k, t, v in self.keys)
        at = 0
        for t in self.tensors:
            out += text(t.name) + struct.pack("<I", len(t.dims) if t.n_dims is None else t.n_dims)
            out += b"".join(struct.pack("<Q", d % 2**64) for d in t.dims)
            out += struct.pack("<IQ", t.kind, at if t.offset is None else t.offset)
            at += len(t.data) + -len(t.data) % self.alignment
        return out

    def bytes(self):
        out = bytearray(self.header())
        for t in self.tensors:
            out += bytes(-len(out) % self.alignment) + t.data
        return bytes(out) + self.tail


def llama(width=32, heads=2, kv_heads=1, ffn=48, vocab=40, arch="llama"):
    """A Llama of one layer."""
    a = arch
    f = File([("general.architecture", STRING, text(a))])
    for key, n in (("context_length", 64), ("embedding_length", width), ("block_count", 1),
                   ("feed_forward_length", ffn), ("attention.head_count", heads),
                   ("attention.head_count_kv", kv_heads)):
        f.set(f"{a}.{key}", U32, n)
    f.set(f"{a}.attention.layer_norm_rms_epsilon", F32, 1e-5)
    head = width // heads
    f.tensors = [Tensor(name, dims) for name, dims in (
        ("token_embd.weight", (width, vocab)), ("output_norm.weight", (width,)),
        ("blk.0.attn_norm.weight", (width,)), ("blk.0.attn_q.weight", (width, width)),
        ("blk.0.attn_k.weight", (width, head * kv_heads)),
        ("blk.0.attn_v.weight", (width, head * kv_heads)),
        ("blk.0.attn_output.weight", (width, width)), ("blk.0.ffn_norm.weight", (width,)),
        ("blk.0.ffn_gate.weight", (width, ffn)), ("blk.0.ffn_up.weight", (width, ffn)),
        ("blk.0.ffn_down.weight", (ffn, width)))]
    return f


def mixtral(experts=3, used=2):
    f = llama().set("llama.expert_count", U32, experts).set("llama.expert_used_count", U32, used)
    f.tensors = [t for t in f.tensors if "ffn_" not in t.name or "norm" in t.name]
    f.tensors += [Tensor("blk.0.ffn_gate_inp.weight", (32, experts)),
                  Tensor("blk.0.ffn_gate_exps.weight", (32, 48, experts)),
                  Tensor("blk.0.ffn_up_exps.weight", (32, 48, experts)),
                  Tensor("blk.0.ffn_down_exps.weight", (48, 32, experts))]
    return f


def sentencepiece(f, pieces=("\u2581", "a", "b", "ab", "\u2581a", "\u2581ab")):
    """A SentencePiece vocabulary: three control tokens, every byte, the pieces."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(pieces)
    f.set("tokenizer.ggml.model", STRING, "llama")
    f.set_array("tokenizer.ggml.tokens", STRING, tokens)
    f.set_array("tokenizer.ggml.scores", F32, [0.0] * 259 + [-1.0 - i for i in range(len(pieces))])
    f.set_array("tokenizer.ggml.token_type", I32, [2, 3, 3] + [6] * 256 + [1] * len(pieces))
    for name, i in (("bos", 1), ("eos", 2), ("unknown", 0)):
        f.set(f"tokenizer.ggml.{name}_token_id", U32, i)
    return f


def byte_alphabet():
    """GPT-2's 256 characters that stand for bytes, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + rest.index(b)) for b in range(256)]


def byte_level(f, merges=("a b", "ab c")):
    tokens = byte_alphabet() + [m.replace(" ", "") for m in merges] + ["<|end|>"]
    f.set("tokenizer.ggml.model", STRING, "gpt2").set("tokenizer.ggml.pre", STRING, "qwen2")
    f.set_array("tokenizer.ggml.tokens", STRING, tokens)
    f.set_array("tokenizer.ggml.token_type", I32, [1] * (len(tokens) - 1) + [3])
    f.set_array("tokenizer.ggml.merges", STRING, merges)
    return f.set("tokenizer.ggml.eos_token_id", U32, len(tokens) - 1)
