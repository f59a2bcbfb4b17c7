#include "eval/taskdata.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/taskmade.h"
#include "support/torture.h"

#include <stdio.h>
#include <stdlib.h>

static taskdef *made_with(const char *columns)
{
    taskdef *d;
    json_t *v = json_loads(taskmade_choice, 0, NULL);
    if (columns)
        json_object_set_new(v, "columns", json_loads(columns, 0, NULL));
    must(taskdef_open(&d, v, "made.json", taskmade_work()));
    json_decref(v);
    return d;
}

static taskdef *made(void)
{
    return made_with(NULL);
}

static pesc_status read_with(const char *columns, const char *text, char sha256[DIGEST_TEXT])
{
    taskdef *def = made_with(columns);
    taskdata *d = NULL;
    files_text("made/test.jsonl", text);
    pesc_status s = taskdata_open(&d, def, "test", files_path(""), 0);
    if (s == PESC_OK && sha256)
        memcpy(sha256, d->sha256, DIGEST_TEXT);
    taskdata_close(d);
    taskdef_close(def);
    return s;
}

static pesc_status read_text(const char *text, char sha256[DIGEST_TEXT])
{
    return read_with(NULL, text, sha256);
}

static void reads_rows(void **state)
{
    (void)state;
    taskdef *def = made();
    taskdata *d;
    files_text("made/test.jsonl", taskmade_rows);
    must(taskdata_open(&d, def, "test", files_path(""), 0));
    assert_int_equal(json_array_size(d->rows), 3);
    taskdata_close(d);
    files_clear();
    files_text("made/data/test-00000-of-00002.jsonl", taskmade_rows);
    files_text("made/data/test-00001-of-00002.jsonl", taskmade_rows);
    must(taskdata_open(&d, def, "test", files_path(""), 0));
    assert_int_equal(json_array_size(d->rows), 6);
    taskdata_close(d);
    taskdef_close(def);
}

/* Neither the order of keys, nor other columns, nor blank lines change the hash; a value does. */
static void hashes_canonical_json(void **state)
{
    (void)state;
    char a[DIGEST_TEXT], b[DIGEST_TEXT], c[DIGEST_TEXT];
    must(read_text("{\"q\": \"x\", \"c\": [\"1\"], \"a\": 0}\n", a));
    must(read_text("\n{\"a\":0,\"id\":7,\"c\":[\"1\"],\"q\":\"x\"}", b));
    must(read_text("{\"q\": \"y\", \"c\": [\"1\"], \"a\": 0}\n", c));
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    must(read_with("{\"o\": \"object\"}", "{\"o\": {\"x\": 1, \"y\": 2}}\n", a));
    must(read_with("{\"o\": \"object\"}", "{\"o\": {\"y\": 2, \"x\": 1}}\n", b));
    assert_string_equal(a, b);
}

/* The rows and the hash of a Parquet file are those of the lines that it was made from. */
static void reads_parquet(void **state)
{
    (void)state;
    static const char *const endings[] = { "jsonl", "parquet" };
    taskdef *def = made_with("{\"question\": \"text\", \"answer\": \"text\"}");
    taskdata *d[2];
    for (int i = 0; i < 2; i++) {
        char name[64];
        size_t n;
        snprintf(name, sizeof name, "tests/golden/parquet/questions.%s", endings[i]);
        char *bytes = files_get(name, &n);
        snprintf(name, sizeof name, "%s/made/test.%s", endings[i], endings[i]);
        files_put(name, bytes, n);
        free(bytes);
        must(taskdata_open(&d[i], def, "test", files_path(endings[i]), 0));
    }
    assert_true(json_equal(d[0]->rows, d[1]->rows));
    assert_string_equal(d[0]->sha256, d[1]->sha256);
    taskdata_close(d[0]);
    taskdata_close(d[1]);
    taskdef_close(def);
}

static void refuses_bad_rows(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "", "is empty: it holds no record" },
        { "{\"q\": \"x\", \"c\": []}\n", "test.jsonl:1: the column \"a\" is missing" },
        { "\n{\"q\": 1, \"c\": [], \"a\": 0}",
          ":2: the column \"q\": found an integer, expected a text" },
        { "{\"q\": \"\", \"c\": [1], \"a\": 0}", "expected a list of texts" },
        { "{\"q\": \"\", \"c\": [], \"a\": {}}", "expected a text or a whole number" },
        { "[]", "is empty: it holds no record" },
        { "{\"q\"", "test.jsonl:1" },
        { "{\"q\": \"\", \"c\": [], \"a\": 0}\n{\"q\": \"\", \"c\": [,\n{}\n", "test.jsonl:2" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        must_fail(read_text(rows[i][0], NULL), PESC_FORMAT, rows[i][1]);
}

static void says_what_is_missing(void **state)
{
    (void)state;
    taskdef *def = made();
    taskdata *d;
    must_fail(
        taskdata_open(&d, def, "validation", "none", 0), PESC_IO,
        "made_choice: the file none/made/validation.jsonl (or .parquet, shards of it, .gz, .xz, "
        ".zst) is missing; it has the columns q, c, a and is published at example.org/made");
    taskdef_close(def);
}

static void finds_the_directory(void **state)
{
    (void)state;
    const struct {
        const char *given, *root, *want;
    } rows[] = { { "x", "y", "x" }, { NULL, "/none", "bench" }, { NULL, NULL, "bench" } };
    for (size_t i = 0; i < 3; i++) {
        if (rows[i].root)
            setenv("PESC_DATA", rows[i].root, 1);
        else
            unsetenv("PESC_DATA");
        char *dir = taskdata_dir(rows[i].given);
        assert_string_equal(dir, rows[i].want);
        mem_free(dir);
    }
    files_text("bench/x", "");
    setenv("PESC_DATA", files_path(""), 1);
    char *dir = taskdata_dir(NULL);
    assert_non_null(strstr(dir, "/bench"));
    mem_free(dir);
    unsetenv("PESC_DATA");
}

static taskdef *torture_def;
static pesc_status open_path(const char *path)
{
    taskdata *d = NULL;
    (void)path;
    pesc_status s = taskdata_open(&d, torture_def, "test", files_path(""), 0);
    taskdata_close(d);
    return s;
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    torture_def = made();
    torture_memory(files_text("made/test.jsonl", taskmade_rows), open_path);
    taskdef_close(torture_def);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rows),           cmocka_unit_test(hashes_canonical_json),
        cmocka_unit_test(refuses_bad_rows),     cmocka_unit_test(reads_parquet),
        cmocka_unit_test(says_what_is_missing), cmocka_unit_test(finds_the_directory),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("taskdata", tests, NULL, NULL);
}
