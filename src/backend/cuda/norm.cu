/* norm: root mean square normalisation of rows, and its backward. A team walks its row twice: once
 * for the sum, once for the result, when the row is still in the cache. */
#include "backend/cuda/columns.cuh"

namespace
{

template <int TEAM, class O, class X>
__global__ void norm_kernel(O *out, const X *x, vec_any w, float *rstd, int64_t rows, int64_t n,
                            float eps, bool wide)
{
    constexpr int W = vec_width<O, X>;
    int64_t r = vec_row<TEAM>();
    if (r >= rows)
        return;
    out += r * n;
    x += r * n;
    float sum = 0.0f;
    vec_each_of_row<TEAM, W, 4>(n, wide, [&](auto at) {
        float v[W];
        at.load(v, x);
        for (int j = 0; j < W; j++)
            sum = fmaf(v[j], v[j], sum);
    });
    float inverse = 1.0f / sqrtf(vec_team_sum<TEAM>(sum) / (float)n + eps);
    if (rstd && threadIdx.x % TEAM == 0)
        rstd[r] = inverse;
    vec_each_of_row<TEAM, W, 4>(n, wide, [&](auto at) {
        float v[W], g[W];
        at.load(v, x);
        at.load(g, w);
        for (int j = 0; j < W; j++)
            v[j] = v[j] * inverse * g[j];
        at.store(out, v);
    });
}

/* ---- backward ---- */

/* dx may be dy: a thread reads what it writes, and nobody else does. */
template <int TEAM, class D, class Y, class X>
__global__ void norm_bwd_kernel(D *dx, const Y *dy, const X *x, vec_any w, const float *rstd,
                                int64_t rows, int64_t n, bool accumulate, bool wide)
{
    constexpr int W = vec_width<D, Y, X>;
    int64_t r = vec_row<TEAM>();
    if (r >= rows)
        return;
    dx += r * n;
    dy += r * n;
    x += r * n;
    float sum = 0.0f, inverse = rstd[r];
    vec_each_of_row<TEAM, W, 4>(n, wide, [&](auto at) {
        float v[W], d[W], g[W];
        at.load(v, x);
        at.load(d, dy);
        at.load(g, w);
        for (int j = 0; j < W; j++)
            sum = fmaf(g[j] * d[j], v[j], sum);
    });
    float pull = vec_team_sum<TEAM>(sum) * inverse * inverse / (float)n;
    vec_each_of_row<TEAM, W, 4>(n, wide, [&](auto at) {
        float v[W], d[W], g[W], was[W] = { 0 };
        at.load(v, x);
        at.load(d, dy);
        at.load(g, w);
        if (accumulate)
            at.load(was, dx);
        for (int j = 0; j < W; j++)
            v[j] = (g[j] * d[j] - v[j] * pull) * inverse + was[j];
        at.store(dx, v);
    });
}

/* Row r of dy x rstd: what dw sums. */
template <class Y, class X> struct norm_slope {
    const Y *dy;
    const X *x;
    const float *rstd;
    template <class S, int W> __device__ void load(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        float d[W], inverse = rstd[r];
        at.load(v, x, r * n);
        at.load(d, dy, r * n);
        for (int j = 0; j < W; j++)
            v[j] = d[j] * (v[j] * inverse);
    }
};

/* f(team): half a warp where that is a row, as of heads; else by the length of rows. */
template <int W, class F> void teamed(int64_t n, F f)
{
    if (n <= VEC_WARP / 2 * W)
        f(vec_team<VEC_WARP / 2>());
    else
        vec_teamed(n, f);
}

} // namespace

extern "C" void cuda_rmsnorm_fwd(device *d, tensor out, tensor x, tensor w, tensor rstd, float eps)
{
    int64_t n = tensor_cols(&w), rows = tensor_count(&x) / n;
    vec_typed2(out.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) O;
        typedef decltype(v) X;
        bool wide = vec_aligned(out, x, w) && n % vec_width<O, X> == 0;
        teamed<vec_width<O, X>>(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, "rmsnorm_fwd", vec_blocks(rows, VEC_THREADS / TEAM),
                       norm_kernel<TEAM, O, X>, (O *)out.data, (X *)x.data, vec_any_of(w),
                       (float *)rstd.data, rows, n, eps, wide);
        });
    });
}

extern "C" void cuda_rmsnorm_bwd(device *d, const norm_bwd *a)
{
    int64_t n = tensor_cols(&a->w), rows = tensor_count(&a->x) / n;
    const float *rstd = (const float *)a->rstd.data;
    vec_typed2(a->dy.dt, a->x.dt, [&](auto y, auto v) {
        typedef decltype(y) Y;
        typedef decltype(v) X;
        if (a->dw.data) /* first: dx may lie where dy does */
            columns_sum<Y, X>(d, "rmsnorm_bwd", (float *)a->dw.data,
                              norm_slope<Y, X>{ (Y *)a->dy.data, (X *)a->x.data, rstd }, rows, n,
                              vec_aligned(a->dy, a->x));
    });
    vec_typed3(a->dx.dt, a->dy.dt, a->x.dt, [&](auto o, auto y, auto v) {
        typedef decltype(o) D;
        typedef decltype(y) Y;
        typedef decltype(v) X;
        bool wide = vec_aligned(a->dx, a->dy, a->x, a->w) && n % vec_width<D, Y, X> == 0;
        teamed<vec_width<D, Y, X>>(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, "rmsnorm_bwd", vec_blocks(rows, VEC_THREADS / TEAM),
                       norm_bwd_kernel<TEAM, D, Y, X>, (D *)a->dx.data, (Y *)a->dy.data,
                       (X *)a->x.data, vec_any_of(a->w), rstd, rows, n, a->accumulate, wide);
        });
    });
}
