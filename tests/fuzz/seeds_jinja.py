#!/usr/bin/env python3
"""Seeds of fuzz_jinja: the templates of tests/golden/jinja.json."""
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1]) / "fuzz_jinja"
folder.mkdir(parents=True, exist_ok=True)
golden = json.loads(pathlib.Path("tests/golden/jinja.json").read_text())
for number, row in enumerate(golden["cases"]):
    (folder / str(number)).write_bytes(row["template"].encode())
variables = json.dumps(golden["variables"]).encode()
for number, row in enumerate(golden["cases"][::20]):
    (folder / f"v{number}").write_bytes(row["template"].encode() + b"\0" + variables)
