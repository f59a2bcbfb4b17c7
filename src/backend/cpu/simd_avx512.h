/* simd_avx512: primitives on vectors of 512 bits; see simd.h. */
#include <immintrin.h>

enum { VECTOR = 16, TILE_ROWS = 14, UNROLL = 1, PREFETCH_STEP = 16 };
typedef __m512i vec;
typedef __m512 vecf;
#define MANY_REGISTERS 1
#define TABLE_OF_16 1
#define SIMD(name) _mm512_##name
#define EVEN_PARTS(a, b) _mm512_shuffle_i32x4(a, b, 0x88)
#define ODD_PARTS(a, b) _mm512_shuffle_i32x4(a, b, 0xDD)
#include "backend/cpu/simd.h"

INLINE uint32_t first_bits(int64_t n)
{
    return n >= 32 ? UINT32_MAX : n <= 0 ? 0 : (1u << n) - 1;
}

INLINE vec zero_elements(void)
{
    return _mm512_setzero_si512();
}

INLINE vecf zero_sums(void)
{
    return _mm512_setzero_ps();
}

/* Adding to it changes no bit, not even the sign of a zero. */
INLINE vecf minus_zero(void)
{
    return _mm512_set1_ps(-0.0f);
}

INLINE vecf as_floats(vec x)
{
    return _mm512_castsi512_ps(x);
}

INLINE vec load_elements(const mm_element *at)
{
    return _mm512_loadu_si512(at);
}

INLINE void store_elements(mm_element *at, vec x)
{
    _mm512_storeu_si512(at, x);
}

/* Its first n. */
INLINE void store_some_elements(mm_element *at, vec x, int64_t n)
{
    _mm512_mask_storeu_epi32(at, (__mmask16)first_bits(n), x);
}

/* sum + x y. */
INLINE vecf multiply_elements(vecf sum, vec x, vec y)
{
#if PAIRS
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
#else
    return _mm512_fmadd_ps(as_floats(x), as_floats(y), sum);
#endif
}

/* sum + a b, with a in every lane. */
INLINE vecf multiply_add(vecf sum, mm_element a, vec b)
{
    return multiply_elements(sum, _mm512_set1_epi32((int)a), b);
}

INLINE vecf load_sums(const float *at)
{
    return _mm512_loadu_ps(at);
}

INLINE vecf add_sums(vecf x, vecf y)
{
    return _mm512_add_ps(x, y);
}

INLINE vecf scale_sums(vecf x, float scale)
{
    return _mm512_mul_ps(x, _mm512_set1_ps(scale));
}

INLINE void put_sums(float *at, vecf sum, bool add)
{
    _mm512_storeu_ps(at, add ? _mm512_add_ps(_mm512_loadu_ps(at), sum) : sum);
}

/* VECTOR bytes. */
INLINE __m128i vector_of_bytes(const char *at)
{
    return _mm_loadu_si128((const void *)at);
}

/* 32 bytes, and the 32 that begin 64 bytes further on. */
INLINE vec bytes_and_64_on(const uint8_t *at)
{
    vec first = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)at));
    return _mm512_inserti64x4(first, _mm256_loadu_si256((const void *)(at + 64)), 1);
}

/* A number in f16, in every lane. */
INLINE vecf every_half(uint16_t bits)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)bits));
}

/* VALUES vectors of values, neighbours in k, as elements. */
INLINE vec elements_of(const vecf values[VALUES])
{
#if PAIRS
    return (vec)_mm512_cvtne2ps_pbh(values[1], values[0]);
#else
    return _mm512_castps_si512(values[0]);
#endif
}

/* ---- bf16 */

/* To the nearest bf16 value, ties to even; a NaN stays one. */
INLINE vec round_bf16(vec x)
{
    vec odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    vec up = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7FFF)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(as_floats(x), as_floats(x), _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, x, _mm512_set1_epi32(0x400000));
    return _mm512_and_si512(up, _mm512_set1_epi32(HIGH_HALF));
}

