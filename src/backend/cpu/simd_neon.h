/* simd_neon: primitives on vectors of two 128-bit registers; see simd.h. So a vector has the lanes
 * of AVX2, and every sum its order: the engines of f32 values compute the same bits. */
#include <arm_neon.h>
#include <string.h>

enum { VECTOR = 8, TILE_ROWS = 6, UNROLL = 1, PREFETCH_STEP = 64 };
typedef struct vec {
    uint32x4_t part[2];
} vec;
typedef struct vecf {
    float32x4_t part[2];
} vecf;
#define MANY_REGISTERS 0
#define TABLE_OF_16 0

/* A vector of which each part p is as written. */
#define BY_PARTS(type, expression)                                                                 \
    ({                                                                                             \
        type parts_of_;                                                                            \
        for (int p = 0; p < 2; p++)                                                                \
            parts_of_.part[p] = expression;                                                        \
        parts_of_;                                                                                 \
    })
#define U64(x) vreinterpretq_u64_u32(x)
#define SIMD(name) neon_##name
#define neon_unpacklo_epi32(a, b) BY_PARTS(vec, vzip1q_u32((a).part[p], (b).part[p]))
#define neon_unpackhi_epi32(a, b) BY_PARTS(vec, vzip2q_u32((a).part[p], (b).part[p]))
#define neon_unpacklo_epi64(a, b)                                                                  \
    BY_PARTS(vec, vreinterpretq_u32_u64(vzip1q_u64(U64((a).part[p]), U64((b).part[p]))))
#define neon_unpackhi_epi64(a, b)                                                                  \
    BY_PARTS(vec, vreinterpretq_u32_u64(vzip2q_u64(U64((a).part[p]), U64((b).part[p]))))
#define EVEN_PARTS(a, b) ((vec){ { (a).part[0], (b).part[0] } })
#define ODD_PARTS(a, b) ((vec){ { (a).part[1], (b).part[1] } })
#include "backend/cpu/simd.h"

INLINE vec all_of(uint32_t x)
{
    return BY_PARTS(vec, vdupq_n_u32(x));
}

INLINE vec zero_elements(void)
{
    return all_of(0);
}

INLINE vecf zero_sums(void)
{
    return BY_PARTS(vecf, vdupq_n_f32(0.0f));
}

INLINE vecf as_floats(vec x)
{
    return BY_PARTS(vecf, vreinterpretq_f32_u32(x.part[p]));
}

INLINE vec as_elements(vecf x)
{
    return BY_PARTS(vec, vreinterpretq_u32_f32(x.part[p]));
}

INLINE vec load_elements(const mm_element *at)
{
    return BY_PARTS(vec, vld1q_u32(at + 4 * p));
}

INLINE void store_elements(mm_element *at, vec x)
{
    vst1q_u32(at, x.part[0]);
    vst1q_u32(at + 4, x.part[1]);
}

/* sum + x y. */
INLINE vecf multiply_elements(vecf sum, vec x, vec y)
{
#if PAIRS
    return BY_PARTS(vecf, vbfdotq_f32(sum.part[p], vreinterpretq_bf16_u32(x.part[p]),
                                      vreinterpretq_bf16_u32(y.part[p])));
#else
    return BY_PARTS(vecf, vfmaq_f32(sum.part[p], vreinterpretq_f32_u32(x.part[p]),
                                    vreinterpretq_f32_u32(y.part[p])));
#endif
}

/* sum + a b, with a in every lane. In assembly, because GCC copies a into all lanes first, which
 * takes instructions and registers that the micro-kernel does not have. */
INLINE vecf multiply_add(vecf sum, mm_element a, vec b)
{
    float one;
    memcpy(&one, &a, sizeof one);
#if PAIRS
#define BY_LANE "bfdot %0.4s, %1.8h, %2.2h[0]"
#else
#define BY_LANE "fmla %0.4s, %1.4s, %2.s[0]"
#endif
    for (int p = 0; p < 2; p++)
        __asm__(BY_LANE : "+w"(sum.part[p]) : "w"(b.part[p]), "w"(one));
    return sum;
}

INLINE vecf load_sums(const float *at)
{
    return BY_PARTS(vecf, vld1q_f32(at + 4 * p));
}

INLINE vecf add_sums(vecf x, vecf y)
{
    return BY_PARTS(vecf, vaddq_f32(x.part[p], y.part[p]));
}

INLINE vecf scale_sums(vecf x, float scale)
{
    return BY_PARTS(vecf, vmulq_n_f32(x.part[p], scale));
}

INLINE void put_sums(float *at, vecf sum, bool add)
{
    if (add)
        sum = add_sums(load_sums(at), sum);
    vst1q_f32(at, sum.part[0]);
    vst1q_f32(at + 4, sum.part[1]);
}

