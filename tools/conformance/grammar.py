#!/usr/bin/env python3
"""Compares JSON Schemas as src/grammar compiles them with the `jsonschema` package.

For random schemas of the supported keywords: texts that the masks let through must validate; of
random instances, written in the order of the schema's properties, the grammar must accept exactly
those that validate. The schemas write additionalProperties out, since without it pesc allows no
others beside `properties`. Ends with `N passed, M failed`.

grammar.py [--schemas N] [--seed S] [--program build/tests/conformance/schema_texts]
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

sys.path.pop(0)  # files here have the names of packages
import jsonschema  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["a", "b", "id", "name", "x y", "é", "q\"t", "n\nl", "tab", "$x", "a/b", "m~n"]
WORDS = ["", "a", "ab", "abc", "abcd", "zz", "é", "\U0001f600", "a\"b", "\\", "a\nb", "x" * 9, "A1", "77", "2024-02-29", "2023-02-29"]
PATTERNS = ["^a", "b$", "^[a-c]{1,3}$", "[0-9]", "^(ab|cd)*$", "^[^a]*$", "^.{2}$", "a+b?", "^$", "x|^a$", "^\\d{2,4}$", "^[A-Z]\\d+$", "\"", "\\\\"]
FORMATS = {"date": ["2024-02-29", "2023-02-29", "2024-13-01", "1999-12-31", "99-1-1"], "ipv4": ["1.2.3.4", "256.1.1.1", "1.2.3", "0.0.0.0"],
           "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"], "ipv6": ["::1", "1::2:3", "1:2:3:4:5:6:7:8", ":::", "::ffff:1.2.3.4", "1:2"],
           "time": ["12:00:00Z", "12:00:00.5+01:00", "25:00:00Z", "12:00Z"], "date-time": ["2024-02-29T12:00:00Z", "2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z"],
           "email": ["a@b.c", "a.b@c-d.e", "a"]}
NUMBERS = [0, 1, -1, 2, 3, 5, 7, 9, 10, 11, 12, 15, 99, 100, 101, 120, -5, -10, -100, 1000, 12345, 0.5, 1.5, -0.5, 0.25, 9.99, 10.01, 99.5, -1.25, 0.001, 3.0]


class Schemas:
    """Random schemas; `defs` collects what $ref names."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = {}

    def number(self, kind):
        r, s = self.r, {"type": kind}
        bounds = sorted(r.sample([n for n in NUMBERS if kind == "number" or r.random() < 0.3 or n == int(n)], 2))
        if r.random() < 0.5:
            s[r.choice(["minimum", "exclusiveMinimum"])] = bounds[0]
        if r.random() < 0.5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = bounds[1]
        if r.random() < 0.2:
            s["multipleOf"] = r.choice([1, 2, 3, 5, 7, 10, 12])
        return s

    def string(self):
        r, s = self.r, {"type": "string"}
        if r.random() < 0.3:
            s["minLength"] = r.randrange(4)
        if r.random() < 0.3:
            s["maxLength"] = s.get("minLength", 0) + r.randrange(4)
        if r.random() < 0.3:
            s["pattern"] = r.choice(PATTERNS)
        elif r.random() < 0.2:
            s = {"type": "string", "format": r.choice(list(FORMATS))}
        return s

    def array(self, depth):
        r, s = self.r, {"type": "array"}
        if r.random() < 0.7:
            s["items"] = self.schema(depth + 1)
        if r.random() < 0.3:
            s["prefixItems"] = [self.schema(depth + 1) for _ in range(r.randrange(1, 3))]
        if r.random() < 0.4:
            s["minItems"] = r.randrange(3)
        if r.random() < 0.4:
            s["maxItems"] = s.get("minItems", 0) + r.randrange(3)
        return s

    def object(self, depth):
        r, s = self.r, {"type": "object"}
        names = r.sample(NAMES, r.randrange(5))
        if names or r.random() < 0.3:
            s["properties"] = {n: self.schema(depth + 1) for n in names}
        s["additionalProperties"] = r.choice([False, False, True, None]) if r.random() < 0.8 else None
        if s["additionalProperties"] is None:
            s["additionalProperties"] = self.schema(depth + 1)
        if r.random() < 0.6:
            s["required"] = [n for n in names if r.random() < 0.5] + ([r.choice(NAMES)] if r.random() < 0.1 else [])
        if r.random() < 0.15:
            s["patternProperties"] = {p: self.schema(depth + 1) for p in r.sample(["^x", "b", "[0-9]$"], r.randrange(1, 3))}
        if r.random() < 0.15:
            s["minProperties"] = r.randrange(3)
        if r.random() < 0.15:
            s["maxProperties"] = s.get("minProperties", 0) + r.randrange(3)
        return s

    def combined(self, depth):
        r = self.r
        kind = r.choice(["anyOf", "allOf", "$ref", "beside"])
        if kind == "anyOf":
            return {"anyOf": [self.schema(depth + 1) for _ in range(r.randrange(1, 4))]}
        if kind == "allOf":
            one = r.choice([self.string, lambda: self.number("integer"), lambda: self.number("number")])
            return {"allOf": [one() for _ in range(2)]}
        if kind == "$ref":
            name = f"d{len(self.defs)}"
            self.defs[name] = True  # its place, while it is made
            self.defs[name] = self.schema(depth + 1)
            return {"$ref": f"#/$defs/{name}"}
        return {**self.string(), "anyOf": [self.string(), self.string()]}

    def schema(self, depth=0):
        r = self.r
        leaf = depth >= 3
        kind = r.choice(["string", "integer", "number", "enum", "const", "any", "types"] + ([] if leaf else ["object", "object", "object", "array", "array", "combined", "combined"]))
        if kind == "object":
            return self.object(depth)
        if kind == "array":
            return self.array(depth)
        if kind == "combined":
            return self.combined(depth)
        if kind == "string":
            return self.string()
        if kind in ("integer", "number"):
            return self.number(kind)
        if kind == "enum":
            return {"enum": r.sample([None, True, False, 1, 2.5, -3, "a", "é", "q\"", [1, "x"], {"k": [True]}, [], {}], r.randrange(1, 4))}
        if kind == "const":
            return {"const": r.choice([0, "c", None, [1, 2], {"a": {"b": 1}}])}
        if kind == "types":
            return {"type": r.sample(["null", "boolean", "string", "integer"], 2)}
        return r.choice([True, {}, {"type": "boolean"}, {"type": "null"}])

    def root(self):
        s = self.schema()
        while not isinstance(s, dict):
            s = self.schema()
        if self.r.random() < 0.2:  # a list
            self.defs["list"] = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"v": s, "next": {"$ref": "#/$defs/list"}},
                                                             "required": ["v"], "additionalProperties": False}]}
            s = {"$ref": "#/$defs/list"}
        return {**s, "$defs": self.defs} if self.defs else s


