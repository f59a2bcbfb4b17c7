/* thread: a pool that runs numbered chunks of work.
 *
 * The caller cuts the work into chunks whose number and extent depend on the data only; which
 * thread runs which chunk is left open. A chunk writes only its own part of the result and sums in
 * a fixed order, so results do not depend on the number of threads. */
#ifndef PESC_BASE_THREAD_H
#define PESC_BASE_THREAD_H

#include "base/status.h"

typedef struct thread_pool thread_pool;

/* `worker` is 0..n-1 and names scratch space; it must not influence results. */
typedef void (*thread_fn)(void *ctx, int64_t chunk, int worker);

pesc_status thread_pool_open(thread_pool **out, int n_threads); /* 0: one per usable core */
void thread_pool_close(thread_pool *p);                         /* NULL is allowed */
int thread_pool_size(const thread_pool *p);

/* Runs fn for chunks 0..n-1 and returns when all are done. One caller at a time; the calling
 * thread works too. A chunk must not call thread_for on the same pool. */
void thread_for(thread_pool *p, int64_t n, thread_fn fn, void *ctx);

#endif
