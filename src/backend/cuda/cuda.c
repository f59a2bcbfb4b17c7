#include "backend/cuda/products.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- failure ---- */

void cuda_fail_with(cuda_device *d, pesc_status s, const char *what, const char *why)
{
    if (d->failed != PESC_OK)
        return;
    d->failed = s;
    snprintf(d->message, sizeof d->message, "%s on %s: %s", what, d->base.name, why);
}

void cuda_fail(cuda_device *d, cudaError_t e, const char *what)
{
    cuda_fail_with(d, e == cudaErrorMemoryAllocation ? PESC_NOMEM : PESC_DEVICE, what,
                   cudaGetErrorString(e));
}

static void check(cuda_device *d, cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        cuda_fail(d, e, what);
}

cuda_device *cuda_select(device *dev)
{
    cuda_device *d = cuda_of(dev);
    int current = -1;
    if (cudaGetDevice(&current) != cudaSuccess || current != d->index)
        check(d, cudaSetDevice(d->index), "selecting the GPU");
    return d;
}

/* ---- memory ---- */

static pesc_status fail_room(size_t bytes)
{
    size_t left = 0, total = 0;
    cudaGetLastError(); /* an allocation that failed leaves its error for the next launch */
    cudaMemGetInfo(&left, &total);
    return fail(PESC_NOMEM, "the GPU has %.2f of %.2f GiB left, but %.2f GiB are asked for",
                (double)left / (1 << 30), (double)total / (1 << 30), (double)bytes / (1 << 30));
}

pesc_status cuda_alloc(device *d, size_t bytes, void **out)
{
    cuda_select(d);
    cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    if (e == cudaSuccess)
        return PESC_OK;
    *out = NULL;
    if (e == cudaErrorMemoryAllocation)
        return fail_room(bytes);
    return fail(PESC_DEVICE, "taking memory of %s: %s", d->name, cudaGetErrorString(e));
}

pesc_status cuda_alloc_host(device *d, size_t bytes, void **out)
{
    cuda_select(d);
    cudaError_t e = cudaMallocHost(out, bytes ? bytes : 1);
    if (e == cudaSuccess)
        return PESC_OK;
    *out = NULL;
    cudaGetLastError();
    return fail(e == cudaErrorMemoryAllocation ? PESC_NOMEM : PESC_DEVICE,
                "taking %.2f GiB of the host for %s: %s", (double)bytes / (1 << 30), d->name,
                cudaGetErrorString(e));
}

void cuda_free(device *dev, void *p)
{
    cuda_device *d = cuda_select(dev);
    struct cudaPointerAttributes about = { 0 };
    if (!p)
        return;
    check(d, cudaPointerGetAttributes(&about, p), "free");
    bool host = about.type == cudaMemoryTypeHost;
    check(d, host ? cudaFreeHost(p) : cudaFree(p), "free");
}

/* ---- scratch ---- */

size_t cuda_scratch_bytes(const device *dev, const work_limits *w)
{
    return scratch_for_work(((const cuda_device *)dev)->n_sm, w);
}

/* The old area goes first, so that both are never there together; it comes back when there is no
 * room for the new one. */
pesc_status cuda_reserve(device *dev, size_t bytes)
{
    cuda_device *d = cuda_select(dev);
    size_t before = dev->reserved;
    if (bytes <= before)
        return PESC_OK;
    check(d, cudaFree(d->scratch), "reserve"); /* waits for the ops that still use it */
    d->scratch = NULL;
    dev->reserved = 0;
    void *area = NULL;
    pesc_status s = cuda_alloc(dev, bytes, &area);
    dev->reserved = s == PESC_OK ? bytes : before;
    if (s != PESC_OK && (!before || cudaMalloc(&area, before) != cudaSuccess))
        dev->reserved = 0;
    d->scratch = area;
    return s;
}

void *cuda_scratch(cuda_device *d, const char *what, size_t bytes)
{
    if (bytes <= d->base.reserved)
        return d->scratch;
    char why[96];
    snprintf(why, sizeof why, "it needs %zu bytes of scratch, but %zu are reserved", bytes,
             d->base.reserved);
    cuda_fail_with(d, PESC_NOMEM, what, why);
    return NULL;
}

