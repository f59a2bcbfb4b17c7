"""pesc in Python: a thin layer over the C library (docs/python.md).

    import pesc
    model = pesc.Model("model")
    print(model.generate("Once upon a time", max_tokens=40).text)
"""

import os
from ctypes import byref

from . import _c
from ._c import Error, lib
from ._handles import Device, Model, Session, Tokenizer, Trainer
from ._options import Option, Options, options
from ._version import __version__

__all__ = ["Device", "Error", "Model", "Option", "Session", "Tokenizer", "Trainer", "craft", "info",
           "library_version", "options", "train"]


def library_version():
    """The version of libpesc, which may be newer than this module."""
    return lib.pesc_version().decode()


def info(path):
    """Describes a model from its configuration and file headers, without loading it."""
    out = _c.pesc_model_info()
    lib.pesc_info(os.fsencode(path), None, None, byref(out))
    return _c.record(out)


def craft(dense, out_dir, device="cpu", **options):
    """Makes a sparse model from a dense one, with the options of pesc.options("craft"). Returns how the logits of
    both compare."""
    device = device if isinstance(device, Device) else Device(device)
    opt, check = Options("craft", options), _c.pesc_logit_check()
    lib.pesc_craft(device.handle, os.fsencode(dense), os.fsencode(out_dir), opt.pointer, byref(check))
    return _c.record(check)


def train(model, on_step=None, device="cpu", **options):
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
