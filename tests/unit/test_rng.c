#include "base/rng.h"
#include "support/check.h"

#include <math.h>

/* Known answers of Philox 4x32-10 (Random123's published vectors). */
static void matches_published_vectors(void **state)
{
    (void)state;
    rng_key zero = { 0, 0 };
    const uint32_t want[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(rng_u32(zero, i), want[i]);
}

static void depends_on_every_coordinate(void **state)
{
    (void)state;
    assert_int_not_equal(rng_stream(1, 2, 3), rng_stream(1, 3, 2));
    assert_int_not_equal(rng_stream(0, 0, 1), rng_stream(0, 1, 0));
    const uint64_t base = rng_stream(1, 2, 3);
    assert_true(rng_stream(9, 2, 3) != base);
    assert_true(rng_stream(1, 9, 3) != base);
    assert_true(rng_stream(1, 2, 9) != base);
    rng_key a = { 7, rng_stream(1, 2, 3) }, b = { 8, rng_stream(1, 2, 3) };
    assert_int_not_equal(rng_u32(a, 5), rng_u32(b, 5));
}

static void has_the_right_moments(void **state)
{
    (void)state;
    rng_key k = { 42, 9 };
    double sum = 0, sq = 0, usum = 0;
    enum { N = 200000 };
    for (uint64_t i = 0; i < N; i++) {
        double x = (double)rng_normal(k, i), u = (double)rng_uniform(k, i);
        assert_true(u >= 0 && u < 1);
        assert_true(rng_below(k, i, 10) < 10);
        sum += x;
        sq += x * x;
        usum += u;
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(sq / N - 1) < 0.01);
    assert_true(fabs(usum / N - 0.5) < 0.005);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_published_vectors),
        cmocka_unit_test(depends_on_every_coordinate),
        cmocka_unit_test(has_the_right_moments),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
