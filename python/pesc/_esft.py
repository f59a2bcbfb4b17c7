"""Expert-specialised fine-tuning: which experts a task uses, and patches of experts."""

import ctypes
import os
from ctypes import byref

from . import _c
from ._c import lib, record
from ._handles import Device, Handle, _opened
from ._options import Options, _rows
from ._reports import array


class Data(Handle):
    """Records as training reads them, with the options of pesc.options("data")."""

    def __init__(self, path, options):
        self._options = Options("data", options)
        super().__init__(_opened(lib.pesc_data_open, os.fsencode(path), self._options.pointer, None), lib.pesc_data_close)


def esft_score(model, data, out_dir, **options):
    """Counts how much the records use each expert, with the options of pesc.options("esft_score") and, for reading the
    records, pesc.options("data"). Writes out_dir/summary.json."""
    own = {key: value for key, value in options.items() if key in _rows("esft_score")}
    opt, out = Options("esft_score", own), _c.pesc_esft_score_report()
    reading = {key: value for key, value in options.items() if key not in own}
    with Data(model.path, {"data": data, **reading}) as records:
        lib.pesc_esft_score(model.handle, records.handle, os.fsencode(out_dir), opt.pointer, byref(out))
    return record(out)


class Choice:
    """Experts selected by their scores: layers, scores and chosen [layer, expert] (NumPy), counts, total."""

    def __init__(self, struct):
        n, e = struct.n_layers, struct.n_experts
        self._struct = struct
        self.layers, self.counts, self.total = struct.layers[:n], struct.counts[:n], struct.total
        self.scores = array(struct.scores, n, e)
        self.chosen = array(ctypes.cast(struct.chosen, ctypes.POINTER(ctypes.c_uint8)), n, e).astype(bool)

    def write(self, path, shared_experts=False, non_expert_modules=False):
        """Writes an expert_cfg.json; what is set besides trains too."""
        self._struct.shared_experts, self._struct.non_expert_modules = shared_experts, non_expert_modules
        lib.pesc_esft_write(byref(self._struct), os.fsencode(path))

    def __del__(self):
        lib.pesc_esft_choice_free(byref(self._struct))


def esft_select(path, **options):
    """Selects experts by a summary.json, with the options of pesc.options("esft_select")."""
    opt, struct = Options("esft_select", options), _c.pesc_esft_choice()
    lib.pesc_esft_select(os.fsencode(path), opt.pointer, None, byref(struct))
    return Choice(struct)


def esft_apply(base, patch, out_dir, device="auto"):
    """Writes the base with an expert patch applied as a model directory, and compares the logits of both."""
    device = device if isinstance(device, Device) else Device(device)
    lib.pesc_esft_apply(device.handle, os.fsencode(base), os.fsencode(patch), os.fsencode(out_dir))
