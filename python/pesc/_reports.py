"""Reports of the library as Python values, copied out before the library frees them."""

import json
import os
import types
from ctypes import byref

from . import _c
from ._c import lib, record
from ._options import Options


def _copied(report, free, read):
    """What read() makes of a report, which is freed then, also after a failure."""
    try:
        return read(report)
    finally:
        free(byref(report))


def evaluation(session, path, each, options):
    opt, raised = Options("eval", options), []

    def on_sample(_, sample):
        try:
            each(record(sample.contents))
        except BaseException as error:  # passed on when the call has returned; later samples are not shown
            raised.append(error)
    if each:
        opt.call_back(_c.EACH(lambda ud, sample: None if raised else on_sample(ud, sample)))

    def read(report):
        lib.pesc_eval(session.handle, os.fsencode(path), opt.pointer, byref(report))
        if raised:
            raise raised[0]
        return types.SimpleNamespace(all=record(report.all), domains=[record(d) for d in report.domains[:report.n_domains]],
                                     too_long=report.too_long, generated=report.generated, seconds=report.seconds)
    return _copied(_c.pesc_eval_report(), lib.pesc_eval_free, read)


def benchmark(model, tasks, options):
    opt = Options("benchmark", options)

    def score(row):
        found = record(row)
        found.each = row.each[:row.n]
        return found

    def read(report):
        lib.pesc_benchmark(model.handle, os.fsencode(tasks), opt.pointer, byref(report))
        return types.SimpleNamespace(scores=[score(row) for row in report.scores[:report.n_scores]], results=json.loads(report.json),
                                     tokens_requested=report.tokens_requested, tokens_computed=report.tokens_computed,
                                     seconds=report.seconds)
    return _copied(_c.pesc_benchmark_report(), lib.pesc_benchmark_free, read)


def array(pointer, *shape):
    """A NumPy array with a copy of what the pointer shows."""
    import numpy
    return numpy.ctypeslib.as_array(pointer, shape).copy() if pointer and 0 not in shape else numpy.zeros(shape)


def routes(model, options):
    opt = Options("routes", options)

    def read(r):
        lib.pesc_routes(model.handle, opt.pointer, byref(r))
        d, n, e = r.n_domains, r.n_layers, r.experts
        shapes = {"share": (d, n, e), "difference": (n,), "counts": (d, n, r.top_k, e), "gate": (d, n, e), "slot_gate": (d, n, r.top_k),
                  "load": (d, n), "entropy": (d, n), "chance": (n,), "p_value": (n,)}
        tokens = [record(t) for t in r.tokens[:e * r.n_tokens]] if r.tokens else []
        return types.SimpleNamespace(
            domains=[record(x) for x in r.domains[:d]], layers=r.layers[:n], experts=e, top_k=r.top_k,
            tokens=[[t for t in tokens[i * r.n_tokens:(i + 1) * r.n_tokens] if t.id >= 0] for i in range(e)] if tokens else [],
            **{name: array(getattr(r, name), *shape) for name, shape in shapes.items()})
    return _copied(_c.pesc_routes_report(), lib.pesc_routes_free, read)
