/* thin: dX of a router, which has few rows (E experts): out [T,C] = a [T,E] b [E,C] in f32. It is
 * bound by passing once over the wide side, and large tiles would only waste lanes. There is
 * nothing to sum but E terms, in order. */
#include "backend/cuda/vec.cuh"

namespace
{

enum { CHUNKS = 64, THREADS = 128, MOST = ROUTER_DX_EXPERTS, LEAST = ROUTER_DX_TOKENS, W = 4 };

struct thin {
    const float *a, *b;
    int64_t t, c; /* rows and columns of the wide side */
    int e;
    float scale;
    bool accumulate;
};

/* A thread has a span of columns of b and goes down a chunk of rows. */
template <int E, class T>
__global__ void __launch_bounds__(THREADS) thin_kernel(T *out, const thin p, int64_t rows)
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

extern "C" bool cuda_thin(cuda_device *d, const mm *a)
{
    int64_t e = tensor_cols(&a->a), t = tensor_rows(&a->a), c = tensor_cols(&a->b);
    if (a->layout != MM_NN || a->a.dt != DT_F32 || a->b.dt != DT_F32 || e > MOST || c % W ||
        t < LEAST || !vec_aligned(a->b, a->out))
        return false;
    thin p = {
        (const float *)a->a.data, (const float *)a->b.data, t, c, (int)e, a->scale, a->accumulate
    };
    dim3 grid(vec_blocks(c, THREADS * W), CHUNKS);
    int64_t rows = (t + CHUNKS - 1) / CHUNKS;
    vec_typed(a->out.dt, [&](auto o) {
        typedef decltype(o) T;
        auto kernel = e <= 1   ? thin_kernel<1, T>
                      : e <= 8 ? thin_kernel<8, T>
                               : thin_kernel<MOST, T>;
        kernel<<<grid, THREADS, 0, d->stream>>>((T *)a->out.data, p, rows);
    });
    cuda_launched(d, "matmul");
    return true;
}