class Instances:
    """Values that a schema may or may not accept, made by following it and then going astray."""

    def __init__(self, seed, root):
        self.r = random.Random(seed)
        self.root = root

    def value(self, s, depth=0):
        r = self.r
        if depth > 8:
            return None
        if s is True or s is False or not s or r.random() < 0.06:
            return r.choice([None, True, 0, 1.5, "a", [], {}, [1], {"a": 1}, -7, "x" * 3])
        if "$ref" in s:
            return self.value(self.root["$defs"][s["$ref"].split("/")[-1]], depth + 1)
        if "enum" in s:
            return r.choice(s["enum"])
        if "const" in s:
            return s["const"]
        for key in ("anyOf", "allOf"):
            if key in s:
                return self.value(r.choice(s[key]), depth + 1)
        kind = s.get("type", "null")
        kind = r.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self.object(s, depth)
        if kind == "array":
            prefix, items = s.get("prefixItems", []), s.get("items", True)
            return [self.value(prefix[i] if i < len(prefix) else items, depth + 1) for i in range(r.randrange(5))]
        if kind == "string":
            if "format" in s:
                return r.choice(FORMATS[s["format"]] + ["a"])
            return r.choice(WORDS) if r.random() < 0.7 else "".join(r.choice("abcdAZ09é\"\\\t ") for _ in range(r.randrange(6)))
        if kind in ("integer", "number"):
            near = [s[k] + d for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if k in s for d in (-1, 0, 1)]
            n = r.choice(NUMBERS + near * 3 + [s.get("multipleOf", 1) * r.randrange(-20, 20)] * 3)
            return int(n) if n == int(n) else n
        return {"boolean": r.random() < 0.5, "null": None}[kind]

    def object(self, s, depth):
        """In the order of the grammar: properties, names that are only required, others."""
        r, out = self.r, {}
        named = list(s.get("properties", {})) + [n for n in s.get("required", []) if n not in s.get("properties", {})]
        others = [n for n in NAMES + ["xa", "k9", "b2"] if n not in named and r.random() < 0.15]
        for name in named + others:
            if r.random() < (0.9 if name in s.get("required", []) else 0.5):
                asked = s.get("properties", {}).get(name, s.get("additionalProperties", True))
                for p, v in s.get("patternProperties", {}).items():
                    if re.search(p, name) and r.random() < 0.7:
                        asked = v
                out[name] = self.value(asked, depth + 1)
        return out


