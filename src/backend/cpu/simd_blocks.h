/* simd_blocks: GGUF's block formats (tensor/quants.h) decoded with AVX2 or AVX-512, included after
 * kernel_simd.h.
 *
 * In every format a group of 32 values is 32 small integers, the codes, times a scale for each half
 * of the group or for all of it, plus a minimum. Decoding has two steps: the scales and minima of a
 * row are collected as f32 (row_factors), then the codes of each group, 32 bytes, are widened and
 * multiplied (group_values). The products scale * code are exact in f32 wherever a minimum is
 * added, so fused multiply-adds give the bits of quants_unpack(). */
#include "tensor/quants.h"

#include <string.h>

typedef __m256i code_bytes; /* of a group */

enum {
    VALUE_VECTORS = QUANTS_GROUP / VECTOR,  /* of a group as f32, */
    GROUP_ELEMENTS = QUANTS_GROUP / VALUES, /* and as elements */
    GROUP_VECTORS = GROUP_ELEMENTS / VECTOR
};

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

/* Bytes of a group; where a block has several, its bytes divided by them, rounded up. */
INLINE int64_t group_bytes(dtype dt)
{
    return dt == DT_Q4_0 || dt == DT_IQ4_NL || dt == DT_Q4_K ? 18
           : dt == DT_Q4_1                                   ? 20
           : dt == DT_Q5_0 || dt == DT_Q5_K                  ? 22
           : dt == DT_Q5_1                                   ? 24
           : dt == DT_Q6_K                                   ? 27
                                                             : 34; /* Q8_0 */
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
INLINE __m256 scaled_bytes(uint32_t low, uint32_t high, float d)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_set_epi32(0, 0, (int)high, (int)low));
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
    __m256 d = _mm256_set1_ps(half_at(block + 208));
    for (int i = 0; i < 16; i += 8) {
        __m128i bytes = _mm_loadl_epi64((const void *)(block + 192 + i));
        __m256 s = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
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

INLINE code_bytes load_codes(const uint8_t *at)
{
    return _mm256_loadu_si256((const void *)at);
}

/* The nibbles of 16 bytes: the low ones, then the high ones. */
INLINE code_bytes split_nibbles(const uint8_t *at)
{
    __m128i x = _mm_loadu_si128((const void *)at);
    code_bytes both = _mm256_inserti128_si256(_mm256_castsi128_si256(x), _mm_srli_epi16(x, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* 16 in every byte whose bit of the mask is set. */
INLINE code_bytes fifth_bits(uint32_t mask)
{
    const code_bytes byte_of =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const code_bytes bit_of = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    code_bytes bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)mask), byte_of);
    code_bytes set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

INLINE code_bytes shifted_right(code_bytes x, int bits)
{
    return _mm256_srl_epi16(x, _mm_cvtsi32_si128(bits));
}

/* 32 bytes: nibbles of Q4_K, Q5_K or Q6_K, the high ones where asked. */
INLINE code_bytes plane_of_nibbles(const uint8_t *at, bool high)
{
    return _mm256_and_si256(shifted_right(load_codes(at), high ? 4 : 0), _mm256_set1_epi8(15));
}

/* `bits` of every byte from `shift` on, as bits 4 and 5. */
INLINE code_bytes plane_of_bits(const uint8_t *at, int shift, int bits)
{
    code_bytes x = shifted_right(load_codes(at), shift);
    return _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi8((char)bits)), 4);
}

/* The codes of group g + odd of a block, as signed bytes; g is even. */
INLINE code_bytes group_codes(dtype dt, const uint8_t *block, int g, int odd)
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
        return load_codes(block + 2);
    case DT_Q4_K:
        return plane_of_nibbles(block + 16 + g / 2 * 32, odd);
    case DT_Q5_K:
        return _mm256_or_si256(plane_of_nibbles(block + 48 + g / 2 * 32, odd),
                               plane_of_bits(block + 16, g + odd, 1));
    default: /* Q6_K */
        return _mm256_sub_epi8(
            _mm256_or_si256(plane_of_nibbles(block + g / 4 * 64 + odd * 32, g % 4 >= 2),
                            plane_of_bits(block + 128 + g / 4 * 32, (g % 4 + odd) * 2, 3)),
            _mm256_set1_epi8(32));
    }
}

#if TABLE_OF_16
/* Codes of four bits are looked up in a table of the sixteen values of their group. A lookup reads
 * the low bits of its index, so nothing is masked. */
