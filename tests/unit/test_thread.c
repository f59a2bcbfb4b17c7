#include "base/mem.h"
#include "base/thread.h"
#include "support/check.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_each_chunk_once),
        cmocka_unit_test(refuses_odd_sizes_and_survives_no_memory),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
