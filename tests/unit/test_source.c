#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/pesc-source-XXXXXX";

static const char *put(const char *name, const char *text, size_t n)
{
    static char path[2][256];
    static int turn;
    char *p = path[turn ^= 1];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    must(io_write_file(p, text, n));
    return p;
}

static void finds_every_line(void **state)
{
    (void)state;
    char text[8192];
    size_t n = 0;
    for (int i = 0; i < 100; i++) /* blank lines, CRLF and no newline at the end */
        n +=
            (size_t)snprintf(text + n, sizeof text - n, "%s{\"i\": %d}%s", i % 7 ? "" : "\n  \n", i,
                             i == 99 ? ""
                             : i % 3 ? "\n"
                                     : "\r\n");
    const char *path = put("a.jsonl", text, n);
    source *s;
    must(source_open(&s, &path, 1, 0));
    assert_int_equal(source_count(s), 100);
    for (uint64_t i = 0; i < 100; i++) {
        json_t *v;
        uint64_t at = (i * 37) % 100;
        must(source_record(s, at, &v));
        assert_int_equal(json_integer_value(json_object_get(v, "i")), at);
        json_decref(v);
    }
    assert_non_null(strstr(source_where(s, 1), "a.jsonl:4"));
    assert_non_null(strstr(source_where(s, 99), "a.jsonl:130")); /* 15 times two blank lines */
    assert_non_null(strstr(source_where(s, 2), "a.jsonl:5"));
    source_close(s);
}

static void refuses_a_record_that_is_too_long(void **state)
{
    (void)state;
    enum { MOST = 16 << 20 };
    char *text = mem_alloc(MOST + 2, 1);
    memset(text, 'a', MOST + 1);
    memcpy(text, "{\"t\":\"", 6);
    memcpy(text + MOST - 2, "\"}\n", 3);
    const char *path = put("long.jsonl", text, MOST + 1);
    source *s;
    json_t *v;
    must(source_open(&s, &path, 1, 0));
    must(source_record(s, 0, &v));
    json_decref(v);
    source_close(s);
    memcpy(text + MOST - 2, "a\"}", 3);
    text[MOST + 1] = '\n';
    path = put("long.jsonl", text, MOST + 2);
    must(source_open(&s, &path, 1, 0));
    must_fail(source_record(s, 0, &v), PESC_FORMAT,
              "long.jsonl:1: the record is 16777217 bytes long; at most 16777216 are read");
    source_close(s);
    mem_free(text);
}

static void finds_every_element(void **state)
{
    (void)state;
    const char *text = " [ {\"a\": \"],[\\\"{\"}, {\"a\": [1, {\"b\": 2}]},\n{\"a\": {}} ] ";
    const char *path = put("b.json", text, strlen(text));
    source *s;
    must(source_open(&s, &path, 1, 0));
    assert_int_equal(source_count(s), 3);
    json_t *v;
    must(source_record(s, 0, &v));
    assert_string_equal(json_string_value(json_object_get(v, "a")), "],[\"{");
    json_decref(v);
    must(source_record(s, 2, &v));
    assert_true(json_is_object(json_object_get(v, "a")));
    json_decref(v);
    source_close(s);
}

static void numbers_through_files(void **state)
{
    (void)state;
    const char *paths[2];
    paths[0] = put("c.jsonl", "{\"i\":0}\n{\"i\":1}\n", 16);
    paths[1] = put("d.json", "[{\"i\":2}]", 9);
    source *s;
    must(source_open(&s, paths, 2, 0));
    assert_int_equal(source_count(s), 3);
    assert_int_equal(source_file_of(s, 2), 1);
    json_t *v;
    must(source_record(s, 2, &v));
    assert_int_equal(json_integer_value(json_object_get(v, "i")), 2);
    json_decref(v);
    uint64_t hash = source_hash(s), first = source_file_hash(s, 0), second = source_file_hash(s, 1);
    assert_int_equal(source_file_bytes(s, 1), 9);
    source_close(s);
    put("c.jsonl", "{\"i\":0}\n{\"i\":9}\n", 16);
    char c[256], d[256];
    snprintf(c, sizeof c, "%s/c.jsonl", dir);
    snprintf(d, sizeof d, "%s/d.json", dir);
    must(source_open(&s, (const char *[]){ c, d }, 2, 0));
    assert_true(source_hash(s) != hash);
    assert_true(source_file_hash(s, 0) != first);
    assert_true(source_file_hash(s, 1) == second); /* which file changed is known */
    source_close(s);
    put("c.jsonl", "{\"i\":0}\n{\"i\":1}\n", 16);
    put("d.json", "[{\"i\":3}]", 9);
    must(source_open(&s, (const char *[]){ c, d }, 2, 0));
    assert_true(source_hash(s) != hash); /* the hash covers the last file too */
    assert_true(source_file_hash(s, 0) == first);
    source_close(s);
}

