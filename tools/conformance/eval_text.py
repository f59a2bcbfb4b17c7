"""The text side of the evaluator against lm-evaluation-harness 0.4.13: prompts, targets, filters, metrics.

The harness runs offline on local copies of the data (PESC_DATA/bench); its own functions are the
reference for every comparison. Needs lm_eval with sympy, antlr4 and math_verify, sacrebleu and rouge_score.
"""
import collections
import functools
import json
import logging
import lzma
import os
import pathlib
import random
import subprocess
import sys
import types
import warnings

os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("HF_ALLOW_CODE_EVAL", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

PROGRAM = pathlib.Path(os.environ.get("PESC", "build/pesc")).parent / "tests/conformance/eval_text"
BENCH = pathlib.Path(os.environ.get("PESC_DATA", "../shared/data")) / "bench"
LIMIT = int(os.environ.get("EVAL_DOCUMENTS", "300"))

# (names, shots, shots for which the data here suffices)
MMLU = ["mmlu_abstract_algebra", "mmlu_anatomy", "mmlu_college_physics", "mmlu_professional_law", "mmlu_world_religions"]
MATH = ["algebra", "counting_and_prob", "geometry", "intermediate_algebra", "num_theory", "prealgebra", "precalc"]
MATH_TYPES = dict(zip(MATH, ["Algebra", "Counting & Probability", "Geometry", "Intermediate Algebra", "Number Theory",
                             "Prealgebra", "Precalculus"]))
CASES = [(name, shots) for names, all_shots in [
    (MMLU, [0, 5]), (["arc_easy", "arc_challenge"], [0, 5, 25]), (["piqa"], [0, 5, 30]), (["hellaswag"], [0, 5, 10]),
    (["winogrande"], [0, 5]), (["nq_open", "triviaqa"], [0, 5]), (["gsm8k"], [0, 5, 8]), (["gsm8k_cot"], [0, 8]),
    ([f"minerva_math_{m}" for m in MATH], [0, 4]), ([f"hendrycks_math_{m}" for m in MATH], [0]),
    (["humaneval"], [0]), (["mbpp"], [0, 3])] for name in names for shots in all_shots]


# ---- the harness on local data

@functools.cache
def rows_of(path):
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_rows(folder, split):
    path = BENCH / folder / f"{split}.jsonl.xz"
    return rows_of(path) if path.exists() else None


def made_rows(folder):
    """Rows for few-shot examples where the copy of the data has none: made, the same for both sides."""
    words = ["river", "Ångström", "the 'old' mill", 'a "new" town', "1,234", "müller\u2019s", "tab\tbed"]
    return [{"nq_open": {"question": f"made question {i} about {words[i % 7]}", "answer": [words[i % 7], f"x{i}"]},
             "triviaqa": {"question": f"Made question {i}, {words[i % 7]}?",
                          "answer": {"value": words[i % 7], "aliases": [words[i % 7], f"x{i}"]}}}[folder]
            for i in range(400)]


def local_dataset(path, name=None, **_):
    """What datasets.load_dataset gives for the published name, from the local files."""
    import datasets
    folder = {"cais/mmlu": "mmlu", "allenai/ai2_arc": {"ARC-Easy": "arc_easy", "ARC-Challenge": "arc_challenge"}.get(name),
              "baber/piqa": "piqa", "Rowan/hellaswag": "hellaswag", "allenai/winogrande": "winogrande",
              "google-research-datasets/nq_open": "nq_open", "mandarjoshi/trivia_qa": "triviaqa", "openai/gsm8k": "gsm8k",
              "EleutherAI/hendrycks_math": "math", "openai/openai_humaneval": "humaneval",
              "google-research-datasets/mbpp": "mbpp"}[path]
    kinds = {"algebra": "Algebra", "counting_and_probability": "Counting & Probability", "geometry": "Geometry",
             "intermediate_algebra": "Intermediate Algebra", "number_theory": "Number Theory", "prealgebra": "Prealgebra",
             "precalculus": "Precalculus"}
    splits = {}
    for split in ["train", "dev", "validation", "test"]:
        rows = read_rows(folder, split)
        if rows is None and split == "train" and folder in ("nq_open", "triviaqa"):
            rows = made_rows(folder)
        if rows is None and split == "train" and folder == "math":
            rows = read_rows(folder, "test")[:10]
        if rows is None:
            continue
        if folder == "mmlu":
            rows = [r for r in rows if r["subject"] == name]
        if folder == "math":
            rows = [r for r in rows if r["type"] == kinds[name]] or rows
        splits[split] = datasets.Dataset.from_list(rows)
    return datasets.DatasetDict(splits)


def prepare_harness():
    """The harness reads the local data from now on. code_eval is replaced: the sandbox has its own tests."""
    import datasets
    import evaluate
    datasets.load_dataset = local_dataset
    evaluate.load = lambda *_, **__: types.SimpleNamespace(compute=lambda **_: ({"pass@1": 0.0}, {}))


@functools.cache
def task_manager():
    from lm_eval.tasks import TaskManager
    return TaskManager()


def load_task(name):
    """The harness's own task object."""
    prepare_harness()
    loaded = task_manager().load([name])
    return loaded["tasks"][name] if "tasks" in loaded else loaded[name]


def reference_prompts(task, shots, limit):
    """contexts, continuations and the three hashes of each document, as the harness logs them."""
    from lm_eval.utils import handle_non_serializable, hash_string
    task.set_config(key="num_fewshot", value=shots)
    task.set_fewshot_seed(seed=1234)
    task.build_all_requests(limit=limit)
    by_doc = collections.defaultdict(list)
    for instance in task.instances:
        by_doc[instance.doc_id].append(instance)
    for doc_id, requests in sorted(by_doc.items()):
        requests.sort(key=lambda r: r.idx)
        doc = requests[0].doc
        yield {
            "contexts": [r.args[0] for r in requests],
            "continuations": [r.args[1] if isinstance(r.args[1], str) else None for r in requests],
            "doc_hash": hash_string(json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)),
            "prompt_hash": hash_string(requests[0].arguments[0]),
            "target_hash": hash_string(str(task.doc_to_target(doc))),
        }


