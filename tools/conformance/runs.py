#!/usr/bin/env python3
"""Random comparisons of runs: what was trained, what is opened, and what is written from it.

Each case is a tiny random model, dense or sparse, a training run of a few steps with random options, and:
- `pesc eval RUN` gives the loss of the run's own eval.jsonl: a run is opened as its trainer validated it;
- of an ESFT run, `logits RUN` are those of `logits BASE --patch RUN`, bit for bit;
- what merge, export --to hf, peft and gguf write computes what the run computes: merged models and GGUF files
  are opened by pesc, hf by transformers, peft by peft (on weights in NF4 by pesc).
What pesc refuses counts as refused; each reason must be on the list REFUSALS. Options: --cases N, --first N, --seed N,
--keep DIR. Run in a Python with torch, transformers, peft; $PESC is the command. Ends with `N passed, M failed`.
"""
import json
import pathlib
import random
import shutil
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).with_name("support"))

import numpy as np
import peft
import torch
import transformers as hf
import cases
from cases import Refused, counts, pesc

hf.utils.logging.disable_progress_bar()
hf.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
VOCAB, LENGTH, SEQUENCES = 96, 24, 4

SMALL = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.15, bos_token_id=1,
             eos_token_id=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
DENSE = {"llama": hf.LlamaConfig, "mistral": hf.MistralConfig, "qwen2": hf.Qwen2Config, "qwen3": hf.Qwen3Config}
SPARSE = {"mixtral": (hf.MixtralConfig, dict(num_local_experts=4)),
          "qwen2_moe": (hf.Qwen2MoeConfig, dict(EXPERTS, shared_expert_intermediate_size=32)),
          "qwen3_moe": (hf.Qwen3MoeConfig, dict(EXPERTS)),
          "olmoe": (hf.OlmoeConfig, dict(num_experts=4, num_experts_per_tok=2))}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

# What may be refused, and by which words.
REFUSALS = {
    "merge": ["has no LoRA to merge"],
    "hf": ["is a mixture of LoRA", "has layers without experts"],
    "peft": ["has no LoRA", "has trained more than LoRA"],
    "gguf": ["is a mixture of LoRA", "has adapters", "has no place for its"],
}


def error(want, got):
    """The error of the median position, in the best of the sequences: rounding may make a router choose another
    expert in some position, which all positions after it read."""
    if want.shape != got.shape or not np.isfinite(got).all():
        return float("inf")
    want = want - want.mean(-1, keepdims=True)
    got = got - got.mean(-1, keepdims=True)
    each = np.linalg.norm(want - got, axis=-1) / np.linalg.norm(want, axis=-1)
    return float(np.median(each, axis=-1).min())


