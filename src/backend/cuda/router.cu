/* router: an RMS norm fused with the router that reads its output. The normed rows in f32, which
 * the router reads, are not stored: forward multiplies them while they are in registers, backward
 * recomputes them from the rows.
 *
 * Bound: memory, one pass over the rows. Forward: a block has 1 to 4 rows, by their length, so that
 * the router is read once for all of them. Backward: dx in persistent blocks that hold the router
 * in shared memory, four teams of 256 threads with a row each; the router's gradient in 64 partial
 * sums over rows, added in order. All reductions are trees that depend on shapes alone. */
#include "backend/cuda/norm.cuh"

namespace
{

constexpr int WARPS = VEC_THREADS / WARP;
constexpr int GROUP = ROUTER_GROUP; /* experts at a time */
constexpr int W = 4;                /* columns of a span: all tensors but dy are f32 */

/* ---- forward ---- */

struct route {
    vec_any w;
    float *rstd, *logits;
    const float *router;
    int64_t rows, n;
    int experts;
    float eps, shift;
};

/* f(span, s, inside) for a thread's spans of a row, which the block holds in registers. WIDE: rows
 * are whole spans; one past the end of the row is the first one instead, so that loads need no
 * branch, behind which each would wait for the one before it; inside is false for it. */
template <int SPANS, bool WIDE, class F> __device__ void each_span(const route &p, F f)
{
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        int64_t i = (threadIdx.x + s * VEC_THREADS) * W;
        bool inside = i < p.n;
        if (WIDE)
            f(vec_span<W, WIDE>{ inside ? i : 0, W }, s, inside);
        else if (inside)
            f(vec_span<W, WIDE>{ i, p.n - i }, s, true);
    }
}

/* Sums of N values over a warp: lane l ends with that of value l / (32 / N). In each step a lane
 * exchanges half of its values with another lane, so their number halves. */
template <int HALF, int OFF, int N> __device__ void warp_fold(float (&v)[N])
{
    if constexpr (HALF > 0) {
        bool upper = threadIdx.x % WARP & OFF;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float send = upper ? v[i] : v[i + HALF], keep = upper ? v[i + HALF] : v[i];
            v[i] = keep + __shfl_xor_sync(0xffffffffu, send, OFF);
        }
        warp_fold<HALF / 2, OFF / 2>(v);
    } else if constexpr (OFF > 0) {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], OFF);
        warp_fold<0, OFF / 2>(v);
    }
}

/* The same over the block; thread i ends with the sum of value i. */
template <int N> __device__ float block_sums(float (&v)[N])
{
    static_assert(N <= WARP && (N & (N - 1)) == 0, "a power of two");
    __shared__ float part[WARPS][N];
    float sum = 0.0f;
    int lane = threadIdx.x % WARP, each = WARP / N;
    warp_fold<N / 2, WARP / 2>(v);
    __syncthreads(); /* the sums before have been read */
    if (lane % each == 0)
        part[threadIdx.x / WARP][lane / each] = v[0];
    __syncthreads();
    for (int i = 0; i < WARPS && threadIdx.x < N; i++)
        sum += part[i][threadIdx.x];
    return sum;
}

