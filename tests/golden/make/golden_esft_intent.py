#!/usr/bin/env python3
"""Makes tests/golden/esft_intent/cases.json: predictions, expected answers, and whether they match by
the rule of ESFT's intent benchmark, written here in Python's own terms: str, tuple, sorted, json.
What makes Python fail counts as no match.

    tests/golden/make/golden_esft_intent.py tests/golden
"""
import json
import pathlib
import random
import sys


def answer_in(text):
    text = text.strip() or "None"
    text = text.strip(".。")
    before, fence, rest = text.partition("```json")
    if fence:
        inside, end, _ = rest.partition("```")
        text = inside if end else "{}"
    if "\n" in text:
        text = next(line for line in text.split("\n") if line)
    return text.strip(".。")


def as_set(slots, clean):
    def value(v):
        if isinstance(v, list):
            return str(tuple(sorted(clean(str(x)) for x in v)))
        return clean(v)
    return {(k, value(v)) for k, v in slots.items()}


def matches(prediction, expected):
    want = json.loads(expected)
    wanted = as_set(want.get("slots", {}), lambda s: s)
    try:
        have = json.loads(answer_in(prediction))
        had = as_set(have.get("slots", {}), lambda s: s.replace(" ", ""))
    except Exception:
        return False
    return have.get("intent", "") == want.get("intent", "") and had == wanted


MUSIC = '{"intent": "Music-Play", "slots": {"singer": "Zhou Li", "song": ["b", "a"]}}'
PLAIN = '{"intent": "Music-Play", "slots": {"singer": "ZhouLi", "song": ["b", "a"]}}'
HAND = [
    (PLAIN, PLAIN), (MUSIC, PLAIN), (PLAIN, MUSIC), (MUSIC, MUSIC),
    (" \n\t" + PLAIN + "。 \u3000", PLAIN), (PLAIN + ".。..", PLAIN), ("..." + PLAIN, PLAIN),
    (". " + PLAIN, PLAIN), (PLAIN + " .", PLAIN), (PLAIN + "。\n", PLAIN), ("\x1c\x85\xa0" + PLAIN, PLAIN),
    ("```json\n" + PLAIN + "\n```", PLAIN), ("Sure: ```json" + PLAIN + "``` done", PLAIN),
    ("```json\n" + PLAIN, PLAIN), ("```json\n", '{"slots": {}}'), ("```json", "{}"),
    ("```\n" + PLAIN + "\n```", PLAIN), ("```json\n\n\n" + PLAIN + ".\n```", PLAIN),
    (PLAIN + "\nMore text", PLAIN), ("Answer:\n" + PLAIN, PLAIN), ("\n\n" + PLAIN, PLAIN),
    (" \n" + PLAIN, PLAIN), ("```json \n" + PLAIN + "```", PLAIN),
    ("", PLAIN), ("None", PLAIN), ("{}", PLAIN), ("{}", "{}"), ("[]", "{}"), ("1", "{}"), ('""', "{}"),
    ("{}", '{"intent": ""}'), ('{"intent": ""}', "{}"), ('{"intent": null}', "{}"),
    ('{"intent": "a"}', '{"intent": "a", "slots": {}}'), ('{"slots": null, "intent": "a"}', '{"intent": "a"}'),
    ('{"slots": [], "intent": "a"}', '{"intent": "a"}'), ('{"slots": {"x": 1}}', '{"slots": {"x": 1}}'),
    ('{"slots": {"x": "1"}}', '{"slots": {"x": 1}}'), ('{"slots": {"x": ["1"]}}', '{"slots": {"x": [1]}}'),
    ('{"slots": {"x": [1]}}', '{"slots": {"x": ["1"]}}'), ('{"slots": {"x": [1.0]}}', '{"slots": {"x": ["1.0"]}}'),
    ('{"slots": {"x": [1e16]}}', '{"slots": {"x": ["1e+16"]}}'), ('{"slots": {"x": [1e15]}}', '{"slots": {"x": ["1000000000000000.0"]}}'),
    ('{"slots": {"x": [0.0001]}}', '{"slots": {"x": ["0.0001"]}}'), ('{"slots": {"x": [0.00001]}}', '{"slots": {"x": ["1e-05"]}}'),
    ('{"slots": {"x": [0.1]}}', '{"slots": {"x": ["0.1"]}}'), ('{"slots": {"x": [123456.789]}}', '{"slots": {"x": ["123456.789"]}}'),
    ('{"slots": {"x": [-2.5e-7]}}', '{"slots": {"x": ["-2.5e-07"]}}'), ('{"slots": {"x": [0.30000000000000004]}}', '{"slots": {"x": ["0.30000000000000004"]}}'),
    ('{"slots": {"x": [1.7976931348623157e308]}}', '{"slots": {"x": ["1.7976931348623157e+308"]}}'),
    ('{"slots": {"x": [-0.0]}}', '{"slots": {"x": ["-0.0"]}}'), ('{"slots": {"x": [5e-324]}}', '{"slots": {"x": ["5e-324"]}}'),
    ('{"slots": {"x": [true, null, false]}}', '{"slots": {"x": ["None", "True", "False"]}}'),
    ('{"slots": {"x": [["a", 1]]}}', '{"slots": {"x": ["[\'a\',1]"]}}'), ('{"slots": {"x": [{"k": "v"}]}}', '{"slots": {"x": ["{\'k\':\'v\'}"]}}'),
    ('{"slots": {"x": [["it\'s"]]}}', '{"slots": {"x": ["[\\"it\'s\\"]"]}}'),
    ('{"slots": {"x": [["it\'s \\"q\\""]]}}', '{"slots": {"x": ["[\'it\\\\\'s\\"q\\"\']"]}}'),
    ('{"slots": {"x": [["\\n\\u00a0\\u200b\\u0007"]]}}', '{"slots": {"x": ["[\'\\\\n\\\\xa0\\\\u200b\\\\x07\']"]}}'),
    ('{"slots": {"x": [["中文"]]}}', '{"slots": {"x": ["[\'中文\']"]}}'),
    ('{"slots": {"x": ["a", "b"]}}', '{"slots": {"x": "(\'a\', \'b\')"}}'), ('{"slots": {"x": "(\'a\', \'b\')"}}', '{"slots": {"x": ["a", "b"]}}'),
    ('{"slots": {"x": "(\'a\',)"}}', '{"slots": {"x": ["a"]}}'), ('{"slots": {"x": "()"}}', '{"slots": {"x": []}}'),
    ('{"slots": {"x": []}}', '{"slots": {"x": "()"}}'), ('{"slots": {"x": ["a b", "c"]}}', '{"slots": {"x": ["c", "ab"]}}'),
    ('{"slots": {"x": ["b", "a a", "a"]}}', '{"slots": {"x": ["a", "aa", "b"]}}'), ('{"slots": {"x": ["a", "a"]}}', '{"slots": {"x": ["a"]}}'),
    ('{"slots": {"x": "a", "y": "b"}}', '{"slots": {"x": "a"}}'), ('{"slots": {"x": "a"}}', '{"slots": {"x": "a", "y": "b"}}'),
    ('{"slots": {"y": "a"}}', '{"slots": {"x": "a"}}'), ('{"slots": {"x": {"a": 1}}}', '{"slots": {"x": "a"}}'),
    ('{"slots": {"x": "a", "x": "b"}}', '{"slots": {"x": "b"}}'), ('{"intent": "a", "intent": "b"}', '{"intent": "b"}'),
    ('{"slots": {"x": "b", "x": "a"}}', '{"slots": {"x": "b"}}'), ('{"slots": {"x": ""}}', '{"slots": {"x": ""}}'),
    ('{"slots": {"x": " "}}', '{"slots": {"x": ""}}'), ('{"slots": {"x": "a\\tb"}}', '{"slots": {"x": "a\\tb"}}'),
    ('{"slots": {"x": "\\u3000"}}', '{"slots": {"x": "\\u3000"}}'), ('{"slots": {"x": "a\tb"}}', '{"slots": {"x": "a\\tb"}}'),
    ("{'intent': 'a'}", '{"intent": "a"}'), ('{"intent": "a"} x', '{"intent": "a"}'), ('{"intent": "a",}', '{"intent": "a"}'),
    ('{"intent": "a", "n": 123456789012345678901234567890}', '{"intent": "a"}'), ('\ufeff{"intent": "a"}', '{"intent": "a"}'),
    ('{"intent": "\\u0041"}', '{"intent": "A"}'), ('{"intent": "A "}', '{"intent": "A"}'), ('{"intent": ["A"]}', '{"intent": ["A"]}'),
    ('{"intent": "a."}', '{"intent": "a."}'), ('{"intent": "a"}.', '{"intent": "a"}'), ('{"slots": {"时间": ["明 天", "后天"]}}', '{"slots": {"时间": ["后天", "明天"]}}'),
]