INLINE bool looked_up(dtype dt)
{
    return dt == DT_Q4_0 || dt == DT_Q4_1 || dt == DT_IQ4_NL || dt == DT_Q4_K;
}

INLINE vecf value_table(dtype dt, const float *scale, const float *minimum)
{
    static const float from_0[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    static const float from_8[16] = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 };
    static const float iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113 };
    vecf q = load_sums(dt == DT_Q4_0 ? from_8 : dt == DT_IQ4_NL ? iq4 : from_0);
    vecf s = _mm512_set1_ps(*scale);
    return has_minimum(dt) ? _mm512_fmadd_ps(q, s, _mm512_set1_ps(*minimum)) : _mm512_mul_ps(q, s);
}

/* Where the nibbles of each half of a group are, and whether they are the high ones: Q4_K has the
 * nibbles of two groups in 32 bytes, the others those of a group's halves in 16. */
typedef struct nibble_source {
    const uint8_t *half[2];
    bool high[2];
} nibble_source;

INLINE nibble_source nibbles_of(dtype dt, const uint8_t *block, int g, int odd)
{
    const uint8_t *at = block + (dt == DT_Q4_K ? 16 + g / 2 * 32 : dt == DT_Q4_1 ? 4 : 2);
    if (dt == DT_Q4_K)
        return (nibble_source){ { at, at + 16 }, { odd, odd } };
    return (nibble_source){ { at, at }, { false, true } };
}

INLINE void looked_up_values(nibble_source x, vecf table, vecf out[VALUE_VECTORS])
{
#pragma GCC unroll 64
    for (int v = 0; v < VALUE_VECTORS; v++) {
        vec index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)x.half[v]));
        if (x.high[v])
            index = _mm512_srli_epi32(index, 4);
        out[v] = _mm512_permutexvar_ps(index, table);
    }
}
#endif

#if PAIRS
/* The same as pairs of bf16; the table stands twice, so bit 4 of an index does not matter. */
INLINE vec looked_up_pairs(nibble_source x, vecf table)
{
    __m256i index[2];
#pragma GCC unroll 64
    for (int v = 0; v < 2; v++) {
        index[v] = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)x.half[v]));
        if (x.high[v])
            index[v] = _mm256_srli_epi16(index[v], 4);
    }
    return _mm512_permutexvar_epi16(
        _mm512_inserti64x4(_mm512_castsi256_si512(index[0]), index[1], 1),
        (vec)_mm512_cvtne2ps_pbh(table, table));
}
#endif

/* A row of blocks with its factors from group 0 on. */
typedef struct block_row {
    const uint8_t *blocks;
    const float *scale, *minimum;
} block_row;

/* The values of group g + odd of a row. g is even where a block has several groups, so that what
 * differs between two neighbours is constant; elsewhere odd is 0. */
INLINE void group_values(dtype dt, const block_row *row, int64_t g, int odd,
                         vecf out[VALUE_VECTORS])
{
    enum { HALF = QUANTS_GROUP / 2 };
    const int n_scales = scales_of_group(dt);
    const uint8_t *block = row->blocks + g / block_groups(dt) * block_bytes(dt);
    const float *scale = row->scale + (g + odd) * n_scales, *minimum = row->minimum + g + odd;
    int number = (int)(g % block_groups(dt));
#if TABLE_OF_16
    if (looked_up(dt)) {
        looked_up_values(nibbles_of(dt, block, number, odd), value_table(dt, scale, minimum), out);
        return;
    }
#endif
    code_bytes codes = group_codes(dt, block, number, odd);
#pragma GCC unroll 64
    for (int v = 0; v < VALUE_VECTORS; v++) {
        const int half = v * VECTOR / HALF, upper = v * VECTOR % HALF;
        __m128i bytes = half ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes);
        vecf q = SIMD(cvtepi32_ps)(
            SIMD(cvtepi8_epi32)(upper ? _mm_unpackhi_epi64(bytes, bytes) : bytes));
        vecf s = SIMD(set1_ps)(scale[half * (n_scales - 1)]);
        out[v] =
            has_minimum(dt) ? SIMD(fmadd_ps)(q, s, SIMD(set1_ps)(*minimum)) : SIMD(mul_ps)(q, s);
    }
}