template <int ROWS, int SPANS, bool WIDE, class O, class S>
__global__ void __launch_bounds__(VEC_THREADS, 2) route_kernel(O *out, S in, const route p)
{
    __shared__ float inverse[ROWS];
    int64_t first = (int64_t)blockIdx.x * ROWS;
    float v[ROWS][SPANS][W] = {}, sum[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (first + r < p.rows)
            each_span<SPANS, WIDE>(
                p, [&](auto at, int s, bool) { in.load(v[r][s], at, first + r, p.n); });
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (first + r < p.rows)
            each_span<SPANS, WIDE>(p, [&](auto at, int s, bool inside) {
                if (!inside)
                    return;
                in.keep(v[r][s], at, first + r, p.n);
                for (int j = 0; j < W; j++)
                    sum[r] = fmaf(v[r][s][j], v[r][s][j], sum[r]);
            });
    float total = block_sums(sum);
    if (threadIdx.x < ROWS && first + threadIdx.x < p.rows) {
        inverse[threadIdx.x] = 1.0f / sqrtf(total / (float)p.n + p.eps);
        if (p.rstd)
            p.rstd[first + threadIdx.x] = inverse[threadIdx.x];
    }
    __syncthreads();
    each_span<SPANS, WIDE>(p, [&](auto at, int s, bool inside) {
        if (!inside)
            return;
        float g[W];
        at.load(g, p.w);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            for (int j = 0; j < W; j++)
                v[r][s][j] = v[r][s][j] * inverse[r] * (g[j] + p.shift);
            if (out && first + r < p.rows)
                at.store(out, v[r][s], (first + r) * p.n);
        }
    });
    for (int from = 0; from < p.experts; from += GROUP) {
        float dot[ROWS * GROUP] = {};
        each_span<SPANS, WIDE>(p, [&](auto at, int s, bool inside) {
            if (!inside)
                return;
#pragma unroll
            for (int e = 0; e < GROUP; e++) {
                float w[W];
                at.load(w, p.router, min(from + e, p.experts - 1) * p.n);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < W; j++)
                        dot[r * GROUP + e] = fmaf(v[r][s][j], w[j], dot[r * GROUP + e]);
            }
        });
        total = block_sums(dot);
        int64_t r = first + threadIdx.x / GROUP;
        int e = from + (int)threadIdx.x % GROUP;
        if (threadIdx.x < ROWS * GROUP && r < p.rows && e < p.experts)
            p.logits[r * p.experts + e] = total;
    }
}

template <int ROWS, int SPANS, bool WIDE, class O, class S>
void route_launch(cuda_device *d, const norm_fwd *a, S in, const route &p)
{
    vec_launch(&d->base, "rmsnorm_fwd", vec_blocks(p.rows, ROWS),
               route_kernel<ROWS, SPANS, WIDE, O, S>, (O *)a->out.data, in, p);
}

template <class O, class S> void route_from(cuda_device *d, const norm_fwd *a, S in)
{
    int64_t n = tensor_cols(&a->w), rows = tensor_count(&a->x) / n;
    bool wide = vec_aligned(a->out, a->x, a->w, a->sum, a->add, a->rows, a->router) && n % W == 0;
    route p = { vec_any_of(a->w),
                (float *)a->rstd.data,
                (float *)a->logits.data,
                (const float *)a->router.data,
                rows,
                n,
                (int)tensor_cols(&a->logits),
                a->eps,
                a->shift };
    constexpr int64_t WIDTH = VEC_THREADS * W;
    if (n > 16 * WIDTH)
        cuda_fail_with(d, PESC_UNSUPPORTED, "rmsnorm_fwd", "a router on rows wider than 16384");
    else if (wide && n <= 4 * WIDTH)
        route_launch<4, 4, true, O>(d, a, in, p);
    else if (wide && n <= 8 * WIDTH)
        route_launch<2, 8, true, O>(d, a, in, p);
    else
        route_launch<1, 16, false, O>(d, a, in, p);
}

/* ---- backward: the gradient of the router ---- */

constexpr int CHUNKS = ROUTER_CHUNKS, THREADS = 128;

struct router_dw {
    float *out; /* [E,C] */
    const float *dlogits, *x, *rstd;
    vec_any w;
    float shift;
    int64_t rows, n, chunk;
    int experts;
    bool wide;
};

/* Partial sums [CHUNKS,GROUP,C] of dlogits^T (x rstd): a thread has a span of columns and a chunk
 * of rows. */
