#include "eval/rational.h"

#include "support/check.h"

/* 1 equal, 0 different, -1 not decided. */
static int compare(const char *a, const char *b)
{
    bool equal = false;
    slice x = { a, strlen(a) }, y = { b, strlen(b) };
    return rational_compare(x, y, &equal) ? equal : -1;
}

static void compares_exactly(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int result;
    } rows[] = {
        { "1/2", "\\frac{2}{4}", 1 },
        { "0.5", "\\dfrac{1}{2}", 1 },
        { "-\\frac{1}{2}", "\\frac{1}{-2}", 1 },
        { "-\\frac{-1}{2}", ".5", 1 },
        { "007", "7", 1 },
        { "-0", "0", 1 },
        { "0.333", "\\frac{1}{3}", 0 },
        { "999999999999999", "999999999999998", 0 },
        { "1", "-1", 0 },
        { "1000000000000000", "1000000000000000", -1 },
        { "5.", "5", -1 },
        { "1/0", "1", -1 },
        { "\\sqrt{4}", "2", -1 },
        { "(1,2)", "(1,2)", -1 },
        { "", "0", -1 },
        { "--1", "1", -1 },
        { "1 ", "1", -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(compare(rows[i].a, rows[i].b), rows[i].result);
        assert_int_equal(compare(rows[i].b, rows[i].a), rows[i].result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(compares_exactly) };
    return cmocka_run_group_tests_name("rational", tests, NULL, NULL);
}
