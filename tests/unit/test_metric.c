/* The expected figures were computed by lm-evaluation-harness 0.4.13. */
#include "eval/metric.h"

#include "support/check.h"

#include <math.h>

#define near(a, b) assert_true(fabs((a) - (b)) < 1e-12)

static void means_with_standard_errors(void **state)
{
    (void)state;
    const double values[] = { 1, 0, 0, 1, 1 };
    metric_score s = metric_mean(values, 5);
    near(s.mean, 0.6);
    near(s.error, 0.24494897427831783);
    assert_int_equal(s.n, 5);
    assert_true(isnan(metric_mean(values, 1).error));
    assert_true(isnan(metric_mean(values, 0).mean));
}

static void pools_groups(void **state)
{
    (void)state;
    const metric_score tasks[] = { { 0.5, 0.05, 100 }, { 0.25, 0.1, 20 }, { 1, NAN, 1 } };
    metric_score s = metric_pool(tasks, 2);
    near(s.mean, (50 + 5) / 120.0);
    near(s.error, sqrt((99 * 0.0025 * 100 + 19 * 0.01 * 20) / 118 / 120));
    assert_int_equal(s.n, 120);
    near(metric_pool(tasks, 3).mean, 56 / 121.0);
}

/* Both models answered the same documents: the error is that of the differences. */
static void compares_pairs(void **state)
{
    (void)state;
    const double a[] = { 1, 1, 0, 1 }, b[] = { 1, 0, 0, 1 };
    metric_score s = metric_difference(a, b, 4);
    near(s.mean, 0.25);
    near(s.error, 0.25);
    near(metric_difference(a, a, 4).error, 0);
}

static void finds_the_first_largest(void **state)
{
    (void)state;
    const double v[] = { -2, -1, -1, -4 }, lengths[] = { 4, 1, 1, 1 }, bad[] = { 1, NAN, 2 };
    assert_int_equal(metric_argmax(v, NULL, 4), 1);
    assert_int_equal(metric_argmax(v, lengths, 4), 0);
    assert_int_equal(metric_argmax(bad, NULL, 3), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_with_standard_errors),
        cmocka_unit_test(pools_groups),
        cmocka_unit_test(compares_pairs),
        cmocka_unit_test(finds_the_first_largest),
    };
    return cmocka_run_group_tests_name("metric", tests, NULL, NULL);
}