__global__ void __launch_bounds__(THREADS) parts_kernel(float *parts, const router_dw p, int from)
{
    int64_t begin = blockIdx.y * p.chunk, end = min(begin + p.chunk, p.rows);
    int group = min(p.experts - from, GROUP);
    vec_at<W>(((int64_t)blockIdx.x * THREADS + threadIdx.x) * W, p.n, p.wide, [&](auto at) {
        float sum[GROUP][W] = {};
#pragma unroll 4
        for (int64_t r = begin; r < end; r++) {
            float x[W], rstd = p.rstd[r];
            at.load(x, p.x, r * p.n);
#pragma unroll
            for (int e = 0; e < GROUP; e++) {
                float d = e < group ? p.dlogits[r * p.experts + from + e] * rstd : 0.0f;
                for (int j = 0; j < W; j++)
                    sum[e][j] = fmaf(d, x[j], sum[e][j]);
            }
        }
#pragma unroll
        for (int e = 0; e < GROUP; e++)
            at.store(parts, sum[e], (int64_t)(blockIdx.y * GROUP + e) * p.n);
    });
}

__global__ void __launch_bounds__(THREADS)
    parts_sum(const float *parts, const router_dw p, int from)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = GROUP * p.n;
    if (i >= min(p.experts - from, GROUP) * p.n)
        return;
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < CHUNKS; k++)
        sum += parts[k * n + i];
    p.out[from * p.n + i] += sum * (vec_get(p.w, i % p.n) + p.shift);
}

/* ---- backward: dx ---- */

constexpr int TEAM = 256, TEAMS = 4, SPANS = 4; /* a team has a row of at most TEAM SPANS W */
constexpr int64_t SHARED = 200 << 10;

struct route_bwd {
    float *dx;
    bf16 *copy;
    const bf16 *dy;
    const float *x, *w, *rstd, *dlogits, *router;
    int64_t rows;
    int n, experts;
    bool accumulate;
    float shift;
};

/* The sum over a team; `part` alternates between two, so that one barrier is enough. */
__device__ float team_sum(float v, float *part, int team)
{
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x % TEAM / WARP] = v;
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(TEAM) : "memory");
    v = part[0];
#pragma unroll
    for (int i = 1; i < TEAM / WARP; i++)
        v += part[i];
    return v;
}

__global__ void __launch_bounds__(TEAM *TEAMS, 1) route_bwd_kernel(const route_bwd p)
{
    extern __shared__ float router[]; /* [E,C] */
    __shared__ float part[2][TEAMS][TEAM / WARP];
    for (int i = threadIdx.x * W; i < p.experts * p.n; i += TEAM * TEAMS * W)
        *(float4 *)(router + i) = *(const float4 *)(p.router + i);
    __syncthreads();
    int team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM, turn = 0;
    for (int64_t r = (int64_t)blockIdx.x * TEAMS + team; r < p.rows;
         r += (int64_t)gridDim.x * TEAMS, turn ^= 1) {
        int64_t row = r * p.n;
        float v[SPANS][W], d[SPANS][W], sum = 0.0f, rstd = p.rstd[r];
#pragma unroll
        for (int s = 0; s < SPANS; s++) {
            int i = (lane + s * TEAM) * W, at = i < p.n ? i : 0; /* no branch: see each_span() */
            vec_load(v[s], p.x + row + at);
            vec_load(d[s], p.dy + row + at);
        }
#pragma unroll
        for (int s = 0; s < SPANS; s++) {
            int i = (lane + s * TEAM) * W;
            if (i < p.n) {
                float g[W];
                for (int e = 0; e < p.experts; e++) {
                    float by = p.dlogits[r * p.experts + e];
                    vec_load(g, router + e * p.n + i);
                    for (int j = 0; j < W; j++)
                        d[s][j] = fmaf(by, g[j], d[s][j]);
                }
                vec_load(g, p.w + i);
                for (int j = 0; j < W; j++) {
                    d[s][j] *= g[j] + p.shift;
                    sum = fmaf(d[s][j], v[s][j], sum);
                }
            }
        }
        float pull = team_sum(sum, part[turn][team], team) * rstd * rstd / (float)p.n;
        float was[SPANS][W] = {};
        if (p.accumulate)
#pragma unroll
            for (int s = 0; s < SPANS; s++) {
                int i = (lane + s * TEAM) * W;
                vec_load(was[s], p.dx + row + (i < p.n ? i : 0));
            }
#pragma unroll
        for (int s = 0; s < SPANS; s++) {
            int i = (lane + s * TEAM) * W;
            if (i < p.n) {
                for (int j = 0; j < W; j++)
                    v[s][j] = (d[s][j] - v[s][j] * pull) * rstd + was[s][j];
                vec_store(p.dx + row + i, v[s]);
                if (p.copy)
                    vec_store(p.copy + row + i, v[s]);
            }
        }
    }
}

} // namespace

