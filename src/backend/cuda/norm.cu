/* norm: root mean square normalisation of rows, and its backward.
 *
 * Bound: memory. A row belongs to a team: half a warp, a warp or a block, by its length. The team
 * holds the first spans of each thread in registers from the sum of squares to the result; longer
 * rows are read a second time, from the cache. All held spans are loaded before anything is stored,
 * because the compiler must assume that a store changes what later loads read, and in wide rows
 * without a branch, because a load behind a branch waits for the one before it. */
#include "backend/cuda/norm.cuh"
#include "backend/cuda/columns.cuh"
#include "backend/cuda/overlap.cuh"

namespace
{

/* Spans of a thread that registers hold. Half a warp has only rows of one. */
template <int TEAM> constexpr int norm_kept = TEAM < WARP ? 1 : 4;

/* f(span, s, inside) for them. WIDE: rows are whole spans. A wide span past the end of the row is
 * its first one instead, so that loads need no branch; inside is false for it. */
template <int TEAM, int W, bool WIDE, class F> __device__ void each_kept(int64_t n, F f)
{
#pragma unroll
    for (int s = 0; s < norm_kept<TEAM>; s++) {
        int64_t i = (threadIdx.x % TEAM + s * TEAM) * W;
        bool inside = i < n;
        if (WIDE)
            f(vec_span<W, WIDE>{ inside ? i : 0, W }, s, inside);
        else if (inside)
            f(vec_span<W, WIDE>{ i, n - i }, s, true);
    }
}

/* The same where f loads from a tensor whose type is known at run time: p is a pointer to it. */
template <int TEAM, int W, bool WIDE, class F>
__device__ void each_kept_of(vec_any a, int64_t n, F f)
{
    if (a.f32)
        each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool) { f(at, s, (const float *)a.p); });
    else
        each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool) { f(at, s, (const bf16 *)a.p); });
}

/* f(span) for the others. */
template <int TEAM, int W, bool WIDE, class F> __device__ void each_other(int64_t n, F f)
{
    for (int64_t i = (threadIdx.x % TEAM + norm_kept<TEAM> * TEAM) * W; i < n; i += TEAM * W)
        f(vec_span<W, WIDE>{ i, n - i });
}

template <int W> __device__ void add_products(float &sum, const float (&a)[W], const float (&b)[W])
{
    for (int j = 0; j < W; j++)
        sum = fmaf(a[j], b[j], sum);
}

template <int W>
__device__ void normalise(float (&v)[W], float rstd, const float (&gain)[W], float shift)
{
    for (int j = 0; j < W; j++)
        v[j] = v[j] * rstd * (gain[j] + shift);
}

template <class O, class S> struct norm_args {
    O *out;      /* [rows,n]; NULL: not wanted */
    S in;        /* where rows come from: norm.cuh */
    vec_any w;   /* [n] */
    float *rstd; /* [rows]; NULL: not wanted */
    int64_t rows, n;
    float eps, shift;
};

template <int TEAM, bool WIDE, class O, class S>
__global__ void norm_kernel(const norm_args<O, S> p)
{
    constexpr int W = vec_width<O, typename S::type>, KEPT = norm_kept<TEAM>;
    const S &in = p.in;
    int64_t r = vec_row<TEAM>(), n = p.n;

    /* PDL: the next product may load its weights; no kernel writes w, so it is loaded before the
     * wait */
    overlap_next();
    float kept[KEPT][W], gain[KEPT][W], sum = 0.0f;
    each_kept_of<TEAM, W, WIDE>(p.w, n, [&](auto at, int s, auto w) { at.load(gain[s], w); });
    overlap_wait();
    if (r >= p.rows)
        return;

    /* sum of squares */
    each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool) { in.load(kept[s], at, r, n); });
    each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool inside) {
        if (inside) {
            in.keep(kept[s], at, r, n);
            add_products(sum, kept[s], kept[s]);
        }
    });
    each_other<TEAM, W, WIDE>(n, [&](auto at) {
        float v[W];
        in.load(v, at, r, n);
        in.keep(v, at, r, n);
        add_products(sum, v, v);
    });
    float inverse = 1.0f / sqrtf(vec_team_sum<TEAM>(sum) / (float)n + p.eps);
    if (p.rstd && threadIdx.x % TEAM == 0)
        p.rstd[r] = inverse;
    if (!p.out)
        return;

    /* the result */
    each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool inside) {
        normalise(kept[s], inverse, gain[s], p.shift);
        if (inside)
            at.store(p.out, kept[s], r * n);
    });
    each_other<TEAM, W, WIDE>(n, [&](auto at) {
        float v[W], g[W];
        in.again(v, at, r, n);
        at.load(g, p.w);
        normalise(v, inverse, g, p.shift);
        at.store(p.out, v, r * n);
    });
}