# ---- this side

def data_dir(scratch):
    """The local data with the made rows beside it."""
    scratch.mkdir(parents=True, exist_ok=True)
    for folder in BENCH.iterdir():
        (scratch / folder.name).mkdir(exist_ok=True)
        for file in folder.iterdir():
            link = scratch / folder.name / file.name
            if not link.exists():
                link.symlink_to(file.resolve())
    for folder in ("nq_open", "triviaqa"):
        text = "".join(json.dumps(r) + "\n" for r in made_rows(folder))
        (scratch / folder / "train.jsonl").write_text(text, encoding="utf-8")
    return scratch


def own_lines(*args, lines=()):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([PROGRAM, *map(str, args)], input=text, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{PROGRAM}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


FIELDS = ["prompt_hash", "target_hash", "doc_hash", "contexts", "continuations"]


def compare_prompts(data):
    wrong, counts, tasks = 0, collections.Counter(), {}
    for name, shots in CASES:
        tasks[name] = tasks.get(name) or load_task(name)
        theirs = list(reference_prompts(tasks[name], shots, LIMIT))
        ours = own_lines("prompts", name, data, shots, LIMIT)
        bad = {f: sum(a[f] != b[f] for a, b in zip(theirs, ours)) for f in FIELDS}
        wrong += sum(bad.values()) + (len(theirs) != len(ours))
        counts[name] += len(theirs)
        if any(bad.values()) or len(theirs) != len(ours):
            print(f"DIFFERENT {name} {shots} shots: {len(theirs)} and {len(ours)} documents, {bad}")
            show_first(theirs, ours)
    families = collections.Counter()
    for name, n in counts.items():
        families["mmlu" if name.startswith("mmlu") else "_".join(name.split("_")[:2]) if "math" in name else name] += n
    print("prompts, targets, documents equal by SHA-256:", ", ".join(f"{k} {v}" for k, v in families.items()))
    return wrong


def compare_chat(data):
    """The turns of a conversation: a template that prints its messages shows what the harness hands to it."""
    wrong, counted = 0, []
    for name, shots in [("mmlu_anatomy", 2), ("arc_easy", 2), ("winogrande", 1), ("nq_open", 2), ("gsm8k_cot", 8), ("mbpp", 3),
                        ("minerva_math_algebra", 4), ("humaneval", 0)]:
        task = load_task(name)
        task.set_config(key="num_fewshot", value=shots)
        task.set_fewshot_seed(seed=1234)
        task.build_all_requests(limit=200, apply_chat_template=True, fewshot_as_multiturn=True,
                                chat_template=lambda messages, **_: json.dumps([[m["role"], m["content"]] for m in messages]))
        theirs = collections.defaultdict(list)
        for r in sorted(task.instances, key=lambda r: (r.doc_id, r.idx)):
            theirs[r.doc_id].append((json.loads(r.args[0]), r.args[1] if isinstance(r.args[1], str) else None))
        for own in own_lines("prompts", name, data, shots, 200):
            ours = [(own["turns"] + [["user", q]], c) for q, c in zip(own["questions"], own["chat_continuations"])]
            wrong += ours != theirs[own["id"]]
        counted.append(f"{name} {len(theirs)}")
    print("chat turns:", ", ".join(counted), f"({wrong} different)" if wrong else "")
    return wrong


def show_first(theirs, ours):
    for number, (a, b) in enumerate(zip(theirs, ours)):
        for field in FIELDS:
            if a[field] != b[field]:
                print(f"  document {number}, {field}:\n    harness {a[field]!r:.600}\n    pesc    {b[field]!r:.600}")
                return


# ---- adversarial rows and answers

PIECES = ["", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\x1c", "\x1f", "\x85", "a", "A", "the ", "The ", "an ", "An", ".", ",",
          "...", "$", "\\$", "#### ", "####", "-", "0", "7", "42", "1,234", "3.50", "-12", "007", "½", "٣", "é", "É", "e\u0301", "ß", "İ",
          "ı", "Σ", "ΑΣ", "ὈΔΥΣΣΕΎΣ", "ﬁ", "Ǆ", "ŉ", "K", "\U0001F600", "\u200b", "\u2028", "[", "]", "[title]", " [title]", "[header] x", "{", "}",
          "{{", "}}", "{question}", "%s", "'", '"', "\\", "\\n", "_", "__", "|", "<|im_end|>", "</s>", "Question:", "Answer:",
          "The answer is ", "The answer is 5.", "Problem:", "=", "x=", "\\frac", "\\frac12", "\\frac{1}{2}", "\\dfrac", "\\tfrac34", "\\sqrt",
          "\\sqrt3", "\\sqrt{2}", "\\sqrt[3]8", "\\sqrt[3]{8}", "\\sqrt[", "sqrt", "frac", "\\boxed{", "\\boxed{7}", "\\boxed 7", "\\fbox{1}",
          "\\text{", "\\text{ cm}", "\\text{and}", "\\text{.}", "\\text{s}", "\\textbf{x}", "\\overline{AB}", "\\mbox{m}", "\\left(", "\\right)",
          "ft", "\\left", "square", "squares", " cm", "2\\pi cm", "\\picm", "km", "degrees", "^\\circ", "^{\\circ}", "\\%", "%", "\\!", ",\\!", "\\\\",
          "\\ ", "\\;", "{,}", "100,000", "1,00", "0,1", "0.5", ".5", "5.", " .5", "{.5", "a/b", "1/2", "-1/2", "1_0/2", "+1/2", "01/2", "k = 3",
          "Final Answer: The final answer is", " I hope it is correct.", ". I hope it is correct.", "Final Answer: The final answer is $5$. ",
          "I hope", "\\mathrm{th}", "dollars", "\\ldots", "\\dots", "x", "y", "pi", "(", ")", "^2", "+", "word", "New York", "naïve", "A. B"]


def texts(rng, n):
    """Strings made of pieces that the rules care for."""
    for _ in range(n):
        yield "".join(rng.choice(PIECES) for _ in range(rng.randrange(0, 9)))


def row_maker(rng):
    """A function for each data set that makes a row no publisher would have."""
    t = lambda: next(texts(rng, 1))
    return {
        "mmlu": lambda i: {"subject": "abstract_algebra", "question": t(), "choices": [t() for _ in range(4)], "answer": i % 4},
        "arc_easy": lambda i: {"question": t(), "choices": {"text": [t() + "." for _ in range(2 + i % 4)],
                                                            "label": list(["ABCDE", "12345"][i % 2][:2 + i % 4])},
                               "answerKey": ["ABCDE", "12345"][i % 2][i % (2 + i % 4)]},
        "piqa": lambda i: {"goal": t(), "sol1": t() + ".", "sol2": t() + ".", "label": i % 2},
        "hellaswag": lambda i: {"activity_label": t(), "ctx_a": t(), "ctx_b": t(), "endings": [t() + "." for _ in range(4)],
                                "label": str(i % 4)},
        "winogrande": lambda i: {"sentence": t() + "_" + t(), "option1": t(), "option2": t(), "answer": str(1 + i % 2)},
        "nq_open": lambda i: {"question": t(), "answer": [t() for _ in range(1 + i % 3)]},
        "triviaqa": lambda i: {"question": t(), "answer": {"value": t(), "aliases": [t() for _ in range(1 + i % 4)]}},
        "gsm8k": lambda i: {"question": t(), "answer": t() + "\n#### " + t()},
        "math": lambda i: {"problem": t(), "level": "Level 1", "type": "Algebra",
                           "solution": t().replace("\\boxed", "") + "\\boxed{" + t().replace("\\boxed", "").replace("{", "").replace("}", "") + "}"},
        "humaneval": lambda i: {"task_id": f"x/{i}", "prompt": t(), "test": t(), "entry_point": "f"},
        "mbpp": lambda i: {"task_id": i, "text": t(), "code": t(), "test_list": [t(), t(), t()]},
    }


ADVERSE = {"mmlu_abstract_algebra": ("mmlu", 5), "arc_easy": ("arc_easy", 3), "piqa": ("piqa", 2), "hellaswag": ("hellaswag", 2),
           "winogrande": ("winogrande", 2), "nq_open": ("nq_open", 2), "triviaqa": ("triviaqa", 2), "gsm8k": ("gsm8k", 2),
           "gsm8k_cot": ("gsm8k", 2), "minerva_math_algebra": ("math", 4), "hendrycks_math_algebra": ("math", 2),
           "humaneval": ("humaneval", 2), "mbpp": ("mbpp", 3)}
ROWS = int(os.environ.get("EVAL_ROWS", "2000"))


def make_adverse(scratch):
    rng = random.Random(7)
    for folder, make in row_maker(rng).items():
        (scratch / folder).mkdir(parents=True, exist_ok=True)
        for split, n in [("test", ROWS), ("validation", ROWS), ("train", 60), ("dev", 20)]:
            rows = [make(i) for i in range(n)]
            text = "".join(json.dumps(r, ensure_ascii=bool(n % 2)) + "\n" for r in rows)
            with lzma.open(scratch / folder / f"{split}.jsonl.xz", "wt", encoding="utf-8") as out:
                out.write(text)
    return scratch


def judged_by_harness(task, answers):
    """Per document: filter -> (filtered, metrics), from the harness's own filters and metrics."""
    by_doc = collections.defaultdict(list)
    for instance in task.instances:
        by_doc[instance.doc_id].append(instance)
    for doc_id, requests in by_doc.items():
        requests.sort(key=lambda r: r.idx)
        for request, response in zip(requests, answers[doc_id]):
            request.resps = [response]
    task.apply_filters()
    for doc_id, requests in sorted(by_doc.items()):
        yield {key: (requests[0].filtered_resps[key],
                     task.process_results(requests[0].doc, [r.filtered_resps[key] for r in requests]))
               for key in requests[0].filtered_resps}


def choice_answers(rng, n):
    """Log-likelihoods with ties."""
    return [(rng.choice([-1.0, -2.0, -2.5, -7.25, -rng.random() * 30, -0.0]), bool(rng.randrange(2))) for _ in range(n)]


def text_answer(rng, task, doc):
    """Half the answers are near the right one."""
    gold = task.doc_to_target(doc)
    gold = rng.choice(gold) if isinstance(gold, list) and gold else gold
    gold = str(gold).split("#### ")[-1]
    noise = lambda: next(texts(rng, 1))
    return rng.choice([noise(), noise(), gold, " " + gold + ".", "The " + gold.upper(), noise() + gold, gold + noise(),
                       "#### " + gold, "The answer is " + gold + ".", "$" + gold + "$", noise() + "\n#### " + gold])


def compare_judging(name, task, data):
    """2,000 answers judged by both. minerva_math is compared function by function: see compare_math."""
    rng = random.Random(name)
    by_doc = collections.defaultdict(list)
    for instance in task.instances:
        by_doc[instance.doc_id].append(instance)
    choice = task.OUTPUT_TYPE == "multiple_choice"
    answers = {i: choice_answers(rng, len(rs)) if choice else [text_answer(rng, task, rs[0].doc)] for i, rs in by_doc.items()}
    lines = [{"task": name, "id": i, **({"logprobs": [x for x, _ in a]} if choice else {"text": a[0]})} for i, a in sorted(answers.items())]
    ours = own_lines("judge", name, data, 0, ROWS, lines=lines)
    wrong = 0
    for line, verdicts, reference in zip(lines, ours, judged_by_harness(task, answers)):
        for v in verdicts:
            filtered, metrics = reference[v["filter"]]
            right = choice or filtered == v["filtered"] or filtered == [v["filtered"]]
            right = right and all(float(metrics[m]) == x for m, x in v["values"].items() if not m.startswith("pass"))
            if not right and wrong < 3:
                print(f"DIFFERENT {name}: {line!r:.400}\n    harness {filtered!r} {metrics}\n    pesc    {v}\n    {answers[line['id']]!r:.200}"
                      f" target {task.doc_to_target(by_doc[line['id']][0].doc)!r:.300}")
            wrong += not right
    return wrong


def compare_adverse(data):
    global BENCH
    published, BENCH = BENCH, data
    wrong, judged = 0, []
    for name, (_, shots) in ADVERSE.items():
        task = load_task(name)
        for k in (0, shots):
            theirs = list(reference_prompts(task, k, ROWS))
            ours = own_lines("prompts", name, data, k, ROWS)
            bad = {f: sum(a[f] != b[f] for a, b in zip(theirs, ours)) for f in FIELDS}
            if any(bad.values()) or len(theirs) != len(ours):
                print(f"DIFFERENT adversarial {name} {k} shots: {len(theirs)} and {len(ours)}, {bad}")
                show_first(theirs, ours)
            wrong += sum(bad.values()) + (len(theirs) != len(ours))
        if name != "minerva_math_algebra":
            reference_prompts(task, 0, ROWS)
            wrong += compare_judging(name, task, data)
            judged.append(f"{name} {len(task.eval_docs)}")
    BENCH = published
    print(f"adversarial rows ({ROWS} a task, 0 and more shots): prompts, targets, documents equal for {len(ADVERSE)} tasks")
    print("answers judged:", ", ".join(judged))
    return wrong


# ---- MATH

def harness_module(path):
    import importlib.util
    import lm_eval
    file = pathlib.Path(lm_eval.__file__).parent / "tasks" / path
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raises(f, *args):
    try:
        return f(*args), True
    except Exception:  # whatever the reference raises, pesc says that there is no value
        return "", False


def compare_functions(label, cases, reference):
    ours = own_lines("functions", lines=cases)
    wrong = 0
    for case, own in zip(cases, ours):
        theirs, ok = reference(case)
        if ok != own["ok"] or (ok and theirs != own["text"]):
            if wrong < 3:
                print(f"DIFFERENT {label}: {case!r}\n    harness {theirs!r} {ok}\n    pesc    {own!r}")
            wrong += 1
    print(f"{label}: {len(cases)} strings")
    return wrong


def numbers(rng, n):
    """Pairs of numbers in the forms of MATH answers, many of them equal."""
    for _ in range(n):
        a, b = rng.randrange(-50, 50), rng.choice([1, 2, 3, 4, 5, 8, 10, 12, 20, 100])
        k = rng.choice([1, 1, 2, 3])
        forms = [f"\\frac{{{a * k}}}{{{b * k}}}", f"{a * k}/{b * k}", f"\\dfrac{{{a}}}{{{b}}}", f"-\\frac{{{-a}}}{{{b}}}"]
        forms += [str(a // b)] if a % b == 0 else []
        forms += [repr(a / b), repr(a / b) + "0"] if b in (1, 2, 4, 5, 8, 10, 20, 100) else []
        forms += [str(rng.randrange(-50, 50)), f"{rng.random():.3f}", "x+1", "\\sqrt{4}", "(1,2)", "[invalidanswer]"]
        yield rng.choice(forms), rng.choice(forms)


def compare_math():
    rng = random.Random(11)
    minerva, hendrycks = harness_module("minerva_math/utils.py"), harness_module("hendrycks_math/utils.py")
    solutions = [r["solution"] for r in read_rows("math", "test")]
    golds = [minerva.remove_boxed(minerva.last_boxed_only_string(s)) for s in solutions]
    strings = list(texts(rng, 6000)) + golds
    strings += [f"Final Answer: The final answer is ${g}$" + rng.choice([". ", ".", " ", ". I hope it is correct. "]) + x
                for g, x in zip(golds, texts(rng, 3000))]
    wrong = compare_functions("minerva normal form", [{"f": "minerva", "a": x} for x in strings],
                              lambda c: (minerva.normalize_final_answer(c["a"]), True))
    wrong += compare_functions("minerva answer", [{"f": "extract", "a": x} for x in strings],
                               lambda c: (minerva.get_unnormalized_answer(c["a"]), True))
    wrong += compare_functions("hendrycks normal form", [{"f": "hendrycks", "a": x} for x in strings],
                               lambda c: raises(hendrycks.strip_string, c["a"]))
    wrong += compare_functions("boxed answer", [{"f": "boxed", "a": x} for x in strings + solutions],
                               lambda c: raises(lambda x: minerva.remove_boxed(minerva.last_boxed_only_string(x)), c["a"]))
    pairs = list(numbers(rng, int(os.environ.get("EVAL_PAIRS", "2500"))))
    ours = own_lines("functions", lines=[{"f": "rational", "a": a, "b": b} for a, b in pairs])
    decided = 0
    for (a, b), own in zip(pairs, ours):
        decided += own["ok"]
        same = lambda: minerva.is_equiv(a, b) == bool(own["number"])
        if own["ok"] and not same() and not same():  # the harness gives up after 5 s, which a busy machine may need
            print(f"DIFFERENT rational: {a!r} {b!r}: harness {minerva.is_equiv(a, b)}, pesc {own['number']}")
            wrong += 1
    print(f"rational comparison: {len(pairs)} pairs, {decided} decided, each as sympy does")
    return wrong


# ---- metrics

def compare_overlap():
    import sacrebleu.metrics
    from rouge_score import rouge_scorer
    rng = random.Random(13)
    words = "the cat sat on a mat 日本 語 text Ünïcödé K 42 x-ray don't".split()
    pairs = [(" ".join(rng.choices(words, k=rng.randrange(0, 30))), " ".join(rng.choices(words, k=rng.randrange(0, 30))))
             for _ in range(1500)]
    pairs += list(zip(texts(rng, 1000), texts(rng, 1000)))
    chrf, rouge = sacrebleu.metrics.CHRF(), rouge_scorer.RougeScorer(["rougeL"])
    wrong, worst = 0, 0.0
    for name, score in [("chrf", lambda a, b: chrf.sentence_score(a, [b]).score),
                        ("rouge_l", lambda a, b: rouge.score(b, a)["rougeL"].fmeasure)]:
        ours = own_lines("functions", lines=[{"f": name, "a": a, "b": b} for a, b in pairs])
        for (a, b), own in zip(pairs, ours):
            error = abs(score(a, b) - own["number"])
            worst = max(worst, error)
            if error > 1e-9:
                print(f"DIFFERENT {name}: {a!r} {b!r}: {score(a, b)} and {own['number']}")
                wrong += 1
    print(f"chrF and ROUGE-L: {len(pairs)} pairs each, largest difference {worst:.1e}")
    return wrong


def compare_statistics():
    """Means, standard errors and groups, with the harness's own functions."""
    from lm_eval.api import metrics
    rng = random.Random(17)
    wrong, worst, groups = 0, 0.0, []
    for _ in range(300):
        leaves = [[float(rng.random() < rng.random()) for _ in range(rng.randrange(2, 400))] for _ in range(rng.randrange(1, 20))]
        groups.append(leaves)
    ours = own_lines("functions", lines=[{"f": "statistics", "tasks": g} for g in groups])
    for leaves, own in zip(groups, ours):
        sizes = [len(v) for v in leaves]
        errors = [metrics.mean_stderr(v) for v in leaves]
        means = [metrics.mean(v) for v in leaves]
        expected = [x for pair in zip(means, errors) for x in pair]
        expected += [metrics.aggregate_subtask_metrics(means, sizes), metrics.pooled_sample_stderr(errors, sizes)]
        error = max(abs(a - b) for a, b in zip(expected, own, strict=True))
        worst = max(worst, error)
        wrong += error > 1e-12
    print(f"means, standard errors and groups: {len(groups)} groups, {sum(map(len, groups))} leaves, largest difference {worst:.1e}")
    return wrong


def main():
    if not BENCH.is_dir():
        print(f"eval text: SKIPPED, there is no data in {BENCH}; PESC_DATA names the folder above bench")
        return 0
    scratch = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / "pesc-eval-text"
    parts = {"prompts": lambda: compare_prompts(data_dir(scratch / "data")),
             "chat": lambda: compare_chat(data_dir(scratch / "data")),
             "adverse": lambda: compare_adverse(make_adverse(scratch / "adverse")),
             "math": compare_math, "overlap": compare_overlap, "statistics": compare_statistics}
    sys.stdout.reconfigure(line_buffering=True)
    wrong = sum(parts[p]() for p in (sys.argv[1:] or parts))
    print("eval text:", "everything is equal" if not wrong else f"{wrong} differences")
    return int(wrong != 0)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own folder: it has a tokenizers.py, which hides the library of that name
    sys.exit(main())
