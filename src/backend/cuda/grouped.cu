/* grouped: the products of experts on the GPU. Rows are sorted by expert; the host knows their
 * number only, so each kernel covers as many tiles as there can be and finds on the device which
 * expert a tile belongs to. This file chooses the kernel, and has the plain one. */
#include "backend/cuda/grouped.cuh"

#include <cuda_bf16.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

enum { TILE = 64, DEPTH = 16, THREADS = 256, EACH = 4 };

/* One operand of a tile as a matrix [rows or columns, k] with any strides. */
struct plain_side {
    const void *data;
    dtype dt;
    int64_t stride, k_stride;
    bool round; /* to bf16: what meets bf16 is bf16 */
};

static __device__ float load(const plain_side &s, int64_t at)
{
    if (s.dt == DT_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)s.data)[at]);
    float x = ((const float *)s.data)[at];
    return s.round ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

/* tile[k][j] of elements j of [j0, n), k of [k0, depth); zero outside. */
static __device__ void fill(float (*tile)[TILE + 4], const plain_side &s, int j0, int n, int k0,
                            int depth)
{
    bool k_last = s.k_stride == 1;
    for (int x = threadIdx.x; x < TILE * DEPTH; x += THREADS) {
        int j = k_last ? x / DEPTH : x % TILE, k = k_last ? x % DEPTH : x / TILE;
        bool inside = j0 + j < n && k0 + k < depth;
        tile[k][j] = inside ? load(s, (j0 + j) * s.stride + (k0 + k) * s.k_stride) : 0.0f;
    }
}

static __device__ void store(const grouped_problem &p, int64_t at, float x)
{
    if (p.out_dt == DT_BF16) {
        __nv_bfloat16 *out = (__nv_bfloat16 *)p.out + at;
        *out = __float2bfloat16_rn(p.add ? __bfloat162float(*out) + x : x);
    } else {
        float *out = (float *)p.out + at;
        *out = p.add ? *out + x : x;
    }
}

static __device__ void sides_of(const grouped_problem &p, const grouped_tile &t, plain_side *a,
                                plain_side *b)
{
    bool tn = p.layout == MM_TN, nt = p.layout == MM_NT;
    int64_t a_cols = nt ? p.i : p.o;
    int64_t a_at = t.row * a_cols, b_at = tn ? (int64_t)t.row * p.i : (int64_t)t.expert * p.o * p.i;
    *a = { (const char *)p.a + a_at * (p.a_dt == DT_F32 ? 4 : 2), p.a_dt, tn ? 1 : a_cols,
           tn ? a_cols : 1, false };
    *b = { (const char *)p.b + b_at * (p.b_dt == DT_F32 ? 4 : 2), p.b_dt, nt ? p.i : 1,
           nt ? 1 : p.i, p.a_dt == DT_BF16 };
}

