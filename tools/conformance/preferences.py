#!/usr/bin/env python3
"""Random runs on preferences beside PyTorch in float64.

Each case is a tiny random model, dense or a mixture, random pairs or labelled answers, a loss with random
coefficients, and three steps with every weight or with a LoRA: loss, gradient norm, rewards and
log-probabilities of metrics.jsonl are compared with the losses written out in
tests/golden/make/golden_preferences.py, which agree with TRL's trainers. Options: --cases N, --first N,
--seed N. Run in a Python with torch, transformers, peft; $PESC is the command. Ends with `N passed, M failed`.
"""
import json
import pathlib
import random
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).with_name("support"))

import peft
import torch
import transformers as hf
import cases
from cases import Refused, counts, pesc

sys.path.append(str(cases.ROOT / "tests/golden/make"))
import golden_preferences as golden

hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
VOCAB = 61
SMALL = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
FAMILIES = {"llama": (hf.LlamaConfig, {}), "mistral": (hf.MistralConfig, {}), "qwen2": (hf.Qwen2Config, {}),
            "qwen3": (hf.Qwen3Config, dict(head_dim=8)), "mixtral": (hf.MixtralConfig, dict(num_local_experts=4)),
            "qwen3_moe": (hf.Qwen3MoeConfig, dict(EXPERTS, head_dim=8)),
            "olmoe": (hf.OlmoeConfig, dict(num_experts=4, num_experts_per_tok=2))}
OBJECTIVES = ["dpo", "dpo", "ipo", "orpo", "simpo", "kto"]
SAME = 1e-4


class Model:
    """A transformers' model in float64, as golden_preferences wants one."""

    def __init__(self, model, names):
        self.model = model
        self.trained = {n: (p.requires_grad_(names(n)), 1.0) for n, p in model.named_parameters() if names(n)}

    def logits(self, ids):
        return self.model(torch.tensor([ids]), use_cache=False).logits[0]

    def start(self):
        pass


def ids(r, least, most):
    return [r.randrange(3, VOCAB) for _ in range(r.randint(least, most))]


def records(r, n, kto):
    if kto:
        return [{"prompt_ids": ids(r, 1, 9), "completion_ids": ids(r, 1, 12), "label": r.random() < 0.6} for _ in range(n)]
    pairs = [{"prompt_ids": ids(r, 1, 9), "chosen_ids": ids(r, 1, 12), "rejected_ids": ids(r, 1, 12)} for _ in range(n)]
    return [p for p in pairs if p["chosen_ids"] != p["rejected_ids"]]


def objective(r):
    o = {"objective": r.choice(OBJECTIVES), "loss": r.choice(["token", "sequence"])}
    draws = {"dpo": dict(beta=r.uniform(0.01, 1), label_smoothing=r.choice([0, 0.1, 0.4])), "ipo": dict(beta=r.uniform(0.05, 1)),
             "orpo": dict(orpo_lambda=r.uniform(0.05, 1)),
             "simpo": dict(beta=r.uniform(0.5, 4), simpo_gamma=r.uniform(0, 2), label_smoothing=r.choice([0, 0.2])),
             "kto": dict(beta=r.uniform(0.05, 1), kto_desirable=r.uniform(0.5, 2), kto_undesirable=r.uniform(0.5, 2))}
    o.update(draws[o["objective"]])
    if o["objective"] != "kto" and r.random() < 0.4:
        o["sft_coef"] = r.uniform(0.1, 2)
    return o


def compare(seed, number, work):
    r = random.Random(seed * 1000003 + number)
    family, o, lora = r.choice([*FAMILIES]), objective(r), r.random() < 0.5
    kto = o["objective"] == "kto"
    kind, extra = FAMILIES[family]
    torch.manual_seed(r.randrange(1 << 30))
    model = hf.AutoModelForCausalLM.from_config(kind(**SMALL, **extra, tie_word_embeddings=r.random() < 0.3),
                                                dtype=torch.float32, attn_implementation="eager",
                                                experts_implementation="eager").eval()
    for p in model.parameters():
        if p.ndim == 1:  # norms and biases begin as constants
            p.data += 0.1 * torch.randn_like(p)
    model.save_pretrained(work / "model")
    options = ["--method", "lora" if lora else "full"]
    if lora:
        rank = r.choice([1, 2, 4])
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"] if r.random() < 0.5 else ["q_proj", "v_proj"]
        config = peft.LoraConfig(r=rank, lora_alpha=r.choice([rank, 4, 7]), target_modules=targets)
        model = peft.get_peft_model(model, config)
        for n, p in model.named_parameters():
            if "lora_B" in n:
                p.data = 0.1 * torch.randn_like(p)
        model.save_pretrained(work / "lora")
        options += ["--lora", work / "lora", "--lora-r", rank, "--lora-alpha", config.lora_alpha, "--lora-targets", ",".join(targets)]
    golden.BATCH, golden.STEPS, golden.LR, golden.EPS = r.randint(2, 5), 3, 1e-3, 1e-4
    data = records(r, golden.BATCH * golden.STEPS + 3, kto)[:golden.BATCH * golden.STEPS]
    (work / "data.jsonl").write_text("".join(json.dumps(d) + "\n" for d in data))
    for k, v in o.items():
        options += ["--" + k.replace("_", "-"), v]
    text = f"case {number}: {family} " + " ".join(map(str, options))
    pesc("train", work / "model", "--data", work / "data.jsonl", "-o", work / "run", "--steps", golden.STEPS, "--batch", golden.BATCH,
         "--lr", golden.LR, "--eps", golden.EPS, "--seq-len", 32, "--schedule", "constant", "--warmup-steps", 0, "--clip", 0, "--aux-coef", 0,
         "--lora-dropout", 0, "--shuffle", "false", "--packing", r.choice(["true", "false"]), "--threads", 1, "--base-dtype", "f32",
         "--compute-dtype", "f32", "--log-every", 1, "-q", *options)
    own = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
    model.double()
    want = golden.run(Model(model, (lambda n: "lora_" in n) if lora else (lambda n: True)), data, {**golden.DEFAULTS, **o}, 0.0)
    worst, where = 0.0, "steps"
    for i, step in enumerate(want):
        for key in set(step) - {"aux"}:
            got = own[i].get(key, float("nan")) if i < len(own) else float("nan")
            least = 1.0 if key == "kl" or key.startswith("rewards/") else 0.1
            off = abs(got - step[key]) / max(abs(step[key]), least)
            if not off <= worst:
                worst, where = off, f"step {i + 1}, {key}: {got}, float64 has {step[key]}"
    cases.check(text, o["objective"], len(own) == len(want) and worst <= SAME, where)


def main():
    args = cases.options(60).parse_args()
    for number in range(args.first, args.first + args.cases):
        with tempfile.TemporaryDirectory(prefix="pesc-preferences-") as work:
            try:
                compare(args.seed, number, pathlib.Path(work))
            except Refused as e:
                cases.check(f"case {number}", "commands", False, e)
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