/* ---- parts of the ops ---- */

extern "C" void cuda_norm_route(cuda_device *d, const norm_fwd *a)
{
    if (cuda_norm_route_few(d, a))
        return;
    vec_typed(a->out.dt, [&](auto o) {
        typedef decltype(o) O;
        if (a->sum.data)
            norm_summed(a, [&](auto in) { route_from<O>(d, a, in); });
        else
            route_from<O>(d, a, norm_plain<float>{ (const float *)a->x.data });
    });
}

extern "C" void cuda_router_dw(cuda_device *d, const norm_bwd *a)
{
    int64_t n = tensor_cols(&a->w), rows = tensor_count(&a->x) / n;
    router_dw p = { (float *)a->drouter.data,
                    (const float *)a->dlogits.data,
                    (const float *)a->x.data,
                    (const float *)a->rstd.data,
                    vec_any_of(a->w),
                    a->shift,
                    rows,
                    n,
                    (rows + CHUNKS - 1) / CHUNKS,
                    (int)tensor_cols(&a->dlogits),
                    vec_aligned(a->x) && n % W == 0 };
    float *parts = (float *)cuda_scratch(d, "rmsnorm_bwd", scratch_router(n));
    if (!parts)
        return;
    dim3 grid(vec_blocks(n, THREADS * W), CHUNKS);
    for (int from = 0; from < p.experts; from += GROUP) {
        parts_kernel<<<grid, THREADS, 0, d->stream>>>(parts, p, from);
        parts_sum<<<vec_blocks(GROUP * n, THREADS), THREADS, 0, d->stream>>>(parts, p, from);
    }
    cuda_launched(d, "rmsnorm_bwd");
}

extern "C" bool cuda_norm_route_bwd(cuda_device *d, const norm_bwd *a)
{
    int64_t n = tensor_cols(&a->w), experts = tensor_cols(&a->dlogits);
    int64_t shared = experts * n * (int64_t)sizeof(float);
    if (a->dx.dt != DT_F32 || a->dy.dt != DT_BF16 || a->x.dt != DT_F32 || a->w.dt != DT_F32 ||
        (a->copy.data && a->copy.dt != DT_BF16) || n % W || n > TEAM * SPANS * W ||
        shared > SHARED || !vec_aligned(a->dx, a->dy, a->x, a->w, a->copy, a->router))
        return false;
    route_bwd p = { (float *)a->dx.data,
                    (bf16 *)a->copy.data,
                    (const bf16 *)a->dy.data,
                    (const float *)a->x.data,
                    (const float *)a->w.data,
                    (const float *)a->rstd.data,
                    (const float *)a->dlogits.data,
                    (const float *)a->router.data,
                    tensor_rows(&a->x),
                    (int)n,
                    (int)experts,
                    a->accumulate,
                    a->shift };
    cudaError_t e = cudaFuncSetAttribute(route_bwd_kernel,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED);
    if (e != cudaSuccess) { /* a GPU with less shared memory */
        cudaGetLastError();
        return false;
    }
    unsigned blocks = vec_blocks(p.rows, TEAMS);
    blocks = blocks < (unsigned)d->n_sm ? blocks : (unsigned)d->n_sm;
    route_bwd_kernel<<<blocks, TEAM * TEAMS, (size_t)shared, d->stream>>>(p);
    cuda_launched(d, "rmsnorm_bwd");
    return true;
}
