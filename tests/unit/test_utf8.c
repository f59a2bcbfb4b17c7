#include "base/utf8.h"
#include "support/check.h"

/* Every code point survives; surrogates and what lies beyond do not decode. */
static void round_trips_every_scalar(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char b[4];
        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        int n = utf8_encode(cp, b);
        uint32_t back = 1;
        assert_int_equal(utf8_decode(b, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        for (int cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_decode(b, (size_t)cut, NULL), 0);
            assert_int_equal(utf8_partial_tail(b, (size_t)cut), cut);
        }
    }
}

static void refuses_bad_forms(void **state)
{
    (void)state;
    static const char *const bad[] = { "\xC0\x80",         "\xE0\x80\x80", "\xED\xA0\x80",
                                       "\xF4\x90\x80\x80", "\x80",         "\xFF",
                                       "\xF8\x88\x80\x80", "\xC3(",        "\xE2\x28\xA1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    assert_true(utf8_valid("caf\xC3\xA9 \xF0\x9F\x98\x80 0123456789", 22));
}

/* As Python: len(x.decode(errors="replace")) counts one U+FFFD a maximal subpart. */
static void counts_subparts_like_python(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, subparts;
    } rows[] = { { "\xE2\x82", 2, 1 },         { "\xF0\x9F\x98", 3, 1 },
                 { "\xC0\x80", 2, 2 },         { "\xED\xA0\x80", 3, 3 },
                 { "\xFF\xFE", 2, 2 },         { "\xF4\x90\x80\x80", 4, 4 },
                 { "\xE2\x82\xE2\x82", 4, 2 }, { "\x80", 1, 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t at = 0, seen = 0;
        while (at < rows[i].n) {
            assert_int_equal(utf8_decode(rows[i].bytes + at, rows[i].n - at, NULL), 0);
            at += utf8_bad_length(rows[i].bytes + at, rows[i].n - at);
            seen++;
        }
        assert_int_equal(seen, rows[i].subparts);
    }
}

static void tail_needs_a_start(void **state)
{
    (void)state;
    assert_int_equal(utf8_partial_tail("abc", 3), 0);
    assert_int_equal(utf8_partial_tail("a\x80", 2), 0);
    assert_int_equal(utf8_partial_tail("a\xF0\x9F", 3), 2);
    assert_int_equal(utf8_partial_tail("a\xED\xA0", 3), 0);
    assert_int_equal(utf8_partial_tail("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips_every_scalar),
        cmocka_unit_test(refuses_bad_forms),
        cmocka_unit_test(counts_subparts_like_python),
        cmocka_unit_test(tail_needs_a_start),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
