/* thread: a pool that runs numbered chunks of work, and a queue of jobs in the background.
 *
 * The caller cuts the work into chunks whose number and extent depend on the data only; which
 * thread runs which chunk is left open. A chunk writes only its own part of the result and sums in
 * a fixed order, so results do not depend on the number of threads. */
#ifndef PESC_BASE_THREAD_H
#define PESC_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>

typedef struct thread_pool thread_pool;

/* `worker` is 0..n-1 and names scratch space; it must not influence results. */
typedef void (*thread_fn)(void *ctx, int64_t chunk, int worker);

pesc_status thread_pool_open(thread_pool **out, int n_threads); /* 0: one per usable core */
void thread_pool_close(thread_pool *p);                         /* NULL is allowed */
int thread_pool_size(const thread_pool *p);

/* Runs fn for chunks 0..n-1 and returns when all are done. One caller at a time; the calling
 * thread works too. A chunk must not call thread_for on the same pool. */
void thread_for(thread_pool *p, int64_t n, thread_fn fn, void *ctx);

/* ---- jobs in the background ---- */

/* Threads that run jobs while the caller does something else. A job is the first member of the
 * caller's own struct; the queue owns it from thread_queue_add() to thread_queue_take(). */
typedef struct thread_queue thread_queue;
typedef struct thread_job {
    struct thread_job *next;
} thread_job;

/* run: called on one of the threads for each job. */
pesc_status thread_queue_open(thread_queue **out, int n_threads, void (*run)(thread_job *job));

/* Ends when the jobs that are running are done, and gives each job still in the queue, run or not,
 * to `drop`. NULL is allowed. */
void thread_queue_close(thread_queue *q, void (*drop)(thread_job *job));

/* Jobs are begun in the order in which they were added. */
void thread_queue_add(thread_queue *q, thread_job *job);

/* A job that is done; NULL: none is, or with `wait`: none is left in the queue. */
thread_job *thread_queue_take(thread_queue *q, bool wait);

/* ---- for both ---- */

int thread_cores(void); /* that this process may use */

/* Starts a thread whose stack does not depend on `ulimit -s`. Returns 0 or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
