/* columns: sums over the rows of a matrix, for each column.
 *
 * Bound: memory. Rows are split into slabs, by their number alone. A block has 32 spans of columns
 * and a slab: its eight warps take every eighth row each, and their sums are added in order. Where
 * there are several slabs, the first kernel leaves a row of partial sums for each in scratch, and a
 * second one adds these, in order, to the output. */
#ifndef PESC_BACKEND_CUDA_COLUMNS_CUH
#define PESC_BACKEND_CUDA_COLUMNS_CUH

#include "backend/cuda/vec.cuh"

constexpr int COLUMNS_LANES = 8;

/* The rows of a matrix x [rows,n]; kernels may sum something else that has such a load(). */
template <class X> struct columns_of {
    const X *x;
    template <class S, int W> __device__ void load(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        at.load(v, x, r * n);
    }
};

/* Sums of V over `rows` rows of n columns, in slabs of `slab` rows: out [slabs,n]. */
template <class V> struct columns_problem {
    float *out;
    V value;
    int64_t rows, n, slab;
    bool add, wide; /* add: to what out holds */
};

template <int W, class V> __global__ void columns_kernel(const columns_problem<V> p)
{
    __shared__ float part[COLUMNS_LANES][WARP][W + 1];
    int column = threadIdx.x % WARP, lane = threadIdx.x / WARP;
    int64_t begin = blockIdx.y * p.slab, end = begin + p.slab < p.rows ? begin + p.slab : p.rows;
    int64_t i = ((int64_t)blockIdx.x * WARP + column) * W;
    vec_at<W>(i, p.n, p.wide, [&](auto at) {
        float sum[W] = { 0 }, v[W];
#pragma unroll 4
        for (int64_t r = begin + lane; r < end; r += COLUMNS_LANES) {
            p.value.load(v, at, r, p.n);
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
        for (int j = 0; j < W; j++)
            part[lane][column][j] = sum[j];
    });
    __syncthreads();
    for (int c = threadIdx.x; c < WARP * W; c += VEC_THREADS) {
        int64_t at = (int64_t)blockIdx.x * WARP * W + c;
        if (at >= p.n)
            continue;
        float *to = p.out + blockIdx.y * p.n + at, sum = p.add ? *to : 0.0f;
        for (int l = 0; l < COLUMNS_LANES; l++)
            sum += part[l][c / W][c % W];
        *to = sum;
    }
}

template <int W, class V>
void columns_launch(device *d, const char *what, const columns_problem<V> &p)
{
    dim3 grid(vec_blocks(p.n, WARP * W), vec_blocks(p.rows, p.slab));
    columns_kernel<W, V><<<grid, VEC_THREADS, 0, cuda_of(d)->stream>>>(p);
    cuda_launched(cuda_of(d), what);
}

/* out[n] += the sum of `value` over its rows; T: the types that it loads. */
template <class... T, class V>
void columns_sum(device *d, const char *what, float *out, V value, int64_t rows, int64_t n,
                 bool aligned)
{
    constexpr int W = vec_width<T...>;
    int64_t slab = (rows + COLUMN_SLABS - 1) / COLUMN_SLABS;
    slab = slab < COLUMN_ROWS ? COLUMN_ROWS : slab;
    int64_t slabs = (rows + slab - 1) / slab;
    if (slabs <= 1) {
        columns_launch<W, V>(d, what, { out, value, rows, n, slab, true, aligned && n % W == 0 });
        return;
    }
    float *sums = (float *)cuda_scratch(cuda_of(d), what, scratch_columns(rows, n));
    if (!sums)
        return;
    columns_launch<W, V>(d, what, { sums, value, rows, n, slab, false, aligned && n % W == 0 });
    columns_launch<4, columns_of<float>>(
        d, what, { out, columns_of<float>{ sums }, slabs, n, slabs, true, n % 4 == 0 });
}

#endif