static void refuses_what_is_no_data(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } rows[] = { { "", "is empty" },
                 { "\n \n", "is empty" },
                 { "[]", "is empty" },
                 { "\xEF\xBB\xBF \n", "is empty" },
                 { "\xFF\xFE{", "UTF-16" },
                 { "PK\x03\x04", "is an archive, which is not read; convert it: unzip '" },
                 { "BZh9", "is compressed, which is not read; convert it: bunzip2 -k '" },
                 { "PAR1", "is Parquet, but it does not end in PAR1; the file is cut or damaged" },
                 { "\x1f\x8b\x08", "the gzip data is cut or damaged after 0 unpacked bytes" },
                 { "{\"data\": [{\"a\":1}", "ends inside its array" },
                 { "{\"data\": [{\"a\":1}], \"n\": 3", "ends inside its object" },
                 { "{\"data\": [{\"a\":1}]]", "byte 18: found 0x5D, expected \",\" or \"}\"" },
                 { "{\"data\": [{\"a\":1}]} {}",
                   "byte 20: found 0x7B, expected the end of the file" },
                 { "a,b\n1,2\n", "expected JSON lines" },
                 { "[{\"a\":1}", "ends inside its array" },
                 { "[{\"a\":1},\n", "byte 8: found 0x2C, expected \"]\"" },
                 { "[{\"a\":1}, {\"a\":", "ends inside its array" },
                 { "[{\"a\":1},]", "byte 8: found 0x2C, expected \"]\"" },
                 { "[{\"a\":1}, ,{}]", "byte 10: found 0x2C, expected an element" },
                 { "[{\"a\":1} {}]", "byte 9: found 0x7B, expected \",\"" },
                 { "[[{\"a\":1}]]", "byte 1: found 0x5B, expected an object" },
                 { "[[[[[[", "byte 1: found 0x5B, expected an object" },
                 { "[{\"a\":1}, [2]]", "byte 10: found 0x5B, expected an object" },
                 { "[{\"a\":1}]\n{}", "byte 10: found 0x7B, expected the end of the file" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = put("bad", rows[i].text, strlen(rows[i].text));
        source *s;
        must_fail(source_open(&s, &path, 1, 0), PESC_FORMAT, rows[i].sentence);
    }
}

static void names_the_line_of_a_bad_record(void **state)
{
    (void)state;
    static const char *const bad[] = { "{\"a\":1", "[1]", "3", "{\"a\":1} {\"a\":2}",
                                       "{\"a\":\"\x01\"}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        int n = snprintf(text, sizeof text, "{\"ok\":1}\n\n%s\n", bad[i]);
        const char *path = put("bad.jsonl", text, (size_t)n);
        source *s;
        json_t *v;
        must(source_open(&s, &path, 1, 0));
        must_fail(source_record(s, 1, &v), PESC_FORMAT, "bad.jsonl:3");
        if (i == 0)
            must_fail(source_record(s, 1, &v), PESC_FORMAT, "; each line must be one whole record");
        source_close(s);
    }
}

/* A line of /proc/self/status, in bytes. */
static size_t memory(const char *name)
{
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ": %lu", &kib);
    fclose(f);
    return (size_t)kib << 10;
}

/* A file of 96 MiB: opening it, reading records in random order and naming a line keep none of it
 * in memory. */
