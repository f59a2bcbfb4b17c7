/* A session that has said something before gives what a fresh one gives, and end tokens end it. */
#include "infer/session.h"
#include "support/check.h"
#include "support/golden.h"

enum { NEW = 6, CTX = 64 };

static pesc_device *dev;
static pesc_model *model;

static int open_all(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:1") ||
           pesc_model_open(&model, dev, golden_path("llama"), NULL);
}

static int close_all(void **state)
{
    (void)state;
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static void complete(pesc_session *s, const int32_t *ids, size_t n, pesc_generation *g)
{
    pesc_sample_options opt = pesc_sample_defaults();
    opt.max_tokens = NEW;
    opt.ignore_eos = true;
    must(pesc_session_complete(s, ids, n, &opt, NULL, NULL, g));
    assert_int_equal(g->n_ids, NEW);
}

/* Prompts that share nothing, a part, or all with what the session holds, and shorter ones. */
static void a_used_session_equals_a_fresh_one(void **state)
{
    (void)state;
    static const int32_t prompts[][8] = {
        { 1, 5, 9, 12, 7, 22, 33, 41 }, { 1, 5, 9, 2, 8, 4, 6, 3 }, { 1, 5 },
        { 1, 5, 9, 12, 7, 22, 33, 41 }, { 4, 4, 4, 4, 4, 4 },       { 1, 5, 9, 12, 7, 22, 33, 41 },
    };
    static const size_t lengths[] = { 8, 8, 2, 8, 6, 5 };
    pesc_session *used, *fresh;
    must(pesc_session_open(&used, model, CTX));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pesc_generation a = PESC_INIT(pesc_generation), b = a;
        must(pesc_session_open(&fresh, model, CTX));
        complete(used, prompts[i], lengths[i], &a);
        complete(fresh, prompts[i], lengths[i], &b);
        assert_memory_equal(a.ids, b.ids, NEW * sizeof *a.ids);
        size_t bytes = (size_t)model->shape.cfg.vocab * sizeof *used->logits;
        assert_memory_equal(used->logits, fresh->logits, bytes);
        pesc_generation_free(&a);
        pesc_generation_free(&b);
        pesc_session_close(fresh);
    }
    pesc_session_close(used);
}

static void an_end_token_ends_the_text(void **state)
{
    (void)state;
    static const int32_t prompt[] = { 1, 5, 9 };
    pesc_session *s;
    pesc_generation all = PESC_INIT(pesc_generation), g = all;
    must(pesc_session_open(&s, model, CTX));
    complete(s, prompt, 3, &all);
    assert_string_equal(all.finish, "length");
    size_t end = 1; /* the first token that is not a repeat of one before it */
    while (end < NEW && all.ids[end] == all.ids[0])
        end++;
    assert_true(end < NEW);
    int32_t n_eos = model->shape.cfg.n_eos, eos = model->shape.cfg.eos[0];
    model->shape.cfg.n_eos = 1;
    model->shape.cfg.eos[0] = all.ids[end];
    pesc_sample_options opt = pesc_sample_defaults();
    opt.max_tokens = NEW;
    must(pesc_session_complete(s, prompt, 3, &opt, NULL, NULL, &g));
    assert_int_equal(g.n_ids, end + 1);
    assert_string_equal(g.finish, "stop");
    pesc_generation_free(&g);
    complete(s, prompt, 3, &g); /* ignore_eos */
    pesc_generation_free(&g);
    model->shape.cfg.n_eos = n_eos;
    model->shape.cfg.eos[0] = eos;
    pesc_generation_free(&all);
    pesc_session_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_used_session_equals_a_fresh_one),
        cmocka_unit_test(an_end_token_ends_the_text),
    };
    return cmocka_run_group_tests_name("session", tests, open_all, close_all);
}
