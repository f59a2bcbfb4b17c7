"""Objects over the handles of the C API. Each closes its handle when it is collected, by close(), or at the end
of a `with` block, in any order."""

import ctypes
import logging
import os
import queue
import threading
import types
import weakref
from ctypes import byref, c_int32, c_size_t, c_void_p

from . import _c, _reports
from ._c import ENUMS, Error, lib, record
from ._options import Options

log = logging.getLogger("pesc")  # receives the library's notices


class Handle:
    def __init__(self, pointer, close):
        self._pointer = pointer
        self._closing = weakref.finalize(self, close, pointer)

    def close(self):
        self._closing()

    @property
    def handle(self):
        if not self._closing.alive:
            raise ValueError(f"the {type(self).__name__.lower()} is closed")
        return self._pointer

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def _opened(function, *arguments):
    out = c_void_p()
    function(byref(out), *arguments)
    return out


def _ids(values):
    values = list(values)
    for value in values:  # ctypes would take the low 32 bits of another one
        if not -2**31 <= value < 2**31:
            raise ValueError(f"token id {value} does not fit 32 bits")
    return (c_int32 * max(len(values), 1))(*values), len(values)


def _is_chat(prompt):
    return bool(prompt) and not isinstance(prompt, str) and isinstance(prompt[0], dict)


def _events(notice, progress):
    """A pesc_events. What the callbacks raise is printed by ctypes and does not end the call."""
    events = _c.pesc_events()
    events.notice = _c.NOTICE(lambda _, sentence: notice(sentence.decode()))
    if progress:
        events.progress = _c.PROGRESS(lambda _, what, done, total: progress(what.decode(), done, total))
    return events


def _grown(call, kind, n=0):
    """Calls call(array, capacity, count) with an array that is long enough, and returns its elements."""
    count = c_size_t(n)
    while True:
        capacity = count.value
        array = (kind * max(capacity, 1))()
        call(array, capacity, byref(count))
        if count.value <= capacity:
            return array[:count.value]


class Device(Handle):
    """What computes: "cpu", "cpu:4" (threads), "cuda", "cuda:1" (the second GPU). notice(sentence) is called for
    what a user should know, by default a warning of logging; progress(what, done, total) while long calls run."""

    def __init__(self, spec="auto", notice=log.warning, progress=None):
        super().__init__(_opened(lib.pesc_device_open, os.fsencode(spec)), lib.pesc_device_close)
        self.spec = spec
        self._events = _events(notice, progress)
        lib.pesc_device_events(self.handle, byref(self._events))

    @property
    def name(self):
        return lib.pesc_device_name(self.handle).decode()


class Tokenizer(Handle):
    """Text to token ids and back; of a model directory, tokenizer.json, tokenizer.model or .gguf file."""

    def __init__(self, path):
        super().__init__(_opened(lib.pesc_tokenizer_open, os.fsencode(path), None), lib.pesc_tokenizer_close)

    @property
    def vocab_size(self):
        return lib.pesc_vocab_size(self.handle)

    def encode(self, text, add_special=False, parse_special=False):
        """Ids of a text. parse_special: control tokens written in the text become control tokens."""
        data = text.encode()
        flags = ENUMS["PESC_ADD_SPECIAL"] * add_special | ENUMS["PESC_PARSE_SPECIAL"] * parse_special
        return _grown(lambda ids, cap, n: lib.pesc_tokenize(self.handle, data, len(data), flags, ids, cap, n),
                      c_int32, len(data) + 8)

    def decode(self, ids, skip_special=False):
        array, n = _ids(ids)
        flags = ENUMS["PESC_SKIP_SPECIAL"] * skip_special
        text = _grown(lambda out, cap, length: lib.pesc_detokenize(self.handle, array, n, flags, out, cap, length),
                      ctypes.c_char, 8 * n)
        return text.decode(errors="replace")


class _ModelTokenizer(Tokenizer):
    def __init__(self, model):
        self._model = model  # owns the handle

    @property
    def handle(self):
        return lib.pesc_model_tokenizer(self._model.handle)

    def close(self):
        pass


