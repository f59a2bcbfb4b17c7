/* rows: gathering, scattering and copying rows, with conversion where types differ.
 *
 * Bound: memory. A row belongs to a team of threads (vec.cuh). Where several rows are added to one,
 * one thread adds them in order, without atomics: in embed_bwd the block of the first row with an
 * id adds all rows that have it. */
#include "backend/cuda/columns.cuh"

namespace
{

template <int TEAM, class O, class X>
__global__ void gather_kernel(O *__restrict__ out, const X *__restrict__ x, const int32_t *from,
                              int32_t div, int64_t rows, int64_t n, bool wide)
{
    constexpr int W = vec_width<O, X>;
    int64_t r = vec_row<TEAM>();
    if (r >= rows)
        return;
    out += r * n;
    x += from[r] / div * n;
    vec_each_of_row<TEAM, W, 4>(n, wide, [&](auto at) {
        float v[W];
        at.load(v, x);
        at.store(out, v);
    });
}

template <class Y, class X> struct scatter_args {
    Y *y;                   /* [rows,n] */
    const X *x;             /* [rows*k,n] */
    const float *gates;     /* [rows,k] */
    const int32_t *inverse; /* [rows*k] */
    int32_t k;
    int64_t rows, n;
    float scale;
    bool wide;
};

template <int TEAM, class Y, class X> __global__ void scatter_kernel(const scatter_args<Y, X> p)
{
    constexpr int W = vec_width<Y, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= p.rows)
        return;
    int64_t n = p.n;
    float scale = p.scale;
    Y *__restrict__ y = p.y + t * n;
    const X *__restrict__ x = p.x;
    const float *gates = p.gates + t * p.k;
    const int32_t *inverse = p.inverse + t * p.k;
    vec_each_of_row<TEAM, W>(n, p.wide, [&](auto at) {
        float total[W], sum[W] = { 0 }, v[W];
        at.load(total, y);
#pragma unroll 2
        for (int32_t slot = 0; slot < p.k; slot++) {
            at.load(v, x, inverse[slot] * n);
            for (int j = 0; j < W; j++)
                sum[j] = fmaf(gates[slot], v[j], sum[j]);
        }
        for (int j = 0; j < W; j++)
            total[j] = fmaf(scale, sum[j], total[j]);
        at.store(y, total);
    });
}

struct heads_shape {
    int64_t rows, dst_width, src_width;
    int32_t n, dst_head, dst_col, src_head, src_col;
    int32_t places, each; /* heads of dst, and heads of src that are added into each */
    bool accumulate;
};

template <int TEAM, class D, class X>
__global__ void copy_heads_kernel(D *__restrict__ dst, const X *__restrict__ src, heads_shape s,
                                  bool wide)
{
    constexpr int W = vec_width<D, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= s.rows)
        return;
    dst += t * s.dst_width + s.dst_col;
    src += t * s.src_width + s.src_col;
    int32_t spans = (s.n + W - 1) / W;
    for (int32_t item = threadIdx.x % TEAM; item < s.places * spans; item += TEAM) {
        int32_t place = item / spans;
        vec_at<W>(item % spans * W, s.n, wide, [&](auto at) {
            float sum[W] = { 0 }, v[W];
            if (s.accumulate)
                at.load(sum, dst, (int64_t)place * s.dst_head);
            for (int32_t h = place * s.each; h < (place + 1) * s.each; h++) {
                at.load(v, src, (int64_t)h * s.src_head);
                for (int j = 0; j < W; j++)
                    sum[j] = s.accumulate ? sum[j] + v[j] : v[j];
            }
            at.store(dst, sum, (int64_t)place * s.dst_head);
        });
    }
}

