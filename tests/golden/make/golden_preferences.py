#!/usr/bin/env python3
"""Makes tests/golden/preference: twelve steps of every loss of preferences, in float64 PyTorch.

The models are those of tests/golden/train and, for ESFT, of tests/golden/esft; the losses are written
out here as docs/method.md has them. With --trl every run that TRL can do is done by its own trainers
too, on transformers' models, and must agree within 1e-5; what they report is kept in golden.json.
Run with a Python that has torch, numpy, safetensors, xxhash, transformers (ESFT), and trl, peft,
datasets for --trl:

    python tests/golden/make/golden_preferences.py tests/golden [--trl]
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import golden_train as base

STEPS, BATCH, LR, EPS = 12, 4, 1e-3, 1e-4
LOSSES = {
    "dpo": dict(objective="dpo"),
    "dpo-robust": dict(objective="dpo", label_smoothing=0.2, beta=0.3),
    "ipo": dict(objective="ipo", beta=0.2),
    "orpo": dict(objective="orpo", orpo_lambda=0.4),
    "simpo": dict(objective="simpo", beta=2.0, simpo_gamma=1.0, label_smoothing=0.1),
    "kto": dict(objective="kto", kto_desirable=1.3, kto_undesirable=0.8),
}
OWN = {
    "dpo-sft": dict(objective="dpo", sft_coef=0.5, loss="sequence"),
    "orpo-sequence": dict(objective="orpo", loss="sequence", sft_coef=0.1),
}
DEFAULTS = dict(beta=0.1, label_smoothing=0.0, simpo_gamma=0.5, orpo_lambda=0.1, kto_desirable=1.0,
                kto_undesirable=1.0, sft_coef=0.0, loss="token")
# name: folder of tests/golden/train, method, losses, weight of the balance loss, whether TRL can
MODELS = {
    "lora": ("lora", "lora", {**LOSSES, **OWN}, 0.0, True),
    "full": ("full", "full", LOSSES, 0.0, True),
    "mixture-lora": ("upcycle", "lora", LOSSES, 0.0, True),
    "mixture-full": ("upcycle", "full", LOSSES, 0.0, True),
    "pesc": ("pesc-a", "pesc", LOSSES, 0.01, False),
    "esft": ("mixtral", "esft", LOSSES, 0.0, False),
}


# ---- the data

def pairs(g, vocab):
    def ids(lo, hi):
        return torch.randint(3, vocab, (int(torch.randint(lo, hi, (1,), generator=g)),), generator=g).tolist()
    out, labels = [], []
    for i in range(STEPS * BATCH):
        prompt = ids(2, 8)
        out.append({"prompt_ids": prompt, "chosen_ids": ids(2, 10), "rejected_ids": ids(2, 10)})
        labels.append({"prompt_ids": prompt, "completion_ids": ids(2, 10), "label": bool(i % 4 in (0, 1, 3) if i % 3 else i % 2)})
    return out, labels


# ---- the losses

def token_logps(logits, prompt, answer):
    """Log-probabilities of prompt + answer, but of the first token; and where the answer begins."""
    ids = torch.tensor(prompt + answer)
    return logits(ids.tolist())[:-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0], len(prompt) - 1


def mean_entropy(parts, kind):
    if kind == "token":
        return -sum(p.sum() for p in parts) / sum(len(p) for p in parts)
    return -sum(p.mean() for p in parts) / len(parts)


def log_odds(x):
    return x - torch.log(-torch.expm1(x))


def pair_loss(batch, reference, logits, o):
    kind, losses, rewards, shown, own, whole = o["objective"], [], [], [], [], []
    for r, ref in zip(batch, reference):
        c, at = token_logps(logits, r["prompt_ids"], r["chosen_ids"])
        j, _ = token_logps(logits, r["prompt_ids"], r["rejected_ids"])
        own.append(c[at:])
        whole.append(c)
        c, j = c[at:], j[at:]
        if kind in ("dpo", "ipo"):
            rc, rj = c.sum() - ref[0], j.sum() - ref[1]
            rewards.append((o["beta"] * rc, o["beta"] * rj))
            shown.append((c.sum(), j.sum()))
        else:
            factor = o["beta"] if kind == "simpo" else o["orpo_lambda"]
            rewards.append((factor * c.mean(), factor * j.mean()))
            shown.append((c.mean(), j.mean()))
        e = o["label_smoothing"]
        if kind == "dpo":
            z = o["beta"] * (rc - rj)
            losses.append((-(1 - e) * F.logsigmoid(z) + e * F.logsigmoid(-z)) / (1 - 2 * e))
        elif kind == "ipo":
            losses.append((rc / len(c) - rj / len(j) - 1 / (2 * o["beta"])) ** 2)
        elif kind == "simpo":
            z = o["beta"] * (c.mean() - j.mean()) - o["simpo_gamma"]
            losses.append(-(1 - e) * F.logsigmoid(z) - e * F.logsigmoid(-z))
        else:
            losses.append(-o["orpo_lambda"] * F.logsigmoid(log_odds(c.mean()) - log_odds(j.mean())))
    loss = sum(losses) / len(losses)
    if o["sft_coef"]:
        loss = loss + o["sft_coef"] * mean_entropy(own, o["loss"])
    if kind == "orpo":
        loss = loss + mean_entropy(whole, o["loss"])
    mean = lambda rows, i: float(sum(r[i] for r in rows) / len(rows))
    return loss, {"rewards/chosen": mean(rewards, 0), "rewards/rejected": mean(rewards, 1),
                  "rewards/margins": mean(rewards, 0) - mean(rewards, 1),
                  "rewards/accuracies": sum(float(a > b) for a, b in rewards) / len(rewards),
                  "logps/chosen": mean(shown, 0), "logps/rejected": mean(shown, 1)}


def answer_logp(logits, r, answer):
    logps, at = token_logps(logits, r["prompt_ids"], answer)
    return logps[at:]


def mismatched(batch):
    return [batch[i - 1]["completion_ids"] for i in range(len(batch))]


def labelled_loss(batch, reference, logits, o):
    with torch.no_grad():
        moved = [answer_logp(logits, r, a).sum() - ref[1]
                 for r, a, ref in zip(batch, mismatched(batch), reference)]
    kl = max(0.0, float(sum(moved)) / len(moved))
    losses, sides = [], ([], [])
    for r, ref in zip(batch, reference):
        logp = answer_logp(logits, r, r["completion_ids"]).sum()
        ratio, side = logp - ref[0], 0 if r["label"] else 1
        weight, sign = (o["kto_desirable"], 1) if r["label"] else (o["kto_undesirable"], -1)
        losses.append(weight * (1 - torch.sigmoid(sign * o["beta"] * (ratio - kl))))
        sides[side].append((float(o["beta"] * ratio), float(logp)))
    seen = {"kl": kl}
    for name, side in zip(("chosen", "rejected"), sides):
        if side:
            seen["rewards/" + name] = sum(s[0] for s in side) / len(side)
            seen["logps/" + name] = sum(s[1] for s in side) / len(side)
    if sides[0] and sides[1]:
        seen["rewards/margins"] = seen["rewards/chosen"] - seen["rewards/rejected"]
    return sum(losses) / len(losses), seen


# ---- the models

class Written:
    """A model of golden_train.py: dense Llama, PESC, or a mixture of full experts."""

    def __init__(self, root, folder, method):
        at = root / "train" / folder
        golden = json.loads((at / "golden.json").read_text())["options"]
        weights = load_file(at / "model" / "model.safetensors")
        lora = {}
        if method != "full":
            lora = {n.removeprefix("base_model.model."): w
                    for n, w in load_file(at / "lora" / "adapter_model.safetensors").items()}
        config = json.loads((at / "model" / "config.json").read_text())
        moe = None
        if folder == "upcycle":
            moe = dict(experts=config["num_local_experts"], k=config["num_experts_per_tok"],
                       router="model.layers.{}.block_sparse_moe.gate.weight")
        if folder.startswith("pesc"):
            moe = dict(experts=config["num_experts"], k=config["topk"], d=config["adapter_dim"],
                       s=config["moe_scaling"], router="model.layers.{}.mlp.moe_adapter.router.weight")
        p = {n: w.double() for n, w in {**weights, **lora}.items()}
        kind = {"upcycle": "upcycle", "pesc-a": "pesc"}.get(folder, method)
        self.model = base.Model(kind, p, golden["lora_alpha"] / golden["lora_r"] if lora else 0.0, moe)
        trained = p if method == "full" else {n: w for n, w in p.items()
                                              if n in lora or (method == "pesc" and "moe_adapter" in n)}
        self.trained = {n: (w.requires_grad_(), 1.0) for n, w in trained.items()}
        self.options = {"lora_r": golden["lora_r"], "lora_alpha": golden["lora_alpha"]} if lora else {"lora_r": 0}
        self.where = {"model": f"train/{folder}/model", **({"lora": f"train/{folder}/lora"} if lora else {})}

    def logits(self, ids):
        return self.model.logits(ids)

    def start(self):
        self.model.router_logits = [[] for _ in range(base.L)]

    def aux(self):
        return self.model.aux()


class Chosen:
    """transformers' Mixtral, of which the experts of a golden of ESFT train."""

    def __init__(self, root, folder):
        import golden_esft
        at = root / "esft" / folder
        cfg = json.loads((at / "expert_cfg.json").read_text())
        self.model = golden_esft.load(root / folder)
        self.trained = golden_esft.trainable(self.model, {int(l): e for l, e in cfg["experts"].items()},
                                             cfg["shared_experts"], cfg["non_expert_modules"])
        self.options = {"lora_r": 0}
        self.where = {"model": folder, "experts_config": f"esft/{folder}/expert_cfg.json"}

    def logits(self, ids):
        return self.model(torch.tensor([ids]), use_cache=False).logits[0].double()

    def start(self):
        pass