/* ---- bf16 */

/* The same as round_bf16() for numbers, infinity, and NaN as plain_nan() leaves it. */
INLINE vec round_bf16_number(vec x)
{
    vec odd = BY_PARTS(vec, vandq_u32(vshrq_n_u32(x.part[p], 16), vdupq_n_u32(1)));
    vec up = BY_PARTS(vec, vaddq_u32(vaddq_u32(x.part[p], vdupq_n_u32(0x7FFF)), odd.part[p]));
    return BY_PARTS(vec, vandq_u32(up.part[p], vdupq_n_u32(0xFFFF0000)));
}

/* Lanes of all ones where x is a number. */
INLINE vec is_number(vec x)
{
    vecf f = as_floats(x);
    return BY_PARTS(vec, vceqq_f32(f.part[p], f.part[p]));
}

/* To the nearest bf16 value, ties to even; a NaN stays one. */
INLINE vec round_bf16(vec x)
{
    vec number = is_number(x), up = round_bf16_number(x);
    vec quiet = BY_PARTS(
        vec, vandq_u32(vorrq_u32(x.part[p], vdupq_n_u32(0x400000)), vdupq_n_u32(0xFFFF0000)));
    return BY_PARTS(vec, vbslq_u32(number.part[p], up.part[p], quiet.part[p]));
}

/* Any NaN as the one whose rounding cannot overflow. */
INLINE vec plain_nan(vec x)
{
    vec number = is_number(x);
    return BY_PARTS(vec, vbslq_u32(number.part[p], x.part[p], vdupq_n_u32(0x7FC00000)));
}

/* Eight f32 values as bf16. */
INLINE uint16x8_t narrow(vecf x)
{
#if PAIRS
    bfloat16x8_t low = vcvtq_low_bf16_f32(x.part[0]);
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, x.part[1]));
#else
    vec bits = round_bf16(as_elements(x));
    return vshrn_high_n_u32(vshrn_n_u32(bits.part[0], 16), bits.part[1], 16);
#endif
}

/* ---- memory */

/* 32 bytes, zeros after `left`. */
INLINE vec load_bytes(const char *at, int64_t left)
{
    char bytes[32] = { 0 };
    if (left < 32 && left > 0)
        memcpy(bytes, at, (size_t)left);
    const char *from = left >= 32 ? at : bytes;
    return BY_PARTS(vec, vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)from + 16 * p)));
}

/* Eight bf16, zeros after n. */
INLINE uint16x8_t load_bf16(const char *at, int64_t n)
{
    if (n >= VECTOR)
        return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)at));
    return vreinterpretq_u16_u32(load_bytes(at, n * 2).part[0]);
}

/* Up to VECTOR values of f32 or bf16 as f32, zeros after n. */
INLINE vec load_values(dtype dt, const char *at, int64_t n)
{
    if (dt == DT_F32)
        return load_bytes(at, n * 4);
    uint16x8_t x = load_bf16(at, n);
    return (vec){ { vshll_n_u16(vget_low_u16(x), 16), vshll_high_n_u16(x, 16) } };
}

INLINE void store_values(dtype dt, char *at, vecf x, int64_t n)
{
    char bytes[32];
    if (dt == DT_F32)
        put_sums((float *)(n >= VECTOR ? at : bytes), x, false);
    else
        vst1q_u16((uint16_t *)(n >= VECTOR ? at : bytes), narrow(x));
    if (n < VECTOR)
        memcpy(at, bytes, (size_t)bytes_of(dt, n));
}

/* VALUES vectors of values, neighbours in k, as elements. */
INLINE vec elements_of(const vecf values[VALUES])
{
#if PAIRS
    return BY_PARTS(vec, vreinterpretq_u32_u16(narrow(values[p])));
#else
    return as_elements(values[0]);
#endif
}

/* VECTOR elements of a row whose k is contiguous; zeros after n values. */
INLINE vec load_row_elements(dtype dt, mm_format format, const char *at, int64_t n)
{
#if PAIRS
    (void)format;
    if (dt == DT_BF16)
        return load_bytes(at, n * 2);
    const vecf values[VALUES] = { as_floats(load_values(DT_F32, at, n)),
                                  as_floats(load_values(DT_F32, at + 32, n - VECTOR)) };
    return elements_of(values);
#else
    vec x = load_values(dt, at, n);
    return format == MM_BF16_WIDENED && dt != DT_BF16 ? round_bf16(x) : x;
#endif
}

#if PAIRS
INLINE vec pair_halves(uint16x8_t even, uint16x8_t odd)
{
    return (vec){ { vreinterpretq_u32_u16(vzip1q_u16(even, odd)),
                    vreinterpretq_u32_u16(vzip2q_u16(even, odd)) } };
}

