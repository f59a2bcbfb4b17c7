/* vec_aarch64: the primitives of vec.h with NEON.
 *
 * A vector is two registers of 128 bits: so it has the lanes of AVX2, and with them the order of
 * every sum. The compiler divides plain arithmetic among the registers by itself, comparisons and
 * intrinsics are divided here. */
#include <arm_neon.h>

#define VEC_BYTES 32
#include "backend/cpu/ops/vec_types.h"

typedef union vec_parts {
    vf f;
    vi i;
    vu u;
    vl l;
    float32x4_t f4[2];
    int32x4_t i4[2];
    uint32x4_t u4[2];
    uint64x2_t l2[2];
} vec_parts;

/* Returns a vector of which each part p is as written. */
#define VEC_BY_PARTS(whole, out, ...)                                                              \
    vec_parts r;                                                                                   \
    for (int p = 0; p < 2; p++)                                                                    \
        r.out[p] = __VA_ARGS__;                                                                    \
    return r.whole

static inline vf vec_fma(vf a, vf b, vf c)
{
    vec_parts x = { a }, y = { b }, z = { c };
    VEC_BY_PARTS(f, f4, vfmaq_f32(z.f4[p], x.f4[p], y.f4[p]));
}

static inline vf vec_min(vf a, vf b)
{
    vec_parts x = { a }, y = { b };
    VEC_BY_PARTS(f, f4, vbslq_f32(vcltq_f32(x.f4[p], y.f4[p]), x.f4[p], y.f4[p]));
}

static inline vf vec_max(vf a, vf b)
{
    vec_parts x = { a }, y = { b };
    VEC_BY_PARTS(f, f4, vbslq_f32(vcgtq_f32(x.f4[p], y.f4[p]), x.f4[p], y.f4[p]));
}

static inline vf vec_sqrt(vf a)
{
    vec_parts x = { a };
    VEC_BY_PARTS(f, f4, vsqrtq_f32(x.f4[p]));
}

static inline vi vec_less(vf a, vf b)
{
    vec_parts x = { a }, y = { b };
    VEC_BY_PARTS(i, u4, vcltq_f32(x.f4[p], y.f4[p]));
}

static inline vi vec_equal(vf a, vf b)
{
    vec_parts x = { a }, y = { b };
    VEC_BY_PARTS(i, u4, vceqq_f32(x.f4[p], y.f4[p]));
}

static inline vi vec_int_less(vi a, vi b)
{
    vec_parts x = { .i = a }, y = { .i = b };
    VEC_BY_PARTS(i, u4, vcltq_s32(x.i4[p], y.i4[p]));
}

static inline vl vec_multiply_words(vl a, vl b)
{
    vec_parts x = { .l = a }, y = { .l = b };
    VEC_BY_PARTS(l, l2, vmull_u32(vmovn_u64(x.l2[p]), vmovn_u64(y.l2[p])));
}

static inline vl vec_unpack_low(vl a, vl b)
{
    vec_parts x = { .l = a }, y = { .l = b };
    VEC_BY_PARTS(l, l2, vzip1q_u64(x.l2[p], y.l2[p]));
}

static inline vl vec_unpack_high(vl a, vl b)
{
    vec_parts x = { .l = a }, y = { .l = b };
    VEC_BY_PARTS(l, l2, vzip2q_u64(x.l2[p], y.l2[p]));
}

static inline vf vec_widen(vh h)
{
    uint16x8_t x = (uint16x8_t)h;
    vec_parts r = { .u4 = { vshll_n_u16(vget_low_u16(x), 16), vshll_high_n_u16(x, 16) } };
    return r.f;
}

/* Rounding could carry a NaN's fraction away. */
static inline uint32x4_t vec_round_part(float32x4_t x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    return vbslq_u32(vceqq_f32(x, x), rounded, quiet);
}

static inline vh vec_round(vf a)
{
    vec_parts x = { a };
    uint16x4_t low = vshrn_n_u32(vec_round_part(x.f4[0]), 16);
    return (vh)vshrn_high_n_u32(low, vec_round_part(x.f4[1]), 16);
}

static inline vh vec_narrow(vf x)
{
    return vec_round(x);
}

static inline float vec_sum(vf v)
{
    vec_parts x = { v };
    float32x4_t q = vaddq_f32(x.f4[0], x.f4[1]);
    float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}

/* The larger of two numbers as vec_max() says. */
static inline float vec_top(vf v)
{
    vec_parts x = { v };
    float32x4_t q = vbslq_f32(vcgtq_f32(x.f4[0], x.f4[1]), x.f4[0], x.f4[1]);
    float32x2_t low = vget_low_f32(q), high = vget_high_f32(q);
    float32x2_t h = vbsl_f32(vcgt_f32(low, high), low, high);
    float first = vget_lane_f32(h, 0), second = vget_lane_f32(h, 1);
    return first > second ? first : second;
}