/* The same for numbers, infinity, and NaN as plain_nan() leaves it. */
INLINE vec round_bf16_number(vec x)
{
    vec odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    vec up = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_and_si512(up, _mm512_set1_epi32(HIGH_HALF));
}

/* Any NaN as the one whose rounding cannot overflow. */
INLINE vec plain_nan(vec x)
{
    __mmask16 nan = _mm512_cmp_ps_mask(as_floats(x), as_floats(x), _CMP_UNORD_Q);
    return _mm512_mask_set1_epi32(x, nan, 0x7FC00000);
}

#if PAIRS
/* Pairs of f32 values rounded to bf16: `even` in the low halves, `odd` in the high ones. */
INLINE vec pair_up(vec even, vec odd)
{
    const vec order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                       23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512bh both = _mm512_cvtne2ps_pbh(as_floats(odd), as_floats(even));
    return _mm512_permutexvar_epi16(order, (vec)both);
}

/* n bf16, zero-extended. */
INLINE vec load_bf16(const char *at, int64_t n)
{
    return _mm512_cvtepu16_epi32(n >= VECTOR
                                     ? _mm256_loadu_si256((const void *)at)
                                     : _mm256_maskz_loadu_epi16(first_bits(n) & 0xFFFF, at));
}

/* Pairs of n bf16 at `even` and n at `odd`, the next k; k: how many of the two exist. */
INLINE vec pair_bf16(const char *even, const char *odd, int64_t n, int64_t k)
{
    vec low = k > 0 ? load_bf16(even, n) : zero_elements(),
        high = k > 1 ? load_bf16(odd, n) : zero_elements();
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
#endif

/* ---- memory */

/* Up to VECTOR values of f32 or bf16 as f32, zeros after n. */
INLINE vec load_values(dtype dt, const char *at, int64_t n)
{
    if (dt == DT_F32)
        return n >= VECTOR ? _mm512_loadu_si512(at)
                           : _mm512_maskz_loadu_epi32((__mmask16)first_bits(n), at);
    __m256i x = n >= VECTOR ? _mm256_loadu_si256((const void *)at)
                            : _mm256_maskz_loadu_epi16((__mmask16)first_bits(n), at);
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

INLINE void store_values(dtype dt, char *at, vecf x, int64_t n)
{
    __mmask16 mask = (__mmask16)first_bits(n);
    if (dt == DT_F32) {
        _mm512_mask_storeu_ps(at, mask, x);
    } else {
#if PAIRS
        __m256i bits = (__m256i)_mm512_cvtneps_pbh(x);
#else
        vec wide = _mm512_srli_epi32(round_bf16(_mm512_castps_si512(x)), 16);
        __m256i bits = _mm512_cvtepi32_epi16(wide);
#endif
        _mm256_mask_storeu_epi16(at, mask, bits);
    }
}

/* VECTOR elements of a row whose k is contiguous; zeros after n values. */
INLINE vec load_row_elements(dtype dt, mm_format format, const char *at, int64_t n)
{
#if PAIRS
    (void)format;
    if (dt == DT_BF16)
        return _mm512_maskz_loadu_epi16((__mmask32)first_bits(n), at);
    vec low = load_values(DT_F32, at, n), high = load_values(DT_F32, at + 64, n - VECTOR);
    return (vec)_mm512_cvtne2ps_pbh(as_floats(high), as_floats(low));
#else
    vec x = load_values(dt, at, n);
    return format == MM_BF16_WIDENED && dt != DT_BF16 ? round_bf16(x) : x;
#endif
}

/* VECTOR neighbouring codes. */
INLINE vec load_nf4(const char *at, float scale)
{
    const vec shifts = _mm512_set_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    __m128i bytes = _mm_loadl_epi64((const void *)at);
    vec codes = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes)), shifts);
    vecf code = _mm512_permutexvar_ps(codes, _mm512_loadu_ps(nf4_code));
    return _mm512_castps_si512(_mm512_mul_ps(code, _mm512_set1_ps(scale)));
}

