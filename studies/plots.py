"""Pictures that libpesc draws (LIBPESC names the library)."""
import ctypes
import os
from pathlib import Path

LIBPESC = os.environ.get("LIBPESC", str(Path(__file__).resolve().parent.parent / "build/dist/libpesc.so.0"))


class Series(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("x", ctypes.POINTER(ctypes.c_double)), ("y", ctypes.POINTER(ctypes.c_double)),
                ("n", ctypes.c_size_t), ("faint", ctypes.c_bool), ("dots", ctypes.c_bool)]


class Lines(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("title", ctypes.c_char_p), ("note", ctypes.c_char_p), ("x_label", ctypes.c_char_p),
                ("y_label", ctypes.c_char_p), ("series", ctypes.POINTER(Series)), ("n_series", ctypes.c_size_t)]


class Bars(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("title", ctypes.c_char_p), ("note", ctypes.c_char_p), ("groups", ctypes.POINTER(ctypes.c_char_p)),
                ("series", ctypes.POINTER(ctypes.c_char_p)), ("n_groups", ctypes.c_size_t), ("n_series", ctypes.c_size_t),
                ("values", ctypes.POINTER(ctypes.c_double)), ("errors", ctypes.POINTER(ctypes.c_double)),
                ("panels", ctypes.POINTER(ctypes.c_char_p)), ("n_panels", ctypes.c_size_t)]


def draw(path, function, picture):
    pesc = ctypes.CDLL(str(Path(LIBPESC).resolve()))
    pesc.pesc_last_error.restype = ctypes.c_char_p
    if getattr(pesc, function)(str(path).encode(), ctypes.byref(picture)):
        raise RuntimeError(pesc.pesc_last_error().decode())


def bars(path, groups, series, title, note):
    """{name: [(value, error), ...]}, a value for each of the groups; None leaves a gap."""
    points = [p or (float("nan"), 0) for values in series.values() for p in values]
    names = (ctypes.c_char_p * len(groups))(*(g.encode() for g in groups)), (ctypes.c_char_p * len(series))(*(n.encode() for n in series))
    kind = ctypes.c_double * len(points)
    draw(path, "pesc_plot_bars", Bars(size=ctypes.sizeof(Bars), title=title.encode(), note=note.encode(), groups=names[0], series=names[1],
                                      n_groups=len(groups), n_series=len(series), values=kind(*(p[0] for p in points)), errors=kind(*(p[1] for p in points))))


def lines(path, groups, **texts):
    """{name: [(x, y), ...]}"""
    series = []
    for name, points in groups.items():
        xs, ys = zip(*sorted(points))
        kind = ctypes.c_double * len(xs)
        series.append(Series(name.encode(), kind(*xs), kind(*ys), len(xs), False, True))
    draw(path, "pesc_plot_lines", Lines(size=ctypes.sizeof(Lines), series=(Series * len(series))(*series), n_series=len(series),
                                        **{key: text.encode() for key, text in texts.items()}))
