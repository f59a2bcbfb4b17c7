#!/usr/bin/env python3
"""GGUF files of every golden model, in every type that fits, against transformers' logits and against
each other (see tests/golden/make/golden_gguf.py)."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tests/golden/make")
import golden_gguf

if __name__ == "__main__":
    sys.exit(min(golden_gguf.check(ROOT / "tests/golden", os.environ.get("PESC", "build/pesc")), 1))
