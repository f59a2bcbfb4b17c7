/* With batch_invariant a request gets the same bits alone and among others, whatever is cached or
 * preempted. Each request is computed alone first, by the same scheduler: on a GPU no other path
 * has its bits. PESC_TEST_DEVICE names the device.
 *   test_batch_invariant [MODEL]      a model of your own, instead of the small ones */
#include "base/rng.h"
#include "infer/scheduler_state.h"
#include "support/check.h"
#include "support/golden.h"

#include <stdlib.h>

enum { CONTEXT = 850, SLOTS = 9, NEW = 130 };

/* Lengths around those of pages (64), pieces and forwards; the texts begin alike. */
static const int32_t lengths[] = { 1, 2, 3, 17, 63, 64, 65, 66, 67, 128, 131, 200, 700 };
enum { REQUESTS = sizeof lengths / sizeof *lengths };

typedef struct request {
    int32_t ids[CONTEXT];
    int32_t n, first; /* first: scored from there on; 0: NEW tokens are generated */
    float logprobs[CONTEXT];
    int32_t tokens[CONTEXT];
    int32_t rows, done;
} request;

static pesc_status take_row(void *ud, const sched_row *r)
{
    request *q = ud;
    q->tokens[q->rows] = r->token.id;
    q->logprobs[q->rows++] = r->token.logprob;
    return PESC_OK;
}

static pesc_status take_done(void *ud, const sched_result *r)
{
    request *q = ud;
    (void)r;
    q->done++;
    return PESC_OK;
}

static void make(request *q, int32_t i, int32_t vocab)
{
    int32_t split = lengths[i] / 2;
    *q = (request){ .n = lengths[i] };
    for (int32_t t = 0; t < q->n; t++)
        q->ids[t] = (int32_t)rng_below((rng_key){ 3, t < split ? 0 : (uint64_t)i }, (uint64_t)t,
                                       (uint64_t)vocab);
    q->first = i % 3 == 2 && q->n > 1 ? 1 + q->n / 2 : 0;
}

static void add(scheduler *s, request *q)
{
    q->rows = q->done = 0;
    sched_request r = { .ids = q->ids,
                        .n = q->n,
                        .first = q->first,
                        .max_tokens = q->first ? 0 : NEW,
                        .row = take_row,
                        .done = take_done,
                        .ud = q };
    must(scheduler_add(s, &r, NULL));
}

static scheduler *open_scheduler(pesc_model *m, int64_t cache_tokens, bool overlap)
{
    scheduler *s;
    scheduler_options o = { .slots = SLOTS,
                            .context = CONTEXT,
                            .cache_tokens = cache_tokens,
                            .batch_invariant = true,
                            .overlap = overlap };
    must(scheduler_open(&s, m, &o));
    return s;
}

static void run(scheduler *s)
{
    for (bool more = true; more;) {
        must(scheduler_step(s, &more));
        assert_int_equal(s->head.ne[0], batchinvariant_rows(SLOTS)); /* each row is another token */
    }
}

static void compare(const request *got, const request *want)
{
    for (int32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(got[i].done, 1);
        assert_int_equal(got[i].rows, want[i].rows);
        size_t n = (size_t)want[i].rows;
        assert_memory_equal(got[i].tokens, want[i].tokens, n * sizeof *want->tokens);
        assert_memory_equal(got[i].logprobs, want[i].logprobs, n * sizeof *want->logprobs);
    }
}

/* All requests in an order of their own, twice: the second time beginnings are cached. In another
 * order than theirs, results are told during the next forward. */
static uint64_t together(pesc_model *m, const request *want, int64_t cache_tokens, int32_t stride)
{
    static request got[REQUESTS];
    scheduler *s = open_scheduler(m, cache_tokens, stride > 1);
    for (int round = 0; round < 2; round++) {
        for (int32_t i = 0; i < REQUESTS; i++) {
            request *q = &got[i * stride % REQUESTS];
            *q = want[i * stride % REQUESTS];
            add(s, q);
        }
        run(s);
        compare(got, want);
    }
    scheduler_counters c = scheduler_count(s);
    assert_true(c.computed < c.requested);
    assert_int_equal(c.pages_used, 0);
    scheduler_close(s);
    return c.preempted;
}

static void has_the_same_bits(const char *path, const char *compute, const char *base)
{
    static request want[REQUESTS];
    pesc_device *d;
    pesc_model *m;
    pesc_load_options o = pesc_load_defaults();
    o.compute_dtype = (char *)(uintptr_t)compute;
    o.base_dtype = (char *)(uintptr_t)base;
    must(pesc_device_open(&d, golden_device()));
    must(pesc_model_open(&m, d, path, &o));
    for (int32_t i = 0; i < REQUESTS; i++) {
        scheduler *s = open_scheduler(m, 0, false);
        make(&want[i], i, m->shape.cfg.vocab);
        add(s, &want[i]);
        run(s);
        scheduler_close(s);
    }
    assert_int_equal(together(m, want, 0, 1), 0);
    assert_int_equal(together(m, want, 20000, 7), 0);
    assert_true(together(m, want, CONTEXT, 3) > 0);
    pesc_model_close(m);
    pesc_device_close(d);
}

static void dense(void **state)
{
    (void)state;
    has_the_same_bits("share/base", "f32", "f32");
    has_the_same_bits("share/base", "bf16", "nf4");
    has_the_same_bits(golden_path("mistral"), "bf16", NULL);
}

static void sparse(void **state)
{
    (void)state;
    has_the_same_bits(golden_path("camelidae"), "bf16", NULL);
    has_the_same_bits(golden_path("qwen3_moe"), "bf16", NULL);
    has_the_same_bits(golden_path("deepseek_v2"), "f32", NULL);
}

/* Never one token of a prompt alone, unless it has only that one before its last. */
static void prompts_are_fed_in_pieces(void **state)
{
    (void)state;
    for (int32_t n = 1; n < 200; n++)
        for (int32_t room = 3; room < 70; room++) {
            job j = { .r = { .n = n, .max_tokens = 1 }, .ids = { .n = (size_t)n } };
            while (j.fed < n - 1) {
                int32_t piece = batchinvariant_piece(&j, room);
                assert_in_range(piece, n == 2 ? 1 : 2, room);
                j.fed += piece;
            }
            assert_int_equal(j.fed, n - 1);
            assert_int_equal(batchinvariant_piece(&j, room), 1);
            assert_int_equal(batchinvariant_piece(&j, 0), 0);
        }
}

static const char *given; /* MODEL */

static void of_a_given_model(void **state)
{
    (void)state;
    has_the_same_bits(given, "bf16", "bf16");
    has_the_same_bits(given, "bf16", "nf4");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest own[] = { cmocka_unit_test(of_a_given_model) };
    given = argc > 1 ? argv[1] : NULL;
    if (given)
        return cmocka_run_group_tests_name("batch_invariant", own, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),
        cmocka_unit_test(sparse),
        cmocka_unit_test(prompts_are_fed_in_pieces),
    };
    return cmocka_run_group_tests_name("batch_invariant", tests, NULL, NULL);
}
