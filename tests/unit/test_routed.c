/* Routes that the scheduler tells: those of a forward over the whole string, whatever the chunks,
 * the other requests and preemption do. */
#include "infer/scheduler.h"
#include "support/check.h"
#include "support/golden.h"

enum { MAX = 192, CELLS = 64 }; /* tokens of a request; layers times k */

typedef struct talk {
    int32_t ids[MAX], n; /* the prompt, then what is generated */
    int32_t experts[MAX][CELLS];
    float gates[MAX][CELLS];
    int told[MAX]; /* how often */
    int done;
} talk;

static void take_routes(void *ud, const sched_routes *r)
{
    talk *t = ud;
    const routes *all = r->all;
    assert_true(r->first + r->n <= all->n && all->n_layers * all->k <= CELLS);
    for (int32_t i = 0; i < r->n; i++) {
        t->told[r->at + i]++;
        for (int32_t l = 0; l < all->n_layers; l++)
            for (int32_t k = 0; k < all->k; k++) {
                int32_t from = (l * all->n + r->first + i) * all->k + k, to = l * all->k + k;
                t->experts[r->at + i][to] = all->ids[from];
                t->gates[r->at + i][to] = all->gates[from];
            }
    }
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    talk *t = ud;
    (void)more;
    t->ids[t->n++] = id;
    return PESC_OK;
}

static pesc_status take_done(void *ud, const sched_result *r)
{
    talk *t = ud;
    (void)r;
    t->done++;
    return PESC_OK;
}

static void begin(scheduler *s, talk *t, int32_t n, int32_t most, int32_t seed)
{
    *t = (talk){ .n = n };
    for (int32_t i = 0; i < n; i++)
        t->ids[i] = (seed + 7 * i * i + i) % 60;
    must(scheduler_add(s,
                       &(sched_request){ .ids = t->ids,
                                         .n = n,
                                         .max_tokens = most,
                                         .scope = (uint64_t)seed,
                                         .routed = take_routes,
                                         .all_routed = seed != 2,
                                         .token = take_token,
                                         .done = take_done,
                                         .ud = t },
                       NULL));
}

/* The last token is never fed. */
static void assert_routes(pesc_model *m, const talk *t)
{
    routes *r;
    pass *p;
    int32_t n = t->n - 1;
    must(routes_open(&r, m, MAX));
    must(pass_open(&p, m, (pass_limits){ MAX, 1, 1 }, NULL));
    must(pass_set(p, &(token_seq){ .ids = t->ids, .n = n }, 1, NULL, 0));
    must(routes_fwd(r, p));
    for (int32_t i = 0; i < n; i++) {
        assert_true(t->told[i] >= 1);
        for (int32_t l = 0; l < r->n_layers; l++)
            for (int32_t k = 0; k < r->k; k++) {
                int32_t from = (l * n + i) * r->k + k;
                assert_int_equal(t->experts[i][l * r->k + k], r->ids[from]);
                assert_memory_equal(&t->gates[i][l * r->k + k], &r->gates[from], sizeof(float));
            }
    }
    assert_int_equal(t->told[n], 0);
    pass_close(p);
    routes_close(r);
}

static void check_model(const char *name, int64_t cache_tokens, bool overlap)
{
    pesc_device *dev;
    pesc_model *m;
    scheduler *s;
    static talk talks[3];
    must(pesc_device_open(&dev, "cpu"));
    must(pesc_model_open(&m, dev, golden_path(name), NULL));
    must(scheduler_open(&s, m,
                        &(scheduler_options){ .slots = 3,
                                              .context = MAX - 28,
                                              .max_tokens = 20,
                                              .cache_tokens = cache_tokens,
                                              .overlap = overlap }));
    for (int i = 0; i < 3; i++)
        begin(s, &talks[i], 50 + i, cache_tokens ? 100 : 30, i + 1);
    must(scheduler_run(s));
    assert_true(cache_tokens == 0 || scheduler_count(s).preempted > 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(talks[i].done, 1);
    assert_routes(m, &talks[0]);
    assert_routes(m, &talks[2]);
    scheduler_close(s);
    pesc_model_close(m);
    pesc_device_close(dev);
}

static void routes_are_those_of_the_whole_string(void **state)
{
    (void)state;
    check_model("camelidae", 0, false);
    check_model("mixtral", 0, true);
}

static void preempted_requests_are_told_again(void **state)
{
    (void)state;
    check_model("camelidae", MAX - 28, false);
    check_model("camelidae", MAX - 28, true);
}

/* Without all_routed only one of four forwards is told. */
static void forwards_between_are_not_told(void **state)
{
    (void)state;
    pesc_device *dev;
    pesc_model *m;
    scheduler *s;
    static talk t;
    int told = 0;
    must(pesc_device_open(&dev, "cpu"));
    must(pesc_model_open(&m, dev, golden_path("camelidae"), NULL));
    must(scheduler_open(&s, m,
                        &(scheduler_options){ .slots = 1, .context = MAX, .max_tokens = 20 }));
    scheduler_route_every(s, 4);
    begin(s, &t, 20, 30, 2);
    must(scheduler_run(s));
    for (int i = 0; i < t.n; i++)
        told += t.told[i];
    assert_int_equal(t.told[0], 1);
    assert_int_equal(told,
                     20 + 29 / 4); /* the prompt, then each fourth of 29 tokens that are fed */
    scheduler_close(s);
    pesc_model_close(m);
    pesc_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_those_of_the_whole_string),
        cmocka_unit_test(preempted_requests_are_told_again),
        cmocka_unit_test(forwards_between_are_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