static void large_file_stays_outside(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer's own memory grows with what is read */
#endif
    enum { RECORD = 4096, RECORDS = 24 << 10, MOST = 40 << 20 };
    static char piece[1 << 20];
    char path[256];
    snprintf(path, sizeof path, "%s/large.jsonl", dir);
    memset(piece, ' ', sizeof piece);
    for (size_t at = 0; at < sizeof piece; at += RECORD) {
        memcpy(piece + at, "{\"a\":1}", 7);
        piece[at + RECORD - 1] = '\n';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < RECORDS * (RECORD >> 10) >> 10; i++)
        assert_int_equal(fwrite(piece, sizeof piece, 1, f), 1);
    fclose(f);
    size_t before = memory("VmHWM");
    const char *paths[] = { path };
    source *s;
    must(source_open(&s, paths, 1, 0));
    assert_int_equal(source_count(s), RECORDS);
    for (uint64_t i = 0; i < RECORDS; i++) {
        json_t *v;
        must(source_record(s, i * 5987 % RECORDS, &v));
        json_decref(v);
    }
    assert_non_null(strstr(source_where(s, RECORDS - 1), "large.jsonl:24576"));
    assert_in_range(memory("VmHWM") - before, 0, MOST);
    source_close(s);
    unlink(path);
}

/* The texts of field `key` of all records, with | after each. */
static const char *all_of(const char *name, const char *text, size_t n, const char *key)
{
    static char out[512];
    const char *path = put(name, text, n);
    source *s;
    must(source_open(&s, &path, 1, 0));
    out[0] = '\0';
    for (uint64_t i = 0; i < source_count(s); i++) {
        json_t *v;
        must(source_record(s, i, &v));
        const char *value = json_string_value(json_object_get(v, key));
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s|", value ? value : "(none)");
        json_decref(v);
    }
    source_close(s);
    return out;
}

static void every_layout(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *key, *values;
    } rows[] = {
        { "a.jsonl", "\xEF\xBB\xBF{\"k\":\"1\"}\r\n\r\n{\"k\":\"2\"}", "k", "1|2|" },
        { "a.json", "\xEF\xBB\xBF[{\"k\":\"1\"}]", "k", "1|" },
        { "a.json",
          "{\"v\": {\"data\": [1]}, \"data\": [ {\"k\":\"1\"},\n{\"k\":\"2\"} ], \"n\": [2]}\n",
          "k", "1|2|" },
        { "a.jsonl", "{\"data\": [\"x\"], \"k\":\"1\"}\n{\"data\": [\"y\"], \"k\":\"2\"}\n", "k",
          "1|2|" },
        { "a.csv", "k,l\n1,2\n3,4\n", "k", "1|3|" },
        { "a.csv", "\xEF\xBB\xBFl, k \r\n1,2\r\n\r\n3,4", "k", "2|4|" },
        { "a.CSV", "k,l\n\"a, b\",\"say \"\"hi\"\"\"\n\"two\nlines\n\n\",x\n,\"\"\n", "k",
          "a, b|two\nlines\n\n||" },
        { "a.csv", "l,k\nx,a \"quoted\" word\nx,\"\"\"\"\n", "k", "a \"quoted\" word|\"|" },
        { "a.tsv", "k\tl\n1, one\t2\n\"a\tb\"\t4\n", "k", "1, one|a\tb|" },
        { "a.txt", "\n\nOne line.\r\nAnother.\r\n \r\n\nThe {second}.\n", "text",
          "One line.\nAnother.|The {second}.|" },
        { "a.txt", "[Not JSON]", "text", "[Not JSON]|" },
        { "a.txt", "{\"k\":\"1\"}\n", "k", "1|" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(all_of(rows[i].name, rows[i].text, strlen(rows[i].text), rows[i].key),
                            rows[i].values);
}

static void bad_rows_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        { "a,b\n1,2\n3\n", "t.csv:3: found 1 cells, expected 2 as in the header" },
        { "a,b\n1,2\n3,4,5\n", "t.csv:3: found 3 cells, expected 2" },
        { "a,b\n1,2\n\"3,4\n5,6\n",
          "t.csv:3: a quotation mark that begins a cell has no second one" },
        { "a,b\n1,2\n\"3\"x,4\n", "t.csv:3: found text after the quotation mark" },
        { "a,b\n1,2\n\xFF,4\n", "t.csv:3: a: is not UTF-8" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = put("t.csv", rows[i].text, strlen(rows[i].text));
        source *s;
        json_t *v;
        must(source_open(&s, &path, 1, 0));
        assert_int_equal(source_count(s), 2);
        must_fail(source_record(s, 1, &v), PESC_FORMAT, rows[i].sentence);
        source_close(s);
    }
    const char *path = put("t.csv", "a,a\n1,2\n", 8);
    source *s;
    must_fail(source_open(&s, &path, 1, 0), PESC_FORMAT,
              "in the header: two columns have the name");
    path = put("t.csv", "a,\xFF\n1,2\n", 8);
    must_fail(source_open(&s, &path, 1, 0), PESC_FORMAT,
              "in the header: the name of column 2 is not UTF-8");
    path = put("t.csv", "a,b\0c\n1,2\n", 10);
    must_fail(source_open(&s, &path, 1, 0), PESC_FORMAT,
              "in the header: the name of column 2 holds a NUL");
}

