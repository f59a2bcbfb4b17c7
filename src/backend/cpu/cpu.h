/* cpu: the device that is this machine. Its memory is the heap, its parallelism one thread pool.
 *
 * An op cuts its work with cpu_for() into ranges that depend on shapes only; a range writes its own
 * part of the result and sums in a fixed order, so the bits do not depend on the thread count.
 * Nothing is allocated by an op: each worker has CPU_SCRATCH bytes of its own, taken at open (pages
 * that are never touched cost nothing). */
#ifndef PESC_BACKEND_CPU_CPU_H
#define PESC_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/thread.h"

enum { CPU_SCRATCH = 4 << 20 }; /* bytes a worker, 64-byte aligned */
enum { CPU_SHARED = 16 << 20 }; /* bytes all workers of one op share, 64-byte aligned */

typedef struct cpu_device {
    device base;
    thread_pool *pool;
    int n_threads;
    cpu_isa isa;
    unsigned char *scratch; /* n_threads * CPU_SCRATCH */
    unsigned char *shared;  /* CPU_SHARED: one side of a product, packed */
} cpu_device;

static inline cpu_device *cpu_of(device *d)
{
    return (cpu_device *)d; /* base is the first member */
}

/* A device that uses no more than `isa`, which the CPU must have; for tests. */
pesc_status cpu_open_isa(device **out, int n_threads, cpu_isa isa);

/* Called for [begin, end) with the scratch of the worker that runs it; what scratch holds at entry
 * is undefined and must not influence results. */
typedef void (*cpu_range_fn)(const void *ctx, int64_t begin, int64_t end, void *scratch);

/* Runs fn over [0, n) in ranges of `step` (the last may be shorter); returns when all are done.
 * One range, or one thread: the caller runs it, nobody is woken. */
void cpu_for(cpu_device *d, int64_t n, int64_t step, cpu_range_fn fn, const void *ctx);

/* A step for cpu_for so that a range moves about 16 KiB: `bytes` is what one unit reads and writes.
 */
int64_t cpu_step(int64_t bytes);

#endif