template <int TEAM, class Y>
__global__ void scale_rows_kernel(Y *y, const float *rows, int64_t step, float scale, int64_t count,
                                  int64_t n, bool wide)
{
    constexpr int W = vec_width<Y>;
    int64_t r = vec_row<TEAM>();
    if (r >= count)
        return;
    float s = rows ? scale * rows[r * step] : scale;
    vec_each_of_row<TEAM, W>(n, wide, [&](auto at) {
        float v[W];
        at.load(v, y + r * n);
        for (int j = 0; j < W; j++)
            v[j] *= s;
        at.store(y + r * n, v);
    });
}

/* ---- backward ---- */

/* If row r is the first with its id, block r adds all rows with that id, in order. */
template <class X>
__global__ void embed_bwd_kernel(float *table, const X *__restrict__ dout, const int32_t *ids,
                                 int64_t rows, int64_t n, bool wide)
{
    constexpr int W = vec_width<float, X>;
    __shared__ int64_t same[VEC_THREADS];
    __shared__ int count[VEC_THREADS / WARP];
    int64_t r = blockIdx.x;
    if (r >= rows)
        return;
    int32_t id = ids[r];
    for (int64_t i = threadIdx.x; i - threadIdx.x < r; i += VEC_THREADS)
        if (__syncthreads_or(i < r && ids[i] == id))
            return;
    table += id * n;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64_t i = r + threadIdx.x; i - threadIdx.x < rows; i += VEC_THREADS) {
        bool mine = i < rows && ids[i] == id;
        unsigned votes = __ballot_sync(0xffffffffu, mine);
        if (lane == 0)
            count[warp] = __popc(votes);
        __syncthreads();
        int before = 0, total = 0;
        for (int w = 0; w < VEC_THREADS / WARP; w++) {
            before += w < warp ? count[w] : 0;
            total += count[w];
        }
        if (mine)
            same[before + __popc(votes & ((1u << lane) - 1))] = i;
        __syncthreads();
        if (total)
            vec_each_of_row<VEC_THREADS, W>(n, wide, [&](auto at) {
                float sum[W], v[W];
                at.load(sum, table);
#pragma unroll 4
                for (int k = 0; k < total; k++) {
                    at.load(v, dout, same[k] * n);
                    for (int j = 0; j < W; j++)
                        sum[j] += v[j];
                }
                at.store(table, sum);
            });
    }
}

template <class D, class X> struct gather_grads {
    D *dx;                  /* [rows,n] */
    const X *dout;          /* [rows*k,n] */
    const int32_t *inverse; /* [rows*k] */
    int32_t k;
    int64_t rows, n;
    bool accumulate, wide;
};

template <int TEAM, class D, class X> __global__ void gather_bwd_kernel(const gather_grads<D, X> p)
{
    constexpr int W = vec_width<D, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= p.rows)
        return;
    int64_t n = p.n;
    D *__restrict__ dx = p.dx + t * n;
    const X *__restrict__ dout = p.dout;
    const int32_t *inverse = p.inverse + t * p.k;
    vec_each_of_row<TEAM, W, 2>(n, p.wide, [&](auto at) {
        float sum[W] = { 0 }, v[W];
        if (p.accumulate)
            at.load(sum, dx);
#pragma unroll 2
        for (int32_t slot = 0; slot < p.k; slot++) {
            at.load(v, dout, inverse[slot] * n);
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
        at.store(dx, sum);
    });
}

template <class D, class Y, class X> struct scatter_grads {
    D *dx;                  /* [slots,n]; may be x */
    float *dgates;          /* [slots] */
    const Y *dy;            /* [slots / k,n] */
    const X *x;             /* [slots,n] */
    const float *gates;     /* [slots] */
    const int32_t *inverse; /* [slots] */
    int32_t k;
    int64_t slots, n;
    float scale;
    bool wide;
};

/* A team for each token and slot. dx may be x: a thread reads the elements it writes, before it
 * writes them. */
