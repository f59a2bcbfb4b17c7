/* simd_blocks: GGUF's block formats (tensor/quants.h) decoded with AVX2 or AVX-512, included after
 * kernel_simd.h.
 *
 * In every format a group of 32 values is 32 small integers, the codes, times a scale for each half
 * of the group or for all of it, plus a minimum. Formats with several groups in a block pack their
 * scales and minima together, and find_parts() unpacks those of a block. The values of a group are
 * then made in one of two ways. With AVX-512 codes of up to five bits are looked up: what each code
 * stands for is computed once for a group, in one or two vectors, and a permutation of them by the
 * codes gives the values. Other codes are widened, converted and multiplied. The products
 * scale * code are exact in f32, so fused multiply-adds give the bits of quants_unpack(). */
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
    return dt == DT_Q4_1 || dt == DT_Q5_1 || dt == DT_Q2_K || dt == DT_Q4_K || dt == DT_Q5_K;
}

INLINE int scales_of_group(dtype dt)
{
    return dt == DT_Q2_K || dt == DT_Q3_K || dt == DT_Q6_K ? 2 : 1;
}

/* Whether codes are looked up in a table. */
INLINE bool looked_up(dtype dt)
{
    return TABLE_OF_16 && dt != DT_Q6_K && dt != DT_Q8_0;
}

/* Groups of a block. */
INLINE int block_groups(dtype dt)
{
    return dt == DT_Q2_K || dt == DT_Q3_K || dt == DT_Q4_K || dt == DT_Q5_K || dt == DT_Q6_K ||
                   dt == DT_IQ4_XS
               ? 8
               : 1;
}

INLINE int block_bytes(dtype dt)
{
    return dt == DT_Q4_0 || dt == DT_IQ4_NL ? 18
           : dt == DT_Q4_1                  ? 20
           : dt == DT_Q5_0                  ? 22
           : dt == DT_Q5_1                  ? 24
           : dt == DT_Q8_0                  ? 34
           : dt == DT_Q2_K                  ? 84
           : dt == DT_Q3_K                  ? 110
           : dt == DT_Q4_K                  ? 144
           : dt == DT_Q5_K                  ? 176
           : dt == DT_IQ4_XS                ? 136
           : dt == DT_MXFP4                 ? 17
                                            : 210; /* Q6_K */
}

/* ---- scales and minima */

/* A block with several groups, taken apart: the scales, then the minima; and where the codes are
 * not looked up, the codes as signed bytes. */
typedef struct block_parts {
    float factors[32];
    int8_t codes[8 * QUANTS_GROUP];
} block_parts;

INLINE uint16_t half_bits(const uint8_t *at)
{
    uint16_t h;
    memcpy(&h, at, sizeof h);
    return h;
}

INLINE uint32_t word_at(const uint8_t *at)
{
    uint32_t u;
    memcpy(&u, at, sizeof u);
    return u;
}

INLINE float half_at(const uint8_t *at)
{
    return _cvtsh_ss(half_bits(at));
}

/* out = signed bytes times d. n: 8 or 16. */
INLINE void scaled_bytes(__m128i bytes, int n, float d, float *out)
{
    for (int i = 0; i < n; i += 8, bytes = _mm_srli_si128(bytes, 8))
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                                                _mm256_set1_ps(d)));
}

INLINE __m128i bytes_at(const uint8_t *at)
{
    return _mm_loadu_si128((const void *)at);
}

/* Q4_K and Q5_K: the 6-bit scales and minima of eight groups, four in a word: the low six bits of
 * words 1 and 2 of a block are those of groups 0..3; groups 4..7 have their low four bits in the
 * nibbles of word 3 and the upper two on top of words 1 and 2. */
