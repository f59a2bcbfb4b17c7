#include "tensor/quants.h"

#include "tensor/bf16.h"

#include <string.h>

/* ---- one group of 32 elements; the loops are plain so that the compiler vectorises them ---- */

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f16_to_f32(h);
}

/* out = d * (code - zero) + m for n codes. */
static void scaled(float *restrict out, const uint8_t *restrict codes, int n, int zero, float d,
                   float m)
{
    for (int i = 0; i < n; i++)
        out[i] = d * (float)(codes[i] - zero) + m;
}

/* Q4 and Q5: 32 elements, the first 16 in the low nibbles and the last 16 in the high ones; a fifth
 * bit of each, if there is one, in a 32-bit mask; centred by `zero`, or with a minimum. The formats
 * without a minimum add -0, which changes no number, not even -0. */
static void nibbles(float *restrict out, const uint8_t *restrict qs, uint32_t fifth, int zero,
                    float d, float m)
{
    uint8_t codes[32];
    for (int i = 0; i < 16; i++)
        codes[i] = qs[i] & 15;
    for (int i = 0; i < 16; i++)
        codes[i + 16] = qs[i] >> 4;
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)(codes[i] | (fifth >> i & 1) << 4);
    scaled(out, codes, 32, zero, d, m);
}

static uint32_t mask_at(const uint8_t *p)
{
    uint32_t mask;
    memcpy(&mask, p, sizeof mask);
    return mask;
}

static void q8_0(float *restrict out, const uint8_t *restrict b)
{
    float d = half_at(b);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(int8_t)b[2 + i] * d;
}

/* Nibbles in the order of Q4_0 that choose one of 16 unevenly spaced values. */
static void chosen(float *restrict out, const uint8_t *restrict qs, const int8_t values[16],
                   float d)
{
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)values[qs[i] & 15];
        out[i + 16] = d * (float)values[qs[i] >> 4];
    }
}

static const int8_t iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113 };

/* IQ4_XS: eight groups, each with a scale of 6 bits, centred by 32: the low four in the nibbles of
 * bytes 4..7, the upper two in bytes 2 and 3. */
static void iq4_xs(float *restrict out, const uint8_t *restrict b, int g)
{
    int low = b[4 + g / 2] >> g % 2 * 4 & 15, high = b[2 + g / 4] >> g % 4 * 2 & 3;
    chosen(out, b + 8 + g * 16, iq4_values, half_at(b) * (float)((low | high << 4) - 32));
}

/* MXFP4: 4-bit floats, here doubled, and a power of two: its biased exponent. */
static void mxfp4(float *restrict out, const uint8_t *restrict b)
{
    static const int8_t doubled[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    uint32_t bits = b[0] < 2 ? UINT32_C(0x200000) << b[0] : (uint32_t)(b[0] - 1) << 23;
    float half;
    memcpy(&half, &bits, sizeof half);
    chosen(out, b + 1, doubled, half);
}

/* Q2_K and Q3_K: four groups have their two bits in the same 32 bytes. */
static void pairs(uint8_t *restrict codes, const uint8_t *restrict qs, int g)
{
    for (int i = 0; i < 32; i++)
        codes[i] = qs[g / 4 * 32 + i] >> g % 4 * 2 & 3;
}

/* Q2_K: a 4-bit scale and a 4-bit minimum in one byte for every 16 elements. */
static void q2_k(float *restrict out, const uint8_t *restrict b, int g)
{
    float d = half_at(b + 80), dmin = half_at(b + 82);
    uint8_t codes[32];
    pairs(codes, b + 16, g);
    for (int half = 0; half < 2; half++) {
        uint8_t s = b[2 * g + half];
        scaled(out + 16 * half, codes + 16 * half, 16, 0, d * (float)(s & 15),
               -(dmin * (float)(s >> 4)));
    }
}

/* Q3_K: a third bit of each element in 32 bytes, one bit a group; 4 is subtracted where it is 0.
 * The 16 scales have 6 bits, centred by 32: four of the low bits in bytes 0..7, the lower nibbles
 * first, and the upper two in bytes 8..11. */
static void q3_k(float *restrict out, const uint8_t *restrict b, int g)
{
    const uint8_t *third = b, *s = b + 96;
    float d = half_at(b + 108);
    uint8_t codes[32];
    pairs(codes, b + 32, g);
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)(codes[i] | (third[i] >> g & 1) << 2);
    for (int half = 0; half < 2; half++) {
        int n = 2 * g + half;
        int low = s[n % 8] >> n / 8 * 4 & 15, high = s[8 + n % 4] >> n / 4 * 2 & 3;
        scaled(out + 16 * half, codes + 16 * half, 16, 4, d * (float)((low | high << 4) - 32),
               -0.0f);
    }
}

/* Q4_K and Q5_K: groups with a 6-bit scale and a 6-bit minimum each, in 12 bytes: groups 0..3 have
 * theirs in the low six bits of bytes 0..3 and 4..7; groups 4..7 have four bits in bytes 8..11 and
 * the two upper ones on top of bytes 0..3 and 4..7. Two groups share 32 bytes of nibbles; a fifth
 * bit, if there is one, is in 32 more bytes, one bit a group. */
