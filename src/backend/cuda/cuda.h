/* cuda: the device that is an NVIDIA GPU. Its memory comes from cudaMalloc, its work runs in one
 * stream.
 *
 * Every op is a C function with the signature of its entry in backend.h. It launches kernels on the
 * device's stream and returns; no op waits for the GPU. A failed launch or library call is kept by
 * cuda_fail() and returned by sync() and download(). Addresses in tensors are device addresses.
 *
 * What results depend on (backend.h and docs/numerics.md say the same):
 * - The same binary on the same model of GPU gives the same bits for the same inputs and shapes.
 *   There are no floating-point atomics; every sum has an order that depends on shapes alone, and
 *   for grouped products on the rows of each expert; cuBLASLt's first proposal for a shape is kept.
 * - A row may depend on the number of rows in the batch, because that chooses the kernel
 *   (cuda_kernels.h), and with it the order of sums. Nothing is promised between two models of GPU.
 *
 * Kernels and their launchers are .cu files, named like the CPU's; everything else is C. */
#ifndef PESC_BACKEND_CUDA_CUDA_H
#define PESC_BACKEND_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/cuda_scratch.h"
#include "backend/opmap.h"

enum { CUDA_SLOTS = 16, CUDA_SLOT_BYTES = 1 << 20 };

/* Pinned staging memory for uploads, so that the caller may reuse its own memory at once. A slot is
 * free again when its event has passed. */
typedef struct cuda_ring {
    unsigned char *memory;
    cudaEvent_t passed[CUDA_SLOTS];
    int next;
} cuda_ring;

/* A recording of repeated work. It holds the address of scratch, so it ends when that moves. */
typedef struct cuda_recording {
    uint64_t name;
    cudaGraphExec_t graph; /* NULL: the name was seen once, and its ops ran as usual */
    const void *scratch;
    uint64_t used; /* cuda_device.now of the last use; 0: empty */
} cuda_recording;

enum { CUDA_RECORDINGS = 32, CUDA_COUNTERS = 1 << 16 };

typedef struct cuda_device {
    device base;
    int index, n_sm;
    int cc;        /* compute capability: 80, 86, 89, 90 */
    int most_smem; /* bytes of shared memory that a block may have: 99 to 227 KiB */
    cudaStream_t stream;
    struct cublaslt *cublaslt; /* owned by cublaslt.c */
    unsigned char *scratch;    /* base.reserved bytes */
    unsigned *counters; /* [CUDA_COUNTERS], all 0 between ops: blocks that have finished a part */
    cuda_ring ring;
    cudaEvent_t marks[DEVICE_MARKS]; /* NULL: not set yet */
    cuda_recording recordings[CUDA_RECORDINGS];
    cuda_recording *recording; /* between begin() and end(), while the stream is captured */
    uint64_t now;              /* counts calls of begin() */
    pesc_status failed;        /* the first failure of an op, and its message */
    char message[512];
} cuda_device;

static inline cuda_device *cuda_of(device *d)
{
    return (cuda_device *)d; /* base is the first member */
}

/* Makes d's GPU the current one of the calling thread, on which CUDA's calls act. A thread begins
 * with GPU 0, and the program may have selected another since. Every entry of the table does this
 * first; the runtime keeps the current GPU in thread-local storage, so it takes some nanoseconds.
 */
cuda_device *cuda_select(device *d);

/* Opens the GPU with this index; called through host.h. */
pesc_status cuda_open_device(device **out, int index);

/* Keeps the first failure for sync() and download(). `what` is the name of the op. */
void cuda_fail(cuda_device *d, cudaError_t e, const char *what);
void cuda_fail_with(cuda_device *d, pesc_status s, const char *what, const char *why);

/* After a launch: keeps its failure, if any. */
static inline void cuda_launched(cuda_device *d, const char *what)
{
    cudaError_t e = cudaPeekAtLastError();
    if (e != cudaSuccess)
        cuda_fail(d, e, what);
}

/* The device's scratch for the op `what`: 256-byte aligned, with undefined contents, the op's own
 * until it returns (kernels of the next op run after its own). Allocates nothing: where `bytes`,
 * which cuda_scratch.h computes, exceed what is reserved, it returns NULL and keeps the failure. */
void *cuda_scratch(cuda_device *d, const char *what, size_t bytes);

/* ---- norms that are fused with a router: router.cu, router_few.cu ---- */

enum { ROUTER_FEW = 64 }; /* rows */

/* All of rmsnorm_fwd with logits. The second serves few rows in inference; it returns false, and
 * nothing is launched, where it does not serve the shape. */
void cuda_norm_route(cuda_device *d, const norm_fwd *a);
bool cuda_norm_route_few(cuda_device *d, const norm_fwd *a);

/* drouter of rmsnorm_bwd. */
void cuda_router_dw(cuda_device *d, const norm_bwd *a);

/* dx of rmsnorm_bwd with dlogits; false, and nothing launched, where it does not serve the shape.
 */
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
pesc_status cuda_open_side(device *d, device **out);
void cuda_mark(device *d, int i);
pesc_status cuda_wait_mark(device *d, int i);
void cuda_follow(device *d, device *other, int i);
bool cuda_begin(device *d, uint64_t name);
void cuda_end(device *d);
void cuda_recordings_close(cuda_device *d);

/* Every op, as in cuda_matmul(device *d, const mm *a). They expect that the GPU is selected; the
 * table's entries (cuda.c) select it first. */
#define CUDA_OP(name, parameters, arguments) void cuda_##name parameters;
OPMAP(CUDA_OP)
#undef CUDA_OP

#ifdef __cplusplus
}
#endif

#endif
