/* The losses of preferences: each slope against differences of the loss, and what must hold of them
 * at known points. Whole runs are compared with PyTorch and TRL in tests/golden/test_preferences.c.
 */
#include "train/preference.h"

#include "support/check.h"

#include <math.h>

static const preference_rule rules[] = {
    { .kind = PREFERENCE_DPO, .beta = 0.1 },
    { .kind = PREFERENCE_DPO, .beta = 0.5, .smoothing = 0.2 },
    { .kind = PREFERENCE_IPO, .beta = 0.3 },
    { .kind = PREFERENCE_ORPO, .lambda = 0.7 },
    { .kind = PREFERENCE_SIMPO, .beta = 2, .gamma = 0.5 },
    { .kind = PREFERENCE_SIMPO, .beta = 1.5, .gamma = 1, .smoothing = 0.1 },
};
static const preference_rule kto = {
    .kind = PREFERENCE_KTO, .beta = 0.4, .desirable = 1.5, .undesirable = 0.7
};

/* Pairs from nearly certain answers to hopeless ones. */
static const preference_answer pairs[][2] = {
    { { -3.1, -2.9, 4 }, { -7.3, -6.0, 9 } },
    { { -0.004, -0.5, 2 }, { -0.02, -0.3, 3 } },
    { { -40, -35, 12 }, { -1.5, -20, 1 } },
    { { -300, -310, 100 }, { -290, -250, 50 } },
};
enum { N_RULES = sizeof rules / sizeof *rules, N_PAIRS = sizeof pairs / sizeof *pairs };

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fmax(1e-3, fabs(want))))
        fail_msg("slope is %.12g, the difference %.12g", got, want);
}

static void slopes_of_pairs(void **state)
{
    (void)state;
    for (int r = 0; r < N_RULES; r++)
        for (int p = 0; p < N_PAIRS; p++)
            for (int side = 0; side < 2; side++) {
                preference_answer up[2] = { pairs[p][0], pairs[p][1] };
                preference_answer down[2] = { pairs[p][0], pairs[p][1] };
                double h = 1e-6 * fmax(1, fabs(up[side].logp));
                up[side].logp += h;
                down[side].logp -= h;
                double rise = preference_pair(&rules[r], up).loss;
                double fall = preference_pair(&rules[r], down).loss;
                near(preference_pair(&rules[r], pairs[p]).slope[side], (rise - fall) / (2 * h));
            }
}

static void slopes_of_labels(void **state)
{
    (void)state;
    const double kls[] = { 0, 0.8, 30 };
    for (int p = 0; p < N_PAIRS; p++)
        for (int good = 0; good < 2; good++)
            for (int k = 0; k < 3; k++) {
                preference_answer up = pairs[p][0], down = up;
                double h = 1e-6 * fmax(1, fabs(up.logp));
                up.logp += h;
                down.logp -= h;
                double rise = preference_labelled(&kto, &up, good, kls[k]).loss;
                double fall = preference_labelled(&kto, &down, good, kls[k]).loss;
                preference_value v = preference_labelled(&kto, &pairs[p][0], good, kls[k]);
                near(v.slope[good ? 0 : 1], (rise - fall) / (2 * h));
                assert_true(v.slope[good ? 1 : 0] == 0);
            }
}

/* At the start of a run the model is its own reference. */
static void start_of_a_run(void **state)
{
    (void)state;
    const preference_answer of[2] = { { -5, -5, 3 }, { -9, -9, 4 } };
    preference_value dpo = preference_pair(&rules[0], of);
    assert_true(fabs(dpo.loss - log(2)) < 1e-15);
    assert_true(dpo.reward[0] == 0 && dpo.reward[1] == 0);
    assert_true(fabs(dpo.slope[0] + 0.05) < 1e-15 && dpo.slope[1] == -dpo.slope[0]);
    preference_value ipo = preference_pair(&rules[2], of);
    assert_true(fabs(ipo.loss - 1 / (0.6 * 0.6)) < 1e-12);
    preference_value good = preference_labelled(&kto, of, true, 0);
    assert_true(fabs(good.loss - 0.75) < 1e-15);
    preference_value bad = preference_labelled(&kto, of, false, 0);
    assert_true(fabs(bad.loss - 0.35) < 1e-15);
}

/* ORPO: an answer of probability 1 has infinite odds; its slopes must be finite all the same. */
static void certain_answer(void **state)
{
    (void)state;
    const preference_answer of[2] = { { 0, 0, 3 }, { -9, 0, 4 } };
    const preference_answer other[2] = { of[1], of[0] };
    preference_value v = preference_pair(&rules[3], of), w = preference_pair(&rules[3], other);
    assert_true(isfinite(v.loss) && isfinite(v.slope[0]) && isfinite(v.slope[1]));
    assert_true(isfinite(w.loss) && isfinite(w.slope[0]) && isfinite(w.slope[1]));
    assert_true(v.loss >= 0 && v.loss < 1e-9);
}

/* Far from the decision the loss grows linearly and overflows nowhere. */
static void far_away(void **state)
{
    (void)state;
    const preference_answer of[2] = { { -1e6, -1, 3 }, { -1, -1e6, 4 } };
    preference_value v = preference_pair(&rules[0], of);
    assert_true(fabs(v.loss - 0.1 * (2e6 - 2)) < 1e-3 && fabs(v.slope[0] + 0.1) < 1e-12);
    const preference_answer back[2] = { of[1], of[0] };
    v = preference_pair(&rules[0], back);
    assert_true(v.loss == 0 && v.slope[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_of_pairs), cmocka_unit_test(slopes_of_labels),
        cmocka_unit_test(start_of_a_run),  cmocka_unit_test(certain_answer),
        cmocka_unit_test(far_away),
    };
    return cmocka_run_group_tests_name("preference", tests, NULL, NULL);
}