static void q45_k(float *restrict out, const uint8_t *restrict b, int g, const uint8_t *fifth,
                  const uint8_t *qs)
{
    float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *s = b + 4, *q = qs + g / 2 * 32;
    int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    int least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
    float ds = d * (float)scale, dm = dmin * (float)least;
    uint8_t codes[32];
    for (int i = 0; i < 32; i++)
        codes[i] = q[i] >> g % 2 * 4 & 15;
    for (int i = 0; fifth && i < 32; i++)
        codes[i] = (uint8_t)(codes[i] | (fifth[i] >> g & 1) << 4);
    scaled(out, codes, 32, 0, ds, -dm);
}

/* Q6_K: two halves of 128; in each, four groups: the low four bits in 64 bytes of nibbles, the
 * upper two in 32 bytes of pairs; one signed 8-bit scale for every 16 elements. */
static void q6_k(float *restrict out, const uint8_t *restrict b, int g)
{
    const uint8_t *scales = b + 192, *low = b + g / 4 * 64 + g % 2 * 32;
    const uint8_t *high = b + 128 + g / 4 * 32;
    int low_shift = g % 4 / 2 * 4, high_shift = g % 4 * 2;
    float d = half_at(b + 208);
    uint8_t codes[32];
    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
    for (int half = 0; half < 2; half++)
        scaled(out + 16 * half, codes + 16 * half, 16, 32, d * (float)(int8_t)scales[2 * g + half],
               -0.0f);
}

/* Group g of the block at b. */
static void group(dtype dt, const uint8_t *b, int g, float *out)
{
    switch (dt) {
    case DT_Q4_0:
        nibbles(out, b + 2, 0, 8, half_at(b), -0.0f);
        break;
    case DT_Q4_1:
        nibbles(out, b + 4, 0, 0, half_at(b), half_at(b + 2));
        break;
    case DT_Q5_0:
        nibbles(out, b + 6, mask_at(b + 2), 16, half_at(b), -0.0f);
        break;
    case DT_Q5_1:
        nibbles(out, b + 8, mask_at(b + 4), 0, half_at(b), half_at(b + 2));
        break;
    case DT_Q8_0:
        q8_0(out, b);
        break;
    case DT_IQ4_NL:
        chosen(out, b + 2, iq4_values, half_at(b));
        break;
    case DT_IQ4_XS:
        iq4_xs(out, b, g);
        break;
    case DT_MXFP4:
        mxfp4(out, b);
        break;
    case DT_Q2_K:
        q2_k(out, b, g);
        break;
    case DT_Q3_K:
        q3_k(out, b, g);
        break;
    case DT_Q4_K:
        q45_k(out, b, g, NULL, b + 16);
        break;
    case DT_Q5_K:
        q45_k(out, b, g, b + 16, b + 48);
        break;
    case DT_Q6_K:
        q6_k(out, b, g);
        break;
    default: /* no block format */
        break;
    }
}

void quants_unpack(dtype dt, const void *row, int64_t first, int64_t n, float *out)
{
    int64_t block = (int64_t)dtype_block(dt), bytes = (int64_t)dtype_block_bytes(dt);
    for (int64_t i = first; i < first + n; i += QUANTS_GROUP, out += QUANTS_GROUP)
        group(dt, (const uint8_t *)row + i / block * bytes, (int)(i % block / QUANTS_GROUP), out);
}

/* ---- */

/* Where the f16 scale and minimum of a block are; the same place twice: it has no minimum. */
static const struct halves {
    uint8_t scale, minimum;
    bool known;
} halves[DT_COUNT] = {
    [DT_Q4_0] = { 0, 0, true },     [DT_Q4_1] = { 0, 2, true },   [DT_Q5_0] = { 0, 0, true },
    [DT_Q5_1] = { 0, 2, true },     [DT_Q8_0] = { 0, 0, true },   [DT_Q2_K] = { 80, 82, true },
    [DT_Q3_K] = { 108, 108, true }, [DT_Q4_K] = { 0, 2, true },   [DT_Q5_K] = { 0, 2, true },
    [DT_Q6_K] = { 208, 208, true }, [DT_IQ4_NL] = { 0, 0, true }, [DT_IQ4_XS] = { 0, 0, true },
    [DT_MXFP4] = { 0, 0, true }, /* no halves: see quants_finite */
};

bool quants_is(dtype dt)
{
    return halves[dt].known;
}

bool quants_finite(dtype dt, const void *blocks, int64_t n)
{
    enum {
        EXPONENT = 0x7C00, /* all ones: infinity or NaN */
        MXFP4_SCALE = 252  /* the largest of which 6, the largest 4-bit float, is finite */
    };
    const uint8_t *b = blocks,
                  *end = b + n / (int64_t)dtype_block(dt) * (int64_t)dtype_block_bytes(dt);
    struct halves at = halves[dt];
    bool finite = true;
    for (; dt == DT_MXFP4 && b < end; b += dtype_block_bytes(dt))
        finite &= *b <= MXFP4_SCALE;
    for (; b < end; b += dtype_block_bytes(dt)) {
        uint16_t scale, minimum;
        memcpy(&scale, b + at.scale, sizeof scale);
        memcpy(&minimum, b + at.minimum, sizeof minimum);
        finite &= (scale & EXPONENT) != EXPONENT && (minimum & EXPONENT) != EXPONENT;
    }
    return finite;
}

bool quants_dequantize(dtype dt, const void *blocks, int64_t n, float *out)
{
    quants_unpack(dt, blocks, 0, n, out);
    return quants_finite(dt, blocks, n);
}
