#include "base/rng.h"
#include "infer/sampler.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

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

enum { VOCAB = 900 };

static void extremes_take_a_token(void **state)
{
    (void)state;
    static const float coldest[] = { 1e-6f, 1e-30f, 1e-45f };
    const float logits[] = { 1, 3, 3, 2 };
    const int32_t all[] = { 0, 1, 2, 3 };
    pesc_sample_options opt = pesc_sample_defaults();
    for (size_t i = 0; i < sizeof coldest / sizeof *coldest; i++) {
        opt.temperature = coldest[i];
        int32_t id = pick(opt, logits, 4, i);
        assert_true(id == 1 || id == 2);
    }
    sampler_terms none = { .min_tokens = 1, .ends = all, .n_ends = 4 };
    sampler *s;
    int32_t id = -1;
    opt.temperature = 1;
    must(sampler_open(&s, &opt, 4));
    sampler_use(s, &opt, &none);
    must(sampler_pick(s, logits, NULL, 0, 0, &id));
    assert_in_range(id, 0, 3);
    sampler_close(s);
}

/* Normally distributed, with equal ones. */
static void fill_logits(float *to, uint64_t seed, float spread)
{
    for (uint64_t i = 0; i < VOCAB; i++) {
        float x = 0;
        for (uint64_t k = 0; k < 12; k++)
            x += (float)rng_u32((rng_key){ seed, 1 }, 12 * i + k) * 0x1p-32f;
        to[i] = roundf(64 * spread * (x - 6)) / 64;
    }
}

static const float *sorted_logits;
static int by_logit(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sorted_logits[x] != sorted_logits[y])
        return sorted_logits[x] > sorted_logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* The definition: all tokens are sorted, each rule cuts the list, and the draw walks along it. */
static int32_t defined(const pesc_sample_options *o, const float *logits, uint64_t step)
{
    int32_t order[VOCAB], n = VOCAB, at = 0;
    double w[VOCAB], mass = 0, sum = 0, head = 0;
    for (int32_t i = 0; i < VOCAB; i++)
        order[i] = i;
    sorted_logits = logits;
    qsort(order, VOCAB, sizeof *order, by_logit);
    for (int32_t i = 0; i < VOCAB; i++)
        w[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / o->temperature);
    n = o->top_k && o->top_k < n ? (int32_t)o->top_k : n;
    for (int32_t i = 0; i < n; i++)
        mass += w[i];
    while (at < n && head < o->top_p * mass)
        head += w[at++];
    n = o->top_p < 1 ? at : n;
    while (n > 1 && w[n - 1] < o->min_p)
        n--;
    for (int32_t i = 0; i < n; i++)
        sum += w[i];
    double left =
        sum * (double)rng_u32((rng_key){ (uint64_t)o->seed, rng_stream(1, 0, 0) }, step) * 0x1p-32;
    for (at = 0; at + 1 < n && left >= w[at]; at++)
        left -= w[at];
    return order[at];
}

static void buckets_draw_as_sorting_does(void **state)
{
    (void)state;
    static const float spreads[] = { 0.01f, 0.5f, 3, 20 };
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } rules[] = {
        { 1, 1, 0, 0 },      { 0.7f, 0.9f, 0, 0 },   { 1, 1, 0, 40 },      { 1.5f, 1, 0.05f, 0 },
        { 1, 0.8f, 0, 50 },  { 1, 0.95f, 0.1f, 20 }, { 0.01f, 1, 0, 3 },   { 1, 1, 1, 0 },
        { 5, 0.999f, 0, 0 }, { 1, 0.0001f, 0, 0 },   { 1, 1, 0.9f, 1000 }, { 1, 1, 0, 1 },
    };
    float logits[VOCAB];
    for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++) {
        fill_logits(logits, k, spreads[k]);
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
            pesc_sample_options o = pesc_sample_defaults();
            o.temperature = rules[r].temperature;
            o.top_p = rules[r].top_p;
            o.min_p = rules[r].min_p;
            o.top_k = rules[r].top_k;
            for (uint64_t step = 0; step < 40; step++)
                assert_int_equal(pick(o, logits, VOCAB, step), defined(&o, logits, step));
        }
    }
}

static void threads_draw_what_one_does(void **state)
{
    (void)state;
    enum { ROWS = 37 };
    float *logits = malloc(ROWS * VOCAB * sizeof *logits);
    pesc_sample_options o = pesc_sample_defaults();
    sampling_row rows[ROWS];
    pesc_device *dev;
    sampling *s;
    o.temperature = 1;
    must(pesc_device_open(&dev, "cpu:1"));
    must(sampling_open(&s, dev, VOCAB, 3));
    for (int32_t i = 0; i < ROWS; i++) {
        fill_logits(logits + i * VOCAB, (uint64_t)i, 1);
        rows[i] = (sampling_row){ .row = ROWS - 1 - i, .opt = &o, .step = (uint64_t)i };
    }
    tensor all = { .dt = DT_F32, .nd = 2, .ne = { ROWS, VOCAB }, .data = logits };
    must(sampling_draw(s, all, rows, ROWS));
    for (int32_t i = 0; i < ROWS; i++)
        assert_int_equal(rows[i].id, pick(o, logits + rows[i].row * VOCAB, VOCAB, (uint64_t)i));
    logits[5 * VOCAB + 7] = INFINITY;
    must_fail(sampling_draw(s, all, rows, ROWS), PESC_NUMERIC, "token 7");
    sampling_close(s);
    pesc_device_close(dev);
    free(logits);
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
        cmocka_unit_test(buckets_draw_as_sorting_does),
        cmocka_unit_test(extremes_take_a_token),
        cmocka_unit_test(threads_draw_what_one_does),
        cmocka_unit_test(penalises_what_was_said),
        cmocka_unit_test(refuses_logits_that_are_not_finite),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
