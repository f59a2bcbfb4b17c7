/* grouped: the op grouped_matmul: the products of experts over rows that are sorted by expert. This
 * file has the table of kernels, and the plain kernel, which serves what the others do not.
 *
 * The plain kernel: tiles of 64x64, 16 of k at a time in shared memory; a thread has 4x4 sums. It
 * multiplies in f32, without tensor cores, and is bound by that. */
#include "backend/cuda/grouped.cuh"

#include <cuda_bf16.h>

enum { TILE = 64, DEPTH = 16, THREADS = 256, EACH = 4 };

/* One operand of a tile as a matrix [rows or columns, k] with any strides. */
struct plain_operand {
    const void *data;
    dtype dt;
    int64_t stride, k_stride;
    bool round; /* f32 to bf16, because the other operand is bf16 */
};

static __device__ float load(const plain_operand &s, int64_t at)
{
    if (s.dt == DT_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)s.data)[at]);
    float x = ((const float *)s.data)[at];
    return s.round ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

/* tile[k][j] from elements j of [j0, n) and k of [k0, depth); zero outside. */
static __device__ void load_tile(float (*tile)[TILE + 4], const plain_operand &s, int j0, int n,
                                 int k0, int depth)
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

static __device__ void operands_of(const grouped_problem &p, const grouped_tile &t,
                                   plain_operand *a, plain_operand *b)
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
    plain_operand a, b;
    operands_of(p, t, &a, &b);
    int height = grouped_height(p, t.rows), width = grouped_width(p);
    int depth = grouped_depth(p, t.rows);
    int m = threadIdx.x / 16 * EACH, n = threadIdx.x % 16 * EACH;
    float sum[EACH][EACH] = {};
    for (int k0 = 0; k0 < depth; k0 += DEPTH) {
        load_tile(at, a, t.m, height, k0, depth);
        load_tile(bt, b, t.n, width, k0, depth);
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

void grouped_plain_launch(cuda_device *d, const grouped_problem &p)
{
    plain_kernel<<<grouped_tiles(p, TILE, TILE), THREADS, 0, d->stream>>>(p);
    cuda_launched(d, "grouped_matmul");
}

/* ---- the table ---- */

#define ROW(name, fits, ...) { { #name, __VA_ARGS__ }, fits, name##_launch },

const grouped_kernel grouped_kernels[] = { CUDA_GROUPED(ROW) };

const int n_grouped_kernels = sizeof grouped_kernels / sizeof *grouped_kernels;

bool grouped_serves(const grouped_kernel &k, const cuda_device *d, const grouped_problem &p)
{
    kernel_use u = { p.rows, d->cc, p.layout, p.a_dt, p.b_dt, p.out_dt };
    return kernel_serves(&k.traits, &u) && (!k.fits || k.fits(p));
}

static const grouped_kernel *choose(const cuda_device *d, const grouped_problem &p)
{
    for (int i = 0; i < n_grouped_kernels; i++)
        if (grouped_serves(grouped_kernels[i], d, p))
            return &grouped_kernels[i];
    return NULL;
}

/* ---- the op ---- */

/* A copy of the stack w in type dt, in scratch. */
static const void *converted(cuda_device *d, tensor w, dtype dt)
{
    tensor out = w;
    out.dt = dt;
    out.data = cuda_scratch(d, "grouped_matmul", scratch_converted(tensor_count(&w), dt));
    if (out.data && w.dt == DT_NF4)
        nf4_decode(d, out.data, dt, &w);
    else if (out.data)
        cuda_convert(&d->base, out, w);
    return out.data;
}

/* Zeros out[e] of experts without rows, for which the kernels have no tile. */
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
    if (p.rows == 0)
        return;
    const grouped_kernel *k = choose(d, p);
    if (!k) { /* none reads the weights as they are */
        p.b = converted(d, g->b, p.a_dt);
        p.b_dt = p.a_dt;
        if (!p.b)
            return;
        k = choose(d, p);
    }
    k->launch(d, p);
}
