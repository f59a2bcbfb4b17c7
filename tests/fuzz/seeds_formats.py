#!/usr/bin/env python3
"""Writes the first inputs of fuzz_safetensors, fuzz_torchbin, fuzz_index and fuzz_parquet: seeds_formats.py DIR."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "faults"))
import hostile_bnb
import tiny


def seeds():
    yield "fuzz_safetensors/empty", tiny.safetensors("{}")
    yield "fuzz_safetensors/one", tiny.safetensors(*tiny.entries({"a": ("F32", [2], None)}))
    yield "fuzz_safetensors/many", tiny.safetensors(*tiny.entries({
        "__metadata_": ("U8", [0], None), "\u00e9": ("BF16", [1, 2], None), "c": ("I64", [], None)}))
    header = '{"__metadata__":{"format":"pt"},"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    yield "fuzz_safetensors/metadata", tiny.safetensors(header, b"x")
    small = {k.replace(hostile_bnb.QUERY, "q"): v for k, v in hostile_bnb.plain(1.0).items()}
    yield "fuzz_safetensors/nf4", tiny.safetensors(*tiny.entries(small))
    nested = {k.replace(hostile_bnb.QUERY, "q"): v for k, v in hostile_bnb.group().items()}
    yield "fuzz_safetensors/nf4-nested", tiny.safetensors(*tiny.entries(nested))
    yield "fuzz_torchbin/archive", tiny.archive(tiny.torch_files({"a": [2, 3], "b": [1]}))
    yield "fuzz_torchbin/pickle", tiny.pickle({"a": tiny.tensor("0", [2, 3])})
    yield "fuzz_torchbin/pickle4", (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01x"
                                    b"\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93(" +
                                    tiny.storage("0", 4, "BFloat16Storage") +
                                    b"K\x01K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.")
    for path in (pathlib.Path(__file__).parents[1] / "golden/parquet").glob("*.parquet"):
        yield f"fuzz_parquet/{path.stem}", path.read_bytes()
    yield "fuzz_index/three", (b'{"metadata":{"total_size":0},"weight_map":'
                               b'{"a":"stat","b":"stat","c":"maps"}}')
    yield "fuzz_index/odd", b'{"x":[{"y":[1e5,-0.5,"\\ud83d\\ude00",null,true]}],"weight_map":{}}'


def main():
    for name, data in seeds():
        path = pathlib.Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
