/* The expected numbers were printed by CPython 3.11's random module. */
#include "eval/pyrandom.h"

#include "base/mem.h"
#include "support/check.h"

static void draws_the_words_of_mt19937(void **state)
{
    (void)state;
    static const uint32_t expected[] = { 4150886329u, 3342196574u, 1892932127u };
    pyrandom r;
    pyrandom_seed(&r, 1234);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pyrandom_u32(&r), expected[i]);
    pyrandom_seed(&r, 0);
    for (int i = 0; i < 2000; i++)
        pyrandom_u32(&r);
    assert_int_equal(pyrandom_u32(&r), 4065999976u);
}

/* One stream of samples: from a shrinking list, and from a set where the population is larger. */
static void samples_as_cpython(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, k, expected[26];
    } rows[] = {
        { 100, 5, { 99, 56, 14, 0, 11 } },
        { 20, 6, { 18, 1, 2, 3, 11, 16 } },
        { 85, 6, { 2, 3, 84, 44, 79, 61 } },
        { 86, 6, { 78, 59, 19, 11, 23, 14 } },
        { 40398, 26, { 958,   32970, 31899, 16372, 4231,  35460, 30533, 4493,  39417,
                       5828,  33753, 37945, 3012,  17667, 36466, 4133,  19819, 31525,
                       23280, 17462, 16328, 13109, 29713, 34744, 1264,  33298 } },
        { 1, 1, { 0 } },
    };
    pyrandom r;
    uint32_t drawn[26];
    pyrandom_seed(&r, 1234);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        must(pyrandom_sample(&r, rows[i].n, rows[i].k, drawn));
        assert_memory_equal(drawn, rows[i].expected, rows[i].k * sizeof *drawn);
    }
}

static void stays_below(void **state)
{
    (void)state;
    pyrandom r;
    uint32_t seen = 0;
    pyrandom_seed(&r, 5);
    for (int i = 0; i < 200; i++) {
        uint32_t drawn = pyrandom_below(&r, 3);
        assert_true(drawn < 3);
        seen |= 1u << drawn;
    }
    assert_int_equal(seen, 7);
}

static void draws_nothing_for_zero(void **state)
{
    (void)state;
    pyrandom r;
    pyrandom_seed(&r, 1234);
    must(pyrandom_sample(&r, 10, 0, NULL));
    assert_int_equal(pyrandom_u32(&r), 4150886329u);
}

static void reports_want_of_memory(void **state)
{
    (void)state;
    pyrandom r;
    uint32_t drawn[3];
    pyrandom_seed(&r, 1);
    mem_fail_at(1);
    assert_int_equal(pyrandom_sample(&r, 10, 3, drawn), PESC_NOMEM);
    mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_the_words_of_mt19937),
        cmocka_unit_test(samples_as_cpython),
        cmocka_unit_test(stays_below),
        cmocka_unit_test(draws_nothing_for_zero),
        cmocka_unit_test(reports_want_of_memory),
    };
    return cmocka_run_group_tests_name("pyrandom", tests, NULL, NULL);
}