INLINE void six_bit_factors(const uint8_t *block, block_parts *p)
{
    const __m128i lower = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i upper = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    const __m128i bits = _mm_set_epi32(0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F);
    __m128i x = bytes_at(block);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(x, lower), _mm_set_epi32(4, 0, 0, 0));
    __m128i high = _mm_srli_epi16(_mm_shuffle_epi8(x, upper), 2);
    x = _mm_or_si128(_mm_and_si128(low, bits), _mm_and_si128(high, _mm_set1_epi8(0x30)));
    scaled_bytes(x, 8, half_at(block), p->factors);
    scaled_bytes(_mm_srli_si128(x, 8), 8, -half_at(block + 2), p->factors + 8);
}

/* Q2_K: a scale in the low nibble and a minimum in the high one, for every 16 values. */
INLINE void q2_k_factors(const uint8_t *block, block_parts *p)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i x = bytes_at(block);
    scaled_bytes(_mm_and_si128(x, nibble), 16, half_at(block + 80), p->factors);
    scaled_bytes(_mm_and_si128(_mm_srli_epi16(x, 4), nibble), 16, -half_at(block + 82),
                 p->factors + 16);
}

/* Q3_K: 16 scales of 6 bits: the low four in the nibbles of bytes 0..7, first the lower ones, and
 * the upper two in bytes 8..11. They begin at byte 96; what is loaded ends with the block. */
INLINE void q3_k_factors(const uint8_t *block, block_parts *p)
{
    const __m128i lower = _mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9);
    const __m128i upper = _mm_set1_epi32(0x0D0C0B0A);
    __m128i x = bytes_at(block + 94);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(x, lower), _mm_set_epi32(4, 4, 0, 0));
    __m128i high = _mm_srlv_epi32(_mm_shuffle_epi8(x, upper), _mm_set_epi32(6, 4, 2, 0));
    high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
    x = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), high);
    scaled_bytes(_mm_sub_epi8(x, _mm_set1_epi8(32)), 16, half_at(block + 108), p->factors);
}

/* IQ4_XS: 8 scales of 6 bits: the low four in the nibbles of word 1, the upper two above the half.
 */
INLINE void iq4_xs_factors(const uint8_t *block, block_parts *p)
{
    const __m256i twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i low = _mm256_set1_epi32((int)word_at(block + 4));
    __m256i high = _mm256_set1_epi32(half_bits(block + 2));
    low =
        _mm256_and_si256(_mm256_srlv_epi32(low, _mm256_slli_epi32(twos, 1)), _mm256_set1_epi32(15));
    high =
        _mm256_slli_epi32(_mm256_and_si256(_mm256_srlv_epi32(high, twos), _mm256_set1_epi32(3)), 4);
    __m256i scales = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
    _mm256_storeu_ps(p->factors,
                     _mm256_mul_ps(_mm256_cvtepi32_ps(scales), _mm256_set1_ps(half_at(block))));
}

INLINE void find_factors(dtype dt, const uint8_t *block, block_parts *p)
{
    if (dt == DT_IQ4_XS)
        iq4_xs_factors(block, p);
    else if (dt == DT_Q4_K || dt == DT_Q5_K)
        six_bit_factors(block, p);
    else if (dt == DT_Q2_K)
        q2_k_factors(block, p);
    else if (dt == DT_Q3_K)
        q3_k_factors(block, p);
    else if (dt == DT_Q6_K)
        scaled_bytes(bytes_at(block + 192), 16, half_at(block + 208), p->factors);
}

/* A group of a block: its number is g + odd, where g is even and odd known to the compiler. Formats
 * with one group in a block have their factors there. */
typedef struct group_at {
    const uint8_t *block;
    const block_parts *parts;
    int g, odd;
} group_at;

/* 2^(exponent - 128) in every lane: half of what MXFP4's exponent stands for. */
INLINE vecf half_power(uint32_t exponent)
{
    uint32_t bits = exponent < 2 ? UINT32_C(0x200000) << exponent : (exponent - 1) << 23;
    return as_floats(SIMD(set1_epi32)((int)bits));
}

