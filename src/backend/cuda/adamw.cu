/* adamw: one AdamW step over flat buffers, and the sum of squares by which it clips. The step is
 * the CPU's bit for bit: intrinsics keep the compiler from contracting products and sums. Bound:
 * memory; with 8-bit moments a warp has a block of 256 parameters, and the decoding tables are in
 * shared memory. */
#include "backend/cuda/vec.cuh"

#include <math_constants.h>

extern "C" {
#include "backend/code8.h"
}

namespace
{

/* ---- sums of squares of equal parts of x, one for each y of the grid: partial sums of fixed size,
 * then their sum in order, both in double ---- */

constexpr int64_t PART = SQUARES_PART;

template <class X> __global__ void squares_kernel(double *parts, const X *x, int64_t n, bool wide)
{
    constexpr int W = vec_width<X>;
    int64_t begin = blockIdx.x * PART, end = begin + PART < n ? begin + PART : n;
    float sum[W] = { 0 };
    x += blockIdx.y * n + begin;
    vec_each_of_row<VEC_THREADS, W, 4>(end - begin, wide && (end - begin) % W == 0, [&](auto at) {
        float v[W];
        at.load(v, x);
        for (int j = 0; j < W; j++)
            sum[j] = fmaf(v[j], v[j], sum[j]);
    });
    double total = 0;
    for (int j = 0; j < W; j++)
        total += sum[j];
    total = vec_team_sum<VEC_THREADS>(total);
    if (threadIdx.x == 0)
        parts[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = total;
}

__global__ void fold_kernel(float *out, const double *parts, int64_t n)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += VEC_THREADS)
        sum += parts[blockIdx.x * n + i];
    sum = vec_team_sum<VEC_THREADS>(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = (float)sum;
}

/* ---- the step ---- */

struct step {
    float *w, *m, *v;
    const float *grad, *sumsq;
    bf16 *copy;
    int64_t n;
    float clip, beta1, beta2, eps;
    float rate; /* lr / (1 - beta1^step) */
    float root; /* 1 / sqrt(1 - beta2^step) */
    float keep; /* 1 - lr weight_decay */
};

/* The factor by which clipping scales the gradient; negative: the gradient is not finite. */
__device__ float grad_scale(const step &s)
{
    float sumsq = s.sumsq ? *s.sumsq : 0.0f;
    if (!isfinite(sumsq))
        return -1.0f;
    float clip = s.clip > 0 ? s.clip / (sqrtf(sumsq) + 1e-6f) : 1.0f;
    return clip < 1.0f ? clip : 1.0f;
}

__device__ float update(const step &s, float w, float g, float &m, float &v)
{
    m = fmaf(s.beta1, m, __fmul_rn(g, 1.0f - s.beta1));
    v = fmaf(s.beta2, v, __fmul_rn(__fmul_rn(g, g), 1.0f - s.beta2));
    float by = __fmul_rn(s.rate, m) / fmaf(sqrtf(v), s.root, s.eps);
    return __fsub_rn(__fmul_rn(w, s.keep), by);
}

__global__ void step_kernel(step s, bool wide)
{
    float scale = grad_scale(s);
    if (scale < 0)
        return;
    vec_each<4>(s.n, wide, [&](auto at) {
        float w[4], g[4], m[4], v[4];
        at.load(w, s.w);
        at.load(g, s.grad);
        at.load(m, s.m);
        at.load(v, s.v);
        for (int j = 0; j < 4; j++)
            w[j] = update(s, w[j], __fmul_rn(g[j], scale), m[j], v[j]);
        at.store(s.w, w);
        at.store(s.m, m);
        at.store(s.v, v);
        if (s.copy)
            at.store(s.copy, w);
    });
}

/* ---- 8-bit moments: decoded, updated, and encoded again with their new maximum ---- */

/* Bins of magnitudes up to 1: 128 for each power of two from 2^-24 on, and one for 1; a bin is the
 * upper 16 bits of a float. No bin contains two midpoints between codes, so after the look-up one
 * comparison decides. */
constexpr int BIN_BITS = 16, BINS = 24 * 128 + 1, BIN_START = 128 * (127 - 24);

/* A kind of codes: their values; the midpoints between magnitudes, beginning at zero; and for each
 * bin how many midpoints are below it. */
struct codes {
    float value[256], middle[256];
    uint8_t below[(BINS + 15) / 16 * 16];
};

static_assert(2 * sizeof(codes) == CODES_BYTES, "what is planned for both kinds");

struct moments {
    uint8_t *m, *v;
    float *m_scale, *v_scale;
    const codes *codes; /* [2], by code8_kind */
};

struct maps {
    float value[2][256];
};

/* A block for each kind. */
__global__ void codes_kernel(codes *out, const __grid_constant__ maps map)
{
    codes &c = out[blockIdx.x];
    __shared__ float middle[256];
    const float *value = map.value[blockIdx.x];
    int zero = blockIdx.x == CODE8_SIGNED ? 127 : 0, i = threadIdx.x;
    c.value[i] = value[i];
    middle[i] = zero + i < 255 ? 0.5f * (value[zero + i] + value[zero + i + 1]) : CUDART_INF_F;
    c.middle[i] = middle[i];
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        float start = __int_as_float(bin ? (BIN_START + bin) << BIN_BITS : 0);
        int n = 0;
        for (int step = 128; step; step /= 2)
            n += middle[n + step - 1] < start ? step : 0;
        c.below[bin] = (uint8_t)n;
    }
}

