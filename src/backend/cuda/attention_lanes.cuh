/* attention_lanes: decoding without tensor cores, for one or two query heads on a key head: a warp
 * takes four keys at a time, eight lanes each, straight from global memory to registers. That is
 * less work than an mma with 16 rows of which most are empty, and needs no shared memory and no
 * barriers.
 *
 * Scores are in base 2: the caller multiplies queries by scale log2(e). */
#ifndef PESC_BACKEND_CUDA_ATTENTION_LANES_CUH
#define PESC_BACKEND_CUDA_ATTENTION_LANES_CUH

#include "backend/cuda/attention.cuh"

/* Online softmax of N heads, a lane's part: the warp's running maximum, the sum of weights of the
 * lane's keys, and their weighted values, of which a lane has 8 in every 64 of D columns. */
template <int D, int N> struct attn_lanes {
    static constexpr int PIECES = D / 64;
    float max[N], sum[N], acc[N][PIECES * 8];

    struct key {
        uint4 k[PIECES], v[PIECES];
    };

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int h = 0; h < N; h++) {
            max[h] = -INFINITY;
            sum[h] = 0;
#pragma unroll
            for (int i = 0; i < PIECES * 8; i++)
                acc[h][i] = 0;
        }
    }

    static __device__ __forceinline__ int column(int piece)
    {
        return piece * 64 + threadIdx.x % 8 * 8;
    }

    /* The lane's part of one key and value, given their rows. */
    static __device__ __forceinline__ key load(const void *k, const void *v)
    {
        key to;
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
            to.k[c] = *(const uint4 *)((const uint16_t *)k + column(c));
            to.v[c] = *(const uint4 *)((const uint16_t *)v + column(c));
        }
        return to;
    }

    /* Adds the warp's four keys to heads [0, n) of q [N][STRIDE]. A lane's key counts if valid. */
    template <int STRIDE>
    __device__ __forceinline__ void add_keys(const float (&q)[N][STRIDE], int n, const key &by,
                                             bool valid)
    {
        float x[8];
#pragma unroll
        for (int h = 0; h < N; h++) {
            if (h >= n)
                break;
            float s = 0;
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
                const float4 *at = (const float4 *)(q[h] + column(c));
                float4 low = at[0], high = at[1];
                unpack8(x, by.k[c]);
                s += low.x * x[0] + low.y * x[1] + low.z * x[2] + low.w * x[3] + high.x * x[4] +
                     high.y * x[5] + high.z * x[6] + high.w * x[7];
            }
#pragma unroll
            for (int i = 1; i < 8; i *= 2)
                s += __shfl_xor_sync(~0u, s, i);
            s = valid ? s : -INFINITY;
            float top = fmaxf(s, __shfl_xor_sync(~0u, s, 8));
            top = fmaxf(max[h], fmaxf(top, __shfl_xor_sync(~0u, top, 16)));
            float zero = top == -INFINITY ? 0.0f : top;
            float rescale = exp2_fast(max[h] - zero), weight = exp2_fast(s - zero);
            max[h] = top;
            sum[h] = sum[h] * rescale + weight;
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
                unpack8(x, by.v[c]);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    acc[h][c * 8 + i] = fmaf(weight, x[i], acc[h][c * 8 + i] * rescale);
            }
        }
    }

    /* The warp's results of heads [0, n): store_stats(head, max, sum) by one lane,
     * store_value(head, column, sum). */
    template <class T, class G>
    __device__ __forceinline__ void finish(int n, T store_stats, G store_value)
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < N; h++) {
            if (h >= n)
                break;
            float all = sum_keys(sum[h]);
            if (lane == 0)
                store_stats(h, max[h], all);
#pragma unroll
            for (int i = 0; i < PIECES * 8; i++) {
                float x = sum_keys(acc[h][i]);
                if (lane < 8)
                    store_value(h, column(i / 8) + i % 8, x);
            }
        }
    }

  private:
    static __device__ __forceinline__ float sum_keys(float x)
    {
        x += __shfl_xor_sync(~0u, x, 8);
        return x + __shfl_xor_sync(~0u, x, 16);
    }

    static __device__ __forceinline__ void unpack8(float (&to)[8], uint4 from)
    {
        uint32_t w[4] = { from.x, from.y, from.z, from.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[2 * i] = __uint_as_float(w[i] << 16);
            to[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
    }
};

#endif
