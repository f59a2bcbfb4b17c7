/* cuda: the device that is an NVIDIA GPU. Its memory is cudaMalloc's, its order one stream.
 *
 * Every op is a C function with the signature of its row in backend.h. It launches work on the
 * device's stream and returns; nothing inside a step waits for the GPU. A failed launch or library
 * call is kept by cuda_fail() and comes out of sync() and download(). Each op sums in an order that
 * depends on shapes only (and, for grouped products, on the rows each expert has): no float
 * atomics, so a run repeats bit for bit. Addresses in tensors are device addresses.
 *
 * Kernels and their launchers are .cu files, named like their CPU twins; all else is C. */
#ifndef PESC_BACKEND_CUDA_CUDA_H
#define PESC_BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/cuda_scratch.h"
#include "backend/opmap.h"

enum { CUDA_SLOTS = 16, CUDA_SLOT_BYTES = 1 << 20 };

/* Pinned memory through which uploads go, so that the caller may reuse its own at once. A slot is
 * free again when its event has passed. */
typedef struct cuda_ring {
    unsigned char *memory;
    cudaEvent_t passed[CUDA_SLOTS];
    int next;
} cuda_ring;

/* A recording of repeated work. It holds the address of scratch, so it ends when that moves. */
typedef struct cuda_recording {
    uint64_t name;
    cudaGraphExec_t graph; /* NULL: seen once, run as it came */
    const void *scratch;
    uint64_t used; /* when */
} cuda_recording;

enum { CUDA_RECORDINGS = 8, CUDA_COUNTERS = 1 << 16 };

typedef struct cuda_device {
    device base;
    int index, n_sm;
    int cc; /* compute capability: 80, 90 */
    cudaStream_t stream;
    struct cuda_products *products; /* owned by matmul.c */
    unsigned char *scratch;         /* base.reserved bytes */
    unsigned *counters; /* [CUDA_COUNTERS], all 0 between ops: blocks that have finished a part */
    cuda_ring ring;
    cuda_recording recordings[CUDA_RECORDINGS];
    cuda_recording *recording; /* between begin() and end(), when this time is recorded */
    uint64_t now;              /* counts begin() */
    pesc_status failed;        /* the first failure of an op, and its sentence */
    char message[512];
} cuda_device;

static inline cuda_device *cuda_of(device *d)
{
    return (cuda_device *)d; /* base is the first member */
}

/* Makes d's GPU the calling thread's current one, which is what CUDA's calls act on: a thread
 * begins with GPU 0, and the program may have chosen another since. Every entry of the table does
 * this first. The runtime keeps the current GPU in the thread's own storage: asking for it takes
 * some nanoseconds. */
cuda_device *cuda_select(device *d);

/* The GPU with this index; called by the entry of host.h. */
pesc_status cuda_open_device(device **out, int index);

/* Keeps the first failure for sync() and download(). `what` is the op's name. */
void cuda_fail(cuda_device *d, cudaError_t e, const char *what);
void cuda_fail_with(cuda_device *d, pesc_status s, const char *what, const char *why);

/* After a launch: keeps its failure, if any. */
static inline void cuda_launched(cuda_device *d, const char *what)
{
    cudaError_t e = cudaPeekAtLastError();
    if (e != cudaSuccess)
        cuda_fail(d, e, what);
}

/* The device's scratch for the op `what`: 256-byte aligned, its contents undefined, the op's until
 * it returns (the next op's kernels run after its own). Allocates nothing: where `bytes`, which
 * cuda_scratch.h computes, are more than reserve() was asked for, it returns NULL and keeps the
 * failure. */
void *cuda_scratch(cuda_device *d, const char *what, size_t bytes);

/* ---- parts of products ---- */

pesc_status cuda_products_open(cuda_device *d);
void cuda_products_close(cuda_device *d);

/* An NF4 matrix, or a stack of them, as dt (f32 or bf16) at dst (16-byte aligned). */
void cuda_nf4_unpack(cuda_device *d, void *dst, dtype dt, const tensor *w);

/* 1 to 8 rows of bf16 against nf4 weights, read as they lie: as many of the n products as meet the
 * same rows, at once. How many it did. */
int cuda_nf4_stream(cuda_device *d, const mm *a, int n);

/* The same for 33 to 64 rows, on Hopper. */
int cuda_nf4_wide(cuda_device *d, const mm *a, int n);

/* Up to 32 rows of bf16 against nf4 weights, read as they lie; false: not for this. */
bool cuda_nf4_few(cuda_device *d, const mm *a);

/* Few rows of bf16 against bf16 weights, bound by reading these; false: not for this. */
bool cuda_few_rows(cuda_device *d, const mm *a);

/* f32 with the few rows of a router; false: not for this. */
bool cuda_thin(cuda_device *d, const mm *a);

/* Many rows of bf16 on Hopper, all pairs summed in one pass; false: not for this. */
bool cuda_product(cuda_device *d, const mm *a);

/* ---- parts of norms: where a router stands behind one ---- */

/* The whole of it. */
void cuda_norm_route(cuda_device *d, const norm_fwd *a);

/* drouter; and dx, false: not for this. */
void cuda_router_dw(cuda_device *d, const norm_bwd *a);
bool cuda_norm_route_bwd(cuda_device *d, const norm_bwd *a);

/* ---- the entries of the table: see backend.h ---- */

pesc_status cuda_alloc(device *d, size_t bytes, void **out);
pesc_status cuda_alloc_host(device *d, size_t bytes, void **out);
void cuda_free(device *d, void *p);
pesc_status cuda_download(device *d, void *dst, const void *src, size_t bytes);
pesc_status cuda_sync(device *d);
bool cuda_host_memory(const device *d);
uint64_t cuda_room(device *d);
size_t cuda_scratch_bytes(const device *d, const work_limits *w);
pesc_status cuda_reserve(device *d, size_t bytes);
void cuda_close(device *d);
bool cuda_begin(device *d, uint64_t name);
void cuda_end(device *d);
void cuda_recordings_close(cuda_device *d);

/* Every op, as cuda_matmul(device *d, const mm *a). They count on the GPU being selected: cuda.c
 * sees to that for those who come through the table. */
#define CUDA_OP(name, parameters, arguments) void cuda_##name parameters;
OPMAP(CUDA_OP)
#undef CUDA_OP

#ifdef __cplusplus
}
#endif

#endif
