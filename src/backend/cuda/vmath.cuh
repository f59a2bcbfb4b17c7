/* vmath: exp, log, sigmoid and activation functions, step by step as the CPU's (cpu/ops/vmath.h),
 * so that both give the same bits. Products are fused with sums only where fmaf says so, which
 * leaves the compiler nothing to contract. Exceptions: gelu uses fast divisions (within 2 ulp),
 * whose exact form would double its cost; and where results are bf16, the GPU's approximate 2^x and
 * 1/x serve (relative error below 2^-18), because exact ones would no longer be hidden behind
 * memory. */
#ifndef PESC_BACKEND_CUDA_VMATH_CUH
#define PESC_BACKEND_CUDA_VMATH_CUH

#include "backend/cuda/cuda.h"

#include <math_constants.h>

/* 2^n e^r with x = n ln 2 + r; NaN stays. */
__device__ inline float vmath_exp(float x)
{
    const float magic = 0x1.8p23f;
    x = 89.0f < x ? 89.0f : x;
    x = -104.0f > x ? -104.0f : x;
    float shifted = fmaf(x, 0x1.715476p0f, magic), n = shifted - magic;
    float r = fmaf(n, -0x1.63p-1f, x);
    r = fmaf(n, 0x1.bd0106p-13f, r);
    float p = 0x1.6a22e2p-10f;
    p = fmaf(p, r, 0x1.123a78p-7f);
    p = fmaf(p, r, 0x1.5558f6p-5f);
    p = fmaf(p, r, 0x1.555490p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p * r, r, r) + 1.0f;
    int k = __float_as_int(shifted) - __float_as_int(magic), half = k >> 1;
    return p * __int_as_float((half + 127) << 23) * __int_as_float((k - half + 127) << 23);
}

/* The same for x up to 88, in fewer steps, because 2^n is a normal number; 0 where e^x would be
 * subnormal. */
__device__ inline float vmath_exp_below(float x)
{
    const float magic = 0x1.8p23f;
    float shifted = fmaf(x, 0x1.715476p0f, magic), n = shifted - magic;
    float r = fmaf(n, -0x1.63p-1f, x);
    r = fmaf(n, 0x1.bd0106p-13f, r);
    float p = 0x1.6a22e2p-10f;
    p = fmaf(p, r, 0x1.123a78p-7f);
    p = fmaf(p, r, 0x1.5558f6p-5f);
    p = fmaf(p, r, 0x1.555490p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p * r, r, r) + 1.0f;
    float power = __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000); /* 2^n */
    return x < -87.0f ? 0.0f : p * power;
}

template <bool COARSE = false> __device__ inline float vmath_sigmoid(float x, float &rest)
{
    float below = 88.0f < -x ? 88.0f : -x, e, s;
    if constexpr (COARSE) {
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(below * 0x1.715476p0f));
        s = __fdividef(1.0f, 1.0f + e);
    } else {
        e = vmath_exp_below(below);
        s = 1.0f / (1.0f + e);
    }
    rest = e * s;
    return s;
}

/* Phi(-a) for a >= 0, and the density there. */
__device__ inline float vmath_normal_tail(float a, float &density)
{
    float q = __fdividef(a - 4.0f, a + 4.0f), m = -7.162261634589853e-05f;
    m = fmaf(m, q, -6.0583424962228594e-05f);
    m = fmaf(m, q, 6.928479587917527e-04f);
    m = fmaf(m, q, -3.0374540064557153e-04f);
    m = fmaf(m, q, -5.004371546489173e-03f);
    m = fmaf(m, q, 1.7940200783509684e-02f);
    m = fmaf(m, q, -3.219727201572592e-02f);
    m = fmaf(m, q, 2.859998076485132e-02f);
    m = fmaf(m, q, 1.3999596323485583e-02f);
    m = fmaf(m, q, -9.670346692702013e-02f);
    m = fmaf(m, q, 4.720532068560097e-01f);
    float high = __int_as_float(__float_as_int(a) & ~0xfff);
    float low = (a - high) * (a + high) * -0.5f, e = vmath_exp_below(high * high * -0.5f);
    float grow = fmaf(low * low, fmaf(low, 1.0f / 6, 0.5f), low);
    e = fmaf(e, grow, e);
    density = e * 0.3989422804f;
    return __fdividef(e * m, 1.0f + a);
}

