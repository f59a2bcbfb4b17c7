/* pointwise: ops on single elements, and gated sums into the residual stream. Tensors are f32 or
 * bf16, arithmetic is f32.
 *
 * Bound: memory. Flat kernels have one vector (16 bytes of the widest type) a thread, and enough
 * threads that the loads of a whole GPU are in flight. Kernels with a factor for each row give a
 * row to a team of threads (vec.cuh). */
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

namespace
{

/* Where inputs and outputs are bf16, activation functions need not be more precise than that. */
template <class O, class X> constexpr bool coarse = sizeof(O) == 2 && sizeof(X) == 2;

template <class O, class X>
__global__ void glu_kernel(O *out, const X *gate, const X *up, int64_t n, act_kind act, bool wide)
{
    constexpr int W = vec_width<O, X>;
    overlap_both(); /* PDL: in decoding the next product may load its weights meanwhile */
    vec_each<W>(n, wide, [&](auto at) {
        float g[W], u[W], slope[W];
        at.load(g, gate);
        at.load(u, up);
        vmath_acts<coarse<O, X>>(act, g, slope);
        for (int j = 0; j < W; j++)
            g[j] *= vmath_glu_up(act, u[j], slope[j]);
        at.store(out, g);
    });
}

template <class O, class X>
__global__ void act_kernel(O *out, const X *x, int64_t n, act_kind act, bool wide)
{
    constexpr int W = vec_width<O, X>;
    vec_each<W>(n, wide, [&](auto at) {
        float v[W], slope[W];
        at.load(v, x);
        vmath_acts<coarse<O, X>>(act, v, slope);
        at.store(out, v);
    });
}

/* The factor of row r of an activation: row_gates of backend.h. */
struct gated_rows {
    const float *gates;   /* [T,k] */
    const int32_t *order; /* [T*k] */
    float *dgates;        /* [T,k]; backward writes it */
    float scale;

    __device__ float of(int64_t r) const { return scale * gates[order[r]]; }
};

template <class O, class X> struct act_gated {
    O *out;     /* [rows,n] */
    const X *x; /* [rows,n] */
    gated_rows gates;
    int64_t rows, n;
    act_kind act;
    bool wide;
};

template <int TEAM, class O, class X> __global__ void act_gated_kernel(const act_gated<O, X> p)
{
    constexpr int W = vec_width<O, X>;
    int64_t r = vec_row<TEAM>();
    if (r >= p.rows)
        return;
    float gate = p.gates.of(r);
    vec_each_of_row<TEAM, W>(p.n, p.wide, [&](auto at) {
        float v[W], slope[W];
        at.load(v, p.x, r * p.n);
        vmath_acts<coarse<O, X>>(p.act, v, slope);
        for (int j = 0; j < W; j++)
            v[j] *= gate;
        at.store(p.out, v, r * p.n);
    });
}

template <class Y, class X>
__global__ void add_kernel(Y *y, const X *x, int64_t n, float scale, bool wide)
{
    constexpr int W = vec_width<Y, X>;
    vec_each<W>(n, wide, [&](auto at) {
        float a[W], b[W];
        at.load(a, y);
        at.load(b, x);
        for (int j = 0; j < W; j++)
            a[j] = fmaf(scale, b[j], a[j]);
        at.store(y, a);
    });
}

__global__ void softcap_kernel(float *y, int64_t n, float cap, bool wide)
{
    constexpr int W = vec_width<float>;
    vec_each<W>(n, wide, [&](auto at) {
        float v[W];
        at.load(v, y);
        for (int j = 0; j < W; j++)
            v[j] = cap * tanhf(v[j] / cap);
        at.store(y, v);
    });
}

template <class D>
__global__ void softcap_bwd_kernel(D *dx, const D *dy, const float *y, int64_t n, float cap,
                                   bool wide)
{
    constexpr int W = vec_width<D, float>;
    vec_each<W>(n, wide, [&](auto at) {
        float d[W], v[W];
        at.load(d, dy);
        at.load(v, y);
        for (int j = 0; j < W; j++)
            d[j] *= 1.0f - v[j] / cap * (v[j] / cap);
        at.store(dx, d);
    });
}

template <class O, class X> __global__ void convert_kernel(O *out, const X *x, int64_t n, bool wide)
{
    constexpr int W = vec_width<O, X>;
    vec_each<W>(n, wide, [&](auto at) {
        float v[W];
        at.load(v, x);
        at.store(out, v);
    });
}

template <int TEAM, class Y, class X>
__global__ void add_gated_kernel(Y *y, const X *x, vec_any logit, int64_t rows, int64_t n,
                                 bool wide)
{
    constexpr int W = vec_width<Y, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= rows)
        return;
    float rest, gate = vmath_sigmoid(vec_get(logit, t), rest);
    y += t * n;
    x += t * n;
    vec_each_of_row<TEAM, W>(n, wide, [&](auto at) {
        float a[W], b[W];
        at.load(a, y);
        at.load(b, x);
        for (int j = 0; j < W; j++)
            a[j] = fmaf(gate, b[j], a[j]);
        at.store(y, a);
    });
}

