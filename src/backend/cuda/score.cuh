/* score: router logits into scores, by a warp, in shared memory; the one definition of forward and
 * backward. The sum is taken in order by every lane alike: it is short, and so the scores, and what
 * a bias makes of them, are the CPU's to the bit. */
#ifndef PESC_BACKEND_CUDA_SCORE_CUH
#define PESC_BACKEND_CUDA_SCORE_CUH

#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

__device__ inline void score_softmax(float *x, int32_t n)
{
    int lane = threadIdx.x % VEC_WARP;
    float max = -CUDART_INF_F, sum = 0.0f;
    for (int32_t i = lane; i < n; i += VEC_WARP)
        max = fmaxf(x[i], max); /* of NaN and a number, the number */
    max = vec_warp_max(max);
    for (int32_t i = lane; i < n; i += VEC_WARP)
        x[i] = vmath_exp(x[i] - max);
    __syncwarp();
#pragma unroll 8
    for (int32_t i = 0; i < n; i++)
        sum += x[i];
    __syncwarp();
    for (int32_t i = lane; i < n; i += VEC_WARP)
        x[i] /= sum;
    __syncwarp();
}

__device__ inline void score_sigmoid(float *x, int32_t n)
{
    float rest;
    for (int32_t i = threadIdx.x % VEC_WARP; i < n; i += VEC_WARP)
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

/* A warp's room: `floats` for each warp of a block, as many warps as 48 KiB hold, at most 8. */
static inline int score_warps(int64_t floats)
{
    int64_t warps = 48 * 1024 / (floats * (int64_t)sizeof(float));
    ASSERT(warps >= 1);
    return (int)(warps < 8 ? warps : 8);
}

#endif