def random_case(rng):
    """An answer, and a text that is it, nearly it, or around it."""
    def word():
        return "".join(rng.choice("ab 中'\"\\.") for _ in range(rng.randint(0, 3)))
    slots = {word(): rng.choice([word(), [word() for _ in range(rng.randint(0, 3))]])
             for _ in range(rng.randint(0, 3))}
    want = {"intent": word(), "slots": slots}
    have = json.loads(json.dumps(want))
    for k, v in have["slots"].items():
        if isinstance(v, list):
            rng.shuffle(v)
        elif rng.random() < 0.3:
            have["slots"][k] = v + " "
        elif rng.random() < 0.1:
            have["slots"][k] = [v]
    text = json.dumps(have, ensure_ascii=rng.random() < 0.5)
    form = rng.choice(["{}", "{}", " {}。", "```json\n{}\n```", "{}\nx", "\n\n{}.", "```json{}", "x {}"])
    return form.replace("{}", text), json.dumps(want)


def main():
    rng = random.Random(5934875)
    pairs = HAND + [random_case(rng) for _ in range(150)]
    cases = [{"prediction": a, "expected": b, "match": matches(a, b)} for a, b in pairs]
    counts = [sum(c["match"] for c in part) for part in (cases[:len(HAND)], cases[len(HAND):])]
    assert 25 < counts[0] < len(HAND) - 25 and 30 < counts[1] < 120, counts
    out = pathlib.Path(sys.argv[1]) / "esft_intent"
    out.mkdir(exist_ok=True)
    (out / "cases.json").write_text(
        "[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
