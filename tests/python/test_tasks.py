"""The Python module beyond one model and one run: scores, routers, ESFT, exports, the server, and the notebook of examples/.
tests/python.sh runs it as it does test_pesc.py."""

import ctypes
import json
import logging
import os
import pathlib
import tempfile
import unittest
import urllib.request

import pesc

try:
    import numpy
except ImportError:
    numpy = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / "share/base"
DATA = ROOT / "share/test.jsonl"
logging.getLogger("pesc").setLevel(logging.ERROR)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)


class Scores(Folder):
    def test_a_file_of_records(self):
        model, seen = pesc.Model(BASE), []
        report = model.eval(DATA, seen.append, limit=2, template="camelidae", max_tokens=8)
        self.assertEqual(report.all.records, sum(d.records for d in report.domains))
        self.assertEqual((report.all.asked, len(seen)), (report.all.records, report.all.records))
        self.assertEqual(report.all.correct, sum(s.correct for s in seen))
        self.assertIn("Senbre", seen[0].prompt)
        self.assertGreater(report.all.loss, 0)
        same = model.eval(DATA, limit=2, template="camelidae", loss_only=True)
        self.assertEqual((same.all.loss, same.all.asked), (report.all.loss, 0))

    def test_what_a_callback_raises_arrives(self):
        with self.assertRaises(ZeroDivisionError):
            pesc.Model(BASE).eval(DATA, lambda sample: 1 / 0, limit=1, template="camelidae", max_tokens=2)

    def test_a_benchmark(self):
        (self.work / "arc_easy").mkdir()
        row = {"question": "Where?", "answerKey": "A", "choices": {"text": ["here", "there"], "label": ["A", "B"]}}
        for split in ("train", "test"):
            lines = [json.dumps({**row, "id": str(i)}) + "\n" for i in range(5)]
            (self.work / "arc_easy" / f"{split}.jsonl").write_text("".join(lines))
        report = pesc.Model(BASE).eval(["arc_easy"], data_dir=self.work, limit=4)
        self.assertEqual([(s.metric, s.n) for s in report.scores], [("acc", 4), ("acc_norm", 4)])
        self.assertEqual(report.scores[0].mean, sum(report.scores[0].each) / 4)
        self.assertIn("results", report.results)

    def test_failures_name_the_file(self):
        with self.assertRaisesRegex(pesc.Error, "nowhere.jsonl"):
            pesc.Model(BASE).eval("nowhere.jsonl")
        with self.assertRaisesRegex(TypeError, "did you mean 'loss_only'"):
            pesc.Model(BASE).eval(DATA, loss_onl=True)


@unittest.skipUnless(numpy, "NumPy is not installed")
class Experts(Folder):
    def setUp(self):
        super().setUp()
        pesc.craft(BASE, self.work / "mixture", kind="upcycle", experts=4, top_k=2, check=False)
        self.model = pesc.Model(self.work / "mixture")

    def test_routes_are_arrays(self):
        report = self.model.routes(DATA, limit=3, layer=0, permutations=10, template="camelidae")
        shape = (len(report.domains), len(report.layers), 4)
        self.assertEqual((report.share.shape, report.gate.shape, report.top_k), (shape, shape, 2))
        numpy.testing.assert_allclose(report.share.sum(axis=2), 1)
        tokens = [d.tokens for d in report.domains]
        self.assertEqual(report.counts.shape, (*shape[:2], 2, 4))
        self.assertEqual(report.counts[:, 0].sum(axis=(1, 2)).tolist(), [2 * t for t in tokens])
        self.assertEqual((len(report.tokens), len(report.p_value)), (4, len(report.layers)))

    def test_esft_from_scores_to_a_patched_model(self):
        report = pesc.esft_score(self.model, [DATA], self.work / "scores", tokens=2000, template="camelidae")
        self.assertEqual((report.experts, report.top_k), (4, 2))
        choice = pesc.esft_select(self.work / "scores", p=0.4)
        self.assertEqual(choice.scores.shape, choice.chosen.shape)
        self.assertEqual((choice.total, choice.counts), (choice.chosen.sum(), choice.chosen.sum(axis=1).tolist()))
        choice.write(self.work / "expert_cfg.json")
        self.assertIn("experts", json.loads((self.work / "expert_cfg.json").read_text()))
        pesc.train(self.work / "mixture", data=DATA, template="camelidae", method="esft", experts_config=self.work / "expert_cfg.json",
                   output=self.work / "run", steps=2, batch=2, seq_len=64)
        before = self.model.logits([1, 2, 3])
        self.model.patch(self.work / "run")
        patched = self.model.logits([1, 2, 3])
        self.assertFalse((before == patched).all())
        self.model.unpatch()
        self.assertTrue((before == self.model.logits([1, 2, 3])).all())
        pesc.esft_apply(self.work / "mixture", self.work / "run", self.work / "applied")
        numpy.testing.assert_allclose(pesc.Model(self.work / "applied").logits([1, 2, 3]), patched, atol=1e-4)


