#!/usr/bin/env python3
"""Writes tests/golden/jinja.json: small templates with the answers of jinja2 as Hugging Face sets it up.

Run in a Python that has jinja2. tests/unit/test_jinja.c renders the same templates and compares.
Each case is a template of our own, with the variables below; its answer is a text, or "error".
"""
import copy
import datetime
import functools
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

OUT = pathlib.Path(__file__).resolve().parents[1] / "jinja.json"


class Raised(Exception):
    """What raise_exception() of a template raises."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: notes which part of the text is the assistant's."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return "\ue000" + caller() + "\ue001"  # taken out again by render()


@functools.lru_cache(maxsize=4)
def environment(now):
    def refuse(message):
        raise Raised(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.datetime(*now).strftime(form)
    return env


@functools.lru_cache(maxsize=4)
def compiled(template, now):
    return environment(now).from_string(template)


def render(case):
    """{"text", "generation"} or {"error", "raised"}."""
    try:
        text = compiled(case["template"], tuple(case["now"])).render(**case["trusted"], **copy.deepcopy(case["variables"]))
    except Raised as e:
        return {"error": str(e), "raised": True}
    except Exception as e:  # any failure of the template is one for pesc too
        return {"error": f"{type(e).__name__}: {e}", "raised": False}
    spans, plain, begin = [], b"", None
    for part in text.replace("\ue000", "\0\ue000\0").replace("\ue001", "\0\ue001\0").split("\0"):
        if part == "\ue000":
            begin = len(plain)
        elif part == "\ue001":
            if begin is not None and begin < len(plain):
                spans.append([begin, len(plain)])
            begin = None
        else:
            plain += part.encode()
    # Spans that touch are one for pesc, which marks bytes.
    joined = []
    for span in spans:
        if joined and joined[-1][1] == span[0]:
            joined[-1][1] = span[1]
        else:
            joined.append(span)
    return {"text": plain.decode(), "generation": joined, "plain_generation": text.count("\ue000") == text.count("\ue001")}


VARIABLES = {
    "s": "Hello, World", "empty": "", "u": "Ünïcödé ß 你好", "n": 7, "neg": -3, "f": 2.5, "t": True, "no": False, "none": None,
    "list": [3, 1, 2], "names": ["b", "A", "c", "a"], "nested": [[1, 2], [3, [4]]], "strs": [" x ", "y\n", ""],
    "d": {"b": 1, "a": {"x": [1, 2.0, None, True]}, "items": "shadowed", "C": "c"}, "edict": {}, "elist": [],
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []}, {"name": "Cy", "age": 31}],
    "q": "it's \"quoted\" \\ \n\t\r\u0007 <b>&amp;</b> \u2028é", "messages": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "yo"}],
}


# Each line of golden_jinja.txt is one expression, rendered as {{ ... }}.
EXPRESSIONS = pathlib.Path(__file__).with_suffix(".txt").read_text().rstrip("\n").split("\n")

# Whole templates: statements, scopes and white space.
TEMPLATES = [
    "a\n", "a\n\n", "\n", "", "a\r\nb\rc\n", "{{ n }}\n", "{{ n }}\n\nx", "{{ 'x\r\ny' }}",
    "{# c #}\nx", "x{#- c -#}\n y", "a {# - #} b", "{#-#}x", "{##}x", " {#+ c +#}\n x", "{# {{ n }} #}y", "a\n  {# c #}\n  b",
    "{% if t %}\nx\n{% endif %}\ny", "  {% if t %}\n  x\n  {% endif %}\n  y", "a {% if t %} x {% endif %} b",
    "{%- if t -%}\n x \n{%- endif -%}\n y", " {%+ if t %}\nx{% endif +%}\ny", "x\n  {%- if t %} y{% endif %}", "x  {{- n -}}  y", "x \n {{ n }} \n y", "{{- n -}}",
    "{{ n }} {% if t %}x{% endif %}", "{{ n }}\n  {% if t %}x{% endif %}", "a\n\n  {% set x = 1 %}  \nb{{ x }}", "\t {% set x = 1 %}\n{{ x }}", "x {% set y = 1 %}\n z", "a\n \u00a0{% set x = 1 %}b",
    "{% raw %}{{ n }}{% if %}{% endraw %}", "a\n  {% raw %}\n x {{ y }}\n  {% endraw %}\nb", "{%- raw -%}  x  {%- endraw -%}  y", "{% raw %}x{% endraw +%}\ny",
    "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if no %}a{% endif %}", "{% if no %}{{ x | from_json }}{% elif x is nosuch %}{% endif %}", "{% if no %}{% else %}{{ x | from_json }}{% endif %}", "{% if undefined_name %}a{% else %}b{% endif %}",
    "{% if d.zz is defined and d.zz.y %}a{% endif %}", "{% if n, %}tuple{% endif %}",
    "{% for x in list %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for x in elist %}a{% else %}none{% endfor %}", "{% for x in undefined_name %}a{% else %}none{% endfor %}",
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'añ' %}[{{ c }}]{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in list if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }};{% else %}none{% endfor %}", "{% for x in list if x > 9 %}{{ x }}{% else %}none{% endfor %}", "{% for p in people if p.tags %}{{ p.name }}{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}", "{% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}|{% endfor %}",
    "{% for x in list %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in list %}{{ y }}{% set y = x %}{{ y }}{% endfor %}{{ y }}", "{% set y = 0 %}{% if t %}{% set y = 1 %}{% endif %}{{ y }}",
    "{% set ns = namespace(i=0) %}{% for x in list %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% set d.x = 1 %}", "{% set a.b = 1 %}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ n }}\n{% endset %}[{{ a }}]", "{% set a | upper | trim %} x{% endset %}[{{ a }}]", "{% set a %}{% set b = 1 %}{% endset %}{{ b }}", "{% set a = 1 if no %}{{ a is defined }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=4) }}|{{ m() }}|{{ m(b=a, a=5) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m() %}{{ n }}{{ z }}{% endmacro %}{% set z = 9 %}{{ m() }}", "{% macro m(x) %}{% if x %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}]{{ m() | length }}", "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{{ loop.index }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{{ n }}{% endcall %}", "{% macro m() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with a = 1 %}{% with b = a %}{{ b }}{% endwith %}{% endwith %}", "{% with %}{% set a = 1 %}{% endwith %}{{ a }}", "{% print n, s %}",
    "{% generation %}a{{ n }}{% endgeneration %}b{% generation %}c{% endgeneration %}", "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}", "{% generation %}{% set a = 1 %}{% endgeneration %}{{ a }}",
    "{{ raise_exception('no ' ~ n) }}", "a{% if no %}{{ raise_exception('x') }}{% endif %}b", "{{ raise_exception(n) }}", "{{ raise_exception() }}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% nosuch %}", "{% do x %}", "{% break %}",
    "{% if t %}", "{% endif %}", "{% for x in list %}", "{% for x list %}{% endfor %}", "{% for 1 in list %}{% endfor %}", "{% set 1 = 2 %}", "{% set x %}", "{% if %}{% endif %}", "{{ }}", "{{ n", "{% if t", "{# x", "{% raw %}x", "{{ n }", "{{ [1, 2} }}", "{{ (1, 2 }}", "{{ 1 }} }}", "{{ '}}' }}", "{{ '{{' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {}}}}", "{% if '%}' %}x{% endif %}", "}} %} #}", "{ { n } }", "{{n}}{{n}}", "{{ n }}{{ s }}\n{{ f }}",
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}\n{{ m['content'] | trim }}{{ '<end>' }}\n{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ 'sys ' }}{% endif %}{{ '[' ~ m.role ~ ']' ~ m.content }}{{ '' if loop.last else '; ' }}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' %}{% set ns.found = loop.index0 %}{% endif %}{% endfor %}{{ ns.found }}",
    "{% set content = messages[0].content %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ content }}",
    "{% for p in people %}\n    {%- for k, v in p.items() %}\n        {%- if v is mapping %}m{% elif v is iterable and v is not string %}{{ v | join(', ') }}{% else %}{{ v }}{% endif %}\n        {{- ' ' if not loop.last }}\n    {%- endfor %}\n;{% endfor %}",
    "{%- macro render(p, depth=0) -%}\n  {{- '  ' * depth }}{{ p.name }}\n  {%- for t in p.tags or [] %}\n    {{- render({'name': t}, depth + 1) }}\n  {%- endfor %}\n{%- endmacro -%}\n{{ render(people[0]) }}",
    "{{- bos_token }}{% for m in messages %}{{ m.role }}{{ eos_token }}{% endfor %}",
    "{% set x = {'a': [1, 2]} %}{% for k, v in x.items() %}{% for i in v %}{{ k }}{{ i }}{{ loop.last }}{% endfor %}{% endfor %}",
    "{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }}{{ loop.index }} {% endfor %}{% endfor %}", "{% for x in list | sort %}{{ x }}{% endfor %}{% for x in list | reverse %}{{ x }}{% endfor %}",
    "{% set it = list | map('string') %}{% for x in it %}{{ x }}{% endfor %}{% for x in it %}{{ x }}{% endfor %}", "{% set it = list | select('odd') %}{{ it | first }}{{ it | list }}",
    "{{ n if t }}{{ 'x' if no }}", "{% if not t %}{% elif t %}{% if t %}z{% endif %}{% endif %}", "{%if t%}x{%endif%}", "{%-if t-%} x {%-endif-%}", "{%  if\n t\n%}x{%\nendif %}",
    "{{ s|replace('World','X')|upper|length }}", "{% set a = b = 1 %}", "{{ loop }}", "{% set y = (5)[1:] %}", "{% set it = n | map('upper') %}a{% if it %}b{% endif %}", "{% for x in n | map('upper') %}{% endfor %}", "{{ loop is defined }}", "{% for x in [1] %}{{ loop is defined }}{% endfor %}",
]


def cases():
    texts = [(e, "{{ " + e + " }}") for e in EXPRESSIONS] + [(t, t) for t in TEMPLATES]
    for name, template in texts:
        yield {"name": name, "template": template, "variables": VARIABLES, "trusted": {"bos_token": "<s>", "eos_token": "</s>"}, "now": [2024, 7, 6, 9, 30, 15]}


def main():
    rows = []
    for case in cases():
        answer = render(case)
        rows.append({"template": case["template"], **({"error": answer["raised"]} if "error" in answer else {"text": answer["text"], "generation": answer["generation"]})})
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    OUT.write_text('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"cases": [\n' + body + "\n]}\n")
    print(f"{len(rows)} cases, {sum('error' in r for r in rows)} of them refused")


if __name__ == "__main__":
    main()
