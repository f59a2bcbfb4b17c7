#!/usr/bin/env python3
"""Writes the first inputs of the GGUF fuzzer: seeds_gguf.py DIR makes DIR/fuzz_gguf/*."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import ggufwire as w


def latent():
    """DeepSeek-V2 of one layer with kv_b split, whose halves are joined in memory."""
    f = w.llama(arch="deepseek2")
    for key, n in (("attention.kv_lora_rank", 8), ("attention.key_length", 12),
                   ("attention.value_length", 8), ("attention.key_length_mla", 10),
                   ("attention.value_length_mla", 6), ("rope.dimension_count", 4),
                   ("expert_count", 2), ("expert_used_count", 1), ("expert_feed_forward_length", 8)):
        f.set(f"deepseek2.{key}", w.U32, n)
    f.tensors = f.tensors[:3] + [w.Tensor("blk.0.attn_k_b.weight", (6, 8, 2)),
                                 w.Tensor("blk.0.attn_v_b.weight", (8, 6, 2)),
                                 w.Tensor("blk.0.ffn_gate_inp.weight", (32, 2))]
    f.set("deepseek2.rope.scaling.type", w.STRING, "yarn")
    f.set("deepseek2.rope.scaling.factor", w.F32, 4.0)
    return f.set("deepseek2.rope.scaling.original_context_length", w.U32, 16)


def blocks():
    """One tensor of each block format, and Llama 3's factors."""
    sizes = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
             14: (256, 210), 1: (32, 64), 30: (32, 64)}
    f = w.llama(width=16, ffn=8, vocab=3)
    f.tensors += [w.Tensor(f"blk.0.block_{k}.weight", (n,), k, bytes(range(b % 256)) + bytes(b - b % 256))
                  for k, (n, b) in sizes.items()]
    f.tensors += [w.Tensor("rope_freqs.weight", (4,))]
    return f


def main():
    out = pathlib.Path(sys.argv[1]) / "fuzz_gguf"
    out.mkdir(parents=True, exist_ok=True)
    small = dict(width=8, ffn=4, vocab=3)
    old = w.llama(**small)
    old.version = 2
    seeds = {
        "llama": w.llama(**small), "version2": old, "mixtral": w.mixtral(2, 1), "latent": latent(),
        "blocks": blocks(), "sentencepiece": w.sentencepiece(w.File()),
        "bytes": w.byte_level(w.File()), "empty": w.File(),
        "layers": w.llama(**small).set_array("llama.attention.head_count", w.U32, [2]),
        "pesc": w.llama(**small, arch="pesc").set("pesc.expert_count", w.U32, 2),
    }
    for name, f in seeds.items():
        (out / name).write_bytes(f.bytes())


if __name__ == "__main__":
    main()