class Exports(Folder):
    def test_export_and_merge(self):
        pesc.train(BASE, data=DATA, template="camelidae", method="lora", lora_r=4, steps=2, batch=2, seq_len=64,
                   output=self.work / "run")
        merged = pesc.merge(self.work / "run", self.work / "merged")
        self.assertGreater(merged.logits, 0)
        pesc.export(self.work / "run", "peft", self.work / "peft")
        self.assertTrue((self.work / "peft/adapter_config.json").exists())
        pesc.export(self.work / "merged", "gguf", self.work / "gguf", dtype="q8_0", check=False)
        self.assertTrue(list((self.work / "gguf").glob("*.gguf")))
        with self.assertRaisesRegex(pesc.Error, "nothing"):
            pesc.export(BASE, "nothing", self.work / "x")


class Serving(Folder):
    def ask(self, url, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def test_a_server_answers_until_it_is_closed(self):
        lines = []
        with pesc.Server(BASE, log=lines.append, port=0, served_name="base") as server:
            self.assertEqual(self.ask(server.url + "/v1/models")["data"][0]["id"], "base")
            body = {"model": "base", "prompt": "Where does", "max_tokens": 4, "temperature": 0}
            text = self.ask(server.url + "/v1/completions", body)["choices"][0]["text"]
            url = server.url
        self.assertEqual(text, pesc.Model(BASE).generate("Where does", max_tokens=4).text)
        self.assertTrue(any("/v1/completions" in line for line in lines), lines)
        with self.assertRaises(OSError):
            self.ask(url + "/v1/models")
        with pesc.Server(BASE, port=0) as first, self.assertRaises(pesc.Error):
            pesc.Server(first.model, port=first.port)


class Layout(Folder):
    def test_callbacks_are_the_first_field(self):
        from test_pesc import compiled  # beside this file
        lines = 'printf("%zu %zu\\n", offsetof(pesc_eval_options, each), offsetof(pesc_serve_options, log));'
        out = compiled(self.work, "callbacks", "int main(void) {\n" + lines + "\nreturn 0; }\n")
        self.assertEqual([int(x) for x in out.split()], [ctypes.sizeof(ctypes.c_size_t)] * 2)


@unittest.skipUnless(numpy, "NumPy is not installed")
class Notebook(Folder):
    def test_the_notebook_runs(self):
        """Its cells in their order, as a notebook server would run them."""
        book = json.loads((ROOT / "examples/tour.ipynb").read_text())
        self.assertEqual(book["nbformat"], 4)
        cells = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]
        self.assertGreaterEqual(len(cells), 6)
        self.assertFalse([c for c in book["cells"] if c.get("outputs")], "outputs are not kept in the tree")
        start, share = os.getcwd(), os.environ.get("PESC_SHARE")
        os.chdir(self.work)
        os.environ["PESC_SHARE"] = str(ROOT / "share")
        self.addCleanup(lambda: (os.chdir(start), os.environ.pop("PESC_SHARE"), share and os.environ.update(PESC_SHARE=share)))
        shown, names = [], {"print": lambda *a, **k: shown.append(a)}
        for number, cell in enumerate(cells):
            exec(compile(cell, f"cell {number}", "exec"), names)
        self.assertGreater(len(shown), 5)


if __name__ == "__main__":
    unittest.main()
