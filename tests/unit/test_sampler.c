#include "infer/sampler.h"
#include "support/check.h"

#include <math.h>

static int32_t pick(pesc_sample_options opt, const float *logits, int32_t n, uint64_t step)
{
    sampler *s;
    int32_t id;
    must(sampler_open(&s, &opt, n));
    must(sampler_pick(s, logits, NULL, 0, step, &id));
    sampler_close(s);
    return id;
}

static void greedy_takes_the_first_best(void **state)
{
    (void)state;
    const float logits[] = { 1, 3, 3, 2 };
    assert_int_equal(pick(pesc_sample_defaults(), logits, 4, 0), 1);
}

/* Frequencies of 20,000 draws against the probabilities the options leave. */
static void draws_what_the_options_leave(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
        double want[4];
    } rows[] = {
        { 1, 1, 0, 0, { 0.4, 0.3, 0.2, 0.1 } },
        { 1, 1, 0, 2, { 4. / 7, 3. / 7, 0, 0 } },
        { 1, 0.65f, 0, 0, { 4. / 7, 3. / 7, 0, 0 } },
        { 1, 1, 0.4f, 0, { 4. / 9, 3. / 9, 2. / 9, 0 } },
        { 0.5f, 1, 0, 0, { 16. / 30, 9. / 30, 4. / 30, 1. / 30 } },
    };
    float logits[4];
    for (int i = 0; i < 4; i++)
        logits[i] = logf(0.4f - 0.1f * (float)i);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        enum { N = 20000 };
        double seen[4] = { 0 };
        pesc_sample_options opt = pesc_sample_defaults();
        opt.temperature = rows[r].temperature;
        opt.top_p = rows[r].top_p;
        opt.min_p = rows[r].min_p;
        opt.top_k = rows[r].top_k;
        sampler *s;
        must(sampler_open(&s, &opt, 4));
        for (uint64_t i = 0; i < N; i++) {
            int32_t id;
            must(sampler_pick(s, logits, NULL, 0, i, &id));
            seen[id] += 1. / N;
        }
        sampler_close(s);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(seen[i] - rows[r].want[i]) < 0.015 &&
                        (rows[r].want[i] > 0 || seen[i] == 0));
    }
}

/* Two of four equal tokens have exactly the mass that top_p 0.5 asks for. */
static void top_p_ends_where_it_is_reached(void **state)
{
    (void)state;
    const float logits[4] = { 0 };
    pesc_sample_options opt = pesc_sample_defaults();
    opt.temperature = 1;
    opt.top_p = 0.5f;
    bool seen[4] = { false };
    for (uint64_t i = 0; i < 200; i++)
        seen[pick(opt, logits, 4, i)] = true;
    assert_true(seen[0] && seen[1] && !seen[2] && !seen[3]);
}

static void seed_and_step_decide(void **state)
{
    (void)state;
    float logits[50] = { 0 };
    pesc_sample_options a = pesc_sample_defaults(), b = a;
    a.temperature = b.temperature = 1;
    b.seed = 1;
    int same = 0, moved = 0;
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(pick(a, logits, 50, i), pick(a, logits, 50, i));
        same += pick(a, logits, 50, i) == pick(b, logits, 50, i);
        moved += pick(a, logits, 50, i) != pick(a, logits, 50, i + 1);
    }
    assert_true(same < 20 && moved > 80);
}

/* As transformers: a positive logit is divided, a negative one multiplied, once however often. */
static void penalises_what_was_said(void **state)
{
    (void)state;
    const float logits[] = { 2, 1.5f, -1, -1.2f };
    const int32_t seen[] = { 0, 0, 2 };
    pesc_sample_options opt = pesc_sample_defaults();
    opt.repetition_penalty = 1.5f;
    sampler *s;
    int32_t id;
    must(sampler_open(&s, &opt, 4));
    must(sampler_pick(s, logits, seen, 3, 0, &id)); /* 2 / 1.5 = 1.33 < 1.5 */
    assert_int_equal(id, 1);
    const float low[] = { -9, -9, -1, -1.2f };
    must(sampler_pick(s, low, seen, 3, 0, &id)); /* -1 * 1.5 < -1.2 */
    assert_int_equal(id, 3);
    sampler_close(s);
}

static void refuses_logits_that_are_not_finite(void **state)
{
    (void)state;
    pesc_sample_options opt = pesc_sample_defaults();
    sampler *s;
    must(sampler_open(&s, &opt, 2));
    const float logits[] = { 1, NAN };
    int32_t id;
    must_fail(sampler_pick(s, logits, NULL, 0, 0, &id), PESC_NUMERIC, "token 1");
    sampler_close(s);
}

static int32_t pick_with(const sampler_terms *terms, const float *logits, const int32_t *seen,
                         size_t n, uint64_t step)
{
    pesc_sample_options opt = pesc_sample_defaults();
    sampler *s;
    int32_t id;
    must(sampler_open(&s, &opt, 4));
    sampler_use(s, &opt, terms);
    must(sampler_pick(s, logits, seen, n, step, &id));
    sampler_close(s);
    return id;
}

/* Of the tokens seen, only the generated ones are penalised. */
static void terms_are_added_to_logits(void **state)
{
    (void)state;
    const float logits[] = { 3, 2.5f, 2, 1 };
    const int32_t seen[] = { 0, 0, 0, 1 };
    const sampler_bias bias[] = { { 2, 1.1f }, { 3, -5 } };
    const int32_t ends[] = { 0, 1 };
    assert_int_equal(pick_with(&(sampler_terms){ .presence = 0.6 }, logits, seen, 3, 0), 0);
    assert_int_equal(pick_with(&(sampler_terms){ .presence = 0.6 }, logits, seen, 3, 1), 1);
    assert_int_equal(pick_with(&(sampler_terms){ .presence = 0.4 }, logits, seen, 3, 3), 0);
    assert_int_equal(pick_with(&(sampler_terms){ .frequency = 0.2 }, logits, seen, 3, 2), 0);
    assert_int_equal(pick_with(&(sampler_terms){ .frequency = 0.2 }, logits, seen, 3, 3), 1);
    assert_int_equal(pick_with(&(sampler_terms){ .bias = bias, .n_bias = 2 }, logits, seen, 3, 0),
                     2);
    sampler_terms longer = { .min_tokens = 2, .ends = ends, .n_ends = 2 };
    assert_int_equal(pick_with(&longer, logits, seen, 4, 1), 2);
    assert_int_equal(pick_with(&longer, logits, seen, 4, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_are_added_to_logits),
        cmocka_unit_test(greedy_takes_the_first_best),
        cmocka_unit_test(draws_what_the_options_leave),
        cmocka_unit_test(top_p_ends_where_it_is_reached),
        cmocka_unit_test(seed_and_step_decide),
        cmocka_unit_test(penalises_what_was_said),
        cmocka_unit_test(refuses_logits_that_are_not_finite),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
