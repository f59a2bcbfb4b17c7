/* Losses of many sequences in few forwards. The oracle feeds a session one token at a time and
 * takes the softmax in double precision. */
#include "infer/score.h"
#include "support/check.h"

#include <math.h>

enum { CTX = 700 };

static pesc_device *dev;
static pesc_model *model;
static pesc_session *session;

static int open_base(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:2") || pesc_model_open(&model, dev, "share/base", NULL) ||
           pesc_session_open(&session, model, CTX);
}

static int close_base(void **state)
{
    (void)state;
    pesc_session_close(session);
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

/* Tokens of sequence k; every third of its positions, from 1 + k % 3 on, is scored. */
static void make(int k, int32_t n, int32_t *ids, int32_t *targets)
{
    for (int32_t i = 0; i <= n; i++)
        ids[i] = (i * 37 + k * 101 + i * i) % model->shape.cfg.vocab;
    for (int32_t i = 0; i < n; i++)
        targets[i] = i % 3 == k % 3 ? ids[i + 1] : -1;
}

static double loss_of(const float *logits, int32_t target)
{
    double sum = 0;
    for (int32_t i = 0; i < model->shape.cfg.vocab; i++)
        sum += exp((double)logits[i]);
    return log(sum) - (double)logits[target];
}

static score expected(const int32_t *ids, const int32_t *targets, int32_t n)
{
    score s = { 0 };
    pesc_session_reset(session);
    for (int32_t i = 0; i < n; i++) {
        const float *logits;
        must(pesc_session_feed(session, ids + i, 1, &logits));
        if (targets[i] < 0)
            continue;
        s.sum += loss_of(logits, targets[i]);
        s.count++;
    }
    return s;
}

/* Lengths around a forward's, which ends inside some, and at the end of others. */
static void losses_are_those_of_single_tokens(void **state)
{
    (void)state;
    const int32_t most = dev->head_rows;
    const int32_t lengths[] = { 1, most - 1, 7, most, 2 * most + 9, most - 9, 40, 0, 3 };
    enum { N = sizeof lengths / sizeof *lengths };
    int32_t ids[CTX + 1], targets[CTX];
    score found[N] = { { 0 } };
    scorer *s;
    must(scorer_open(&s, model, CTX));
    for (int k = 0; k < N; k++) {
        make(k, lengths[k], ids, targets);
        must(scorer_add(s, ids, targets, lengths[k], &found[k]));
    }
    must(scorer_flush(s));
    must(scorer_flush(s));
    scorer_close(s);
    for (int k = 0; k < N; k++) {
        make(k, lengths[k], ids, targets);
        score want = expected(ids, targets, lengths[k]);
        assert_int_equal(found[k].count, want.count);
        assert_true(fabs(found[k].sum - want.sum) <= 1e-4 * (want.sum + 1e-9));
    }
}

/* More sequences than timelines, and some that end where a forward does: nothing is left behind
 * that fills the cache. */
static void timelines_are_given_back(void **state)
{
    (void)state;
    const int32_t most = dev->head_rows;
    int32_t ids[CTX + 1], targets[CTX];
    score sum = { 0 }, one = { 0 };
    scorer *s;
    must(scorer_open(&s, model, most));
    for (int k = 0; k < 40; k++) {
        make(0, most, ids, targets);
        must(scorer_add(s, ids, targets, most, &sum));
    }
    for (int k = 0; k < 300; k++)
        must(scorer_add(s, ids, targets, 1 + k % 5, &one));
    must(scorer_flush(s));
    scorer_close(s);
    score want = expected(ids, targets, most), first = expected(ids, targets, 3);
    assert_int_equal(sum.count, 40 * want.count);
    assert_true(fabs(sum.sum - 40 * want.sum) <= 1e-4 * sum.sum);
    assert_int_equal(one.count, 300 * first.count + 120);
}

static void a_bad_id_is_refused(void **state)
{
    (void)state;
    int32_t ids[] = { 1, model->shape.cfg.vocab }, targets[] = { 1, 1 };
    score sum = { 0 };
    scorer *s;
    must(scorer_open(&s, model, 8));
    must(scorer_add(s, ids, targets, 2, &sum));
    assert_int_equal(scorer_flush(s), PESC_FORMAT);
    scorer_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_single_tokens),
        cmocka_unit_test(timelines_are_given_back),
        cmocka_unit_test(a_bad_id_is_refused),
    };
    return cmocka_run_group_tests_name("score", tests, open_base, close_base);
}
