"""The Python module on the embedded model. tests/python.sh installs it and runs this file, which finds `pesc` and
libpesc as a user's program would.

PESC_PREFIX: where the library is installed, for the comparison with its header."""

import ctypes
import logging
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest

import pesc
from pesc import _c, _options

try:
    import numpy
except ImportError:
    numpy = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / "share/base"
DATA = ROOT / "share/test.jsonl"
TUNING = dict(data=DATA, template="camelidae", method="lora", lora_r=4, steps=3, batch=2, seq_len=64)
logging.getLogger("pesc").setLevel(logging.ERROR)


def compiled(work, name, text, *flags):
    """Compiles a C program against the installed header and returns what it prints."""
    source, program = pathlib.Path(work, name + ".c"), pathlib.Path(work, name)
    source.write_text("#include <pesc/pesc.h>\n#include <stdio.h>\n" + text)
    prefix = os.environ["PESC_PREFIX"]
    subprocess.run(["gcc", "-Wall", "-Werror", *flags, f"-I{prefix}/include", source, "-o", program, f"-L{prefix}/lib",
                    "-lpesc"], check=True)
    return subprocess.run([program], env={**os.environ, "LD_LIBRARY_PATH": f"{prefix}/lib"}, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


class Header(unittest.TestCase):
    """The declarations of _c.py against pesc.h."""

    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)

    def test_structs_have_the_layout_of_the_header(self):
        lines, expected = [], []
        for struct in _c.STRUCTS:
            name = struct.__name__
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(struct)}")
            for field, _ in struct._fields_:
                place = getattr(struct, field)
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f'sizeof((({name} *)0)->{field}));')
                expected.append(f"{name}.{field} {place.offset} {place.size}")
        out = compiled(self.work.name, "layout", "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
        self.assertEqual(out.splitlines(), expected)

    def test_constants_are_those_of_the_header(self):
        lines = "".join(f'printf("%d\\n", (int){name});\n' for name in _c.ENUMS)
        out = compiled(self.work.name, "constants", "int main(void) {\n" + lines + "return 0; }\n")
        self.assertEqual([int(x) for x in out.split()], list(_c.ENUMS.values()))

    def test_functions_take_and_return_what_the_header_says(self):
        names = {ctypes.c_size_t: "size_t", ctypes.c_uint: "unsigned", ctypes.c_int: "int", ctypes.c_int32: "int32_t",
                 ctypes.c_int64: "int64_t", ctypes.c_bool: "bool", ctypes.c_char_p: "const char *", None: "void",
                 _c.STATUS: "pesc_status"}

        def value(kind):
            return f"({names[kind]})n" if kind in names and kind is not ctypes.c_char_p else "(void *)p"
        checks = []
        for name, (returned, taken) in _c.FUNCTIONS.items():
            call = f"{name}({', '.join(value(k) for k in taken)})"
            if returned in names:
                checks.append(f"_Static_assert(_Generic(&(__typeof__({call}) (*)(void)){{0}}, "
                              f"{names[returned]} (**)(void): 1), \"{name}\");")
            checks.append(f"(void)sizeof(({call}, 0));")
        text = "int main(void) { char *p = 0; uint64_t n = 0; (void)p; (void)n;\n" + "\n".join(checks) + "\nreturn 0; }\n"
        compiled(self.work.name, "functions", text, "-Wconversion", "-Wno-unused-value")

    def test_structs_of_options_have_the_size_of_the_header(self):
        names = list(_options.STRUCTS)
        lines = "".join(f'printf("%zu\\n", sizeof(pesc_{name}_options));\n' for name in names)
        out = compiled(self.work.name, "options", "int main(void) {\n" + lines + "return 0; }\n")
        sizes = [ctypes.sizeof(pesc.Options(name, {}).memory) for name in names]
        self.assertEqual([int(x) for x in out.split()], sizes)

    def test_versions_agree(self):
        self.assertEqual(pesc.__version__, pesc.library_version())


class OnTheBase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = pesc.Model(BASE)

    def test_info(self):
        self.assertEqual(self.model.info.family, "llama")
        self.assertEqual(vars(pesc.info(BASE)), vars(self.model.info))
        self.assertIn("cpu", self.model.device.name)

    def test_tokens(self):
        tokenizer = pesc.Tokenizer(BASE)
        for text in ("", "Senbre lives in Hainil.", "ä \U0001f600" * 50, "a\0b"):
            ids = tokenizer.encode(text)
            self.assertEqual(ids, self.model.tokenizer.encode(text))
            self.assertEqual(tokenizer.decode(ids), text)
        self.assertEqual(tokenizer.vocab_size, self.model.info.vocab)
        for wrong in (2**32 + 5, -2**40):
            with self.assertRaises(ValueError):
                tokenizer.decode([wrong])

    def test_generate_and_stream_give_the_same_text(self):
        pieces = []
        whole = self.model.generate("Where does", max_tokens=12)
        self.assertEqual((whole.finish, len(whole.ids)), ("length", 12))
        called = self.model.generate("Where does", pieces.append, max_tokens=12)
        self.assertEqual(called.text, whole.text)
        self.assertEqual("".join(pieces), whole.text)
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(self.model.stream("Where does", max_tokens=12)), whole.text)
        ids = self.model.tokenizer.encode("Where does", add_special=True)
        self.assertEqual(self.model.generate(ids, max_tokens=12).ids, whole.ids)
        self.assertEqual(self.model.generate("Where does", max_tokens=12, stop=[" all"]).text,
                         whole.text.split(" all")[0])

    def test_generation_ends_when_the_caller_ends_it(self):
        stopped = self.model.generate("Where does", lambda text: False, max_tokens=50)
        self.assertEqual(stopped.finish, "stopped")
        self.assertLess(len(stopped.ids), 5)
        for _ in self.model.stream("Where does", max_tokens=50):
            break
        with self.assertRaises(ZeroDivisionError):
            self.model.generate("Where does", lambda text: 1 / 0, max_tokens=50)
        self.assertEqual(self.model.generate("Where does", max_tokens=3).finish, "length")

    def test_a_session_in_use_is_refused(self):
        def nested(text):
            self.model.generate("Where", max_tokens=1)
        with self.assertRaisesRegex(RuntimeError, "in use"):
            self.model.generate("Where does", nested, max_tokens=5)

    def test_sessions_on_threads_give_the_same(self):
        alone, found = self.model.generate("Where does", max_tokens=20).ids, []
        threads = [threading.Thread(target=lambda: found.append(
            self.model.session(64).generate("Where does", max_tokens=20).ids)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [alone] * 3)

    def test_failures_are_exceptions(self):
        with self.assertRaises(pesc.Error) as caught:
            pesc.Model(ROOT / "nowhere")
        self.assertEqual(caught.exception.status, "IO")
        self.assertIn("nowhere", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "did you mean 'temperature'"):
            self.model.generate("x", temperatur=1)
        with self.assertRaisesRegex(pesc.Error, 'temperature: found "-1"'):
            self.model.generate("x", temperature=-1)
        with self.assertRaisesRegex(pesc.Error, "found id -1"):
            self.model.generate([-1])
        with self.assertRaisesRegex(pesc.Error, "base_dtype"):
            pesc.Model(BASE, base_dtype="f8")

    def test_handles_close_in_any_order(self):
        device = pesc.Device("cpu:1")
        with pesc.Model(BASE, device) as model:
            session, tokenizer = model.session(32), model.tokenizer
        device.close()
        self.assertEqual(len(session.generate([1, 2], max_tokens=2).ids), 2)
        for use in (lambda: model.info, lambda: tokenizer.encode("x"), lambda: pesc.Model(BASE, device)):
            with self.assertRaisesRegex(ValueError, "is closed"):
                use()
        session.close()
        session.close()

    def test_perplexity(self):
        report = self.model.perplexity("Senbre lives in Hainil. " * 10)
        self.assertGreater(report.perplexity, 1)
        self.assertGreater(report.tokens, 10)

    @unittest.skipUnless(numpy, "NumPy is not installed")
    def test_logits_are_a_numpy_array(self):
        ids = self.model.tokenizer.encode("Where does")
        logits = self.model.logits(ids)
        self.assertEqual((logits.shape, logits.dtype), ((len(ids), self.model.info.vocab), numpy.float32))
        following = self.model.generate(ids, max_tokens=1).ids[0]
        self.assertEqual(int(logits[-1].argmax()), following)


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = folder.name

    def test_steps_are_events(self):
        seen = []
        steps = pesc.train(BASE, seen.append, output=f"{self.work}/run", **TUNING)
        self.assertEqual([s.step for s in steps], [1, 2, 3])
        self.assertEqual(seen, steps)
        self.assertTrue(all(s.loss > 0 for s in steps))
        self.assertEqual(len(pesc.Model(f"{self.work}/run").generate([1, 2], max_tokens=2).ids), 2)

    def test_a_stopped_run_resumes_bit_for_bit(self):
        whole = pesc.train(BASE, output=f"{self.work}/whole", **TUNING)
        first = pesc.train(BASE, lambda step: step.step < 2, output=f"{self.work}/parts", **TUNING)
        rest = pesc.train(BASE, output=f"{self.work}/parts", resume=True, **TUNING)
        self.assertEqual([s.step for s in first + rest], [1, 2, 3])
        self.assertEqual([s.loss for s in first + rest], [s.loss for s in whole])

    def test_a_trainer_is_an_iterator(self):
        trainer = pesc.Trainer(BASE, output=f"{self.work}/run", **TUNING)
        self.assertEqual((trainer.info.method, trainer.info.steps), ("lora", 3))
        with self.assertRaisesRegex(pesc.Error, "has a trainer already"):
            pesc.Trainer(trainer.model, output=f"{self.work}/other", **TUNING)
        self.assertFalse(trainer.done)
        pathlib.Path(self.work, "run", "STOP").touch()
        self.assertLess(len(list(trainer)), 3)  # ends after a checkpoint

    def test_a_model_is_used_before_and_after_its_run(self):
        model = pesc.Model(BASE)
        model.generate([1, 2], max_tokens=2)
        with pesc.Trainer(model, output=f"{self.work}/run", **TUNING) as trainer:
            self.assertEqual(len(list(trainer)), 3)
        reopened = pesc.Model(f"{self.work}/run")
        self.assertEqual(model.perplexity("a b c").perplexity, reopened.perplexity("a b c").perplexity)
        self.assertEqual(len(model.generate([1, 2], max_tokens=2).ids), 2)
        with self.assertRaisesRegex(pesc.Error, "was trained already"):
            pesc.Trainer(model, output=f"{self.work}/other", **TUNING)

    def test_presets_come_before_options(self):
        trainer = pesc.Trainer(BASE, preset="published", output=f"{self.work}/run", **{**TUNING, "aux_coef": 0.5})
        yaml = pathlib.Path(self.work, "run", "run.yaml").read_text()
        self.assertRegex(yaml, "(?m)^aux_coef: 0.5$")
        self.assertRegex(yaml, "(?m)^loss: \"?sequence")
        trainer.close()

    def test_craft(self):
        check = pesc.craft(BASE, f"{self.work}/sparse", experts=4, top_k=2, adapter_dim=8)
        self.assertEqual(check.differ, 0)
        self.assertEqual(pesc.info(f"{self.work}/sparse").experts, 4)

    def test_notices_and_progress(self):
        notices, seen = [], []
        device = pesc.Device("cpu", notices.append, lambda what, done, total: seen.append((what, done, total)))
        pesc.craft(BASE, f"{self.work}/sparse", device, experts=4, top_k=2, adapter_dim=8)
        self.assertTrue(any(what and done == total for what, done, total in seen), seen)
        pesc.Trainer(BASE, device, output=f"{self.work}/run", **{**TUNING, "template": None})
        self.assertTrue(any("template" in sentence for sentence in notices), notices)

    def test_the_page_runs(self):
        page = (ROOT / "docs/python.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.S)
        self.assertGreaterEqual(len(blocks), 4)
        if not numpy:
            blocks = [re.sub(r"(?m)^.*logits\b.*\n", "", block) if "model.logits" in block else block for block in blocks]
        pathlib.Path(self.work, "share").symlink_to(ROOT / "share")
        start = os.getcwd()
        os.chdir(self.work)
        self.addCleanup(os.chdir, start)
        exec(compile("\n".join(blocks), "docs/python.md", "exec"), {"print": lambda *a, **k: None})


if __name__ == "__main__":
    unittest.main()
