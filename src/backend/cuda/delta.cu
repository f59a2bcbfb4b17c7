/* delta: the gated delta rule, one token after the other; the formulas are in backend.h and, for
 * backward, in cpu/ops/delta.c.
 *
 * Bound: latency, of the chain of tokens. Forward: a block has 32 columns of the state of a head,
 * in shared memory; a thread has one column and a quarter of its rows, and the four quarters of a
 * sum are added in order. Backward: a block has a value head, whose states are in device memory:
 * before every L-th token, and between two of these before each. Sums over rows are a thread for
 * each column, sums over columns a warp for each row. */
#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

namespace
{

enum { COLS = 32, PARTS = 4, MAX_KEY = 256 };

struct delta_shape {
    const float *a_log, *dt_bias;
    const int32_t *starts, *pos, *slots;
    float *state;
    int64_t stride, x_cols;
    int32_t n_seqs, k_heads, v_heads, dk, dv;
};

delta_shape shape_of(const delta_rule *a)
{
    return { (const float *)a->a_log.data,
             (const float *)a->dt_bias.data,
             (const int32_t *)a->starts.data,
             (const int32_t *)a->pos.data,
             (const int32_t *)a->slots.data,
             (float *)a->state.data,
             a->state.data ? tensor_cols(&a->state) : 0,
             tensor_cols(&a->x),
             (int32_t)(tensor_count(&a->starts) - 1),
             a->k_heads,
             a->v_heads,
             a->k_dim,
             a->v_dim };
}

/* What a token does to the state of a head, but for its key and value. */
struct token {
    float decay, beta, slope, log_decay;
};

/* As the CPU's (cpu/ops/delta.c). */
__device__ inline float softplus(float x)
{
    float e = vmath_exp(x), sum = 1.0f + e;
    return x > 20.0f ? x : sum == 1.0f ? e : vmath_log(sum) * (e / (sum - 1.0f));
}

template <class X>
__device__ token token_of(const delta_shape &s, const X *b, const X *a, int64_t t, int32_t v)
{
    token k;
    float x = vec_get(a + t * s.v_heads + v) + s.dt_bias[v], rest;
    k.slope = vmath_sigmoid(x, rest);
    k.log_decay = -vmath_exp(s.a_log[v]) * softplus(x);
    k.decay = vmath_exp(k.log_decay);
    k.beta = vmath_sigmoid(vec_get(b + t * s.v_heads + v), rest);
    return k;
}

/* The sum over a block of n warps, in all of its threads. */
__device__ float block_sum(float x, float *parts)
{
    x = warp_sum<WARP>(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0.0f;
    for (int w = 0; w < (int)(blockDim.x / WARP); w++)
        x += parts[w];
    return x;
}

/* q and k of a token, normalised, into shared memory. */
template <class X>
__device__ void load_keys(const delta_shape &s, const X *x, int64_t t, int32_t v, float *q,
                          float *k, float *parts)
{
    const X *query = x + t * s.x_cols + (int64_t)(v / (s.v_heads / s.k_heads)) * s.dk;
    const X *key = query + (int64_t)s.k_heads * s.dk;
    float qq = 0.0f, kk = 0.0f;
    for (int32_t i = threadIdx.x; i < s.dk; i += blockDim.x) {
        float a = vec_get(query + i), b = vec_get(key + i);
        qq = fmaf(a, a, qq);
        kk = fmaf(b, b, kk);
    }
    qq = 1.0f / sqrtf((float)s.dk) / sqrtf(block_sum(qq, parts) + 1e-6f);
    kk = 1.0f / sqrtf(block_sum(kk, parts) + 1e-6f);
    for (int32_t i = threadIdx.x; i < s.dk; i += blockDim.x) {
        q[i] = vec_get(query + i) * qq;
        k[i] = vec_get(key + i) * kk;
    }
    __syncthreads();
}

/* ---- forward ---- */

__device__ float sum_parts(float x, float (*parts)[COLS])
{
    int col = threadIdx.x % COLS, part = threadIdx.x / COLS;
    __syncthreads();
    parts[part][col] = x;
    __syncthreads();
    x = parts[0][col];
    for (int p = 1; p < PARTS; p++)
        x += parts[p][col];
    return x;
}

template <class X>
__global__ void delta_kernel(X *out, const X *x, const X *b, const X *a, delta_shape s)
{
    __shared__ float state[MAX_KEY * COLS], q[MAX_KEY], k[MAX_KEY], warps[PARTS];
    __shared__ float parts[PARTS][COLS];
    int32_t tiles = (s.dv + COLS - 1) / COLS, tile = blockIdx.x % tiles;
    int32_t v = blockIdx.x / tiles % s.v_heads, seq = blockIdx.x / tiles / s.v_heads;
    int32_t col = threadIdx.x % COLS, j = tile * COLS + col;
    int32_t rows = (s.dk + PARTS - 1) / PARTS, first = threadIdx.x / COLS * rows;
    int32_t last = first + rows < s.dk ? first + rows : s.dk;
    int64_t begin = s.starts[seq], end = s.starts[seq + 1];
    if (begin == end)
        return;
    float *kept = s.state ? s.state + s.slots[seq] * s.stride + (int64_t)v * s.dk * s.dv : nullptr;
    bool goes_on = kept && s.pos[begin] > 0 && j < s.dv;
    for (int32_t i = first; i < last; i++)
        state[i * COLS + col] = goes_on ? kept[(int64_t)i * s.dv + j] : 0.0f;
    for (int64_t t = begin; t < end; t++) {
        const X *value = x + t * s.x_cols + 2 * (int64_t)s.k_heads * s.dk + (int64_t)v * s.dv;
        token w = token_of(s, b, a, t, v);
        load_keys(s, x, t, v, q, k, warps);
        float sum = 0.0f;
        for (int32_t i = first; i < last; i++) {
            float p = state[i * COLS + col] * w.decay;
            state[i * COLS + col] = p;
            sum = fmaf(p, k[i], sum);
        }
        float e = w.beta * ((j < s.dv ? vec_get(value + j) : 0.0f) - sum_parts(sum, parts));
        sum = 0.0f;
        for (int32_t i = first; i < last; i++) {
            float p = fmaf(k[i], e, state[i * COLS + col]);
            state[i * COLS + col] = p;
            sum = fmaf(p, q[i], sum);
        }
        sum = sum_parts(sum, parts);
        if (first == 0 && j < s.dv)
            vec_put(out + (t * s.v_heads + v) * s.dv + j, sum);
    }
    for (int32_t i = first; kept && j < s.dv && i < last; i++)
        kept[(int64_t)i * s.dv + j] = state[i * COLS + col];
}

/* ---- backward ---- */

struct delta_grads {
    float *work, *dqk, *da_log, *ddt_bias;
    int64_t span, states; /* L, and how many states a head has room for */
};

/* Vectors of the current token, in shared memory. */
struct token_vectors {
    float q[MAX_KEY], k[MAX_KEY], u[MAX_KEY], dout[MAX_KEY], de[MAX_KEY], warps[VEC_THREADS / WARP];
};

/* u = beta (v - decay S^T k); a thread for each column. */
template <class X>
__device__ void predict(const delta_shape &s, token_vectors &at, const token &w,
                        const float *before, const X *value)
{
    for (int32_t j = threadIdx.x; j < s.dv; j += VEC_THREADS) {
        float sum = 0.0f;
        for (int32_t i = 0; i < s.dk; i++)
            sum = fmaf(w.decay * before[(int64_t)i * s.dv + j], at.k[i], sum);
        at.u[j] = w.beta * (vec_get(value + j) - sum);
    }
    __syncthreads();
}

template <class X> struct delta_io {
    const X *x, *b, *a, *dout;
    X *dx, *db, *da;
};

/* A value head on its way back. */
template <class X> struct head_bwd {
    delta_shape s;
    delta_io<X> io;
    float *dqk, *ds; /* ds: the gradient of its state */
    int32_t v;
    float da_log, ddt;
};

template <class X>
__device__ void advance(const head_bwd<X> &h, token_vectors &at, float *after, const float *before,
                        int64_t t)
{
    const delta_shape &s = h.s;
    const X *value = h.io.x + t * s.x_cols + 2 * (int64_t)s.k_heads * s.dk + (int64_t)h.v * s.dv;
    token w = token_of(s, h.io.b, h.io.a, t, h.v);
    load_keys(s, h.io.x, t, h.v, at.q, at.k, at.warps);
    predict(s, at, w, before, value);
    for (int32_t i = threadIdx.x; i < s.dk * s.dv; i += VEC_THREADS)
        after[i] = fmaf(at.k[i / s.dv], at.u[i % s.dv], w.decay * before[i]);
    __syncthreads();
}

/* dq, what dk gets of S += k u^T, and the gradient of S; a warp for each row. */
__device__ void outer_bwd(const delta_shape &s, const token_vectors &at, const token &w,
                          const float *before, float *ds, float *dq, float *dk)
{
    for (int32_t i = threadIdx.x / WARP; i < s.dk; i += VEC_THREADS / WARP) {
        float sum_q = 0.0f, sum_k = 0.0f;
        for (int32_t j = threadIdx.x % WARP; j < s.dv; j += WARP) {
            int64_t p = (int64_t)i * s.dv + j;
            float g = fmaf(at.q[i], at.dout[j], ds[p]);
            sum_q = fmaf(fmaf(at.k[i], at.u[j], w.decay * before[p]), at.dout[j], sum_q);
            sum_k = fmaf(g, at.u[j], sum_k);
            ds[p] = g;
        }
        sum_q = warp_sum<WARP>(sum_q);
        sum_k = warp_sum<WARP>(sum_k);
        if (threadIdx.x % WARP == 0) {
            dq[i] = sum_q;
            dk[i] = sum_k;
        }
    }
    __syncthreads();
}

/* Through e = v - S^T k and S = decay S; this thread's part of the gradient of decay. */
__device__ float inner_bwd(const delta_shape &s, const token_vectors &at, const token &w,
                           const float *before, float *ds, float *dk)
{
    float decayed = 0.0f;
    for (int32_t i = threadIdx.x / WARP; i < s.dk; i += VEC_THREADS / WARP) {
        float sum = 0.0f;
        for (int32_t j = threadIdx.x % WARP; j < s.dv; j += WARP) {
            int64_t p = (int64_t)i * s.dv + j;
            float g = fmaf(-at.k[i], at.de[j], ds[p]);
            sum = fmaf(before[p], at.de[j], sum);
            decayed = fmaf(g, before[p], decayed);
            ds[p] = w.decay * g;
        }
        sum = warp_sum<WARP>(sum);
        if (threadIdx.x % WARP == 0)
            dk[i] -= w.decay * sum;
    }
    __syncthreads();
    return decayed;
}

/* One token; adds to the gradients of a_log and dt_bias. */
template <class X>
__device__ void token_bwd(head_bwd<X> &h, token_vectors &at, const float *before, int64_t t)
{
    const delta_shape &s = h.s;
    int64_t i = t * s.v_heads + h.v, values = 2 * (int64_t)s.k_heads * s.dk + (int64_t)h.v * s.dv;
    const X *value = h.io.x + t * s.x_cols + values;
    float *dq = h.dqk + i * 2 * s.dk;
    token w = token_of(s, h.io.b, h.io.a, t, h.v);
    load_keys(s, h.io.x, t, h.v, at.q, at.k, at.warps);
    predict(s, at, w, before, value);
    for (int32_t j = threadIdx.x; j < s.dv; j += VEC_THREADS)
        at.dout[j] = vec_get(h.io.dout + i * s.dv + j);
    __syncthreads();
    outer_bwd(s, at, w, before, h.ds, dq, dq + s.dk);
    float dbeta = 0.0f;
    for (int32_t j = threadIdx.x; j < s.dv; j += VEC_THREADS) {
        float du = 0.0f;
        for (int32_t r = 0; r < s.dk; r++)
            du = fmaf(h.ds[(int64_t)r * s.dv + j], at.k[r], du);
        dbeta = fmaf(du, at.u[j], dbeta);
        at.de[j] = w.beta * du;
        vec_put(h.io.dx + t * s.x_cols + values + j, at.de[j]);
    }
    dbeta = block_sum(dbeta, at.warps);
    float dg = w.decay * block_sum(inner_bwd(s, at, w, before, h.ds, dq + s.dk), at.warps);
    float da = -dg * vmath_exp(s.a_log[h.v]) * w.slope;
    if (threadIdx.x == 0) {
        vec_put(h.io.db + i, dbeta * (1.0f - w.beta));
        vec_put(h.io.da + i, da);
    }
    h.da_log += dg * w.log_decay;
    h.ddt += da;
    __syncthreads();
}

template <class X> __global__ void delta_bwd_kernel(delta_io<X> io, delta_shape s, delta_grads g)
{
    __shared__ token_vectors at;
    int64_t size = (int64_t)s.dk * s.dv, span = g.span;
    float *marks = g.work + blockIdx.x * g.states * size, *states = marks + span * size;
    head_bwd<X> h = { s, io, g.dqk, states + span * size, (int32_t)blockIdx.x, 0.0f, 0.0f };
    for (int32_t seq = 0; seq < s.n_seqs; seq++) {
        int64_t begin = s.starts[seq], n = s.starts[seq + 1] - begin;
        int64_t last_mark = n ? (n - 1) / span * span : 0;
        for (int64_t i = threadIdx.x; i < size; i += VEC_THREADS)
            marks[i] = h.ds[i] = 0.0f;
        __syncthreads();
        for (int64_t t = 0; t < last_mark; t++) /* the marks, through two states in turn */
            advance(h, at,
                    (t + 1) % span ? states + (t + 1) % 2 * size : marks + (t + 1) / span * size,
                    t % span ? states + t % 2 * size : marks + t / span * size, begin + t);
        for (int64_t m = n ? (n - 1) / span : -1; m >= 0; m--) {
            int64_t first = m * span, last = first + span < n ? first + span : n;
            for (int64_t i = threadIdx.x; i < size; i += VEC_THREADS)
                states[i] = marks[m * size + i];
            __syncthreads();
            for (int64_t t = first; t + 1 < last; t++)
                advance(h, at, states + (t + 1 - first) * size, states + (t - first) * size,
                        begin + t);
            for (int64_t t = last - 1; t >= first; t--)
                token_bwd(h, at, states + (t - first) * size, begin + t);
        }
    }
    if (threadIdx.x == 0 && g.da_log)
        g.da_log[h.v] += h.da_log;
    if (threadIdx.x == 0 && g.ddt_bias)
        g.ddt_bias[h.v] += h.ddt;
}

/* Through the division by the length, for the sum over the value heads of a key head; a warp for
 * each row, key head, and queries or keys. */
template <class X>
__global__ void delta_norm_kernel(X *dx, const X *x, const float *dqk, delta_shape s, int64_t rows)
{
    int64_t i = ((int64_t)blockIdx.x * VEC_THREADS + threadIdx.x) / WARP;
    if (i >= rows * s.k_heads * 2)
        return;
    int32_t which = i % 2, k = i / 2 % s.k_heads, group = s.v_heads / s.k_heads;
    int64_t t = i / 2 / s.k_heads, at = t * s.x_cols + ((int64_t)which * s.k_heads + k) * s.dk;
    const float *from = dqk + (t * s.v_heads + (int64_t)k * group) * 2 * s.dk + which * s.dk;
    float squared = 0.0f, dot = 0.0f;
    for (int32_t c = threadIdx.x % WARP; c < s.dk; c += WARP) {
        float z = vec_get(x + at + c), sum = 0.0f;
        for (int32_t g = 0; g < group; g++)
            sum += from[(int64_t)g * 2 * s.dk + c];
        squared = fmaf(z, z, squared);
        dot = fmaf(z, sum, dot);
    }
    squared = warp_sum<WARP>(squared) + 1e-6f;
    float pull = warp_sum<WARP>(dot) / squared;
    float r = (which ? 1.0f : 1.0f / sqrtf((float)s.dk)) / sqrtf(squared);
    for (int32_t c = threadIdx.x % WARP; c < s.dk; c += WARP) {
        float sum = 0.0f;
        for (int32_t g = 0; g < group; g++)
            sum += from[(int64_t)g * 2 * s.dk + c];
        vec_put(dx + at + c, r * (sum - pull * vec_get(x + at + c)));
    }
}

} // namespace

extern "C" void cuda_delta_fwd(device *d, const delta_rule *a)
{
    delta_shape s = shape_of(a);
    unsigned tiles = (unsigned)(s.dv + COLS - 1) / COLS;
    ASSERT(s.dk <= MAX_KEY && s.dv <= MAX_KEY);
    vec_typed(a->x.dt, [&](auto z) {
        typedef decltype(z) X;
        delta_kernel<X><<<tiles * s.v_heads * s.n_seqs, COLS * PARTS, 0, cuda_of(d)->stream>>>(
            (X *)a->out.data, (const X *)a->x.data, (const X *)a->b.data, (const X *)a->a.data, s);
        cuda_launched(cuda_of(d), "delta_fwd");
    });
}

extern "C" void cuda_delta_bwd(device *d, const delta_bwd *b)
{
    const delta_rule *f = &b->fwd;
    delta_shape s = shape_of(f);
    int64_t rows = tensor_rows(&f->x);
    delta_grads g = { (float *)b->work.data,     (float *)b->dqk.data, (float *)b->da_log.data,
                      (float *)b->ddt_bias.data, delta_span(rows),     delta_states(rows) };
    ASSERT(s.dk <= MAX_KEY && s.dv <= MAX_KEY);
    vec_typed(f->x.dt, [&](auto z) {
        typedef decltype(z) X;
        delta_io<X> io = { (const X *)f->x.data,    (const X *)f->b.data, (const X *)f->a.data,
                           (const X *)b->dout.data, (X *)b->dx.data,      (X *)b->db.data,
                           (X *)b->da.data };
        vec_launch(d, "delta_bwd", (unsigned)s.v_heads, delta_bwd_kernel<X>, io, s, g);
        vec_launch(d, "delta_norm", vec_blocks(rows * s.k_heads * 2, VEC_THREADS / WARP),
                   delta_norm_kernel<X>, (X *)b->dx.data, (const X *)f->x.data,
                   (const float *)b->dqk.data, s, rows);
    });
}
