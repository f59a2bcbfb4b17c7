"""`pesc eval` against lm-evaluation-harness 0.4.13 with its Hugging Face backend, request by request.

    tools/conformance/eval_model.py [--limit N] [--max-new N] [--model NAME] [--tasks LIST]
                                    [--lm-eval-device cuda] [--pesc-device cuda] [--batch N] [PART...]
    parts: splits scores texts

Both sides evaluate the same model in f32 on the same documents (PESC_DATA/bench) and must agree on:
token ids and where the scored ones begin; the log-likelihood of each choice, within 1e-4 of it; whether it is
greedy; the chosen answer, unless its score is that close to another; generated texts up to the first token whose
two best logits are within 1e-4; metrics of each document; means, standard errors and groups, within 1e-9.
`splits` compares token ids alone, for the tokenizers of PESC_DATA/tokenizers. With --lm-eval-device cuda the harness
computes on a GPU, in f32 without TF32; pesc does with --pesc-device cuda.

Models: those of PESC_DATA/models, and SmolLM2-135M in Hugging Face layout where PESC_SMOLLM2 names its directory.
"""
import argparse
import collections
import json
import lzma
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import eval_text

sys.path.pop(0)  # this file's own folder: it has a tokenizers.py, which hides the library of that name

DATA = pathlib.Path(os.environ.get("PESC_DATA", "../shared/data"))
PESC = os.environ.get("PESC", "build/pesc")
TASKS = pathlib.Path("share/tasks")
THREADS = os.environ.get("EVAL_THREADS", "2")
CLOSE = 1e-4  # relative for scores, absolute for logits

SCORES = [("mmlu", 0), ("mmlu", 5), ("arc_easy", 0), ("arc_easy", 5), ("arc_challenge", 0), ("arc_challenge", 25),
          ("piqa", 0), ("piqa", 5), ("hellaswag", 0), ("hellaswag", 10), ("winogrande", 0), ("winogrande", 5)]
TEXTS = [("nq_open", 0), ("nq_open", 5), ("triviaqa", 0), ("triviaqa", 5), ("gsm8k", 0), ("gsm8k", 5), ("gsm8k_cot", 0),
         ("gsm8k_cot", 8), ("minerva_math", 0), ("minerva_math", 4), ("hendrycks_math", 0), ("humaneval", 0), ("mbpp", 0), ("mbpp", 3)]
LEAVES = {"mmlu": 57, "minerva_math": 7, "hendrycks_math": 7}

# Documents a task without --limit: scores with 0 shots and with more, texts. Texts need a context with room for 1,024 new tokens.
Model = collections.namedtuple("Model", "path zero shots texts text_context batch")
MODELS = {"stories15M": Model(DATA / "models/stories15M", 20, 8, 4, 1536, 8),
          "minimind2-small": Model(DATA / "models/minimind2-small", 8, 2, 2, None, 8)}
if "PESC_SMOLLM2" in os.environ:
    MODELS["SmolLM2-135M"] = Model(pathlib.Path(os.environ["PESC_SMOLLM2"]), 4, 1, 1, None, 4)


class Tally:
    """Counts of what was compared and of what differs; the first differences are printed."""

    def __init__(self):
        self.n, self.wrong, self.shown = collections.Counter(), 0, 0
        self.worst = collections.defaultdict(float)

    def differ(self, message):
        self.wrong += 1
        self.shown += 1
        if self.shown <= 5:
            print("DIFFERENT", message)


# ---- the harness

