/* vec: SIMD vectors as wide as those of the instruction set.
 *
 * A vf holds VEC_LANES floats. Loads and stores take `left`, the number of values that remain: the
 * last vector of a row is padded with zeros on load and stored only as far as the row goes. So a
 * loop needs no second body for its tail, and a value does not depend on its lane. bf16 becomes f32
 * on load and is rounded to nearest even on store.
 *
 * Sums are kept as VEC_LANES (times the unrolling) partial sums and reduced in a fixed tree. */
#ifndef PESC_BACKEND_CPU_OPS_VEC_H
#define PESC_BACKEND_CPU_OPS_VEC_H

#include "tensor/dtype.h"

#include <immintrin.h>
#include <string.h>

#if defined(__AVX512F__)
#define VEC_BYTES 64
#define VEC_INTRINSIC(name) _mm512_##name
#elif defined(__AVX2__)
#define VEC_BYTES 32
#define VEC_INTRINSIC(name) _mm256_##name
#else
#define VEC_BYTES 16
#define VEC_INTRINSIC(name) _mm_##name
#endif
enum { VEC_LANES = VEC_BYTES / 4 };

typedef float vf __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vi __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t vh __attribute__((vector_size(VEC_BYTES / 2)));
typedef float vf_any __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(VEC_BYTES / 2), aligned(2), may_alias));

static inline vf vec_set(float x)
{
    return x - (vf){ 0 }; /* x - 0, not x + 0: keeps the sign of a zero */
}

/* 0, 1, 2, ... */
static inline vi vec_numbers(void)
{
    vi n = { 0 };
    for (int i = 0; i < VEC_LANES; i++)
        n[i] = i;
    return n;
}

static inline vf vec_fma(vf a, vf b, vf c)
{
#ifdef __FMA__
    return VEC_INTRINSIC(fmadd_ps)(a, b, c);
#else
    return a * b + c;
#endif
}

/* a where it is smaller (larger), else b: b where one of them is NaN. */
static inline vf vec_min(vf a, vf b)
{
    return VEC_INTRINSIC(min_ps)(a, b);
}

static inline vf vec_max(vf a, vf b)
{
    return VEC_INTRINSIC(max_ps)(a, b);
}

/* m ? a : b; lanes of m are all ones or all zeros, as comparisons return. */
static inline vf vec_select(vi m, vf a, vf b)
{
    return (vf)((m & (vi)a) | (~m & (vi)b));
}

/* ---- memory ---- */

static inline vf vec_widen(vh h)
{
#if defined(__AVX512F__)
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

/* Rounds exactly, for numbers that are only copied. */
static inline vh vec_round(vf x)
{
    vu u = (vu)x;
    vu rounded = u + 0x7fff + ((u >> 16) & 1);
    vu quiet = u | 0x400000; /* rounding could carry a NaN's fraction away */
#if defined(__AVX512F__)
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i bits = _mm512_mask_mov_epi32((__m512i)rounded, nan, (__m512i)quiet);
    return (vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
#else
    vu nan = (vu)(x != x);
    return __builtin_convertvector(((nan & quiet) | (~nan & rounded)) >> 16, vh);
#endif
}

/* Rounds results. The CPU's own conversion, where it has one, flushes what is below 2^-126 to 0. */
static inline vh vec_narrow(vf x)
{
#if defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh(x);
#else
    return vec_round(x);
#endif
}

static inline vf vec_load(const void *p, int64_t i, int64_t left, dtype dt)
{
    if (dt == DT_F32) {
        const float *x = (const float *)p + i;
        if (left >= VEC_LANES)
            return *(const vf_any *)x;
        vf v = { 0 };
        memcpy(&v, x, (size_t)left * 4);
        return v;
    }
    const uint16_t *x = (const uint16_t *)p + i;
    if (left >= VEC_LANES)
        return vec_widen(*(const vh_any *)x);
    vh h = { 0 };
    memcpy(&h, x, (size_t)left * 2);
    return vec_widen(h);
}

static inline void vec_store_half(void *p, int64_t i, int64_t left, vh h)
{
    uint16_t *x = (uint16_t *)p + i;
    if (left >= VEC_LANES)
        *(vh_any *)x = h;
    else
        memcpy(x, &h, (size_t)left * 2);
}

static inline void vec_store(void *p, int64_t i, int64_t left, dtype dt, vf v)
{
    if (dt == DT_F32) {
        float *x = (float *)p + i;
        if (left >= VEC_LANES)
            *(vf_any *)x = v;
        else
            memcpy(x, &v, (size_t)left * 4);
        return;
    }
    vec_store_half(p, i, left, vec_narrow(v));
}

/* Copies n numbers, converting where the types differ. */
static inline void vec_copy(void *dst, dtype dst_dt, const void *src, dtype src_dt, int64_t n)
{
    if (dst_dt == src_dt) {
        memcpy(dst, src, (size_t)n * (dst_dt == DT_F32 ? 4 : 2));
        return;
    }
    for (int64_t i = 0; i < n; i += VEC_LANES)
        if (dst_dt == DT_F32)
            vec_store(dst, i, n - i, DT_F32, vec_load(src, i, n - i, src_dt));
        else
            vec_store_half(dst, i, n - i, vec_round(vec_load(src, i, n - i, src_dt)));
}

/* The address of element i of a row of f32 or bf16. */
static inline void *vec_at(void *p, int64_t i, dtype dt)
{
    return (char *)p + i * (dt == DT_F32 ? 4 : 2);
}

static inline const void *vec_at_const(const void *p, int64_t i, dtype dt)
{
    return (const char *)p + i * (dt == DT_F32 ? 4 : 2);
}

/* ---- reductions: the upper half is combined with the lower until one value is left ---- */

static inline __m128 vec_upper(__m128 q, int halves)
{
    return halves == 2 ? _mm_movehl_ps(q, q) : _mm_shuffle_ps(q, q, 1);
}

static inline float vec_sum(vf v)
{
#if defined(__AVX512F__)
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#elif defined(__AVX2__)
    __m256 h = v;
#endif
#if defined(__AVX2__)
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
#else
    __m128 q = v;
#endif
    q = _mm_add_ps(q, vec_upper(q, 2));
    return _mm_cvtss_f32(_mm_add_ss(q, vec_upper(q, 1)));
}

static inline float vec_top(vf v)
{
#if defined(__AVX512F__)
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#elif defined(__AVX2__)
    __m256 h = v;
#endif
#if defined(__AVX2__)
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
#else
    __m128 q = v;
#endif
    q = _mm_max_ps(q, vec_upper(q, 2));
    return _mm_cvtss_f32(_mm_max_ss(q, vec_upper(q, 1)));
}

/* sum of a[i] b[i] over n numbers. Four vectors of partial sums hide the latency of an add. */
static inline float vec_dot(const void *a, dtype a_dt, const void *b, dtype b_dt, int64_t n)
{
    vf s[4] = { 0 };
    for (int64_t i = 0; i < n; i += 4 * VEC_LANES)
        for (int j = 0; j < 4 && i + j * VEC_LANES < n; j++) {
            int64_t at = i + j * VEC_LANES;
            s[j] = vec_fma(vec_load(a, at, n - at, a_dt), vec_load(b, at, n - at, b_dt), s[j]);
        }
    return vec_sum((s[0] + s[1]) + (s[2] + s[3]));
}

#endif