def has_twice(text):
    twice = []

    def look(pairs):
        twice.extend([1] if len({k for k, _ in pairs}) < len(pairs) else [])
        return dict(pairs)
    json.loads(text, object_pairs_hook=look)
    return bool(twice)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--schemas", type=int, default=1500)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--program", default="build/tests/conformance/schema_texts")
    a = args.parse_args()
    program = subprocess.Popen([a.program, str(ROOT / "share/base/tokenizer.json")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    passed = failed = unsupported = accepted = generated = unfinished = 0

    def report(schema, sentence):
        nonlocal failed
        failed += 1
        if failed <= 20:
            print(f"FAIL {sentence}\n     {json.dumps(schema, ensure_ascii=False)}")

    for k in range(a.schemas):
        schema = Schemas(a.seed * 1000003 + k).root()
        check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        make = Instances(a.seed * 7919 + k, schema)
        values = [make.value(schema) for _ in range(40)]
        ascii_too = "é" not in json.dumps(schema, ensure_ascii=False)  # names are written one way only
        texts = [json.dumps(v, ensure_ascii=ascii_too and i % 3 == 0, indent=2 if i % 5 == 0 else None) for i, v in enumerate(values)]
        program.stdin.write(json.dumps({"schema": schema, "texts": texts, "generate": 4, "seed": k}) + "\n")
        program.stdin.flush()
        got = json.loads(program.stdout.readline())
        if "error" in got:
            if "contradicts itself" in got["error"]:
                good = not any(check.is_valid(v) for v in values)
                passed += good
                if not good:
                    report(schema, got["error"])
            else:
                unsupported += 1
                print("refused:", got["error"])
            continue
        before = failed
        for value, text, accepts in zip(values, texts, got["accepts"]):
            valid = check.is_valid(value)
            accepted += accepts and valid
            if accepts != valid:
                report(schema, f"{'accepts' if accepts else 'rejects'} {text!r}, which is {'valid' if valid else 'invalid'}")
        for text in got["generated"]:
            if text is None:
                unfinished += 1
            elif text.startswith("stuck"):
                report(schema, text)
            elif not has_twice(text):
                generated += 1
                if not check.is_valid(json.loads(text)):
                    report(schema, f"generates {text!r}")
        passed += failed == before
    print(f"{a.schemas} schemas, {unsupported} refused; {accepted} valid instances accepted; {generated} generated texts valid, {unfinished} not finished")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
