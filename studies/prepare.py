"""The data of the studies: what a description's `prepare` names, written once to the folder of the prepared data."""
import json
import lzma
import random
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARE = ROOT / "share"
sys.path.append(str(ROOT / "tools"))
import make_pairs
# Instruction sets of the real domains below --source, as `pesc data fetch` leaves them, also packed: what `mix` draws from. Of two places the first
# that has files.
SOURCES = {
    "general": [["instruct/alpaca/*.json*"], ["instruct/dolly/*.json*"]],
    "code": [["instruct/evol-code/*.json*"], ["instruct/gpteacher/*.json*"]],
    "maths": [[f"{folder}/{name}/train.json*" for folder in ("instruct", "bench")] for name in ("gsm8k", "math")],
}


def data(study):
    """Prepares what is not there yet."""
    {"tenths": tenths, "places": places, "mix": mix, "esft": esft, "given": given, "grammars": grammars, "pairs": pairs}[study.about["prepare"]](study)


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [x.rstrip("\n") for x in f]  # splitlines() would also split at U+2028


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(r + "\n" for r in records), encoding="utf-8")


def need(study, path, why):
    if path is None or not Path(path).exists():
        sys.exit(f"studies: {study.name}: {path or 'nothing'} is not there; give {why}")


def given(study):
    need(study, study.data / "train.jsonl", "--data, the folder that `studies/run.py smol run` has prepared (build/studies/smol/data)")


def tenths(study):
    """train.jsonl, and valid.jsonl, every tenth record, which chooses the rate; train-DOMAIN.jsonl, a domain of train.jsonl."""
    parts = {"train": [], "valid": []}
    for number, record in enumerate(lines(SHARE / "train.jsonl"), 1):
        parts["train" if number % 10 else "valid"].append(record)
        if number % 10:
            parts.setdefault(f"train-{json.loads(record)['domain']}", []).append(record)
    for part, records in parts.items():
        write(study.data / f"{part}.jsonl", records)


def places(study):
    """TARGET-base, -tune and -valid.jsonl: by the place of a record in ten of its domain (see esft.toml); -aligned.jsonl is -tune with as many
    records of -base, which keep what the model knew."""
    for target in study.targets:
        parts, seen = {"base": [], "tune": [], "valid": []}, {}
        for record in lines(SHARE / "train.jsonl"):
            domain = json.loads(record)["domain"]
            place = seen[domain] = seen.get(domain, -1) + 1
            if place % 10 < (1 if domain == target else 6):
                parts["base"].append(record)
            elif domain == target:
                parts["valid" if place % 10 == 9 else "tune"].append(record)
        rng, kept = random.Random(0), [r for r in parts["base"] if json.loads(r)["domain"] != target]
        parts["aligned"] = parts["tune"] + rng.sample(kept, min(len(kept), len(parts["tune"])))
        for part, records in parts.items():
            write(study.data / f"{target}-{part}.jsonl", records)


def pairs(study):
    """instruct.jsonl, every second record of share/train.jsonl, which the start is tuned on; of the others pairs, made by rule as those of share/
    are: train.jsonl, and valid.jsonl, every tenth. chosen-train and -valid.jsonl: their right answers as instructions. Held out: share/pairs-test.jsonl."""
    records = [json.loads(x) for x in lines(SHARE / "train.jsonl")]
    held = [json.loads(x) for x in lines(SHARE / "test.jsonl")]
    made = make_pairs.pairs(random.Random(0), records[1::2], make_pairs.facts_of(records + held))
    parts = {"instruct": records[::2]}
    for name, rest in {"": made, "chosen-": records[1::2]}.items():
        parts[name + "train"], parts[name + "valid"] = [r for i, r in enumerate(rest, 1) if i % 10], rest[9::10]
    for part, chosen in parts.items():
        write(study.data / f"{part}.jsonl", map(json.dumps, chosen))


# Grammars over letters of their own: what follows a sentence in each of them.
GRAMMARS = {
    "reverse": ("abcdef", lambda s, letters: s[::-1]),
    "next": ("ghijkl", lambda s, letters: "".join(letters[(letters.index(c) + 1) % 6] for c in s)),
    "sort": ("mnopqr", lambda s, letters: "".join(sorted(s))),
    "double": ("stuvwx", lambda s, letters: "".join(c + c for c in s)),
}


def grammars(study):
    """train, valid and test.jsonl of four grammars without a letter in common, so that the right division of labour is known."""
    rng, parts, seen = random.Random(0), {"train": [], "valid": [], "test": []}, set()
    while len(seen) < 4 * 900:
        domain = list(GRAMMARS)[len(seen) % 4]
        letters, rule = GRAMMARS[domain]
        sentence = "".join(rng.choice(letters) for _ in range(rng.randint(4, 8)))
        if sentence not in seen:
            part = "test" if len(seen) < 4 * 60 else "valid" if len(seen) < 4 * 120 else "train"
            seen.add(sentence)
            parts[part].append(json.dumps({"domain": domain, "instruction": " ".join(sentence), "output": " ".join(rule(sentence, letters))}))
    for part, records in parts.items():
        write(study.data / f"{part}.jsonl", records)


