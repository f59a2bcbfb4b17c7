/* study: what the studies of single kernels share. Each links the kernels without the device around
 * them (cuda.c), so this header stands in for it; one file of a study includes it. */
#ifndef PESC_BENCH_STUDY_CUH
#define PESC_BENCH_STUDY_CUH

#include "backend/cuda/cuda.h"

#include <stdio.h>

static int study_failures; /* failures that kernels and launches reported */

extern "C" void cuda_fail_with(cuda_device *d, pesc_status s, const char *what, const char *why)
{
    (void)d;
    (void)s;
    if (study_failures++ < 8)
        printf("FAILED %s: %s\n", what, why);
}

extern "C" void cuda_fail(cuda_device *d, cudaError_t e, const char *what)
{
    cuda_fail_with(d, PESC_DEVICE, what, cudaGetErrorString(e));
}

/* Unlike the device's it grows: a study does not plan. */
extern "C" void *cuda_scratch(cuda_device *d, const char *what, size_t bytes)
{
    if (bytes <= d->base.reserved)
        return d->scratch;
    cudaFree(d->scratch); /* waits for the kernels that still use it */
    d->scratch = NULL;
    d->base.reserved = 0;
    cudaError_t e = cudaMalloc((void **)&d->scratch, bytes);
    if (e == cudaSuccess)
        d->base.reserved = bytes;
    else
        cuda_fail(d, e, what);
    return d->scratch;
}

/* GPU 0; false, and a line, where there is none. */
static inline bool study_open(cuda_device *d)
{
    cudaDeviceProp prop;
    size_t bytes = CUDA_COUNTERS * sizeof *d->counters;
    cudaError_t e = cudaGetDeviceProperties(&prop, 0);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&d->counters, bytes);
    if (e == cudaSuccess)
        e = cudaMemset(d->counters, 0, bytes);
    if (e != cudaSuccess) {
        printf("no GPU: %s\n", cudaGetErrorString(e));
        return false;
    }
    d->n_sm = prop.multiProcessorCount;
    d->most_smem = (int)prop.sharedMemPerBlockOptin;
    d->cc = prop.major * 10 + prop.minor;
    printf("%s, %d multiprocessors\n", prop.name, d->n_sm);
    return true;
}

/* Pseudo-random numbers with mean 0 and variance 1, nearly normal. */
static __device__ __host__ inline float study_noise(uint64_t i, uint32_t seed)
{
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    x ^= x >> 31;
    float sum = 0;
    for (int k = 0; k < 4; k++)
        sum += (float)(x >> 16 * k & 0xFFFF) / 65536.0f - 0.5f;
    return sum * 1.732f;
}

#endif
