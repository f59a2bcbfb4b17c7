"""Models in the shapes that people run, with random weights, as GGUF files of the types that people have.

Files are quantised by llama.cpp's own quantiser, so a type such as Q4_K_M mixes formats as real files do. Nothing is downloaded.
"""
import ctypes
import json
import subprocess

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": True, "torch_dtype": "bfloat16", "max_position_embeddings": 8192, "bos_token_id": 0, "eos_token_id": 0}
SHAPES = {
    "15M": LLAMA | {"hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 768,
                    "vocab_size": 32000},
    "135M": LLAMA | {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
                     "vocab_size": 49152},
    "1.5B": LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                     "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
                     "intermediate_size": 8960, "vocab_size": 151936},
    "7B": LLAMA | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                   "intermediate_size": 11008, "vocab_size": 32000, "tie_word_embeddings": False},
}
# The types of files, by the numbers that llama.cpp gives them.
TYPES = {"BF16": 32, "Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_1": 9, "Q5_0": 8, "Q4_K_M": 15, "Q4_K_S": 14, "Q4_1": 3, "Q4_0": 2, "IQ4_NL": 25,
         "IQ4_XS": 30, "Q3_K_M": 12, "Q2_K": 10}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}


def model_of(pesc, shape, folder):
    """The directory of a model of this shape, which `pesc new` makes once."""
    path, config = folder / shape, folder / f"{shape}.json"
    if not path.exists():
        config.write_text(json.dumps(SHAPES[shape]))
        subprocess.run([pesc, "new", config, "-o", path, "-q"], check=True, stdout=subprocess.DEVNULL)
    return path


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def write_gguf(path, shape, model):
    """The model's weights in bf16, with a vocabulary of made-up tokens."""
    import gguf
    import torch
    from safetensors import safe_open
    c, q = SHAPES[shape], gguf.GGMLQuantizationType
    w = gguf.GGUFWriter(str(path), c["model_type"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(["<end>", "a", "b", "ab"] + [f"t{i}" for i in range(4, c["vocab_size"])])
    w.add_token_types([3] + [1] * (c["vocab_size"] - 1))  # the first is the end token
    w.add_token_merges(["a b"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_pad_token_id(0)
    for part in sorted(model.glob("*.safetensors")):
        with safe_open(part, "pt") as f:
            for name in f.keys():
                t = f.get_tensor(name)
                if t.ndim == 1:
                    w.add_tensor(gguf_name(name), t.float().numpy())
                else:
                    w.add_tensor(gguf_name(name), t.to(torch.bfloat16).view(torch.uint8).numpy(), raw_dtype=q.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def file_of(pesc, shape, kind, folder, threads):
    """The GGUF file of a type, made when it is missing."""
    path, full = folder / f"{shape}-{kind}.gguf", folder / f"{shape}-BF16.gguf"
    if not full.exists():
        write_gguf(full.with_suffix(".part"), shape, model_of(pesc, shape, folder))
        full.with_suffix(".part").rename(full)
    if not path.exists():
        import llama_cpp
        p = llama_cpp.llama_model_quantize_default_params()
        p.nthread, p.ftype = threads, TYPES[kind]
        if llama_cpp.llama_model_quantize(str(full).encode(), str(path.with_suffix(".part")).encode(), ctypes.byref(p)) != 0:
            raise RuntimeError(f"{kind}: llama.cpp did not quantise {full}")
        path.with_suffix(".part").rename(path)
    return path
