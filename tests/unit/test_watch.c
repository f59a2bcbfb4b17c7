#include "train/watch.h"

#include "base/log.h"
#include "support/check.h"

#include <math.h>
#include <stdio.h>

static const int32_t layers[] = { 3, 7 };
static char heard[8][512];
static int n_heard;

static void keep(void *ud, const char *sentence)
{
    (void)ud;
    snprintf(heard[n_heard++ % 8], sizeof heard[0], "%s", sentence);
}

/* Steps with the same shares and balance loss, and what is said. */
static void run(watch *w, const float *share, int steps, double aux, double aux_coef)
{
    pesc_events ev = { .size = sizeof ev, .notice = keep };
    const pesc_events *before = log_swap(&ev);
    const metrics_shares r = { share, 2, 4 };
    for (int i = 0; i < steps; i++)
        watch_step(w, &r, aux, aux_coef);
    log_swap(before);
}

static int start(void **state)
{
    static watch w;
    must(watch_open(&w, layers, 2, 4));
    n_heard = 0;
    *state = &w;
    return 0;
}

static int stop(void **state)
{
    watch_close(*state);
    return 0;
}

static const float even[] = { .25F, .25F, .25F, .25F, .25F, .25F, .25F, .25F };

static void is_silent_while_all_is_well(void **state)
{
    const float rough[] = { .35F, .3F, .2F, .15F, .25F, .25F, .25F, .25F };
    run(*state, even, 500, 1.0, 0.01);
    run(*state, rough, 500, 1.09, 0.01);
    assert_int_equal(n_heard, 0);
}

static void says_once_that_an_expert_died(void **state)
{
    const float dead[] = { .25F, .25F, .25F, .25F, .334F, .332F, .332F, .002F };
    run(*state, dead, WATCH_STEPS - 1, 1, 0.01);
    assert_int_equal(n_heard, 0);
    run(*state, even, 1, 1, 0.01); /* it came back: counting begins anew */
    run(*state, dead, WATCH_STEPS - 1, 1, 0.01);
    assert_int_equal(n_heard, 0);
    run(*state, dead, 100, 1, 0.01);
    assert_non_null(strstr(heard[0], "layer 7: expert 3 has had less than 1 % of an even load"));
    assert_non_null(strstr(heard[0], "aux_coef"));
    for (int i = 1; i < n_heard; i++)
        assert_null(strstr(heard[i], "expert 3"));
}

static void says_which_layer_collapsed(void **state)
{
    const float few[] = { .47F, .47F, .03F, .03F, .25F, .25F, .25F, .25F };
    run(*state, few, WATCH_STEPS + 50, 1, 0.01);
    assert_int_equal(n_heard, 1);
    assert_non_null(strstr(heard[0], "layer 3: few experts have most of the choices"));
}

static void says_that_the_balance_loss_does_not_fall(void **state)
{
    run(*state, even, 2 * WATCH_WINDOW, 1.5, 0); /* none is trained */
    assert_int_equal(n_heard, 0);
    run(*state, even, WATCH_WINDOW, 1.4, 0.01); /* it falls */
    assert_int_equal(n_heard, 0);
    run(*state, even, 3 * WATCH_WINDOW, 1.4, 0.01);
    assert_int_equal(n_heard, 1);
    assert_non_null(strstr(heard[0], "the balance loss does not fall: 1.400, after 1.400"));
}

static void finds_the_worst_layer(void **state)
{
    (void)state;
    int32_t layer;
    const float few[] = { .25F, .25F, .25F, .25F, 1, 0, 0, 0 };
    assert_true(watch_worst(&(metrics_shares){ few, 2, 4 }, &layer) == 0);
    assert_int_equal(layer, 1);
    assert_true(fabs(watch_worst(&(metrics_shares){ few, 1, 4 }, &layer) - 1) < 1e-12);
    assert_int_equal(layer, 0);
    assert_true(isnan(watch_worst(&(metrics_shares){ few, 0, 4 }, &layer)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_silent_while_all_is_well, start, stop),
        cmocka_unit_test_setup_teardown(says_once_that_an_expert_died, start, stop),
        cmocka_unit_test_setup_teardown(says_which_layer_collapsed, start, stop),
        cmocka_unit_test_setup_teardown(says_that_the_balance_loss_does_not_fall, start, stop),
        cmocka_unit_test_setup_teardown(finds_the_worst_layer, start, stop),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
