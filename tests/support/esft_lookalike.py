#!/usr/bin/env python3
"""Look-alikes of what ESFT released, and what must come of them.

    tests/support/esft_lookalike.py OUT

writes, for four made-up tasks, the routers' logs OUT/<task>/expert_weights_<layer>.txt, and beside
them what the rule of the first release gives: <task>.summary.json, <task>.token.json (p = 0.2) and
<task>.gate.json (p = 0.1). It shares no code with pesc. The made-up numbers are such that every
trap of the rule is met, which is checked at the end: scores are rounded before they are sorted, ties
go to the lowest expert, layers are ordered as text.
"""
import json
import math
import pathlib
import random
import sys

EXPERTS, TOP_K, LAYERS = 64, 6, range(1, 13)
TOKENS = {"intent": 260, "law": 4200, "summary": 180, "translation": 400}
P = {"token": 0.2, "gate": 0.1}


def logs_of_layer(rng, n_tokens):
    """Lines of one log: forwards of some tokens, k distinct experts each, in no order."""
    sharpness = rng.uniform(0.5, 1.4)
    popular = [sharpness * rng.gauss(0, 1) for _ in range(EXPERTS)]
    popular[rng.randrange(EXPERTS)] = popular[rng.randrange(EXPERTS)]
    lines, left = [], n_tokens
    while left:
        here = min(left, rng.randint(20, 90))
        left -= here
        ids, gates = [], []
        for _ in range(here):
            drawn = sorted(((z - math.log(rng.expovariate(1)), e) for e, z in enumerate(popular)),
                           reverse=True)[:TOP_K]
            rng.shuffle(drawn)
            mass = rng.uniform(0.2, 0.6)
            parts = [rng.expovariate(1) + 0.05 for _ in drawn]
            ids += [str(e) for _, e in drawn]
            gates += [str(round(mass * x / sum(parts), 4)) for x in parts]
        lines.append("\t".join(ids) + "\t\t" + "\t".join(gates) + "\n")
    return lines


def raw_scores(path):
    """Per expert (token score, gate score), not rounded."""
    hits, mass = [0.0] * EXPERTS, [0.0] * EXPERTS
    for line in path.read_text().splitlines():
        ids, gates = (half.split("\t") for half in line.split("\t\t"))
        for e, w in zip(ids, gates, strict=True):
            mass[int(e)] += float(w)
            hits[int(e)] += 1.0 / TOP_K
    total = sum(hits)
    return {"token": [h / total for h in hits], "gate": [m / total for m in mass]}


def pick(scores, p):
    taken, reached = [], 0.0
    for e in sorted(range(len(scores)), key=lambda e: -scores[e]):  # stable: ties to the lowest
        if reached >= p:
            break
        taken.append(e)
        reached += scores[e]
    return taken


def task(out, name, rng):
    folder = out / name
    folder.mkdir(parents=True)
    for layer in LAYERS:
        lines = logs_of_layer(rng, TOKENS[name])
        (folder / f"expert_weights_{layer}.txt").write_text("".join(lines))
    raw = {str(layer): raw_scores(folder / f"expert_weights_{layer}.txt")
           for layer in sorted(LAYERS, key=str)}
    rounded = {metric: {layer: [round(x, 4) for x in scores[metric]]
                        for layer, scores in raw.items()} for metric in P}
    summary = {f"{metric}_scores": {layer: {str(e): x for e, x in enumerate(scores)}
                                    for layer, scores in layers.items()}
               for metric, layers in rounded.items()}
    (out / f"{name}.summary.json").write_text(json.dumps(summary))
    met = set()
    for metric, p in P.items():
        chosen = {layer: pick(scores, p) for layer, scores in rounded[metric].items()}
        (out / f"{name}.{metric}.json").write_text(json.dumps(
            {"experts": chosen, "shared_experts": False, "non_expert_modules": False}))
        for layer, ids in chosen.items():
            scores = rounded[metric][layer]
            exact = pick(raw[layer][metric], p)
            met |= {(metric, "order by rounding")} if exact != ids else set()
            met |= {(metric, "set by rounding")} if set(exact) != set(ids) else set()
            last = scores[ids[-1]]
            beyond = [e for e in range(EXPERTS) if scores[e] == last and e not in ids]
            met |= {(metric, "tie at the cut")} if beyond else set()
            met |= {(metric, "tie inside")} if len({scores[e] for e in ids}) < len(ids) else set()
    return met


def main():
    out = pathlib.Path(sys.argv[1])
    rng = random.Random(7)
    met = set().union(*(task(out, name, rng) for name in TOKENS))
    wanted = {(m, what) for m in P for what in ("order by rounding", "tie at the cut", "tie inside")}
    if wanted - met:
        sys.exit(f"these traps are not met: {sorted(wanted - met)}")


if __name__ == "__main__":
    main()
