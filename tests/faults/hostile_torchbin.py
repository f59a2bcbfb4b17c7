"""Hostile pytorch_model.bin files: what a pickle could do, and what a ZIP archive can lie about."""

import os
import random
import struct

import tiny

ONE = {"a": [2, 3]}
DATA = {"archive/data/0": bytes(24)}


def archive(program, **options):
    return tiny.archive({"archive/data.pkl": program, **DATA}, **options)


def value(program):
    return archive(tiny.pickle({"a": program}))


def call(module, name, argument=b")"):
    return f"c{module}\n{name}\n".encode() + argument + b"R"


# name, program of data.pkl, sentence
PROGRAMS = [
    ("os-system", b"\x80\x02" + call("os", "system", tiny.string("id") + b"\x85") + b".",
     "asks for os.system; pesc reads tensors only"),
    ("posix-system", call("posix", "system") + b".", "asks for posix.system"),
    ("eval", call("builtins", "eval", tiny.string("1") + b"\x85") + b".", "asks for builtins.eval"),
    ("exec", call("__builtin__", "exec") + b".", "asks for __builtin__.exec"),
    ("getattr", call("builtins", "getattr") + b".", "asks for builtins.getattr"),
    ("subprocess", call("subprocess", "Popen") + b".", "asks for subprocess.Popen"),
    ("torch-load", call("torch", "load") + b".", "asks for torch.load"),
    ("runpy", call("runpy", "_run_code") + b".", "asks for runpy._run_code"),
    ("numpy", call("numpy.core.multiarray", "_reconstruct") + b".", "asks for numpy.core.multiarray"),
    ("near-name", call("torch._utils", "_rebuild_tensor_v22") + b".", "_rebuild_tensor_v22"),
    ("near-module", call("torch._utils.x", "_rebuild_tensor_v2") + b".", "torch._utils.x"),
    ("stack-global", b"\x8c\x02os\x8c\x06system\x93)R.", "asks for os.system"),
    ("stack-global-number", b"K\x01K\x02\x93.", "names a function by a number"),
    ("escape-in-name", b"c\x1b]0;x\x07\nsystem\n.", "asks for \\x1B]0;x\\x07.system"),
    ("long-name", b"c" + b"x" * 100000 + b"\nsystem\n.", "asks for xxx"),
    ("inst", b"(ios\nsystem\n.", "instruction 0x69"),
    ("obj", b"(K\x01o.", "instruction 0x6F"),
    ("newobj", b"))\x81.", "instruction 0x81"),
    ("ext", b"\x82\x01.", "instruction 0x82"),
    ("persid-text", b"Phello\n.", "instruction 0x50"),
    ("unknown", b"\xff.", "instruction 0xFF"),
    ("empty", b"", "the pickle ends inside an instruction"),
    ("no-stop", b"}", "the pickle ends inside an instruction"),
    ("stop-only", b".", "takes a value from an empty stack"),
    ("number", b"K\x07.", "holds a number, expected a dictionary"),
    ("list", b"].", "holds a list, expected a dictionary"),
    ("nested", b"}X\x01\0\0\0a}s.", "entry a is a dictionary, expected a tensor"),
    ("itself", b"}q\x00X\x01\0\0\0ah\x00s.", "entry a is a dictionary, expected a tensor"),
    ("number-key", b"}K\x01K\x02s.", "a key of the dictionary is a number"),
    ("protocol-6", b"\x80\x06}.", "pickle protocol 6"),
    ("string-4GB", b"X\xff\xff\xff\xffabc", "the pickle ends inside an instruction"),
    ("string-2^64", b"\x8d" + b"\xff" * 8 + b".", "found a string of 18446744073709551615"),
    ("long-255-bytes", b"\x8a\xff" + b"\x01" * 255 + b".", "a number of 255 bytes"),
    ("long-4GB", b"\x8b\xff\xff\xff\xff.", "instruction 0x8B"),
    ("memo-2^32", b"}r\xff\xff\xff\xff.", "under number 4294967295"),
    ("memo-unset", b"}h\x05.", "which was never remembered"),
    ("no-mark", b"u.", "there is no mark"),
    ("odd-items", b"}(K\x01u.", "sets a key without a value"),
    ("set-on-list", b"](K\x01K\x02u.", "adds to a list as if it were a dictionary"),
    ("marks", b"(" * 5000000 + b".", "holds more than"),
    ("values", b"K\x01" * 5000000 + b".", "holds more than"),
    ("deep-tuples", b")" + b"\x85" * 5000000 + b".", "holds more than"),
    ("dup-bomb", b"]" + b"2" * 1000000 + b".", "instruction 0x32"),
    ("call-number", b"K\x01)R.", "calls a number with a tuple"),
    ("call-storage", call("torch", "FloatStorage") + b".", "calls torch.FloatStorage"),
    ("dict-arguments", call("collections", "OrderedDict", b"]\x85") + b".", "OrderedDict with arguments"),
    ("rebuild-nothing", call("torch._utils", "_rebuild_tensor_v2") + b".", "is not described by"),
    ("parameter-of-nothing", call("torch._utils", "_rebuild_parameter") + b".", "not a tensor"),
    ("persistent-number", b"K\x01Q.", "names a storage by a number"),
    ("persistent-short", b"(K\x01tQ.", "names a storage by a tuple"),
]