class Model(Handle):
    """A loaded model: a Hugging Face directory, a run, a checkpoint or a .gguf file. The options are those of
    pesc.options("load"), such as base_dtype="bf16" or lora="DIR"."""

    def __init__(self, path, device="auto", **options):
        self._open(path, device, Options("load", options))

    def _open(self, path, device, opt):
        self.device = device if isinstance(device, Device) else Device(device)
        self.path = path
        self._session = None
        super().__init__(_opened(lib.pesc_model_open, self.device.handle, os.fsencode(path), opt.pointer),
                         lib.pesc_model_close)

    @classmethod
    def _opened_with(cls, path, device, opt):
        model = cls.__new__(cls)
        model._open(path, device, opt)
        return model

    @property
    def info(self):
        out = _c.pesc_model_info()
        lib.pesc_model_describe(self.handle, byref(out))
        return record(out)

    @property
    def tokenizer(self):
        """The model's tokenizer; None if it has none."""
        return _ModelTokenizer(self) if lib.pesc_model_tokenizer(self.handle) else None

    @property
    def chat_format(self):
        return lib.pesc_model_chat_format(self.handle).decode()

    def session(self, n_ctx=0):
        return Session(self, n_ctx)

    def _own_session(self):
        if self._session is None:
            self._session = Session(self)
        return self._session

    def _drop_session(self):
        """Closes that session: it does not fit the model once its weights are others."""
        if self._session is None:
            return
        if not self._session._busy.acquire(blocking=False):
            raise RuntimeError("the model generates; wait for it before its weights are changed")
        self._session.close()
        self._session = None

    def generate(self, prompt, emit=None, **options):
        """As Session.generate(), in one session that the model keeps."""
        return self._own_session().generate(prompt, emit, **options)

    def stream(self, prompt, **options):
        """As Session.stream(), in the same session."""
        return self._own_session().stream(prompt, **options)

    def logits(self, ids):
        """The logits of every position of one sequence, a float32 NumPy array [len(ids), vocab]."""
        import numpy
        array, n = _ids(ids)
        out = numpy.empty((n, self.info.vocab), numpy.float32)
        lib.pesc_logits(self.handle, array, n, out.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
        return out

    def perplexity(self, text, n_ctx=0):
        data, out = text.encode(), _c.pesc_perplexity_report()
        lib.pesc_perplexity(self.handle, data, len(data), n_ctx, byref(out))
        return record(out)

    def eval(self, tasks, each=None, n_ctx=0, **options):
        """Scores the model. tasks names benchmarks ("mmlu,gsm8k", or a list; the options are those of
        pesc.options("benchmark")) or a file of records (options "eval"): then each(sample) is called for every question,
        and n_ctx is the longest record."""
        names = tasks if isinstance(tasks, (str, bytes, os.PathLike)) else ",".join(tasks)
        if lib.pesc_benchmark_known(os.fsencode(names)):
            return _reports.benchmark(self, names, options)
        with self.session(n_ctx) as session:
            return _reports.evaluation(session, names, each, options)

    def routes(self, data, **options):
        """Which experts the tokens of each domain choose, with the options of pesc.options("routes"), as NumPy arrays:
        share [domain, layer, expert], counts [domain, layer, choice, expert], difference [layer], p_value [layer], ..."""
        return _reports.routes(self, {"data": data, **options})

    def patch(self, directory):
        """Applies an expert patch (ESFT): a directory with expert_cfg.json, or a run of method esft."""
        lib.pesc_model_patch(self.handle, os.fsencode(directory))
        self._drop_session()  # its sequence was computed with other weights

    def unpatch(self):
        """Takes the patch out again: the weights are what they were, bit for bit."""
        lib.pesc_model_unpatch(self.handle)
        self._drop_session()


class Session(Handle):
    """One sequence of tokens with its KV cache, for one thread at a time. A prompt that begins with the sequence
    of the session costs only its new tokens."""

    def __init__(self, model, n_ctx=0):
        super().__init__(_opened(lib.pesc_session_open, model.handle, n_ctx), lib.pesc_session_close)
        self.model = model
        self._busy = threading.Lock()

    def reset(self):
        lib.pesc_session_reset(self.handle)

    def _encode(self, prompt, options):
        if isinstance(prompt, str):
            return self.model.tokenizer.encode(prompt, options.get("add_special", True),
                                               options.get("parse_special", False))
        if not _is_chat(prompt):
            return prompt
        texts = [(m["role"].encode(), m["content"].encode()) for m in prompt]
        turns = (_c.pesc_message * len(texts))(*texts)
        return _grown(lambda ids, cap, n: lib.pesc_chat_tokenize(self.model.handle, None, turns, len(texts), ids, cap,
                                                                 n), c_int32)

    def _stops(self, prompt, stop):
        if stop is not None or not _is_chat(prompt):
            return stop
        n = c_size_t()
        stops = lib.pesc_model_chat_stops(self.model.handle, byref(n))
        return [stops[i] for i in range(n.value)]

    def generate(self, prompt, emit=None, **options):
        """Generates after a prompt: a text, a list of token ids, or a conversation, a list of {"role": ...,
        "content": ...}. emit(text) is called with each new piece; if it returns False, the generation ends. The
        options are those of pesc.options("sample"). Returns text, ids, finish, n_prompt and the seconds."""
        options["stop"] = self._stops(prompt, options.get("stop"))
        opt = Options("sample", options)
        ids, n = _ids(self._encode(prompt, options))
        raised, out = [], _c.pesc_generation()

        def on_text(_, text, length):
            try:
                return emit(ctypes.string_at(text, length).decode(errors="replace")) is not False
            except BaseException as error:  # passed on when the call has returned
                raised.append(error)
                return False
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("the session is in use; open another one with model.session()")
        try:
            lib.pesc_session_complete(self.handle, ids, n, opt.pointer, _c.EMIT(on_text) if emit else _c.EMIT(), None,
                                      byref(out))
            if raised:
                raise raised[0]
            text = ctypes.string_at(out.text, out.n_text).decode(errors="replace")
            return types.SimpleNamespace(text=text, ids=out.ids[:out.n_ids], finish=out.finish.decode(),
                                         n_prompt=out.n_prompt, prefill_seconds=out.prefill_seconds,
                                         decode_seconds=out.decode_seconds, n_guessed=out.n_guessed,
                                         n_guesses_kept=out.n_guesses_kept)
        finally:
            lib.pesc_generation_free(byref(out))
            self._busy.release()

    def stream(self, prompt, **options):
        """Iterates over the pieces of text of generate(). Leaving the loop ends the generation."""
        pieces, left = queue.SimpleQueue(), threading.Event()

        def emit(text):
            pieces.put(text)
            return not left.is_set()

        def work():
            try:
                self.generate(prompt, emit, **options)
                pieces.put(None)
            except BaseException as error:
                pieces.put(error)
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            left.set()
            worker.join()


class Trainer(Handle):
    """A training run of a model, or of a path, which is then opened as the options need it. Iterating makes its steps, with validation and checkpoints when they are due:

        for step in pesc.Trainer("model", data="mine.jsonl", output="run", method="lora"):
            print(step.step, step.loss)

    The options are those of pesc.options("train"); preset is applied before them. Iteration ends early if a file
    STOP appears in the run directory; a checkpoint was then saved."""

    def __init__(self, model, device="auto", preset=None, **options):
        opt = Options("train", {"method": options.get("method")})
        if preset:
            lib.pesc_train_preset(opt.pointer, os.fsencode(preset))
            # a preset may set what has the last word over an option that was given: then it has not
            for given, other, none in (("batch", "batch_tokens", 0), ("epochs", "steps", 0), ("steps", "max_epochs", 0),
                                       ("epochs", "max_epochs", 0)):
                if given in options:
                    options.setdefault(other, none)
        opt.update(options)
        if not isinstance(model, Model):
            load = Options("load", {})
            lib.pesc_train_load(opt.pointer, load.pointer)
            model = Model._opened_with(model, device, load)
        model._drop_session()
        opt.update({"device": model.device.spec})
        self.model = model
        self._options = opt  # the trainer uses its texts until it is closed
        super().__init__(_opened(lib.pesc_trainer_open, model.handle, opt.pointer), lib.pesc_trainer_close)

    @property
    def info(self):
        out = _c.pesc_train_info()
        lib.pesc_trainer_describe(self.handle, byref(out))
        return record(out)

    @property
    def done(self):
        return lib.pesc_trainer_done(self.handle)

    def step(self):
        """One optimiser step: step, steps, loss, ce, aux, grad_norm, lr, tok_s, eval_loss (NaN: not evaluated), ..."""
        out = _c.pesc_step()
        lib.pesc_trainer_step(self.handle, byref(out))
        return record(out)

    def save(self):
        """Writes a checkpoint, from which a run with resume=True continues bit for bit."""
        lib.pesc_trainer_save(self.handle)

    def __iter__(self):
        while not self.done:
            try:
                yield self.step()
            except Error as error:
                if error.status != "STOPPED":
                    raise
                return
