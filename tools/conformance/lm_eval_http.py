"""lm-evaluation-harness over HTTP (local-completions, remote tokenizer) against `pesc eval`: the log-likelihood of every answer of the
first documents of arc_easy, and whether it is greedy, must be equal. Needs the benchmark's data in PESC_DATA/bench."""
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile

# instead of this folder, whose tokenizers.py hides the library of that name
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2] / "tests/serve")
from running import Server  # noqa: E402

LIMIT = 25
MODEL = os.environ.get("PESC_SERVE_MODEL", "share/base")


def from_eval(data):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([os.environ["PESC"], "eval", MODEL, "--tasks", "arc_easy", "--limit", str(LIMIT), "--data-dir", data, "-o", out, "-q"],
                       check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line)["resps"] for line in open(f"{out}/samples_arc_easy.jsonl")]


def pairs(data, bos):
    """Context and answers of each document, by the harness' definition of the task; BOS is written out, as the client adds none."""
    with lzma.open(f"{data}/arc_easy/test.jsonl.xz", "rt") as f:
        for _, line in zip(range(LIMIT), f):
            d = json.loads(line)
            yield [(f"{bos}Question: {d['question']}\nAnswer:", f" {text}") for text in d["choices"]["text"]]


def main():
    data = os.path.join(os.environ.get("PESC_DATA", ""), "bench")
    if not os.path.isdir(data):
        print("SKIPPED: PESC_DATA has no bench/arc_easy")
        return
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    want = from_eval(data)
    with Server(MODEL) as s:
        name = s.json("/v1/models")["data"][0]["id"]
        bos = s.json("/tokenizer_info")["bos_token"] if len(s.json("/tokenize", {"prompt": ""})["tokens"]) else ""
        client = LocalCompletionsAPI(base_url=f"http://127.0.0.1:{s.port}/v1/completions", model=name, tokenizer_backend="remote",
                                     num_concurrent=8, max_length=s.json("/v1/models")["data"][0]["max_model_len"])
        documents = list(pairs(data, bos))
        got = iter(client.loglikelihood([Instance("loglikelihood", {}, pair, i) for d in documents for i, pair in enumerate(d)]))
        different = 0
        for number, (document, expected) in enumerate(zip(documents, want)):
            for pair, (value, greedy) in zip(document, expected):
                found = next(got)
                if found != (value, greedy):
                    different += 1
                    print(f"document {number}, {pair[1]!r}: found {found}, expected {(value, greedy)}")
        count = sum(map(len, want))
        print(f"{count - different} of {count} log-likelihoods are equal")
        assert different == 0 and count > 0


if __name__ == "__main__":
    os.environ.setdefault("PESC", "build/pesc")
    main()