def file_tokenizer(folder):
    """The tokenizer as tokenizer.json says. transformers 5 builds that of a Llama anew, which then treats a text
    that begins with a space otherwise."""
    import transformers
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def recorder(model, context, device, batch):
    """The harness's own backend, which also keeps the token ids of every request."""
    import torch
    from lm_eval.models.huggingface import HFLM

    class Recorder(HFLM):
        def _loglikelihood_tokens(self, requests, **kwargs):
            self.pairs = {text: (ctx, cont) for text, ctx, cont in requests}
            return super()._loglikelihood_tokens(requests, **kwargs)

        def _model_generate(self, context, attention_mask=None, **kwargs):
            out = super()._model_generate(context, attention_mask=attention_mask, **kwargs)
            for row, mask, whole in zip(context, attention_mask, out):
                self.generated[tuple(row[mask.bool()].tolist())] = whole[context.shape[1]:].tolist()
            return out

    torch.set_num_threads(int(THREADS))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    lm = Recorder(pretrained=str(model.path), tokenizer=file_tokenizer(model.path), dtype="float32", device=device,
                  batch_size=batch or model.batch, max_length=context)
    lm.pairs, lm.generated = {}, {}
    return lm


def run_harness(lm, task, shots, limit, max_new):
    """The harness's results and its samples by leaf."""
    import lm_eval
    eval_text.prepare_harness()
    lm.pairs, lm.generated = {}, {}
    r = lm_eval.simple_evaluate(model=lm, tasks=[task], num_fewshot=shots, limit=limit, log_samples=True,
                                gen_kwargs={"max_gen_toks": max_new} if max_new else None,
                                confirm_run_unsafe_code=True, task_manager=eval_text.task_manager())
    return r, {leaf: sorted(rows, key=lambda s: s["doc_id"]) for leaf, rows in r["samples"].items()}


BOUNDED = "bounded_"  # before the names of tasks whose number of new tokens is bounded


def bounded_task(task, max_new, folder):
    """A file that defines the task anew, under another name and with at most max_new tokens a text."""
    about = json.loads((TASKS / f"{task}.json").read_text(encoding="utf-8"))
    about["max_tokens"] = min(max_new, about.get("max_tokens", max_new))
    about.setdefault("data", task)
    for part in [about, *about.get("groups", []), *about.get("variants", [])]:
        part.update({key: BOUNDED + part[key] for key in ("task", "group") if key in part})
    file = folder / f"{task}.json"
    file.write_text(json.dumps(about), encoding="utf-8")
    return file


def run_pesc(device, model, context, task, shots, limit, max_new, data):
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "out"
        name = bounded_task(task, max_new, pathlib.Path(work)) if max_new else task
        done = subprocess.run([PESC, "eval", model.path, "--tasks", name, "--shots", str(shots), "--limit", str(limit),
                               "--data-dir", data, "-o", out, "--base-dtype", "f32", "--compute-dtype", "f32",
                               "--device", device, "--threads", THREADS, "-q", *(["--ctx", str(context)] if context else [])],
                              capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"pesc eval {task}: {done.stderr}")
        samples = {f.stem.removeprefix("samples_").removeprefix(BOUNDED):
                   [json.loads(line) for line in f.read_text(encoding="utf-8").split("\n") if line]
                   for f in out.glob("samples_*.jsonl")}
        return json.loads((out / "results.json").read_text().replace(BOUNDED, "")), samples


def own_tokens(tokenizer, max_length, requests):
    """pesc's ids and splits; requests: (context, continuation or number of new tokens)."""
    lines = [{"context": c, "continuation": x} if isinstance(x, str) else {"context": c, "max_new": x} for c, x in requests]
    return eval_text.own_lines("tokens", tokenizer, max_length, lines=lines)


# ---- comparisons

def compare_pairs(tally, label, pairs, max_length, tokenizer):
    """pairs: (context, continuation) -> the harness's ids of both."""
    for (text, (ctx, cont)), own in zip(pairs.items(), own_tokens(tokenizer, max_length, pairs)):
        whole = (ctx + cont)[-(max_length + 1):]
        tally.n["splits"] += 1
        if own["ids"] != whole or own["first"] != len(whole) - len(cont):
            tally.differ(f"{label}: split of {text[0][-60:]!r} + {text[1]!r:.60}: harness {ctx[-4:]} + {cont[:8]}, "
                         f"pesc {own['ids'][max(own['first'] - 4, 0):own['first']]} + {own['ids'][own['first']:][:8]} {own['error']}")


