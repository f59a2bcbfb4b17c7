/* vec_x86_64: the primitives of vec.h with SSE2, AVX2 or AVX-512, as the compiler's options say. */
#include <immintrin.h>

#if defined(__AVX512F__)
#define VEC_BYTES 64
#define VEC_INTRINSIC(name) _mm512_##name
#define VEC_INTEGERS __m512i
#elif defined(__AVX2__)
#define VEC_BYTES 32
#define VEC_INTRINSIC(name) _mm256_##name
#define VEC_INTEGERS __m256i
#else
#define VEC_BYTES 16
#define VEC_INTRINSIC(name) _mm_##name
#define VEC_INTEGERS __m128i
#endif
#include "backend/cpu/ops/vec_types.h"

static inline vf vec_fma(vf a, vf b, vf c)
{
#ifdef __FMA__
    return VEC_INTRINSIC(fmadd_ps)(a, b, c);
#else
    return a * b + c;
#endif
}

static inline vf vec_min(vf a, vf b)
{
    return VEC_INTRINSIC(min_ps)(a, b);
}

static inline vf vec_max(vf a, vf b)
{
    return VEC_INTRINSIC(max_ps)(a, b);
}

static inline vf vec_sqrt(vf x)
{
    return VEC_INTRINSIC(sqrt_ps)(x);
}

static inline vi vec_less(vf a, vf b)
{
    return a < b;
}

static inline vi vec_equal(vf a, vf b)
{
    return a == b;
}

static inline vi vec_int_less(vi a, vi b)
{
    return a < b;
}

static inline vl vec_multiply_words(vl a, vl b)
{
    return (vl)VEC_INTRINSIC(mul_epu32)((VEC_INTEGERS)a, (VEC_INTEGERS)b);
}

static inline vl vec_unpack_low(vl a, vl b)
{
    return (vl)VEC_INTRINSIC(unpacklo_epi64)((VEC_INTEGERS)a, (VEC_INTEGERS)b);
}

static inline vl vec_unpack_high(vl a, vl b)
{
    return (vl)VEC_INTRINSIC(unpackhi_epi64)((VEC_INTEGERS)a, (VEC_INTEGERS)b);
}

static inline vf vec_widen(vh h)
{
#if defined(__AVX512F__)
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

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

static inline vh vec_narrow(vf x)
{
#if defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh(x);
#else
    return vec_round(x);
#endif
}

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