static __global__ void __launch_bounds__(THREADS) plain_kernel(const grouped_problem p)
{
    __shared__ float at[DEPTH][TILE + 4], bt[DEPTH][TILE + 4];
    grouped_tile t;
    if (!grouped_find(p, blockIdx.x, TILE, TILE, &t) || t.rows == 0)
        return;
    plain_side a, b;
    sides_of(p, t, &a, &b);
    int height = grouped_height(p, t.rows), width = grouped_width(p);
    int depth = grouped_depth(p, t.rows);
    int m = threadIdx.x / 16 * EACH, n = threadIdx.x % 16 * EACH;
    float sum[EACH][EACH] = {};
    for (int k0 = 0; k0 < depth; k0 += DEPTH) {
        fill(at, a, t.m, height, k0, depth);
        fill(bt, b, t.n, width, k0, depth);
        __syncthreads();
        for (int k = 0; k < DEPTH; k++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += at[k][m + i] * bt[k][n + j];
        __syncthreads();
    }
    int64_t first = p.layout == MM_TN ? (int64_t)t.expert * p.o : t.row;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            if (t.m + m + i < height && t.n + n + j < width)
                store(p, (first + t.m + m + i) * width + t.n + n + j, p.scale * sum[i][j]);
}

bool grouped_plain(cuda_device *d, const grouped_problem &p)
{
    plain_kernel<<<grouped_tiles(p, TILE, TILE), THREADS, 0, d->stream>>>(p);
    cuda_launched(d, "grouped_matmul");
    return true;
}

/* ---- stacks of NF4 matrices, each a span of its own: unpacked to what the activations are ---- */

struct unpack {
    void *out;
    dtype dt;
    const unsigned char *spans;
    int64_t n, span_bytes, codes_bytes; /* of a matrix */
    float code[16];
};

/* A thread takes a word of eight codes; matrices along y. */
static __global__ void unpack_kernel(const __grid_constant__ unpack u)
{
    __shared__ float code[16];
    if (threadIdx.x < 16)
        code[threadIdx.x] = u.code[threadIdx.x];
    __syncthreads();
    const unsigned char *span = u.spans + blockIdx.y * u.span_bytes;
    int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    if (first >= u.n)
        return;
    uint32_t word = *(const uint32_t *)(span + first / 2);
    float scale = ((const float *)(span + u.codes_bytes))[first / NF4_BLOCK];
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = code[word >> (i / 2 * 8 + (1 - i % 2) * 4) & 15] * scale;
    int64_t at = blockIdx.y * u.n + first;
    if (u.dt == DT_BF16 && u.n % 8 == 0) {
        __nv_bfloat162 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pairs[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
        *(uint4 *)((__nv_bfloat16 *)u.out + at) = *(uint4 *)pairs;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (first + i < u.n && u.dt == DT_F32)
            ((float *)u.out)[at + i] = x[i];
        else if (first + i < u.n)
            ((__nv_bfloat16 *)u.out)[at + i] = __float2bfloat16_rn(x[i]);
}

static const void *unpacked(cuda_device *d, const tensor *w, dtype dt)
{
    int64_t count = tensor_count(w), n = count / w->ne[0];
    unpack u = {};
    u.out = cuda_scratch(d, "grouped_matmul", scratch_converted(count, dt));
    u.dt = dt;
    u.spans = (const unsigned char *)w->data;
    u.n = n;
    u.span_bytes = (int64_t)tensor_bytes(w) / w->ne[0];
    u.codes_bytes = (int64_t)nf4_codes_bytes(n);
    if (!u.out)
        return NULL;
    memcpy(u.code, nf4_code, sizeof u.code);
    dim3 grid((unsigned)((n + THREADS * 8 - 1) / (THREADS * 8)), (unsigned)w->ne[0]);
    unpack_kernel<<<grid, THREADS, 0, d->stream>>>(u);
    cuda_launched(d, "grouped_matmul");
    return u.out;
}

static const void *converted(cuda_device *d, tensor w, dtype dt)
{
    tensor out = w;
    out.dt = dt;
    out.data = cuda_scratch(d, "grouped_matmul", scratch_converted(tensor_count(&w), dt));
    if (out.data)
        cuda_convert(&d->base, out, w);
    return out.data;
}

/* out[e] of experts without rows, which no tile is written for. */
static __global__ void clear_kernel(const grouped_problem p)
{
    int e = blockIdx.y;
    int64_t n = (int64_t)p.o * p.i;
    if (p.offsets[e] != p.offsets[e + 1])
        return;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < n;
         at += (int64_t)gridDim.x * THREADS) {
        if (p.out_dt == DT_BF16)
            ((__nv_bfloat16 *)p.out)[e * n + at] = __float2bfloat16_rn(0.0f);
        else
            ((float *)p.out)[e * n + at] = 0.0f;
    }
}

static void clear_empty(cuda_device *d, const grouped_problem &p)
{
    enum { BLOCKS = 32 };
    clear_kernel<<<dim3(BLOCKS, (unsigned)p.experts), THREADS, 0, d->stream>>>(p);
    cuda_launched(d, "grouped_matmul");
}

extern "C" void cuda_grouped_matmul(device *dev, const grouped_mm *g)
{
    cuda_device *d = cuda_of(dev);
    const tensor *w = g->layout == MM_TN ? &g->out : &g->b;
    grouped_problem p = { .layout = g->layout,
                          .a_dt = g->a.dt,
                          .b_dt = g->b.dt,
                          .out_dt = g->out.dt,
                          .a = g->a.data,
                          .b = g->b.data,
                          .out = g->out.data,
                          .offsets = (const int *)g->offsets.data,
                          .experts = (int)tensor_count(&g->offsets) - 1,
                          .rows = (int)tensor_rows(&g->a),
                          .o = (int)w->ne[1],
                          .i = (int)w->ne[2],
                          .scale = g->scale,
                          .add = g->layout == MM_TN && !g->fresh };
    if (p.experts == 0 || p.o == 0 || p.i == 0)
        return;
    if (g->fresh)
        clear_empty(d, p);
    if (p.rows == 0 || grouped_few(d, p))
        return;
    bool rounded = p.layout != MM_TN && p.b_dt == DT_F32 && p.a_dt == DT_BF16;
    if (p.b_dt == DT_NF4 || rounded) {
        p.b = rounded ? converted(d, g->b, p.a_dt) : unpacked(d, &g->b, p.a_dt);
        p.b_dt = p.a_dt;
        if (!p.b)
            return;
    }
    if (!(d->cc == 90 && grouped_wgmma(d, p)) && !grouped_mma(d, p))
        grouped_plain(d, p);
}
