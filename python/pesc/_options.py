"""Structs of options, laid out by pesc_option_rows(): the library states where each field is, so this module
follows every version of it."""

import collections
import ctypes
import difflib
import os
from ctypes import byref, c_char_p, c_size_t

from ._c import ENUMS, lib

Option = collections.namedtuple("Option", "key default values help")

STRUCTS = {name: "PESC_OPTIONS_" + name.upper() for name in (
    "load", "craft", "export", "sample", "data", "train", "eval", "benchmark", "routes", "esft_score", "esft_select", "serve")}


def _rows(which):
    n = c_size_t()
    rows = lib.pesc_option_rows(byref(n))
    found = {}
    for i in range(n.value):
        if rows[i].of == ENUMS[STRUCTS[which]]:
            found.setdefault(rows[i].key.decode(), rows[i])  # later rows of a key are for the command
    return found


def _end(row):
    """The offset after the field of a row."""
    if row.kind == ENUMS["PESC_OPTION_LIST"]:
        return row.count_at + ctypes.sizeof(c_size_t)
    return row.at + (1 if row.kind == ENUMS["PESC_OPTION_BOOL"] else 8)


def options(which):
    """The options of "load", "craft", "export", "sample", "data", "train", "eval", "benchmark", "routes", "esft_score",
    "esft_select" or "serve", as a list of (key, default, values, help)."""
    def text(value):
        return value.decode() if value is not None else None
    return [Option(key, text(r.fallback), text(r.values), text(r.help)) for key, r in _rows(which).items()]


class Options:
    """One struct of options with its defaults, then with the given values. It must be kept while the library uses
    `pointer`."""

    def __init__(self, which, values):
        self.rows = _rows(which)
        words = (max(_end(row) for row in self.rows.values()) + 7) // 8
        self.memory = (ctypes.c_uint64 * words)()
        self.kept = []  # texts and arrays, which the struct borrows
        lib.pesc_options_fill(ENUMS[STRUCTS[which]], self.pointer, ctypes.sizeof(self.memory))
        self.which = which
        self.update(values)

    def update(self, values):
        for key, value in values.items():
            self._set(key, value)

    @property
    def pointer(self):
        return ctypes.addressof(self.memory)

    def call_back(self, function):
        """Sets the callback of structs that have one, as their first field after the size (eval, serve)."""
        self.kept.append(function)
        ctypes.c_void_p.from_address(self.pointer + ctypes.sizeof(c_size_t)).value = ctypes.cast(function, ctypes.c_void_p).value

    def _set(self, key, value):
        row = self.rows.get(key)
        if row is None:
            near = difflib.get_close_matches(key, self.rows, 1)
            raise TypeError(f"{self.which} has no option '{key}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        if value is None:
            return  # the default
        if row.kind == ENUMS["PESC_OPTION_LIST"]:
            self._set_list(row, [value] if isinstance(value, (str, bytes, os.PathLike)) else value)
            return
        text = ("true" if value else "false") if isinstance(value, bool) else value
        text = text if isinstance(text, (bytes, os.PathLike)) else str(text)
        self.kept.append(os.fsencode(text))
        lib.pesc_option_set(byref(row), self.pointer, self.kept[-1], None)

    def _set_list(self, row, values):
        texts = [os.fsencode(value) for value in values]
        array = (c_char_p * max(len(texts), 1))(*texts)
        self.kept += [texts, array]
        ctypes.c_void_p.from_address(self.pointer + row.at).value = ctypes.addressof(array)
        c_size_t.from_address(self.pointer + row.count_at).value = len(texts)
