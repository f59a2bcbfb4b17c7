#!/usr/bin/env python3
"""Writes tests/golden/parquet: the same conversations as Parquet files of several writers, and rows.jsonl, what they hold.

    python3 tests/golden/make/golden_parquet.py      needs pyarrow, polars, duckdb
"""
import json
import pathlib

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parents[1] / "parquet"
CALL = pa.struct([("name", pa.string()), ("arguments", pa.list_(pa.string()))])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(CALL))])
SCHEMA = pa.schema([("id", pa.int64()), ("score", pa.float64()), ("good", pa.bool_()), ("messages", pa.list_(MESSAGE)),
                    ("tags", pa.list_(pa.string())), pa.field("source", pa.string(), nullable=False)])


def rows():
    for i in range(24):
        said = [{"role": "user", "content": f"What is {i} + {i}?", "tool_calls": None},
                {"role": "assistant", "content": None if i % 5 == 0 else f"It is {2 * i}.",
                 "tool_calls": [{"name": "add", "arguments": [str(i)] * (i % 3)}] if i % 5 == 0 else []}]
        yield {"id": i * 10 ** (i % 12), "score": None if i % 4 == 0 else i / 8, "good": None if i % 7 == 0 else i % 2 == 0,
               "messages": None if i == 11 else said * (i % 3), "tags": None if i % 6 == 0 else ["Zürich", None, ""][:i % 4],
               "source": "made" if i % 2 else "found"}


def main():
    OUT.mkdir(exist_ok=True)
    made = list(rows())
    table = pa.Table.from_pylist(made, schema=SCHEMA)
    (OUT / "rows.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in made))
    pq.write_table(table, OUT / "arrow-v1-snappy.parquet", compression="SNAPPY", row_group_size=10, data_page_size=1,
                   write_batch_size=3, write_page_checksum=True)
    delta = {"id": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT", "good": "RLE", "source": "DELTA_BYTE_ARRAY",
             "messages.list.element.role": "DELTA_BYTE_ARRAY", "messages.list.element.content": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(table, OUT / "arrow-v2-zstd.parquet", compression="ZSTD", data_page_version="2.0", use_dictionary=False,
                   column_encoding=delta)
    pq.write_table(table, OUT / "arrow-plain.parquet", compression="NONE", use_dictionary=False)
    polars.from_arrow(table).write_parquet(OUT / "polars-lz4.parquet", compression="lz4")
    connection = duckdb.connect()
    connection.register("made", table)
    connection.execute(f"COPY made TO '{OUT}/duckdb-gzip.parquet' (FORMAT parquet, CODEC 'gzip')")
    dated = table.append_column("day", pa.array([1] * 24, pa.date32())).append_column("raw", pa.array([b"\xff"] * 24, pa.binary()))
    pq.write_table(dated.select(["id", "day", "raw"]), OUT / "left-out.parquet", compression="SNAPPY")
    pq.write_table(table.select(["id"]), OUT / "brotli.parquet", compression="BROTLI")
    asked = [{"question": f"What is {i} + {i}?", "answer": f"It is {2 * i}."} for i in range(8)]
    (OUT / "questions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in asked))
    pq.write_table(pa.Table.from_pylist(asked), OUT / "questions.parquet")
    # 5 MB of texts, each once, in dictionaries of their row groups; and 100 MB, one text many times
    unique = [{"text": f"{i:06d}" + "x" * 40000} for i in range(120)]
    pq.write_table(pa.Table.from_pylist(unique), OUT / "unique.parquet", compression="ZSTD", row_group_size=5, write_statistics=False)
    pq.write_table(pa.table({"text": ["y" * 100000] * 1000}), OUT / "bomb.parquet", compression="ZSTD", write_statistics=False)


if __name__ == "__main__":
    main()