template <int TEAM, class D, class Y, class X>
__global__ void scatter_bwd_kernel(const scatter_grads<D, Y, X> p)
{
    constexpr int W = vec_width<D, Y, X>;
    int64_t slot = vec_row<TEAM>();
    if (slot >= p.slots)
        return;
    D *dx = p.dx + p.inverse[slot] * p.n;
    const X *x = p.x + p.inverse[slot] * p.n;
    const Y *dy = p.dy + slot / p.k * p.n;
    float factor = p.scale * p.gates[slot], dot = 0.0f;
    vec_each_of_row<TEAM, W>(p.n, p.wide, [&](auto at) {
        float d[W], v[W];
        at.load(d, dy);
        at.load(v, x);
        for (int j = 0; j < W; j++) {
            dot = fmaf(d[j], v[j], dot);
            d[j] *= factor;
        }
        at.store(dx, d);
    });
    dot = vec_team_sum<TEAM>(dot);
    if (threadIdx.x % TEAM == 0)
        p.dgates[slot] = p.scale * dot;
}

/* y [rows,width]: y[t,column] += scale <a[t], b[t]>. A team for each row. */
template <class A, class B> struct dot_args {
    float *y;
    const A *a; /* [rows,n] */
    const B *b;
    int64_t rows, n, width;
    int32_t column;
    float scale;
    bool wide;
};

template <int TEAM, class A, class B> __global__ void dot_kernel(const dot_args<A, B> p)
{
    constexpr int W = vec_width<A, B>;
    int64_t t = vec_row<TEAM>();
    if (t >= p.rows)
        return;
    const A *a = p.a + t * p.n;
    const B *b = p.b + t * p.n;
    float dot = 0.0f;
    vec_each_of_row<TEAM, W>(p.n, p.wide, [&](auto at) {
        float u[W], v[W];
        at.load(u, a);
        at.load(v, b);
        for (int j = 0; j < W; j++)
            dot = fmaf(u[j], v[j], dot);
    });
    dot = vec_team_sum<TEAM>(dot);
    if (threadIdx.x % TEAM == 0)
        p.y[t * p.width + p.column] += p.scale * dot;
}

/* ---- biases ---- */

/* The expert of row r. */
__device__ int64_t expert_of(const int32_t *offsets, int64_t r)
{
    int64_t e = 0;
    while (offsets && r >= offsets[e + 1])
        e++;
    return e;
}

template <class Y>
__global__ void add_bias_kernel(Y *y, const float *bias, const int32_t *offsets, int64_t rows,
                                int64_t n)
{
    int64_t r = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (r >= rows)
        return;
    bias += expert_of(offsets, r) * n;
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP)
        y[r * n + i] = (Y)((float)y[r * n + i] + bias[i]);
}

/* A thread adds the rows of one expert in one column, in order. */
template <class X>
__global__ void add_bias_bwd_kernel(float *dbias, const X *dy, const int32_t *offsets, int64_t rows,
                                    int64_t n, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, e = i / n;
    if (i >= count)
        return;
    int64_t begin = offsets ? offsets[e] : 0, end = offsets ? offsets[e + 1] : rows;
    float sum = dbias[i];
    for (int64_t r = begin; r < end; r++)
        sum += (float)dy[r * n + i % n];
    dbias[i] = sum;
}

} // namespace

/* ---- the ops ---- */

static void gather(device *d, const char *what, tensor out, tensor x, tensor from, int32_t div)
{
    int64_t n = tensor_cols(&out), rows = tensor_count(&from);
    vec_typed2(out.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) O;
        typedef decltype(v) X;
        bool wide = vec_aligned(out, x) && n % vec_width<O, X> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, what, vec_blocks(rows, VEC_THREADS / TEAM), gather_kernel<TEAM, O, X>,
                       (O *)out.data, (X *)x.data, (int32_t *)from.data, div, rows, n, wide);
        });
    });
}

extern "C" void cuda_gather_rows(device *d, tensor out, tensor x, tensor rows, int32_t div)
{
    gather(d, "gather_rows", out, x, rows, div);
}

extern "C" void cuda_embed(device *d, tensor out, tensor table, tensor ids)
{
    gather(d, "embed", out, table, ids, 1);
}

