/* score: router logits into scores by a warp, in shared memory, for forward and backward. Every
 * lane adds the same short sum in order, so that scores, and ranks with a bias, are the CPU's bit
 * for bit. */
#ifndef PESC_BACKEND_CUDA_SCORE_CUH
#define PESC_BACKEND_CUDA_SCORE_CUH

#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

/* The softmax; returns the logarithm of the sum of the exponentials. */
__device__ inline float score_softmax_lse(float *x, int32_t n)
{
    int lane = threadIdx.x % WARP;
    float max = -CUDART_INF_F, sum = 0.0f;
    for (int32_t i = lane; i < n; i += WARP)
        max = fmaxf(x[i], max); /* of NaN and a number, the number */
    max = warp_max(max);
    for (int32_t i = lane; i < n; i += WARP)
        x[i] = vmath_exp(x[i] - max);
    __syncwarp();
#pragma unroll 8
    for (int32_t i = 0; i < n; i++)
        sum += x[i];
    __syncwarp();
    for (int32_t i = lane; i < n; i += WARP)
        x[i] /= sum;
    __syncwarp();
    return max + logf(sum);
}

__device__ inline void score_softmax(float *x, int32_t n)
{
    score_softmax_lse(x, n);
}

__device__ inline void score_sigmoid(float *x, int32_t n)
{
    float rest;
    for (int32_t i = threadIdx.x % WARP; i < n; i += WARP)
        x[i] = vmath_sigmoid(x[i], rest);
    __syncwarp();
}

__device__ inline void score_all(float *x, int32_t n, score_kind kind)
{
    if (kind == SCORE_SOFTMAX)
        score_softmax(x, n);
    else
        score_sigmoid(x, n);
}

/* Warps of a block that needs `floats` of shared memory for each: as many as fit in 48 KiB, at most
 * 8. */
static inline int score_warps(int64_t floats)
{
    int64_t warps = 48 * 1024 / (floats * (int64_t)sizeof(float));
    ASSERT(warps >= 1);
    return (int)(warps < 8 ? warps : 8);
}

#endif