#if PAIRS
/* The sixteen codes times a scale, as bf16, twice: bit 4 of an index does not matter. */
INLINE vec nf4_table(float scale)
{
    vecf values = _mm512_mul_ps(_mm512_loadu_ps(nf4_code), _mm512_set1_ps(scale));
    return (vec)_mm512_cvtne2ps_pbh(values, values);
}

/* Decodes a block of NF4, 64 codes in eight dwords, into 32 elements of MM_BF16_PAIR_NF4. Shifting
 * every 16-bit half of the codes by 4, 0, 12 and 8 bits gives elements 0, 1, 2 and 3 of each dword:
 * out[0] holds elements 0 of all dwords, then elements 1; out[1] elements 2, then 3. */
INLINE void nf4_block(const char *at, float scale, vec out[NF4_VECTORS])
{
    const vec shifts01 = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_setzero_si256(), 1);
    const vec shifts23 = _mm512_inserti64x4(_mm512_set1_epi16(12), _mm256_set1_epi16(8), 1);
    vec codes = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)at));
    vec table = nf4_table(scale);
    out[0] = _mm512_permutexvar_epi16(_mm512_srlv_epi16(codes, shifts01), table);
    out[1] = _mm512_permutexvar_epi16(_mm512_srlv_epi16(codes, shifts23), table);
}

/* Reorders 64 bf16 that are neighbours in k into the order of nf4_block, in place. */
INLINE void reorder_as_nf4(mm_element *first, mm_element *second)
{
    const vec order = _mm512_set_epi16(61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1,
                                       60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    vec low = load_elements(first), high = load_elements(second);
    vec order23 = _mm512_add_epi16(order, _mm512_set1_epi16(2));
    store_elements(first, _mm512_permutex2var_epi16(low, order, high));
    store_elements(second, _mm512_permutex2var_epi16(low, order23, high));
}
#endif

/* out[j] = dword j, from `byte` on, of all sixteen rows; zeros after `left` bytes. Each vector
 * holds eight dwords of two rows: i and i + 4 for i < 4, else i + 4 and i + 8. */
INLINE void load_transposed(const row_pointers *rows, int64_t byte, int64_t left, vec out[DWORDS])
{
    __mmask16 mask = (__mmask16)first_bits(left / 2);
    bool whole = left >= DWORDS * 4;
    vec in[DWORDS];
#pragma GCC unroll 64
    for (int i = 0; i < DWORDS; i++) {
        const char *a = rows->row[i < 4 ? i : i + 4] + byte;
        const char *b = rows->row[i < 4 ? i + 4 : i + 8] + byte;
        __m256i low =
            whole ? _mm256_loadu_si256((const void *)a) : _mm256_maskz_loadu_epi16(mask, a);
        __m256i high =
            whole ? _mm256_loadu_si256((const void *)b) : _mm256_maskz_loadu_epi16(mask, b);
        in[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    transpose(in, out);
}

/* Value i of the rows' transposed dwords, as f32. */
INLINE vec value_of(dtype dt, const vec *dwords, int i, vec scale)
{
    if (dt == DT_F32)
        return dwords[i];
    if (dt == DT_BF16)
        return i % 2 ? _mm512_and_si512(dwords[i / 2], _mm512_set1_epi32(HIGH_HALF))
                     : _mm512_slli_epi32(dwords[i / 2], 16);
    vec index = _mm512_srli_epi32(dwords[0], (unsigned)nf4_shift(i));
    vecf code = _mm512_permutexvar_ps(index, _mm512_loadu_ps(nf4_code));
    return _mm512_castps_si512(_mm512_mul_ps(code, as_floats(scale)));
}
