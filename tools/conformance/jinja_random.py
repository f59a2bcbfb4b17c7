"""Random templates with random variables, for the comparison of src/jinja with jinja2 (jinja.py)."""

import random
import re

STR = [
    "",
    "a",
    "Hello, World",
    " x ",
    "y\n",
    "a,b,,c",
    "1",
    "-7",
    "2.5",
    "1e3",
    "0x1F",
    " 12 ",
    "1_000",
    "abc abc abc",
    "\t tab\n\nline two\r\nthree",
    "Ünïcödé ß 你好",
    'it\'s "q" \\ <b>&amp;</b>',
    "%s|%d",
    "{}|{0}|{a}",
    "ΑΣ ΟΔΟΣ",
    "ǅ ǆ İı",
    "<think>x</think>y",
    "a.b",
    "aaa",
    "0",
    "Aa bB CC",
    "x-y z_w (k)",
    "\u2028\u00a0\u1680",
    "٣",
    "²",
    "Ⅷ",
    "ﬁ",
    "naïve café",
    "nan",
    "inf",
    "00",
    "None",
    "-",
    "e\u0301",
]


def value(r, depth=0):
    k = r.randrange(12 if depth < 3 else 8)
    if k <= 2:
        return r.choice(STR)
    if k == 3:
        return r.choice([0, 1, -1, 2, 3, 5, 7, 10, 255, -3, 1000000])
    if k == 4:
        return r.choice([0.0, 1.0, 2.5, -0.5, 1e16, 1e-7, 3.14159, 1e22, 0.1, 100.0, -2.0, 1.5, 0.5])
    if k == 5:
        return r.choice([True, False])
    if k == 6:
        return None
    if k == 7:
        return r.choice(STR)
    if k <= 9:
        kind = r.randrange(4)
        n = r.randrange(4)
        if kind == 0:
            return [value(r, depth + 1) for _ in range(n)]
        if kind == 1:
            return [r.choice(STR) for _ in range(n)]
        if kind == 2:
            return [r.randrange(-5, 20) for _ in range(n)]
        return [{"name": r.choice(STR), "age": r.randrange(50), "b": r.choice([True, None, "x", 0])} for _ in range(n)]
    return {r.choice(["a", "b", "c", "name", "items", "A", "0", "x y", "é", "get"]): value(r, depth + 1) for _ in range(r.randrange(4))}


