#include "eval/mathtext.h"

#include "support/check.h"

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

/* NULL: the reference raises an exception. */
static void normalises(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "\\dfrac12", "\\frac{1}{2}" },
        { "\\frac1{72}", "\\frac{1}{72}" },
        { "\\frac{72}1", "\\frac{72}1" },
        { "\\frac1", "\\frac1" },
        { "\\frac", NULL },
        { "\\sqrt3 + \\sqrt{2}", "\\sqrt{3}+\\sqrt{2}" },
        { "2\\sqrt", NULL },
        { "\\sqrt\\sqrt2", NULL },
        { "0.5", "\\frac{1}{2}" },
        { ".5", "\\frac{1}{2}" },
        { "x=5", "5" },
        { "xyz=5", "xyz=5" },
        { "1/2", "\\frac{1}{2}" },
        { "-1/2", "\\frac{-1}{2}" },
        { "01/2", "01/2" },
        { "1_0/2", "1_0/2" },
        { "\u0663/2", "\u0663/2" },
        { "a/b", NULL },
        { "1/", NULL },
        { "1__0/2", NULL },
        { "1/2/3", "1/2/3" },
        { "5\\text{ cm}", "5" },
        { "\\text{ a}\\text{ b}", NULL },
        { "50\\%", "50" },
        { "\\left(1, 2\\right)", "(1,2)" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out = { 0 };
        str_puts(&out, "");
        assert_int_equal(hendrycks_normalize(&out, text(rows[i][0])), rows[i][1] != NULL);
        if (rows[i][1])
            assert_string_equal(out.p, rows[i][1]);
        str_free(&out);
    }
}

static void compares(void **state)
{
    (void)state;
    bool ok;
    assert_true(hendrycks_equal(text("1/2"), text("\\frac12"), &ok));
    assert_true(hendrycks_equal(text("a/b"), text("a/b"), &ok));
    assert_false(hendrycks_equal(text("a/b"), text("a / b"), &ok)); /* the raw texts differ */
    assert_false(hendrycks_equal(text("1"), text("2"), &ok));
    assert_true(ok);
}

static void finds_the_last_box(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "\\boxed{1} or \\boxed{\\frac{a}{b}}.", "\\frac{a}{b}" },
        { "$\\boxed 7$ and $8$", "7" },
        { "\\boxed{5} \\boxed x", "x" },
        { "\\boxed{}", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        slice s;
        must(boxed_answer(text(rows[i][0]), &s));
        assert_int_equal(s.n, strlen(rows[i][1]));
        assert_memory_equal(s.p, rows[i][1], s.n);
    }
}

static void refuses_solutions_without_one(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "7", "\\boxed", "\\boxed{1", "\\boxed[1]{2}", "\\fbox{1}"
    };
    slice s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        must_fail(boxed_answer(text(bad[i]), &s), PESC_FORMAT, "no answer");
}

static void cuts_at_dollars(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "a $b$ c $d$ e", "b$ c $d" },
        { "a $b", "a $b" },
        { "$$", "" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        slice s = boxed_dollars(text(rows[i][0]));
        assert_int_equal(s.n, strlen(rows[i][1]));
        assert_memory_equal(s.p, rows[i][1], s.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises),         cmocka_unit_test(compares),
        cmocka_unit_test(finds_the_last_box), cmocka_unit_test(refuses_solutions_without_one),
        cmocka_unit_test(cuts_at_dollars),
    };
    return cmocka_run_group_tests_name("hendrycks", tests, NULL, NULL);
}
