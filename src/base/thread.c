#include "base/thread.h"

#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SPINS = 2000 }; /* tens of us: longer than the gap between two ops, shorter than a nap */

/* A job is open while its caller still works on it. Workers enter an open job and leave it when no
 * chunk is left; the caller closes it and waits for those inside, never for one that was asleep or
 * not scheduled: on a busy machine the caller simply does the work itself.
 * One word holds it all: number of the job, whether it is open, workers inside. */
enum { OPEN = 1 << 15, INSIDE = OPEN - 1, JOB_SHIFT = 16 };

/* Chunks [next, end) of a job that a worker begins with: the same part of every job, so that it
 * finds in its cache what it left there. Who has none left takes those of others. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

struct thread_pool {
    int n; /* workers, the caller included */
    pthread_t *threads;
    int n_started;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    _Atomic uint64_t state;
    _Atomic int asleep;   /* workers that wait on `wake` */
    _Atomic bool waiting; /* the caller waits on `done` */
    _Atomic bool stop;
    share *shares; /* of each worker */
    thread_fn fn;
    void *ctx;
};

typedef struct seat {
    thread_pool *pool;
    int worker;
} seat;

static void work(thread_pool *p, int worker)
{
    for (int turn = 0; turn < p->n; turn++) {
        share *s = &p->shares[(worker + turn) % p->n];
        for (;;) {
            int64_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (i >= s->end)
                break;
            p->fn(p->ctx, i, worker);
        }
    }
}

/* Leaves the core to its other thread for some tens of cycles, in a loop that waits. */
static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Waits for a job other than `seen`; returns its number. */
static uint64_t next_job(thread_pool *p, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        uint64_t job = atomic_load_explicit(&p->state, memory_order_acquire) >> JOB_SHIFT;
        if (job != seen)
            return job;
        pause_core();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->state) >> JOB_SHIFT == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->state) >> JOB_SHIFT;
}

static bool enter(thread_pool *p, uint64_t job)
{
    uint64_t s = atomic_load_explicit(&p->state, memory_order_acquire);
    while (s >> JOB_SHIFT == job && s & OPEN)
        if (atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
            return true;
    return false;
}

static void leave(thread_pool *p)
{
    uint64_t s = atomic_fetch_sub(&p->state, 1);
    if ((s & INSIDE) == 1 && !(s & OPEN) && atomic_load(&p->waiting)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *run_seat(void *arg)
{
    seat s = *(seat *)arg;
    mem_free(arg);
    uint64_t seen = 0;
    while (!atomic_load(&s.pool->stop)) {
        seen = next_job(s.pool, seen);
        if (enter(s.pool, seen)) {
            work(s.pool, s.worker);
            leave(s.pool);
        }
    }
    return NULL;
}

int thread_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    enum { STACK = 1 << 20 };
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    err = pthread_attr_setstacksize(&attr, STACK);
    if (!err)
        err = pthread_create(thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return err;
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
    p->n = n_threads ? n_threads : thread_cores();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    p->threads = mem_zalloc((size_t)p->n, sizeof *p->threads);
    p->shares = mem_aligned((size_t)p->n * sizeof *p->shares);
    pesc_status s = p->threads && p->shares ? PESC_OK : fail_nomem("a thread pool", (size_t)p->n);
    for (int i = 1; i < p->n && s == PESC_OK; i++) {
        seat *mine = mem_alloc(1, sizeof *mine);
        if (!mine) {
            s = fail_nomem("a thread", sizeof *mine);
            break;
        }
        *mine = (seat){ p, i };
        int err = thread_start(&p->threads[p->n_started], run_seat, mine);
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

/* Publishes the next job, open or (to stop) closed, and wakes the workers that sleep. Here and in
 * thread_for() a thread writes one word and then reads another, whose writer reads this one: with
 * a plain store QEMU lets the read overtake it, whatever the order that C asks for. */
static void publish(thread_pool *p, uint64_t open)
{
    uint64_t job = (atomic_load(&p->state) >> JOB_SHIFT) + 1;
    atomic_exchange(&p->state, job << JOB_SHIFT | open);
    if (atomic_load(&p->asleep) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void thread_pool_close(thread_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    publish(p, 0);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->threads);
    mem_free(p->shares);
    mem_free(p);
}

int thread_pool_size(const thread_pool *p)
{
    return p->n;
}

static bool drained(thread_pool *p)
{
    return (atomic_load(&p->state) & INSIDE) == 0;
}

void thread_for(thread_pool *p, int64_t n, thread_fn fn, void *ctx)
{
    if (p->n_started == 0 || n <= 1) {
        for (int64_t i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    for (int i = 0; i < p->n; i++) {
        atomic_store_explicit(&p->shares[i].next, n * i / p->n, memory_order_relaxed);
        p->shares[i].end = n * (i + 1) / p->n;
    }
    publish(p, OPEN);
    work(p, 0);
    atomic_fetch_and(&p->state, ~(uint64_t)OPEN);
    for (int i = 0; i < SPINS; i++) {
        if (drained(p))
            return;
        pause_core();
    }
    pthread_mutex_lock(&p->lock);
    atomic_exchange(&p->waiting, true);
    while (!drained(p))
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->waiting, false);
    pthread_mutex_unlock(&p->lock);
}
