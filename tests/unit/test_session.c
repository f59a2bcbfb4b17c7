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
static void used_equals_fresh(pesc_model *m)
{
    static const int32_t prompts[][8] = {
        { 1, 5, 9, 12, 7, 22, 33, 41 }, { 1, 5, 9, 2, 8, 4, 6, 3 }, { 1, 5 },
        { 1, 5, 9, 12, 7, 22, 33, 41 }, { 4, 4, 4, 4, 4, 4 },       { 1, 5, 9, 12, 7, 22, 33, 41 },
    };
    static const size_t lengths[] = { 8, 8, 2, 8, 6, 5 };
    pesc_session *used, *fresh;
    must(pesc_session_open(&used, m, CTX));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pesc_generation a = PESC_INIT(pesc_generation), b = a;
        must(pesc_session_open(&fresh, m, CTX));
        complete(used, prompts[i], lengths[i], &a);
        complete(fresh, prompts[i], lengths[i], &b);
        assert_memory_equal(a.ids, b.ids, NEW * sizeof *a.ids);
        size_t bytes = (size_t)m->shape.cfg.vocab * sizeof *used->logits;
        assert_memory_equal(session_logits(used), session_logits(fresh), bytes);
        pesc_generation_free(&a);
        pesc_generation_free(&b);
        pesc_session_close(fresh);
    }
    pesc_session_close(used);
}

static void a_used_session_equals_a_fresh_one(void **state)
{
    (void)state;
    used_equals_fresh(model);
}

/* Layers with a state of the last token alone: what a session has fed cannot be shortened. */
static void states_are_those_of_the_prompt(void **state)
{
    (void)state;
    pesc_model *hybrid;
    must(pesc_model_open(&hybrid, dev, golden_path("lfm2"), NULL));
    used_equals_fresh(hybrid);
    pesc_model_close(hybrid);
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

/* Texts that repeat themselves, so that many guesses are right and many are wrong. */
static void guesses_change_no_token(void **state)
{
    (void)state;
    static const char *const families[] = { "llama", "mixtral", "camelidae" };
    enum { LONG = 48, ROOM = 80, REQUESTS = 40 };
    size_t kept = 0, wrong = 0;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        pesc_model *m;
        pesc_session *s;
        must(pesc_model_open(&m, dev, golden_path(families[f]), NULL));
        must(pesc_session_open(&s, m, ROOM));
        for (int32_t i = 0; i < REQUESTS; i++) {
            pesc_generation plain = PESC_INIT(pesc_generation), guessed = plain;
            pesc_sample_options o = pesc_sample_defaults();
            int32_t prompt[24];
            for (int32_t k = 0; k < 24; k++)
                prompt[k] = 3 + (k % (2 + i % 7)) * (1 + i % 5);
            o.ignore_eos = true;
            o.max_tokens = 1 + i * 7 % 64; /* some fill the context */
            o.temperature = i % 3 ? 0.1 * (i % 4) : 0;
            o.top_k = 1 + i % 4;
            o.repetition_penalty = i % 5 ? 1 : 1.05;
            o.seed = i;
            o.draft_tokens = 0;
            must(pesc_session_complete(s, prompt, 24, &o, NULL, NULL, &plain));
            assert_int_equal(plain.n_guessed, 0);
            o.draft_tokens = i % 9 ? i % 9 : PESC_AUTO;
            must(pesc_session_complete(s, prompt, 24, &o, NULL, NULL, &guessed));
            assert_int_equal(guessed.n_ids, plain.n_ids);
            assert_memory_equal(guessed.ids, plain.ids, plain.n_ids * sizeof *plain.ids);
            kept += guessed.n_guesses_kept;
            wrong += guessed.n_guessed - guessed.n_guesses_kept;
            pesc_generation_free(&plain);
            pesc_generation_free(&guessed);
        }
        pesc_session_close(s);
        pesc_model_close(m);
    }
    assert_true(kept > 100 && wrong > 100);
}

/* The model as its own draft is always right where it is greedy; another one hardly ever. */
static void a_draft_model_changes_no_token(void **state)
{
    (void)state;
    enum { LONG = 40, ROOM = 80 };
    static const int32_t prompt[] = { 1, 5, 9, 12, 7, 22, 33, 41 };
    pesc_model *other;
    must(pesc_model_open(&other, dev, golden_path("mistral"), NULL));
    pesc_model *drafts[] = { model, other };
    for (int which = 0; which < 2; which++) {
        pesc_session *s, *plain;
        must(pesc_session_open(&s, model, ROOM));
        must(pesc_session_open(&plain, model, ROOM));
        must(pesc_session_draft(s, drafts[which]));
        for (int i = 0; i < 12; i++) {
            pesc_generation a = PESC_INIT(pesc_generation), b = a;
            pesc_sample_options o = pesc_sample_defaults();
            o.ignore_eos = true;
            o.max_tokens = LONG;
            o.temperature = i % 2 ? 0.9 : 0;
            o.seed = i;
            o.draft_tokens = i % 4 < 2 ? 4 : PESC_AUTO;
            must(pesc_session_complete(s, prompt, 8 - (size_t)i % 3, &o, NULL, NULL, &a));
            o.draft_tokens = 0;
            must(pesc_session_complete(plain, prompt, 8 - (size_t)i % 3, &o, NULL, NULL, &b));
            assert_int_equal(a.n_ids, b.n_ids);
            assert_memory_equal(a.ids, b.ids, a.n_ids * sizeof *a.ids);
            if (i == 0) /* beside guesses of the text itself */
                assert_true(which == 0 ? 2 * a.n_guesses_kept > a.n_guessed
                                       : 2 * a.n_guesses_kept < a.n_guessed);
            pesc_generation_free(&a);
            pesc_generation_free(&b);
        }
        pesc_session_close(plain);
        pesc_session_close(s);
    }
    pesc_model_close(other);
}

static void a_draft_needs_the_same_vocabulary(void **state)
{
    (void)state;
    pesc_model *other;
    pesc_session *s;
    must(pesc_model_open(&other, dev, "share/base", NULL));
    must(pesc_session_open(&s, model, CTX));
    assert_int_equal(pesc_session_draft(s, other), PESC_USAGE);
    assert_non_null(strstr(pesc_last_error(), "same vocabulary"));
    must(pesc_session_draft(s, model));
    must(pesc_session_draft(s, NULL));
    pesc_session_close(s);
    pesc_model_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_used_session_equals_a_fresh_one),
        cmocka_unit_test(states_are_those_of_the_prompt),
        cmocka_unit_test(an_end_token_ends_the_text),
        cmocka_unit_test(guesses_change_no_token),
        cmocka_unit_test(a_draft_model_changes_no_token),
        cmocka_unit_test(a_draft_needs_the_same_vocabulary),
    };
    return cmocka_run_group_tests_name("session", tests, open_all, close_all);
}
