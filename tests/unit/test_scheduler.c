/* The scheduler: what a request gets depends on nothing but the request. The oracles compute one
 * request at a time by other means: pesc_logits() for scores, a session for generated tokens. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/status.h"
#include "infer/scheduler.h"
#include "support/check.h"
#include "support/far.h"
#include "support/golden.h"

#include <stdio.h>
#include <stdlib.h>

enum { TASKS = 3, DOCS = 5, CHOICES = 4, CONTEXT = 330, MAX_REQUESTS = 128, MAX_NEW = 200 };

/* ---- requests and what is expected of them ---- */

typedef struct sample {
    int32_t ids[CONTEXT];
    int32_t n, first, max_tokens; /* first 0: generation */
    bool sampled;
    double logprob; /* expected, then what came */
    bool greedy;
    int32_t got[MAX_NEW];
    int32_t n_got;
    int done;
    sched_finish finish;
    uint64_t ticket;
    pesc_status fails; /* of its callback */
} sample;

typedef struct samples {
    sample all[MAX_REQUESTS];
    int n;
} samples;

static uint64_t drawn;
static int64_t guesses_kept; /* of all requests */

static int32_t below(int32_t n)
{
    return (int32_t)rng_below((rng_key){ 5, 6 }, drawn++, (uint64_t)n);
}

static void append(sample *to, int32_t n, int32_t vocab)
{
    for (int32_t i = 0; i < n; i++)
        to->ids[to->n++] = below(vocab);
}

static pesc_sample_options sample_options(uint64_t seed)
{
    pesc_sample_options o = pesc_sample_defaults();
    o.temperature = 0.8;
    o.top_k = 9;
    o.repetition_penalty = 1.1;
    o.seed = (int64_t)seed;
    return o;
}

/* Tasks have a common beginning, documents of a task another, choices of a document another. The
 * last two choices of a document differ in their last token only. */
static void make_samples(samples *to, int32_t vocab)
{
    to->n = 0;
    for (int t = 0; t < TASKS; t++) {
        sample shots = { 0 };
        append(&shots, 50 + below(120), vocab);
        for (int d = 0; d < DOCS; d++) {
            sample doc = shots;
            append(&doc, 1 + below(80), vocab);
            doc.first = doc.n;
            for (int c = 0; c < CHOICES; c++) {
                sample *s = &to->all[to->n++];
                *s = doc;
                if (c == CHOICES - 1) {
                    *s = s[-1];
                    s->n--;
                }
                append(s, c == CHOICES - 1 ? 1 : 1 + below(9), vocab);
            }
            sample *s = &to->all[to->n++];
            *s = doc;
            s->first = 0;
            s->max_tokens = 1 + below(24);
            s->sampled = d % 2;
        }
    }
}

/* By the logits of the whole string, computed in one forward. */
static void expect_score(pesc_model *m, sample *s)
{
    size_t vocab = (size_t)m->shape.cfg.vocab;
    float *logits = malloc((size_t)s->n * vocab * sizeof *logits);
    tensor rows = { logits, DT_F32, 2, { s->n, m->shape.cfg.vocab } };
    tensor on_dev = rows;
    must(pesc_logits(m, s->ids, (size_t)s->n, logits));
    must(m->dev->op->alloc(m->dev, tensor_bytes(&rows), &on_dev.data));
    m->dev->op->upload(m->dev, on_dev.data, logits, tensor_bytes(&rows));
    void *memory;
    must(m->dev->op->alloc(m->dev, 64, &memory));
    s->logprob = 0;
    s->greedy = true;
    for (int32_t i = s->first; i < s->n; i++) {
        int32_t pair[2] = { i - 1, s->ids[i] }, best;
        float logprob;
        tensor p = { (char *)memory, DT_I32, 2, { 1, 2 } };
        tensor l = { (char *)memory + 16, DT_F32, 1, { 1 } };
        tensor b = { (char *)memory + 32, DT_I32, 1, { 1 } };
        m->dev->op->upload(m->dev, p.data, pair, sizeof pair);
        m->dev->op->token_score(m->dev, l, b, on_dev, p);
        must(m->dev->op->download(m->dev, &logprob, l.data, 4));
        must(m->dev->op->download(m->dev, &best, b.data, 4));
        s->logprob += (double)logprob;
        s->greedy &= best == s->ids[i];
    }
    m->dev->op->free(m->dev, memory);
    m->dev->op->free(m->dev, on_dev.data);
    free(logits);
}