/* The scale of a half of a group, in every lane. */
INLINE vecf scale_of(dtype dt, const group_at *at, int half)
{
    const int n = scales_of_group(dt);
    if (dt == DT_MXFP4)
        return half_power(at->block[0]);
    if (block_groups(dt) == 1)
        return every_half(half_bits(at->block));
    return SIMD(set1_ps)(at->parts->factors[(at->g + at->odd) * n + half * (n - 1)]);
}

INLINE vecf minimum_of(dtype dt, const group_at *at, int half)
{
    const int n = scales_of_group(dt);
    if (block_groups(dt) == 1)
        return every_half(half_bits(at->block + 2));
    return SIMD(set1_ps)(at->parts->factors[(8 + at->g + at->odd) * n + half * (n - 1)]);
}

/* ---- codes */

INLINE code_bytes load_codes(const uint8_t *at)
{
    return _mm256_loadu_si256((const void *)at);
}

/* The nibbles of 16 bytes: the low ones, then the high ones. */
INLINE code_bytes split_nibbles(const uint8_t *at)
{
    __m128i x = bytes_at(at);
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

/* `mask` of 32 bytes, moved down by `bits`. */
INLINE code_bytes plane(const uint8_t *at, int bits, int mask)
{
    return _mm256_and_si256(shifted_right(load_codes(at), bits), _mm256_set1_epi8((char)mask));
}

/* The same, moved up again by `up`. */
INLINE code_bytes plane_above(const uint8_t *at, int bits, int mask, int up)
{
    return _mm256_slli_epi16(plane(at, bits, mask), up);
}

/* What the nibbles of 16 bytes choose among 16 values. */
INLINE code_bytes chosen(const int8_t values[16], const uint8_t *at)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)values)),
                               split_nibbles(at));
}

/* The codes of a group as signed bytes. */
INLINE code_bytes group_codes(dtype dt, const group_at *at)
{
    static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113 };
    static const int8_t mxfp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    const uint8_t *block = at->block;
    int g = at->g, n = g + at->odd;
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
        return chosen(iq4, block + 2);
    case DT_IQ4_XS:
        return chosen(iq4, block + 8 + n * 16);
    case DT_MXFP4:
        return chosen(mxfp4, block + 1);
    case DT_Q8_0:
        return load_codes(block + 2);
    case DT_Q2_K:
        return plane(block + 16 + (g >> 2) * 32, (n & 3) * 2, 3);
    case DT_Q3_K:
        return _mm256_sub_epi8(_mm256_or_si256(plane(block + 32 + (g >> 2) * 32, (n & 3) * 2, 3),
                                               plane_above(block, n, 1, 2)),
                               _mm256_set1_epi8(4));
    case DT_Q4_K:
        return plane(block + 16 + (g >> 1) * 32, at->odd * 4, 15);
    default: /* Q5_K */
        return _mm256_or_si256(plane(block + 48 + (g >> 1) * 32, at->odd * 4, 15),
                               plane_above(block + 16, n, 1, 4));
    }
}

/* Where block_parts has the codes of group n: each beside those of the group 4 further on. */
INLINE int codes_of_group(int n)
{
    return ((n & 3) * 2 + (n >> 2)) * QUANTS_GROUP;
}

/* Q6_K: four groups have their low nibbles in 64 bytes and their upper two bits in 32, and so have
 * the other four. */
INLINE void q6_k_codes(const uint8_t *block, int8_t *codes)
{
    const vec low = SIMD(set1_epi8)(0x0F), high = SIMD(set1_epi8)(0x30);
    for (int i = 0; i < 2; i += VECTOR / 8) {
        vec top = load_elements((const void *)(block + 128 + i * 32));
#pragma GCC unroll 64
        for (int g = 0; g < 4; g++) {
            vec x = bytes_and_64_on(block + i * 64 + g % 2 * 32);
            x = g < 2 ? x : SIMD(srli_epi16)(x, 4);
            vec y = g < 2 ? SIMD(slli_epi16)(top, 4 - 2 * g) : SIMD(srli_epi16)(top, 2 * g - 4);
            x = SIMD(sub_epi8)((x & low) | (y & high), SIMD(set1_epi8)(32));
            store_elements((void *)(codes + codes_of_group(4 * i + g)), x);
        }
    }
}

