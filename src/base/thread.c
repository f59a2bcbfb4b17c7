#include "base/thread.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SPINS = 2000 }; /* about 20 us: longer than the gap between two ops, shorter than a nap */

struct thread_pool {
    int n; /* workers, the caller included */
    pthread_t *threads;
    int n_started;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    _Atomic uint64_t round; /* bumped for each job; workers wait for a change */
    _Atomic int64_t next;   /* first chunk not taken */
    _Atomic int busy;       /* workers still inside the job */
    int64_t n_chunks;
    thread_fn fn;
    void *ctx;
    bool stop;
};

typedef struct seat {
    thread_pool *pool;
    int worker;
} seat;

static void work(thread_pool *p, int worker)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->n_chunks)
            return;
        p->fn(p->ctx, i, worker);
    }
}

static bool wait_for_round(thread_pool *p, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->round, memory_order_acquire) != seen)
            return !p->stop;
        __builtin_ia32_pause();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->round) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return !p->stop;
}

static void *run(void *arg)
{
    seat s = *(seat *)arg;
    mem_free(arg);
    uint64_t seen = 0;
    while (wait_for_round(s.pool, seen)) {
        seen++;
        work(s.pool, s.worker);
        if (atomic_fetch_sub_explicit(&s.pool->busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&s.pool->lock);
            pthread_cond_signal(&s.pool->done);
            pthread_mutex_unlock(&s.pool->lock);
        }
    }
    return NULL;
}

static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

pesc_status thread_pool_open(thread_pool **out, int n_threads)
{
    *out = NULL;
    if (n_threads < 0 || n_threads > 1024)
        return fail(PESC_USAGE, "threads is %d; give a number from 1 to 1024, or 0 for one a core",
                    n_threads);
    thread_pool *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("a thread pool", sizeof *p);
    p->n = n_threads ? n_threads : usable_cores();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    p->threads = mem_zalloc((size_t)p->n, sizeof *p->threads);
    pesc_status s = p->threads ? PESC_OK : fail_nomem("a thread pool", (size_t)p->n);
    for (int i = 1; i < p->n && s == PESC_OK; i++) {
        seat *mine = mem_alloc(1, sizeof *mine);
        if (!mine) {
            s = fail_nomem("a thread", sizeof *mine);
            break;
        }
        *mine = (seat){ p, i };
        int err = pthread_create(&p->threads[p->n_started], NULL, run, mine);
        if (err) {
            mem_free(mine);
            s = fail_errno(PESC_NOMEM, err, "cannot start thread %d of %d", i + 1, p->n);
            break;
        }
        p->n_started++;
    }
    if (s != PESC_OK) {
        thread_pool_close(p);
        return s;
    }
    *out = p;
    return PESC_OK;
}

static void next_round(thread_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void thread_pool_close(thread_pool *p)
{
    if (!p)
        return;
    p->stop = true;
    next_round(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->threads);
    mem_free(p);
}

int thread_pool_size(const thread_pool *p)
{
    return p->n;
}

void thread_for(thread_pool *p, int64_t n, thread_fn fn, void *ctx)
{
    if (n <= 0)
        return;
    if (p->n_started == 0 || n == 1) {
        for (int64_t i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n_chunks = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, p->n_started, memory_order_relaxed);
    next_round(p);
    work(p, 0);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->busy, memory_order_acquire) == 0)
            return;
        __builtin_ia32_pause();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->busy, memory_order_acquire) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