/* ---- backward ---- */

template <class O, class X> struct glu_grads {
    O *dgate, *dup, *glu;    /* [n]; glu NULL: not wanted */
    const X *dy, *gate, *up; /* [n] */
    int64_t n;
    act_kind act;
    bool wide;
};

template <class O, class X> __global__ void glu_bwd_kernel(const glu_grads<O, X> p)
{
    constexpr int W = vec_width<O, X>;
    vec_each<W>(p.n, p.wide, [&](auto at) {
        float d[W], g[W], u[W], slope[W];
        at.load(d, p.dy);
        at.load(g, p.gate);
        at.load(u, p.up);
        vmath_acts<coarse<O, X>>(p.act, g, slope);
        for (int j = 0; j < W; j++) {
            float flat, up = vmath_glu_up(p.act, u[j], flat);
            slope[j] *= d[j] * up;
            u[j] = up * g[j];
            g[j] *= d[j] * flat;
        }
        at.store(p.dgate, slope);
        at.store(p.dup, g);
        if (p.glu)
            at.store(p.glu, u);
    });
}

template <class O, class X>
__global__ void act_bwd_kernel(O *dx, const X *dy, const X *x, int64_t n, act_kind act, bool wide)
{
    constexpr int W = vec_width<O, X>;
    vec_each<W>(n, wide, [&](auto at) {
        float d[W], v[W], slope[W];
        at.load(d, dy);
        at.load(v, x);
        vmath_acts<coarse<O, X>>(act, v, slope);
        for (int j = 0; j < W; j++)
            d[j] *= slope[j];
        at.store(dx, d);
    });
}

template <class O, class X> struct act_gated_grads {
    O *dx;           /* [rows,n] */
    const X *dy, *x; /* [rows,n] */
    gated_rows gates;
    int64_t rows, n;
    act_kind act;
    bool wide;
};

template <int TEAM, class O, class X>
__global__ void act_gated_bwd_kernel(const act_gated_grads<O, X> p)
{
    constexpr int W = vec_width<O, X>;
    int64_t r = vec_row<TEAM>();
    if (r >= p.rows)
        return;
    float gate = p.gates.of(r), dot = 0.0f;
    vec_each_of_row<TEAM, W>(p.n, p.wide, [&](auto at) {
        float d[W], v[W], slope[W];
        at.load(d, p.dy, r * p.n);
        at.load(v, p.x, r * p.n);
        vmath_acts<coarse<O, X>>(p.act, v, slope);
        for (int j = 0; j < W; j++) {
            dot = fmaf(d[j], v[j], dot);
            d[j] *= gate * slope[j];
        }
        at.store(p.dx, d, r * p.n);
    });
    dot = vec_team_sum<TEAM>(dot);
    if (threadIdx.x % TEAM == 0)
        p.gates.dgates[p.gates.order[r]] = p.gates.scale * dot;
}

template <class D, class Y, class X> struct gated_grads {
    D *dx;                 /* [rows,n]; neither dy nor x */
    vec_any dlogit, logit; /* [rows] */
    const Y *dy;           /* [rows,n] */
    const X *x;            /* [rows,n] */
    int64_t rows, n;
    bool wide;
};