def close(a, b):
    return abs(a - b) <= CLOSE * max(abs(a), abs(b))


def nearly_tied(scores, metric, sample):
    """Whether the choice could go either way within the tolerance."""
    if metric == "acc_norm":
        scores = [s / (len(continuation) - 1) for s, (_, continuation) in zip(scores, sample["arguments"])]
    best = sorted(scores)[-2:]
    return len(best) == 2 and close(*best)


def compare_choices(tally, label, theirs, ours):
    """Scores, flags and chosen answers of one document; whether every metric is the same."""
    expected = [tuple(r[0]) for r in theirs["resps"]]
    for (a, a_greedy), (b, b_greedy) in zip(expected, ours["resps"], strict=True):
        error = abs(a - b) / max(abs(a), 1e-30)
        tally.n["scores"] += 1
        tally.worst["score"] = max(tally.worst["score"], error)
        if error > CLOSE:
            tally.differ(f"{label}: score {a} and {b}")
        if a_greedy != b_greedy:
            tally.differ(f"{label}: greedy {a_greedy} and {b_greedy}, score {a}")
    same = True
    for metric in theirs["metrics"]:
        if float(theirs[metric]) != ours[metric]:
            same = False
            if nearly_tied([a for a, _ in expected], metric, theirs):
                tally.n["near-ties of choices"] += 1
            else:
                tally.differ(f"{label}: {metric} {theirs[metric]} and {ours[metric]}, scores {expected}")
    return same


def cut(text, stops):
    for stop in stops:
        text = text.split(stop)[0] if stop else text
    return text


def continued(tokenizer, prompt, ids):
    """What the ids add to the text of the prompt: the headline's form of a generated text."""
    decode = lambda x: tokenizer.decode(x, skip_special_tokens=True)
    return decode(prompt + ids)[len(decode(prompt)):]


def gap_at_difference(lm, prompt, ids, text):
    """The smallest gap between the two best logits near the first token that is not in the text."""
    import torch
    n = 0
    while n < len(ids) and text.startswith(continued(lm.tokenizer, prompt, ids[:n + 1]).rstrip("\ufffd")):
        n += 1
    whole = torch.tensor([(prompt + ids[:n])], device=lm.device)
    with torch.no_grad():
        logits = lm.model(whole).logits[0, max(len(prompt) - 1, len(prompt) + n - 4):]
    best = logits.topk(2).values
    return n, float((best[:, 0] - best[:, 1]).min())


def compare_text(tally, label, lm, theirs, ours):
    """A generated text, and the metrics of the form that the harness takes; whether they are the same."""
    context, how = theirs["arguments"][0]
    stops = [*how["until"], lm.tokenizer.decode(lm.eot_token_id)]
    max_new = how.get("max_gen_toks", lm.max_gen_toks)
    own = own_tokens(lm.own_tokenizer, lm.max_length, [(context, max_new)])[0]
    ids = lm.generated.get(tuple(own["ids"]))
    tally.n["prompts"] += 1
    if ids is None:
        tally.differ(f"{label}: the harness was not given pesc's {len(own['ids'])} prompt tokens {own['ids'][:6]}.. {own['error']}")
        return False
    text, reference = cut(continued(lm.tokenizer, own["ids"], ids), stops), theirs["resps"][0][0]
    tally.n["texts"] += 1
    tally.n["texts with a lost space"] += text != reference
    if ours["resps"][0] == text:
        return True
    at, gap = gap_at_difference(lm, own["ids"], ids, ours["resps"][0])
    if gap <= CLOSE:
        tally.n["texts equal up to a near-tie"] += 1
        print(f"near-tie {label}: the two best logits of token {at} differ by {gap:.1e}")
    else:
        tally.differ(f"{label}: text {text!r:.300}\n    pesc {ours['resps'][0]!r:.300}\n    from token {at}, gap {gap:.1e}")
    return False


