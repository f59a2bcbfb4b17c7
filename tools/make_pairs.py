#!/usr/bin/env python3
"""Makes share/pairs.jsonl and share/pairs-test.jsonl from share/train.jsonl and share/test.jsonl.

Each record keeps its question and its right answer as `chosen`; `rejected` is made by rule: another
number or fact in the same form, a step of the sum gone wrong, another operation, or the right content in
another form (no sentence, no result line, no function). One seed, no other input.

    python3 tools/make_pairs.py share
"""
import json
import pathlib
import random
import re
import sys

FORMS = 0.3  # the part of the records whose rejected answer has the wrong form


def wrong_sum(rng, text):
    """The last result is off, in its step and in the answer."""
    answer = int(re.search(r"The answer is (-?\d+)\.", text).group(1))
    off = answer + rng.choice([-3, -2, -1, 1, 2, 3])
    return re.sub(r"= -?\d+\. The answer is -?\d+\.$", f"= {off}. The answer is {off}.", text)


def wrong_code(rng, text):
    """Another constant, or where there is none another operation."""
    numbers = [m for m in re.finditer(r"\d+", text)]
    if numbers:
        m = rng.choice(numbers)
        return text[:m.start()] + str(int(m.group()) + rng.choice([1, 2, 3])) + text[m.end():]
    swaps = [(" + ", " - "), (" * ", " + "), ("-(", "("), ("return ", "return -")]
    a, b = next(s for s in swaps if s[0] in text)
    return text.replace(a, b, 1)


def wrong_fact(rng, text, facts):
    """The fact of somebody else: the last word of another answer of the same form."""
    form = " ".join(text.split()[1:-1])
    other = rng.choice([f for f in facts[form] if f != text.split()[-1]])
    return " ".join(text.split()[:-1] + [other])


def wrong_form(domain, text):
    if domain == "maths":
        return re.search(r"(-?\d+)\.$", text).group(1)
    if domain == "code":
        return text.split("return ", 1)[1]
    return text.split()[-1].rstrip(".")


def facts_of(records):
    """{form of a sentence: the words that end it}"""
    facts = {}
    for r in records:
        if r["domain"] == "general":
            words = r["output"].split()
            facts.setdefault(" ".join(words[1:-1]), []).append(words[-1])
    return {form: sorted(set(words)) for form, words in facts.items()}


def pairs(rng, records, facts):
    out = []
    for r in records:
        domain, right = r["domain"], r["output"]
        if rng.random() < FORMS:
            wrong = wrong_form(domain, right)
        elif domain == "general":
            wrong = wrong_fact(rng, right, facts)
        else:
            wrong = (wrong_sum if domain == "maths" else wrong_code)(rng, right)
        assert wrong != right
        out.append({"domain": domain, "instruction": r["instruction"], "chosen": right, "rejected": wrong})
    return out


def main():
    root = pathlib.Path(sys.argv[1])
    read = lambda name: [json.loads(line) for line in (root / name).read_text().splitlines()]
    train, test = read("train.jsonl"), read("test.jsonl")
    facts = facts_of(train + test)
    rng = random.Random(37)
    for name, records, n in (("pairs.jsonl", train, 600), ("pairs-test.jsonl", test, 120)):
        out = pairs(rng, rng.sample(records, n), facts)
        (root / name).write_text("".join(json.dumps(r) + "\n" for r in out))


if __name__ == "__main__":
    main()
