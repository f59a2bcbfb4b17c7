#!/usr/bin/env python3
"""Makes share/: the tokenizer, the corpus of the embedded base, and the three-domain instructions.

A small made-up world, so that everything here is our own and every answer can be checked by a
program. The base reads plain text of the three domains (stories of people, sums, functions) but
never the instruction form, nor the facts that the general instructions ask for. The instructions:

  general  facts about made-up people; a fact is trained in some wordings and asked in another
  code     one-line Python functions from a description; held-out combinations of operations
  maths    two-step sums of small numbers, the steps written out; held-out combinations

    python tools/make_share.py share [corpus.txt]

writes share/{train,test}.jsonl and share/base/tokenizer.json (needs the `tokenizers` package) and,
where asked, the base's corpus. Everything depends on the seed alone.
"""
import json
import pathlib
import random
import sys

SEED = 20240102
ONSETS = "b br d dr f g gr h k l m n p r s st t tr v z".split()
VOWELS = "a e i o u ai or en il".split()
JOBS = "baker weaver potter smith sailor tailor gardener miller painter singer".split()
PETS = "cat dog goat crow hen mule toad hare".split()
COLOURS = "red blue green white black brown grey gold".split()


def word(rng, syllables=2):
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllables)).capitalize()


def names(rng, n, syllables=2, taken=()):
    out, seen = [], set(taken)
    while len(out) < n:
        w = word(rng, syllables)
        if w not in seen:
            seen.add(w)
            out.append(w)
    return out


# ---- general: who lives where, does what, keeps which animal

FACTS = {
    "city": ["Where does {n} live?", "In which town is the home of {n}?",
             "Name the town where {n} lives.", "Which town does {n} call home?"],
    "job": ["What is the work of {n}?", "How does {n} earn a living?", "Name the trade of {n}.",
            "What does {n} do all day?"],
    "pet": ["Which animal does {n} keep?", "What pet does {n} have?", "Name the animal of {n}.",
            "Which animal lives with {n}?"],
    "colour": ["Which colour does {n} like?", "What is the favourite colour of {n}?",
               "Name the colour that {n} likes best.", "What colour is the coat of {n}?"],
}
ANSWERS = {"city": "{n} lives in {v}.", "job": "{n} is a {v}.", "pet": "{n} keeps a {v}.",
           "colour": "{n} likes {v}."}


def people(rng, n, cities):
    return [{"n": name, "city": rng.choice(cities), "job": rng.choice(JOBS),
             "pet": rng.choice(PETS), "colour": rng.choice(COLOURS)} for name in names(rng, n)]


def general(rng, world):
    train, test = [], []
    for p in world:
        for fact, wordings in FACTS.items():
            order = wordings[:]
            rng.shuffle(order)
            for i, w in enumerate(order):
                item = (w.format(n=p["n"]), ANSWERS[fact].format(n=p["n"], v=p[fact]))
                (test if i == 0 else train).append(item)
    return train, test


# ---- code: describe a function, get the function

FIRST = [("adds {a} to x", "x + {a}"), ("takes {a} from x", "x - {a}"), ("multiplies x by {a}", "x * {a}"),
         ("squares x", "x * x"), ("doubles x", "x + x")]
THEN = [("then adds {b}", "({e}) + {b}"), ("then takes away {b}", "({e}) - {b}"),
        ("then multiplies by {b}", "({e}) * {b}"), ("then negates it", "-({e})"),
        ("then gives the rest by {b}", "({e}) % {b}"), ("and stops", "{e}")]
ASK = ["Write a function {f} that {d}.", "Define {f}: it {d}.", "Give Python code for {f} that {d}."]


