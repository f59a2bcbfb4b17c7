#include "backend/cpu/cpu.h"

#include "backend/cpu/ops/ops.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

pesc_status cpu_open_isa(device **out, int n_threads, cpu_isa isa)
{
    *out = NULL;
    cpu_device *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("opening the CPU", sizeof *d);
    d->base.op = cpu_levels[isa].op;
    d->base.lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    d->base.head_rows = 256;
    d->base.micro_tokens = 4096;
    d->base.has_bf16 = cpu_levels[isa].has_bf16;
    d->isa = isa;
    pesc_status s = thread_pool_open(&d->pool, n_threads);
    if (s == PESC_OK) {
        d->n_threads = thread_pool_size(d->pool);
        size_t bytes = (size_t)d->n_threads * CPU_SCRATCH;
        d->scratch = mem_aligned(bytes);
        d->shared = mem_aligned(CPU_SHARED);
        s = d->scratch && d->shared ? PESC_OK : fail_nomem("opening the CPU", bytes + CPU_SHARED);
    }
    if (s != PESC_OK) {
        cpu_close(&d->base);
        return s;
    }
    snprintf(d->base.name, sizeof d->base.name, "cpu (%d thread%s, %s)", d->n_threads,
             d->n_threads == 1 ? "" : "s", cpu_isa_name(isa));
    *out = &d->base;
    return PESC_OK;
}

pesc_status cpu_open(device **out, int n_threads)
{
    return cpu_open_isa(out, n_threads, cpu_isa_best());
}

/* ---- work ---- */

typedef struct range_job {
    cpu_device *d;
    int64_t n, step;
    cpu_range_fn fn;
    const void *ctx;
} range_job;

static void run_range(void *ctx, int64_t chunk, int worker)
{
    const range_job *j = ctx;
    int64_t begin = chunk * j->step, end = begin + j->step;
    j->fn(j->ctx, begin, end < j->n ? end : j->n, j->d->scratch + (size_t)worker * CPU_SCRATCH);
}

void cpu_for(cpu_device *d, int64_t n, int64_t step, cpu_range_fn fn, const void *ctx)
{
    range_job j = { d, n, step, fn, ctx };
    thread_for(d->pool, (n + step - 1) / step, run_range, &j);
}

int64_t cpu_step(int64_t bytes)
{
    enum { RANGE_BYTES = 16 << 10 };
    return bytes >= RANGE_BYTES || bytes <= 0 ? 1 : RANGE_BYTES / bytes;
}

/* ---- memory: device memory is the heap ---- */

/* Decode reads all weights once per token; with pages of 4 KiB a core spends a third of that time
 * in TLB misses. The kernel may ignore the advice. */
static void advise_huge_pages(void *p, size_t bytes)
{
    const uintptr_t large = 2 << 20;
    uintptr_t begin = ((uintptr_t)p + large - 1) & ~(large - 1);
    uintptr_t end = ((uintptr_t)p + bytes) & ~(large - 1);
    if (p && begin < end)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

pesc_status cpu_alloc(device *d, size_t bytes, void **out)
{
    (void)d;
    *out = mem_aligned(bytes);
    advise_huge_pages(*out, bytes);
    return *out ? PESC_OK : fail_nomem("taking memory of the CPU", bytes);
}

pesc_status cpu_alloc_host(device *d, size_t bytes, void **out)
{
    return cpu_alloc(d, bytes, out);
}

void cpu_free(device *d, void *p)
{
    (void)d;
    mem_free(p);
}

void cpu_upload(device *d, void *dst, const void *src, size_t bytes)
{
    cpu_copy(d, dst, src, bytes);
}

pesc_status cpu_download(device *d, void *dst, const void *src, size_t bytes)
{
    cpu_copy(d, dst, src, bytes);
    return cpu_sync(d);
}

typedef struct copy_job {
    unsigned char *dst;
    const unsigned char *src; /* NULL: zeros */
} copy_job;

static void copy_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const copy_job *s = ctx;
    if (s->src)
        memcpy(s->dst + begin, s->src + begin, (size_t)(end - begin));
    else
        memset(s->dst + begin, 0, (size_t)(end - begin));
}

enum { COPY_RANGE = 1 << 20 };

void cpu_copy(device *d, void *dst, const void *src, size_t bytes)
{
    cpu_for(cpu_of(d), (int64_t)bytes, COPY_RANGE, copy_range, &(copy_job){ dst, src });
}

void cpu_zero(device *d, void *dst, size_t bytes)
{
    cpu_for(cpu_of(d), (int64_t)bytes, COPY_RANGE, copy_range, &(copy_job){ dst, NULL });
}

/* No op of the CPU can fail, and each is done when it returns. */
pesc_status cpu_sync(device *d)
{
    (void)d;
    return PESC_OK;
}

bool cpu_host_memory(const device *d)
{
    (void)d;
    return true;
}

uint64_t cpu_room(device *d)
{
    (void)d;
    return UINT64_MAX;
}

/* Every thread has its scratch from open on, of a size that no op exceeds. */
size_t cpu_scratch_bytes(const device *d, const work_limits *w)
{
    (void)d;
    (void)w;
    return 0;
}

pesc_status cpu_reserve(device *d, size_t bytes)
{
    (void)d;
    (void)bytes;
    return PESC_OK;
}

/* One thread: the others are this device's. */
pesc_status cpu_open_side(device *d, device **out)
{
    return cpu_open_isa(out, 1, cpu_of(d)->isa);
}

void cpu_mark(device *d, int i)
{
    (void)d;
    (void)i;
}

pesc_status cpu_wait_mark(device *d, int i)
{
    (void)i;
    return cpu_sync(d);
}

void cpu_follow(device *d, device *other, int i)
{
    (void)d;
    (void)other;
    (void)i;
}

bool cpu_begin(device *d, uint64_t name)
{
    (void)d;
    (void)name;
    return true;
}

void cpu_end(device *d)
{
    (void)d;
}

void cpu_close(device *d)
{
    cpu_device *c = cpu_of(d);
    thread_pool_close(c->pool);
    mem_free(c->scratch);
    mem_free(c->shared);
    mem_free(c);
}
