#!/usr/bin/env python3
"""Random comparisons of rotary embeddings with transformers: every kind of rope_scaling, by length.

Each case is a tiny random model of a family with a random rope_scaling, and prompts below, at and beyond its context,
also longer than the pieces in which pesc reads a prompt. Compared are the logits of every position (`pesc logits`), the
loss of the answers (`pesc eval`), and greedy tokens generated across the border of the context (`pesc generate`). Options: --cases N, --first N, --seed N. Run in a
Python with torch and transformers; $PESC is the command. Ends with `N passed, M failed`.
"""
import json
import pathlib
import random
import shutil
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).with_name("support"))

import numpy as np
import torch
import transformers as hf
import cases
from cases import Refused, pesc

hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
VOCAB = 96

SMALL = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, initializer_range=0.2, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
FAMILIES = {
    "llama": (hf.LlamaConfig, {}),
    "mistral": (hf.MistralConfig, dict(sliding_window=None)),
    "qwen2": (hf.Qwen2Config, {}),
    "qwen3": (hf.Qwen3Config, dict(head_dim=16)),
    "mixtral": (hf.MixtralConfig, dict(num_local_experts=4, head_dim=12)),
    "olmoe": (hf.OlmoeConfig, dict(num_experts=4, num_experts_per_tok=2)),
    "phi3": (hf.Phi3Config, dict(pad_token_id=0)),
    "deepseek_v2": (hf.DeepseekV2Config, dict(
        num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        head_dim=8, first_k_dense_replace=5, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        n_group=1, topk_group=1, topk_method="greedy")),
}


def random_rope(rng, context, name):
    """A rope_scaling, and the context that config.json has with it."""
    kind = rng.choice(["default", "linear", "dynamic", "dynamic", "dynamic", "yarn", "llama3"])
    if name == "phi3":
        half = SMALL["hidden_size"] // SMALL["num_attention_heads"] // 2
        short, long = ([round(rng.uniform(1, most), 3) for _ in range(half)] for most in (1.3, 6))
        return {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short, "long_factor": long,
                "original_max_position_embeddings": context}, context * rng.choice([2, 4])
    factor = rng.choice([1.5, 2.0, 4.0])
    rope = {"rope_type": kind, "rope_theta": rng.choice([1e4, 5e5])}
    if kind != "default":
        rope["factor"] = factor
    if kind in ("yarn", "llama3"):
        rope["original_max_position_embeddings"] = context
        context = int(context * factor)
    if kind == "yarn":
        rope.update(rng.choice([{}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 1.3}]))
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=4.0)
    return rope, context


class Case:
    def __init__(self, seed, number, work):
        self.rng = rng = random.Random(seed * 1000003 + number)
        self.work, self.name = work, rng.choice([*FAMILIES])
        self.rope, self.context = random_rope(rng, rng.choice([32, 64, 200, 300]), self.name)
        kind, extra = FAMILIES[self.name]
        config = kind(**dict(SMALL, **extra, max_position_embeddings=self.context, rope_parameters=dict(self.rope)))
        torch.manual_seed(rng.randrange(1 << 30))
        self.model = hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        self.model.save_pretrained(work / "model")
        self.text = f"case {number}: {self.name} {self.rope} context {self.context}"

    def check(self, what, good, detail=""):
        cases.check(self.text, what, good, detail)

    def fresh(self):
        """transformers keeps the longest length that a model has seen; pesc takes each text alone."""
        return hf.AutoModelForCausalLM.from_pretrained(self.work / "model", dtype=torch.float32,
                                                       attn_implementation="eager").eval()

    def logits(self, n):
        ids = [self.rng.randrange(3, VOCAB) for _ in range(n)]
        (self.work / "ids.json").write_text(json.dumps(ids))
        pesc("logits", self.work / "model", "--ids", self.work / "ids.json", "-o", self.work / "out.npy", "-q",
             "--threads", 1)
        got = np.load(self.work / "out.npy")
        with torch.no_grad():
            want = self.fresh()(torch.tensor([ids])).logits[0].numpy()
        bad = float(np.abs(want - got).max() / np.abs(want).max())
        self.check("logits", bad <= 1e-4, f"{n} tokens: {bad:.2g}")
        return ids, want

    def loss(self, ids, want):
        record = {"input_ids": ids, "labels": [-100] + ids[1:]}
        (self.work / "data.jsonl").write_text(json.dumps(record) + "\n")
        p = json.loads(pesc("eval", self.work / "model", "--tasks", self.work / "data.jsonl", "--loss-only", "--json",
                            "--ctx", len(ids) + 1, "-q", "--threads", 1))
        got = p["tasks"][0]["all"]["loss"]
        rows = want[:-1].astype(np.float64)
        rows = rows - rows.max(-1, keepdims=True)
        each = np.log(np.exp(rows).sum(-1)) - rows[np.arange(len(ids) - 1), ids[1:]]
        self.check("eval", abs(got - each.mean()) <= 1e-4 * each.mean(), f"{len(ids)} tokens: {got} {each.mean()}")

    def generated(self, ids, n):
        """Greedy tokens of transformers with its cache, and whether each was far enough from the next best."""
        with torch.no_grad():
            out = self.fresh().generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False, pad_token_id=0,
                                        eos_token_id=None, output_logits=True, return_dict_in_generate=True)
        tokens = out.sequences[0, len(ids):].tolist()
        clear = []
        for step in out.logits:
            best = torch.topk(step[0], 2).values
            clear.append(float(best[0] - best[1]) > 1e-3 * float(step.abs().max()))
        return tokens, clear

    def same(self, what, want, clear, got):
        for i, (a, b) in enumerate(zip(want, got)):
            if a != b:
                self.check(what, not clear[i], f"token {i}: transformers {a}, pesc {b}")
                return
        self.check(what, True)

    def compare(self):
        border = self.rope.get("original_max_position_embeddings", self.context) if self.name == "phi3" else self.context
        lengths = {border - 3, border, border + 1, self.rng.randrange(5, border),
                   self.rng.randrange(border + 2, 3 * border), self.rng.randrange(260, 700)}
        for n in sorted(lengths):
            ids, want = self.logits(n)
            self.loss(ids, want)
        if self.rope["rope_type"] not in ("dynamic", "longrope"):
            return
        prompts = [[self.rng.randrange(3, VOCAB) for _ in range(n)]
                   for n in (border - 4, border + 9, min(2 * border, 400))]
        wants = [self.generated(ids, 10) for ids in prompts]
        for ids, (want, clear) in zip(prompts, wants):
            (self.work / "ids.json").write_text(json.dumps(ids))
            got = json.loads(pesc("generate", self.work / "model", "--ids", self.work / "ids.json", "--max-tokens", 10, "--ctx", 1024,
                                  "--temperature", 0, "--json", "-q", "--threads", 1))["ids"]
            self.same("generate", want, clear, got)


def main():
    args = cases.options(30).parse_known_args()[0]
    for number in range(args.first, args.first + args.cases):
        work = pathlib.Path(tempfile.mkdtemp(prefix="pesc-rope-"))
        case = Case(args.seed, number, work)
        try:
            case.compare()
        except Refused as e:
            case.check("commands", False, e)
        shutil.rmtree(work)
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