def compare_text_metrics(tally, label, theirs, ours):
    same = True
    for metric in theirs["metrics"]:
        if metric.startswith(("pass", "math_verify")):
            continue
        if float(theirs[metric]) != ours[metric + "_reference"]:
            same = False
            if ours.get("undecided"):
                tally.n["answers left to an algebra system"] += 1
            else:
                tally.differ(f"{label}: {metric} {theirs[metric]} and {ours[metric + '_reference']}")
    return same


def compare_figures(tally, label, theirs, ours, suffix):
    """Means and standard errors of leaves and groups."""
    for part in ("results", "groups"):
        for name, figures in theirs.get(part, {}).items():
            own = ours["results"].get(name) or ours["groups"].get(name) or {}
            for key, value in figures.items():
                metric, _, kind = key.partition(",")
                if not kind or metric.startswith(("pass", "math_verify")) or not isinstance(value, (int, float)):
                    continue
                stem = metric.removesuffix("_stderr")
                found = own.get(f"{stem}{suffix}{metric[len(stem):]},{kind}", math.nan)
                tally.n["figures"] += 1
                error = abs(found - value) if isinstance(found, float) else math.nan
                tally.worst["figure"] = max(tally.worst["figure"], error)
                if not error <= 1e-9 and not (value != value and found == "N/A"):
                    tally.differ(f"{label}: {name} {key} {value} and {found}")


def compare_case(tally, name, lm, context, task, shots, limit, max_new, device, data):
    model, label = MODELS[name], f"{name} {task} {shots} shots"
    results, samples = run_harness(lm, task, shots, limit, max_new)
    own_results, own_samples = run_pesc(device, model, context, task, shots, limit, max_new, data)
    same, before = True, tally.wrong
    compare_pairs(tally, label, lm.pairs, lm.max_length, lm.own_tokenizer)
    if set(samples) != set(own_samples):
        tally.differ(f"{label}: leaves {set(samples) ^ set(own_samples)}")
    for leaf, rows in samples.items():
        own = {(s["doc_id"], s["filter"]): s for s in own_samples.get(leaf, [])}
        seen = set()
        for theirs in rows:
            ours = own.get((theirs["doc_id"], theirs["filter"]))
            where = f"{name} {leaf} {shots} shots, document {theirs['doc_id']}"
            if ours is None or any(theirs[h] != ours[h] for h in ("prompt_hash", "target_hash", "doc_hash")):
                tally.differ(f"{where}: another prompt, target or document")
                same = False
            elif isinstance(theirs["arguments"][0][1], dict):
                equal = theirs["doc_id"] in seen or compare_text(tally, where, lm, theirs, ours)
                seen.add(theirs["doc_id"])
                same &= equal and compare_text_metrics(tally, where, theirs, ours)
            else:
                same &= compare_choices(tally, where, theirs, ours)
        tally.n["documents"] += len({s["doc_id"] for s in rows})
    if same:
        compare_figures(tally, label, results, own_results, "_reference" if lm.generated else "")
    documents = sum(len({s["doc_id"] for s in rows}) for rows in samples.values())
    print(f"{label}: {documents} documents, " + (f"{tally.wrong - before} DIFFERENT" if tally.wrong > before else "equal"), flush=True)


def report(name, what, tally):
    counts = ", ".join(f"{k} {v:,}" for k, v in tally.n.items() if v)
    worst = "".join(f", largest {'relative ' if k == 'score' else ''}difference of a {k} {v:.1e}" for k, v in tally.worst.items())
    print(f"{name}, {what}: {counts}{worst}: " + ("equal" if not tally.wrong else f"{tally.wrong} DIFFERENT"), flush=True)
    return tally.wrong