def refer(model, data, kto):
    rows = []
    with torch.no_grad():
        model.start()
        for i, r in enumerate(data):
            if kto:
                block = data[i - i % BATCH:i - i % BATCH + BATCH]
                other = mismatched(block)[i % BATCH]
                rows.append((answer_logp(model.logits, r, r["completion_ids"]).sum(),
                             answer_logp(model.logits, r, other).sum()))
            else:
                rows.append(tuple(answer_logp(model.logits, r, r[k]).sum() for k in ("chosen_ids", "rejected_ids")))
    return rows


def run(model, data, o, coef):
    kto = o["objective"] == "kto"
    reference, state, steps = refer(model, data, kto), {}, []
    for t in range(STEPS):
        part = slice(t * BATCH, (t + 1) * BATCH)
        model.start()
        loss, seen = (labelled_loss if kto else pair_loss)(data[part], reference[part], model.logits, o)
        aux = aux_of(model, data[part], kto, coef)  # mismatched answers are no part of it
        total = loss + coef * aux
        grads = torch.autograd.grad(total, [p for p, _ in model.trained.values()], allow_unused=True)
        grads = {n: (torch.zeros_like(p) if g is None else g * m)
                 for (n, (p, m)), g in zip(model.trained.items(), grads)}
        norm = math.sqrt(sum(float(g.pow(2).sum()) for g in grads.values()))
        steps.append({"loss": float(total), "ce": float(loss), **({"aux": float(aux)} if coef else {}),
                      "grad_norm": norm, **seen})
        with torch.no_grad():
            for n, (p, _) in model.trained.items():
                m, v = state.setdefault(n, [torch.zeros_like(p), torch.zeros_like(p)])
                m.mul_(0.9).add_(grads[n], alpha=0.1)
                v.mul_(0.999).addcmul_(grads[n], grads[n], value=0.001)
                p -= LR * (m / (1 - 0.9 ** (t + 1))) / ((v / (1 - 0.999 ** (t + 1))).sqrt() + EPS)
    return steps


