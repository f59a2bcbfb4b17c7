#include "base/mem.h"
#include "data/source.h"
#include "format/parquet.h"
#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

#include <stdio.h>
#include <stdlib.h>

#define GOLDEN "tests/golden/parquet/"

static pesc_status read_all(const char *path)
{
    io_map *map;
    parquet *p = NULL;
    TRY(io_map_open(&map, path));
    pesc_status s = parquet_open(&p, map, UINT64_MAX);
    for (uint64_t i = 0; s == PESC_OK && i < parquet_rows(p); i++) {
        json_t *v = NULL;
        s = parquet_row(p, i, &v);
        json_decref(v);
    }
    parquet_close(p);
    io_map_close(map);
    return s;
}

/* Rows in any order are those of rows.jsonl, whoever wrote the file. */
static void reads_what_writers_wrote(void **state)
{
    (void)state;
    static const char *const names[] = { "arrow-plain", "arrow-v1-snappy", "arrow-v2-zstd",
                                         "polars-lz4", "duckdb-gzip" };
    const char *expected = GOLDEN "rows.jsonl";
    source *rows, *file;
    must(source_open(&rows, &expected, 1, 0));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[128];
        const char *paths[] = { path };
        snprintf(path, sizeof path, GOLDEN "%s.parquet", names[k]);
        must(source_open(&file, paths, 1, 0));
        assert_int_equal(source_count(file), source_count(rows));
        for (uint64_t i = 0; i < source_count(rows); i++) {
            json_t *want, *got;
            uint64_t at = i * 7 % source_count(rows);
            must(source_record(rows, at, &want));
            must(source_record(file, at, &got));
            if (!json_equal(want, got))
                fail_msg("%s: row %llu: found %s, expected %s", path, (unsigned long long)at,
                         json_dumps(got, 0), json_dumps(want, 0));
            json_decref(want);
            json_decref(got);
        }
        source_close(file);
    }
    source_close(rows);
}

static void shows_a_row_as_json(void **state)
{
    (void)state;
    const char *path = GOLDEN "left-out.parquet", *bytes;
    size_t n;
    source *s;
    must(source_open(&s, &path, 1, 0));
    must(source_bytes(s, 2, &bytes, &n));
    assert_int_equal(n, strlen("{\"id\":200,\"raw\":null}")); /* no day: dates are left out */
    assert_memory_equal(bytes, "{\"id\":200,\"raw\":null}", n);
    assert_non_null(strstr(source_where(s, 2), "left-out.parquet:3"));
    source_close(s);
}

static void refuses_what_it_does_not_read(void **state)
{
    (void)state;
    must_fail(read_all(GOLDEN "brotli.parquet"), PESC_FORMAT,
              "is Parquet with columns compressed with Brotli, which is not read; convert it: "
              "python3 -c \"import pandas; pandas.read_parquet('" GOLDEN "brotli.parquet')");
    must_fail(read_all(files_put("short.parquet", "PAR1....PAR1", 12)), PESC_FORMAT,
              "its metadata is longer than the file");
    must_fail(read_all(files_put("sealed.parquet", "PARE\0\0\0\0PARE", 12)), PESC_FORMAT,
              "is Parquet with an encrypted footer, which is not read");
}

static pesc_status open_source(const char *path, int64_t ratio)
{
    source *s = NULL;
    pesc_status st = source_open(&s, &path, 1, ratio);
    source_close(s);
    return st;
}

/* What the texts of dictionaries could be together is not what they are. */
static void refuses_what_unpacks_to_too_much(void **state)
{
    (void)state;
    must(open_source(GOLDEN "unique.parquet", 0));
    must_fail(open_source(GOLDEN "bomb.parquet", 0), PESC_FORMAT,
              "its rows unpack to more than 16777216 bytes");
    must(open_source(GOLDEN "bomb.parquet", 1000000));
}

/* A file cut anywhere is refused; with any bit flipped it is refused or read. */
static void bears_damage(void **state)
{
    (void)state;
    static const char *const names[] = { "arrow-v1-snappy", "arrow-v2-zstd", "polars-lz4",
                                         "duckdb-gzip" };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[128];
        size_t n;
        snprintf(path, sizeof path, GOLDEN "%s.parquet", names[k]);
        char *bytes = files_get(path, &n);
        torture_cuts("cut.parquet", bytes, n, read_all);
        if (n < 4000)
            assert_true(torture_flips("flip.parquet", bytes, n, 0, n, read_all) > n);
        free(bytes);
        torture_memory(path, read_all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_writers_wrote),
        cmocka_unit_test(shows_a_row_as_json),
        cmocka_unit_test(refuses_what_it_does_not_read),
        cmocka_unit_test(refuses_what_unpacks_to_too_much),
        cmocka_unit_test(bears_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
