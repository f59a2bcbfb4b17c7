#include "format/quants.h"

#include "tensor/bf16.h"

#include <math.h>
#include <string.h>

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f16_to_f32(h);
}

/* Q4 and Q5: 32 elements, the first 16 in the low nibbles and the last 16 in the high ones; a fifth
 * bit of each, if there is one, in a 32-bit mask; centred by `zero`, or with a minimum. */
static void nibbles(float *out, const uint8_t *qs, uint32_t fifth, int zero, float d, float m)
{
    for (int i = 0; i < 16; i++) {
        int low = (qs[i] & 15) | (int)(fifth >> i & 1) << 4;
        int high = qs[i] >> 4 | (int)(fifth >> (i + 16) & 1) << 4;
        out[i] = d * (float)(low - zero) + m;
        out[i + 16] = d * (float)(high - zero) + m;
    }
}

static uint32_t mask_at(const uint8_t *p)
{
    uint32_t mask;
    memcpy(&mask, p, sizeof mask);
    return mask;
}

/* Each reads one block into out and returns what must be finite: its scale plus its minimum. The
 * formats without a minimum add -0, which changes no number, not even -0. */
static float q4_0(float *out, const uint8_t *b)
{
    float d = half_at(b);
    nibbles(out, b + 2, 0, 8, d, -0.0f);
    return d;
}

static float q4_1(float *out, const uint8_t *b)
{
    float d = half_at(b), m = half_at(b + 2);
    nibbles(out, b + 4, 0, 0, d, m);
    return d + m;
}

static float q5_0(float *out, const uint8_t *b)
{
    float d = half_at(b);
    nibbles(out, b + 6, mask_at(b + 2), 16, d, -0.0f);
    return d;
}

static float q5_1(float *out, const uint8_t *b)
{
    float d = half_at(b), m = half_at(b + 2);
    nibbles(out, b + 8, mask_at(b + 4), 0, d, m);
    return d + m;
}

static float q8_0(float *out, const uint8_t *b)
{
    float d = half_at(b);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(int8_t)b[2 + i] * d;
    return d;
}

/* IQ4_NL: nibbles in the order of Q4_0 that choose one of 16 unevenly spaced values. */
static float iq4_nl(float *out, const uint8_t *b)
{
    static const int8_t values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113 };
    float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)values[b[2 + i] & 15];
        out[i + 16] = d * (float)values[b[2 + i] >> 4];
    }
    return d;
}

/* Q2_K and Q3_K: 8 runs of 32; four runs have their two bits in the same 32 bytes. */
static int pair_at(const uint8_t *qs, int run, int i)
{
    return qs[run / 4 * 32 + i] >> run % 4 * 2 & 3;
}

/* Q2_K: a 4-bit scale and a 4-bit minimum in one byte for every 16 elements. */
static float q2_k(float *out, const uint8_t *b)
{
    float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int run = 0; run < 8; run++)
        for (int i = 0; i < 32; i++) {
            uint8_t s = b[2 * run + i / 16];
            float ds = d * (float)(s & 15), dm = dmin * (float)(s >> 4);
            out[32 * run + i] = ds * (float)pair_at(b + 16, run, i) - dm;
        }
    return d + dmin;
}

/* Q3_K: a third bit of each element in 32 bytes, one bit a run; 4 is subtracted where it is 0. The
 * 16 scales have 6 bits, centred by 32: four of the low bits in bytes 0..7, the lower nibbles
 * first, and the upper two in bytes 8..11. */
static float q3_k(float *out, const uint8_t *b)
{
    const uint8_t *third = b, *qs = b + 32, *s = b + 96;
    float d = half_at(b + 108);
    for (int run = 0; run < 8; run++)
        for (int i = 0; i < 32; i++) {
            int g = 2 * run + i / 16;
            int low = s[g % 8] >> g / 8 * 4 & 15, high = s[8 + g % 4] >> g / 4 * 2 & 3;
            float ds = d * (float)((low | high << 4) - 32);
            int q = pair_at(qs, run, i) - (third[i] >> run & 1 ? 0 : 4);
            out[32 * run + i] = ds * (float)q;
        }
    return d;
}

/* Q4_K and Q5_K: 8 groups of 32 with a 6-bit scale and a 6-bit minimum each, in 12 bytes: groups
 * 0..3 have theirs in the low six bits of bytes 0..3 and 4..7; groups 4..7 have four bits in bytes
 * 8..11 and the two upper ones on top of bytes 0..3 and 4..7. Two groups share 32 bytes of nibbles;
 * a fifth bit, if there is one, is in 32 more bytes, one bit a group. */
static float groups(float *out, const uint8_t *b, const uint8_t *fifth, const uint8_t *qs)
{
    float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *s = b + 4;
    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        int least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
        float ds = d * (float)scale, dm = dmin * (float)least;
        const uint8_t *q = qs + g / 2 * 32;
        for (int i = 0; i < 32; i++) {
            int top = fifth ? (fifth[i] >> g & 1) << 4 : 0;
            out[32 * g + i] = ds * (float)((q[i] >> g % 2 * 4 & 15) | top) - dm;
        }
    }
    return d + dmin;
}

static float q4_k(float *out, const uint8_t *b)
{
    return groups(out, b, NULL, b + 16);
}

static float q5_k(float *out, const uint8_t *b)
{
    return groups(out, b, b + 16, b + 48);
}

/* Q6_K: two halves of 128; in each, four runs of 32: the low four bits in 64 bytes of nibbles, the
 * upper two in 32 bytes of pairs; one signed 8-bit scale for every 16 elements. */
static float q6_k(float *out, const uint8_t *b)
{
    const uint8_t *scales = b + 192;
    float d = half_at(b + 208);
    for (int run = 0; run < 8; run++) {
        const uint8_t *low = b + run / 4 * 64 + run % 2 * 32, *high = b + 128 + run / 4 * 32;
        int low_shift = run % 4 / 2 * 4, high_shift = run % 4 * 2;
        for (int i = 0; i < 32; i++) {
            int q = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
            float ds = d * (float)(int8_t)scales[2 * run + i / 16];
            out[32 * run + i] = ds * (float)(q - 32);
        }
    }
    return d;
}

static float (*const readers[DT_COUNT])(float *, const uint8_t *) = {
    [DT_Q4_0] = q4_0, [DT_Q4_1] = q4_1, [DT_Q5_0] = q5_0,     [DT_Q5_1] = q5_1,
    [DT_Q8_0] = q8_0, [DT_Q2_K] = q2_k, [DT_Q3_K] = q3_k,     [DT_Q4_K] = q4_k,
    [DT_Q5_K] = q5_k, [DT_Q6_K] = q6_k, [DT_IQ4_NL] = iq4_nl,
};

bool quants_is(dtype dt)
{
    return readers[dt] != NULL;
}

bool quants_dequantize(dtype dt, const void *blocks, int64_t n, float *out)
{
    const uint8_t *b = blocks;
    int64_t block = (int64_t)dtype_block(dt);
    size_t bytes = dtype_block_bytes(dt);
    bool finite = true;
    for (int64_t i = 0; i + block <= n; i += block, b += bytes)
        finite &= isfinite(readers[dt](out + i, b)) != 0;
    return finite;
}