/* Takes a block with several groups apart. The compiler must not see what it stores: it would
 * shuffle it out of registers instead of loading it into all lanes. */
INLINE void find_parts(dtype dt, const uint8_t *block, block_parts *p)
{
    find_factors(dt, block, p);
    if (dt == DT_Q6_K)
        q6_k_codes(block, p->codes);
    else if (!looked_up(dt))
#pragma GCC unroll 64
        for (int g = 0; g < block_groups(dt); g++) {
            group_at at = { block, NULL, g / 2 * 2, g % 2 };
            _mm256_storeu_si256((void *)(p->codes + codes_of_group(g)), group_codes(dt, &at));
        }
    __asm__("" : "+m"(*p));
}

#if TABLE_OF_16
/* ---- codes as indices of a table
 *
 * A lookup reads the low bits of its index only, so what is above them is not masked. Indices have
 * 16 bits where pairs of bf16 are looked up, and a vector holds those of a group; else 32 bits, and
 * a vector holds those of half a group. */

INLINE bool has_32_codes(dtype dt)
{
    return dt == DT_Q5_0 || dt == DT_Q5_1 || dt == DT_Q5_K;
}

/* 32 bytes, or half `half` of them. */
INLINE vec widened(bool as_pairs, const uint8_t *at, int half)
{
    return as_pairs ? _mm512_cvtepu8_epi16(load_codes(at))
                    : _mm512_cvtepu8_epi32(bytes_at(at + 16 * half));
}

/* 0 in the first half of a group, x in the second. */
INLINE vec in_second_half(bool as_pairs, int x, int half)
{
    return as_pairs ? _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16((int16_t)x), 1)
                    : _mm512_set1_epi32(half * x);
}

INLINE vec shifted_down(vec x, int bits)
{
    return _mm512_srl_epi16(x, _mm_cvtsi32_si128(bits));
}

/* The bits of `mask` from x, the others from y. */
INLINE vec merged(vec x, vec y, int mask)
{
    return _mm512_ternarylogic_epi32(x, y, _mm512_set1_epi32(mask << 16 | mask), 0xE4);
}

/* 16 bytes of which the low nibbles are the first half of a group, the high ones the second. */
INLINE vec nibble_halves(bool as_pairs, const uint8_t *at, int half)
{
    if (as_pairs)
        return _mm512_srlv_epi16(_mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(bytes_at(at))),
                                 in_second_half(true, 4, 0));
    return shifted_down(widened(false, at, 0), 4 * half);
}

/* 16 in every lane whose bit of the mask is set. */
INLINE vec fifth_bit_lanes(bool as_pairs, uint32_t mask, int half)
{
    return as_pairs ? _mm512_maskz_set1_epi16(mask, 16)
                    : _mm512_maskz_set1_epi32((__mmask16)(mask >> 16 * half), 16);
}

INLINE vec group_index(dtype dt, bool as_pairs, const group_at *at, int half)
{
    const uint8_t *block = at->block;
    int g = at->g, n = g + at->odd;
    switch (dt) {
    case DT_Q4_1:
        return nibble_halves(as_pairs, block + 4, half);
    case DT_IQ4_XS:
        return nibble_halves(as_pairs, block + 8 + n * 16, half);
    case DT_MXFP4:
        return nibble_halves(as_pairs, block + 1, half);
    case DT_Q5_0:
        return merged(nibble_halves(as_pairs, block + 6, half),
                      fifth_bit_lanes(as_pairs, word_at(block + 2), half), 15);
    case DT_Q5_1:
        return merged(nibble_halves(as_pairs, block + 8, half),
                      fifth_bit_lanes(as_pairs, word_at(block + 4), half), 15);
    case DT_Q2_K: /* the codes of the second half of a group are 4 to 7 */
        return merged(
            shifted_down(widened(as_pairs, block + 16 + (g >> 2) * 32, half), (n & 3) * 2),
            in_second_half(as_pairs, 4, half), 3);
    case DT_Q3_K: /* 8 to 15 */
        return merged(
            merged(shifted_down(widened(as_pairs, block + 32 + (g >> 2) * 32, half), (n & 3) * 2),
                   shifted_down(_mm512_slli_epi16(widened(as_pairs, block, half), 2), n), 3),
            in_second_half(as_pairs, 8, half), 7);
    case DT_Q4_K:
        return shifted_down(widened(as_pairs, block + 16 + (g >> 1) * 32, half), at->odd * 4);
    case DT_Q5_K:
        return merged(
            shifted_down(widened(as_pairs, block + 48 + (g >> 1) * 32, half), at->odd * 4),
            shifted_down(_mm512_slli_epi16(widened(as_pairs, block + 16, half), 4), n), 15);
    default: /* Q4_0 and IQ4_NL */
        return nibble_halves(as_pairs, block + 2, half);
    }
}

