/* router_few: an RMS norm fused with the router that reads its output, for the few rows of
 * decoding. (router.cu does the same for many.)
 *
 * Bound: latency. A row has a block of 512 threads, so that the router, some hundred KiB, is read
 * by many loads at once; where registers hold it, it is loaded before the wait for the kernel
 * before (overlap.cuh). Sums are trees that depend on shapes alone. */
#include "backend/cuda/norm.cuh"
#include "backend/cuda/overlap.cuh"

namespace
{

constexpr int THREADS = 512, WARPS = THREADS / WARP, W = 4, GROUP = 8 /* experts at a time */;

struct route {
    vec_any w;
    float *logits;
    const float *router;
    int n, experts;
    float eps;
};

/* f(span, s) for a thread's spans of a row. */
template <int SPANS, class F> __device__ void each_span(int n, F f)
{
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        int i = ((int)threadIdx.x + s * THREADS) * W;
        if (i < n)
            f(vec_span<W, true>{ i, n - i }, s);
    }
}

/* The sum over the block, in all threads. `part` is used once. */
__device__ float block_sum(float v, float *part)
{
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_sum<WARPS>(part[threadIdx.x % WARPS]);
}

template <int SPANS> struct router_rows {
    float w[GROUP][SPANS][W];

    __device__ void load(const route &p, int from)
    {
        each_span<SPANS>(p.n, [&](auto at, int s) {
#pragma unroll
            for (int e = 0; e < GROUP; e++)
                at.load(w[e][s], p.router, (int64_t)min(from + e, p.experts - 1) * p.n);
        });
    }
};

template <int SPANS, class O, class S>
__global__ void __launch_bounds__(THREADS, 1) route_few_kernel(O *out, const S in, const route p)
{
    constexpr bool EARLY = SPANS <= 2;
    __shared__ float squares[WARPS], dots[WARPS][GROUP];
    int64_t r = blockIdx.x;
    float v[SPANS][W], gain[SPANS][W], sum = 0.0f;
    router_rows<SPANS> rows;
    overlap_next();
    each_span<SPANS>(p.n, [&](auto at, int s) { at.load(gain[s], p.w); });
    if (EARLY)
        rows.load(p, 0);
    overlap_wait();

    /* the norm */
    each_span<SPANS>(p.n, [&](auto at, int s) { in.load(v[s], at, r, p.n); });
    each_span<SPANS>(p.n, [&](auto at, int s) {
        in.keep(v[s], at, r, p.n);
        for (int j = 0; j < W; j++)
            sum = fmaf(v[s][j], v[s][j], sum);
    });
    float inverse = 1.0f / sqrtf(block_sum(sum, squares) / (float)p.n + p.eps);
    each_span<SPANS>(p.n, [&](auto at, int s) {
        for (int j = 0; j < W; j++)
            v[s][j] = v[s][j] * inverse * gain[s][j];
        if (out)
            at.store(out, v[s], r * p.n);
    });

    /* the router, a group of experts at a time */
    for (int from = 0; from < p.experts; from += GROUP) {
        if (!EARLY || from > 0)
            rows.load(p, from);
        __syncthreads(); /* the dots before have been read */
#pragma unroll
        for (int e = 0; e < GROUP; e++) {
            float dot = 0.0f;
            each_span<SPANS>(p.n, [&](auto, int s) {
                for (int j = 0; j < W; j++)
                    dot = fmaf(v[s][j], rows.w[e][s][j], dot);
            });
            dot = warp_sum(dot);
            if (threadIdx.x % WARP == 0)
                dots[threadIdx.x / WARP][e] = dot;
        }
        __syncthreads();
        int e = from + (int)threadIdx.x;
        if ((int)threadIdx.x < GROUP && e < p.experts) {
            float total = 0.0f;
            for (int i = 0; i < WARPS; i++)
                total += dots[i][threadIdx.x];
            p.logits[r * p.experts + e] = total;
        }
    }
}

template <class O, class S> void launch(cuda_device *d, const norm_fwd *a, S in)
{
    int n = (int)tensor_cols(&a->w);
    overlap_grid grid = { dim3((unsigned)tensor_rows(&a->logits)), THREADS, 0, 0 };
    route p = { vec_any_of(a->w),
                (float *)a->logits.data,
                (const float *)a->router.data,
                n,
                (int)tensor_cols(&a->logits),
                a->eps };
    if (n <= THREADS * W)
        overlap_launch(d, "rmsnorm_fwd", grid, route_few_kernel<1, O, S>, (O *)a->out.data, in, p);
    else if (n <= 2 * THREADS * W)
        overlap_launch(d, "rmsnorm_fwd", grid, route_few_kernel<2, O, S>, (O *)a->out.data, in, p);
    else
        overlap_launch(d, "rmsnorm_fwd", grid, route_few_kernel<4, O, S>, (O *)a->out.data, in, p);
}

} // namespace

extern "C" bool cuda_norm_route_few(cuda_device *d, const norm_fwd *a)
{
    int64_t n = tensor_cols(&a->w);
    if (tensor_rows(&a->logits) > ROUTER_FEW || a->rstd.data || n % W || n > 4 * THREADS * W ||
        !vec_aligned(a->out, a->x, a->w, a->sum, a->add, a->rows, a->router))
        return false;
    vec_typed(a->out.dt, [&](auto o) {
        typedef decltype(o) O;
        if (a->sum.data)
            norm_summed(a, [&](auto in) { launch<O>(d, a, in); });
        else
            launch<O>(d, a, norm_plain<float>{ (const float *)a->x.data });
    });
    return true;
}
