#include "base/io.h"
#include "base/mem.h"
#include "support/check.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
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
    must(source_open(&s, &path, 1));
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

static void finds_every_element(void **state)
{
    (void)state;
    const char *text = " [ {\"a\": \"],[\\\"{\"}, {\"a\": [1, {\"b\": 2}]},\n{\"a\": {}} ] ";
    const char *path = put("b.json", text, strlen(text));
    source *s;
    must(source_open(&s, &path, 1));
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
    must(source_open(&s, paths, 2));
    assert_int_equal(source_count(s), 3);
    assert_int_equal(source_file_of(s, 2), 1);
    json_t *v;
    must(source_record(s, 2, &v));
    assert_int_equal(json_integer_value(json_object_get(v, "i")), 2);
    json_decref(v);
    uint64_t hash = source_hash(s);
    source_close(s);
    put("c.jsonl", "{\"i\":0}\n{\"i\":9}\n", 16);
    char c[256], d[256];
    snprintf(c, sizeof c, "%s/c.jsonl", dir);
    snprintf(d, sizeof d, "%s/d.json", dir);
    must(source_open(&s, (const char *[]){ c, d }, 2));
    assert_int_not_equal(source_hash(s), hash);
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
                 { "\xEF\xBB\xBF{}", "byte order mark" },
                 { "\xFF\xFE{", "UTF-16" },
                 { "PK\x03\x04", "expected JSON lines" },
                 { "\x1f\x8b\x08", "expected JSON lines" },
                 { "a,b\n1,2\n", "expected JSON lines" },
                 { "[{\"a\":1}", "ends inside its array" },
                 { "[{\"a\":1},\n", "byte 8: found 0x2C, expected \"]\"" },
                 { "[{\"a\":1}, {\"a\":", "ends inside its array" },
                 { "[{\"a\":1},]", "byte 8: found 0x2C, expected \"]\"" },
                 { "[{\"a\":1}, ,{}]", "byte 10: found 0x2C, expected an element" },
                 { "[{\"a\":1} {}]", "byte 9: found 0x7B, expected \",\"" },
                 { "[[{\"a\":1}]]", "byte 1: found 0x5B, expected an element" },
                 { "[{\"a\":1}]\n{}", "byte 10: found 0x7B, expected the end of the file" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = put("bad", rows[i].text, strlen(rows[i].text));
        source *s;
        must_fail(source_open(&s, &path, 1), PESC_FORMAT, rows[i].sentence);
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
        must(source_open(&s, &path, 1));
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

/* A file of 96 MiB: neither opening it nor reading here and there nor naming a line keeps it. */
static void large_file_stays_outside(void **state)
{
    (void)state;
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
    must(source_open(&s, paths, 1));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_line),
        cmocka_unit_test(finds_every_element),
        cmocka_unit_test(numbers_through_files),
        cmocka_unit_test(refuses_what_is_no_data),
        cmocka_unit_test(names_the_line_of_a_bad_record),
        cmocka_unit_test(large_file_stays_outside),
    };
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests_name("source", tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) != 0 || failed;
}
