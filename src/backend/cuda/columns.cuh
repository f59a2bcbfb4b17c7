/* columns: sums over the rows of a matrix, in two walks of one kernel and a fixed order.
 *
 * A block takes 32 spans of columns and a slab of rows: 8 lanes walk every eighth row, then are
 * added up in order. The first walk leaves a row of sums for each slab, the second adds those up
 * with what was there. How rows fall into slabs depends on their number alone. */
#ifndef PESC_BACKEND_CUDA_COLUMNS_CUH
#define PESC_BACKEND_CUDA_COLUMNS_CUH

#include "backend/cuda/vec.cuh"

constexpr int COLUMNS_LANES = 8;

/* What is summed: v is row r of a matrix at a span. */
template <class X> struct columns_of {
    const X *x;
    template <class S, int W> __device__ void load(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        at.load(v, x, r * n);
    }
};

template <int W, class V>
__global__ void columns_kernel(float *out, V value, int64_t rows, int64_t n, int64_t slab, bool add,
                               bool wide)
{
    __shared__ float part[COLUMNS_LANES][VEC_WARP][W + 1];
    int column = threadIdx.x % VEC_WARP, lane = threadIdx.x / VEC_WARP;
    int64_t begin = blockIdx.y * slab, end = begin + slab < rows ? begin + slab : rows;
    int64_t i = ((int64_t)blockIdx.x * VEC_WARP + column) * W;
    vec_at<W>(i, n, wide, [&](auto at) {
        float sum[W] = { 0 }, v[W];
#pragma unroll 4
        for (int64_t r = begin + lane; r < end; r += COLUMNS_LANES) {
            value.load(v, at, r, n);
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
        for (int j = 0; j < W; j++)
            part[lane][column][j] = sum[j];
    });
    __syncthreads();
    for (int c = threadIdx.x; c < VEC_WARP * W; c += VEC_THREADS) {
        int64_t at = (int64_t)blockIdx.x * VEC_WARP * W + c;
        if (at >= n)
            continue;
        float *to = out + blockIdx.y * n + at, sum = add ? *to : 0.0f;
        for (int l = 0; l < COLUMNS_LANES; l++)
            sum += part[l][c / W][c % W];
        *to = sum;
    }
}

template <int W, class V>
void columns_launch(device *d, const char *what, float *out, V value, int64_t rows, int64_t n,
                    int64_t slab, bool add, bool wide)
{
    dim3 grid(vec_blocks(n, VEC_WARP * W), vec_blocks(rows, slab));
    columns_kernel<W, V>
        <<<grid, VEC_THREADS, 0, cuda_of(d)->stream>>>(out, value, rows, n, slab, add, wide);
    cuda_launched(cuda_of(d), what);
}

/* out[n] += the sum of `value` over its rows; T: the types it reads. */
template <class... T, class V>
void columns_sum(device *d, const char *what, float *out, V value, int64_t rows, int64_t n,
                 bool aligned)
{
    constexpr int W = vec_width<T...>;
    int64_t slab = (rows + COLUMN_SLABS - 1) / COLUMN_SLABS;
    slab = slab < COLUMN_ROWS ? COLUMN_ROWS : slab;
    int64_t slabs = (rows + slab - 1) / slab;
    if (slabs <= 1) {
        columns_launch<W>(d, what, out, value, rows, n, slab, true, aligned && n % W == 0);
        return;
    }
    float *sums = (float *)cuda_scratch(cuda_of(d), what, scratch_columns(rows, n));
    if (!sums)
        return;
    columns_launch<W>(d, what, sums, value, rows, n, slab, false, aligned && n % W == 0);
    columns_launch<4>(d, what, out, columns_of<float>{ sums }, slabs, n, slabs, true, n % 4 == 0);
}

#endif