/* Time in proportion to the number of columns. */
static void many_columns_are_read_at_once(void **state)
{
    (void)state;
    enum { COLUMNS = 110000, MOST_SECONDS = 2 };
    str text = { 0 };
    for (int line = 0; line < 2; line++)
        for (int i = 0; i < COLUMNS; i++)
            str_printf(&text, "%s%d%c", line ? "" : "c", i, i + 1 < COLUMNS ? ',' : '\n');
    const char *path = put("wide.csv", text.p, text.n);
    source *s;
    json_t *v;
    clock_t begin = clock();
    must(source_open(&s, &path, 1, 0));
    must(source_record(s, 0, &v));
    assert_true(clock() - begin < MOST_SECONDS * CLOCKS_PER_SEC);
    assert_int_equal(json_object_size(v), COLUMNS);
    assert_string_equal(json_string_value(json_object_get(v, "c109999")), "109999");
    json_decref(v);
    source_close(s);
    str_free(&text);
}

/* A line of NUL bytes is no blank line: it is what a crash leaves in a file. */
static void nul_bytes_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":1}\n\0\0\0\0\n{\"a\":2}\n";
    const char *path = put("nul.jsonl", text, sizeof text - 1);
    source *s;
    json_t *v;
    must(source_open(&s, &path, 1, 0));
    assert_int_equal(source_count(s), 3);
    must_fail(source_record(s, 1, &v), PESC_FORMAT, "nul.jsonl:2: holds a NUL byte");
    source_close(s);
}

static void directories_are_explained(void **state)
{
    (void)state;
    char sub[256];
    const char *paths[] = { sub };
    source *s;
    snprintf(sub, sizeof sub, "%s/saved", dir);
    must(io_make_dir(sub));
    must_fail(source_open(&s, paths, 1, 0), PESC_IO, "saved: has no data files of the split train");
    put("saved/state.json", "{}", 2);
    must_fail(source_open(&s, paths, 1, 0), PESC_FORMAT, "saved').to_json('data.jsonl')\"");
    put("saved/dataset_dict.json", "{}", 2);
    must_fail(source_open(&s, paths, 1, 0), PESC_FORMAT, "saved')['train'].to_json(");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_line),
        cmocka_unit_test(refuses_a_record_that_is_too_long),
        cmocka_unit_test(finds_every_element),
        cmocka_unit_test(numbers_through_files),
        cmocka_unit_test(refuses_what_is_no_data),
        cmocka_unit_test(names_the_line_of_a_bad_record),
        cmocka_unit_test(large_file_stays_outside),
        cmocka_unit_test(every_layout),
        cmocka_unit_test(bad_rows_are_named),
        cmocka_unit_test(many_columns_are_read_at_once),
        cmocka_unit_test(nul_bytes_are_refused),
        cmocka_unit_test(directories_are_explained),
    };
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests_name("source", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) != 0 || failed;
}
