/* How many tokens of prompts enter a forward beside answers. */
#include "serve/pace.h"
#include "support/check.h"

/* A machine on which a forward takes `base` seconds and a token of a prompt adds `each`. */
static void run(pace *p, double base, double each, int steps)
{
    for (int i = 0; i < steps; i++) {
        int32_t n = i % 2 ? pace_limit(p, 4) : 0;
        pace_measure(p, base + each * n, 4, n);
    }
}

static void a_piece_takes_one_and_a_half_forwards(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    assert_int_equal(pace_limit(&p, 4), 128);
    run(&p, 0.020, 0.001, 10);
    assert_in_range(pace_limit(&p, 4), 29, 30);
    run(&p, 0.020, 0.002, 100); /* the longer the past, the slower attention is */
    assert_in_range(pace_limit(&p, 4), 14, 15);
    run(&p, 0.060, 0.002, 100); /* more streams */
    assert_in_range(pace_limit(&p, 4), 44, 45);
}

/* More answers than when forwards without prompts were measured: these would take longer, too. */
static void further_answers_count(void **state)
{
    (void)state;
    pace p = { .max = 1000 };
    run(&p, 0.020, 0.001, 10);
    for (int i = 0; i < 100; i++) /* always with a prompt: 24 answers take 40 ms */
        pace_measure(&p, 0.040 + 0.001 * 50, 24, 50);
    assert_in_range(pace_limit(&p, 24), 58, 60);
}

static void limits_hold(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    run(&p, 0.020, 0.0001, 10);
    assert_int_equal(pace_limit(&p, 4), 128);
    run(&p, 0.020, 0.1, 200);
    assert_int_equal(pace_limit(&p, 4), PACE_MIN_TOKENS);
    p = (pace){ .max = 128 };
    run(&p, 0.001, 0.0002, 10); /* 10 ms */
    assert_in_range(pace_limit(&p, 4), 49, 50);
}

static void forwards_without_answers_do_not_count(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    pace_measure(&p, 5, 0, 100);
    pace_measure(&p, 5, 0, 0);
    pace_measure(&p, 0.5, 3, 100); /* the time without prompts is not known yet */
    assert_int_equal(pace_limit(&p, 4), 128);
    pace_measure(&p, 0.5, 3, 0);
    pace_measure(&p, 0.4, 3, 100); /* faster than without: noise */
    assert_int_equal(pace_limit(&p, 4), 128);
    pace_measure(&p, 0.5 + 0.02 * 100, 3, 100);
    assert_in_range(pace_limit(&p, 3), 37, 38); /* 0.75 seconds of 20 ms a token */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_takes_one_and_a_half_forwards),
        cmocka_unit_test(further_answers_count),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(forwards_without_answers_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
