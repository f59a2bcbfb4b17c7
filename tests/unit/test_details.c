/* Log-probabilities that the scheduler reports: each token once and in order, whatever is cached,
 * preempted or cut into pieces; equal to those of plain scores bit for bit. */
#include "base/rng.h"
#include "infer/scheduler.h"
#include "support/check.h"
#include "support/golden.h"

enum { CONTEXT = 330, N = 12, TOP = 3, MAX_NEW = 40 };

typedef struct sample {
    int32_t ids[CONTEXT], n, first, max_tokens;
    sched_choice rows[CONTEXT + 1];
    sched_choice top[CONTEXT + 1][TOP];
    int32_t next; /* the index that the next row must have */
    int32_t tokens[MAX_NEW], n_tokens;
    int started, done;
    double logprob;
} sample;

static pesc_device *dev;
static pesc_model *model;
static uint64_t drawn;

static int open_model(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:2") ||
           pesc_model_open(&model, dev, golden_path("llama"), NULL);
}

static int close_model(void **state)
{
    (void)state;
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static int32_t below(int32_t n)
{
    return (int32_t)rng_below((rng_key){ 11, 12 }, drawn++, (uint64_t)n);
}

/* Prompts share a beginning. Every third is only scored, every third has no row for its prompt. */
static void make_samples(sample *all)
{
    memset(all, 0, N * sizeof *all);
    for (int i = 0; i < N; i++) {
        sample *s = &all[i];
        s->n = 100 + below(100);
        for (int32_t k = 0; k < s->n; k++)
            s->ids[k] = k < 80 ? k % model->shape.cfg.vocab : below(model->shape.cfg.vocab);
        s->first = i % 3 == 2 ? 0 : 1 + below(90);
        s->max_tokens = i % 3 == 0 ? 0 : 1 + below(MAX_NEW);
    }
}

static pesc_status take_row(void *ud, const sched_row *r)
{
    sample *s = ud;
    assert_int_equal(r->at, s->next++);
    assert_int_equal(r->n_top, TOP);
    assert_int_equal(s->started, 1);
    if (r->at < s->n)
        assert_int_equal(r->token.id, s->ids[r->at]);
    s->rows[r->at] = r->token;
    memcpy(s->top[r->at], r->top, sizeof s->top[0]);
    for (int i = 0; i < TOP; i++) {
        assert_true(i == 0 || r->top[i].logprob <= r->top[i - 1].logprob);
        if (r->top[i].id == r->token.id)
            assert_memory_equal(&r->top[i].logprob, &r->token.logprob, sizeof(float));
    }
    return PESC_OK;
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    sample *s = ud;
    (void)more;
    assert_int_equal(s->rows[s->next - 1].id, id); /* its row came before */
    s->tokens[s->n_tokens++] = id;
    return PESC_OK;
}

static void take_start(void *ud, int32_t cached)
{
    sample *s = ud;
    assert_true(cached >= 0 && cached < s->n);
    s->started++;
}

static pesc_status take_done(void *ud, const sched_result *r)
{
    sample *s = ud;
    s->done++;
    s->logprob = r->logprob;
    return PESC_OK;
}

static void run(sample *all, scheduler_options o)
{
    static const sampler_bias bias[] = { { 3, 1.5f }, { 7, -100 } };
    static const sampler_terms terms = {
        .presence = 0.4, .frequency = 0.2, .bias = bias, .n_bias = 2
    };
    scheduler *s;
    must(scheduler_open(&s, model, &o));
    for (int i = 0; i < N; i++) {
        sample *of = &all[i];
        pesc_sample_options opt = pesc_sample_defaults();
        opt.temperature = i % 2;
        opt.seed = i;
        of->next = of->first ? of->first : of->n;
        must(scheduler_add(s,
                           &(sched_request){ .ids = of->ids,
                                             .n = of->n,
                                             .first = of->first,
                                             .max_tokens = of->max_tokens,
                                             .sample = &opt,
                                             .terms = i % 4 ? &terms : NULL,
                                             .n_top = TOP,
                                             .started = take_start,
                                             .row = take_row,
                                             .token = take_token,
                                             .done = take_done,
                                             .ud = of },
                           NULL));
    }
    must(scheduler_run(s));
    for (int i = 0; i < N; i++) {
        assert_int_equal(all[i].done, 1);
        assert_int_equal(all[i].next, all[i].n + all[i].max_tokens);
    }
    scheduler_close(s);
}

static void rows_depend_on_nothing_else(void **state)
{
    (void)state;
    static sample want[N], got[N];
    static const scheduler_options settings[] = {
        { 4, CONTEXT, 64, CONTEXT, false, false, 0 }, { 12, CONTEXT, 0, 0, false, false, 0 },
        { 12, CONTEXT, 40, 700, false, false, 8 },    { 4, CONTEXT, 64, CONTEXT, false, true, 0 },
        { 12, CONTEXT, 40, 700, false, true, 0 },
    };
    make_samples(want);
    static sample made[N];
    memcpy(made, want, sizeof made);
    run(want, (scheduler_options){ .slots = 1, .context = CONTEXT });
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        memcpy(got, made, sizeof got);
        run(got, settings[k]);
        for (int i = 0; i < N; i++) {
            assert_int_equal(got[i].n_tokens, want[i].n_tokens);
            assert_memory_equal(got[i].tokens, want[i].tokens, sizeof want[i].tokens);
            assert_memory_equal(got[i].rows, want[i].rows, sizeof want[i].rows);
            assert_memory_equal(got[i].top, want[i].top, sizeof want[i].top);
        }
    }
}

/* A score with rows has the sum of one without. */
static void rows_add_up_to_scores(void **state)
{
    (void)state;
    static sample all[N];
    scheduler *s;
    make_samples(all);
    run(all, (scheduler_options){ .slots = 5, .context = CONTEXT, .max_tokens = 50 });
    must(scheduler_open(&s, model, &(scheduler_options){ .slots = 5, .context = CONTEXT }));
    for (int i = 0; i < N; i += 3) {
        double sum = 0, with_rows = all[i].logprob;
        for (int32_t at = all[i].first; at < all[i].n; at++)
            sum += (double)all[i].rows[at].logprob;
        must(scheduler_add(s,
                           &(sched_request){ .ids = all[i].ids,
                                             .n = all[i].n,
                                             .first = all[i].first,
                                             .done = take_done,
                                             .ud = &all[i] },
                           NULL));
        must(scheduler_run(s));
        assert_memory_equal(&all[i].logprob, &with_rows, sizeof sum);
        assert_memory_equal(&all[i].logprob, &sum, sizeof sum);
    }
    scheduler_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_depend_on_nothing_else),
        cmocka_unit_test(rows_add_up_to_scores),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
