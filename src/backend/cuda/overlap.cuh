/* overlap: programmatic dependent launch (PDL): a kernel starts while the one before it still runs.
 *
 * Decoding is a chain of short kernels, each of which reads what the one before it wrote; without
 * PDL memory is idle between any two of them. A kernel that is launched here may start as soon as
 * all blocks of the kernel before it have called overlap_next(). Before overlap_wait() it may only
 * do what depends on no other kernel: set up tables, and load weights, which no kernel of a forward
 * writes. It reads results of other kernels, and writes anything at all, only after overlap_wait().
 * Every kernel launched here calls overlap_wait(), so that the end of a kernel implies the end of
 * all that were launched before it. On GPUs before Hopper kernels run one after the other. */
#ifndef PESC_BACKEND_CUDA_OVERLAP_CUH
#define PESC_BACKEND_CUDA_OVERLAP_CUH

#include "backend/cuda/cuda.h"

__device__ __forceinline__ void overlap_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void overlap_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* For a kernel that has nothing to do before the wait. */
__device__ __forceinline__ void overlap_both()
{
    overlap_next();
    overlap_wait();
}

struct overlap_grid {
    dim3 blocks;
    int threads, smem; /* smem: bytes of dynamic shared memory */
    unsigned cluster;  /* blocks of a cluster, along x; 0: no clusters */
};

/* A block may have 48 KiB of shared memory, static and dynamic together, before the kernel must be
 * allowed more. The limit leaves room for what is static, at most 24 KiB in any kernel. */
enum { OVERLAP_PLAIN_SMEM = 24 << 10 };

template <class... A>
void overlap_launch(cuda_device *d, const char *what, overlap_grid g, void (*kernel)(A...),
                    A... args)
{
    cudaLaunchAttribute early[2] = {};
    early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early[0].val.programmaticStreamSerializationAllowed = 1;
    early[1].id = cudaLaunchAttributeClusterDimension;
    early[1].val.clusterDim.x = g.cluster;
    early[1].val.clusterDim.y = early[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = g.blocks;
    config.blockDim = dim3((unsigned)g.threads);
    config.dynamicSmemBytes = (size_t)g.smem;
    config.stream = d->stream;
    config.attrs = early;
    config.numAttrs = d->cc < 90 ? 0 : g.cluster > 1 ? 2 : 1;
    cudaError_t e = cudaSuccess;
    if (g.smem > OVERLAP_PLAIN_SMEM)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, g.smem);
    if (e == cudaSuccess)
        e = cudaLaunchKernelEx(&config, kernel, args...);
    if (e != cudaSuccess)
        cuda_fail(d, e, what);
}

#endif