extern "C" void cuda_scale_rows(device *d, tensor y, tensor rows, float scale)
{
    int64_t n = tensor_cols(&y), count = tensor_rows(&y);
    vec_typed(y.dt, [&](auto v) {
        typedef decltype(v) Y;
        bool wide = vec_aligned(y) && n % vec_width<Y> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, "scale_rows", vec_blocks(count, VEC_THREADS / TEAM),
                       scale_rows_kernel<TEAM, Y>, (Y *)y.data, (const float *)rows.data,
                       (int64_t)(tensor_count(&rows) > 1), scale, count, n, wide);
        });
    });
}

extern "C" void cuda_scatter_add(device *d, tensor y, tensor x, tensor gates, tensor inverse,
                                 float scale)
{
    int64_t n = tensor_cols(&y), rows = tensor_rows(&y);
    int32_t k = (int32_t)tensor_cols(&gates);
    vec_typed2(y.dt, x.dt, [&](auto o, auto v) {
        typedef decltype(o) Y;
        typedef decltype(v) X;
        bool wide = vec_aligned(y, x) && n % vec_width<Y, X> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            scatter_args<Y, X> p = {
                (Y *)y.data, (X *)x.data, (float *)gates.data, (int32_t *)inverse.data, k, rows, n,
                scale,       wide
            };
            vec_launch(d, "scatter_add", vec_blocks(rows, VEC_THREADS / TEAM),
                       scatter_kernel<TEAM, Y, X>, p);
        });
    });
}

extern "C" void cuda_copy_heads(device *d, const copy_heads *a)
{
    bool sum = a->accumulate && a->dst_head == 0;
    heads_shape s = { .rows = tensor_rows(&a->dst),
                      .dst_width = tensor_cols(&a->dst),
                      .src_width = tensor_cols(&a->src),
                      .n = a->n,
                      .dst_head = a->dst_head,
                      .dst_col = a->dst_col,
                      .src_head = a->src_head,
                      .src_col = a->src_col,
                      .places = sum ? 1 : a->n_heads,
                      .each = sum ? a->n_heads : 1,
                      .accumulate = a->accumulate };
    vec_typed2(a->dst.dt, a->src.dt, [&](auto o, auto v) {
        typedef decltype(o) D;
        typedef decltype(v) X;
        constexpr int W = vec_width<D, X>;
        bool wide = vec_aligned(a->dst, a->src) && s.dst_width % W == 0 && s.src_width % W == 0 &&
                    s.n % W == 0 && s.dst_head % W == 0 && s.dst_col % W == 0 &&
                    s.src_head % W == 0 && s.src_col % W == 0;
        vec_teamed((int64_t)s.places * s.n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, "copy_heads", vec_blocks(s.rows, VEC_THREADS / TEAM),
                       copy_heads_kernel<TEAM, D, X>, (D *)a->dst.data, (X *)a->src.data, s, wide);
        });
    });
}

extern "C" void cuda_embed_bwd(device *d, tensor dtable, tensor dout, tensor ids)
{
    int64_t n = tensor_cols(&dtable), rows = tensor_rows(&dout);
    vec_typed(dout.dt, [&](auto v) {
        typedef decltype(v) X;
        bool wide = vec_aligned(dtable, dout) && n % vec_width<float, X> == 0;
        vec_launch(d, "embed_bwd", vec_blocks(rows, 1), embed_bwd_kernel<X>, (float *)dtable.data,
                   (X *)dout.data, (int32_t *)ids.data, rows, n, wide);
    });
}

extern "C" void cuda_sum_rows(device *d, tensor out, tensor x)
{
    vec_typed(x.dt, [&](auto v) {
        typedef decltype(v) X;
        columns_sum<X>(d, "sum_rows", (float *)out.data, columns_of<X>{ (X *)x.data },
                       tensor_rows(&x), tensor_cols(&x), vec_aligned(x));
    });
}