def aux_of(model, batch, kto, coef):
    """The balance loss over the tokens of the answers themselves."""
    if not coef:
        return 0.0
    model.start()
    for r in batch:
        for answer in ([r["completion_ids"]] if kto else [r["chosen_ids"], r["rejected_ids"]]):
            model.logits(r["prompt_ids"] + answer)
    return model.aux()


# ---- TRL

def by_trl(root, folder, method, data, o):
    import golden_preferences_trl
    return golden_preferences_trl.run(root / "train" / folder, method, data, o, STEPS, BATCH, LR, EPS)


def agree(name, ours, theirs):
    """TRL adds up log-probabilities in float32, so small rewards, their differences, are less exact."""
    worst = 0.0
    for i, (a, b) in enumerate(zip(ours, theirs)):
        for key in set(a) & set(b):
            least = 1.0 if key == "kl" or key.startswith("rewards/") else 0.1
            off = abs(a[key] - b[key]) / max(abs(b[key]), least)
            if off > 1e-5:
                sys.exit(f"{name}: step {i + 1}: {key} is {a[key]}, TRL has {b[key]}")
            worst = max(worst, off)
    return worst


def main():
    root, trl = pathlib.Path(sys.argv[1]), "--trl" in sys.argv
    out = root / "preference"
    out.mkdir(exist_ok=True)
    data = pairs(torch.Generator().manual_seed(11), base.V)
    for name, rows in zip(("pairs", "labelled"), data):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    runs = []
    for model_name, (folder, method, losses, coef, comparable) in MODELS.items():
        for loss_name, options in losses.items():
            o = {**DEFAULTS, **options}
            kto = o["objective"] == "kto"
            model = Chosen(root, folder) if method == "esft" else Written(root, folder, method)
            steps = run(model, data[kto], o, coef)
            entry = {"name": f"{model_name}/{loss_name}", **model.where,
                     "data": "preference/labelled.jsonl" if kto else "preference/pairs.jsonl",
                     "options": {"method": method, "steps": STEPS, "batch": BATCH, "lr": LR, "eps": EPS,
                                 "aux_coef": coef, **model.options, **options},
                     "steps": steps}
            note = ""
            if trl and comparable and loss_name in LOSSES:
                entry["trl"] = by_trl(root, folder, method, data[kto], o)
                note = f", TRL differs by {agree(entry['name'], steps, entry['trl']):.1e} at most"
            runs.append(entry)
            print(f"{entry['name']:24s} loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}{note}", flush=True)
    (out / "golden.json").write_text(json.dumps(runs, indent=0) + "\n")


if __name__ == "__main__":
    main()
