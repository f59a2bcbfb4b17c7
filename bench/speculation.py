#!/usr/bin/env python3
"""What guessing tokens brings (docs/numerics.md): the same answers with and without, in turns, of four kinds: a text that is
repeated, code that is edited, JSON by a schema, free prose.

    python3 bench/speculation.py MODEL [--pesc build/pesc] [--draft MODEL] [--rounds 3] [--tokens 200] [--temperature 0.7]

For each kind, greedy and sampled, it prints how many times as fast the answer was decoded, by the shortest times of all rounds, and how many tokens
a forward gave. The ids must be equal; the program fails where they are not. MODEL should have a chat template; on a machine that
others use too the tokens of a forward can be compared, the times cannot.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TEXT = """The lighthouse stood at the end of the long stone pier. Every evening at seven its keeper climbed the two hundred steps,
lit the great lamp and wrote the state of the sea into a green book. When the fog came he rang the brass bell, once a minute,
until the last boat was home."""
CODE = """def mean_of_column(rows, column):
    total = 0.0
    count = 0
    for row in rows:
        value = row.get(column)
        if value is None:
            continue
        total += float(value)
        count += 1
    if count == 0:
        return None
    return total / count
"""
SCHEMA = {"type": "array", "minItems": 3, "maxItems": 6, "items": {
    "type": "object", "required": ["name", "profession", "birth_year", "is_alive"], "properties": {
        "name": {"type": "string", "maxLength": 30}, "profession": {"type": "string", "maxLength": 30},
        "birth_year": {"type": "integer", "minimum": 1500, "maximum": 2020}, "is_alive": {"type": "boolean"}}}}
KINDS = {"repeating a text": (f"Repeat the following text, word by word.\n\n{TEXT}", None),
         "editing code": (f"Rename `total` to `amount` and write the whole function again.\n\n```python\n{CODE}```", None),
         "JSON by a schema": ("List some famous scientists as a JSON array of objects with the keys name, profession, birth_year and is_alive.",
                              SCHEMA),
         "free prose": ("Write a story about a keeper of a lighthouse who finds a letter in a bottle.", None)}


def generate(a, prompt, schema, temperature, guesses):
    command = [a.pesc, "generate", a.model, "--chat", "--prompt", prompt, "--max-tokens", str(a.tokens), "--temperature", str(temperature),
               "--seed", "1", "--json", "--quiet", "--draft-tokens", guesses]
    if schema:
        command += ["--schema", schema]
    if a.draft and guesses != "0":
        command += ["--draft", a.draft]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--pesc", default="build/pesc")
    p.add_argument("--draft", help="a model that guesses, too")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--temperature", type=float, default=0.7, help="of the sampled answers")
    a = p.parse_args()
    equal = True
    print(f"{'':20} {'':8} {'tokens':>7} {'as fast':>8} {'tokens a forward':>17} {'guessed':>8} {'right':>6}")
    with tempfile.TemporaryDirectory() as folder:
        schema_file = pathlib.Path(folder, "schema.json")
        schema_file.write_text(json.dumps(SCHEMA))
        for kind, (prompt, schema) in KINDS.items():
            for temperature in (0, a.temperature):
                runs = {"0": [], "auto": []}
                for _ in range(a.rounds):
                    for guesses, got in runs.items():
                        got.append(generate(a, prompt, schema and str(schema_file), temperature, guesses))
                off, on = (min(g["decode_seconds"] for g in got) for got in runs.values())
                best = max(runs["auto"], key=lambda g: g["tokens_per_pass"])
                same = all(g["ids"] == runs["0"][0]["ids"] for got in runs.values() for g in got)
                equal &= same
                print(f"{kind:20} {'sampled' if temperature else 'greedy':8} {len(best['ids']):7} {off / on:8.2f} {best['tokens_per_pass']:17.2f} "
                      f"{best['draft_n']:8} {best['draft_n_accepted']:6}{'' if same else '  OTHER IDS'}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