/* What codes 0..15 (or, where `from` is 16, 16..31) of a group stand for. */
INLINE vecf value_table(dtype dt, const group_at *at, int from)
{
    static const float from_minus_16[48] = {
        -16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1,
        0,   1,   2,   3,   4,   5,   6,   7,  8,  9,  10, 11, 12, 13, 14, 15,
        16,  17,  18,  19,  20,  21,  22,  23, 24, 25, 26, 27, 28, 29, 30, 31
    };
    static const float q2_k[16] = { 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3 };
    static const float q3_k[16] = { -4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3 };
    static const float iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113 };
    static const float mxfp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    const int zero = dt == DT_Q4_0 ? 8 : dt == DT_Q5_0 ? 16 : 0;
    const __mmask16 second = dt == DT_Q2_K ? 0xF0F0 : dt == DT_Q3_K ? 0xFF00 : 0;
    vecf q = load_sums(dt == DT_Q2_K                        ? q2_k
                       : dt == DT_Q3_K                      ? q3_k
                       : dt == DT_IQ4_NL || dt == DT_IQ4_XS ? iq4
                       : dt == DT_MXFP4                     ? mxfp4
                                                            : from_minus_16 + 16 + from - zero);
    vecf s = scale_of(dt, at, 0);
    if (second)
        s = _mm512_mask_mov_ps(s, second, scale_of(dt, at, 1));
    if (!has_minimum(dt))
        return _mm512_mul_ps(q, s);
    vecf m = minimum_of(dt, at, 0);
    if (second)
        m = _mm512_mask_mov_ps(m, second, minimum_of(dt, at, 1));
    return _mm512_fmadd_ps(q, s, m);
}

INLINE void looked_up_values(dtype dt, const group_at *at, vecf out[VALUE_VECTORS])
{
    vecf low = value_table(dt, at, 0);
#pragma GCC unroll 64
    for (int half = 0; half < VALUE_VECTORS; half++) {
        vec index = group_index(dt, false, at, half);
        out[half] = has_32_codes(dt) ? _mm512_permutex2var_ps(low, index, value_table(dt, at, 16))
                                     : _mm512_permutexvar_ps(index, low);
    }
}
#endif

#if PAIRS
/* The same as pairs of bf16. A table of sixteen stands twice, so bit 4 of an index does not matter.
 */
INLINE vec looked_up_pairs(dtype dt, const group_at *at)
{
    vecf low = value_table(dt, at, 0), high = has_32_codes(dt) ? value_table(dt, at, 16) : low;
    return _mm512_permutexvar_epi16(group_index(dt, true, at, 0),
                                    (vec)_mm512_cvtne2ps_pbh(high, low));
}
#endif