/* One pass over a row computes both the dot product and dx. */
template <int TEAM, class D, class Y, class X>
__global__ void gated_bwd_kernel(const gated_grads<D, Y, X> p)
{
    constexpr int W = vec_width<D, Y, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= p.rows)
        return;
    float rest, gate = vmath_sigmoid(vec_get(p.logit, t), rest), dot = 0.0f;
    D *dx = p.dx + t * p.n;
    const Y *dy = p.dy + t * p.n;
    const X *x = p.x + t * p.n;
    vec_each_of_row<TEAM, W>(p.n, p.wide, [&](auto at) {
        float d[W], v[W];
        at.load(d, dy);
        at.load(v, x);
        for (int j = 0; j < W; j++) {
            dot = fmaf(d[j], v[j], dot);
            d[j] *= gate;
        }
        at.store(dx, d);
    });
    dot = vec_team_sum<TEAM>(dot);
    if (threadIdx.x % TEAM == 0)
        vec_put(p.dlogit, t, gate * rest * dot);
}

} // namespace

/* ---- the ops ---- */

extern "C" void cuda_glu_fwd(device *d, tensor out, tensor gate, tensor up, act_kind act)
{
    ASSERT(gate.dt == up.dt);
    int64_t n = tensor_count(&out);
    bool wide = vec_aligned(out, gate, up);
    vec_typed2(out.dt, gate.dt, [&](auto o, auto x) {
        typedef decltype(o) O;
        typedef decltype(x) X;
        unsigned blocks = vec_blocks(n, VEC_THREADS * vec_width<O, X>);
        overlap_launch(cuda_of(d), "glu_fwd", { dim3(blocks), VEC_THREADS, 0, 0 }, glu_kernel<O, X>,
                       (O *)out.data, (const X *)gate.data, (const X *)up.data, n, act, wide);
    });
}

static gated_rows gated_of(const row_gates *g)
{
    return gated_rows{ (const float *)g->gates.data, (const int32_t *)g->order.data,
                       (float *)g->dgates.data, g->scale };
}

extern "C" void cuda_act_fwd(device *d, tensor out, tensor x, act_kind act, const row_gates *g)
{
    int64_t count = tensor_count(&out), n = tensor_cols(&out), rows = tensor_rows(&out);
    bool wide = vec_aligned(out, x);
    vec_typed2(out.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) O;
        typedef decltype(v) X;
        if (!g)
            vec_launch_flat<O, X>(d, "act_fwd", count, act_kernel<O, X>, (O *)out.data, (X *)x.data,
                                  count, act, wide);
        else
            vec_teamed(n, [&](auto team) {
                constexpr int TEAM = decltype(team)::size;
                act_gated<O, X> p = { (O *)out.data,
                                      (X *)x.data,
                                      gated_of(g),
                                      rows,
                                      n,
                                      act,
                                      wide && n % vec_width<O, X> == 0 };
                vec_launch(d, "act_fwd", vec_blocks(rows, VEC_THREADS / TEAM),
                           act_gated_kernel<TEAM, O, X>, p);
            });
    });
}

extern "C" void cuda_softcap(device *d, tensor y, float cap)
{
    int64_t n = tensor_count(&y);
    vec_launch_flat<float>(d, "softcap", n, softcap_kernel, (float *)y.data, n, cap,
                           vec_aligned(y));
}

extern "C" void cuda_softcap_bwd(device *d, tensor dx, tensor dy, tensor y, float cap)
{
    int64_t n = tensor_count(&y);
    bool wide = vec_aligned(dx, dy, y);
    vec_typed(dy.dt, [&](auto v) {
        typedef decltype(v) D;
        vec_launch_flat<D, float>(d, "softcap_bwd", n, softcap_bwd_kernel<D>, (D *)dx.data,
                                  (const D *)dy.data, (const float *)y.data, n, cap, wide);
    });
}

extern "C" void cuda_add(device *d, tensor y, tensor x, float scale)
{
    int64_t n = tensor_count(&y);
    bool wide = vec_aligned(y, x);
    vec_typed2(y.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) Y;
        typedef decltype(v) X;
        vec_launch_flat<Y, X>(d, "add", n, add_kernel<Y, X>, (Y *)y.data, (X *)x.data, n, scale,
                              wide);
    });
}

