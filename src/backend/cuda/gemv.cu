/* gemv: 1 to 8 rows of bf16 activations against a bf16 matrix, as decoding has them. (nf4_gemv does
 * the same for NF4.)
 *
 * Bound: reading the weights once. A block has 16 rows of w; its 8 warps split k between them and
 * multiply with mma.m16n8k16: 16 rows by 16 of k by 8 tokens. Which element of k stands where in
 * these 16 is free as long as both operands agree, so every lane loads 8 neighbours of w and of x
 * straight into registers (16 bytes), several steps ahead of their use, in two buffers that
 * alternate. The warps' sums are added in order, so results repeat bit for bit. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/warp.cuh"

namespace
{

enum { WARPS = 8, LANES = 32, ROWS = 16, TOKENS = 8, AHEAD = 4, STEP = 32 };

typedef __nv_bfloat16 bf16;

struct problem {
    epilogue end;
    const bf16 *w, *x; /* [n,k] [tokens,k] */
    int64_t n, k;
    int tokens;
};

/* Weights are read once and must not evict x from the L1 cache. Volatile asm, so that the compiler
 * keeps several loads in flight before the first use. */
__device__ __forceinline__ uint4 stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* What a lane works on: rows `row` and `row + 8` of the block's 16, token `row` of 8, and of every
 * step of 32 elements of k the quarter `part`. */
struct lane {
    int row, part, warp;
    int64_t w0, w1; /* its two rows of w; the last row where there are fewer */
    const bf16 *x;  /* NULL: no such token */
};

__device__ __forceinline__ lane lane_of(const problem &p)
{
    lane l;
    int id = threadIdx.x % LANES;
    int64_t first = (int64_t)blockIdx.x * ROWS;
    l.row = id / 4;
    l.part = id % 4;
    l.warp = threadIdx.x / LANES;
    l.w0 = min(first + l.row, p.n - 1);
    l.w1 = min(first + l.row + 8, p.n - 1);
    l.x = l.row < p.tokens ? p.x + l.row * p.k : nullptr;
    return l;
}

/* The steps [begin, end) of `total` that a warp has. */
__device__ __forceinline__ void warp_steps(int64_t total, int warp, int64_t *begin, int64_t *end)
{
    int64_t each = (total + WARPS - 1) / WARPS;
    *begin = min(each * warp, total);
    *end = min(*begin + each, total);
}

/* AHEAD steps of the lane's two rows. */
struct buffer {
    uint4 w[AHEAD][2];
};

/* Past the end: any weights, because the activations are 0 there. */
__device__ __forceinline__ void load(buffer *to, const problem &p, const lane &l, int64_t step,
                                     int64_t end)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int64_t k = (step + i) * STEP + l.part * 8;
        k = step + i < end && k < p.k ? k : 0;
        to->w[i][0] = stream16(p.w + l.w0 * p.k + k);
        to->w[i][1] = stream16(p.w + l.w1 * p.k + k);
    }
}

__device__ __forceinline__ void multiply_buffer(float *sum, const buffer *from, const problem &p,
                                                const lane &l, int64_t step, int64_t end)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int64_t k = (step + i) * STEP + l.part * 8;
        uint4 a = from->w[i][0], b = from->w[i][1], x = make_uint4(0, 0, 0, 0);
        if (step + i < end && k < p.k && l.x)
            x = *(const uint4 *)(l.x + k);
        uint32_t first[4] = { a.x, b.x, a.y, b.y }, second[4] = { a.z, b.z, a.w, b.w };
        warp_mma_bf16(sum, first, x.x, x.y);
        warp_mma_bf16(sum, second, x.z, x.w);
    }
}

/* Adds the warps' sums in order; a thread for each row and token. */
__device__ __forceinline__ void store_rows(const problem &p, const lane &l, const float *sum,
                                           float (*sums)[ROWS][TOKENS])
{
    int column = l.part * 2;
    *(float2 *)&sums[l.warp][l.row][column] = make_float2(sum[0], sum[1]);
    *(float2 *)&sums[l.warp][l.row + 8][column] = make_float2(sum[2], sum[3]);
    __syncthreads();
    int token = threadIdx.x / ROWS, row = threadIdx.x % ROWS;
    int64_t at = (int64_t)blockIdx.x * ROWS + row;
    if (token >= p.tokens || token >= TOKENS || at >= p.n)
        return;
    float y = 0;
    for (int w = 0; w < WARPS; w++)
        y += sums[w][row][token];
    epilogue_store(p.end, token, (int)at, y);
}

__global__ void __launch_bounds__(WARPS *LANES) gemv_kernel(const problem p)
{
    lane l = lane_of(p);
    buffer even, odd;
    float sum[4] = { 0, 0, 0, 0 };
    int64_t step, end;
    warp_steps((p.k + STEP - 1) / STEP, l.warp, &step, &end);

    /* prologue: weights depend on no other kernel, so both buffers are loaded before the wait */
    load(&even, p, l, step, end);
    load(&odd, p, l, step + AHEAD, end);
    overlap_both();

    /* main loop: multiply one buffer while the other is on its way */
    for (; step < end; step += 2 * AHEAD) {
        multiply_buffer(sum, &even, p, l, step, end);
        if (step + 2 * AHEAD < end)
            load(&even, p, l, step + 2 * AHEAD, end);
        multiply_buffer(sum, &odd, p, l, step + AHEAD, end);
        if (step + 3 * AHEAD < end)
            load(&odd, p, l, step + 3 * AHEAD, end);
    }
    __shared__ float sums[WARPS][ROWS][TOKENS];
    store_rows(p, l, sum, sums);
}

} // namespace

bool gemv_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return product_whole(a) && tensor_cols(&a->b) % 8 == 0 && at % 16 == 0;
}

void gemv_launch(cuda_device *d, const mm *a, int n)
{
    (void)n;
    int64_t rows = tensor_rows(&a->b);
    problem p = { epilogue_of(a), (const bf16 *)a->b.data, (const bf16 *)a->a.data,
                  rows,           tensor_cols(&a->b),      (int)tensor_rows(&a->a) };
    overlap_grid grid = { dim3((unsigned)((rows + ROWS - 1) / ROWS)), WARPS * LANES, 0 };
    overlap_launch(d, "matmul", grid, gemv_kernel, p);
}