def compare_model(a, name, part, data):
    """a: the arguments of the command."""
    model, tally, tasks = MODELS[name], Tally(), a.tasks.split(",") if a.tasks else None
    if not model.path.is_dir():
        print(f"{name}: SKIPPED, there is no {model.path}")
        return 0
    context = model.text_context if part == "texts" else None
    lm = recorder(model, context, a.lm_eval_device, a.batch)
    lm.own_tokenizer = model.path
    for task, shots in TEXTS if part == "texts" else SCORES:
        if tasks and task not in tasks and f"{task}:{shots}" not in tasks:
            continue
        documents = a.limit or (model.texts if part == "texts" else model.shots if shots else model.zero)
        compare_case(tally, name, lm, context, task, shots, math.ceil(documents / LEAVES.get(task, 1)),
                     a.max_new if part == "texts" else 0, a.pesc_device, data)
        tally.shown = 0
    return report(name, part, tally)


# ---- token ids without a model

TOKENIZERS = {"llama2": "llama2/tokenizer.json.xz", "llama2 (SentencePiece)": "llama2/tokenizer.model",
              "llama3": "llama3/tokenizer.json.xz", "yi": "yi/tokenizer.json.xz", "qwen2.5": "qwen2.5/tokenizer.json.xz",
              "deepseek-v3": "deepseek-v3/tokenizer.json.xz", "mistral v1": "mistral/tokenizer.v1.json.xz",
              "mistral v1 (SentencePiece)": "mistral/tokenizer.model.v1",
              "mistral v3 (SentencePiece)": "mistral/mistral_instruct_tokenizer_240323.model.v3",
              "mistral-nemo": "mistral-nemo/tokenizer.json.xz", "smollm2": "smollm2/tokenizer.json.xz"}


def unpack(source, target):
    text = lzma.open(source).read() if source.suffix == ".xz" else source.read_bytes()
    target.write_bytes(text)


class SentencePiece:
    """What the harness asks of a tokenizer, by the sentencepiece library: for models without a tokenizer.json."""

    def __init__(self, file):
        import sentencepiece
        self.sp = sentencepiece.SentencePieceProcessor(model_file=str(file))
        self.bos_token_id, self.eos_token_id = self.sp.bos_id(), self.sp.eos_id()
        self.bos_token, self.pad_token, self.padding_side = "<s>", "</s>", "left"

    def encode(self, text, add_special_tokens=True):
        return self.sp.encode(text, add_bos=add_special_tokens)

    def decode(self, token):
        return self.sp.id_to_piece(token)

    def __call__(self, texts, add_special_tokens=True, **_):
        import torch
        ids = torch.tensor([self.encode(texts[0], add_special_tokens)])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def local_tokenizer(folder, file):
    """Puts a tokenizer into a folder as a model has it, and opens it."""
    source = DATA / "tokenizers" / file
    folder.mkdir(parents=True)
    if ".json" not in source.name:
        unpack(source, folder / "tokenizer.model")
        return SentencePiece(folder / "tokenizer.model")
    unpack(source, folder / "tokenizer.json")
    configs = list(source.parent.glob("tokenizer_config.json*"))
    for config in configs:
        unpack(config, folder / "tokenizer_config.json")
    if not configs:
        names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return file_tokenizer(folder)


def splitter(tokenizer):
    """The harness's backend without a model: it stops when texts are tokens."""
    from lm_eval.models.huggingface import HFLM

    class Splitter(HFLM):
        def _loglikelihood_tokens(self, requests, **_):
            return requests

    lm = object.__new__(Splitter)
    lm.tokenizer, lm.backend = tokenizer, "causal"
    lm.add_bos_token = lm.custom_prefix_token_id = lm.enable_thinking = None
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return lm


