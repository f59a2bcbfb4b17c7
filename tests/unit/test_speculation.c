/* Speculation changes no token: random requests with guesses and without, greedy and sampled, with
 * and without a grammar, alone and among others. The oracle is a session that guesses nothing. */
#include "base/mem.h"
#include "base/rng.h"
#include "infer/constrain.h"
#include "infer/scheduler.h"
#include "infer/session.h"
#include "support/check.h"

enum { REQUESTS = 2000, TOGETHER = 32, CONTEXT = 96, PROMPT = 64, MOST = 24 };

static pesc_device *dev;
static pesc_model *model;

static const struct {
    pesc_grammar_kind kind;
    const char *text;
} sources[] = {
    { PESC_GRAMMAR_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"Ann\",\"Bo\"]},"
      "\"age\":{\"type\":\"integer\"}},\"required\":[\"name\",\"age\"]}" },
    { PESC_GRAMMAR_SCHEMA,
      "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"at\":{"
      "\"type\":\"boolean\"}},\"required\":[\"at\"]}}" },
    { PESC_GRAMMAR_REGEX, "the same words again(, the same words again)*" },
    { PESC_GRAMMAR_REGEX, "[a-z ]{3,40}\\." },
};
enum { GRAMMARS = sizeof sources / sizeof *sources };
static pesc_grammar *grammars[GRAMMARS];

/* A request, and what came of it. */
typedef struct request {
    int32_t prompt[PROMPT], n;
    pesc_sample_options opt;
    pesc_grammar *grammar; /* NULL: any text */
    int32_t want[MOST], n_want;
    int32_t got[MOST], n_got;
    int64_t kept;
    sampler_terms terms;
} request;

static request all[REQUESTS];

static int open_all(void **state)
{
    (void)state;
    if (pesc_device_open(&dev, "cpu:1") || pesc_model_open(&model, dev, "share/base", NULL))
        return 1;
    for (size_t i = 0; i < GRAMMARS; i++)
        if (pesc_grammar_open(&grammars[i], model, sources[i].kind, sources[i].text,
                              strlen(sources[i].text)))
            return 1;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < GRAMMARS; i++)
        pesc_grammar_close(grammars[i]);
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static int32_t below(uint64_t i, uint64_t what, int32_t n)
{
    return (int32_t)rng_below((rng_key){ 9, i }, what, (uint64_t)n);
}

/* A prompt that repeats itself after a few tokens, or hardly. */
static void draw_request(uint64_t i, request *r)
{
    *r = (request){ .n = 1 + below(i, 0, PROMPT), .opt = pesc_sample_defaults() };
    int32_t period = 1 + below(i, 1, below(i, 2, 2) ? 8 : PROMPT);
    for (int32_t k = 0; k < r->n; k++)
        r->prompt[k] = below(i, 10 + (uint64_t)(k % period), model->shape.cfg.vocab);
    r->opt.max_tokens = 1 + below(i, 3, MOST);
    r->opt.temperature = below(i, 4, 2) ? 0.2 * (1 + below(i, 5, 6)) : 0;
    r->opt.top_k = below(i, 6, 3) ? 0 : 4;
    r->opt.repetition_penalty = below(i, 7, 4) ? 1 : 1.1;
    r->opt.seed = (int64_t)i;
    r->opt.ignore_eos = true;
    r->grammar = below(i, 8, 2) ? grammars[below(i, 9, GRAMMARS)] : NULL;
}

static size_t alone(pesc_session *s, request *r, int64_t guesses, int32_t *ids, int32_t *n)
{
    pesc_generation g = PESC_INIT(pesc_generation);
    r->opt.draft_tokens = guesses;
    must(pesc_session_constrain(s, r->grammar));
    must(pesc_session_complete(s, r->prompt, (size_t)r->n, &r->opt, NULL, NULL, &g));
    assert_true(g.n_ids <= MOST);
    memcpy(ids, g.ids, g.n_ids * sizeof *ids);
    *n = (int32_t)g.n_ids;
    size_t kept = g.n_guesses_kept;
    pesc_generation_free(&g);
    return kept;
}

static void assert_same(const request *r)
{
    assert_int_equal(r->n_got, r->n_want);
    assert_memory_equal(r->got, r->want, (size_t)r->n_want * sizeof *r->want);
}

