"""/v1/embeddings against transformers: the final hidden state of the last token, the first and the mean of all, of the fixtures of several families."""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2] / "tests/serve")  # beside this file is a tokenizers.py
import torch  # noqa: E402
import transformers  # noqa: E402
from running import Server  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
FAMILIES = ("llama", "qwen3", "gemma2", "olmoe", "deepseek_v2", "phi3")
IDS = [5, 9, 11, 3, 60, 2, 31, 8, 17, 40, 41, 42] * 4
POOLINGS = {"pooling_mode_lasttoken": lambda h: h[-1], "pooling_mode_cls_token": lambda h: h[0], "pooling_mode_mean_tokens": lambda h: h.mean(0)}


def main():
    worst = 0
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(shutil.copytree(GOLDEN / family, folder + "/copy"))
            model = transformers.AutoModel.from_pretrained(copy, dtype=torch.float32).eval()
            (copy / "1_Pooling").mkdir()
            with torch.no_grad():
                hidden = model(torch.tensor([IDS])).last_hidden_state[0]
            for key, pool in POOLINGS.items():
                (copy / "1_Pooling/config.json").write_text(json.dumps({key: True}))
                want = torch.nn.functional.normalize(pool(hidden), dim=0)
                with Server(str(copy), "--compute-dtype", "f32") as s:
                    got = torch.tensor(s.json("/v1/embeddings", {"input": IDS})["data"][0]["embedding"])
                worst = max(worst, (got - want).abs().max().item())
    print(f"{len(FAMILIES)} families, 3 poolings: largest difference {worst:.1e}")
    return worst > 1e-4


if __name__ == "__main__":
    sys.exit(main())
