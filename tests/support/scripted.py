"""Writes a model that says given turns: scripted.py DIR TURN...

The answer in a conversation with n answers is the n-th turn, greedily. Embeddings are one-hot vectors, the only layer adds nothing, and the head has
a 1 from each token to the one that follows it: the chat template ends with a token that names the turn, a turn is one token, and the end token follows.
Standard library only."""
import json
import pathlib
import struct
import sys

WIDTH = 320
TEMPLATE = """{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t | tojson }}
{% endfor %}answer in <tool_call></tool_call><|im_end|>{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}<|im_end|>{% endfor %}
{%- if add_generation_prompt %}{% set n = messages | selectattr('role', 'equalto', 'assistant') | list | length %}TURNS{% endif %}"""


def byte_letters():
    """GPT-2's letters for bytes."""
    own = [b for b in range(256) if 32 < b < 127 or b > 160 and b != 173]
    others = [b for b in range(256) if b not in own]
    return {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(others)}


def write_tensors(path, tensors):
    head, at = {}, 0
    for name, (shape, values) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            f.write(struct.pack(f"<{len(values)}f", *values))


def write(folder, turns):
    folder.mkdir(parents=True, exist_ok=True)
    names = ["<|im_start|>", "<|im_end|>", *(f"<|turn{i}|>" for i in range(len(turns)))]
    added = [{"id": 256 + i, "content": t, "special": i < len(names), "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in enumerate([*names, *turns])]
    letters = byte_letters()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": {letters[b]: b for b in range(256)}, "merges": []}}))
    marks = "".join("{% " + ("elif" if i else "if") + f" n == {i} %}}<|turn{i}|>" for i in range(len(turns))) + "{% endif %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE.replace("TURNS", marks)}))
    (folder / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": WIDTH, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": 257, "torch_dtype": "float32"}))
    zero = lambda *shape: (list(shape), [0.0] * (shape[0] * shape[-1]))
    ones = ([WIDTH], [1.0] * WIDTH)
    embed, head = [0.0] * WIDTH * WIDTH, [0.0] * WIDTH * WIDTH
    for i in range(WIDTH):
        embed[i * WIDTH + i] = 1.0
    for i in range(len(turns)):
        turn, said = 258 + i, 258 + len(turns) + i
        head[said * WIDTH + turn] = 1.0
        head[257 * WIDTH + said] = 1.0
    layer = "model.layers.0."
    write_tensors(folder / "model.safetensors", {
        "model.embed_tokens.weight": ([WIDTH, WIDTH], embed), "lm_head.weight": ([WIDTH, WIDTH], head), "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones, layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": zero(WIDTH, WIDTH), layer + "self_attn.k_proj.weight": zero(WIDTH // 2, WIDTH),
        layer + "self_attn.v_proj.weight": zero(WIDTH // 2, WIDTH), layer + "self_attn.o_proj.weight": zero(WIDTH, WIDTH),
        layer + "mlp.gate_proj.weight": zero(8, WIDTH), layer + "mlp.up_proj.weight": zero(8, WIDTH), layer + "mlp.down_proj.weight": zero(WIDTH, 8)})


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), sys.argv[2:])
