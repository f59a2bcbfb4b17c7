/* How many tokens of prompts enter a forward beside answers. */
#include "serve/pace.h"
#include "support/check.h"

/* A machine on which a forward takes `base` seconds, and `tile` for each `rows` tokens or fewer. */
typedef struct machine {
    double base, tile;
    int32_t rows;
} machine;

static double forward_time(machine m, int32_t tokens)
{
    return m.base + m.tile * ((tokens + m.rows - 1) / m.rows);
}

/* Reads prompts for so many forwards beside so many answers. Returns the longest forward, as a
 * multiple of one without prompts, and in *read how many tokens of prompts were read. */
static double run(pace *p, machine m, int32_t answers, int forwards, int64_t *read)
{
    double longest = 0;
    *read = 0;
    for (int i = 0; i < forwards; i++) {
        int32_t n = pace_limit(p, answers);
        double seconds = forward_time(m, answers + n);
        pace_measure(p, seconds, answers, n);
        longest = seconds > longest ? seconds : longest;
        *read += n;
    }
    return longest / forward_time(m, answers);
}

/* From the first forward on, whatever the numbers of answers are one after another. */
static void no_forward_takes_more_than_three_times_as_long(void **state)
{
    (void)state;
    static const machine machines[] = {
        { 0.010, 0.002, 1 }, { 0.002, 0.00003, 1 }, { 0.0003, 0.0001, 4 },
        { 0, 0.010, 1 },     { 0.010, 0.030, 8 },
    };
    static const int32_t answers[] = { 8, 32, 1, 64, 3, 4, 7, 200, 2, 1 };
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        pace p = { .max = 1024 };
        int64_t read;
        for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
            assert_true(run(&p, machines[m], answers[i], 100, &read) < 3.001);
            assert_true(read > 0);
        }
    }
}

/* Nine answers take 70 ms, as 16 tokens do: up to 32 fit the time of two forwards. */
static void a_piece_fills_the_time_of_a_forward(void **state)
{
    (void)state;
    machine m = { 0.010, 0.030, 8 };
    pace p = { .max = 128 };
    int64_t read;
    (void)run(&p, m, 9, 100, &read);
    assert_true(run(&p, m, 9, 1000, &read) < 2.5);
    assert_in_range(read, 1000 * 18, 1000 * 23);
    m.tile = 0.060; /* the longer the past, the slower attention is */
    p.decode = 0.070;
    (void)run(&p, m, 9, 20, &read);
    p.since = 0;
    assert_true(pace_limit(&p, 9) < 12);
    p = (pace){ .max = 128 };
    for (int i = 0; i < 20; i++) {
        pace_measure(&p, 0.01, 64, 0);
        pace_measure(&p, 1, 64, pace_limit(&p, 64));
    }
    assert_int_equal(pace_limit(&p, 64), 32); /* it must go on */
}

static void the_time_without_prompts_is_measured_first(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    assert_int_equal(pace_limit(&p, 0), 128); /* nothing is delayed */
    assert_int_equal(pace_limit(&p, 8), 0);
    pace_measure(&p, 0.1, 8, 100); /* says nothing while that is not known */
    assert_int_equal(pace_limit(&p, 8), 0);
    pace_measure(&p, 0.050, 8, 0);
    assert_int_equal(pace_limit(&p, 8), 8);
    assert_int_equal(pace_limit(&p, 12), 0);
    assert_int_equal(pace_limit(&p, 5), 0);
    assert_true(pace_limit(&p, 6) > 0 && pace_limit(&p, 11) > 0);
    for (int i = 0; i < PACE_EVERY; i++)
        pace_measure(&p, 0.060, 8, 1);
    assert_int_equal(pace_limit(&p, 8), 0);
    pace_measure(&p, 0.050, 8, 0);
    assert_int_equal(pace_limit(&p, 8), 8); /* pieces that were small for another reason */
    pace_measure(&p, 0.025, 3, 0);          /* another number of answers: half of the time */
    assert_int_equal(pace_limit(&p, 3), 4);
}

/* Prompts were read alone: the first piece beside answers is as large as takes their time. */
static void the_first_piece_is_known_from_prompts_alone(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    pace_measure(&p, 0.2, 0, 100);
    assert_int_equal(pace_limit(&p, 2), 0);
    pace_measure(&p, 0.050, 2, 0);
    assert_int_equal(pace_limit(&p, 2), 25);
}