/* The values of a group. */
INLINE void group_values(dtype dt, const group_at *at, vecf out[VALUE_VECTORS])
{
    enum { HALF = QUANTS_GROUP / 2 };
#if TABLE_OF_16
    if (looked_up(dt)) {
        looked_up_values(dt, at, out);
        return;
    }
#endif
    const bool in_memory = block_groups(dt) > 1 || dt == DT_Q8_0;
    const char *from = dt == DT_Q8_0
                           ? (const char *)at->block + 2
                           : (const char *)at->parts->codes + codes_of_group(at->g + at->odd);
    code_bytes codes = in_memory ? _mm256_setzero_si256() : group_codes(dt, at);
#pragma GCC unroll 64
    for (int v = 0; v < VALUE_VECTORS; v++) {
        const int half = v * VECTOR / HALF, upper = v * VECTOR % HALF;
        __m128i bytes = half ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes);
        bytes = upper ? _mm_unpackhi_epi64(bytes, bytes) : bytes;
        if (in_memory)
            bytes = vector_of_bytes(from + v * VECTOR);
        vecf q = SIMD(cvtepi32_ps)(SIMD(cvtepi8_epi32)(bytes));
        vecf s = scale_of(dt, at, half);
        out[v] =
            has_minimum(dt) ? SIMD(fmadd_ps)(q, s, minimum_of(dt, at, half)) : SIMD(mul_ps)(q, s);
    }
}

/* The same as elements. */
INLINE void group_elements(dtype dt, const group_at *at, vec out[GROUP_VECTORS])
{
#if PAIRS
    if (looked_up(dt)) {
        out[0] = looked_up_pairs(dt, at);
        return;
    }
#endif
    vecf values[VALUE_VECTORS];
    group_values(dt, at, values);
#pragma GCC unroll 64
    for (int v = 0; v < GROUP_VECTORS; v++)
        out[v] = elements_of(values + v * VALUES);
}

/* Calls `function(dt, ...)` with a constant dt. */
#define BLOCK_CASE(type, function, ...)                                                            \
    case type:                                                                                     \
        function(type, __VA_ARGS__);                                                               \
        break;
#define WITH_BLOCK_FORMAT(dt, function, ...)                                                       \
    switch (dt) {                                                                                  \
        BLOCK_CASE(DT_Q4_0, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q4_1, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q5_0, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q5_1, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_IQ4_NL, function, __VA_ARGS__)                                               \
        BLOCK_CASE(DT_IQ4_XS, function, __VA_ARGS__)                                               \
        BLOCK_CASE(DT_MXFP4, function, __VA_ARGS__)                                                \
        BLOCK_CASE(DT_Q8_0, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q2_K, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q3_K, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q4_K, function, __VA_ARGS__)                                                 \
        BLOCK_CASE(DT_Q5_K, function, __VA_ARGS__)                                                 \
    default:                                                                                       \
        function(DT_Q6_K, __VA_ARGS__);                                                            \
    }

/* ---- whole rows */

/* A group as f32 values at *out, which then is after it. */
INLINE void unpack_group(dtype dt, const group_at *at, float **out)
{
    vecf values[VALUE_VECTORS];
    group_values(dt, at, values);
    for (int i = 0; i < VALUE_VECTORS; i++, *out += VECTOR)
        put_sums(*out, values[i], false);
}

INLINE void unpack_format(dtype dt, const void *row, int64_t first, int64_t n, float *out)
{
    const int per = block_groups(dt);
    block_parts parts;
    int64_t g = first / QUANTS_GROUP, end = g + n / QUANTS_GROUP;
    while (g < end) {
        int64_t base = g / per * per, stop = num_min(base + per, end);
        group_at at = { (const uint8_t *)row + base / per * block_bytes(dt), &parts, 0, 0 };
        find_parts(dt, at.block, &parts);
        for (; g < stop; g++) {
            at.g = (int)(g - base) / 2 * 2;
            at.odd = 0;
            if (per > 1 && g % 2) {
                at.odd = 1;
                unpack_group(dt, &at, &out);
            } else {
                unpack_group(dt, &at, &out);
            }
        }
    }
}

/* See mm_engine.unpack. */
TARGET static void unpack(dtype dt, const void *row, int64_t first, int64_t n, float *out)
{
    WITH_BLOCK_FORMAT(dt, unpack_format, row, first, n, out)
}
