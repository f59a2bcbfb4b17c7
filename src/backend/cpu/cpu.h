/* cpu: the device that is this machine. Its memory is the heap; a thread pool runs its ops.
 *
 * An op divides its work with cpu_for() into ranges that depend on shapes only. A range writes its
 * own part of the result and sums in a fixed order, so the bits do not depend on the number of
 * threads. (Where ranges do depend on it, as in products, no sum crosses a range.) No op allocates
 * memory: each worker has CPU_SCRATCH bytes of its own, allocated at open; pages that are never
 * touched cost nothing. */
#ifndef PESC_BACKEND_CPU_CPU_H
#define PESC_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/thread.h"

enum { CPU_SCRATCH = 4 << 20 }; /* bytes of each worker, 64-byte aligned */
enum { CPU_SHARED = 16 << 20 }; /* bytes all workers of one op share, 64-byte aligned */

typedef struct cpu_device {
    device base;
    thread_pool *pool;
    int n_threads;
    cpu_isa isa;
    unsigned char *scratch; /* n_threads * CPU_SCRATCH */
    unsigned char *shared;  /* CPU_SHARED: a packed operand, or partial sums of an op */
} cpu_device;

static inline cpu_device *cpu_of(device *d)
{
    return (cpu_device *)d; /* base is the first member */
}

/* A device that uses the instructions of `isa`, which the CPU must have; for tests. */
pesc_status cpu_open_isa(device **out, int n_threads, cpu_isa isa);

/* Computes [begin, end). `scratch` belongs to the worker that runs it; its contents at entry are
 * undefined and must not influence results. */
typedef void (*cpu_range_fn)(const void *ctx, int64_t begin, int64_t end, void *scratch);

/* Runs fn over [0, n) in ranges of `step` (the last may be shorter); returns when all are done. A
 * single range, or a pool of one thread, is run by the caller without waking a worker. */
void cpu_for(cpu_device *d, int64_t n, int64_t step, cpu_range_fn fn, const void *ctx);

/* A step for cpu_for() that makes a range move about 16 KiB; bytes: what one unit reads and writes.
 */
int64_t cpu_step(int64_t bytes);

#endif
