#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"

static void builds_and_remembers_failure(void **state)
{
    (void)state;
    str s = { 0 };
    str_puts(&s, "a");
    str_printf(&s, "%d-%s", 12, "b");
    str_putc(&s, '!');
    assert_string_equal(s.p, "a12-b!");
    static char big[500];
    mem_fail_at(1);
    str_add(&s, big, sizeof big);
    assert_true(mem_fail_fired());
    assert_false(str_ok(&s));
    str_puts(&s, "more");
    assert_string_equal(s.p, "a12-b!");
    str_free(&s);
}

static void parses_whole_numbers_only(void **state)
{
    (void)state;
    long long v = -1;
    assert_true(str_to_i64("42", 0, 100, &v) && v == 42);
    assert_true(str_to_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v) && v == INT64_MIN);
    assert_true(str_to_i64("9223372036854775807", 0, INT64_MAX, &v) && v == INT64_MAX);
    static const char *const bad[] = { "",
                                       "-",
                                       "+1",
                                       " 1",
                                       "1 ",
                                       "0x1",
                                       "1e3",
                                       "101",
                                       "-1",
                                       "9223372036854775808",
                                       "99999999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_i64(bad[i], 0, 100, &v));
}

static void parses_finite_fractions_only(void **state)
{
    (void)state;
    double v;
    assert_true(str_to_f64("2e-4", &v) && v == 2e-4);
    assert_true(str_to_f64("-.5", &v) && v == -0.5);
    static const char *const bad[] = {
        "", "nan", "inf", "1e999", "0x1p3", "1,5", "1 ", " 1", "e3"
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_f64(bad[i], &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_and_remembers_failure),
        cmocka_unit_test(parses_whole_numbers_only),
        cmocka_unit_test(parses_finite_fractions_only),
    };
    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