# Boundaries inside a token, white space around them, special tokens in the text.
HARD = [("", " a"), ("", "<s> a"), (" \n", " b"), ("a ", "b"), ("a\u00a0\u3000", "b"), ("a\n\n", "\n b"), ("Answer:", " A"), ("x", "yz w"),
        ("<s>a", " b"), ("<|im_start|>a", " b"), ("1 2", "3 4"), ("(", "a) b"), ("日本", "語 x"), ("e", "\u0301 f"), ("the </s>", " end")]


def usable(lm, context, continuation):
    """Whether the harness can score the pair, and its tokenizer knows the special tokens in it."""
    if isinstance(lm.tokenizer, SentencePiece) and "<" in context[:1] + context[-4:-3] + continuation[:1]:
        return False
    return context == "" or all(lm._encode_pair(context, continuation))


def all_requests(limit):
    """Contexts with continuations to score, and contexts to generate after, of every task."""
    import types
    pairs, prompts, tasks = {}, {}, {}
    for name, shots in eval_text.CASES:
        tasks[name] = tasks.get(name) or eval_text.load_task(name)
        for doc in eval_text.reference_prompts(tasks[name], shots, limit):
            for context, continuation in zip(doc["contexts"], doc["continuations"]):
                if continuation is None:
                    prompts[context] = True
                else:
                    pairs[context, continuation] = True
    pairs.update(dict.fromkeys(HARD))
    return [types.SimpleNamespace(args=p) for p in pairs], list(prompts)


def compare_splits(limit):
    requests, prompts = all_requests(min(limit or 24, 24))
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        for name, file in TOKENIZERS.items():
            tally, folder = Tally(), pathlib.Path(work) / name
            lm = splitter(local_tokenizer(folder, file))
            able = [r for r in requests if r.args not in HARD or usable(lm, *r.args)]
            pairs = {text: (ctx, cont) for text, ctx, cont in lm.loglikelihood(able, disable_tqdm=True)}
            compare_pairs(tally, name, pairs, 4096, folder)
            for text, own in zip(prompts, own_tokens(folder, 4096, [(p, 256) for p in prompts])):
                tally.n["prompts"] += 1
                ids = lm.tok_batch_encode([text], left_truncate_len=4096 - 256)[0][0].tolist()
                if own["ids"] != ids:
                    at = next((i for i, (a, b) in enumerate(zip(ids, own["ids"])) if a != b), -1)
                    tally.differ(f"{name}: prompt {text!r:.60}, token {at}: harness {ids[at:at + 4]}, pesc {own['ids'][at:at + 4]} {own['error']}")
            wrong += report(name, "tokens", tally)
            shutil.rmtree(folder)
    return wrong


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--limit", type=int, default=0, help="documents a task; 0: a number that suits the model")
    p.add_argument("--max-new", type=int, default=48, help="tokens of a generated text at most; 0: as the tasks say")
    p.add_argument("--model", choices=MODELS, help="only this one")
    p.add_argument("--tasks", default="", help="only these, with commas: TASK, or TASK:SHOTS")
    p.add_argument("--lm-eval-device", default="cpu", help="on which the harness computes")
    p.add_argument("--pesc-device", default="cpu", help="on which pesc computes")
    p.add_argument("--batch", type=int, default=0, help="of the harness; 0: a number that suits the model")
    p.add_argument("parts", nargs="*", help="splits, scores, texts; without any: all")
    a = p.parse_args()
    if not eval_text.BENCH.is_dir():
        print(f"eval model: SKIPPED, there is no data in {eval_text.BENCH}; PESC_DATA names the folder above bench")
        return 0
    sys.stdout.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as work:
        data, wrong = eval_text.data_dir(pathlib.Path(work)), 0
        for part in a.parts or ["splits", "scores", "texts"]:
            if part == "splits":
                wrong += compare_splits(a.limit)
                continue
            for name in [a.model] if a.model else MODELS:
                wrong += compare_model(a, name, part, data)
    print("eval model:", "everything is equal" if not wrong else f"{wrong} differences")
    return int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main())
