/* grouped_gemv: forward products (NT) of a few rows, as decoding has them: k experts for each token
 * of a small batch.
 *
 * Bound: reading the weights of these experts. Each element of the output has a warp, which reads
 * one row of w, 8 elements a lane, several loads ahead, and decodes NF4 in registers. */
#include "backend/cuda/grouped.cuh"

#include <cuda_bf16.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

namespace
{

/* With more rows than the table says, tiles are faster, for NF4 in spite of decoding it to memory
 * (bench/grouped_cuda). */
enum { WARPS = 8, LANES = 32, VECTOR = 8, AHEAD = 4 };

struct problem {
    grouped_problem g;
    int64_t span_bytes, codes_bytes; /* of one NF4 matrix: codes and scales, codes */
    float code[16];
};

__device__ float rounded(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* VECTOR elements from `at` on; the result is a factor of them. */
__device__ float load(float (&x)[VECTOR], const float *from, int64_t at)
{
    float4 low = *(const float4 *)(from + at), high = *(const float4 *)(from + at + 4);
    memcpy(x, &low, sizeof low);
    memcpy(x + 4, &high, sizeof high);
    return 1;
}

__device__ float load(float (&x)[VECTOR], const __nv_bfloat16 *from, int64_t at)
{
    uint4 word = *(const uint4 *)(from + at);
    const __nv_bfloat162 *pairs = (const __nv_bfloat162 *)&word;
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++) {
        float2 two = __bfloat1622float2(pairs[i]);
        x[2 * i] = two.x;
        x[2 * i + 1] = two.y;
    }
    return 1;
}

struct nf4_row {
    const unsigned char *codes;
    const float *scales, *code;
};

/* The scale is applied to the sum: more precise than products rounded to bf16, and cheaper. */
__device__ float load(float (&x)[VECTOR], const nf4_row &from, int64_t at)
{
    uint32_t word = *(const uint32_t *)(from.codes + at / 2);
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        x[i] = from.code[word >> (i / 2 * 8 + (1 - i % 2) * 4) & 15];
    return from.scales[at / NF4_BLOCK];
}

/* The warp's sum of x[k] w[at + k]. ROUND: f32 weights are rounded to bf16, as x is. */
template <bool ROUND, typename X, typename W>
__device__ float dot(const X *x, const W &w, int64_t at, int depth)
{
    float sum = 0;
#pragma unroll AHEAD
    for (int k = threadIdx.x % LANES * VECTOR; k < depth; k += LANES * VECTOR) {
        float a[VECTOR], b[VECTOR], part = 0;
        load(a, x, k);
        float scale = load(b, w, at + k);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            part += a[i] * (ROUND ? rounded(b[i]) : b[i]);
        sum += scale * part;
    }
    for (int step = LANES / 2; step; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

/* The expert of a row: as many experts as end at or before it; -1: the row is of none. */
__device__ int expert_of(const grouped_problem &g, int row)
{
    int before = 0;
    for (int e = threadIdx.x % LANES; e < g.experts; e += LANES)
        before += g.offsets[e + 1] <= row;
    for (int step = LANES / 2; step; step /= 2)
        before += __shfl_xor_sync(~0u, before, step);
    return before < g.experts && row >= g.offsets[0] ? before : -1;
}

/* Rows of a along y of the grid, rows of w along x. */
template <typename X> __global__ void grouped_gemv_kernel(const __grid_constant__ problem f)
{
    constexpr bool ROUND = sizeof(X) == 2;
    __shared__ float code[16];
    if (threadIdx.x < 16)
        code[threadIdx.x] = f.code[threadIdx.x];
    __syncthreads();
    const grouped_problem &g = f.g;
    int o = blockIdx.x * WARPS + threadIdx.x / LANES, row = blockIdx.y, e = expert_of(g, row);
    if (o >= g.o || e < 0)
        return;
    const X *x = (const X *)g.a + (int64_t)row * g.i;
    int64_t at = (int64_t)o * g.i, stacked = (int64_t)e * g.o * g.i + at;
    const unsigned char *span = (const unsigned char *)g.b + e * f.span_bytes;
    float y =
        g.b_dt == DT_NF4
            ? dot<false>(x, nf4_row{ span, (const float *)(span + f.codes_bytes), code }, at, g.i)
        : g.b_dt == DT_F32 ? dot<ROUND>(x, (const float *)g.b, stacked, g.i)
                           : dot<false>(x, (const __nv_bfloat16 *)g.b, stacked, g.i);
    int64_t to = (int64_t)row * g.o + o;
    if (threadIdx.x % LANES == 0 && g.out_dt == DT_F32)
        ((float *)g.out)[to] = g.scale * y;
    else if (threadIdx.x % LANES == 0)
        ((__nv_bfloat16 *)g.out)[to] = __float2bfloat16_rn(g.scale * y);
}

} // namespace

bool grouped_gemv_fits(const grouped_problem &g)
{
    uintptr_t together = (uintptr_t)g.a | (uintptr_t)g.b;
    return together % 16 == 0 && g.i % (g.b_dt == DT_NF4 ? (int)NF4_BLOCK : VECTOR) == 0;
}

void grouped_gemv_launch(cuda_device *d, const grouped_problem &g)
{
    problem f = {};
    f.g = g;
    if (g.b_dt == DT_NF4) {
        f.codes_bytes = (int64_t)nf4_codes_bytes((int64_t)g.o * g.i);
        f.span_bytes = f.codes_bytes + (int64_t)g.o * g.i / NF4_BLOCK * 4;
        memcpy(f.code, nf4_code, sizeof f.code);
    }
    dim3 grid((unsigned)grouped_up(g.o, WARPS), (unsigned)g.rows);
    if (g.a_dt == DT_F32)
        grouped_gemv_kernel<float><<<grid, WARPS * LANES, 0, d->stream>>>(f);
    else
        grouped_gemv_kernel<__nv_bfloat16><<<grid, WARPS * LANES, 0, d->stream>>>(f);
    cuda_launched(d, "grouped_matmul");
}
