/* vmath: exp, log and the activation functions on vectors, with the same bits on any C library.
 *
 * exp is within 1 ulp. Logistic and normal distribution functions are built from it in forms that
 * do not cancel, so silu and both gelus keep their relative accuracy in the negative tail, where
 * x/2 * (1 + erf) has lost it. Polynomials are minimax fits. NaN gives NaN. */
#ifndef PESC_BACKEND_CPU_OPS_VMATH_H
#define PESC_BACKEND_CPU_OPS_VMATH_H

#include "backend/backend.h"
#include "backend/cpu/ops/vec.h"

#include <math.h>

/* 2^n e^r with x = n ln 2 + r, |r| <= ln 2 / 2; 0 where it would be subnormal: attention computes
 * many of these, from scores of -infinity, and a CPU takes about a hundred cycles for one. */
static inline vf vmath_exp(vf x)
{
    const float magic = 0x1.8p23f;                       /* adding it rounds to an integer */
    const vf lowest = vec_set(-0x1.5d589ep6f);           /* ln 2^-126 */
    vf in = vec_max(lowest, vec_min(vec_set(89.0f), x)); /* NaN stays: it is the second */
    vf shifted = vec_fma(in, vec_set(0x1.715476p0f), vec_set(magic));
    vf n = shifted - magic;
    vf r = vec_fma(n, vec_set(-0x1.63p-1f), in); /* ln 2 in two parts; the first product is exact */
    r = vec_fma(n, vec_set(0x1.bd0106p-13f), r);
    vf p = vec_set(0x1.6a22e2p-10f);
    p = vec_fma(p, r, vec_set(0x1.123a78p-7f));
    p = vec_fma(p, r, vec_set(0x1.5558f6p-5f));
    p = vec_fma(p, r, vec_set(0x1.555490p-3f));
    p = vec_fma(p, r, vec_set(0x1.fffffcp-2f));
    p = vec_fma(p * r, r, r) + 1.0f;
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_NLT_UQ), p, n);
#else /* in two factors: 2^128 is not representable */
    vi k = (vi)shifted - (vi)vec_set(magic), half = k >> 1;
    vf y = p * (vf)((half + 127) << 23) * (vf)((k - half + 127) << 23);
    return (vf)((vi)y & ~vec_less(x, lowest));
#endif
}

/* The logistic function s(x), and 1 - s(x) without cancellation. e^-x is kept finite, so that the
 * product below is 1, not infinity times zero, for very negative x. */
static inline vf vmath_sigmoid(vf x, vf *rest)
{
    vf e = vmath_exp(vec_min(vec_set(88.0f), -x));
    vf s = 1.0f / (1.0f + e);
    *rest = e * s;
    return s;
}

/* Phi(-a) = e^(-a^2/2) M(a) for a >= 0: M(a) (1 + a) is a polynomial in (a - 4) / (a + 4). The
 * square is taken in two parts: its rounding error alone would cost a^2/2 ulp. From a = 64 on, far
 * after the result is 0, a is taken for 64: the square of a large one would overflow. */
static inline vf vmath_normal_tail(vf a, vf *density)
{
    static const float c[] = { -7.162261634589853e-05f, -6.0583424962228594e-05f,
                               6.928479587917527e-04f,  -3.0374540064557153e-04f,
                               -5.004371546489173e-03f, 1.7940200783509684e-02f,
                               -3.219727201572592e-02f, 2.859998076485132e-02f,
                               1.3999596323485583e-02f, -9.670346692702013e-02f,
                               4.720532068560097e-01f };
    a = vec_min(vec_set(64.0f), a); /* NaN stays: it is the second */
    vf q = (a - 4.0f) / (a + 4.0f), m = vec_set(c[0]);
    for (int i = 1; i < (int)(sizeof c / sizeof *c); i++)
        m = vec_fma(m, q, vec_set(c[i]));
    vf high = (vf)((vi)a & ~0xfff); /* 12 bits: its square is exact */
    vf low = (a - high) * (a + high) * -0.5f, e = vmath_exp(high * high * -0.5f);
    vf grow = vec_fma(low * low, vec_fma(low, vec_set(1.0f / 6), vec_set(0.5f)), low);
    e = vec_fma(e, grow, e); /* e^low = 1 + grow; low is small */
    *density = e * 0.3989422804f;
    return e * m / (1.0f + a);
}