class Case:
    def __init__(self, seed, number, work):
        self.rng = random.Random(seed * 1000003 + number)
        self.number, self.work = number, work
        self.text = f"case {number}:"
        (work / "ids.json").write_text(json.dumps([self.ids(LENGTH) for _ in range(SEQUENCES)]))

    def ids(self, n):
        return [self.rng.randrange(3, VOCAB) for _ in range(n)]

    def check(self, what, good, detail=""):
        cases.check(self.text, what, good, detail)

    def refused(self, what, reason):
        known = any(words in str(reason) for words in REFUSALS.get(what, []))
        counts["refused", what] += 1
        if not known:
            self.check(what, False, reason)

    def logits(self, model, *options):
        out = self.work / "out.npy"
        pesc("logits", model, "--ids", self.work / "ids.json", "-o", out, "-q", "--threads", 1, *(options or ["--compute-dtype", "f32"]))
        return np.load(out).astype(np.float64)

    def hf_logits(self, model):
        ids = json.loads((self.work / "ids.json").read_text())
        with torch.no_grad():
            return model.eval()(torch.tensor(ids)).logits.double().numpy()

    # ---- what is trained ----

    def make_model(self):
        rng, work = self.rng, self.work
        self.stored = rng.choice(["f32", "f32", "bf16", "bf16", "f16"])
        self.family = rng.choice([*DENSE] * 3 + [*SPARSE])
        kind, extra = SPARSE.get(self.family, (DENSE.get(self.family), {}))
        config = kind(**SMALL, **extra, tie_word_embeddings=rng.random() < 0.3)
        torch.manual_seed(rng.randrange(1 << 30))
        model = hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for p in model.parameters():  # biases and norms begin as constants
            if p.ndim == 1:
                p.data += 0.1 * torch.randn_like(p)
        model.to(DTYPES[self.stored]).save_pretrained(work / "dense")
        self.base, self.sparse = work / "dense", "ffn" if self.family in SPARSE else ""
        if self.family in DENSE and rng.random() < 0.6:
            self.sparse = rng.choice(["pesc", "upcycle"])
            options = ["--adapter-dim", 8] if self.sparse == "pesc" else []
            if rng.random() < 0.2:
                options += ["--layers", "1"]
            pesc("craft", self.base, "-o", work / "sparse", "--kind", self.sparse, "--experts", 4, "--top-k", 2,
                 "-q", "--seed", rng.randrange(99), *options)
            self.base = work / "sparse"
        self.config = json.loads((self.base / "config.json").read_text())
        self.text += f" {self.family} {self.sparse} {self.stored}"
        if rng.random() < 0.12:
            self.convert(rng.choice(["f32", "bf16", "q8_0", "q4_0"]))

    def convert(self, quant):
        try:
            pesc("export", self.base, "--to", "gguf", "-o", self.work / "base.gguf", "--dtype", quant, "-q")
        except Refused:
            return
        self.base, self.stored = self.work / "base.gguf", quant if quant in DTYPES else "bf16"
        self.text += f" gguf-{quant}"

    def choose_method(self):
        methods = ["lora", "qlora", "full"]
        methods += {"": ["molora"], "pesc": ["pesc"] * 3}.get(self.sparse, ["upcycle", "esft", "esft"])
        return self.rng.choice(methods)

    def train(self, name="run"):
        rng, work = self.rng, self.work
        self.method = self.choose_method()
        frozen = self.method in ("lora", "qlora", "pesc", "molora", "upcycle")
        self.held = rng.choice([None, "f32", "bf16", "bf16"] + (["nf4"] if frozen or self.method == "esft" else []))
        self.compute = rng.choice([None, "f32", "bf16", "bf16"])
        options = ["--method", self.method, "--lr", rng.choice([1e-3, 5e-3, 2e-2]), "--threads", 1, "-q"]
        options += ["--base-dtype", self.held] if self.held else []
        options += ["--compute-dtype", self.compute] if self.compute else []
        options += ["--double-quant", "false"] if rng.random() < 0.3 else []
        options += ["--packing", "false"] if rng.random() < 0.2 else []
        options += ["--optimizer", "adamw8"] if rng.random() < 0.2 else []
        if self.method not in ("full", "esft"):
            rank = rng.choice([2, 4, 8])
            options += ["--lora-r", rank, "--lora-alpha", rng.choice([rank, 2 * rank, 7])]
            targets = rng.choice(["all", "all", "q_proj,v_proj"])
            experts = self.sparse in ("ffn", "upcycle") and self.method in ("lora", "qlora") and rng.random() < 0.4
            options += ["--lora-targets", targets + (",experts" if experts else "")]
            options += ["--lora-layers", "1"] if rng.random() < 0.15 else []
        if self.method == "molora":
            options += ["--experts", 4, "--top-k", 2]
        if self.method == "esft":
            layers = {str(layer): sorted(rng.sample(range(4), rng.choice([1, 2, 3, 4]))) for layer in self.layers()}
            (work / "experts.json").write_text(json.dumps(
                {"experts": layers, "shared_experts": self.family == "qwen2_moe" and self.held != "nf4" and rng.random() < 0.3, "non_expert_modules": self.held != "nf4" and rng.random() < 0.3}))
            options += ["--experts-config", work / "experts.json"]
        with open(work / "data.jsonl", "w") as f:
            for _ in range(12):
                ids = self.ids(rng.randrange(5, LENGTH))
                f.write(json.dumps({"input_ids": ids, "labels": [-100] * 3 + ids[3:]}) + "\n")
        self.run = work / name
        self.text += " " + " ".join(map(str, options))
        pesc("train", self.base, "--data", work / "data.jsonl", "--eval-data", work / "data.jsonl", "--steps", 3,
             "--batch", 4, "--seq-len", 32, "-o", self.run, *options)

    def layers(self):
        dense = self.config.get("mlp_only_layers") or []
        return [i for i in range(self.config["num_hidden_layers"]) if i not in dense]

    # ---- what is compared ----

    def opened(self):
        last = (self.run / "eval.jsonl").read_text().splitlines()[-1]
        want = json.loads(last)["eval_loss"]
        report = json.loads(pesc("eval", self.run, "--tasks", self.work / "data.jsonl", "--loss-only", "--json",
                                 "--threads", 1, "-q"))
        got = report["tasks"][0]["all"]["loss"]
        self.check("opened as validated", abs(got - want) <= 1e-6 * want, f"eval.jsonl {want}, pesc eval {got}")

    def patched(self):
        held = ["--base-dtype", self.held or "stored"]
        held += ["--double-quant", "false"] if "--double-quant false" in self.text.split("THEN")[-1] else []
        for compute in ("f32", "bf16"):
            options = [*held, "--compute-dtype", compute]
            want = self.logits(self.run, "--compute-dtype", compute)
            got = self.logits(self.base, "--patch", self.run, *options)
            self.check("run = base with patch", np.array_equal(want, got), f"{compute}: {np.abs(want - got).max()}")
        applied = self.work / f"{self.run.name}-applied"
        pesc("esft", "apply", self.base, "--patch", self.run, "-o", applied, "-q")
        if not self.held or self.held in ("f32", self.stored):
            self.near("esft apply", self.logits(self.run), self.logits(applied), self.stored)

    def near(self, what, want, got, written):
        limit = {"f32": 3e-5, "bf16": 4e-2, "f16": 2e-2, "q8_0": 0.15}[written]
        bad = error(want, got)
        self.check(what, bad <= limit, f"{bad:.3g}, allowed {limit:g}")

    def written(self):
        """The coarsest dtype of what is written from the run."""
        return "f32" if self.dtype == "f32" or (not self.dtype and self.stored == "f32") else "bf16"

    def write(self, what, *args):
        self.dtype = self.rng.choice([None, None, "f32", "bf16"])
        out = self.work / f"{self.run.name}-{what}"
        options = ["--dtype", self.dtype] if self.dtype else []
        try:
            pesc(*args, self.run, "-o", out, "-q", *options)
            return out
        except Refused as e:
            self.refused(what, e)
            return None

    def merged(self):
        out = self.write("merge", "merge")
        if out:
            self.near("merge = run", self.want, self.logits(out), self.written())

    def exported(self):
        out = self.write("hf", "export", "--to", "hf")
        if out and self.opens_in_transformers():
            model = hf.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, trust_remote_code=True,
                                                            attn_implementation="eager")
            self.near("hf = run", self.want, self.hf_logits(model), self.written())

    def opens_in_transformers(self):
        return self.sparse != "upcycle" or not self.config.get("mlp_only_layers")

    def adapter(self):
        out = self.write("peft", "export", "--to", "peft")
        if not out:
            return
        held = self.held or ("nf4" if self.method == "qlora" else None)
        written = "f32" if not self.dtype or self.dtype == "f32" else "bf16"
        options = ["--base-dtype", held or "stored", "--compute-dtype", "f32"]
        if "--double-quant false" in self.text.split("THEN")[-1]:
            options += ["--double-quant", "false"]
        self.near("peft = run, in pesc", self.want, self.logits(self.base, "--lora", out, *options), written)
        experts = "experts" in self.text.split("--lora-targets")[-1] if "--lora-targets" in self.text else False
        if held == "nf4" or experts or not (self.base / "config.json").exists() or self.sparse == "pesc" or not self.opens_in_transformers():
            return
        model = hf.AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32, attn_implementation="eager")
        if held == "bf16":
            for name, p in model.named_parameters():
                if p.ndim > 1 and not name.endswith(("mlp.gate.weight", "shared_expert_gate.weight")):  # held in f32
                    p.data = p.data.bfloat16().float()
        self.near("peft = run, in peft", self.want, self.hf_logits(peft.PeftModel.from_pretrained(model, out)), written)

    def gguf(self):
        quant = self.rng.choice(["f32", "bf16", "f16", "q8_0"])
        out = self.work / f"{self.run.name}.gguf"
        try:
            pesc("export", "--to", "gguf", self.run, "-o", out, "--dtype", quant, "-q")
        except Refused as e:
            self.refused("gguf", e)
            return
        self.near("gguf = run", self.want, self.logits(out), quant)

    def compare(self):
        self.make_model()
        self.train()
        self.compare_run()
        if self.method in ("full", "esft", "upcycle") and "lora" not in self.text and self.rng.random() < 0.5:
            self.base, self.text = self.run, self.text + " THEN"
            self.train("second")
            self.compare_run()

    def compare_run(self):
        self.opened()
        self.want = self.logits(self.run)
        if self.method == "esft":
            self.patched()
        self.merged()
        self.exported()
        self.adapter()
        self.gguf()


def main():
    args = cases.options(60)
    args.add_argument("--keep")
    args, _ = args.parse_known_args()
    for number in range(args.first, args.first + args.cases):
        work = pathlib.Path(args.keep or tempfile.mkdtemp(prefix="pesc-runs-"))
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        case = Case(args.seed, number, work)
        try:
            case.compare()
        except Refused as e:
            case.check("commands", False, e)
        if not args.keep:
            shutil.rmtree(work)
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