static void expect_tokens(pesc_model *m, sample *s)
{
    pesc_session *one;
    pesc_generation g = PESC_INIT(pesc_generation);
    pesc_sample_options o = s->sampled ? sample_options((uint64_t)s->n) : pesc_sample_defaults();
    o.max_tokens = s->max_tokens;
    o.ignore_eos = true;
    o.draft_tokens = 0;
    o.temperature = s->sampled ? o.temperature : 0;
    must(pesc_session_open(&one, m, CONTEXT));
    must(pesc_session_complete(one, s->ids, (size_t)s->n, &o, NULL, NULL, &g));
    assert_int_equal(g.n_ids, s->max_tokens);
    memcpy(s->got, g.ids, g.n_ids * sizeof *g.ids);
    s->n_got = (int32_t)g.n_ids;
    pesc_generation_free(&g);
    pesc_session_close(one);
}

/* ---- running them ---- */

static pesc_status take_done(void *ud, const sched_result *r)
{
    sample *s = ud;
    s->done++;
    s->finish = r->finish;
    s->logprob = r->logprob;
    guesses_kept += r->guesses_kept;
    s->greedy = r->greedy;
    if (!s->first) {
        assert_int_equal(r->n, s->n_got);
        assert_memory_equal(r->ids, s->got, (size_t)r->n * sizeof *r->ids);
    }
    return s->fails;
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    sample *s = ud;
    assert_true(*more);
    s->got[s->n_got++] = id;
    return PESC_OK;
}

static void add(scheduler *s, sample *of, uint64_t scope)
{
    pesc_sample_options o = sample_options((uint64_t)of->n);
    sched_request r = { .ids = of->ids,
                        .n = of->n,
                        .first = of->first,
                        .max_tokens = of->max_tokens,
                        .sample = of->sampled ? &o : NULL,
                        .scope = scope,
                        .token = take_token,
                        .done = take_done,
                        .ud = of };
    must(scheduler_add(s, &r, &of->ticket));
}

static void assert_same(const sample *got, const sample *want)
{
    assert_int_equal(got->done, 1);
    assert_int_equal(got->finish, want->first ? FINISH_SCORED : FINISH_LENGTH);
    if (want->first) {
        assert_memory_equal(&got->logprob, &want->logprob, sizeof want->logprob);
        assert_int_equal(got->greedy, want->greedy);
    } else {
        assert_int_equal(got->n_got, want->n_got);
        assert_memory_equal(got->got, want->got, (size_t)want->n_got * sizeof *want->got);
    }
}

typedef struct setting {
    scheduler_options opt;
    bool sort;
} setting;

/* All requests in a random order; with `sort` the scheduler chooses its own. */
static scheduler_counters run_all(pesc_model *m, const samples *want, const setting *with,
                                  bool overlapping)
{
    static samples got;
    int order[MAX_REQUESTS];
    scheduler_options o = with->opt;
    scheduler *s;
    o.overlap = overlapping && !o.guesses;
    must(scheduler_open(&s, m, &o));
    for (int i = 0; i < want->n; i++) {
        int j = (int)below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < want->n; i++) {
        sample *g = &got.all[order[i]];
        *g = want->all[order[i]];
        g->n_got = g->done = 0;
        add(s, g, 0);
    }
    if (with->sort)
        must(scheduler_sort(s));
    assert_int_equal(scheduler_count(s).waiting, want->n);
    must(scheduler_run(s));
    for (int i = 0; i < want->n; i++)
        assert_same(&got.all[i], &want->all[i]);
    scheduler_counters c = scheduler_count(s);
    assert_int_equal(c.waiting + c.running + c.pages_used, 0);
    scheduler_close(s);
    return c;
}