void cuda_upload(device *dev, void *dst, const void *src, size_t bytes)
{
    cuda_device *d = cuda_of(dev);
    cuda_ring *r = &d->ring;
    for (size_t at = 0; at < bytes && d->failed == PESC_OK; at += CUDA_SLOT_BYTES) {
        size_t n = bytes - at < CUDA_SLOT_BYTES ? bytes - at : CUDA_SLOT_BYTES;
        unsigned char *slot = r->memory + (size_t)r->next * CUDA_SLOT_BYTES;
        check(d, cudaEventSynchronize(r->passed[r->next]), "upload");
        memcpy(slot, (const char *)src + at, n);
        check(d, cudaMemcpyAsync((char *)dst + at, slot, n, cudaMemcpyDefault, d->stream),
              "upload");
        check(d, cudaEventRecord(r->passed[r->next], d->stream), "upload");
        r->next = (r->next + 1) % CUDA_SLOTS;
    }
}

pesc_status cuda_download(device *dev, void *dst, const void *src, size_t bytes)
{
    cuda_device *d = cuda_select(dev);
    check(d, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, d->stream), "download");
    return cuda_sync(dev);
}

void cuda_copy(device *dev, void *dst, const void *src, size_t bytes)
{
    cuda_device *d = cuda_of(dev);
    check(d, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, d->stream), "copy");
}

void cuda_zero(device *dev, void *dst, size_t bytes)
{
    cuda_device *d = cuda_of(dev);
    check(d, cudaMemsetAsync(dst, 0, bytes, d->stream), "zero");
}

pesc_status cuda_sync(device *dev)
{
    cuda_device *d = cuda_select(dev);
    check(d, cudaStreamSynchronize(d->stream), "work");
    return d->failed == PESC_OK ? PESC_OK : fail(d->failed, "%s", d->message);
}

bool cuda_host_memory(const device *d)
{
    (void)d;
    return false;
}

uint64_t cuda_room(device *d)
{
    size_t left = 0, total = 0;
    check(cuda_select(d), cudaMemGetInfo(&left, &total), "asking for free memory");
    return left;
}

/* ---- marks ---- */

void cuda_mark(device *dev, int i)
{
    cuda_device *d = cuda_select(dev);
    cudaEvent_t *mark = &d->marks[i];
    unsigned how = cudaEventDisableTiming | cudaEventBlockingSync; /* who waits does not spin */
    if (!*mark)
        check(d, cudaEventCreateWithFlags(mark, how), "mark");
    if (*mark)
        check(d, cudaEventRecord(*mark, d->stream), "mark");
}

/* Reads nothing that the thread of the device writes, but for the mark, which is set before. A
 * thread that has only begun has no context yet, and what it calls next may be no runtime call. */
pesc_status cuda_wait_mark(device *dev, int i)
{
    const cuda_device *d = cuda_of(dev);
    cudaError_t e = cudaSetDevice(d->index);
    if (e == cudaSuccess && d->marks[i])
        e = cudaEventSynchronize(d->marks[i]);
    return e == cudaSuccess ? PESC_OK
                            : fail(PESC_DEVICE, "work on %s: %s", dev->name, cudaGetErrorString(e));
}

void cuda_follow(device *dev, device *other, int i)
{
    cuda_device *d = cuda_select(dev);
    cudaEvent_t mark = cuda_of(other)->marks[i];
    if (mark)
        check(d, cudaStreamWaitEvent(d->stream, mark, 0), "follow");
}

/* ---- opening ---- */

/* Every op as the table has it: with the GPU selected for the calling thread. */
#define SELECTED(name, parameters, arguments)                                                      \
    static void selected_##name parameters                                                         \
    {                                                                                              \
        device *in = &cuda_select(d)->base;                                                        \
        cuda_##name arguments;                                                                     \
    }
OPMAP(SELECTED)

static const ops table = {
#define ROW(name, parameters, arguments) .name = selected_##name,
    OPMAP(ROW).alloc = cuda_alloc,
    .alloc_host = cuda_alloc_host,
    .free = cuda_free,
    .download = cuda_download,
    .sync = cuda_sync,
    .host_memory = cuda_host_memory,
    .room = cuda_room,
    .scratch_bytes = cuda_scratch_bytes,
    .reserve = cuda_reserve,
    .close = cuda_close,
    .open_side = cuda_open_side,
    .mark = cuda_mark,
    .wait_mark = cuda_wait_mark,
    .follow = cuda_follow,
    .begin = cuda_begin,
    .end = cuda_end,
};

