/* nf4_stream: 5 to 8 rows of bf16 activations against NF4 matrices on Hopper (stream.cuh). Up to
 * three matrices that multiply the same activations (q, k and v, or gate and up) are one launch. It
 * takes as long for one row as for 8; nf4_gemv is faster for a few and slower for 8. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/stream.cuh"

namespace
{

enum { MATRICES = 3 };

/* One of the matrices that multiply x. Tiles are counted through all of them. */
struct matrix {
    epilogue end;
    const unsigned char *codes; /* [n, k / 2] */
    const float *scales;        /* [n, k / 64] */
    int first_tile;
};

struct problem {
    stream_shape shape;
    matrix matrices[MATRICES];
    const stream_bf16 *x; /* [tokens, k] */
    int n_matrices, tokens, tiles;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A block has neighbouring tiles, and all of them the same activations. */
struct dense_work {
    const problem &p;
    int begin, end;

    struct cursor {
        int tile, matrix;
    };
    __device__ cursor at(int tile) const
    {
        cursor c = { tile, 0 };
        settle(c);
        return c;
    }
    __device__ void next(cursor &c) const
    {
        c.tile++;
        settle(c);
    }
    __device__ void settle(cursor &c) const
    {
        while (c.matrix + 1 < p.n_matrices && c.tile >= p.matrices[c.matrix + 1].first_tile)
            c.matrix++;
    }
    __device__ int row_of(const cursor &c) const
    {
        return (c.tile - p.matrices[c.matrix].first_tile) * STREAM_TILE;
    }
    __device__ stream_weights weights(const cursor &c) const
    {
        const matrix &m = p.matrices[c.matrix];
        int64_t first = row_of(c);
        return { m.codes + first * p.shape.row_bytes, m.scales + first * p.shape.row_scales,
                 min(STREAM_TILE, m.end.n - (int)first) - 1 };
    }
    __device__ const stream_bf16 *activations(const cursor &, int token) const
    {
        return token < p.tokens ? p.x + (int64_t)token * p.shape.k : nullptr;
    }
    __device__ int same(const cursor &) const { return 0; }
    __device__ void prepare() const {}
    __device__ void wait() const { overlap_wait(); }
    __device__ void ready()
    {
        begin = (int)((int64_t)p.tiles * blockIdx.x / gridDim.x);
        end = (int)((int64_t)p.tiles * (blockIdx.x + 1) / gridDim.x);
    }
    __device__ void finish(const cursor &c, int row, int token, float y) const
    {
        const matrix &m = p.matrices[c.matrix];
        int column = row_of(c) + row;
        if (token < p.tokens && column < m.end.n)
            epilogue_store(m.end, token, column, y);
    }
};

#endif

__global__ void __launch_bounds__(STREAM_THREADS, 1)
    nf4_stream_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char smem[]; /* table, ring, barriers */
    overlap_next();
    dense_work work = { p, 0, 0 };
    stream_run(p.shape, work, smem, *(stream_barriers *)(smem + p.shape.room));
#endif
}

} // namespace

bool nf4_stream_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    int64_t k = tensor_cols(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return !a->a_ld && !a->out_ld && k % STREAM_GROUP == 0 && at % 16 == 0 && k < 1 << 24 &&
           tensor_rows(&a->b) < 1 << 24;
}

void nf4_stream_launch(cuda_device *d, const mm *a, int n)
{
    problem p = {};
    p.shape = stream_shape_of((int)tensor_cols(&a->b), sizeof(stream_barriers));
    p.x = (const stream_bf16 *)a->a.data;
    p.tokens = (int)tensor_rows(&a->a);
    for (p.n_matrices = 0; p.n_matrices < n; p.n_matrices++) {
        const mm *of = a + p.n_matrices;
        epilogue end = epilogue_of(of);
        p.matrices[p.n_matrices] =
            matrix{ end, (const unsigned char *)of->b.data,
                    nf4_scales(of->b.data, (int64_t)end.n * p.shape.k), p.tiles };
        p.tiles += (end.n + STREAM_TILE - 1) / STREAM_TILE;
    }
    int blocks = p.tiles < d->n_sm ? p.tiles : d->n_sm;
    overlap_grid grid = { dim3((unsigned)blocks), STREAM_THREADS, p.shape.smem };
    overlap_launch(d, "matmul of nf4", grid, nf4_stream_kernel, p);
}
