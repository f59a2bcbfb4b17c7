/* The expected texts were printed by CPython 3.11. */
#include "jinja/pytext.h"

#include "support/check.h"

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

static void must_be(str *have, const char *want)
{
    str_puts(have, "");
    assert_true(str_ok(have));
    assert_string_equal(have->p, want);
    str_free(have);
}

static void strips_white_space(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { " \t\na b\r\n", "a b" },
        { "\x1c\u00a0\u3000x\u2028\xC2\x85", "x" },
        { " ", "" },
        { "\u200bx", "\u200bx" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        slice s = pytext_strip(text(rows[i][0]));
        assert_int_equal(s.n, strlen(rows[i][1]));
        assert_memory_equal(s.p, rows[i][1], s.n);
    }
}

static void changes_case(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "HE said", "he said" },
        { "\u0130X", "i\u0307x" },
        { "\u039F\u0394\u039F\u03A3 \u03A3.", "\u03BF\u03B4\u03BF\u03C2 \u03C3." },
        { "\u0391\u03A3\u0391", "\u03B1\u03C3\u03B1" },
        { "\u01C4a", "\u01C6a" },
        { "\uFB01N", "\uFB01n" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str lower = { 0 };
        pytext_lower(&lower, text(rows[i][0]));
        must_be(&lower, rows[i][1]);
    }
}

static void finds_and_replaces(void **state)
{
    (void)state;
    str out = { 0 };
    assert_int_equal(pytext_length(text("a\u00e9\u3000")), 3);
    assert_int_equal(pytext_find(text("abab"), "b"), 1);
    assert_int_equal(pytext_find_last(text("abab"), "ab"), 2);
    assert_int_equal(pytext_find_last(text("abab"), "c"), 4);
    assert_int_equal(pytext_find_last(text("a"), "abc"), 1);
    pytext_replace(&out, text("a    b"), "  ", " ");
    must_be(&out, "a  b");
}

static void prints_json(void **state)
{
    (void)state;
    json_t *v = json_loads("{\"b\": [1, 2.50, true, null, []], \"a\": {}, \"\\u00e9\\\"\": "
                           "\"\\u001f\\n\\u007f/\\\\\"}",
                           0, NULL);
    str out = { 0 };
    pytext_json(&out, v);
    json_decref(v);
    must_be(&out, "{\n  \"b\": [\n    1,\n    2.5,\n    true,\n    null,\n    []\n  ],\n"
                  "  \"a\": {},\n  \"\u00e9\\\"\": \"\\u001f\\n\x7f/\\\\\"\n}");
}

static void reads_literals(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "[2,5]", "[2, 5]" },
        { "[ -1, +2.50, .5, 2. ,]", "[-1, 2.5, 0.5, 2.0]" },
        { "[-0, -0.0, 00]", "[0, -0.0, 0]" },
        { "[[1],(2,), (3, 4), True, None]", "[[1], (2,), (3, 4), True, None]" },
        { "['a', \"b'\"]", "['a', \"b'\"]" },
        { "[]", "[]" },
        { "[2,5)", NULL },
        { "[a]", NULL },
        { "[1/2]", NULL },
        { "[01]", NULL },
        { "[1 2]", NULL },
        { "[,]", NULL },
        { "[1]x]", NULL },
        { "[\\frac{1}{2},1]", NULL },
        { "1", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out = { 0 };
        str_puts(&out, "=");
        assert_int_equal(pytext_literal(&out, text(rows[i][0])), rows[i][1] != NULL);
        assert_string_equal(out.p + 1, rows[i][1] ? rows[i][1] : "");
        str_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_white_space), cmocka_unit_test(changes_case),
        cmocka_unit_test(finds_and_replaces), cmocka_unit_test(prints_json),
        cmocka_unit_test(reads_literals),
    };
    return cmocka_run_group_tests_name("pytext", tests, NULL, NULL);
}