static const setting settings[] = {
    { { 7, CONTEXT, 64, 0, false, false, 0 }, true },
    { { 1, CONTEXT, 0, 0, false, false, 0 }, false },
    { { 2, CONTEXT, 5, 0, false, false, 0 }, true },
    { { 33, CONTEXT, 0, 0, false, false, 0 }, true },
    { { 7, CONTEXT, 63, CONTEXT, false, false, 0 }, false },
    { { 33, CONTEXT, 100, 700, false, false, 0 }, false },
    { { 64, CONTEXT, 200, 20000, false, false, 0 }, false },
    { { 7, CONTEXT, 0, 0, true, false, 0 }, true },
    { { 33, CONTEXT, 0, 700, true, false, 0 }, false },
    { { 1, CONTEXT, 0, 0, false, false, 8 }, false },
    { { 5, CONTEXT, 200, 700, false, false, 3 }, true },
    { { 33, CONTEXT, 0, 0, false, false, PESC_AUTO }, false },
};

/* Every other setting overlaps forwards and callbacks. */
static void requests_depend_on_nothing_else(const char *device_name, const char *path,
                                            const char *compute, int32_t dynamic_beyond,
                                            bool overlap_first)
{
    static samples want;
    pesc_device *d;
    pesc_model *m;
    pesc_load_options o = pesc_load_defaults();
    bool is_far = strcmp(device_name, "far") == 0; /* slow: fewer requests, one setting */
    o.compute_dtype = (char *)(uintptr_t)compute;
    if (is_far)
        d = far_open(0);
    else
        must(pesc_device_open(&d, device_name));
    must(pesc_model_open(&m, d, path, &o));
    rope_rule *r = &m->shape.cfg.ropes[0];
    if (dynamic_beyond) {
        r->kind = r->kind == ROPE_LONG ? ROPE_LONG : ROPE_DYNAMIC;
        r->factor = 3;
        m->shape.cfg.context = r->original = dynamic_beyond;
    }
    make_samples(&want, m->shape.cfg.vocab);
    want.n = is_far ? 2 * (CHOICES + 1) : want.n;
    for (int i = 0; i < want.n; i++) {
        if (want.all[i].first)
            expect_score(m, &want.all[i]);
        else
            expect_tokens(m, &want.all[i]);
    }
    for (size_t i = 0; i < (is_far ? 1 : sizeof settings / sizeof *settings); i++) {
        scheduler_counters c = run_all(m, &want, &settings[i], (i % 2 == 0) == overlap_first);
        assert_true(c.computed < c.requested || dynamic_beyond || config_has_state(&m->shape.cfg));
    }
    pesc_model_close(m);
    pesc_device_close(d);
}

static void results_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    static const char *const families[] = { "llama",   "mixtral", "deepseek_v2",  "camelidae",
                                            "mistral", "gemma4",  "gemma4-shared" };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        requests_depend_on_nothing_else(i % 2 ? "cpu:3" : "cpu:1", golden_path(families[i]),
                                        i % 3 ? "f32" : "bf16", 0, i % 2);
    requests_depend_on_nothing_else("cpu:2", "share/base", "f32", 0, false);
    requests_depend_on_nothing_else("cpu:2", golden_path("qwen3_5"), "f32", 0, true);
    requests_depend_on_nothing_else("far", golden_path("sparsetral"), "f32", 0, true);
    assert_true(guesses_kept > 10);
}

/* Dynamic RoPE: prompts on both sides of the context, and generations that cross it. A prompt
 * beyond it is rotated by its own length, whatever the pieces it is read in and whatever is cached;
 * with longrope a generation that crosses the original context is computed anew. */
