"""Hostile config.json files: groups C1 to C8."""

import json
import os

import tiny

DELETE = object()
DEEP = 100000

# name, changes to a sound llama config, sentence
CHANGES = [
    ("C1-no-model-type", {"model_type": DELETE}, "model_type: is missing"),
    ("C1-no-hidden-size", {"hidden_size": DELETE}, "hidden_size: is missing"),
    ("C1-no-layers", {"num_hidden_layers": DELETE}, "num_hidden_layers: is missing"),
    ("C1-no-heads", {"num_attention_heads": DELETE}, "num_attention_heads: is missing"),
    ("C1-no-ffn", {"intermediate_size": DELETE}, "intermediate_size: is missing"),
    ("C1-no-vocab", {"vocab_size": DELETE}, "vocab_size: is missing"),
    ("C1-null", {"hidden_size": None}, "hidden_size: is missing"),
    ("C1-string", {"hidden_size": "8"}, "hidden_size: found a string, expected an integer"),
    ("C1-float", {"hidden_size": 8.0}, "hidden_size: found a fraction, expected an integer"),
    ("C1-bool", {"hidden_size": True}, "hidden_size: found a boolean, expected an integer"),
    ("C1-list", {"hidden_size": [8]}, "hidden_size: found an array, expected an integer"),
    ("C1-object", {"hidden_size": {}}, "hidden_size: found an object, expected an integer"),
    ("C1-type-number", {"model_type": 7}, "model_type: found an integer, expected a string"),
    ("C1-act-list", {"hidden_act": ["silu"]}, "hidden_act: found an array, expected a string"),
    ("C1-tie-number", {"tie_word_embeddings": 1}, "tie_word_embeddings: found an integer"),
    ("C2-heads-not-dividing", {"num_attention_heads": 3}, "3 heads do not divide hidden_size 8"),
    ("C2-kv-not-dividing", {"num_attention_heads": 4, "num_key_value_heads": 3},
     "3 does not divide num_attention_heads 4"),
    ("C2-no-heads", {"num_attention_heads": 0}, "num_attention_heads: found 0"),
    ("C2-no-kv-heads", {"num_key_value_heads": 0}, "num_key_value_heads: found 0"),
    ("C2-kv-above-heads", {"num_key_value_heads": 4}, "4 does not divide num_attention_heads 2"),
    ("C2-negative-heads", {"num_attention_heads": -2}, "num_attention_heads: found -2"),
    ("C2-head-dim", {"head_dim": 6}, "of a wrong shape"),
    ("C2-head-dim-odd", {"head_dim": 3}, "expected an even number"),
    ("C2-head-dim-0", {"head_dim": 0}, "head_dim: found 0"),
    ("C3-layers-0", {"num_hidden_layers": 0}, "num_hidden_layers: found 0"),
    ("C3-layers-negative", {"num_hidden_layers": -1}, "num_hidden_layers: found -1"),
    ("C3-layers-10^9", {"num_hidden_layers": 10**9}, "num_hidden_layers: found 1000000000"),
    ("C3-layers-1", {"num_hidden_layers": 1}, "left over"),
    ("C3-layers-3", {"num_hidden_layers": 3}, "missing"),
    ("C3-layers-most", {"num_hidden_layers": 4096}, "missing"),
    ("C3-vocab-0", {"vocab_size": 0}, "vocab_size: found 0"),
    ("C3-vocab-2^31", {"vocab_size": 2**31}, "vocab_size: found 2147483648"),
    ("C3-vocab-other", {"vocab_size": 12}, "of a wrong shape"),
    ("C3-ffn-0", {"intermediate_size": 0}, "intermediate_size: found 0"),
    ("C3-ffn-other", {"intermediate_size": 13}, "of a wrong shape"),
    ("C3-context-0", {"max_position_embeddings": 0}, "max_position_embeddings: found 0"),
    ("C3-context-2^62", {"max_position_embeddings": 2**62}, "max_position_embeddings: found"),
    ("C3-hidden-2^63-1", {"hidden_size": 2**63 - 1}, "hidden_size: found 9223372036854775807"),
    ("C5-eps-0", {"rms_norm_eps": 0}, "rms_norm_eps: found 0"),
    ("C5-eps-negative", {"rms_norm_eps": -1e-5}, "rms_norm_eps: found -1e-05"),
    ("C5-eps-string", {"rms_norm_eps": "1e-5"}, "rms_norm_eps: found a string"),
    ("C5-theta-0", {"rope_theta": 0}, "rope_theta: found 0"),
    ("C5-theta-negative", {"rope_theta": -1.0}, "rope_theta: found -1"),
    ("C5-theta-string", {"rope_theta": "x"}, "rope_theta: found a string"),
    ("C5-scaling-unknown", {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}},
     'rope_type: found "spiral"'),
    ("C5-scaling-no-factor", {"rope_scaling": {"rope_type": "linear"}}, "factor"),
    ("C5-scaling-factor-0", {"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
    ("C5-scaling-list", {"rope_scaling": [1]}, "rope_scaling: found an array, expected an object"),
    ("C5-partial-rotary", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("C5-activation", {"hidden_act": "swiglu2"}, 'hidden_act: found "swiglu2"'),
    ("C6-dtype", {"torch_dtype": "float13"}, 'torch_dtype: found "float13"'),
    ("C6-dtype-number", {"torch_dtype": 16}, "torch_dtype: found an integer"),
    ("C7-model-type", {"model_type": "gpt_j"}, "gpt_j"),
    ("C7-model-type-empty", {"model_type": ""}, "model_type"),
    ("C7-model-type-format", {"model_type": "%n%s"}, "%n%s"),
    ("C7-model-type-escape", {"model_type": "\x1b]0;x\x07"}, "\\x1B]0;x\\x07"),
    ("eos-string", {"eos_token_id": "2"}, "eos_token_id: found a string"),
    ("eos-many", {"eos_token_id": list(range(1000))}, "eos_token_id: found 1000 ids"),
    ("softcap", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: is set"),
    ("quantised-gptq", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    ("quantised-fp4", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True,
                                               "bnb_4bit_quant_type": "fp4"}}, "fp4"),
    ("quantised-list", {"quantization_config": []}, "quantization_config: found an array"),
]

# the same for a mixture of three experts, two a token
MOE_CHANGES = [
    ("C4-experts-0", {"num_local_experts": 0}, "num_local_experts: found 0"),
    ("C4-experts-1", {"num_local_experts": 1}, "num_experts_per_tok: found 2, expected 1 to 1"),
    ("C4-experts-10^6", {"num_local_experts": 10**6}, "num_local_experts: found 1000000"),
    ("C4-experts-negative", {"num_local_experts": -8}, "num_local_experts: found -8"),
    ("C4-experts-4", {"num_local_experts": 4}, "missing"),
    ("C4-experts-4096", {"num_local_experts": 4096}, "missing"),
    ("C4-top-0", {"num_experts_per_tok": 0}, "num_experts_per_tok: found 0"),
    ("C4-top-4", {"num_experts_per_tok": 4}, "num_experts_per_tok: found 4, expected 1 to 3"),
    ("C4-top-negative", {"num_experts_per_tok": -1}, "num_experts_per_tok: found -1"),
    ("C4-top-string", {"num_experts_per_tok": "2"}, "num_experts_per_tok: found a string"),
    ("C4-window-0", {"sliding_window": 0}, "sliding_window: found 0"),
    ("C4-disagreeing-spellings", {"num_experts": 2}, "num_local_experts: found 3, but num_experts"),
]

SOUND = json.dumps(tiny.CONFIG)

TEXTS = [
    ("C1-empty", "", "is not JSON"),
    ("C1-null-file", "null", "is not JSON"),
    ("C1-array", "[]", "found an array, expected an object"),
    ("C1-number", "7", "is not JSON"),
    ("C1-duplicate-key", SOUND[:-1] + ',"vocab_size":11}', "is not JSON: duplicate"),
    ("C1-duplicate-escaped", SOUND[:-1] + ',"vocab\\u005fsize":11}', "is not JSON: duplicate"),
    ("C1-1e999", SOUND.replace("1e-05", "1e999"), "is not JSON: real number overflow"),
    ("C1-nan", SOUND.replace("1e-05", "NaN"), "is not JSON"),
    ("C1-infinity", SOUND.replace("1e-05", "Infinity"), "is not JSON"),
    ("C1-5000-digits", SOUND.replace('"vocab_size": 11', '"vocab_size": ' + "9" * 5000),
     "is not JSON: real number overflow"),
    ("C1-5000-digits-negative", SOUND.replace('"vocab_size": 11', '"vocab_size": -' + "9" * 5000),
     "is not JSON: real number overflow"),
    ("C1-trailing", SOUND + "x", "is not JSON"),
    ("C1-two-objects", SOUND + SOUND, "is not JSON"),
    ("C1-comment", "// c\n" + SOUND, "is not JSON"),
    ("C1-bom", "\ufeff" + SOUND, "is not JSON"),
    ("C1-utf16", SOUND.encode("utf-16"), "is not JSON"),
    ("C1-invalid-utf8", SOUND.encode().replace(b"llama", b"ll\xffma"), "is not JSON"),
    ("C1-lone-surrogate", SOUND.replace("llama", "\\ud800"), "is not JSON"),
    ("C1-nul-key", '{"a\\u0000b":1}', "is not JSON"),
    ("C1-nested", '{"a":' * DEEP, "is not JSON"),
    ("C1-nested-lists", '{"a":' + "[" * DEEP, "is not JSON"),
    ("C1-cut", SOUND[:40], "is not JSON"),
    ("C1-single-quotes", SOUND.replace('"', "'"), "is not JSON"),
    ("C1-17MB", SOUND[:-1] + " " * (17 << 20) + "}", "at most 16777216"),
]

# C8: each size is allowed alone; together they describe what no machine holds
HUGE = dict(tiny.CONFIG, hidden_size=1 << 20, intermediate_size=1 << 22, vocab_size=1 << 24,
            num_hidden_layers=4096, num_attention_heads=4096, num_key_value_heads=4096)


def cases(directory):
    room = os.path.join(directory, "m")
    path = os.path.join(room, "config.json")

    def case(name, config, sentence, code=3):
        tiny.put(room, "config.json", config)
        return name, path, ["info", room], code, sentence

    def changed(base, changes):
        config = dict(base, **changes)
        return {k: v for k, v in config.items() if v is not DELETE}

    tiny.model(room)
    yield case("sound", tiny.CONFIG, "", 0)
    yield case("unknown-key", dict(tiny.CONFIG, something_new=[1, {"a": None}]), "", 0)
    yield case("C7-auto-map", dict(tiny.CONFIG, auto_map={"AutoModel": "x.Y"}), "", 0)
    yield case("C7-no-architectures", dict(tiny.CONFIG, architectures=[]), "", 0)
    for name, changes, sentence in CHANGES:
        yield case(name, changed(tiny.CONFIG, changes), sentence)
    for name, text, sentence in TEXTS:
        yield case(name, text, sentence)
    yield case("C8-huge", HUGE, "do not fit the configuration")
    tiny.model(room, tiny.MOE_CONFIG)
    yield case("sound-moe", tiny.MOE_CONFIG, "", 0)
    for name, changes, sentence in MOE_CHANGES:
        yield case(name, changed(tiny.MOE_CONFIG, changes), sentence)
    os.unlink(path)
    os.mkfifo(path)
    yield "S24-fifo", room, ["info", room], 3, "is not a regular file"
    os.unlink(path)
    yield "C1-absent", room, ["info", room], 3, "has no config.json"
