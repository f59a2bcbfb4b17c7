/* router_few: an RMS norm fused with the router that reads its output, for the few rows of
 * decoding. (router.cu does the same for many.)
 *
 * Bound: latency. A row has a block of 512 threads, so that the router, some hundred KiB, is read
 * by many loads at once; where registers hold it, it is loaded before the wait for the kernel
 * before (overlap.cuh). On Hopper the experts of a large router are divided between the blocks of a
 * cluster, each of which computes the norm for itself. Sums are trees that depend on shapes alone.
 */
#include "backend/cuda/hopper.cuh"
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
    float eps, shift;
    int blocks; /* of a row: a cluster */
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

/* All blocks of the row. */
__device__ void row_sync(const route &p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (p.blocks > 1)
        hopper_cluster_sync();
#endif
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
    int64_t r = blockIdx.x / p.blocks;
    int first = blockIdx.x % p.blocks * GROUP; /* experts of this block's first group */
    float v[SPANS][W], gain[SPANS][W], sum = 0.0f;
    router_rows<SPANS> rows;
    overlap_next();
    each_span<SPANS>(p.n, [&](auto at, int s) { at.load(gain[s], p.w); });
    if (EARLY)
        rows.load(p, first);
    overlap_wait();

    /* the norm */
    each_span<SPANS>(p.n, [&](auto at, int s) { in.load(v[s], at, r, p.n); });
    row_sync(p); /* all blocks have read what the first one overwrites */
    each_span<SPANS>(p.n, [&](auto at, int s) {
        if (first == 0)
            in.keep(v[s], at, r, p.n);
        for (int j = 0; j < W; j++)
            sum = fmaf(v[s][j], v[s][j], sum);
    });
    float inverse = 1.0f / sqrtf(block_sum(sum, squares) / (float)p.n + p.eps);
    each_span<SPANS>(p.n, [&](auto at, int s) {
        for (int j = 0; j < W; j++)
            v[s][j] = v[s][j] * inverse * (gain[s][j] + p.shift);
        if (out && first == 0)
            at.store(out, v[s], r * p.n);
    });

    /* the router, a group of experts at a time */
    for (int from = first; from < p.experts; from += p.blocks * GROUP) {
        if (!EARLY || from > first)
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

/* A block for each group of experts, as far as a cluster may have so many and as there are
 * multiprocessors for all rows. */
int blocks_of(const cuda_device *d, int64_t rows, int experts)
{
    int blocks = 1;
    while (d->cc == 90 && blocks < 8 && blocks * GROUP < experts && 2 * blocks * rows <= d->n_sm)
        blocks *= 2;
    return blocks;
}

template <class O, class S> void launch(cuda_device *d, const norm_fwd *a, S in)
{
    int n = (int)tensor_cols(&a->w), experts = (int)tensor_cols(&a->logits);
    int64_t rows = tensor_rows(&a->logits);
    int blocks = blocks_of(d, rows, experts);
    overlap_grid grid = { dim3((unsigned)(rows * blocks)), THREADS, 0, (unsigned)blocks };
    route p = { vec_any_of(a->w),
                (float *)a->logits.data,
                (const float *)a->router.data,
                n,
                experts,
                a->eps,
                a->shift,
                blocks };
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
