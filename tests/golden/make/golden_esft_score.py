#!/usr/bin/env python3
"""Makes tests/golden/esft_score: what ESFT's scores are on the tiny mixtures of tests/golden.

ids.jsonl holds records of token ids; <family>.json is the summary.json of them, byte for byte, from
what the routers of transformers choose in float64, one record a forward. Scores that lie near a
rounding tie would make the bytes a matter of luck: then another seed must be chosen. Run with a
Python that has torch and transformers:

    python tests/golden/make/golden_esft_score.py tests/golden
"""
import json
import pathlib
import random
import sys

import torch
import transformers as hf

FAMILIES = ["deepseek_v2", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"]
SEED, RECORDS, VOCAB = 11, 40, 67


def routes(model, records):
    """{layer: [(ids, gates), ...]} of all tokens."""
    seen = {}

    def listen(layer):
        return lambda module, args, out: seen.setdefault(layer, []).append((out[2], out[1]))

    for name, module in model.named_modules():
        if name.endswith(".gate"):
            module.register_forward_hook(listen(int(name.split(".")[2])))
    with torch.no_grad():
        for ids in records:
            model(torch.tensor([ids]), use_cache=False)
    return seen


def main():
    golden = pathlib.Path(sys.argv[1])
    out = golden / "esft_score"
    out.mkdir(exist_ok=True)
    rng = random.Random(SEED)
    records = [[rng.randrange(VOCAB) for _ in range(rng.randint(2, 60))] for _ in range(RECORDS)]
    (out / "ids.jsonl").write_text("".join(
        json.dumps({"input_ids": r, "labels": r}, separators=(",", ":")) + "\n" for r in records))
    for family in FAMILIES:
        model = hf.AutoModelForCausalLM.from_pretrained(
            golden / family, dtype=torch.float64, experts_implementation="eager").eval()
        tables, near = {"token_scores": {}, "gate_scores": {}}, 1.0
        for layer, parts in sorted(routes(model, records).items(), key=lambda kv: str(kv[0])):
            ids = torch.cat([i.reshape(-1, i.shape[-1]) for i, _ in parts])
            gates = torch.cat([g.reshape(-1, g.shape[-1]) for _, g in parts]).double()
            n_tokens, k = ids.shape
            assert n_tokens == sum(map(len, records))
            experts = model.model.layers[layer].mlp.gate.weight.shape[0]
            token = [float((ids == e).sum()) / (n_tokens * k) for e in range(experts)]
            gate = [float(gates[ids == e].sum()) / n_tokens for e in range(experts)]
            for table, scores in (("token_scores", token), ("gate_scores", gate)):
                tables[table][str(layer)] = {str(e): round(x, 4) for e, x in enumerate(scores)}
                near = min([near] + [abs(x * 1e4 % 1 - 0.5) for x in scores])
        assert near > 0.002, f"{family}: a score is near a rounding tie ({near}); choose another seed"
        (out / f"{family}.json").write_text(json.dumps(tables))
        print(family, "nearest to a tie:", near)


if __name__ == "__main__":
    main()