static void expect_all(void)
{
    pesc_session *s;
    must(pesc_session_open(&s, model, CONTEXT));
    for (uint64_t i = 0; i < REQUESTS; i++) {
        draw_request(i, &all[i]);
        assert_int_equal(alone(s, &all[i], 0, all[i].want, &all[i].n_want), 0);
    }
    pesc_session_close(s);
}

static void a_session_says_the_same(void **state)
{
    (void)state;
    pesc_session *s;
    size_t kept = 0, of_grammars = 0;
    expect_all();
    must(pesc_session_open(&s, model, CONTEXT));
    for (int i = 0; i < REQUESTS; i++) {
        request *r = &all[i];
        size_t n = alone(s, r, i % 3 ? 1 + i % GUESS_MOST : PESC_AUTO, r->got, &r->n_got);
        assert_same(r);
        kept += n;
        of_grammars += r->grammar ? n : 0;
    }
    pesc_session_close(s);
    assert_true(of_grammars > REQUESTS / 4 && kept > of_grammars);
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    request *r = ud;
    (void)more;
    r->got[r->n_got++] = id;
    return PESC_OK;
}

static pesc_status take_done(void *ud, const sched_result *result)
{
    request *r = ud;
    r->kept = result->guesses_kept;
    return PESC_OK;
}

/* Some of the requests, TOGETHER at a time; adds up the guesses that were right, with a grammar and
 * without. */
static void ask_together(int step, int64_t guesses, int64_t kept[2])
{
    scheduler *s;
    scheduler_options o = { TOGETHER, CONTEXT, 0, 0, false, false, guesses };
    must(scheduler_open(&s, model, &o));
    for (int i = 0, n = 1; i < REQUESTS; i += step, n++) {
        request *r = &all[i];
        r->n_got = 0;
        sched_request q = { .ids = r->prompt,
                            .n = r->n,
                            .max_tokens = (int32_t)r->opt.max_tokens,
                            .sample = &r->opt,
                            .scope = (uint64_t)i % 2,
                            .token = take_token,
                            .done = take_done,
                            .ud = r };
        r->terms = (sampler_terms){ 0 };
        if (r->grammar) {
            must(matcher_open(&r->terms.matcher, r->grammar));
            q.terms = &r->terms;
        }
        must(scheduler_add(s, &q, NULL));
        if (n % TOGETHER == 0)
            must(scheduler_run(s));
    }
    must(scheduler_run(s));
    scheduler_close(s);
    for (int i = 0; i < REQUESTS; i += step) {
        assert_same(&all[i]);
        kept[all[i].grammar != NULL] += all[i].kept;
        matcher_close(all[i].terms.matcher);
    }
}

static void among_others_it_is_the_same(void **state)
{
    (void)state;
    int64_t kept[2] = { 0 };
    ask_together(1, 4, kept);
    assert_true(kept[0] > REQUESTS / 50 && kept[1] > REQUESTS / 4);
    ask_together(1, PESC_AUTO, kept);
}

/* The draft is right wherever the model is greedy, since it is the same in another dtype. */
static void a_draft_of_the_model_changes_nothing(void **state)
{
    (void)state;
    enum { EACH = 8 };
    pesc_model *draft;
    pesc_session *s;
    pesc_load_options o = pesc_load_defaults();
    int64_t kept[2] = { 0 };
    size_t alone_kept = 0;
    o.compute_dtype = "bf16";
    must(pesc_model_open(&draft, dev, "share/base", &o));
    must_fail(pesc_model_draft(model, model), PESC_USAGE, "its own draft");
    must(pesc_model_draft(model, draft));
    pesc_model_close(draft); /* the model keeps it */
    must(pesc_session_open(&s, model, CONTEXT));
    for (int i = 0; i < REQUESTS; i += EACH) {
        alone_kept += alone(s, &all[i], 3, all[i].got, &all[i].n_got);
        assert_same(&all[i]);
    }
    pesc_session_close(s);
    ask_together(EACH, 3, kept);
    ask_together(EACH, PESC_AUTO, kept);
    assert_true(alone_kept > REQUESTS / 2 && kept[0] > REQUESTS / 4);
    must(pesc_model_draft(model, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_says_the_same),
        cmocka_unit_test(among_others_it_is_the_same),
        cmocka_unit_test(a_draft_of_the_model_changes_nothing),
    };
    return cmocka_run_group_tests_name("speculation", tests, open_all, close_all);
}