/* The code nearest to x: the number of midpoints below it. A negative x counts downwards from
 * zero. */
template <code8_kind KIND> __device__ int nearest(const codes &c, float x)
{
    float a = fabsf(x);
    int bin = min(max((__float_as_int(a) >> BIN_BITS) - BIN_START, 0), BINS - 1);
    int n = c.below[bin];
    float middle = c.middle[n];
    if (KIND == CODE8_UNSIGNED)
        return n + (a > middle);
    return x < 0.0f ? max(127 - n - (a >= middle), 0) : 127 + n + (a > middle);
}

__device__ void decode(float (&x)[4], uint32_t code, float scale, const codes &c)
{
    for (int j = 0; j < 4; j++)
        x[j] = c.value[code >> 8 * j & 255] * scale;
}

/* Division of many numbers by one: the product with its reciprocal, corrected twice, is the
 * correctly rounded quotient (Markstein 1990) where remainders do not underflow. Quotients too
 * small for that, below 2^-24, have code zero either way. */
struct divisor {
    float by, inverse;
    bool plain;

    __device__ explicit divisor(float x)
        : by(x), inverse(1.0f / x), plain(!(x > 0x1p-78f && x < 0x1p100f))
    {
    }

    __device__ float operator()(float x) const
    {
        if (plain)
            return x / by;
        float q = x * inverse;
        q = fmaf(fmaf(-q, by, x), inverse, q);
        return fmaf(fmaf(-q, by, x), inverse, q);
    }
};

template <code8_kind KIND>
__device__ uint32_t encode(const float (&x)[4], const divisor &largest, const codes &c)
{
    uint32_t code = 0;
    for (int j = 0; j < 4; j++)
        code |= (uint32_t)nearest<KIND>(c, largest(x[j])) << 8 * j;
    return code;
}

/* Four codes from index i on, of n. */
__device__ uint32_t load_code(const uint8_t *p, int64_t i, int64_t n, bool wide)
{
    if (wide && i + 4 <= n)
        return *(const uint32_t *)(p + i);
    uint32_t code = 0;
    for (int j = 0; j < 4 && i + j < n; j++)
        code |= (uint32_t)p[i + j] << 8 * j;
    return code;
}

__device__ void store_code(uint8_t *p, int64_t i, int64_t n, bool wide, uint32_t code)
{
    if (wide && i + 4 <= n)
        *(uint32_t *)(p + i) = code;
    else
        for (int j = 0; j < 4 && i + j < n; j++)
            p[i + j] = (uint8_t)(code >> 8 * j);
}

/* A warp has a block of 256 parameters: each lane four of each half, so that accesses are whole
 * sectors. All loads come before the first store. */
__device__ void step8_block(const step &s, const moments &o, int64_t block, float scale,
                            const codes *c, bool wide)
{
    constexpr int HALF = CODE8_BLOCK / 2;
    int lane = threadIdx.x % WARP;
    int64_t first = block * CODE8_BLOCK + lane * 4;
    float w[2][4] = {}, g[2][4] = {}, m[2][4], v[2][4], m_top = 0.0f, v_top = 0.0f;
    float m_scale = o.m_scale[block], v_scale = o.v_scale[block];
    uint32_t m_code[2], v_code[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t i = first + h * HALF;
        m_code[h] = load_code(o.m, i, s.n, wide);
        v_code[h] = load_code(o.v, i, s.n, wide);
        vec_at<4>(i, s.n, wide, [&](auto at) {
            at.load(w[h], s.w);
            at.load(g[h], s.grad);
        });
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t i = first + h * HALF;
        decode(m[h], m_code[h], m_scale, c[CODE8_SIGNED]);
        decode(v[h], v_code[h], v_scale, c[CODE8_UNSIGNED]);
        for (int j = 0; j < 4; j++) {
            w[h][j] = update(s, w[h][j], __fmul_rn(g[h][j], scale), m[h][j], v[h][j]);
            m_top = i + j < s.n ? fmaxf(m_top, fabsf(m[h][j])) : m_top;
            v_top = i + j < s.n ? fmaxf(v_top, fabsf(v[h][j])) : v_top;
        }
        vec_at<4>(i, s.n, wide, [&](auto at) {
            at.store(s.w, w[h]);
            if (s.copy)
                at.store(s.copy, w[h]);
        });
    }
    m_top = warp_max(m_top);
    v_top = warp_max(v_top);
    divisor by_m(m_top > 0.0f ? m_top : 1.0f), by_v(v_top > 0.0f ? v_top : 1.0f);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t i = first + h * HALF;
        store_code(o.m, i, s.n, wide, encode<CODE8_SIGNED>(m[h], by_m, c[CODE8_SIGNED]));
        store_code(o.v, i, s.n, wide, encode<CODE8_UNSIGNED>(v[h], by_v, c[CODE8_UNSIGNED]));
    }
    if (lane == 0) {
        o.m_scale[block] = m_top;
        o.v_scale[block] = v_top;
    }
}

