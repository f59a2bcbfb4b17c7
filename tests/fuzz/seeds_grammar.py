#!/usr/bin/env python3
"""Seeds of fuzz_grammar: the sources of the unit tests of grammars and schemas."""
import json
import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1]) / "fuzz_grammar"
folder.mkdir(parents=True, exist_ok=True)
for kind, name in enumerate(("schema", "gbnf", "grammar")):
    text = pathlib.Path(f"tests/unit/test_{name}.c").read_text()
    for number, literal in enumerate(re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)):
        try:
            source = json.loads(f'"{literal}"').encode()
        except ValueError:  # an escape of C that JSON does not have
            continue
        for first in (kind, kind + 9 if kind == 0 else kind):
            (folder / f"{name}{number}-{first}").write_bytes(bytes([first]) + source)
