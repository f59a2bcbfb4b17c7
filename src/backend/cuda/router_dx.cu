/* router_dx: dX of a router, out [T,C] (+)= a [T,E] b [E,C] in f32, for at most 16 experts.
 *
 * Bound: one pass over the output. A thread has four columns of b in registers and goes down a
 * chunk of the rows; each element is the sum of E products in order. Tiles of a matrix multiply
 * would leave most lanes idle at so small a k. */
#include "backend/cuda/products.h"
#include "backend/cuda/vec.cuh"

namespace
{

enum { CHUNKS = 64, THREADS = 128, MOST = ROUTER_DX_EXPERTS, W = 4 };

struct problem {
    const float *a, *b; /* [t,e] [e,c] */
    int64_t t, c;
    int e;
    float scale;
    bool accumulate;
};

/* `rows`: of a chunk. */
template <int E, class T>
__global__ void __launch_bounds__(THREADS) router_dx_kernel(T *out, const problem p, int64_t rows)
{
    int64_t c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    int64_t first = blockIdx.y * rows, end = min(first + rows, p.t);
    if (c >= p.c)
        return;
    float b[E][W] = {};
#pragma unroll
    for (int e = 0; e < E; e++)
        if (e < p.e)
            vec_load(b[e], p.b + e * p.c + c);
    for (int64_t t = first; t < end; t++) {
        float y[W] = {}, old[W] = {};
#pragma unroll
        for (int e = 0; e < E; e++)
            for (int j = 0; j < W && e < p.e; j++)
                y[j] += p.a[t * p.e + e] * b[e][j];
        if (p.accumulate)
            vec_load(old, out + t * p.c + c);
        for (int j = 0; j < W; j++)
            old[j] += p.scale * y[j];
        vec_store(out + t * p.c + c, old);
    }
}

} // namespace

bool router_dx_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    return product_whole(a) && tensor_cols(&a->a) <= MOST && tensor_cols(&a->b) % W == 0 &&
           vec_aligned(a->b, a->out);
}

void router_dx_launch(cuda_device *d, const mm *a, int n)
{
    (void)n;
    int64_t e = tensor_cols(&a->a), t = tensor_rows(&a->a), c = tensor_cols(&a->b);
    problem p = {
        (const float *)a->a.data, (const float *)a->b.data, t, c, (int)e, a->scale, a->accumulate
    };
    dim3 grid(vec_blocks(c, THREADS * W), CHUNKS);
    int64_t rows = (t + CHUNKS - 1) / CHUNKS;
    vec_typed(a->out.dt, [&](auto o) {
        typedef decltype(o) T;
        auto kernel = e <= 1   ? router_dx_kernel<1, T>
                      : e <= 8 ? router_dx_kernel<8, T>
                               : router_dx_kernel<MOST, T>;
        kernel<<<grid, THREADS, 0, d->stream>>>((T *)a->out.data, p, rows);
    });
    cuda_launched(d, "matmul");
}