/* Pairs of f32 values rounded to bf16: `even` in the low halves, `odd` in the high ones. */
INLINE vec pair_up(vec even, vec odd)
{
    return pair_halves(narrow(as_floats(even)), narrow(as_floats(odd)));
}

/* Pairs of n bf16 at `even` and n at `odd`, the next k; k: how many of the two exist. */
INLINE vec pair_bf16(const char *even, const char *odd, int64_t n, int64_t k)
{
    return pair_halves(k > 0 ? load_bf16(even, n) : vdupq_n_u16(0),
                       k > 1 ? load_bf16(odd, n) : vdupq_n_u16(0));
}
#endif

/* ---- NF4 */

/* Looks up the code in the low four bits of each lane, in a table of the bytes of all codes. */
INLINE vec nf4_values(vec index, vecf scale)
{
    uint8x16x4_t table;
    for (int i = 0; i < 4; i++)
        table.val[i] = vreinterpretq_u8_f32(vld1q_f32(nf4_code + 4 * i));
    vec code = BY_PARTS(vec, vandq_u32(index.part[p], vdupq_n_u32(15)));
    vec bytes = BY_PARTS(vec, vmlaq_n_u32(vdupq_n_u32(0x03020100), code.part[p], 0x04040404));
    vec value =
        BY_PARTS(vec, vreinterpretq_u32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(bytes.part[p]))));
    return BY_PARTS(
        vec, vreinterpretq_u32_f32(vmulq_f32(vreinterpretq_f32_u32(value.part[p]), scale.part[p])));
}

INLINE vec shifted_right_by(vec x, vec bits)
{
    return BY_PARTS(vec, vshlq_u32(x.part[p], vnegq_s32(vreinterpretq_s32_u32(bits.part[p]))));
}

/* VECTOR neighbouring codes. */
INLINE vec load_nf4(const char *at, float scale)
{
    static const uint32_t shifts[VECTOR] = { 4, 0, 12, 8, 20, 16, 28, 24 };
    uint32_t codes;
    memcpy(&codes, at, sizeof codes);
    return nf4_values(shifted_right_by(all_of(codes), load_elements(shifts)),
                      BY_PARTS(vecf, vdupq_n_f32(scale)));
}

#if PAIRS
/* Decodes a block of NF4, 64 codes in eight dwords, into 32 elements of MM_BF16_PAIR_NF4. Shifting
 * every 16-bit half of the codes by 4, 0, 12 and 8 bits gives elements 0, 1, 2 and 3 of each dword;
 * out[i] holds elements i of all dwords. */
INLINE void nf4_block(const char *at, float scale, vec out[NF4_VECTORS])
{
    static const int16_t shifts[NF4_VECTORS] = { -4, 0, -12, -8 };
    uint8x16x2_t table;
    for (int i = 0; i < 2; i++)
        table.val[i] =
            vreinterpretq_u8_u16(narrow(scale_sums(load_sums(nf4_code + VECTOR * i), scale)));
    vec codes = load_bytes(at, 32);
#pragma GCC unroll 64
    for (int i = 0; i < NF4_VECTORS; i++)
        for (int p = 0; p < 2; p++) {
            uint16x8_t code =
                vshlq_u16(vreinterpretq_u16_u32(codes.part[p]), vdupq_n_s16(shifts[i]));
            code = vandq_u16(code, vdupq_n_u16(15));
            uint16x8_t bytes = vmlaq_n_u16(vdupq_n_u16(0x0100), code, 0x0202);
            out[i].part[p] = vreinterpretq_u32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u16(bytes)));
        }
}

/* Reorders 64 bf16 that are neighbours in k into the order of nf4_block, in place. */
INLINE void reorder_as_nf4(mm_element *first, mm_element *second)
{
    uint16x8x4_t low = vld4q_u16((const uint16_t *)first);
    uint16x8x4_t high = vld4q_u16((const uint16_t *)second);
#pragma GCC unroll 64
    for (int i = 0; i < NF4_VECTORS; i++) {
        mm_element *to = (i < 2 ? first : second) + i % 2 * VECTOR;
        vst1q_u16((uint16_t *)to, low.val[i]);
        vst1q_u16((uint16_t *)(to + 4), high.val[i]);
    }
}
#endif

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
    if (dt == DT_BF16 && i % 2)
        return BY_PARTS(vec, vandq_u32(dwords[i / 2].part[p], vdupq_n_u32(0xFFFF0000)));
    if (dt == DT_BF16)
        return BY_PARTS(vec, vshlq_n_u32(dwords[i / 2].part[p], 16));
    return nf4_values(shifted_right_by(dwords[0], all_of((uint32_t)nf4_shift(i))),
                      as_floats(scale));
}