/* A time is measured beside 8 answers, and 6 are left: they may take three quarters of it. */
static void fewer_answers_allow_less(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    pace_measure(&p, 0.040, 8, 0);
    assert_int_equal(pace_limit(&p, 8), 8);
    assert_int_equal(pace_limit(&p, 6), 6);
    pace_measure(&p, 0.059, 6, 6); /* 29 ms more than 30 */
    assert_int_equal(pace_limit(&p, 8), 9);
    pace_measure(&p, 0.100, 6, 6); /* 70 ms more than 30 */
    assert_int_equal(pace_limit(&p, 8), 4);
    assert_int_equal(pace_limit(&p, 6), 3);
    pace_measure(&p, 0.030, 6, 0);
    assert_int_equal(pace_limit(&p, 6), 3);
}

static void a_piece_follows_the_time_it_took(void **state)
{
    (void)state;
    pace p = { .max = 1000 };
    pace_measure(&p, 0.050, 0, 100);
    pace_measure(&p, 0.020, 4, 0);
    pace_measure(&p, 0.020 + 0.100, 4, 40);
    assert_int_equal(pace_limit(&p, 4), 20); /* five times its time: half */
    pace_measure(&p, 0.020 + 0.030, 4, 20);
    assert_int_equal(pace_limit(&p, 4), 17);
    pace_measure(&p, 0.020 + 0.015, 4, 17);
    assert_int_equal(pace_limit(&p, 4), 19);
    pace_measure(&p, 0.020 + 0.005, 4, 19); /* a quarter of its time */
    assert_int_equal(pace_limit(&p, 4), 29);
}

/* Two forwards of five take half as long again, because other programs run. */
static void single_times_do_not_matter(void **state)
{
    (void)state;
    pace p = { .max = 128 };
    int64_t read = 0;
    for (int i = 0; i < 1000; i++) {
        int32_t n = pace_limit(&p, 8);
        pace_measure(&p, (0.032 + 0.002 * n) * (i * 7 % 5 < 2 ? 1.5 : 1), 8, n);
        read += n;
    }
    assert_in_range(read, 1000 * 13, 1000 * 20); /* 16 tokens take as long as a forward */
}

static void limits_hold(void **state)
{
    (void)state;
    int64_t read;
    pace p = { .max = 128 };
    (void)run(&p, (machine){ 0.020, 0.0001, 1 }, 4, 60, &read);
    assert_int_equal((int)p.piece, 128);
    p = (pace){ .max = 128 };
    (void)run(&p, (machine){ 0.020, 0.1, 1 }, 4, 60, &read);
    assert_in_range((int)p.piece, 4, 5);
    p = (pace){ .max = 128 };
    for (int i = 0; i < 20; i++) {
        pace_measure(&p, 0.01, 4, 0);
        pace_measure(&p, 1, 4, pace_limit(&p, 4));
    }
    assert_int_equal(pace_limit(&p, 4), PACE_MIN_TOKENS);
    p = (pace){ .max = 1024, .rows = 64 };
    pace_measure(&p, 0.002, 1, 0);
    assert_int_equal(pace_limit(&p, 1), 63);
    pace_measure(&p, 0.007, 1, 63); /* too long, but fewer are not faster */
    assert_int_equal(pace_limit(&p, 1), 63);
    pace_measure(&p, 0.007, 70, 0);
    assert_int_equal(pace_limit(&p, 70), 58); /* fills the second tile */
}

/* 64 answers fill a tile of rows, which takes 5 ms. Each further tile takes as long as a forward
 * without prompts, so there is time for one, and two are not tried. */
static void a_piece_fills_its_last_tile(void **state)
{
    (void)state;
    machine m = { 0, 0.005, 64 };
    pace p = { .max = 1024, .rows = 64 };
    int64_t read;
    pace_measure(&p, 0.005, 0, 16); /* not 0.3 ms a token: a tile has 64 */
    assert_true(run(&p, m, 64, 100, &read) < 2.001);
    assert_in_range(read, 90 * 64, 100 * 64);
    p = (pace){ .max = 1024, .rows = 64 };
    m = (machine){ 0.001, 0.004, 64 }; /* one takes less than the time, two take more */
    assert_true(run(&p, m, 64, 1000, &read) < 1.801);
    assert_in_range(read, 900 * 64, 1000 * 64);
    p = (pace){ .max = 1024, .rows = 64 };
    m.tile = 0.0005; /* ten tiles in the time of a forward */
    m.base = 0.005;
    (void)run(&p, m, 64, 100, &read);
    assert_true(run(&p, m, 64, 1000, &read) < 2.2);
    assert_in_range(read, 1000 * 500, 1000 * 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_forward_takes_more_than_three_times_as_long),
        cmocka_unit_test(a_piece_fills_the_time_of_a_forward),
        cmocka_unit_test(the_time_without_prompts_is_measured_first),
        cmocka_unit_test(the_first_piece_is_known_from_prompts_alone),
        cmocka_unit_test(fewer_answers_allow_less),
        cmocka_unit_test(a_piece_follows_the_time_it_took),
        cmocka_unit_test(single_times_do_not_matter),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(a_piece_fills_its_last_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
