/* rows: moving rows about and adding them up, converting where the types differ.
 *
 * Where several rows go to one place, one thread adds them in order: embed_bwd gives all rows of an
 * id to the block of the first. */
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

template <int TEAM, class Y, class X>
__global__ void scatter_kernel(Y *__restrict__ y, const X *__restrict__ x, const float *gates,
                               const int32_t *inverse, int32_t k, int64_t rows, int64_t n,
                               float scale, bool wide)
{
    constexpr int W = vec_width<Y, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= rows)
        return;
    y += t * n;
    gates += t * k;
    inverse += t * k;
    vec_each_of_row<TEAM, W>(n, wide, [&](auto at) {
        float total[W], sum[W] = { 0 }, v[W];
        at.load(total, y);
#pragma unroll 2
        for (int32_t slot = 0; slot < k; slot++) {
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
    int32_t places, each; /* places of dst, and heads that are added up at each */
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

/* ---- backward ---- */

/* Block r adds up the rows that have the id of row r, in order, if r is the first of them. */
template <class X>
__global__ void embed_bwd_kernel(float *table, const X *__restrict__ dout, const int32_t *ids,
                                 int64_t rows, int64_t n, bool wide)
{
    constexpr int W = vec_width<float, X>;
    __shared__ int64_t same[VEC_THREADS];
    __shared__ int count[VEC_THREADS / VEC_WARP];
    int64_t r = blockIdx.x;
    if (r >= rows)
        return;
    int32_t id = ids[r];
    for (int64_t i = threadIdx.x; i - threadIdx.x < r; i += VEC_THREADS)
        if (__syncthreads_or(i < r && ids[i] == id))
            return;
    table += id * n;
    int warp = threadIdx.x / VEC_WARP, lane = threadIdx.x % VEC_WARP;
    for (int64_t i = r + threadIdx.x; i - threadIdx.x < rows; i += VEC_THREADS) {
        bool mine = i < rows && ids[i] == id;
        unsigned votes = __ballot_sync(0xffffffffu, mine);
        if (lane == 0)
            count[warp] = __popc(votes);
        __syncthreads();
        int before = 0, total = 0;
        for (int w = 0; w < VEC_THREADS / VEC_WARP; w++) {
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

template <int TEAM, class D, class X>
__global__ void gather_bwd_kernel(D *__restrict__ dx, const X *__restrict__ dout,
                                  const int32_t *inverse, int32_t k, bool accumulate, int64_t rows,
                                  int64_t n, bool wide)
{
    constexpr int W = vec_width<D, X>;
    int64_t t = vec_row<TEAM>();
    if (t >= rows)
        return;
    dx += t * n;
    inverse += t * k;
    vec_each_of_row<TEAM, W, 2>(n, wide, [&](auto at) {
        float sum[W] = { 0 }, v[W];
        if (accumulate)
            at.load(sum, dx);
#pragma unroll 2
        for (int32_t slot = 0; slot < k; slot++) {
            at.load(v, dout, inverse[slot] * n);
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
        at.store(dx, sum);
    });
}

/* A team for each token and slot. dx may be x: a thread reads what it writes. */
template <int TEAM, class D, class Y, class X>
__global__ void scatter_bwd_kernel(D *dx, float *dgates, const Y *dy, const X *x,
                                   const float *gates, const int32_t *inverse, int32_t k,
                                   int64_t slots, int64_t n, float scale, bool wide)
{
    constexpr int W = vec_width<D, Y, X>;
    int64_t slot = vec_row<TEAM>();
    if (slot >= slots)
        return;
    dx += inverse[slot] * n;
    x += inverse[slot] * n;
    dy += slot / k * n;
    float factor = scale * gates[slot], dot = 0.0f;
    vec_each_of_row<TEAM, W>(n, wide, [&](auto at) {
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
        dgates[slot] = scale * dot;
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
            vec_launch(d, "scatter_add", vec_blocks(rows, VEC_THREADS / TEAM),
                       scatter_kernel<TEAM, Y, X>, (Y *)y.data, (X *)x.data, (float *)gates.data,
                       (int32_t *)inverse.data, k, rows, n, scale, wide);
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
            vec_launch(d, "gather_rows_bwd", vec_blocks(rows, VEC_THREADS / TEAM),
                       gather_bwd_kernel<TEAM, D, X>, (D *)dx.data, (X *)dout.data,
                       (int32_t *)inverse.data, k, accumulate, rows, n, wide);
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
            vec_launch(d, "scatter_add_bwd", vec_blocks(slots, VEC_THREADS / TEAM),
                       scatter_bwd_kernel<TEAM, D, Y, X>, (D *)a->dx.data, (float *)a->dgates.data,
                       (Y *)a->dy.data, (X *)a->x.data, (float *)a->gates.data,
                       (int32_t *)a->inverse.data, k, slots, n, a->scale, wide);
        });
    });
}
