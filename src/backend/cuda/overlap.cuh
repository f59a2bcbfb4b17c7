/* overlap: a kernel begins while the one before it ends.
 *
 * Decoding is a chain of short kernels, each of which needs what the one before it wrote: between
 * any two the memory would stand still. A kernel that is launched here may start as soon as all
 * blocks of the one before it have called overlap_next(), and does what depends on nobody: it sets
 * up tables and fetches weights, which the kernels of decoding do not write. What it reads of
 * others, and all that it writes, comes behind overlap_wait(), which every kernel launched here
 * calls: so the end of a kernel is the end of all that were launched before it. On GPUs that cannot
 * do this, kernels follow each other as ever. */
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

/* For a kernel that has nothing to do meanwhile. */
__device__ __forceinline__ void overlap_both()
{
    overlap_next();
    overlap_wait();
}

struct overlap_grid {
    dim3 blocks;
    int threads, smem; /* smem: bytes of dynamic shared memory */
    unsigned cluster;  /* blocks along x that are one; 0: none are */
};

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
    if (g.smem > 48 << 10)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, g.smem);
    if (e == cudaSuccess)
        e = cudaLaunchKernelEx(&config, kernel, args...);
    if (e != cudaSuccess)
        cuda_fail(d, e, what);
}

#endif
