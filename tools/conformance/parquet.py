#!/usr/bin/env python3
"""Compares src/format/parquet with pyarrow: random nested tables, row for row.

Each table has a random schema of texts, whole numbers, reals, booleans, lists, structs and maps with nulls
everywhere, and is written by pyarrow (every encoding and codec that pesc reads, both versions of pages, small pages
and row groups), polars or duckdb. TABLES says how many (200), SEED which. DAMAGED (4) small files with checksums of pages
are then cut at every byte and have every bit flipped: cut ones are refused, and one with a flipped bit is refused, read alike, or
differs by what no checksum covers, the footer and the heads of pages. Ends with `N passed, M failed`.
"""
import collections
import json
import math
import os
import pathlib
import random
import string
import subprocess
import sys
import tempfile

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parents[2]
READER = ROOT / os.environ.get("BUILD", "build") / "tests/conformance/parquet_rows"
TABLES, SEED, DAMAGED = (int(os.environ.get(*v)) for v in (("TABLES", 200), ("SEED", 1), ("DAMAGED", 4)))
ENCODINGS = {"text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"], "int": ["PLAIN", "DELTA_BINARY_PACKED"],
             "bool": ["PLAIN", "RLE"], "real": ["PLAIN"]}
LEAVES = {"text": [pa.string(), pa.large_string()], "int": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()],
          "bool": [pa.bool_()], "real": [pa.float32(), pa.float64()]}


def random_type(rng, depth):
    """(type, kind of its leaf or None)."""
    roll = rng.random()
    if depth >= 3 or roll < 0.5:
        kind = rng.choice(list(LEAVES))
        return rng.choice(LEAVES[kind])
    if roll < 0.72:
        return pa.list_(random_field(rng, "element", depth + 1))
    if roll < 0.92:
        return pa.struct([random_field(rng, f"f{i}", depth + 1) for i in range(rng.randint(1, 4))])
    return pa.map_(pa.string(), random_type(rng, depth + 1))


def random_field(rng, name, depth):
    return pa.field(name, random_type(rng, depth), nullable=rng.random() < 0.8)


def random_text(rng):
    words = ["", "a", "hello", "Zürich", "日本語", "x" * rng.randint(0, 200), "prefix one", "prefix two", "\n\t\"\\", "😀"]
    return rng.choice(words) if rng.random() < 0.8 else "".join(rng.choice(string.printable) for _ in range(rng.randint(0, 40)))


def random_value(rng, t, nullable, few):
    if nullable and rng.random() < few["null"]:
        return None
    if pa.types.is_struct(t):
        return {f.name: random_value(rng, f.type, f.nullable, few) for f in t}
    if pa.types.is_map(t):
        return [(f"k{i}", random_value(rng, t.item_type, True, few)) for i in range(rng.randint(0, 3))]
    if pa.types.is_list(t):
        return [random_value(rng, t.value_type, t.value_field.nullable, few) for _ in range(rng.choice([0, 0, 1, 2, 3, 9]))]
    if pa.types.is_boolean(t):
        return rng.random() < 0.5
    if pa.types.is_floating(t):
        return rng.choice([0.0, -1.5, 3.25, float("nan"), float("inf"), rng.randint(-99, 99) / 8])
    if pa.types.is_integer(t):
        bits = t.bit_width - (0 if pa.types.is_unsigned_integer(t) else 1)
        low = 0 if pa.types.is_unsigned_integer(t) else -(1 << bits)
        return rng.choice([0, 1, low, (1 << bits) - 1, rng.randint(max(low, -99), 99)])
    return random_text(rng)


def wanted(v, t):
    """A value as the JSON that pesc makes of it."""
    if v is None:
        return None
    if pa.types.is_struct(t):
        return {f.name: wanted(v[f.name], f.type) for f in t}
    if pa.types.is_map(t):
        return {k: wanted(x, t.item_type) for k, x in v}
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [wanted(x, t.value_type) for x in v]
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    return v


def leaf_paths(t, path):
    """(path, kind) of every column below a type, with Parquet's names."""
    if pa.types.is_struct(t):
        for f in t:
            yield from leaf_paths(f.type, path + [f.name])
    elif pa.types.is_map(t):
        yield ".".join(path + ["key_value", "key"]), "text"
        yield from leaf_paths(t.item_type, path + ["key_value", "value"])
    elif pa.types.is_list(t):
        yield from leaf_paths(t.value_type, path + ["list", "element"])
    else:
        yield ".".join(path), next(k for k, types in LEAVES.items() if t in types)


