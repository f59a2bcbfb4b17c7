#include "base/mem.h"
#include "base/thread.h"
#include "support/check.h"

#include <sched.h>
#include <stdatomic.h>

enum { CHUNKS = 1000 };

typedef struct job {
    _Atomic int runs[CHUNKS];
    _Atomic int strangers;
    int n_workers;
} job;

static void count_chunk(void *ctx, int64_t chunk, int worker)
{
    job *j = ctx;
    j->runs[chunk]++;
    if (worker < 0 || worker >= j->n_workers)
        j->strangers++;
}

static void runs_each_chunk_once(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 3, 7 };
    for (size_t s = 0; s < 4; s++) {
        thread_pool *p;
        must(thread_pool_open(&p, sizes[s]));
        for (int round = 0; round < 200; round++) {
            static job j;
            memset(&j, 0, sizeof j);
            j.n_workers = thread_pool_size(p);
            thread_for(p, CHUNKS, count_chunk, &j);
            for (int i = 0; i < CHUNKS; i++)
                assert_int_equal(j.runs[i], 1);
            assert_int_equal(j.strangers, 0);
        }
        thread_for(p, 0, count_chunk, NULL);
        thread_pool_close(p);
    }
}

static void refuses_odd_sizes_and_survives_no_memory(void **state)
{
    (void)state;
    thread_pool *p;
    must_fail(thread_pool_open(&p, -1), PESC_USAGE, "threads is -1");
    must_fail(thread_pool_open(&p, 100000), PESC_USAGE, "100000");
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n);
        pesc_status s = thread_pool_open(&p, 4);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        thread_pool_close(s == PESC_OK ? p : NULL);
        if (!fired)
            break;
        assert_int_equal(s, PESC_NOMEM);
    }
    thread_pool_close(NULL);
}

/* ---- the queue ---- */

typedef struct numbered {
    thread_job job;
    int number;
    _Atomic int runs;
} numbered;

static _Atomic bool hold;        /* jobs do not end while it is set */
static _Atomic int begun, delay; /* delay: how often a job yields before it ends */
static int n_dropped;

static void run_numbered(thread_job *j)
{
    begun++;
    while (hold)
        sched_yield();
    for (int i = 0; i < delay; i++)
        sched_yield();
    ((numbered *)j)->runs++;
}

static void drop_numbered(thread_job *j)
{
    (void)j;
    n_dropped++;
}

static void the_queue_gives_each_job_back_once(void **state)
{
    (void)state;
    static numbered jobs[CHUNKS];
    thread_queue *q;
    for (int threads = 1; threads <= 4; threads++) {
        memset(jobs, 0, sizeof jobs);
        must(thread_queue_open(&q, threads, run_numbered));
        assert_null(thread_queue_take(q, false));
        assert_null(thread_queue_take(q, true)); /* nothing to wait for */
        int taken = 0, last = -1;
        for (int i = 0; i < CHUNKS; i++) {
            jobs[i].number = i;
            thread_queue_add(q, &jobs[i].job);
            taken += thread_queue_take(q, false) != NULL;
        }
        for (thread_job *j; (j = thread_queue_take(q, true)); taken++) {
            /* one thread ends them in order */
            assert_true(threads > 1 || ((numbered *)j)->number > last);
            last = ((numbered *)j)->number;
        }
        assert_int_equal(taken, CHUNKS);
        for (int i = 0; i < CHUNKS; i++)
            assert_int_equal(jobs[i].runs, 1);
        thread_queue_close(q, drop_numbered);
        assert_int_equal(n_dropped, 0);
    }
}

static void a_job_runs_while_the_caller_goes_on(void **state)
{
    (void)state;
    static numbered jobs[3];
    thread_queue *q;
    hold = true;
    begun = 0;
    must(thread_queue_open(&q, 1, run_numbered));
    for (int i = 0; i < 3; i++)
        thread_queue_add(q, &jobs[i].job);
    while (!begun)
        sched_yield();
    assert_null(thread_queue_take(q, false)); /* it is running: nothing is done */
    hold = false;
    assert_non_null(thread_queue_take(q, true));
    assert_int_equal(jobs[0].runs, 1);
    thread_queue_close(q, drop_numbered); /* with two in it, run or not */
    assert_int_equal(n_dropped, 2);
    thread_queue_close(NULL, drop_numbered);
    must(thread_queue_open(&q, 1, run_numbered));
    delay = 20000;
    begun = 0;
    thread_queue_add(q, &jobs[0].job);
    while (!begun)
        sched_yield();
    assert_non_null(thread_queue_take(q, true)); /* the last one is running, and is waited for */
    delay = 0;
    thread_queue_close(q, drop_numbered);
    mem_fail_at(1);
    pesc_status s = thread_queue_open(&q, 1, run_numbered);
    mem_fail_at(0);
    assert_int_equal(s, PESC_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_each_chunk_once),
        cmocka_unit_test(refuses_odd_sizes_and_survives_no_memory),
        cmocka_unit_test(the_queue_gives_each_job_back_once),
        cmocka_unit_test(a_job_runs_while_the_caller_goes_on),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
