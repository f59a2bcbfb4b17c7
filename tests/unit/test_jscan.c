/* jscan.c; jansson is the oracle of what is JSON. */
#include "format/jscan.h"
#include "support/check.h"

#include <jansson.h>
#include <stdlib.h>

static jscan over(const char *text, size_t n)
{
    return (jscan){ .file = "x.json", .text = text, .n = n };
}

/* Whether the whole text is one value. */
static bool accepts(const char *text, size_t n)
{
    jscan j = over(text, n);
    return jscan_skip(&j) == PESC_OK && jscan_peek(&j) == '\0' && j.at == j.n;
}

static bool oracle(const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_decref(v);
    return v != NULL;
}

static const char *const texts[] = {
    "{}",
    "[]",
    "[1,2]",
    "[1,]",
    "[,1]",
    "{\"a\":1}",
    "{\"a\":1,}",
    "{\"a\"}",
    "{a:1}",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ude00\\ud83d\"",
    "\"\\q\"",
    "\"a\nb\"",
    "\"",
    "1",
    "-1",
    "01",
    "-",
    "1.",
    "1.5e",
    "1.5e+3",
    ".5",
    "1e5",
    "+1",
    "true",
    "tru",
    "null",
    "nullx",
    "[true,false]",
    "{\"a\":[{\"b\":[]},{}]}",
    "[[[[]]]",
    "[]]",
    "{\"a\":[}",
    "[1 2]",
    "",
    " ",
    "\xff",
    "\"\xc3\x28\"",
    "\"\\u12g4\"",
    "[\"a\" : 1]",
    "{\"a\" , 1}",
    "{1:2}",
    "{\"a\":1 \"b\":2}",
    "-0",
    "0",
    "00",
    "\"\\u\"",
};

static void test_skips_exactly_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        if (accepts(texts[i], n) != oracle(texts[i], n))
            fail_msg("%s: jansson says %d", texts[i], oracle(texts[i], n));
    }
}

/* Random strings over the letters that matter. */
static void test_agrees_with_jansson(void **state)
{
    static const char letters[] = "{}[]\",:\\u0d8e1-.tfn a";
    (void)state;
    unsigned seed = 1;
    size_t valid = 0;
    for (int i = 0; i < 300000; i++) {
        char text[12];
        size_t n = 0;
        do {
            seed = seed * 1664525 + 1013904223;
            text[n++] = letters[(seed >> 16) % (sizeof letters - 1)];
        } while (n < sizeof text && (seed >> 8) % 8);
        bool want = oracle(text, n);
        valid += want;
        if (accepts(text, n) != want)
            fail_msg("%.*s: jansson says %d", (int)n, text, want);
    }
    assert_true(valid > 1000);
}

static void test_limits_depth(void **state)
{
    char text[1000] = "";
    (void)state;
    memset(text, '[', JSCAN_MAX_DEPTH);
    memset(text + JSCAN_MAX_DEPTH, ']', JSCAN_MAX_DEPTH);
    assert_true(accepts(text, 2 * JSCAN_MAX_DEPTH));
    memset(text, '[', sizeof text);
    jscan j = over(text, sizeof text);
    must_fail(jscan_skip(&j), PESC_FORMAT, "x.json: byte 64: is nested more than 64 levels deep");
}

static void test_unescapes(void **state)
{
    static const char text[] = "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"";
    jscan j = over(text, sizeof text - 1);
    str s = { 0 };
    (void)state;
    must(jscan_string(&j, &s));
    assert_string_equal(s.p, "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80");
    str_free(&s);
}

static void test_walks_objects(void **state)
{
    static const char text[] = " { \"a\" : [1, 22] , \"b\":[] } ";
    jscan j = over(text, sizeof text - 1);
    str key = { 0 };
    size_t n = 0, k = 0;
    bool more;
    uint64_t v;
    (void)state;
    must(jscan_expect(&j, '{'));
    must(jscan_member(&j, &n, &more, &key));
    assert_true(more && n == 1 && strcmp(key.p, "a") == 0);
    must(jscan_expect(&j, '['));
    must(jscan_element(&j, &k, &more));
    must(jscan_u64(&j, &v));
    assert_true(more && v == 1);
    must(jscan_element(&j, &k, &more));
    must(jscan_u64(&j, &v));
    assert_true(more && v == 22 && k == 2);
    must(jscan_element(&j, &k, &more));
    assert_false(more);
    must(jscan_member(&j, &n, &more, &key));
    assert_true(more && n == 2 && strcmp(key.p, "b") == 0);
    must(jscan_skip(&j));
    must(jscan_member(&j, &n, &more, &key));
    assert_true(!more && jscan_peek(&j) == '\0');
    str_free(&key);
}

static void test_reads_whole_numbers(void **state)
{
    static const struct {
        const char *text, *part; /* part NULL: accepted */
    } rows[] = {
        { "0", NULL },
        { "18446744073709551615", NULL },
        { "18446744073709551616", "does not fit 64 bits" },
        { "99999999999999999999999999", "does not fit 64 bits" },
        { "-1", "found '-', expected a whole number" },
        { "1.0", "fraction or exponent" },
        { "1E3", "fraction or exponent" },
        { "00", "leading zero" },
        { "", "the text ends, expected a whole number" },
        { "x", "found 'x', expected a whole number" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        jscan j = over(rows[i].text, strlen(rows[i].text));
        uint64_t v;
        if (rows[i].part)
            must_fail(jscan_u64(&j, &v), PESC_FORMAT, rows[i].part);
        else
            must(jscan_u64(&j, &v));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skips_exactly_json), cmocka_unit_test(test_agrees_with_jansson),
        cmocka_unit_test(test_limits_depth),       cmocka_unit_test(test_unescapes),
        cmocka_unit_test(test_walks_objects),      cmocka_unit_test(test_reads_whole_numbers),
    };
    return cmocka_run_group_tests_name("jscan", tests, NULL, NULL);
}