def mix(study):
    """test, valid and the training files of `sizes`: real instructions of three domains, held out by record, none longer than a sequence."""
    about, to = study.about["mix"], study.data
    if all((to / f"{part}.jsonl").exists() for part in ("test", "valid", *about["sizes"])):
        return
    need(study, study.o.source and study.o.source / "instruct",
         "--source, the folder with instruct/ and bench/ in which the commands that `pesc data fetch` lists were run")
    scratch = to / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    held, valid = about["held"], about["valid"]
    most = [max(n) + held + valid for n in zip(*about["sizes"].values())]
    files = [w for d in SOURCES for w in ["--" + d, *(f for places in SOURCES[d] for f in found(study, places))]]
    counts = ",".join(str(int(n * f)) for n, f in zip(most, about["spare"]))
    study.text("data", "mix", *files, "--counts", counts, "--seed", 1, "-o", scratch / "mix.jsonl", "--overwrite")
    records = lines(scratch / "mix.jsonl")
    seen, parts = dict.fromkeys(SOURCES, 0), {name: [] for name in ["test", "valid", *about["sizes"]]}
    for record, n in zip(records, lengths(study, records, scratch / "texts.jsonl")):
        domain = json.loads(record)["domain"]
        at, i = list(SOURCES).index(domain), seen[domain]
        if n > about["seq_len"] or i == most[at]:
            continue
        seen[domain] += 1
        if i < held + valid:
            parts["test" if i < held else "valid"].append(record)
            continue
        for name, sizes in about["sizes"].items():
            if i - held - valid < sizes[at]:
                parts[name].append(record)
    for name, chosen in parts.items():
        write(to / f"{name}.jsonl", chosen)
    if about.get("bench"):
        shutil.copytree(study.o.source / "bench", to / "bench", dirs_exist_ok=True)
    shutil.rmtree(scratch)


def found(study, places):
    """The files of an instruction set."""
    for place in places:
        files = sorted(study.o.source.glob(place))
        if files:
            return files
    sys.exit(f"studies: {study.name}: {study.o.source} has no {' or '.join(places)}; `pesc data fetch` lists the command that fetches it")


def lengths(study, records, scratch):
    """Tokens of each record's turns, with room for the marks around them."""
    texts = ("\n".join(m["content"] for m in json.loads(r)["messages"]) for r in records)
    write(scratch, (json.dumps(t) for t in texts))
    ids = study.text("tokenize", study.base(), "--jsonl", scratch)
    return [line.count(",") + 1 + 16 for line in ids.splitlines()]


def esft(study):
    """esft/TARGET-train, -valid and -test.jsonl beside the mix of smol.toml."""
    given(study)
    if all((study.data / f"esft/{t}-train.jsonl").exists() for t in study.targets):
        return
    need(study, study.o.source and study.o.source / "instruct/esft/train", "--source, a folder with instruct/esft/train")
    seen = set(lines(study.data / "train.jsonl"))
    new = [json.loads(x) for x in lines(study.data / "train-1.44.jsonl") if x not in seen]
    for target in study.targets:
        records = [r for r in new if r["domain"] == target]
        own = study.o.source / f"instruct/esft/train/{target}.jsonl"
        packed = own.with_name(own.name + ".xz")
        if own.exists() or packed.exists():
            with open(own, encoding="utf-8") if own.exists() else lzma.open(packed, "rt", encoding="utf-8") as f:
                records = [{"messages": json.loads(x)["messages"], "domain": target} for x in f]
        random.Random(0).shuffle(records)
        at = 0
        for part, n in {"test": min(150, len(records) // 5), "valid": min(60, len(records) // 10), "train": 3000}.items():
            write(study.data / f"esft/{target}-{part}.jsonl", (json.dumps(r, ensure_ascii=False) for r in records[at:at + n]))
            at += n


# ---- what else the driver asks of data

def draw(layers, experts, seed):
    """As many experts of each layer as there are, drawn at random."""
    rng = random.Random(seed)
    return {layer: sorted(rng.sample(range(experts), len(ids))) for layer, ids in layers.items()}


def last_number(text):
    """What a solution ends in: after ####, in a box, or the last number there is."""
    for pattern in (r"####\s*([^\s]+)", r"\\boxed\{([^{}]*)\}", r"(-?\d[\d,]*(?:\.\d+)?)"):
        found = re.findall(pattern, text)
        if found:
            return found[-1].replace(",", "").replace("$", "").rstrip(".")
    return None
