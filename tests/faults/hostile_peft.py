"""Hostile PEFT adapters: group C9. Each is applied to a sound model, which must refuse it."""

import json
import os
import shutil

import tiny

CONFIG = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "bias": "none",
          "target_modules": ["q_proj"], "base_model_name_or_path": "x"}
QUERY = "base_model.model.model.layers.0.self_attn.q_proj."
A, B = QUERY + "lora_A.weight", QUERY + "lora_B.weight"
SOUND = {A: ("F32", [2, 8], None), B: ("F32", [8, 2], None)}

# name, changes to the configuration, sentence
CHANGES = [
    ("C9-rank-0", {"r": 0}, "r: found 0, expected 1 to"),
    ("C9-rank-negative", {"r": -2}, "r: found -2"),
    ("C9-rank-2^31", {"r": 2**31}, "r: found 2147483648"),
    ("C9-rank-other", {"r": 3}, "expected the rank 3"),
    ("C9-rank-string", {"r": "2"}, "r: found a string"),
    ("C9-rank-float", {"r": 2.0}, "r: found a fraction"),
    ("C9-rank-bool", {"r": True}, "r: found a boolean"),
    ("C9-rank-missing", {"r": None}, "r: is missing"),
    ("C9-alpha-0", {"lora_alpha": 0}, "lora_alpha: found"),
    ("C9-alpha-negative", {"lora_alpha": -1}, "lora_alpha: found"),
    ("C9-alpha-missing", {"lora_alpha": None}, "lora_alpha: found"),
    ("C9-alpha-string", {"lora_alpha": "16"}, "lora_alpha: found a string"),
    ("C9-type", {"peft_type": "PREFIX_TUNING"}, "peft_type: found PREFIX_TUNING"),
    ("C9-no-type", {"peft_type": None}, "peft_type: is missing"),
    ("C9-dora", {"use_dora": True}, "use_dora: pesc does not apply DoRA"),
    ("C9-bias", {"bias": "all"}, "bias: pesc does not apply trained biases"),
    ("C9-modules-to-save", {"modules_to_save": ["lm_head"]}, "modules_to_save: pesc does not apply"),
    ("C9-fan-in", {"fan_in_fan_out": True}, "fan_in_fan_out: pesc does not apply"),
    ("C9-parameters", {"target_parameters": ["mlp.experts.gate_up_proj"]}, "target_parameters"),
    ("C9-replication", {"layer_replication": [[0, 1]]}, "layer_replication"),
    ("C9-rslora-number", {"use_rslora": 1}, "use_rslora: found an integer"),
    ("C9-rank-pattern", {"rank_pattern": {"q_proj": 8}}, "expected the rank 8"),
    ("C9-rank-pattern-0", {"rank_pattern": {"q_proj": 0}}, "rank_pattern: the rank of"),
    ("C9-rank-pattern-list", {"rank_pattern": [1]}, "rank_pattern: found an array"),
    ("C9-pattern-regex", {"rank_pattern": {"(a+)+$": 2}}, "is a regular expression"),
    ("C9-alpha-pattern", {"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern: found a string"),
]

# name, tensors, sentence
TENSORS = [
    ("C9-no-tensors", {}, "holds no lora_A and lora_B"),
    ("C9-a-without-b", {A: SOUND[A]}, "a lora_A without its lora_B"),
    ("C9-b-without-a", {B: SOUND[B]}, "a lora_B without its lora_A"),
    ("C9-ranks-differ", {A: ("F32", [2, 8], None), B: ("F32", [8, 3], None)}, "lora_B 3 columns"),
    ("C9-transposed", {A: ("F32", [8, 2], None), B: ("F32", [2, 8], None)}, "lora_A has 8 rows"),
    ("C9-one-dim", {A: ("F32", [16], None), B: SOUND[B]}, "expected the rank 2"),
    ("C9-three-dims", {A: ("F32", [2, 8, 1], None), B: SOUND[B]}, "expected the rank 2"),
    ("C9-integers", {A: ("I32", [2, 8], None), B: SOUND[B]}, "is stored as i32"),
    ("C9-other-input", {A: ("F32", [2, 9], None), B: SOUND[B]}, "q_proj"),
    ("C9-other-output", {A: SOUND[A], B: ("F32", [9, 2], None)}, "q_proj"),
    ("C9-absent-module", {k.replace("q_proj", "z_proj"): v for k, v in SOUND.items()}, "z_proj"),
    ("C9-absent-layer", {k.replace("layers.0", "layers.9"): v for k, v in SOUND.items()}, "layers.9"),
    ("C9-expert-of-dense", {k.replace("self_attn.q_proj", "mlp.experts.7.up_proj"): v
                            for k, v in SOUND.items()}, "experts.7"),
    ("C9-magnitude", SOUND | {QUERY + "lora_magnitude_vector": ("F32", [8], None)}, "is neither lora_A"),
    ("C9-embedding", {"base_model.model.model.embed_tokens.lora_embedding_A": ("F32", [2, 11], None)},
     "is neither lora_A"),
    ("C9-whole-module", SOUND | {"base_model.model.lm_head.weight": ("F32", [11, 8], None)},
     "is neither lora_A"),
]


def cases(directory):
    base = tiny.model(os.path.join(directory, "base"))
    ids = tiny.put(directory, "ids.json", [1, 2, 3])
    out = os.path.join(directory, "out.npy")
    room = os.path.join(directory, "adapter")

    def case(name, config, tensors, sentence, code=3):
        shutil.rmtree(room, ignore_errors=True)
        if config is not None:
            tiny.put(room, "adapter_config.json", config)
        if tensors is not None:
            tiny.put(room, "adapter_model.safetensors", tensors if isinstance(tensors, bytes)
                     else tiny.safetensors(*tiny.entries(tensors)))
        argv = ["logits", base, "--ids", ids, "-o", out, "-q", "--lora", room]
        return name, room, argv, code, sentence

    yield case("sound", CONFIG, SOUND, "", 0)
    for name, changes, sentence in CHANGES:
        yield case(name, dict(CONFIG, **changes), SOUND, sentence)
    for name, tensors, sentence in TENSORS:
        yield case(name, CONFIG, tensors, sentence)
    yield case("C9-no-config", None, SOUND, "adapter_config.json: cannot be opened")
    yield case("C9-no-weights", CONFIG, None, "has neither adapter_model.safetensors nor")
    yield case("C9-config-array", "[]", SOUND, "found an array, expected an object")
    yield case("C9-config-nan", json.dumps(CONFIG).replace("4", "NaN"), SOUND, "is not JSON")
    yield case("C9-config-twice", json.dumps(CONFIG)[:-1] + ',"r":2}', SOUND, "is not JSON: duplicate")
    yield case("C9-raw-size", CONFIG, tiny.safetensors(*tiny.entries(SOUND))[:-1],
               "but the file has only")