static pesc_status find_gpu(int index, struct cudaDeviceProp *prop)
{
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver || e == cudaErrorSystemDriverMismatch)
        return fail(PESC_DEVICE,
                    "device \"cuda:%d\": the NVIDIA driver is missing or too old (%s); install "
                    "one that serves CUDA %d, or use cpu",
                    index, cudaGetErrorString(e), CUDART_VERSION / 1000);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0))
        return fail(PESC_DEVICE, "device \"cuda:%d\": this machine has no NVIDIA GPU; use cpu",
                    index);
    if (e == cudaSuccess && index >= count)
        return fail(PESC_DEVICE, "device \"cuda:%d\": this machine has %d GPU%s, numbered from 0",
                    index, count, count == 1 ? "" : "s");
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(prop, index);
    if (e == cudaSuccess)
        e = cudaSetDevice(index);
    if (e != cudaSuccess)
        return fail(PESC_DEVICE, "device \"cuda:%d\": %s", index, cudaGetErrorString(e));
    if (prop->major != 8 && !(prop->major == 9 && prop->minor == 0))
        return fail(PESC_DEVICE,
                    "device \"cuda:%d\": %s has compute capability %d.%d, but pesc has code for "
                    "8.0 to 8.9 and 9.0; use cpu",
                    index, prop->name, prop->major, prop->minor);
    return PESC_OK;
}

static cudaError_t open_ring(cuda_ring *r)
{
    cudaError_t e = cudaMallocHost((void **)&r->memory, (size_t)CUDA_SLOTS * CUDA_SLOT_BYTES);
    for (int i = 0; e == cudaSuccess && i < CUDA_SLOTS; i++)
        e = cudaEventCreateWithFlags(&r->passed[i], cudaEventDisableTiming);
    return e;
}

static cudaError_t open_counters(cuda_device *d)
{
    size_t bytes = CUDA_COUNTERS * sizeof *d->counters;
    cudaError_t e = cudaMalloc((void **)&d->counters, bytes);
    return e == cudaSuccess ? cudaMemsetAsync(d->counters, 0, bytes, d->stream) : e;
}

/* products: with what matrix products need. */
static pesc_status open_gpu(device **out, int index, bool products)
{
    struct cudaDeviceProp prop;
    *out = NULL;
    TRY(find_gpu(index, &prop));
    cuda_device *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("opening the GPU", sizeof *d);
    d->base = (device){
        .op = &table,
        .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
        .memory = prop.totalGlobalMem,
        .head_rows = 2048,
        .micro_tokens = 8192,
        .has_bf16 = true,
        .has_fp8 = prop.major == 9, /* gemm_fp8 */
        .few_choices = ADAPTER_CHOICES,
    };
    d->index = index;
    d->n_sm = prop.multiProcessorCount;
    d->cc = prop.major * 10 + prop.minor;
    d->most_smem = (int)prop.sharedMemPerBlockOptin;
    snprintf(d->base.name, sizeof d->base.name, "cuda:%d (%.40s, %.0f GiB)", index, prop.name,
             (double)prop.totalGlobalMem / (1 << 30));
    cudaError_t e = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = open_ring(&d->ring);
    if (e == cudaSuccess)
        e = open_counters(d);
    pesc_status s = e == cudaSuccess
                        ? PESC_OK
                        : fail(PESC_DEVICE, "device \"cuda:%d\": %s", index, cudaGetErrorString(e));
    if (s == PESC_OK && products)
        s = cublaslt_open(d);
    if (s != PESC_OK) {
        cuda_close(&d->base);
        return s;
    }
    *out = &d->base;
    return PESC_OK;
}

pesc_status cuda_open_device(device **out, int index)
{
    return open_gpu(out, index, true);
}

pesc_status cuda_open_side(device *dev, device **out)
{
    return open_gpu(out, cuda_of(dev)->index, false);
}

void cuda_close(device *dev)
{
    cuda_device *d = cuda_select(dev);
    if (d->stream)
        cudaStreamSynchronize(d->stream);
    cuda_recordings_close(d);
    cublaslt_close(d);
    for (int i = 0; i < CUDA_SLOTS; i++)
        if (d->ring.passed[i])
            cudaEventDestroy(d->ring.passed[i]);
    for (int i = 0; i < DEVICE_MARKS; i++)
        if (d->marks[i])
            cudaEventDestroy(d->marks[i]);
    cudaFreeHost(d->ring.memory);
    cudaFree(d->scratch);
    cudaFree(d->counters);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    mem_free(d);
}
