/* thin: products of f32 with a router, which has few rows (E experts). All three are bound by
 * passing once over the wide side, and large tiles would only waste lanes.
 *
 * NT sums along a row by one warp; TN adds rows in chunks, then the chunks in order; NN has nothing
 * to sum but E terms. So every element is added up in an order that shapes alone decide. */
#include "backend/cuda/cuda.h"

#include <cuda_bf16.h>

namespace
{

enum { LANES = 32, WARPS = 8, ROWS = 4, CHUNKS = 64, THREADS = 128, MOST = 16, LEAST = 256 };

__device__ __forceinline__ float dot4(float4 a, float4 b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

__device__ __forceinline__ void add4(float4 *y, float s, float4 x)
{
    y->x += s * x.x;
    y->y += s * x.y;
    y->z += s * x.z;
    y->w += s * x.w;
}

/* Four neighbours as f32, whatever they are stored in. */
__device__ __forceinline__ float4 read4(const float *p)
{
    return *(const float4 *)p;
}

__device__ __forceinline__ float4 read4(const __nv_bfloat16 *p)
{
    __nv_bfloat162 x[2];
    *(uint2 *)x = *(const uint2 *)p;
    float2 low = __bfloat1622float2(x[0]), high = __bfloat1622float2(x[1]);
    return make_float4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ void write4(float *p, float4 y)
{
    *(float4 *)p = y;
}

__device__ __forceinline__ void write4(__nv_bfloat16 *p, float4 y)
{
    __nv_bfloat162 x[2] = { __floats2bfloat162_rn(y.x, y.y), __floats2bfloat162_rn(y.z, y.w) };
    *(uint2 *)p = *(const uint2 *)x;
}

struct thin {
    float *out; /* NN: may be bf16 */
    const float *a, *b;
    int64_t t, c; /* rows and columns of the wide side */
    int e;
    float scale;
    bool accumulate;
};

/* out [T,E] = a [T,C] b [E,C]^T: a warp for each ROWS rows. */
template <int E> __global__ void __launch_bounds__(WARPS *LANES) thin_nt(const thin p)
{
    int lane = threadIdx.x % LANES;
    int64_t first = ((int64_t)blockIdx.x * WARPS + threadIdx.x / LANES) * ROWS;
    float sum[ROWS][E] = {};
    for (int64_t c = lane * 4; c < p.c && first < p.t; c += LANES * 4) {
        float4 a[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            a[r] = *(const float4 *)(p.a + min(first + r, p.t - 1) * p.c + c);
#pragma unroll
        for (int e = 0; e < E; e++) {
            float4 b = *(const float4 *)(p.b + min(e, p.e - 1) * p.c + c);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum[r][e] += dot4(a[r], b);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int e = 0; e < E; e++) {
            for (int far = LANES / 2; far; far /= 2)
                sum[r][e] += __shfl_xor_sync(~0u, sum[r][e], far);
            if (lane == (r * E + e) % LANES && first + r < p.t && e < p.e) {
                float *to = p.out + (first + r) * p.e + e;
                *to = p.scale * sum[r][e] + (p.accumulate ? *to : 0);
            }
        }
}

/* out [T,C] = a [T,E] b [E,C]: a thread has four columns of b and goes down the rows. */
template <int E, typename T>
__global__ void __launch_bounds__(THREADS) thin_nn(const thin p, T *out, int64_t rows)
{
    int64_t c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    int64_t first = blockIdx.y * rows, end = min(first + rows, p.t);
    if (c >= p.c)
        return;
    float4 b[E];
#pragma unroll
    for (int e = 0; e < E; e++)
        b[e] = e < p.e ? *(const float4 *)(p.b + e * p.c + c) : make_float4(0, 0, 0, 0);
    for (int64_t t = first; t < end; t++) {
        float4 y = make_float4(0, 0, 0, 0);
        T *to = out + t * p.c + c;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (e < p.e)
                add4(&y, p.a[t * p.e + e], b[e]);
        float4 old = p.accumulate ? read4(to) : make_float4(0, 0, 0, 0);
        add4(&old, p.scale, y);
        write4(to, old);
    }
}

/* parts [CHUNKS,E,C] of a [T,E]^T b [T,C]: a thread has four columns of a chunk of rows. */
template <int E>
__global__ void __launch_bounds__(THREADS) thin_tn(const thin p, float *parts, int64_t rows)
{
    int64_t c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    int64_t first = blockIdx.y * rows, end = min(first + rows, p.t);
    if (c >= p.c)
        return;
    float4 sum[E] = {};
#pragma unroll 4
    for (int64_t t = first; t < end; t++) {
        float4 b = *(const float4 *)(p.b + t * p.c + c);
#pragma unroll
        for (int e = 0; e < E; e++)
            if (e < p.e)
                add4(&sum[e], p.a[t * p.e + e], b);
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        if (e < p.e)
            *(float4 *)(parts + ((int64_t)blockIdx.y * p.e + e) * p.c + c) = sum[e];
}

__global__ void __launch_bounds__(THREADS) add_parts(const thin p, const float *parts)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = p.e * p.c;
    if (i >= n)
        return;
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < CHUNKS; k++)
        sum += parts[k * n + i];
    p.out[i] = p.scale * sum + (p.accumulate ? p.out[i] : 0);
}

unsigned divide(int64_t n, int64_t by)
{
    return (unsigned)((n + by - 1) / by);
}

template <int E> void launch(cuda_device *d, const thin &p, mm_layout layout, dtype out)
{
    dim3 columns(divide(p.c, THREADS * 4), CHUNKS);
    int64_t rows = divide(p.t, CHUNKS);
    if (layout == MM_NT) {
        thin_nt<E><<<divide(p.t, WARPS * ROWS), WARPS * LANES, 0, d->stream>>>(p);
    } else if (layout == MM_NN) {
        if (out == DT_F32)
            thin_nn<E><<<columns, THREADS, 0, d->stream>>>(p, p.out, rows);
        else
            thin_nn<E><<<columns, THREADS, 0, d->stream>>>(p, (__nv_bfloat16 *)p.out, rows);
    } else {
        float *parts = (float *)cuda_scratch(d, (size_t)(CHUNKS * p.e * p.c) * sizeof(float));
        if (!parts)
            return;
        thin_tn<E><<<columns, THREADS, 0, d->stream>>>(p, parts, rows);
        add_parts<<<divide(p.e * p.c, THREADS), THREADS, 0, d->stream>>>(p, parts);
    }
    cuda_launched(d, "matmul");
}

} // namespace

extern "C" bool cuda_thin(cuda_device *d, const mm *a)
{
    bool nt = a->layout == MM_NT;
    int64_t e = nt ? tensor_rows(&a->b) : tensor_cols(&a->a);
    int64_t t = tensor_rows(&a->a), c = tensor_cols(&a->b);
    uintptr_t wide = (uintptr_t)a->b.data | (uintptr_t)(nt ? a->a.data : a->out.data);
    if (a->layout == MM_TT || a->a.dt != DT_F32 || a->b.dt != DT_F32 ||
        (a->out.dt != DT_F32 && a->layout != MM_NN) || a->bias.data || e > MOST || c % 4 ||
        wide % 16 || t < LEAST)
        return false;
    thin p = { (float *)a->out.data,
               (const float *)a->a.data,
               (const float *)a->b.data,
               t,
               c,
               (int)e,
               a->scale,
               a->accumulate };
    if (e <= 1)
        launch<1>(d, p, a->layout, a->out.dt);
    else if (e <= 8)
        launch<8>(d, p, a->layout, a->out.dt);
    else
        launch<16>(d, p, a->layout, a->out.dt);
    return true;
}
