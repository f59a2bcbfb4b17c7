"""pesc in Python: a thin layer over the C library (docs/python.md).

    import pesc
    model = pesc.Model("model")
    print(model.generate("Once upon a time", max_tokens=40).text)
"""

import os
from ctypes import byref

from . import _c
from ._c import Error, lib
from ._esft import Choice, esft_apply, esft_score, esft_select
from ._handles import Device, Model, Session, Tokenizer, Trainer
from ._options import Option, Options, options
from ._server import Server, serve
from ._version import __version__

__all__ = ["Choice", "Device", "Error", "Model", "Option", "Server", "Session", "Tokenizer", "Trainer", "craft",
           "esft_apply", "esft_score", "esft_select", "export", "info", "library_version", "merge", "options", "serve", "train"]


def library_version():
    """The version of libpesc, which may be newer than this module."""
    return lib.pesc_version().decode()


def info(path):
    """Describes a model from its configuration and file headers, without loading it."""
    out = _c.pesc_model_info()
    lib.pesc_info(os.fsencode(path), None, None, byref(out))
    return _c.record(out)


def craft(dense, out_dir, device="auto", **options):
    """Makes a sparse model from a dense one, with the options of pesc.options("craft"). Returns how the logits of
    both compare."""
    device = device if isinstance(device, Device) else Device(device)
    opt, check = Options("craft", options), _c.pesc_logit_check()
    lib.pesc_craft(device.handle, os.fsencode(dense), os.fsencode(out_dir), opt.pointer, byref(check))
    return _c.record(check)


def export(model, to, out_dir, device="auto", **options):
    """Writes a model for other programs ("hf", "peft", "gguf", "camelidae", ...), with the options of
    pesc.options("export"). Returns how the logits of both compare."""
    device = device if isinstance(device, Device) else Device(device)
    opt, check = Options("export", options), _c.pesc_logit_check()
    lib.pesc_export(device.handle, os.fsencode(model), to.encode(), os.fsencode(out_dir), opt.pointer, byref(check))
    return _c.record(check)


def merge(model, out_dir, device="auto", **options):
    """Adds the LoRA of a run or an adapter to its base and writes a model directory, with the options of
    pesc.options("export"). Returns how the logits of both compare."""
    device = device if isinstance(device, Device) else Device(device)
    opt, check = Options("export", options), _c.pesc_logit_check()
    lib.pesc_merge(device.handle, os.fsencode(model), os.fsencode(out_dir), opt.pointer, byref(check))
    return _c.record(check)


def train(model, on_step=None, device="auto", **options):
    """Makes all steps of a run, with the options of pesc.options("train"), and returns them as a list. on_step(step)
    is called after each; if it returns False, a checkpoint is saved and the run ends."""
    steps = []
    with Trainer(model, device=device, **options) as trainer:
        for step in trainer:
            steps.append(step)
            if on_step and on_step(step) is False:
                trainer.save()
                break
    return steps
