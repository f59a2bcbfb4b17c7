"""Twelve steps of a loss of preferences by TRL's own trainers, for golden_preferences.py.

The trainers get tokens instead of texts: what would tokenize is replaced, the losses, the reference
and the training loop are TRL's. The model is transformers' in float64."""
import copy
import tempfile

import torch
import transformers as hf
from datasets import Dataset
from peft import PeftModel
from tokenizers import Tokenizer, models
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

KEYS = ("loss", "grad_norm", "kl", "rewards/chosen", "rewards/rejected", "rewards/margins",
        "rewards/accuracies", "logps/chosen", "logps/rejected")


def tokenizer(vocab):
    t = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocab)}, unk_token="t0"))
    return hf.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="t0", bos_token="t1", eos_token="t2")


def load(at, method):
    model = hf.AutoModelForCausalLM.from_pretrained(at / "model", dtype=torch.float64,
                                                    attn_implementation="eager", experts_implementation="eager")
    if method == "full":
        return model.train()
    model = PeftModel.from_pretrained(model, at / "lora", is_trainable=True)
    return model.double()


class Seen(hf.TrainerCallback):
    def __init__(self):
        self.steps = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.steps.append({k: float(logs[k]) for k in KEYS if k in logs})


def rows(data):
    """The columns of CPO's and ORPO's trainers."""
    out = []
    for r in data:
        row = {"prompt": "", "chosen": "", "rejected": "", "prompt_input_ids": r["prompt_ids"],
               "prompt_attention_mask": [1] * len(r["prompt_ids"])}
        for side in ("chosen", "rejected"):
            ids = r["prompt_ids"] + r[side + "_ids"]
            row[side + "_input_ids"] = ids
            row[side + "_attention_mask"] = [1] * len(ids)
            row[side + "_labels"] = [-100] * len(r["prompt_ids"]) + r[side + "_ids"]
        out.append(row)
    return out


def common(folder, steps, batch, lr, eps, o):
    return dict(output_dir=folder, max_steps=steps, per_device_train_batch_size=batch, learning_rate=lr,
                adam_epsilon=eps, lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0,
                max_grad_norm=1e9, logging_steps=1, save_strategy="no", report_to=[], bf16=False, use_cpu=True,
                gradient_checkpointing=False, disable_dropout=True, train_sampling_strategy="sequential",
                remove_unused_columns=False, beta=o["beta"], max_length=1024, disable_tqdm=True, seed=1)


def trainer_of(model, tok, data, o, shared):
    kind = o["objective"]
    # without an adapter TRL would load the reference itself, with another implementation of experts
    reference = None if isinstance(model, PeftModel) else copy.deepcopy(model).eval()
    if kind in ("dpo", "ipo"):
        loss = "ipo" if kind == "ipo" else "robust" if o["label_smoothing"] else "sigmoid"
        DPOTrainer._prepare_dataset = lambda self, d, *a, **k: d
        return DPOTrainer(model, ref_model=reference, args=DPOConfig(**shared, loss_type=[loss], label_smoothing=o["label_smoothing"],
                                                precompute_ref_log_probs=False),
                          train_dataset=Dataset.from_list(data), processing_class=tok)
    if kind == "kto":
        def with_others(self, d, *a, **k):
            n = shared["per_device_train_batch_size"]
            turn = lambda e: {**e, "KL_completion_ids": [e["completion_ids"][-1]] + e["completion_ids"][:-1]}
            return d.map(turn, batched=True, batch_size=n)
        KTOTrainer._prepare_dataset = with_others
        return KTOTrainer(model, ref_model=reference, args=KTOConfig(**shared, desirable_weight=o["kto_desirable"],
                                                undesirable_weight=o["kto_undesirable"]),
                          train_dataset=Dataset.from_list(data), processing_class=tok)
    cls, config, extra = (ORPOTrainer, ORPOConfig, {}) if kind == "orpo" else (
        CPOTrainer, CPOConfig, dict(loss_type="simpo", cpo_alpha=0.0, simpo_gamma=o["simpo_gamma"],
                                    label_smoothing=o["label_smoothing"]))
    if kind == "orpo":
        shared = {**shared, "beta": o["orpo_lambda"]}
    cls.tokenize_row = lambda self, feature, *a, **k: feature
    return cls(model, args=config(**shared, **extra), train_dataset=Dataset.from_list(rows(data)), processing_class=tok)


def run(at, method, data, o, steps, batch, lr, eps):
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        model = load(at, method)
        if hasattr(model.config, "router_aux_loss_coef"):
            model.config.router_aux_loss_coef, model.config.output_router_logits = 0.0, False
        trainer = trainer_of(model, tokenizer(model.config.vocab_size), copy.deepcopy(data), o,
                             common(folder, steps, batch, lr, eps, o))
        trainer.remove_callback(hf.PrinterCallback)
        trainer.add_callback(seen)
        trainer.train()
    assert len(seen.steps) == steps, len(seen.steps)
    return seen.steps