extern "C" void cuda_gather_rows_bwd(device *d, tensor dx, tensor dout, tensor inverse, int32_t k,
                                     bool accumulate)
{
    int64_t n = tensor_cols(&dx), rows = tensor_rows(&dx);
    vec_typed2(dx.dt, dout.dt, [&](auto o, auto v) {
        typedef decltype(o) D;
        typedef decltype(v) X;
        bool wide = vec_aligned(dx, dout) && n % vec_width<D, X> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            gather_grads<D, X> p = {
                (D *)dx.data, (X *)dout.data, (int32_t *)inverse.data, k, rows, n, accumulate, wide
            };
            vec_launch(d, "gather_rows_bwd", vec_blocks(rows, VEC_THREADS / TEAM),
                       gather_bwd_kernel<TEAM, D, X>, p);
        });
    });
}

extern "C" void cuda_scatter_add_bwd(device *d, const scatter_bwd *a)
{
    int64_t n = tensor_cols(&a->dy), slots = tensor_count(&a->gates);
    int32_t k = (int32_t)tensor_cols(&a->gates);
    vec_typed3(a->dx.dt, a->dy.dt, a->x.dt, [&](auto o, auto y, auto v) {
        typedef decltype(o) D;
        typedef decltype(y) Y;
        typedef decltype(v) X;
        bool wide = vec_aligned(a->dx, a->dy, a->x) && n % vec_width<D, Y, X> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            scatter_grads<D, Y, X> p = { (D *)a->dx.data,
                                         (float *)a->dgates.data,
                                         (Y *)a->dy.data,
                                         (X *)a->x.data,
                                         (float *)a->gates.data,
                                         (int32_t *)a->inverse.data,
                                         k,
                                         slots,
                                         n,
                                         a->scale,
                                         wide };
            vec_launch(d, "scatter_add_bwd", vec_blocks(slots, VEC_THREADS / TEAM),
                       scatter_bwd_kernel<TEAM, D, Y, X>, p);
        });
    });
}

extern "C" void cuda_dot_rows(device *d, tensor y, tensor a, tensor b, int32_t column, float scale)
{
    int64_t n = tensor_cols(&a), rows = tensor_rows(&a);
    vec_typed2(a.dt, b.dt, [&](auto u, auto v) {
        typedef decltype(u) A;
        typedef decltype(v) B;
        bool wide = vec_aligned(a, b) && n % vec_width<A, B> == 0;
        vec_teamed(n, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            dot_args<A, B> p = { (float *)y.data, (A *)a.data, (B *)b.data, rows, n,
                                 tensor_cols(&y), column,      scale,       wide };
            vec_launch(d, "dot_rows", vec_blocks(rows, VEC_THREADS / TEAM), dot_kernel<TEAM, A, B>,
                       p);
        });
    });
}

extern "C" void cuda_add_bias(device *d, tensor y, tensor bias, tensor offsets)
{
    int64_t rows = tensor_rows(&y), n = tensor_cols(&y);
    vec_typed(y.dt, [&](auto v) {
        typedef decltype(v) Y;
        vec_launch(d, "add_bias", vec_blocks(rows, VEC_THREADS / WARP), add_bias_kernel<Y>,
                   (Y *)y.data, (const float *)bias.data, (const int32_t *)offsets.data, rows, n);
    });
}

extern "C" void cuda_add_bias_bwd(device *d, tensor dbias, tensor dy, tensor offsets)
{
    int64_t rows = tensor_rows(&dy), n = tensor_cols(&dy), count = tensor_count(&dbias);
    vec_typed(dy.dt, [&](auto v) {
        typedef decltype(v) X;
        vec_launch(d, "add_bias_bwd", vec_blocks(count, VEC_THREADS), add_bias_bwd_kernel<X>,
                   (float *)dbias.data, (const X *)dy.data, (const int32_t *)offsets.data, rows, n,
                   count);
    });
}
