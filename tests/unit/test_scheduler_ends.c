/* How requests of a scheduler end: by their length, by their callback, cancelled; with and without
 * callbacks during the next forward. */
#include "infer/scheduler.h"
#include "support/check.h"
#include "support/golden.h"

enum { CONTEXT = 200, MAX_NEW = 20 };

typedef struct sample {
    int32_t ids[CONTEXT];
    int32_t n, first, max_tokens; /* first 0: generation */
    int32_t got[MAX_NEW];
    int32_t n_got;
    int done;
    sched_finish finish;
    uint64_t ticket;
    pesc_status fails; /* of its callback */
} sample;

static pesc_device *dev;
static pesc_model *model;

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

static scheduler *open_scheduler(int32_t slots, bool overlap)
{
    scheduler *s;
    scheduler_options o = { .slots = slots, .context = CONTEXT, .overlap = overlap };
    must(scheduler_open(&s, model, &o));
    return s;
}

static sample make(int32_t n, int32_t first, int32_t max_tokens)
{
    static int32_t drawn;
    sample s = { .n = n, .first = first, .max_tokens = max_tokens };
    for (int32_t i = 0; i < n; i++)
        s.ids[i] = 7 * drawn++ % model->shape.cfg.vocab;
    return s;
}

static pesc_status take_done(void *ud, const sched_result *r)
{
    sample *s = ud;
    s->done++;
    s->finish = r->finish;
    assert_int_equal(r->n, s->n_got);
    assert_memory_equal(r->ids, s->got, (size_t)r->n * sizeof *r->ids);
    return s->fails;
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    sample *s = ud;
    assert_true(*more && !s->done);
    s->got[s->n_got++] = id;
    return PESC_OK;
}

static void add(scheduler *s, sample *of)
{
    sched_request r = { .ids = of->ids,
                        .n = of->n,
                        .first = of->first,
                        .max_tokens = of->max_tokens,
                        .token = take_token,
                        .done = take_done,
                        .ud = of };
    must(scheduler_add(s, &r, &of->ticket));
}

static pesc_status stop_after_three(void *ud, int32_t id, bool *more)
{
    TRY(take_token(ud, id, more));
    *more = ((sample *)ud)->n_got < 3;
    return PESC_OK;
}

static void a_callback_ends_its_request(void **state)
{
    scheduler *s = open_scheduler(2, *state);
    sample a = make(9, 0, 20), b = make(9, 0, 5);
    sched_request r = { .ids = a.ids,
                        .n = a.n,
                        .max_tokens = 4, /* with `overlap` the fourth is computed, but not told */
                        .token = stop_after_three,
                        .done = take_done,
                        .ud = &a };
    must(scheduler_add(s, &r, NULL));
    add(s, &b);
    must(scheduler_run(s));
    assert_int_equal(a.n_got, 3);
    assert_int_equal(a.finish, FINISH_STOPPED);
    assert_int_equal(b.finish, FINISH_LENGTH);
    a.n_got = a.done = 0;
    a.fails = PESC_FORMAT;
    must(scheduler_add(s, &r, NULL));
    assert_int_equal(scheduler_run(s), PESC_FORMAT);
    scheduler_close(s);
}

static void cancelled_requests_leave_at_once(void **state)
{
    (void)state;
    scheduler *s = open_scheduler(1, false);
    sample running = make(70, 0, 20), waiting = make(70, 0, 20), last = make(70, 69, 0);
    bool more;
    add(s, &running);
    add(s, &waiting);
    add(s, &last);
    must(scheduler_step(s, &more));
    assert_int_equal(scheduler_count(s).running, 1);
    assert_int_equal(scheduler_count(s).waiting, 2);
    scheduler_cancel(s, waiting.ticket, waiting.ticket);
    scheduler_cancel(s, 12345, 12345);
    must(scheduler_step(s, &more));
    assert_int_equal(waiting.finish, FINISH_CANCELLED);
    assert_int_equal(waiting.done, 1);
    assert_int_equal(running.done, 0);
    scheduler_cancel(s, running.ticket, running.ticket);
    must(scheduler_step(s, &more));
    assert_int_equal(running.finish, FINISH_CANCELLED);
    assert_int_equal(running.n_got, 2);
    assert_int_equal(last.finish, FINISH_SCORED);
    assert_false(more);
    assert_int_equal(scheduler_count(s).pages_used, 0);
    scheduler_cancel(s, last.ticket, last.ticket);
    must(scheduler_step(s, &more));
    scheduler_close(s);
}

/* With `overlap` a request is told of a token while the forward after it runs. One that ends by its
 * callback is in that forward, but never hears of it; one that is cancelled hears nothing more. */
static void results_are_told_during_the_next_forward(void **state)
{
    (void)state;
    scheduler *s = open_scheduler(3, true);
    sample ends = make(9, 0, 20), stops = make(9, 0, 2), cancelled = make(9, 0, 20);
    sched_request r = { .ids = ends.ids,
                        .n = ends.n,
                        .max_tokens = 20,
                        .token = stop_after_three,
                        .done = take_done,
                        .ud = &ends };
    bool more;
    must(scheduler_add(s, &r, NULL));
    add(s, &stops);
    add(s, &cancelled);
    must(scheduler_step(s, &more));
    assert_int_equal(ends.n_got + stops.n_got + cancelled.n_got, 0);
    must(scheduler_step(s, &more));
    assert_true(ends.n_got == 1 && stops.n_got == 1 && cancelled.n_got == 1);
    assert_int_equal(scheduler_count(s).running, 2); /* one has all its tokens */
    scheduler_cancel(s, cancelled.ticket, cancelled.ticket);
    scheduler_cancel(s, stops.ticket, stops.ticket); /* too late */
    must(scheduler_step(s, &more));
    assert_true(cancelled.n_got == 1 && cancelled.finish == FINISH_CANCELLED);
    assert_true(stops.n_got == 2 && stops.finish == FINISH_LENGTH);
    assert_int_equal(ends.n_got, 2);
    must(scheduler_step(s, &more));
    assert_true(ends.n_got == 3 && ends.finish == FINISH_STOPPED && ends.done == 1);
    assert_int_equal(scheduler_count(s).computed, 3 * 9 + 3 + 1 + 1); /* the last one is dropped */
    assert_int_equal(scheduler_count(s).pages_used, 0);
    must(scheduler_step(s, &more));
    assert_false(more);
    assert_true(ends.done == 1 && stops.done == 1 && cancelled.done == 1);
    scheduler_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_ends_its_request),
        cmocka_unit_test_prestate(a_callback_ends_its_request, &dev),
        cmocka_unit_test(cancelled_requests_leave_at_once),
        cmocka_unit_test(results_are_told_during_the_next_forward),
    };
    return cmocka_run_group_tests_name("ends of requests", tests, open_model, close_model);
}
