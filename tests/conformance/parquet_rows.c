/* parquet_rows: the rows of Parquet files, for tools/conformance/parquet.py and the tests.
 *
 * Reads lines "PATH" and writes for each one line of JSON: {"rows": [...]}, read in a shuffled
 * order and written in the file's, or {"error": sentence}. */
#include "base/mem.h"
#include "format/parquet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every row, beginning with the one in the middle and going on in steps, so that pages are left and
 * come back. */
static pesc_status read_rows(parquet *p, json_t *rows)
{
    size_t n = (size_t)parquet_rows(p), step = n > 8 ? n / 3 * 2 + 1 : 1;
    while (n && step > 1 && n % step == 0)
        step++;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(rows, json_null());
    for (size_t i = 0; i < n; i++) {
        json_t *v;
        TRY(parquet_row(p, (i * step + n / 2) % n, &v));
        json_array_set_new(rows, (i * step + n / 2) % n, v);
    }
    for (size_t i = 0; i < n; i++) { /* those that a step with a common divisor left out */
        json_t *v;
        if (!json_is_null(json_array_get(rows, i)))
            continue;
        TRY(parquet_row(p, i, &v));
        json_array_set_new(rows, i, v);
    }
    return PESC_OK;
}

static json_t *answer_for(const char *path)
{
    io_map *map;
    parquet *p = NULL;
    json_t *rows = json_array();
    pesc_status s = io_map_open(&map, path);
    if (s == PESC_OK) {
        s = parquet_open(&p, map, UINT64_MAX);
        if (s == PESC_OK)
            s = read_rows(p, rows);
        parquet_close(p);
        io_map_close(map);
    }
    if (s == PESC_OK)
        return json_pack("{so}", "rows", rows);
    json_decref(rows);
    return json_pack("{ss}", "error", pesc_last_error());
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        json_t *answer = answer_for(line);
        json_dumpf(answer, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
    }
    free(line);
    return 0;
}
