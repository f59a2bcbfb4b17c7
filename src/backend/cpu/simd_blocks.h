/* simd_blocks: GGUF's block formats (tensor/quants.h) decoded with AVX2, included by kernel_avx2.c
 * after kernel_simd.h.
 *
 * In every format a group of 32 values is 32 small integers, the codes, times a scale for each half
 * of the group or for all of it, plus a minimum. Decoding has two steps: the scales and minima of a
 * row are collected as f32 (row_factors), then the codes of each group are widened and multiplied
 * (group_values). The products scale * code are exact in f32 wherever a minimum is added, so fused
 * multiply-adds give the bits of quants_unpack(). */
#include "tensor/quants.h"

enum { GROUP_VECTORS = QUANTS_GROUP / VECTOR };

_Static_assert(GROUP_VECTORS == 4, "a group is four vectors, two for each half");

INLINE bool has_minimum(dtype dt)
{
    return dt == DT_Q4_1 || dt == DT_Q5_1 || dt == DT_Q4_K || dt == DT_Q5_K;
}

INLINE int scales_of_group(dtype dt)
{
    return dt == DT_Q6_K ? 2 : 1;
}

/* Groups of a block. */
INLINE int64_t block_groups(dtype dt)
{
    return dt == DT_Q4_K || dt == DT_Q5_K || dt == DT_Q6_K ? 8 : 1;
}

/* Bytes of a group; of a block where dt has several groups in one, on average. */
INLINE int64_t group_bytes(dtype dt)
{
    return dt == DT_Q4_0 || dt == DT_IQ4_NL || dt == DT_Q4_K ? 18
           : dt == DT_Q4_1                                   ? 20
           : dt == DT_Q5_0 || dt == DT_Q5_K                  ? 22
           : dt == DT_Q5_1                                   ? 24
           : dt == DT_Q6_K                                   ? 27
           : dt == DT_Q8_0                                   ? 34
                                                             : 128; /* f32 */
}

INLINE int64_t block_bytes(dtype dt)
{
    return dt == DT_Q6_K ? 210 : group_bytes(dt) * block_groups(dt);
}

/* ---- scales and minima */

INLINE float half_at(const uint8_t *at)
{
    uint16_t h;
    memcpy(&h, at, sizeof h);
    return _cvtsh_ss(h);
}

INLINE uint32_t word_at(const uint8_t *at)
{
    uint32_t u;
    memcpy(&u, at, sizeof u);
    return u;
}

/* Eight bytes (given as two words) times d. */
INLINE vecf scaled_bytes(uint32_t low, uint32_t high, float d)
{
    vec x = _mm256_cvtepu8_epi32(_mm_set_epi32(0, 0, (int)high, (int)low));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(d));
}

/* Q4_K and Q5_K: the 6-bit scales and minima of eight groups, four in a word: the low six bits of
 * words 0 and 1 are those of groups 0..3; groups 4..7 have their low four bits in the nibbles of
 * word 2 and the upper two on top of words 0 and 1. */
INLINE void six_bit_factors(const uint8_t *block, float *scale, float *minimum)
{
    const uint32_t six = 0x3F3F3F3F, four = 0x0F0F0F0F, two = 0x03030303;
    uint32_t w0 = word_at(block + 4), w1 = word_at(block + 8), w2 = word_at(block + 12);
    uint32_t high_scale = (w2 & four) | (w0 >> 6 & two) << 4;
    uint32_t high_minimum = (w2 >> 4 & four) | (w1 >> 6 & two) << 4;
    _mm256_storeu_ps(scale, scaled_bytes(w0 & six, high_scale, half_at(block)));
    _mm256_storeu_ps(minimum, scaled_bytes(w1 & six, high_minimum, -half_at(block + 2)));
}

INLINE void q6_k_factors(const uint8_t *block, float *scale)
{
    vecf d = _mm256_set1_ps(half_at(block + 208));
    for (int i = 0; i < 16; i += VECTOR) {
        __m128i bytes = _mm_loadl_epi64((const void *)(block + 192 + i));
        vecf s = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        _mm256_storeu_ps(scale + i, _mm256_mul_ps(s, d));
    }
}

/* The factors of all groups in the blocks [first, first + n) of a row. */
INLINE void row_factors(dtype dt, const uint8_t *row, int64_t first, int64_t n, float *scale,
                        float *minimum)
{
    const uint8_t *block = row + first * block_bytes(dt), *end = block + n * block_bytes(dt);
    for (; block < end; block += block_bytes(dt)) {
        if (dt == DT_Q4_K || dt == DT_Q5_K) {
            six_bit_factors(block, scale, minimum);
        } else if (dt == DT_Q6_K) {
            q6_k_factors(block, scale);
        } else {
            *scale = half_at(block);
            if (has_minimum(dt))
                *minimum = half_at(block + 2);
        }
        scale += block_groups(dt) * scales_of_group(dt);
        minimum += block_groups(dt);
    }
}

/* ---- codes */

/* The nibbles of 16 bytes: the low ones, then the high ones. */
INLINE vec split_nibbles(const uint8_t *at)
{
    __m128i x = _mm_loadu_si128((const void *)at);
    vec both = _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* 16 in every byte whose bit of the mask is set. */
INLINE vec fifth_bits(uint32_t mask)
{
    const vec byte_of =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const vec bit_of = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    vec bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)mask), byte_of);
    vec set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

INLINE vec shifted_right(vec x, int bits)
{
    return _mm256_srl_epi16(x, _mm_cvtsi32_si128(bits));
}

/* 32 bytes: nibbles of Q4_K, Q5_K or Q6_K, the high ones where asked. */
INLINE vec plane_of_nibbles(const uint8_t *at, bool high)
{
    return _mm256_and_si256(shifted_right(load_elements((const void *)at), high ? 4 : 0),
                            _mm256_set1_epi8(15));
}