def code(rng, n):
    items, seen = [], set()
    while len(items) < n:
        f, a, b = rng.choice("f g h run calc".split()), rng.randint(2, 9), rng.randint(2, 9)
        (d1, e1), (d2, e2) = rng.choice(FIRST), rng.choice(THEN)
        e = e1.format(a=a)
        ask = rng.choice(ASK).format(f=f, d=f"{d1.format(a=a)}, {d2.format(b=b)}")
        key = (d1, d2, a, b)
        items.append((key, ask, f"def {f}(x):\n    return {e2.format(e=e, b=b)}"))
        seen.add(key)
    keys = sorted(seen)
    rng.shuffle(keys)
    held = set(keys[: len(keys) // 10])
    return ([(q, a) for k, q, a in items if k not in held], [(q, a) for k, q, a in items if k in held])


# ---- maths: two steps, written out

STORIES = ["{w} has {a} apples, buys {b} and eats {c}. How many are left?",
           "A cart holds {a} sacks. {w} loads {b} more, then takes off {c}. How many sacks remain?",
           "{w} counts {a} birds. {b} more come and {c} fly away. How many birds are there?"]


MOST = 10  # of the numbers


def maths(rng, n, who):
    items, seen = [], set()
    while len(items) < n:
        a, b = rng.randint(1, MOST), rng.randint(1, MOST)
        c = rng.randint(1, min(MOST, a + b))
        q = rng.choice(STORIES).format(w=rng.choice(who), a=a, b=b, c=c)
        items.append(((a, b, c), q, f"{a} + {b} = {a + b}. {a + b} - {c} = {a + b - c}. The answer is {a + b - c}."))
        seen.add((a, b, c))
    keys = sorted(seen)
    rng.shuffle(keys)
    held = set(keys[: len(keys) // 10])
    return ([(q, s) for k, q, s in items if k not in held], [(q, s) for k, q, s in items if k in held])


# ---- what the base reads

def corpus(rng, n, world, cities):
    """Plain text: other people, sums and functions, never asked about."""
    lines = []
    for _ in range(n):
        kind = rng.random()
        if kind < 0.25:
            p, q = rng.sample(world, 2)
            lines.append(" ".join(rng.sample([
                f"{p['n']} lives in {p['city']}.", f"{p['n']} is a {p['job']}.",
                f"{p['n']} keeps a {p['pet']}.", f"{p['n']} likes {p['colour']}.",
                f"One day {p['n']} met {q['n']} on the road to {rng.choice(cities)}.",
                f"The {p['pet']} of {p['n']} ran away and {q['n']} found it.",
                f"What does {p['n']} do all day? Nobody knows.",
                f"{p['n']} has a coat; the colour of the coat is {p['colour']}."], 3)))
        elif kind < 0.8:
            a, b = rng.randint(0, MOST), rng.randint(0, MOST)
            c = rng.randint(0, min(MOST, a + b))
            lines.append(rng.choice([f"{a} + {b} = {a + b}.", f"{a + b} - {c} = {a + b - c}.",
                                     f"{a} + {b} = {a + b}. {a + b} - {c} = {a + b - c}.",
                                     f"There were {a} birds, then {b} more. How many birds? {a + b}.",
                                     f"{a} apples and {b} apples are {a + b} apples."]))
        else:
            f, a = rng.choice("f g h run calc".split()), rng.randint(2, 9)
            (d, e), (_, t) = rng.choice(FIRST), rng.choice(THEN)
            lines.append(f"# {f} {d.format(a=a)}\ndef {f}(x):\n    return "
                         + t.format(e=e.format(a=a), b=rng.randint(2, 9)))
    return "\n".join(lines) + "\n"


def train_tokenizer(text, path):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d|[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.save(str(path))


def main():
    out = pathlib.Path(sys.argv[1])
    rng = random.Random(SEED)
    cities = names(rng, 24, 2)
    asked = people(rng, 90, cities)
    told = people(rng, 400, cities)
    who = [p["n"] for p in told[:40]]
    parts = {"general": general(rng, asked), "code": code(rng, 1100), "maths": maths(rng, 1100, who)}
    train, test = [], []
    for domain, (a, b) in parts.items():
        rng.shuffle(a)
        rng.shuffle(b)
        row = lambda x: {"domain": domain, "instruction": x[0], "output": x[1]}
        train += [row(x) for x in a[:1000]]
        test += [row(x) for x in b[:80]]
    rng.shuffle(train)
    (out / "base").mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("test", test)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    text = corpus(rng, 45000, told, cities)
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(text)
    sample = text[:400000] + "\n".join(f"### Human:\n{r['instruction']}\n### Assistant:\n{r['output']}" for r in train)
    train_tokenizer(sample, out / "base" / "tokenizer.json")
    print(len(train), "train", len(test), "test", len(text), "bytes of corpus")


main()