NAMES = ["v0", "v1", "v2", "v3", "v4", "v5"]
FILTERS = {
    "upper": "",
    "lower": "",
    "capitalize": "",
    "title": "",
    "trim": "s?",
    "string": "",
    "safe": "",
    "e": "",
    "escape": "",
    "replace": "ssi?",
    "indent": "I?b?b?",
    "center": "i?",
    "truncate": "i?b?s?i?",
    "wordcount": "",
    "urlencode": "",
    "tojson": "kw",
    "length": "",
    "count": "",
    "first": "",
    "last": "",
    "list": "",
    "reverse": "",
    "join": "s?A?",
    "items": "",
    "sort": "b?b?A?",
    "dictsort": "b?D?b?",
    "unique": "b?A?",
    "min": "b?A?",
    "max": "b?A?",
    "sum": "A?x?",
    "batch": "ix?",
    "default": "x?b?",
    "d": "x?b?",
    "abs": "",
    "int": "x?i?",
    "float": "x?",
    "round": "i?M?",
    "attr": "s",
    "format": "xxx",
    "map": "map",
    "select": "sel",
    "reject": "sel",
    "selectattr": "sela",
    "rejectattr": "sela",
}
KW = {
    "trim": ["chars"],
    "replace": ["old", "new", "count"],
    "indent": ["width", "first", "blank"],
    "center": ["width"],
    "truncate": ["length", "killwords", "end", "leeway"],
    "join": ["d", "attribute"],
    "sort": ["reverse", "case_sensitive", "attribute"],
    "dictsort": ["case_sensitive", "by", "reverse"],
    "unique": ["case_sensitive", "attribute"],
    "min": ["case_sensitive", "attribute"],
    "max": ["case_sensitive", "attribute"],
    "sum": ["attribute", "start"],
    "batch": ["linecount", "fill_with"],
    "default": ["default_value", "boolean"],
    "int": ["default", "base"],
    "float": ["default"],
    "round": ["precision", "method"],
    "attr": ["name"],
}
METHODS = {
    "strip": "s?",
    "lstrip": "s?",
    "rstrip": "s?",
    "removeprefix": "s",
    "removesuffix": "s",
    "split": "s?i?",
    "rsplit": "s?i?",
    "splitlines": "b?",
    "partition": "s",
    "rpartition": "s",
    "find": "si?i?",
    "rfind": "si?i?",
    "index": "si?i?",
    "rindex": "si?i?",
    "count": "si?i?",
    "startswith": "S i?i?",
    "endswith": "S i?i?",
    "join": "x",
    "replace": "ssi?",
    "format": "xxx",
    "ljust": "is?",
    "rjust": "is?",
    "center": "is?",
    "zfill": "i",
    "upper": "",
    "lower": "",
    "title": "",
    "capitalize": "",
    "isupper": "",
    "islower": "",
    "isalpha": "",
    "isdecimal": "",
    "isdigit": "",
    "isnumeric": "",
    "isalnum": "",
    "isspace": "",
    "keys": "",
    "values": "",
    "items": "",
    "get": "xx?",
    "copy": "",
    "index ": "x",
    "count ": "x",
    "get ": "x",
}
TESTS = {
    "defined": "",
    "undefined": "",
    "none": "",
    "boolean": "",
    "true": "",
    "false": "",
    "integer": "",
    "float": "",
    "number": "",
    "string": "",
    "mapping": "",
    "iterable": "",
    "sequence": "",
    "callable": "",
    "escaped": "",
    "lower": "",
    "upper": "",
    "even": "",
    "odd": "",
    "divisibleby": "i",
    "in": "x",
    "sameas": "x",
    "equalto": "x",
    "eq": "x",
    "ne": "x",
    "lt": "x",
    "le": "x",
    "gt": "x",
    "ge": "x",
    "filter": "",
    "test": "",
}


