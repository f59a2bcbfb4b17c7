#include "eval/boxed.h"

#include "support/check.h"

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
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
        cmocka_unit_test(finds_the_last_box),
        cmocka_unit_test(refuses_solutions_without_one),
        cmocka_unit_test(cuts_at_dollars),
    };
    return cmocka_run_group_tests_name("boxed", tests, NULL, NULL);
}
