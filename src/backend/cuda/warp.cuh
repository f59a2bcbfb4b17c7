/* warp: small functions over the lanes of a warp, pairs of bf16 in one register, and the product of
 * the tensor cores that every GPU since sm_80 has. */
#ifndef PESC_BACKEND_CUDA_WARP_CUH
#define PESC_BACKEND_CUDA_WARP_CUH

#include <cuda_bf16.h>
#include <stdint.h>

enum { WARP = 32 };

/* Two floats as bf16, rounded to nearest even; the first is the low half. */
__device__ inline uint32_t warp_pack_bf16(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&two;
}

__device__ inline void warp_unpack_bf16(float &low, float &high, uint32_t pair)
{
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
}

/* The sum over N neighbouring lanes, in all of them. All lanes of the warp call it. */
template <int N = WARP, class T> __device__ inline T warp_sum(T x)
{
#pragma unroll
    for (int lane = N / 2; lane; lane /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int lane = WARP / 2; lane; lane /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

/* c [16,8] += a [16,16] b [8,16]^T, f32 sums of bf16 products. */
__device__ __forceinline__ void warp_mma_bf16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A 4x4 transpose over groups of four lanes: lane l of a group ends with what its lanes had in
 * register l. */
__device__ inline void warp_transpose4(uint32_t (&x)[4])
{
    int lane = threadIdx.x & 3;
#pragma unroll
    for (int i = 1; i < 4; i <<= 1) { /* swap across bit i of lane and register */
        bool high = lane & i;
#pragma unroll
        for (int a = 0; a < 4; a++) {
            if (a & i)
                continue;
            uint32_t got = __shfl_xor_sync(~0u, high ? x[a] : x[a | i], i);
            x[a] = high ? got : x[a];
            x[a | i] = high ? x[a | i] : got;
        }
    }
}

#endif