HUGE = 1 << 62

# name, program of one value, sentence; its storage has 6 float32
TENSORS = [
    ("storage-missing", tiny.tensor("9", [2, 3]), "its storage data/9 is not in the archive"),
    ("storage-climbs", tiny.tensor("../0", [2, 3]), "its storage data/../0 is not in the archive"),
    ("storage-short", tiny.tensor("0", [2, 3], elements=7), "its storage has 24 bytes, expected 7"),
    ("storage-long", tiny.tensor("0", [2, 2], elements=5), "its storage has 24 bytes, expected 5"),
    ("storage-negative", tiny.tensor("0", [2, 3], elements=-6), "expected -6 elements"),
    ("storage-huge", tiny.tensor("0", [2, 3], elements=HUGE), "its storage has 24 bytes"),
    ("storage-other-type", tiny.tensor("0", [2, 3], kind="DoubleStorage"), "its storage has 24 bytes"),
    ("offset-past-end", tiny.tensor("0", [2, 3], offset=1, elements=6), "are outside its storage of 6"),
    ("offset-huge", tiny.tensor("0", [2, 3], offset=HUGE, elements=6), "are outside its storage of 6"),
    ("offset-negative", tiny.tensor("0", [2, 3], offset=-1, elements=6), "is not described by"),
    ("size-negative", tiny.tensor("0", [-2, 3], [3, 1], elements=6), "is not described by"),
    ("size-huge", tiny.tensor("0", [HUGE, 4], [4, 1], elements=6), "more elements than 64 bits"),
    ("size-past-end", tiny.tensor("0", [7], elements=6), "are outside its storage of 6"),
    ("stride-transposed", tiny.tensor("0", [2, 3], [1, 2], elements=6), "are not contiguous"),
    ("stride-zero", tiny.tensor("0", [1 << 40], [0], elements=6), "are not contiguous"),
    ("stride-count", tiny.tensor("0", [2, 3], [1], elements=6), "is not described by"),
    ("nine-dims", tiny.tensor("0", [1] * 9, elements=6), "is not described by"),
    ("quantised", b"ctorch._utils\n_rebuild_qtensor\n)R", "asks for torch._utils._rebuild_qtensor"),
    ("meta", b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n)R", "_rebuild_meta_tensor_no_storage"),
]


def field(data, at, width, number):
    return data[:at] + struct.pack({2: "<H", 4: "<I"}[width], number) + data[at + width:]