class Generator:
    """Expressions and statements; wrong types and absent names are among them."""

    def __init__(self, r):
        self.r = r

    def lit(self):
        r = self.r
        k = r.randrange(9)
        if k <= 2:
            return self.strlit()
        if k == 3:
            return str(r.choice([0, 1, 2, 3, -1, 5, 10]))
        if k == 4:
            return r.choice(["1.5", "2.0", "0.5", "1e3", "3.0e-5"])
        if k == 5:
            return r.choice(["true", "false", "none", "True", "None"])
        if k == 6:
            return "[" + ", ".join(self.expr(3) for _ in range(r.randrange(3))) + "]"
        if k == 7:
            return "(" + ", ".join(self.expr(3) for _ in range(r.randrange(2, 4))) + ")"
        return "{" + ", ".join(self.strlit() + ": " + self.expr(3) for _ in range(r.randrange(3))) + "}"

    def strlit(self):
        s = self.r.choice(STR + ["a", "x", "name", "b", ", ", "\n"])
        return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'

    def arg(self, kind, d):
        r = self.r
        if r.random() < 0.12:
            return self.expr(d + 1)
        if kind in "sS":
            if kind == "S" and r.random() < 0.2:
                return "(" + self.strlit() + ", " + self.strlit() + ")"
            return r.choice(['"a"', '" "', '","', '"ab"', '"x"', '"b"', self.strlit(), '"l"', '""'])
        if kind == "i":
            return r.choice(["0", "1", "2", "3", "5", "-1", "-2", "10", "20", "none", "true"])
        if kind == "I":
            return r.choice(["0", "2", '">> "', "4", "none"])
        if kind == "b":
            return r.choice(["true", "false", "1", "none"])
        if kind == "A":
            return r.choice(['"name"', '"age"', '"b"', '"name.x"', '"age,name"', "0", '"0"', "none"])
        if kind == "D":
            return r.choice(['"key"', '"value"'])
        if kind == "M":
            return r.choice(['"common"', '"ceil"', '"floor"'])
        return self.expr(d + 1)

    def args(self, name, sig, d, table=KW):
        r = self.r
        if sig == "kw":
            out = []
            if r.random() < 0.4:
                out.append("indent=" + r.choice(["2", "0", "none", "4", '"\\t"', "true"]))
            if r.random() < 0.3:
                out.append("ensure_ascii=" + r.choice(["true", "false"]))
            if r.random() < 0.3:
                out.append("sort_keys=true")
            if r.random() < 0.2:
                out.append('separators=(",", ":")')
            return ", ".join(out)
        if sig == "map":
            if r.random() < 0.4:
                return "attribute=" + self.arg("A", d) + (", default=" + self.expr(d + 1) if r.random() < 0.3 else "")
            f = r.choice(list(FILTERS))
            if FILTERS[f] in ("kw", "map", "sel", "sela"):
                return '"%s"' % f
            rest = self.args(f, FILTERS[f], d, {})
            return '"%s"' % f + (", " + rest if rest else "")
        if sig in ("sel", "sela"):
            out = [self.arg("A", d)] if sig == "sela" else []
            if r.random() < 0.7:
                t = r.choice(list(TESTS))
                out.append('"%s"' % t)
                rest = self.args(t, TESTS[t], d, {})
                if rest:
                    out.append(rest)
            return ", ".join(out)
        out, i, n = [], 0, 0
        kws = table.get(name)
        kw = False
        for m in re.finditer(r"(\w)\s*(\??)", sig):
            optional = m.group(2)
            if optional and r.random() < 0.5:
                if kws and r.random() < 0.5:
                    kw = True
                else:
                    break
                n += 1
                continue
            a = self.arg(m.group(1), d)
            if kw or (kws and n < len(kws) and r.random() < 0.15):
                if kws and n < len(kws):
                    kw = True
                    out.append(kws[n] + "=" + a)
            else:
                out.append(a)
            n += 1
        return ", ".join(out)

    def expr(self, d=0):
        r = self.r
        k = r.randrange(100)
        if d >= 4 or k < 22:
            return r.choice(NAMES) if r.random() < 0.75 else self.lit()
        if k < 26:
            return self.lit()
        if k < 50:
            f = r.choice(list(FILTERS))
            a = self.args(f, FILTERS[f], d)
            return "(" + self.expr(d + 1) + ")|" + f + ("(" + a + ")" if a else "")
        if k < 66:
            m = r.choice(list(METHODS))
            return "(" + self.expr(d + 1) + ")." + m.strip() + "(" + self.args(m.strip(), METHODS[m], d, {}) + ")"
        if k < 72:
            t = r.choice(list(TESTS))
            a = self.args(t, TESTS[t], d, {})
            return "((" + self.expr(d + 1) + ") is " + r.choice(["", "", "not "]) + t + ("(" + a + ")" if a else "") + ")"
        if k < 80:
            return (
                "("
                + self.expr(d + 1)
                + " "
                + r.choice(["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"])
                + " "
                + self.expr(d + 1)
                + ")"
            )
        if k < 83:
            return "(not " + self.expr(d + 1) + ")"
        if k < 84:
            return "(-" + self.expr(d + 1) + ")"
        if k < 88:
            return "(" + self.expr(d + 1) + ")[" + r.choice(["0", "-1", "1", "'name'", "'a'", self.expr(d + 2)]) + "]"
        if k < 92:
            b = lambda: r.choice(["", "", "0", "1", "-1", "2", "3", "-3", self.expr(d + 2)])
            return r.choice(NAMES) + "[" + b() + ":" + b() + r.choice(["", "", ":" + r.choice(["-1", "2", "1", "-2", ""])]) + "]"
        if k < 94:
            return "(" + self.expr(d + 1) + ")." + r.choice(["name", "a", "b", "items", "age", "x", "real", "count", "append"])
        if k < 96:
            return "(" + self.expr(d + 1) + " if " + self.expr(d + 1) + r.choice(["", " else " + self.expr(d + 1)]) + ")"
        if k < 97:
            return "range(" + ", ".join(r.choice(["0", "1", "3", "5", "-2", self.expr(d + 2)]) for _ in range(r.randrange(1, 4))) + ")"
        if k < 98:
            return "dict(" + r.choice(["", "a=1, b=" + self.expr(d + 1), "**" + self.expr(d + 1), self.expr(d + 1)]) + ")"
        if k < 99:
            return (
                r.choice(
                    [
                        '"%s"',
                        '"%5d"',
                        '"%.2f"',
                        '"%-6s|"',
                        '"%05.1f"',
                        '"%x"',
                        '"%r"',
                        '"%+d"',
                        '"%%"',
                        '"%s %s"',
                        '"%(a)s"',
                        '"%e"',
                        '"%g"',
                        '"%c"',
                        '"%5.1s"',
                    ]
                )
                + " % ("
                + self.expr(d + 1)
                + r.choice(["", ",", ", " + self.expr(d + 1)])
                + ")"
            )
        return (
            r.choice(
                [
                    '"{}"',
                    '"{:5}"',
                    '"{:>8}"',
                    '"{:^8}"',
                    '"{:.2f}"',
                    '"{0!r}"',
                    '"{:,}"',
                    '"{0[0]}"',
                    '"{0.a}"',
                    '"{:05d}"',
                    '"{:x}"',
                    '"{:*<6}"',
                    '"{:e}"',
                    '"{:%}"',
                    '"{{}}"',
                    '"{:.3}"',
                    '"{:+}"',
                    '"{:#x}"',
                    '"{:_}"',
                    '"{1} {0}"',
                ]
            )
            + ".format("
            + self.expr(d + 1)
            + r.choice(["", ", " + self.expr(d + 1)])
            + ")"
        )

    def template(self):
        r = self.r
        k = r.randrange(16)
        e = self.expr
        if k < 10:
            return "{{ " + e() + " }}"
        if k == 10:
            return "{% for x in " + e() + " %}{{ x }}{{ loop.index }}{% if loop.last %}!{% endif %}{% else %}none{% endfor %}"
        if k == 11:
            return "{% set y = " + e() + " %}{{ y }}|{{ y|length if y is iterable else y is defined }}"
        if k == 12:
            return "{% if " + e() + " %}yes{% else %}no{% endif %}"
        if k == 13:
            return "{% macro m(a, b=" + e() + ") %}{{ a }}/{{ b }}{% endmacro %}{{ m(" + e() + r.choice(["", ", " + e()]) + ") }}"
        if k == 14:
            return "{% for k, v in (" + e() + ").items() %}{{ k }}={{ v }}{% endfor %}"
        return "{% set ns = namespace(a=" + e() + ") %}{% for x in " + e() + " %}{% set ns.a = x %}{% endfor %}{{ ns.a }}"


# What pesc says of things that it does not have: refused, not compared.
REFUSED = re.compile(
    r"not supported|beyond 64 bits|supports a precision|too many steps|has no text|need more than|longer than|too large for a format|nested deeper|is no filter or test|no real number|cannot be applied|is no filter|not valid or nests"
)


def cases(seed, n):
    for i in range(n):
        r = random.Random(seed * 1000003 + i)
        variables = {name: value(r) for name in NAMES[:5]}
        yield {"name": str(i), "template": Generator(r).template(), "variables": variables, "trusted": {}, "now": [2024, 7, 6, 9, 30, 15]}
