/* attention_lanes: a row of queries against keys that come straight from memory, a warp four keys
 * at a time, eight lanes on each. Where few heads share a key that is less work than the tensor
 * cores' 16 rows, and needs neither shared memory nor waiting for others.
 *
 * Scores are in units of ln 2: queries come times scale log2(e). */
#ifndef PESC_BACKEND_CUDA_ATTENTION_LANES_CUH
#define PESC_BACKEND_CUDA_ATTENTION_LANES_CUH

#include <stdint.h>

/* What a lane has of N heads: the maximum of the warp's scores, the sum of the weights of its own
 * keys, and their values, of which it has 8 in every 64 of D columns. */
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

    /* k, v: the rows of a key. */
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

    /* Four keys of a warp meet heads [0, n) of q [N][STRIDE]. A lane's key counts if valid. */
    template <int STRIDE>
    __device__ __forceinline__ void meet(const float (&q)[N][STRIDE], int n, const key &by,
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
                spread(x, by.k[c]);
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
            float shrink = power(max[h] - zero), weight = power(s - zero);
            max[h] = top;
            sum[h] = sum[h] * shrink + weight;
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
                spread(x, by.v[c]);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    acc[h][c * 8 + i] = fmaf(weight, x[i], acc[h][c * 8 + i] * shrink);
            }
        }
    }

    /* The warp's sums of heads [0, n): tell(head, max, sum) by one lane, give(head, column, sum).
     */
    template <class T, class G> __device__ __forceinline__ void end(int n, T tell, G give)
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < N; h++) {
            if (h >= n)
                break;
            float all = over_keys(sum[h]);
            if (lane == 0)
                tell(h, max[h], all);
#pragma unroll
            for (int i = 0; i < PIECES * 8; i++) {
                float x = over_keys(acc[h][i]);
                if (lane < 8)
                    give(h, column(i / 8) + i % 8, x);
            }
        }
    }

    static __device__ __forceinline__ float power(float x)
    {
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
    }

  private:
    static __device__ __forceinline__ float over_keys(float x)
    {
        x += __shfl_xor_sync(~0u, x, 8);
        return x + __shfl_xor_sync(~0u, x, 16);
    }

    static __device__ __forceinline__ void spread(float (&to)[8], uint4 from)
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