static void dynamic_rope_depends_on_the_request(void **state)
{
    (void)state;
    requests_depend_on_nothing_else("cpu:2", golden_path("llama"), "f32", 20, false);
    requests_depend_on_nothing_else("cpu:2", golden_path("mixtral"), "f32", 128, true);
    requests_depend_on_nothing_else("cpu:2", golden_path("llama"), "f32", 150, false);
    requests_depend_on_nothing_else("cpu:2", golden_path("mixtral"), "f32", 190, true);
    requests_depend_on_nothing_else("cpu:2", golden_path("phi3-long"), "f32", 128, false);
    requests_depend_on_nothing_else("cpu:2", golden_path("phi3-long"), "f32", 40, true);
}

/* ---- on one model ---- */
static pesc_device *dev;
static pesc_model *model;
static bool overlap; /* of the schedulers of a test */

static int open_model(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:1") ||
           pesc_model_open(&model, dev, golden_path("llama"), NULL);
}

static int close_model(void **state)
{
    (void)state;
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static scheduler *open_pool(int32_t slots, int32_t context, int32_t max_tokens, int64_t pool)
{
    scheduler *s;
    scheduler_options o = { slots, context, max_tokens, pool, false, overlap, overlap ? 0 : 8 };
    must(scheduler_open(&s, model, &o));
    return s;
}

static scheduler *open_scheduler(int32_t slots, int32_t max_tokens)
{
    return open_pool(slots, CONTEXT, max_tokens, 0);
}

static sample make(int32_t n, int32_t first, int32_t max_tokens)
{
    sample s = { .first = first, .max_tokens = max_tokens };
    append(&s, n, model->shape.cfg.vocab);
    return s;
}

/* Five shots, a question and four letters: the shots are computed once, and one row serves the four
 * letters. */
static void a_shared_prefix_is_computed_once(void **state)
{
    overlap = *state;
    enum { SHOTS = 200, QUESTION = 30, N = 6, LETTERS = 4 };
    static sample all[N * LETTERS];
    scheduler *s = open_scheduler(8, 0);
    sample shots = make(SHOTS, 0, 0);
    for (int i = 0; i < N; i++) {
        sample question = shots;
        question.ids[question.n++] = i; /* questions differ in their first token */
        append(&question, QUESTION - 1, model->shape.cfg.vocab);
        question.first = question.n;
        for (int c = 0; c < LETTERS; c++) {
            sample *a = &all[c * N + i];
            *a = question;
            a->ids[a->n++] = c;
            add(s, a, 0);
        }
    }
    must(scheduler_sort(s));
    must(scheduler_run(s));
    scheduler_counters c = scheduler_count(s);
    assert_int_equal(c.requested, N * LETTERS * (SHOTS + QUESTION));
    assert_int_equal(c.computed, SHOTS + N * QUESTION);
    assert_int_equal(c.forwards, 2);
    scheduler_close(s);
}

/* Without sorting, a request that arrives later still finds the prefix of one that is done. */
static void a_later_request_reuses_what_is_cached(void **state)
{
    (void)state;
    overlap = false;
    scheduler *s = open_scheduler(2, 0);
    sample first = make(150, 0, 3), second = first, other = first;
    second.n = 140;
    add(s, &first, 7);
    must(scheduler_run(s));
    assert_int_equal(scheduler_count(s).computed, 152);
    add(s, &second, 7);
    must(scheduler_run(s));
    assert_int_equal(scheduler_count(s).computed, 152 + 1 + 2);
    other.n_got = 0;
    add(s, &other, 8); /* another scope: nothing is shared */
    must(scheduler_run(s));
    assert_int_equal(scheduler_count(s).computed, 152 + 1 + 2 + 152);
    assert_memory_equal(other.got, first.got, 3 * sizeof *first.got);
    scheduler_close(s);
}

/* A running generation gets a token in every step while a long prompt is read. */
static void a_long_prompt_does_not_stop_generation(void **state)
{
    (void)state;
    overlap = false;
    scheduler *s = open_scheduler(3, 16);
    sample talk = make(5, 0, 20), longer = make(300, 0, 1), shorter = make(8, 0, 1);
    bool more;
    add(s, &talk, 0);
    must(scheduler_step(s, &more));
    assert_int_equal(talk.n_got, 1);
    add(s, &longer, 0);
    add(s, &shorter, 0);
    for (int i = 2; i <= 20; i++) {
        must(scheduler_step(s, &more));
        assert_int_equal(talk.n_got, i);
        if (i == 4)
            assert_int_equal(shorter.done, 1); /* the older prompt takes half of the tokens */
    }
    assert_int_equal(longer.done, 0);
    must(scheduler_run(s));
    assert_int_equal(longer.done, 1);
    scheduler_close(s);
}

/* Beside a generation no more of a prompt is read than is allowed; alone it is read at once. */
static void prompts_are_limited_beside_generation(void **state)
{
    (void)state;
    overlap = false;
    bool more;
    scheduler *s = open_scheduler(3, 64);
    sample talk = make(5, 0, 12), longer = make(60, 0, 1);
    add(s, &talk, 0);
    must(scheduler_step(s, &more));
    assert_int_equal(scheduler_count(s).prompt_tokens, 5);
    add(s, &longer, 0);
    const int32_t limits[6] = { 0, 7, 0, 1, 20, -1 }, expected[6] = { 0, 7, 0, 1, 20, 32 };
    for (int i = 0; i < 6; i++) {
        scheduler_limit_prompts(s, limits[i]);
        assert_int_equal(scheduler_generating(s), 1);
        must(scheduler_step(s, &more));
        assert_int_equal(scheduler_count(s).prompt_tokens, expected[i]);
    }
    assert_true(talk.n_got == 7 && longer.done == 1);
    scheduler_close(s);
}

/* Two generations that do not fit the pool together: one is preempted, and goes on where it was. */
static void a_preempted_request_goes_on(void **state)
{
    overlap = *state;
    static sample want[2], got[2];
    scheduler *s = open_pool(2, 320, 0, 320);
    assert_int_equal(scheduler_count(s).pages, 7);
    for (int i = 0; i < 2; i++) {
        want[i] = make(180, 0, 130);
        want[i].sampled = i;
        expect_tokens(model, &want[i]);
        got[i] = want[i];
        got[i].n_got = 0;
        add(s, &got[i], 0);
    }
    must(scheduler_run(s));
    assert_same(&got[0], &want[0]);
    assert_same(&got[1], &want[1]);
    assert_int_equal(scheduler_count(s).preempted, 1);
    scheduler_close(s);
}

/* A score is preempted near its end by an older generation; it is computed again. */
static void a_preempted_score_begins_again(void **state)
{
    overlap = *state;
    static sample score, want, talk;
    bool more;
    scheduler *s = open_pool(2, 320, 4, 320);
    talk = make(120, 0, 150);
    score = make(240, 10, 0);
    want = score;
    expect_score(model, &want);
    add(s, &talk, 0);
    while (talk.n_got == 0)
        must(scheduler_step(s, &more));
    add(s, &score, 0);
    must(scheduler_run(s));
    assert_int_equal(scheduler_count(s).preempted, 1);
    assert_same(&score, &want);
    scheduler_close(s);
}

/* Requests that outgrow the pool together: one that is preempted comes back only when the others
 * can go on beside it, not to be preempted again at the next page. */
static void a_full_pool_is_not_fought_over(void **state)
{
    overlap = *state;
    enum { TALKS = 16 };
    static sample talks[TALKS];
    scheduler *s = open_pool(TALKS, 320, 64, 1280);
    for (int i = 0; i < TALKS; i++) {
        talks[i] = make(100, 0, 200);
        talks[i].ids[0] = i; /* no prefix is shared */
        add(s, &talks[i], 0);
    }
    must(scheduler_run(s));
    for (int i = 0; i < TALKS; i++)
        assert_int_equal(talks[i].n_got, 200);
    assert_in_range(scheduler_count(s).preempted, 1, TALKS / 2);
    scheduler_close(s);
}

/* The context and the pool bound what a request can be. */
static void limits_are_kept(void **state)
{
    overlap = *state;
    scheduler *s = open_scheduler(2, 0);
    sample longest = make(CONTEXT, CONTEXT - 1, 0), full = make(CONTEXT - 1, 0, 9);
    sched_request r = { .ids = longest.ids, .n = CONTEXT, .max_tokens = 1, .done = take_done };
    must_fail(scheduler_add(s, &r, NULL), PESC_USAGE, "but the context holds 329");
    r.n = 0;
    must_fail(scheduler_add(s, &r, NULL), PESC_USAGE, "at least one token of context");
    r.n = 2;
    r.first = 2;
    r.max_tokens = 0;
    must_fail(scheduler_add(s, &r, NULL), PESC_USAGE, "and one to score");
    r.first = 1;
    r.ids = (int32_t[]){ 1, model->shape.cfg.vocab };
    must_fail(scheduler_add(s, &r, NULL), PESC_USAGE, "found id 67, expected 0 to 66");
    add(s, &longest, 0);
    add(s, &full, 0);
    must(scheduler_run(s));
    assert_int_equal(longest.done, 1);
    assert_int_equal(full.n_got, 1);
    assert_int_equal(full.finish, FINISH_LENGTH);
    scheduler_close(s);
}

static pesc_status open_and_run(void)
{
    scheduler *s = NULL;
    bool more = true;
    static sample a, b;
    a = make(70, 60, 0);
    b = make(20, 0, 2);
    pesc_sample_options o = sample_options(1);
    sched_request score = { .ids = a.ids, .n = a.n, .first = 60, .done = take_done, .ud = &a };
    sched_request talk = { .ids = b.ids, .n = b.n, .max_tokens = 2, .sample = &o };
    talk.token = take_token;
    talk.done = take_done;
    talk.ud = &b;
    scheduler_options small = { 2, 80, 0, 0, false, overlap, 0 };
    pesc_status st = scheduler_open(&s, model, &small);
    st = st == PESC_OK ? scheduler_add(s, &score, NULL) : st;
    st = st == PESC_OK ? scheduler_add(s, &talk, NULL) : st;
    st = st == PESC_OK ? scheduler_sort(s) : st;
    while (st == PESC_OK && more)
        st = scheduler_step(s, &more);
    scheduler_close(s);
    return st;
}

static void refused_memory_is_reported(void **state)
{
    overlap = *state;
    int refused = 0, fired = 1;
    for (uint64_t n = 1; fired; n++) {
        mem_fail_at(n);
        pesc_status st = open_and_run();
        fired = mem_fail_fired();
        mem_fail_at(0);
        assert_true(st == PESC_OK || (fired && st == PESC_NOMEM)); /* some are not needed */
        refused += st == PESC_NOMEM;
    }
    assert_true(refused > 20);
}

/* One forward after the other, and forwards that overlap with callbacks. */
#define BOTH(test) cmocka_unit_test(test), cmocka_unit_test_prestate(test, &overlap)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_the_batch),
        cmocka_unit_test(dynamic_rope_depends_on_the_request),
        BOTH(a_shared_prefix_is_computed_once),
        cmocka_unit_test(a_later_request_reuses_what_is_cached),
        cmocka_unit_test(a_long_prompt_does_not_stop_generation),
        cmocka_unit_test(prompts_are_limited_beside_generation),
        BOTH(a_preempted_request_goes_on),
        BOTH(a_preempted_score_begins_again),
        BOTH(a_full_pool_is_not_fought_over),
        BOTH(limits_are_kept),
        BOTH(refused_memory_is_reported),
    };
    return cmocka_run_group_tests_name("scheduler", tests, open_model, close_model);
}
