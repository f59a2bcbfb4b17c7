/* simd_avx2: primitives of 256 bits; see simd.h. */
#include "backend/cpu/simd.h"

#include <string.h>

enum { VECTOR = 8, ROWS = 6 };
typedef __m256i vec;
typedef __m256 vecf;

INLINE vec no_words(void)
{
    return _mm256_setzero_si256();
}

INLINE vecf no_sum(void)
{
    return _mm256_setzero_ps();
}

INLINE vecf as_floats(vec x)
{
    return _mm256_castsi256_ps(x);
}

INLINE vec load_words(const mm_word *at)
{
    return _mm256_loadu_si256((const void *)at);
}

INLINE void store_words(mm_word *at, vec x)
{
    _mm256_storeu_si256((void *)at, x);
}

INLINE vecf multiply_add(vecf sum, mm_word a, vec lanes)
{
    return _mm256_fmadd_ps(as_floats(_mm256_set1_epi32((int)a)), as_floats(lanes), sum);
}

INLINE void put_sums(float *at, vecf sum, bool add)
{
    _mm256_storeu_ps(at, add ? _mm256_add_ps(_mm256_loadu_ps(at), sum) : sum);
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

/* VECTOR words of a vector with k last, of which n elements are there. */
INLINE vec words_along(dtype dt, mm_words words, const char *at, int64_t n)
{
    vec x = load_values(dt, at, n);
    return words == MM_BF16_AS_F32 ? round_bf16(x) : x;
}

/* Looks up the low four bits of each lane; a permutation has eight entries. */
INLINE vec nf4_values(vec index, vecf scale)
{
    vecf low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nf4_code), index);
    vecf high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nf4_code + 8), index);
    vecf code = _mm256_blendv_ps(low, high, as_floats(_mm256_slli_epi32(index, 28)));
    return _mm256_castps_si256(_mm256_mul_ps(code, scale));
}

/* VECTOR codes that lie side by side. */
INLINE vec load_nf4(const char *at, float scale)
{
    int codes;
    memcpy(&codes, at, sizeof codes);
    const vec shifts = _mm256_set_epi32(24, 28, 16, 20, 8, 12, 0, 4);
    return nf4_values(_mm256_srlv_epi32(_mm256_set1_epi32(codes), shifts), _mm256_set1_ps(scale));
}

/* Eight vectors of memory. */
typedef struct vectors {
    const char *at[VECTOR];
} vectors;

/* out[j] has word j of all eight vectors. */
INLINE void transpose(const vec in[MEMORY], vec out[MEMORY])
{
    vec quads[MEMORY];
#pragma GCC unroll 64
    for (int g = 0; g < MEMORY; g += 4) {
        vec a = _mm256_unpacklo_epi32(in[g], in[g + 1]);
        vec b = _mm256_unpackhi_epi32(in[g], in[g + 1]);
        vec c = _mm256_unpacklo_epi32(in[g + 2], in[g + 3]);
        vec d = _mm256_unpackhi_epi32(in[g + 2], in[g + 3]);
        quads[g] = _mm256_unpacklo_epi64(a, c);
        quads[g + 1] = _mm256_unpackhi_epi64(a, c);
        quads[g + 2] = _mm256_unpacklo_epi64(b, d);
        quads[g + 3] = _mm256_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 64
    for (int j = 0; j < 4; j++) {
        out[j] = _mm256_permute2x128_si256(quads[j], quads[j + 4], 0x20);
        out[j + 4] = _mm256_permute2x128_si256(quads[j], quads[j + 4], 0x31);
    }
}

/* Eight words of memory of each vector, one vector a lane; zeros after `left` bytes. */
INLINE void load_memory(const vectors *v, int64_t byte, int64_t left, vec out[MEMORY])
{
    vec in[MEMORY];
#pragma GCC unroll 64
    for (int i = 0; i < MEMORY; i++)
        in[i] = load_bytes(v->at[i] + byte, left);
    transpose(in, out);
}

/* Value number e of the lanes' words of memory, as f32. */
INLINE vec value_of(dtype dt, const vec *memory, int e, vec scale)
{
    if (dt == DT_F32)
        return memory[e];
    if (dt == DT_BF16)
        return e % 2 ? _mm256_and_si256(memory[e / 2], _mm256_set1_epi32(HIGH_HALF))
                     : _mm256_slli_epi32(memory[e / 2], 16);
    return nf4_values(_mm256_srli_epi32(memory[0], nf4_shift(e)), as_floats(scale));
}