/* The same as elements. */
INLINE void group_elements(dtype dt, const block_row *row, int64_t g, int odd,
                           vec out[GROUP_VECTORS])
{
#if PAIRS
    if (looked_up(dt)) {
        const uint8_t *block = row->blocks + g / block_groups(dt) * block_bytes(dt);
        out[0] = looked_up_pairs(nibbles_of(dt, block, (int)(g % block_groups(dt)), odd),
                                 value_table(dt, row->scale + g + odd, row->minimum + g + odd));
        return;
    }
#endif
    vecf values[VALUE_VECTORS];
    group_values(dt, row, g, odd, values);
#pragma GCC unroll 64
    for (int v = 0; v < GROUP_VECTORS; v++)
        out[v] = elements_of(values + v * VALUES);
}

/* Calls `function(dt, ...)` with a constant dt where this file decodes it; else `otherwise`. */
#define BLOCK_CASE(type, function, ...)                                                            \
    case type:                                                                                     \
        function(type, __VA_ARGS__);                                                               \
        break;
#define WITH_BLOCK_FORMAT(dt, function, otherwise, ...)                                            \
    do {                                                                                           \
        switch (dt) {                                                                              \
            BLOCK_CASE(DT_Q4_0, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_Q4_1, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_Q5_0, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_Q5_1, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_IQ4_NL, function, __VA_ARGS__)                                           \
            BLOCK_CASE(DT_Q8_0, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_Q4_K, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_Q5_K, function, __VA_ARGS__)                                             \
            BLOCK_CASE(DT_Q6_K, function, __VA_ARGS__)                                             \
        default:                                                                                   \
            otherwise(dt, __VA_ARGS__);                                                            \
        }                                                                                          \
    } while (0)

/* ---- whole rows */

/* Group g + odd as elements or, where asked, as f32 values, stored at *out, which then is after it.
 */
INLINE void decode_group(dtype dt, bool as_values, const block_row *row, int64_t g, int odd,
                         uint32_t **out)
{
    if (as_values) {
        vecf values[VALUE_VECTORS];
        group_values(dt, row, g, odd, values);
        for (int i = 0; i < VALUE_VECTORS; i++, *out += VECTOR)
            put_sums((float *)*out, values[i], false);
    } else {
        vec elements[GROUP_VECTORS];
        group_elements(dt, row, g, odd, elements);
        for (int i = 0; i < GROUP_VECTORS; i++, *out += VECTOR)
            store_elements(*out, elements[i]);
    }
}

INLINE void decode_format(dtype dt, bool as_values, const void *row, int64_t first, int64_t n,
                          void *out)
{
    enum { AT_ONCE = 32 }; /* groups */
    float scale[2 * AT_ONCE], minimum[AT_ONCE];
    uint32_t *to = out;
    int64_t per = block_groups(dt), g = first / QUANTS_GROUP, end = g + n / QUANTS_GROUP;
    while (g < end) {
        int64_t base = g / per * per, stop = base + AT_ONCE < end ? base + AT_ONCE : end;
        row_factors(dt, row, base / per, (stop - base + per - 1) / per, scale, minimum);
        block_row r = { (const uint8_t *)row + base / per * block_bytes(dt), scale, minimum };
        for (; g < stop; g++)
            if (per > 1 && g % 2)
                decode_group(dt, as_values, &r, g - base - 1, 1, &to);
            else
                decode_group(dt, as_values, &r, g - base, 0, &to);
    }
}

/* The same of a format that this file does not decode. */
INLINE void decode_others(dtype dt, bool as_values, const void *row, int64_t first, int64_t n,
                          void *out)
{
    enum { AT_ONCE = 256 };
    float values[AT_ONCE];
    mm_element *element = out;
    if (as_values) {
        quants_unpack(dt, row, first, n, out);
        return;
    }
    for (int64_t k = first; k < first + n; k += AT_ONCE) {
        int64_t some = num_min(AT_ONCE, first + n - k);
        quants_unpack(dt, row, k, some, values);
        for (int64_t i = 0; i < some; i += VALUES * VECTOR, element += VECTOR) {
            vecf v[VALUES];
            for (int j = 0; j < VALUES; j++)
                v[j] = load_sums(values + i + j * VECTOR);
            store_elements(element, elements_of(v));
        }
    }
}

/* See mm_engine.unpack. */
TARGET static void unpack(dtype dt, const void *row, int64_t first, int64_t n, float *out)
{
    WITH_BLOCK_FORMAT(dt, decode_format, decode_others, true, row, first, n, out);
}

/* The same as elements. */
TARGET static void decode_elements(dtype dt, const void *row, int64_t first, int64_t n,
                                   mm_element *out)
{
    if (VALUES == 1)
        unpack(dt, row, first, n, (float *)out);
    else
        WITH_BLOCK_FORMAT(dt, decode_format, decode_others, false, row, first, n, out);
}