/* Phi(x); *density = phi(x). */
static inline vf vmath_normal(vf x, vf *density)
{
    vi negative = vec_less(x, vec_set(0.0f));
    vf tail = vmath_normal_tail(vec_select(negative, -x, x), density);
    return vec_select(negative, tail, 1.0f - tail);
}

/* tanh x = 2 sigmoid(2x) - 1 */
static inline vf vmath_tanh(vf x)
{
    vf rest, s = vmath_sigmoid(2.0f * x, &rest);
    return s - rest;
}

/* Returns act(x); *slope = act'(x). Once inlined, an unused result costs nothing. */
static inline vf vmath_act(act_kind act, vf x, vf *slope)
{
    switch (act) {
    case ACT_SILU: {
        vf rest, s = vmath_sigmoid(x, &rest);
        *slope = s * vec_fma(x, rest, vec_set(1.0f));
        return x * s;
    }
    case ACT_GELU: {
        vf density, cdf = vmath_normal(x, &density);
        *slope = vec_fma(x, density, cdf);
        return x * cdf;
    }
    case ACT_GELU_TANH: { /* x/2 (1 + tanh u) = x sigmoid(2u) */
        const float c = 2 * 0.7978845608f, d = 0.044715f;
        vf u = c * x * vec_fma(x * x, vec_set(d), vec_set(1.0f));
        vf rest, s = vmath_sigmoid(u, &rest);
        vf du = c * vec_fma(x * x, vec_set(3 * d), vec_set(1.0f));
        *slope = s * vec_fma(x * du, rest, vec_set(1.0f));
        return x * s;
    }
    case ACT_CLAMPED: {
        const vf most = vec_set(7.0f);
        vi beyond = vec_less(most, x);
        vf at = vec_select(beyond, most, x); /* NaN stays */
        vf rest, s = vmath_sigmoid(1.702f * at, &rest);
        *slope = vec_select(beyond, vec_set(0.0f), s * vec_fma(1.702f * at, rest, vec_set(1.0f)));
        return at * s;
    }
    case ACT_SIGMOID: {
        vf rest, s = vmath_sigmoid(x, &rest);
        *slope = s * rest;
        return s;
    }
    case ACT_RELU:
        break;
    }
    *slope = vec_select(vec_less(vec_set(0.0f), x), vec_set(1.0f), vec_set(0.0f));
    return vec_max(vec_set(0.0f), x); /* NaN stays */
}

/* The other factor of a GLU, and its slope. */
static inline vf vmath_glu_up(act_kind act, vf up, vf *slope)
{
    *slope = vec_set(1.0f);
    if (act != ACT_CLAMPED)
        return up;
    const vf most = vec_set(7.0f), least = vec_set(-7.0f);
    vi above = vec_less(most, up), below = vec_less(up, least);
    *slope = vec_select(above | below, vec_set(0.0f), vec_set(1.0f));
    return vec_select(below, least, vec_select(above, most, up)) + 1.0f;
}

/* ln x for normal x > 0; infinity and NaN are returned as they are. 2 atanh((m-1)/(m+1)) as a
 * series in double, x = 2^e m, m in [sqrt 1/2, sqrt 2). */
static inline vf vmath_log(vf x)
{
    typedef double wide __attribute__((vector_size(2 * VEC_BYTES)));
    vi u = (vi)x, fraction = u & 0x7fffff,
       large = vec_int_less(vec_set_int(0x3504f3), fraction); /* than that of sqrt 2 */
    wide m = __builtin_convertvector((vf)(fraction | (127 + large) << 23), wide);
    wide e = __builtin_convertvector((u >> 23) - 127 - large, wide);
    wide s = (m - 1.0) / (m + 1.0), s2 = s * s, p = s2 / 15;
    for (int k = 13; k > 1; k -= 2)
        p = (p + 1.0 / k) * s2;
    vf y = __builtin_convertvector(e * 0.6931471805599453 + 2.0 * s * (p + 1.0), vf);
    return vec_select(vec_less(x, vec_set(INFINITY)), y, x);
}

#endif