/* `bits` of every byte from `shift` on, as bits 4 and 5. */
INLINE vec plane_of_bits(const uint8_t *at, int shift, int bits)
{
    vec x = shifted_right(load_elements((const void *)at), shift);
    return _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi8((char)bits)), 4);
}

/* The codes of group g of a block, as signed bytes. */
INLINE vec group_codes(dtype dt, const uint8_t *block, int g)
{
    static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113 };
    switch (dt) {
    case DT_Q4_0:
        return _mm256_sub_epi8(split_nibbles(block + 2), _mm256_set1_epi8(8));
    case DT_Q4_1:
        return split_nibbles(block + 4);
    case DT_Q5_0:
        return _mm256_sub_epi8(
            _mm256_or_si256(split_nibbles(block + 6), fifth_bits(word_at(block + 2))),
            _mm256_set1_epi8(16));
    case DT_Q5_1:
        return _mm256_or_si256(split_nibbles(block + 8), fifth_bits(word_at(block + 4)));
    case DT_IQ4_NL:
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)iq4)),
                                   split_nibbles(block + 2));
    case DT_Q8_0:
        return load_elements((const void *)(block + 2));
    case DT_Q4_K:
        return plane_of_nibbles(block + 16 + g / 2 * 32, g % 2);
    case DT_Q5_K:
        return _mm256_or_si256(plane_of_nibbles(block + 48 + g / 2 * 32, g % 2),
                               plane_of_bits(block + 16, g, 1));
    default: /* Q6_K */
        return _mm256_sub_epi8(
            _mm256_or_si256(plane_of_nibbles(block + g / 4 * 64 + g % 2 * 32, g % 4 >= 2),
                            plane_of_bits(block + 128 + g / 4 * 32, g % 4 * 2, 3)),
            _mm256_set1_epi8(32));
    }
}

/* The values of group g of a row whose factors are given from group 0 on; of f32, the row holds the
 * values themselves. */
INLINE void group_values(dtype dt, const uint8_t *row, int64_t g, const float *scale,
                         const float *minimum, vecf out[GROUP_VECTORS])
{
    if (dt == DT_F32) {
#pragma GCC unroll 64
        for (int v = 0; v < GROUP_VECTORS; v++)
            out[v] =
                _mm256_loadu_ps((const float *)(const void *)row + g * QUANTS_GROUP + v * VECTOR);
        return;
    }
    const int n_scales = scales_of_group(dt);
    vec codes =
        group_codes(dt, row + g / block_groups(dt) * block_bytes(dt), (int)(g % block_groups(dt)));
#pragma GCC unroll 64
    for (int v = 0; v < GROUP_VECTORS; v++) {
        __m128i half = v < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
        vecf q =
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v % 2 ? _mm_unpackhi_epi64(half, half) : half));
        vecf s = _mm256_broadcast_ss(scale + g * n_scales + v / 2 * (n_scales - 1));
        out[v] = has_minimum(dt) ? _mm256_fmadd_ps(q, s, _mm256_broadcast_ss(minimum + g))
                                 : _mm256_mul_ps(q, s);
    }
}

/* Calls `function(dt, ...)` with a constant dt where this file decodes it; else `otherwise`. */
#define WITH_BLOCK_FORMAT(dt, function, otherwise, ...)                                            \
    switch (dt) {                                                                                  \
    case DT_Q4_0:                                                                                  \
        function(DT_Q4_0, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_Q4_1:                                                                                  \
        function(DT_Q4_1, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_Q5_0:                                                                                  \
        function(DT_Q5_0, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_Q5_1:                                                                                  \
        function(DT_Q5_1, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_IQ4_NL:                                                                                \
        function(DT_IQ4_NL, __VA_ARGS__);                                                          \
        break;                                                                                     \
    case DT_Q8_0:                                                                                  \
        function(DT_Q8_0, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_Q4_K:                                                                                  \
        function(DT_Q4_K, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_Q5_K:                                                                                  \
        function(DT_Q5_K, __VA_ARGS__);                                                            \
        break;                                                                                     \
    case DT_Q6_K:                                                                                  \
        function(DT_Q6_K, __VA_ARGS__);                                                            \
        break;                                                                                     \
    default:                                                                                       \
        otherwise(dt, __VA_ARGS__);                                                                \
    }

/* ---- unpacking */

INLINE void unpack_format(dtype dt, const void *row, int64_t first, int64_t n, float *out)
{
    enum { AT_ONCE = 32 }; /* groups */
    float scale[2 * AT_ONCE], minimum[AT_ONCE];
    int64_t per = block_groups(dt), g = first / QUANTS_GROUP, end = g + n / QUANTS_GROUP;
    while (g < end) {
        int64_t base = g / per * per, stop = base + AT_ONCE < end ? base + AT_ONCE : end;
        row_factors(dt, row, base / per, (stop - base + per - 1) / per, scale, minimum);
        const uint8_t *from = (const uint8_t *)row + base / per * block_bytes(dt);
        for (; g < stop; g++, out += QUANTS_GROUP) {
            vecf v[GROUP_VECTORS];
            group_values(dt, from, g - base, scale, minimum, v);
#pragma GCC unroll 64
            for (int i = 0; i < GROUP_VECTORS; i++)
                _mm256_storeu_ps(out + i * VECTOR, v[i]);
        }
    }
}

TARGET void kernel_avx2_unpack(dtype dt, const void *row, int64_t first, int64_t n, float *out)
{
    WITH_BLOCK_FORMAT(dt, unpack_format, quants_unpack, row, first, n, out)
}