def broken_archives(good):
    end = len(good) - 22
    directory = struct.unpack("<I", good[end + 16:end + 20])[0]
    central, local = directory, 0
    yield "zip-no-end", good[:end], "has no ZIP end record"
    yield "zip-comment-length", field(good, end + 20, 2, 5), "has no ZIP end record"
    yield "zip-entries-65535", field(good, end + 10, 2, 65535), "a directory that is not there"
    yield "zip-directory-offset", field(good, end + 16, 4, 0xFFFFFFF0), "a directory that is not there"
    yield "zip-directory-size", field(good, end + 12, 4, 0xFFFFFFF0), "a directory that is not there"
    yield "zip-directory-short", field(good, end + 12, 4, 50), "a directory that is not there"
    yield "zip-central-signature", field(good, central, 4, 0), "is not a record of the ZIP directory"
    yield "zip-central-name", field(good, central + 28, 2, 60000), "runs past its end"
    yield "zip-encrypted", field(good, central + 8, 2, 1), "is compressed or encrypted"
    yield "zip-deflated", field(good, central + 10, 2, 8), "is compressed or encrypted"
    yield "zip-packed-size", field(good, central + 20, 4, 1), "is compressed or encrypted"
    both = field(field(good, central + 20, 4, 1 << 30), central + 24, 4, 1 << 30)
    yield "zip-size", both, "run past the archive's data"
    wide = field(field(good, central + 20, 4, 0xFFFFFFFF), central + 24, 4, 0xFFFFFFFF)
    yield "zip-zip64-missing", wide, "the ZIP64 fields of an entry are missing"
    yield "zip-offset", field(good, central + 42, 4, 0x7FFFFFFF), "is not the header of a ZIP entry"
    yield "zip-local-signature", field(good, local, 4, 0), "is not the header of a ZIP entry"
    yield "zip-local-name", good[:30] + b"X" + good[31:], "its own header has another name"
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, 1 << 60, 1)
    yield "zip-zip64-locator", good[:end] + locator + good[end:], "points to no end record"


def cases(directory):
    room = os.path.join(directory, "m")
    path = os.path.join(room, "pytorch_model.bin")
    tiny.put(room, "config.json", tiny.CONFIG)

    def case(name, data, sentence, code=3):
        tiny.put(room, "pytorch_model.bin", data)
        return name, path, ["info", room], code, sentence

    files = tiny.torch_files(tiny.shapes())
    good = tiny.archive(files)
    yield case("sound", good, "", 0)
    for name, program, sentence in PROGRAMS:
        yield case(f"pickle-{name}", archive(program), sentence)
    for name, program, sentence in TENSORS:
        yield case(f"tensor-{name}", value(program), sentence)
    for name, data, sentence in broken_archives(archive(tiny.pickle({"a": tiny.tensor("0", [2, 3])}))):
        yield case(name, data, sentence)
    yield case("tensor-name-600", archive(tiny.pickle({"x" * 600: tiny.tensor("0", [2, 3])})),
               "longer than 512 bytes")
    yield case("tensor-name-nul", archive(tiny.pickle({"a\0b": tiny.tensor("0", [2, 3])})), "holds NUL")
    twice = (b"}(" + 2 * (tiny.string("a") + tiny.tensor("0", [2, 3])) + b"u.")
    yield case("tensor-twice", archive(twice), "tensor a: is given twice")
    yield case("zip-no-pickle", tiny.archive({"archive/version": b"3"}), "holds no data.pkl")
    yield case("zip-two-pickles", tiny.archive({"a/data.pkl": b"}.", "b/data.pkl": b"}."}),
               "expected one pickle")
    yield case("zip-big-endian", tiny.archive(dict(files, **{"archive/byteorder": b"big"})),
               "not little-endian")
    yield case("zip-torchscript", tiny.archive(dict(files, **{"archive/constants.pkl": b""})),
               "TorchScript")
    yield case("old-format", b"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
               "format from before 1.6")
    yield case("not-a-zip", b"hello, world", "has no ZIP end record")
    yield case("empty", b"", "has no ZIP end record")
    yield case("safetensors-inside", tiny.safetensors(*tiny.entries(tiny.floats())),
               "has no ZIP end record")
    yield case("many-entries", tiny.archive({f"archive/data/{i}": b"" for i in range(60000)}),
               "holds no data.pkl")
    rng = random.Random(6)
    for n in sorted(rng.sample(range(len(good)), 30)):
        yield case(f"cut-at-{n}", good[:n], "pytorch_model.bin: ")
