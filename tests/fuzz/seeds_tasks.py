#!/usr/bin/env python3
"""Seeds of fuzz_task: the built-in task files, each with an answer after it."""
import pathlib
import sys

ANSWERS = [r"Final Answer: The final answer is $\frac12$. I hope it is correct.", r"so \boxed{\sqrt[3]8} cm = 1,234 \text{ ft}",
           "The answer is 1,200.\n#### -3.5", "[1, 2.50, ('a',)]", "İstanbul ΑΣ é"]

folder = pathlib.Path(sys.argv[1]) / "fuzz_task"
folder.mkdir(parents=True, exist_ok=True)
for number, file in enumerate(sorted(pathlib.Path("share/tasks").glob("*.json"))):
    text = file.read_bytes()
    if len(text) < 4000:
        (folder / file.stem).write_bytes(text + b"\0" + ANSWERS[number % len(ANSWERS)].encode())