def write_arrow(rng, table, path):
    options = {"compression": rng.choice(["NONE", "SNAPPY", "ZSTD", "GZIP", "LZ4"]), "data_page_version": rng.choice(["1.0", "2.0"]),
               "row_group_size": rng.choice([1, 7, 50, 10000]), "data_page_size": rng.choice([1, 64, 1000, 1 << 20]),
               "write_batch_size": rng.choice([1, 3, 1024]), "write_page_checksum": rng.random() < 0.5}
    if rng.random() < 0.5:
        paths = [p for f in table.schema for p in leaf_paths(f.type, [f.name])]
        options |= {"use_dictionary": False, "column_encoding": {p: rng.choice(ENCODINGS[k]) for p, k in paths}}
    pq.write_table(table, path, **options)
    return "pyarrow", options


def write_polars(rng, table, path):
    options = {"compression": rng.choice(["uncompressed", "snappy", "zstd", "gzip", "lz4"]), "row_group_size": rng.choice([None, 5, 50]),
               "data_page_size": rng.choice([None, 200])}
    polars.from_arrow(table).write_parquet(path, **options)
    return "polars", options


def write_duckdb(rng, table, path):
    options = {"codec": rng.choice(["uncompressed", "snappy", "zstd", "gzip", "lz4_raw"]), "version": rng.choice(["V1", "V2"])}
    connection = duckdb.connect()
    connection.register("made", table)
    connection.execute(f"COPY made TO '{path}' (FORMAT parquet, CODEC '{options['codec']}', PARQUET_VERSION '{options['version']}')")
    return "duckdb", options


def make(number, folder):
    rng = random.Random(f"{SEED}-{number}")
    schema = pa.schema([random_field(rng, f"c{i}", 0) for i in range(rng.randint(1, 6))])
    few = {"null": rng.choice([0.0, 0.1, 0.5, 0.95])}
    rows = [{f.name: random_value(rng, f.type, f.nullable, few) for f in schema} for _ in range(rng.choice([1, 2, 10, 100, 400]))]
    table = pa.Table.from_pylist(rows, schema=schema)
    path = folder / f"{number}.parquet"
    maps = any("map<" in str(f.type) for f in schema)
    writer = rng.choice([write_arrow, write_arrow, write_duckdb] if maps else [write_arrow, write_arrow, write_polars, write_duckdb])
    about = writer(rng, table, path)
    try:
        back = pq.read_table(path)
    except (pa.ArrowInvalid, OSError):  # a few files, nested ones above all, pyarrow does not read itself
        return path, about, None
    if back.num_rows != pq.read_metadata(path).num_rows:  # a row of an empty list at a page's end, which pyarrow loses
        return path, about, None
    return path, about, [{f.name: wanted(row[f.name], f.type) for f in back.schema} for row in back.to_pylist()]


def ask(reader, path):
    print(path, file=reader.stdin, flush=True)
    return json.loads(reader.stdout.readline())


def damage(reader, number, folder):
    """What becomes of a small file that is cut anywhere or has any bit flipped: 'cut refused', 'flip equal', ..."""
    rng, path, found = random.Random(f"{SEED}-damage-{number}"), folder / "damaged.parquet", collections.Counter()
    talk = [[{"role": "user", "content": random_text(rng)[:30]}], [], None, [{"role": "a", "content": None}]]
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "messages": talk}), path, write_page_checksum=True, write_statistics=False, store_schema=False,
                   compression=rng.choice(["NONE", "SNAPPY", "ZSTD", "GZIP", "LZ4"]), data_page_version=rng.choice(["1.0", "2.0"]))
    raw, whole = path.read_bytes(), ask(reader, path)
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    for n in range(len(raw)):
        path.write_bytes(raw[:n])
        found["cut refused" if "error" in ask(reader, path) else "CUT READ"] += 1
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        got = ask(reader, path)
        how = "refused" if "error" in got else "equal" if got == whole else "differs"
        found[f"flip {how} in {'footer' if bit // 8 >= footer else 'pages'}"] += 1
    return found


def main():
    passed = failed = 0
    found = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        reader = subprocess.Popen([READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(TABLES):
            path, about, rows = make(number, pathlib.Path(folder))
            if rows is None:
                continue
            got = ask(reader, path)
            same = got.get("rows") == rows
            passed, failed = passed + same, failed + (not same)
            if not same:
                where = next((i for i, (a, b) in enumerate(zip(got.get("rows", []), rows)) if a != b), None)
                print(f"table {number} by {about}: {got.get('error') or f'row {where}'}")
                if where is not None:
                    print("  pesc   ", json.dumps(got["rows"][where])[:300])
                    print("  pyarrow", json.dumps(rows[where])[:300])
            path.unlink()
        for number in range(DAMAGED):
            found += damage(reader, number, pathlib.Path(folder))
    print(", ".join(f"{n} {what}" for what, n in sorted(found.items())))
    wrong = found["CUT READ"] + (found["flip differs in pages"] > found["flip refused in pages"] // 1000)
    passed, failed = passed + (DAMAGED > 0 and not wrong), failed + (wrong > 0)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
