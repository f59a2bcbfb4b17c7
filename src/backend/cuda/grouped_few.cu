/* grouped_few: the forward products of a few rows, as decoding has them: two experts for each token
 * of a small batch. All the time there is goes into reading these experts' weights, so every number
 * of the output is a warp of its own that reads one row of w, NF4 as it lies. */
#include "backend/cuda/grouped.cuh"

#include <cuda_bf16.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

namespace
{

/* With more rows tiles are faster, for NF4 in spite of unpacking (bench/grouped_cuda). */
enum { MOST_ROWS = 8, MOST_ROWS_NF4 = 32, WARPS = 8, LANES = 32, RUN = 8, AHEAD = 4 };

struct few {
    grouped_problem g;
    int64_t span_bytes, codes_bytes; /* of a matrix of NF4 */
    float code[16];
};

__device__ float rounded(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* RUN numbers from element `at` on; what is returned multiplies them. */
__device__ float load(float (&x)[RUN], const float *from, int64_t at)
{
    float4 low = *(const float4 *)(from + at), high = *(const float4 *)(from + at + 4);
    memcpy(x, &low, sizeof low);
    memcpy(x + 4, &high, sizeof high);
    return 1;
}

__device__ float load(float (&x)[RUN], const __nv_bfloat16 *from, int64_t at)
{
    uint4 word = *(const uint4 *)(from + at);
    const __nv_bfloat162 *pairs = (const __nv_bfloat162 *)&word;
#pragma unroll
    for (int i = 0; i < RUN / 2; i++) {
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

/* The scale stays outside: exacter than a product rounded to bf16, and cheaper. */
__device__ float load(float (&x)[RUN], const nf4_row &from, int64_t at)
{
    uint32_t word = *(const uint32_t *)(from.codes + at / 2);
#pragma unroll
    for (int i = 0; i < RUN; i++)
        x[i] = from.code[word >> (i / 2 * 8 + (1 - i % 2) * 4) & 15];
    return from.scales[at / NF4_BLOCK];
}

/* The warp's sum of x[k] w[at + k]. ROUND: f32 weights to bf16, as what meets bf16 is. */
template <bool ROUND, typename X, typename W>
__device__ float dot(const X *x, const W &w, int64_t at, int depth)
{
    float sum = 0;
#pragma unroll AHEAD
    for (int k = threadIdx.x % LANES * RUN; k < depth; k += LANES * RUN) {
        float a[RUN], b[RUN], part = 0;
        load(a, x, k);
        float scale = load(b, w, at + k);
#pragma unroll
        for (int i = 0; i < RUN; i++)
            part += a[i] * (ROUND ? rounded(b[i]) : b[i]);
        sum += scale * part;
    }
    for (int step = LANES / 2; step; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

/* How many experts end at or before this row: its own. */
__device__ int expert_of(const grouped_problem &g, int row)
{
    int before = 0;
    for (int e = threadIdx.x % LANES; e < g.experts; e += LANES)
        before += g.offsets[e + 1] <= row;
    for (int step = LANES / 2; step; step /= 2)
        before += __shfl_xor_sync(~0u, before, step);
    return before;
}

/* Rows of a along y, rows of w along x. */
template <typename X> __global__ void few_kernel(const __grid_constant__ few f)
{
    constexpr bool ROUND = sizeof(X) == 2;
    __shared__ float code[16];
    if (threadIdx.x < 16)
        code[threadIdx.x] = f.code[threadIdx.x];
    __syncthreads();
    const grouped_problem &g = f.g;
    int o = blockIdx.x * WARPS + threadIdx.x / LANES, row = blockIdx.y, e = expert_of(g, row);
    if (o >= g.o)
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

bool grouped_few(cuda_device *d, const grouped_problem &g)
{
    uintptr_t together = (uintptr_t)g.a | (uintptr_t)g.b;
    bool nf4 = g.b_dt == DT_NF4;
    if (g.layout != MM_NT || g.rows > (nf4 ? MOST_ROWS_NF4 : MOST_ROWS) || together % 16 ||
        g.i % (nf4 ? (int)NF4_BLOCK : RUN))
        return false;
    few f = {};
    f.g = g;
    if (nf4) {
        f.codes_bytes = (int64_t)nf4_codes_bytes((int64_t)g.o * g.i);
        f.span_bytes = f.codes_bytes + (int64_t)g.o * g.i / NF4_BLOCK * 4;
        memcpy(f.code, nf4_code, sizeof f.code);
    }
    dim3 grid((unsigned)grouped_up(g.o, WARPS), (unsigned)g.rows);
    if (g.a_dt == DT_F32)
        few_kernel<float><<<grid, WARPS * LANES, 0, d->stream>>>(f);
    else
        few_kernel<__nv_bfloat16><<<grid, WARPS * LANES, 0, d->stream>>>(f);
    cuda_launched(d, "grouped_matmul");
    return true;
}