extern "C" void cuda_convert(device *d, tensor out, tensor x)
{
    int64_t n = tensor_count(&out);
    bool wide = vec_aligned(out, x);
    vec_typed2(out.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) O;
        typedef decltype(v) X;
        vec_launch_flat<O, X>(d, "convert", n, convert_kernel<O, X>, (O *)out.data, (X *)x.data, n,
                              wide);
    });
}

extern "C" void cuda_add_gated(device *d, tensor y, tensor x, tensor logit)
{
    int64_t n = tensor_cols(&y), rows = tensor_rows(&y);
    vec_typed2(y.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) Y;
        typedef decltype(v) X;
        bool wide = vec_aligned(y, x) && n % vec_width<Y, X> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, "add_gated", vec_blocks(rows, VEC_THREADS / TEAM),
                       add_gated_kernel<TEAM, Y, X>, (Y *)y.data, (X *)x.data, vec_any_of(logit),
                       rows, n, wide);
        });
    });
}

extern "C" void cuda_glu_bwd(device *d, const glu_bwd *a)
{
    ASSERT(a->dgate.dt == a->dup.dt && a->dy.dt == a->gate.dt && a->gate.dt == a->up.dt);
    ASSERT(!a->glu.data || a->glu.dt == a->dgate.dt);
    int64_t n = tensor_count(&a->gate);
    bool wide = vec_aligned(a->dgate, a->dup, a->glu, a->dy, a->gate, a->up);
    vec_typed2(a->dgate.dt, a->gate.dt, [&](auto o, auto x) {
        typedef decltype(o) O;
        typedef decltype(x) X;
        glu_grads<O, X> p = { (O *)a->dgate.data,
                              (O *)a->dup.data,
                              (O *)a->glu.data,
                              (X *)a->dy.data,
                              (X *)a->gate.data,
                              (X *)a->up.data,
                              n,
                              a->act,
                              wide };
        vec_launch_flat<O, X>(d, "glu_bwd", n, glu_bwd_kernel<O, X>, p);
    });
}

extern "C" void cuda_act_bwd(device *d, tensor dx, tensor dy, tensor x, act_kind act,
                             const row_gates *g)
{
    ASSERT(dy.dt == x.dt);
    int64_t count = tensor_count(&dx), n = tensor_cols(&dx), rows = tensor_rows(&dx);
    bool wide = vec_aligned(dx, dy, x);
    vec_typed2(dx.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) O;
        typedef decltype(v) X;
        if (!g)
            vec_launch_flat<O, X>(d, "act_bwd", count, act_bwd_kernel<O, X>, (O *)dx.data,
                                  (X *)dy.data, (X *)x.data, count, act, wide);
        else
            vec_teamed(n, [&](auto team) {
                constexpr int TEAM = decltype(team)::size;
                act_gated_grads<O, X> p = { (O *)dx.data, (X *)dy.data,
                                            (X *)x.data,  gated_of(g),
                                            rows,         n,
                                            act,          wide && n % vec_width<O, X> == 0 };
                vec_launch(d, "act_bwd", vec_blocks(rows, VEC_THREADS / TEAM),
                           act_gated_bwd_kernel<TEAM, O, X>, p);
            });
    });
}

extern "C" void cuda_add_gated_bwd(device *d, tensor dx, tensor dlogit, tensor dy, tensor x,
                                   tensor logit)
{
    int64_t n = tensor_cols(&x), rows = tensor_rows(&x);
    vec_typed3(dx.dt, dy.dt, x.dt, [&](auto o, auto y, auto v) {
        typedef decltype(o) D;
        typedef decltype(y) Y;
        typedef decltype(v) X;
        bool wide = vec_aligned(dx, dy, x) && n % vec_width<D, Y, X> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            gated_grads<D, Y, X> p = { (D *)dx.data,
                                       vec_any_of(dlogit),
                                       vec_any_of(logit),
                                       (Y *)dy.data,
                                       (X *)x.data,
                                       rows,
                                       n,
                                       wide };
            vec_launch(d, "add_gated_bwd", vec_blocks(rows, VEC_THREADS / TEAM),
                       gated_bwd_kernel<TEAM, D, Y, X>, p);
        });
    });
}