constexpr int STEP8_BLOCKS = 8; /* of 256 parameters, for each warp */

__global__ void __launch_bounds__(VEC_THREADS, 4) step8_kernel(step s, moments o, bool wide)
{
    __shared__ alignas(16) codes c[2];
    float scale = grad_scale(s);
    if (scale < 0)
        return;
    static_assert(sizeof c % 16 == 0, "copied in pieces of 16 bytes");
    for (int i = threadIdx.x; i < (int)sizeof c / 16; i += VEC_THREADS)
        ((uint4 *)c)[i] = ((const uint4 *)o.codes)[i];
    __syncthreads();
    int warps = VEC_THREADS / WARP;
    for (int k = 0; k < STEP8_BLOCKS; k++) {
        int64_t block = ((int64_t)blockIdx.x * STEP8_BLOCKS + k) * warps + threadIdx.x / WARP;
        if (block * CODE8_BLOCK < s.n)
            step8_block(s, o, block, scale, c, wide);
    }
}

double power(double x, int32_t n)
{
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

} // namespace

extern "C" void cuda_sumsq(device *d, tensor out, tensor x)
{
    int64_t m = tensor_count(&out), n = tensor_count(&x) / m;
    dim3 parts(vec_blocks(n, PART), (unsigned)m);
    double *sums = (double *)cuda_scratch(cuda_of(d), "sumsq", (size_t)m * scratch_squares(n));
    if (!sums)
        return;
    vec_typed(x.dt, [&](auto v) {
        typedef decltype(v) X;
        bool wide = vec_aligned(x) && (m == 1 || n % vec_width<X> == 0);
        squares_kernel<<<parts, VEC_THREADS, 0, cuda_of(d)->stream>>>(sums, (X *)x.data, n, wide);
    });
    vec_launch(d, "sumsq", (unsigned)m, fold_kernel, (float *)out.data, sums, (int64_t)parts.x);
}

extern "C" void cuda_adamw(device *d, const adamw *a)
{
    step s = { .w = (float *)a->w.data,
               .m = (float *)a->m.data,
               .v = (float *)a->v.data,
               .grad = (const float *)a->grad.data,
               .sumsq = (const float *)a->sumsq.data,
               .copy = (bf16 *)a->copy.data,
               .n = tensor_count(&a->w),
               .clip = a->clip,
               .beta1 = a->beta1,
               .beta2 = a->beta2,
               .eps = a->eps,
               .rate = (float)(a->lr / (1 - power(a->beta1, a->step))),
               .root = (float)(1 / sqrt(1 - power(a->beta2, a->step))),
               .keep = 1.0f - a->lr * a->weight_decay };
    bool wide = vec_aligned(a->w, a->grad, a->m, a->v, a->copy);
    ASSERT(!a->copy.data || a->copy.dt == DT_BF16);
    if (a->m.dt != DT_U8) {
        vec_launch_flat<float>(d, "adamw", s.n, step_kernel, s, wide);
        return;
    }
    codes *c = (codes *)cuda_scratch(cuda_of(d), "adamw", scratch_codes());
    if (!c)
        return;
    maps map;
    for (int i = 0; i < 256; i++) {
        map.value[CODE8_SIGNED][i] = code8_map(CODE8_SIGNED)[i];
        map.value[CODE8_UNSIGNED][i] = code8_map(CODE8_UNSIGNED)[i];
    }
    vec_launch(d, "adamw", 2, codes_kernel, c, map);
    moments o = { (uint8_t *)a->m.data, (uint8_t *)a->v.data, (float *)a->m_scale.data,
                  (float *)a->v_scale.data, c };
    vec_launch(d, "adamw",
               vec_blocks(s.n, (int64_t)CODE8_BLOCK * STEP8_BLOCKS * (VEC_THREADS / WARP)),
               step8_kernel, s, o, wide);
}
