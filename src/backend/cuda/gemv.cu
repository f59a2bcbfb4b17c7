/* gemv: few rows of activations against a whole matrix of bf16, as decoding does it. (NF4 is
 * nf4_stream's.)
 *
 * Reading the weights once is all the time there is, so nothing else may cost any. A block takes 16
 * rows of w, its warps split k between them, and the tensor cores multiply: 16 rows by 16 of k by 8
 * tokens at a time. Which element of k stands where in these 16 is free as long as both sides
 * agree, so every thread reads a run of neighbours of w and of x straight into its registers.
 *
 * The warps' sums are added in order, so results repeat bit for bit. */
#include "backend/cuda/overlap.cuh"

#include <cuda_bf16.h>

namespace
{

enum { WARPS = 8, LANES = 32, ROWS = 16, TOKENS = 8, AHEAD = 4 };

struct few {
    void *out;
    const __nv_bfloat16 *w, *x;
    const void *bias;
    int64_t n, k; /* of w [n,k] */
    int tokens;
    float scale;
    bool out_f32, bias_f32, accumulate;
};

__device__ __forceinline__ void multiply(float *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Weights are read once and must not push x out of the cache. Volatile, so that several are on
 * their way before the first is used. */
__device__ __forceinline__ uint4 stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* What a thread needs to find its part: rows `row` and `row + 8` of the block's 16, token `row`
 * of 8, a quarter `part` of every run along k. */
struct lane {
    int row, part, warp;
    int64_t w0, w1; /* its two rows of w, kept inside */
    const __nv_bfloat16 *x;
};

__device__ __forceinline__ lane lane_of(const few &f)
{
    lane l;
    int id = threadIdx.x % LANES;
    int64_t first = (int64_t)blockIdx.x * ROWS;
    l.row = id / 4;
    l.part = id % 4;
    l.warp = threadIdx.x / LANES;
    l.w0 = min(first + l.row, f.n - 1);
    l.w1 = min(first + l.row + 8, f.n - 1);
    l.x = l.row < f.tokens ? f.x + l.row * f.k : nullptr;
    return l;
}

/* [begin, end) of `total` steps along k for a warp. */
__device__ __forceinline__ void share(int64_t total, int warp, int64_t *begin, int64_t *end)
{
    int64_t each = (total + WARPS - 1) / WARPS;
    *begin = min(each * warp, total);
    *end = min(*begin + each, total);
}

__device__ __forceinline__ float read(const void *p, bool is_f32, int64_t i)
{
    return is_f32 ? ((const float *)p)[i] : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

/* Adds what the warps have, in their order, and stores. */
__device__ __forceinline__ void finish(const few &f, const lane &l, const float *sum,
                                       float (*sums)[ROWS][TOKENS])
{
    int column = l.part * 2;
    *(float2 *)&sums[l.warp][l.row][column] = make_float2(sum[0], sum[1]);
    *(float2 *)&sums[l.warp][l.row + 8][column] = make_float2(sum[2], sum[3]);
    __syncthreads();
    int token = threadIdx.x / ROWS, row = threadIdx.x % ROWS;
    int64_t at = (int64_t)blockIdx.x * ROWS + row;
    if (token >= f.tokens || token >= TOKENS || at >= f.n)
        return;
    float y = 0;
    for (int w = 0; w < WARPS; w++)
        y += sums[w][row][token];
    y *= f.scale;
    if (f.bias)
        y += read(f.bias, f.bias_f32, at);
    int64_t to = token * f.n + at;
    if (f.accumulate)
        y += read(f.out, f.out_f32, to);
    if (f.out_f32)
        ((float *)f.out)[to] = y;
    else
        ((__nv_bfloat16 *)f.out)[to] = __float2bfloat16(y);
}

/* ---- a step is 32 of k, a thread's run 8 ---- */

struct run {
    uint4 w[AHEAD][2];
};

/* Past the end: any weights, since x is 0 there. */
__device__ __forceinline__ void load(run *p, const few &f, const lane &l, int64_t step, int64_t end)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int64_t k = (step + i) * 32 + l.part * 8;
        k = step + i < end && k < f.k ? k : 0;
        p->w[i][0] = stream16(f.w + l.w0 * f.k + k);
        p->w[i][1] = stream16(f.w + l.w1 * f.k + k);
    }
}

__device__ __forceinline__ void use(float *sum, const run *p, const few &f, const lane &l,
                                    int64_t step, int64_t end)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int64_t k = (step + i) * 32 + l.part * 8;
        uint4 a = p->w[i][0], b = p->w[i][1], x = make_uint4(0, 0, 0, 0);
        if (step + i < end && k < f.k && l.x)
            x = *(const uint4 *)(l.x + k);
        uint32_t first[4] = { a.x, b.x, a.y, b.y }, second[4] = { a.z, b.z, a.w, b.w };
        uint32_t at[4] = { x.x, x.y, x.z, x.w };
        multiply(sum, first, at);
        multiply(sum, second, at + 2);
    }
}

__global__ void __launch_bounds__(WARPS *LANES) few_rows(const few f)
{
    lane l = lane_of(f);
    run even, odd;
    float sum[4] = { 0, 0, 0, 0 };
    int64_t step, end;
    share((f.k + 31) / 32, l.warp, &step, &end);
    load(&even, f, l, step, end);
    load(&odd, f, l, step + AHEAD, end);
    overlap_both();
    for (; step < end; step += 2 * AHEAD) {
        use(sum, &even, f, l, step, end);
        if (step + 2 * AHEAD < end)
            load(&even, f, l, step + 2 * AHEAD, end);
        use(sum, &odd, f, l, step + AHEAD, end);
        if (step + 3 * AHEAD < end)
            load(&odd, f, l, step + 3 * AHEAD, end);
    }
    __shared__ float sums[WARPS][ROWS][TOKENS];
    finish(f, l, sum, sums);
}

} // namespace

extern "C" bool cuda_few_rows(cuda_device *d, const mm *a)
{
    int64_t tokens = tensor_rows(&a->a), n = tensor_rows(&a->b), k = tensor_cols(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    if (a->layout != MM_NT || tokens > TOKENS || a->a.dt != DT_BF16 || a->b.dt != DT_BF16 ||
        k % 8 || at % 16)
        return false;
    few f = { a->out.data,
              (const __nv_bfloat16 *)a->b.data,
              (const __nv_bfloat16 *)a->a.data,
              a->bias.data,
              n,
              k,
              (int)tokens,
              a->scale,
              a->out.dt == DT_F32,
              a->bias.dt == DT_F32,
              a->accumulate };
    overlap_grid grid = { dim3((unsigned)((n + ROWS - 1) / ROWS)), WARPS * LANES, 0 };
    overlap_launch(d, "few rows", grid, few_rows, f);
    return true;
}
