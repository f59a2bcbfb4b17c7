/* simd_avx2: primitives on vectors of 256 bits; see simd.h. */
#include <immintrin.h>
#include <string.h>

enum { VECTOR = 8, TILE_ROWS = 6, UNROLL = 4, PREFETCH_STEP = 64 };
typedef __m256i vec;
typedef __m256 vecf;
#define MANY_REGISTERS 0
#define TABLE_OF_16 0
#define SIMD(name) _mm256_##name
#define EVEN_PARTS(a, b) _mm256_permute2x128_si256(a, b, 0x20)
#define ODD_PARTS(a, b) _mm256_permute2x128_si256(a, b, 0x31)
#include "backend/cpu/simd.h"

INLINE vec zero_elements(void)
{
    return _mm256_setzero_si256();
}

INLINE vecf zero_sums(void)
{
    return _mm256_setzero_ps();
}

INLINE vecf as_floats(vec x)
{
    return _mm256_castsi256_ps(x);
}

INLINE vec load_elements(const mm_element *at)
{
    return _mm256_loadu_si256((const void *)at);
}

INLINE void store_elements(mm_element *at, vec x)
{
    _mm256_storeu_si256((void *)at, x);
}

/* sum + a b, with a in every lane. In assembly, because GCC copies sums between registers in the
 * unrolled loop of the micro-kernel, which has no register to spare. */
INLINE vecf multiply_add(vecf sum, mm_element a, vec b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(_mm256_set1_epi32((int)a)), "x"(b));
    return sum;
}

/* sum + x y. */
INLINE vecf multiply_elements(vecf sum, vec x, vec y)
{
    return _mm256_fmadd_ps(as_floats(x), as_floats(y), sum);
}

INLINE vecf load_sums(const float *at)
{
    return _mm256_loadu_ps(at);
}

INLINE vecf add_sums(vecf x, vecf y)
{
    return _mm256_add_ps(x, y);
}

INLINE vecf scale_sums(vecf x, float scale)
{
    return _mm256_mul_ps(x, _mm256_set1_ps(scale));
}

INLINE void put_sums(float *at, vecf sum, bool add)
{
    _mm256_storeu_ps(at, add ? _mm256_add_ps(_mm256_loadu_ps(at), sum) : sum);
}

/* VECTOR bytes. */
INLINE __m128i vector_of_bytes(const char *at)
{
    return _mm_loadl_epi64((const void *)at);
}

/* 32 bytes; with AVX-512 also those that begin 64 bytes further on. */
INLINE vec bytes_and_64_on(const uint8_t *at)
{
    return _mm256_loadu_si256((const void *)at);
}

/* A number in f16, in every lane. */
INLINE vecf every_half(uint16_t bits)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((int16_t)bits));
}

/* VALUES vectors of values, neighbours in k, as elements. */
INLINE vec elements_of(const vecf values[VALUES])
{
    return _mm256_castps_si256(values[0]);
}

/* To the nearest bf16 value, ties to even; a NaN stays one. */
INLINE vec round_bf16(vec x)
{
    vec odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    vec up = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7FFF)), odd);
    vec quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    vecf nan = _mm256_cmp_ps(as_floats(x), as_floats(x), _CMP_UNORD_Q);
    vecf y = _mm256_blendv_ps(as_floats(up), as_floats(quiet), nan);
    return _mm256_and_si256(_mm256_castps_si256(y), _mm256_set1_epi32(HIGH_HALF));
}

/* The same for numbers, infinity, and NaN as plain_nan() leaves it. */
INLINE vec round_bf16_number(vec x)
{
    vec odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    vec up = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_and_si256(up, _mm256_set1_epi32(HIGH_HALF));
}

/* Any NaN as the one whose rounding cannot overflow. */
INLINE vec plain_nan(vec x)
{
    vecf nan = _mm256_cmp_ps(as_floats(x), as_floats(x), _CMP_UNORD_Q);
    vecf plain = as_floats(_mm256_set1_epi32(0x7FC00000));
    return _mm256_castps_si256(_mm256_blendv_ps(as_floats(x), plain, nan));
}

/* ---- memory */

/* 32 bytes, zeros after `left`. */
INLINE vec load_bytes(const char *at, int64_t left)
{
    if (left >= 32)
        return _mm256_loadu_si256((const void *)at);
    char bytes[32] = { 0 };
    if (left > 0)
        memcpy(bytes, at, (size_t)left);
    return _mm256_loadu_si256((const void *)bytes);
}

/* Up to VECTOR values of f32 or bf16 as f32, zeros after n. */
INLINE vec load_values(dtype dt, const char *at, int64_t n)
{
    if (dt == DT_F32)
        return load_bytes(at, n * 4);
    __m128i x = n >= VECTOR ? _mm_loadu_si128((const void *)at)
                            : _mm256_castsi256_si128(load_bytes(at, n * 2));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16);
}

INLINE void store_values(dtype dt, char *at, vecf x, int64_t n)
{
    vec bits = _mm256_castps_si256(x);
    if (dt == DT_BF16) {
        bits = _mm256_srli_epi32(round_bf16(bits), 16);
        bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
    }
    char bytes[32];
    _mm256_storeu_si256((void *)bytes, bits);
    memcpy(at, bytes, (size_t)bytes_of(dt, n < VECTOR ? n : VECTOR));
}

/* VECTOR elements of a row whose k is contiguous; zeros after n values. */
INLINE vec load_row_elements(dtype dt, mm_format format, const char *at, int64_t n)
{
    vec x = load_values(dt, at, n);
    return format == MM_BF16_WIDENED && dt != DT_BF16 ? round_bf16(x) : x;
}

/* Looks up the code in the low four bits of each lane. A permutation has eight entries, so two of
 * them make a table of sixteen. */
INLINE vec nf4_values(vec index, vecf scale)
{
    vecf low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nf4_code), index);
    vecf high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nf4_code + 8), index);
    vecf code = _mm256_blendv_ps(low, high, as_floats(_mm256_slli_epi32(index, 28)));
    return _mm256_castps_si256(_mm256_mul_ps(code, scale));
}

/* VECTOR neighbouring codes. */
INLINE vec load_nf4(const char *at, float scale)
{
    int codes;
    memcpy(&codes, at, sizeof codes);
    const vec shifts = _mm256_set_epi32(24, 28, 16, 20, 8, 12, 0, 4);
    return nf4_values(_mm256_srlv_epi32(_mm256_set1_epi32(codes), shifts), _mm256_set1_ps(scale));
}

/* out[j] = dword j, from `byte` on, of all eight rows; zeros after `left` bytes. */
INLINE void load_transposed(const row_pointers *rows, int64_t byte, int64_t left, vec out[DWORDS])
{
    vec in[DWORDS];
#pragma GCC unroll 64
    for (int i = 0; i < DWORDS; i++)
        in[i] = load_bytes(rows->row[i] + byte, left);
    transpose(in, out);
}

/* Value i of the rows' transposed dwords, as f32. */
INLINE vec value_of(dtype dt, const vec *dwords, int i, vec scale)
{
    if (dt == DT_F32)
        return dwords[i];
    if (dt == DT_BF16)
        return i % 2 ? _mm256_and_si256(dwords[i / 2], _mm256_set1_epi32(HIGH_HALF))
                     : _mm256_slli_epi32(dwords[i / 2], 16);
    return nf4_values(_mm256_srli_epi32(dwords[0], nf4_shift(i)), as_floats(scale));
}