/* act(x), and its slope. */
template <act_kind ACT, bool COARSE> __device__ inline float vmath_act(float x, float &slope)
{
    if constexpr (ACT == ACT_SILU) {
        float rest, s = vmath_sigmoid<COARSE>(x, rest);
        slope = s * fmaf(x, rest, 1.0f);
        return x * s;
    } else if constexpr (ACT == ACT_GELU) {
        float density, tail = vmath_normal_tail(x < 0.0f ? -x : x, density);
        float cdf = x < 0.0f ? tail : 1.0f - tail;
        slope = fmaf(x, density, cdf);
        return x * cdf;
    } else if constexpr (ACT == ACT_GELU_TANH) {
        const float c = 2 * 0.7978845608f, d = 0.044715f;
        float u = c * x * fmaf(x * x, d, 1.0f), rest, s = vmath_sigmoid<COARSE>(u, rest);
        float du = c * fmaf(x * x, 3 * d, 1.0f);
        slope = s * fmaf(x * du, rest, 1.0f);
        return x * s;
    } else if constexpr (ACT == ACT_CLAMPED) {
        float at = x > 7.0f ? 7.0f : x, rest, s = vmath_sigmoid<COARSE>(1.702f * at, rest);
        slope = x > 7.0f ? 0.0f : s * fmaf(1.702f * at, rest, 1.0f);
        return at * s;
    } else if constexpr (ACT == ACT_SIGMOID) {
        float rest, s = vmath_sigmoid<COARSE>(x, rest);
        slope = s * rest;
        return s;
    } else {
        slope = x > 0.0f ? 1.0f : 0.0f;
        return 0.0f > x ? 0.0f : x;
    }
}

/* The other factor of a GLU, and its slope. */
__device__ inline float vmath_glu_up(act_kind act, float up, float &slope)
{
    slope = 1.0f;
    if (act != ACT_CLAMPED)
        return up;
    slope = up > 7.0f || up < -7.0f ? 0.0f : 1.0f;
    up = up > 7.0f ? 7.0f : up;
    return (up < -7.0f ? -7.0f : up) + 1.0f;
}

/* v becomes act(v), slope its slope there; one branch for all W of them. */
template <bool COARSE, int W>
__device__ inline void vmath_acts(act_kind act, float (&v)[W], float (&slope)[W])
{
#define VMATH_CASE(name)                                                                           \
    case name:                                                                                     \
        for (int j = 0; j < W; j++)                                                                \
            v[j] = vmath_act<name, COARSE>(v[j], slope[j]);                                        \
        break;
    switch (act) {
        VMATH_CASE(ACT_SILU)
        VMATH_CASE(ACT_GELU)
        VMATH_CASE(ACT_GELU_TANH)
        VMATH_CASE(ACT_RELU)
        VMATH_CASE(ACT_CLAMPED)
        VMATH_CASE(ACT_SIGMOID)
    }
#undef VMATH_CASE
}

/* ln x for normal x > 0; infinities and NaN come back. */
__device__ inline float vmath_log(float x)
{
    if (!(x <= 0x1.fffffep127f))
        return x;
    uint32_t u = __float_as_uint(x);
    int e = (int)(u >> 23) - 127;
    double m = (double)(u & 0x7fffff) * 0x1p-23 + 1.0;
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, p = 1.0 / 15;
#pragma unroll
    for (int k = 13; k >= 1; k -= 2)
        p = __dadd_rn(__dmul_rn(p, s2), 1.0 / k);
    return (float)__dadd_rn(__dmul_rn(e, 0.6931471805599453), __dmul_rn(__dmul_rn(2.0, s), p));
}

#endif