/* ---- backward ---- */

/* Loads a span of x and of dy, and multiplies dy by one of w. */
template <class Y, class X> struct norm_pair {
    const X *x;
    const Y *dy;
    vec_any w;
    float shift;

    template <class S, int W>
    __device__ void load(float (&v)[W], float (&d)[W], S at, int64_t row) const
    {
        at.load(v, x, row);
        at.load(d, dy, row);
    }

    template <class S, int W, class G> __device__ void weigh(float (&d)[W], S at, G gains) const
    {
        float g[W];
        at.load(g, gains);
        for (int j = 0; j < W; j++)
            d[j] *= g[j] + shift;
    }
};

/* Computes and stores a span of dx, and of its copy. */
template <class D> struct norm_dx {
    D *dx;
    vec_any copy;

    template <class S, int W>
    __device__ void store(float (&v)[W], const float (&d)[W], const float (&was)[W], float rstd,
                          float pull, S at, int64_t row) const
    {
        for (int j = 0; j < W; j++)
            v[j] = (d[j] - v[j] * pull) * rstd + was[j];
        at.store(dx, v, row);
        if (copy.p)
            at.store(copy, v, row);
    }
};

template <class D, class Y, class X> struct norm_bwd_args {
    norm_dx<D> out;     /* [rows,n] */
    norm_pair<Y, X> in; /* [rows,n] */
    const float *rstd;  /* [rows] */
    int64_t rows, n;
    bool accumulate;
};

/* dx may be dy: each thread reads the elements it writes, before it writes them. */
template <int TEAM, bool WIDE, class D, class Y, class X>
__global__ void norm_bwd_kernel(const norm_bwd_args<D, Y, X> p)
{
    constexpr int W = vec_width<D, Y, X>, KEPT = norm_kept<TEAM>;
    const norm_dx<D> &out = p.out;
    const norm_pair<Y, X> &in = p.in;
    int64_t r = vec_row<TEAM>(), n = p.n, row = r * n;
    bool accumulate = p.accumulate;
    if (r >= p.rows)
        return;

    /* mean(w dy x) */
    float v[KEPT][W], d[KEPT][W], was[KEPT][W] = {}, sum = 0.0f, inverse = p.rstd[r];
    each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool) { in.load(v[s], d[s], at, row); });
    if (accumulate)
        each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool) { at.load(was[s], out.dx, row); });
    each_kept_of<TEAM, W, WIDE>(in.w, n, [&](auto at, int s, auto w) { in.weigh(d[s], at, w); });
    each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool inside) {
        if (inside)
            add_products(sum, d[s], v[s]);
    });
    each_other<TEAM, W, WIDE>(n, [&](auto at) {
        float a[W], b[W];
        in.load(a, b, at, row);
        in.weigh(b, at, in.w);
        add_products(sum, b, a);
    });
    float pull = vec_team_sum<TEAM>(sum) * inverse * inverse / (float)n;

    /* dx */
    each_kept<TEAM, W, WIDE>(n, [&](auto at, int s, bool inside) {
        if (inside)
            out.store(v[s], d[s], was[s], inverse, pull, at, row);
    });
    each_other<TEAM, W, WIDE>(n, [&](auto at) {
        float a[W], b[W], old[W] = {};
        in.load(a, b, at, row);
        in.weigh(b, at, in.w);
        if (accumulate)
            at.load(old, out.dx, row);
        out.store(a, b, old, inverse, pull, at, row);
    });
}

/* Row r of d x rstd, which dw sums; d is dy plus dlogits router. */
template <class Y, class X> struct norm_slope {
    const Y *dy;
    const X *x;
    const float *rstd, *dlogits, *router;
    int experts;
    template <class S, int W> __device__ void load(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        float d[W], g[W], inverse = rstd[r];
        at.load(v, x, r * n);
        at.load(d, dy, r * n);
        for (int e = 0; e < experts; e++) {
            at.load(g, router, e * n);
            for (int j = 0; j < W; j++)
                d[j] = fmaf(dlogits[r * experts + e], g[j], d[j]);
        }
        for (int j = 0; j < W; j++)
            v[j] = d[j] * (v[j] * inverse);
    }
};

