#!/usr/bin/env python3
"""Seeds of fuzz_data: a file of each layout and a record of each format; the first byte chooses the ending."""
import json
import pathlib
import sys

JSONL, CSV, TSV, TXT = (bytes([i]) for i in range(4))
RECORDS = [
    {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]},
    {"conversation": [{"human": "a", "assistant": "b"}], "corpus": "c"},
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                  {"role": "assistant", "content": "a", "reasoning_content": "r"}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": None,
     "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]},
    {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "system": "s"},
    {"instruction": "i", "input": "x", "output": "o", "history": [["a", "b"]], "system": "s"},
    {"instruction": "i", "context": "c", "response": "r"},
    {"query": "q", "response": "r"},
    {"problem": "p", "solution": "s"},
    {"question": "q", "answer": "a"},
    {"prompt": "p", "completion": "c", "domain": "d"},
    {"text": "é\n"},
]

folder = pathlib.Path(sys.argv[1]) / "fuzz_data"
folder.mkdir(parents=True, exist_ok=True)
for number, record in enumerate(RECORDS):
    line = json.dumps(record).encode()
    (folder / f"lines{number}").write_bytes(JSONL + line + b"\r\n\n" + line)
    (folder / f"array{number}").write_bytes(JSONL + b"[" + line + b",\n" + line + b"]\n")
(folder / "wrapped").write_bytes(JSONL + b'\xef\xbb\xbf{"n": [1, "]"], "data": [{"text": "a"}], "m": {}}')
(folder / "csv").write_bytes(CSV + b'prompt,"completion"\r\n"a ""b"", c\n",d\n\n e ,\n')
(folder / "tsv").write_bytes(TSV + b"question\tanswer\na\tb\n\t\n")
(folder / "txt").write_bytes(TXT + b"one\r\ntwo\n \nthree\n\n\n")
