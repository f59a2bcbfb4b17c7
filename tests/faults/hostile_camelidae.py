"""Hostile Camelidae training outputs: moe_model.bin and adapter_model/ beside or without a base."""

import math
import os
import shutil

import tiny

EXPERTS, ADAPTER = 3, 2


def moe_shapes(prefix="base_model.model.", expert="expert_{}"):
    d = tiny.CONFIG["hidden_size"]
    out = {}
    for i in range(tiny.CONFIG["num_hidden_layers"]):
        moe = f"{prefix}model.layers.{i}.mlp.moe_adapter."
        out[moe + "router.weight"] = [EXPERTS, d]
        for e in range(EXPERTS):
            path = f"{moe}experts.{expert.format(e)}."
            out[path + "adapter_down.weight"] = [ADAPTER, d]
            out[path + "adapter_up.weight"] = [d, ADAPTER]
    return out


def packed(shapes):
    return tiny.archive(tiny.torch_files(shapes))


def cases(directory):
    room = os.path.join(directory, "m")
    base = tiny.model(os.path.join(directory, "base"))
    sound = moe_shapes()
    keys = list(sound)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}

    def case(name, sentence, code=3, moe=None, adapter=None, own_base=True, config_json=None):
        shutil.rmtree(room, ignore_errors=True)
        if own_base:
            tiny.model(room)
        if config_json:
            tiny.put(room, "config.json", config_json)
        if moe is not None:
            tiny.put(room, "moe_model.bin", moe if isinstance(moe, bytes) else packed(moe))
        if adapter is not None:
            tiny.put(room, "adapter_model/adapter_config.json", adapter)
        os.makedirs(room, exist_ok=True)
        return name, room, ["info", room], code, sentence

    def without(*names):
        return {k: v for k, v in sound.items() if k not in names}

    here = dict(config, base_model_name_or_path=base)
    yield case("sound", "", 0, moe=sound)
    yield case("sound-sparsetral", "", 0, moe=moe_shapes("", "{}"))
    yield case("sound-base-elsewhere", "", 0, moe=sound, adapter=here, own_base=False)
    yield case("no-router", "holds no router and adapters of layer 0", moe=without(keys[0]))
    yield case("no-down", "holds no router and adapters of layer 0", moe=without(keys[1]))
    yield case("no-up", "1 missing: model.layers.0.mlp.moe_adapter.experts.expert_0.adapter_up",
               moe=without(keys[2]))
    last = [k for k in keys if "layers.1" in k and "expert_2" in k]
    yield case("C9-expert-missing", "2 missing", moe=without(*last))
    more = {k.replace("expert_2", "expert_3"): v for k, v in sound.items() if "expert_2" in k}
    yield case("C9-expert-extra", "4 left over", moe=sound | more)
    yield case("C9-router-of-4", "missing", moe=dict(sound, **{keys[0]: [4, 8]}))
    yield case("C9-config-of-8", "missing", moe=sound,
               config_json=dict(tiny.CONFIG, num_experts=8, topk=2, adapter_dim=2, moe_scaling=1.0))
    yield case("config-topk-9", "topk: found 9", moe=sound,
               config_json=dict(tiny.CONFIG, topk=9))
    yield case("other-width", "of a wrong shape", moe=dict(sound, **{keys[1]: [ADAPTER, 9]}))
    yield case("named-twice", "is given twice", moe=sound | moe_shapes("", "{}"))
    yield case("not-torch", "has no ZIP end record", moe=b"hello")
    yield case("code", "asks for os.system", moe=tiny.archive({"a/data.pkl": b"cos\nsystem\n)R."}))
    yield case("no-base", "holds an adapter without its base model", moe=sound, own_base=False,
               adapter=config)
    yield case("base-name", "(hywu/x) is not a directory here", moe=sound, own_base=False,
               adapter=dict(config, base_model_name_or_path="hywu/x"))
    yield case("base-escape", "(\\x1B]0;x) is not a directory here", moe=sound, own_base=False,
               adapter=dict(config, base_model_name_or_path="\x1b]0;x"))
    yield case("base-number", "base_model_name_or_path: found an integer", moe=sound, own_base=False,
               adapter=dict(config, base_model_name_or_path=7))
    yield case("base-file", "is not a directory here", moe=sound, own_base=False,
               adapter=dict(config, base_model_name_or_path=os.path.join(base, "config.json")))
    yield case("moe-alone", "has no config.json", moe=sound, own_base=False)
    yield case("nothing", "has no config.json", own_base=False)
    yield case("stored-bytes", "its storage has", moe=tiny.archive(
        tiny.torch_files(sound) | {"archive/data/0": bytes(math.prod(sound[keys[0]]) * 4 - 1)}))