/* f(team, wide): half a warp for rows as short as a head's, else by the length of rows. */
template <int W, class F> void teamed(int64_t n, bool wide, F f)
{
    auto of = [&](auto team) {
        if (wide)
            f(team, std::true_type());
        else
            f(team, std::false_type());
    };
    if (n <= WARP / 2 * W)
        of(vec_team<WARP / 2>());
    else
        vec_teamed(n, of);
}

template <class O, class S> void norm_from(device *d, const norm_fwd *a, S in)
{
    constexpr int W = vec_width<O, typename S::type>;
    int64_t n = tensor_cols(&a->w), rows = tensor_count(&a->x) / n;
    bool wide = vec_aligned(a->out, a->x, a->w, a->sum, a->add, a->rows) && n % W == 0;
    teamed<W>(n, wide, [&](auto team, auto whole) {
        constexpr int TEAM = decltype(team)::size;
        norm_args<O, S> p = {
            (O *)a->out.data, in, vec_any_of(a->w), (float *)a->rstd.data, rows, n, a->eps, a->shift
        };
        overlap_launch(cuda_of(d), "rmsnorm_fwd",
                       { dim3(vec_blocks(rows, VEC_THREADS / TEAM)), VEC_THREADS, 0, 0 },
                       norm_kernel<TEAM, decltype(whole)::value, O, S>, p);
    });
}

} // namespace

extern "C" void cuda_rmsnorm_fwd(device *d, const norm_fwd *a)
{
    if (a->logits.data) {
        cuda_norm_route(cuda_of(d), a);
        return;
    }
    ASSERT(a->sum.data || (!a->add.data && !a->rows.data));
    vec_typed(a->out.dt, [&](auto o) {
        typedef decltype(o) O;
        if (a->sum.data)
            norm_summed(a, [&](auto in) { norm_from<O>(d, a, in); });
        else
            vec_typed(a->x.dt, [&](auto v) {
                typedef decltype(v) X;
                norm_from<O>(d, a, norm_plain<X>{ (X *)a->x.data });
            });
    });
}

static void norm_dw(device *d, const norm_bwd *a)
{
    int64_t n = tensor_cols(&a->w), rows = tensor_count(&a->x) / n;
    int experts = a->dlogits.data ? (int)tensor_cols(&a->dlogits) : 0;
    vec_typed2(a->dy.dt, a->x.dt, [&](auto y, auto v) {
        typedef decltype(y) Y;
        typedef decltype(v) X;
        norm_slope<Y, X> slope = { (Y *)a->dy.data,         (X *)a->x.data,
                                   (float *)a->rstd.data,   (float *)a->dlogits.data,
                                   (float *)a->router.data, experts };
        columns_sum<Y, X>(d, "rmsnorm_bwd", (float *)a->dw.data, slope, rows, n,
                          vec_aligned(a->dy, a->x, a->router));
    });
}

extern "C" void cuda_rmsnorm_bwd(device *d, const norm_bwd *a)
{
    int64_t n = tensor_cols(&a->w), rows = tensor_count(&a->x) / n;
    if (a->drouter.data)
        cuda_router_dw(cuda_of(d), a);
    if (a->dw.data) /* before dx, which may overwrite dy */
        norm_dw(d, a);
    if (!a->dx.data)
        return;
    if (a->dlogits.data) {
        if (cuda_norm_route_bwd(cuda_of(d), a))
            return;
        mm through = { .layout = MM_NN,
                       .out = a->dy,
                       .a = a->dlogits,
                       .b = a->router,
                       .scale = 1,
                       .accumulate = true };
        cuda_matmul(d, &through);
    }
    vec_typed3(a->dx.dt, a->dy.dt, a->x.dt, [&](auto o, auto y, auto v) {
        typedef decltype(o) D;
        typedef decltype(y) Y;
        typedef decltype(v) X;
        bool wide = vec_aligned(a->dx, a->copy, a->dy, a->x, a->w) && n % vec_width<D, Y, X> == 0;
        teamed<vec_width<D, Y, X>>(n, wide, [&](auto team, auto whole) {
            constexpr int TEAM = decltype(team)::size;
            norm_bwd_args<D, Y, X> p = { { (D *)a->dx.data, vec_any_of(a->copy) },
                                         { (X *)a->x.data, (Y *)a->dy.data, vec_any_of(a->w),
                                           a->shift },
                                         (float *)a->rstd.data,
                                         rows,
                                         n,
                                         a->accumulate };
            vec_launch(d, "rmsnorm_bwd", vec_blocks(rows, VEC_THREADS / TEAM),
                       norm_bwd_kernel<TEAM, decltype(whole)::value, D, Y, X>, p);
        });
    });
}
