/* The writing half of quants.h.
 *
 * Every format stores x as scale * q, or scale * q - minimum, with q a small integer. Given the
 * scale the best q is known, and given the q the best scale (and minimum) is a least-squares
 * solution. So a group is fitted by alternating the two, from several starting scales around the
 * one that just covers the largest element, and the fit of the smallest squared error is kept. The
 * scales of a super-block (Q4_K, Q6_K) are then rounded to their own integers, all q are chosen
 * again for the rounded scales, and the common factors are solved for once more. */
#include "tensor/quants.h"

#include "tensor/bf16.h"

#include <math.h>
#include <string.h>

enum {
    STARTS = 9,  /* starting scales tried on a group */
    ROUNDS = 2,  /* of alternation from each */
    BLOCK = 32,  /* elements of Q8_0 and Q4_0, and of a group of Q4_K */
    SUPER = 256, /* elements of a super-block */
    PART = 16,   /* elements of a group of Q6_K */
};

/* To the nearest integer, ties to even; |x| < 2^22. */
static float nearest(float x)
{
    const float shift = 0x1.8p23f;
    return (x + shift) - shift;
}

static float clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

/* 1 / x for scales; 0 for 0, so that all q become 0. */
static float inverse(float x)
{
    return x != 0 ? 1 / x : 0;
}

static float put_half(uint8_t *p, float x)
{
    uint16_t h;
    f16_encode(&h, &x, 1);
    memcpy(p, &h, sizeof h);
    return f16_to_f32(h);
}

/* The element that is farthest from 0, with its sign. */
static float farthest(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    return most;
}

/* ---- x = scale * q, -low <= q < low ---- */

static float symmetric_error(const float *x, int n, float scale, float low, float *better)
{
    float inv = inverse(scale), error = 0, xq = 0, qq = 0;
    for (int i = 0; i < n; i++) {
        float q = clamp(nearest(x[i] * inv), -low, low - 1), e = x[i] - scale * q;
        error += e * e;
        xq += x[i] * q;
        qq += q * q;
    }
    *better = qq > 0 ? xq / qq : scale;
    return error;
}

/* The range has one value more below 0, so the sign of the scale sends the farthest element there.
 */
static float fit_symmetric(const float *x, int n, float low)
{
    float most = farthest(x, n), best = most / -low, least = INFINITY;
    for (int k = 0; k < STARTS && most != 0; k++) {
        float scale = most / -(low + 0.2f * (float)(k - STARTS / 2)), better;
        for (int round = 0; round <= ROUNDS; round++, scale = better) {
            float error = symmetric_error(x, n, scale, low, &better);
            if (error < least) {
                least = error;
                best = scale;
            }
        }
    }
    return best;
}

/* ---- x = scale * q - minimum, 0 <= q <= 15, minimum >= 0 ---- */

typedef struct affine {
    float scale, minimum;
} affine;

static float affine_error(const float *x, affine f, affine *better)
{
    float inv = inverse(f.scale), error = 0, q1 = 0, q2 = 0, x1 = 0, xq = 0;
    for (int i = 0; i < BLOCK; i++) {
        float q = clamp(nearest((x[i] + f.minimum) * inv), 0, 15);
        float e = x[i] - (f.scale * q - f.minimum);
        error += e * e;
        q1 += q;
        q2 += q * q;
        x1 += x[i];
        xq += x[i] * q;
    }
    float det = (float)BLOCK * q2 - q1 * q1;
    *better = f;
    if (det > 0) {
        better->scale = ((float)BLOCK * xq - q1 * x1) / det;
        better->minimum = -(q2 * x1 - q1 * xq) / det;
    }
    if (better->minimum < 0 && q2 > 0)
        *better = (affine){ xq / q2, 0 };
    return error;
}

static affine fit_affine(const float *x)
{
    float low = 0, high = x[0];
    for (int i = 0; i < BLOCK; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    affine best = { (high - low) / 15, -low };
    float least = INFINITY;
    for (int k = 0; k < STARTS && high > low; k++) {
        affine f = { (high - low) / (15 + 0.35f * (float)(k - STARTS / 3)), -low }, better;
        for (int round = 0; round <= ROUNDS; round++, f = better) {
            float error = affine_error(x, f, &better);
            if (error < least && f.scale > 0) {
                least = error;
                best = f;
            }
        }
    }
    return best;
}

/* ---- blocks of 32 ---- */

static float q8_0(uint8_t *b, const float *x)
{
    float scale = fabsf(farthest(x, BLOCK)) / 127, inv = inverse(scale);
    scale = put_half(b, scale);
    for (int i = 0; i < BLOCK; i++)
        b[2 + i] = (uint8_t)(int8_t)clamp(nearest(x[i] * inv), -128, 127);
    return scale;
}

static float q4_0(uint8_t *b, const float *x)
{
    float scale = put_half(b, fit_symmetric(x, BLOCK, 8)), inv = inverse(scale);
    for (int i = 0; i < BLOCK / 2; i++) {
        unsigned low = (unsigned)(clamp(nearest(x[i] * inv), -8, 7) + 8);
        unsigned high = (unsigned)(clamp(nearest(x[i + BLOCK / 2] * inv), -8, 7) + 8);
        b[2 + i] = (uint8_t)(low | high << 4);
    }
    return scale;
}

/* ---- Q4_K ---- */

typedef struct q4k {
    float d, dmin;
    float scale[SUPER / BLOCK], least[SUPER / BLOCK]; /* 0..63 */
    float q[SUPER];
} q4k;

static void q4k_choose(q4k *k, const float *x)
{
    for (int g = 0; g < SUPER / BLOCK; g++) {
        float inv = inverse(k->d * k->scale[g]), minimum = k->dmin * k->least[g];
        for (int i = BLOCK * g; i < BLOCK * (g + 1); i++)
            k->q[i] = clamp(nearest((x[i] + minimum) * inv), 0, 15);
    }
}

/* d and dmin that fit best with everything else as it is. */
static void q4k_solve(q4k *k, const float *x)
{
    float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int i = 0; i < SUPER; i++) {
        float a = k->scale[i / BLOCK] * k->q[i], b = -k->least[i / BLOCK];
        aa += a * a;
        ab += a * b;
        bb += b * b;
        xa += x[i] * a;
        xb += x[i] * b;
    }
    float det = aa * bb - ab * ab;
    if (det > 1e-6f * aa * bb) {
        k->d = (xa * bb - xb * ab) / det;
        k->dmin = (xb * aa - xa * ab) / det;
    } else if (aa > 0 && bb == 0) {
        k->d = xa / aa;
    }
}

/* The squared error of a group with these two codes. */
static float q4k_error(const q4k *k, const float *x, float scale, float least)
{
    float ds = k->d * scale, inv = inverse(ds), minimum = k->dmin * least, error = 0;
    for (int i = 0; i < BLOCK; i++) {
        float e = x[i] - (ds * clamp(nearest((x[i] + minimum) * inv), 0, 15) - minimum);
        error += e * e;
    }
    return error;
}

/* Scale and minimum of each group were rounded one by one: a neighbour of the two may be better. */
static void q4k_refine(q4k *k, const float *x)
{
    for (int g = 0; g < SUPER / BLOCK; g++) {
        float scale = k->scale[g], least = k->least[g], best = INFINITY;
        for (int i = 0; i < 9; i++) {
            float s = clamp(scale + (float)(i % 3 - 1), 0, 63);
            float m = clamp(least + (float)(i / 3 - 1), 0, 63);
            float error = q4k_error(k, x + BLOCK * g, s, m);
            if (error < best) {
                best = error;
                k->scale[g] = s;
                k->least[g] = m;
            }
        }
    }
}

static void q4k_fit(q4k *k, const float *x)
{
    affine fit[SUPER / BLOCK];
    float scale = 0, minimum = 0;
    for (int g = 0; g < SUPER / BLOCK; g++) {
        fit[g] = fit_affine(x + BLOCK * g);
        scale = fmaxf(scale, fit[g].scale);
        minimum = fmaxf(minimum, fit[g].minimum);
    }
    k->d = scale / 63;
    k->dmin = minimum / 63;
    for (int g = 0; g < SUPER / BLOCK; g++) {
        k->scale[g] = clamp(nearest(fit[g].scale * inverse(k->d)), 0, 63);
        k->least[g] = clamp(nearest(fit[g].minimum * inverse(k->dmin)), 0, 63);
    }
    for (int round = 0; round < ROUNDS; round++) {
        q4k_refine(k, x);
        q4k_choose(k, x);
        q4k_solve(k, x);
    }
}

static float q4_k(uint8_t *b, const float *x)
{
    q4k k;
    uint8_t *s = b + 4, *qs = b + 16;
    q4k_fit(&k, x);
    k.d = put_half(b, k.d);
    k.dmin = put_half(b + 2, k.dmin);
    q4k_refine(&k, x);
    q4k_choose(&k, x);
    memset(s, 0, 12);
    for (int g = 0; g < SUPER / BLOCK; g++) {
        unsigned scale = (unsigned)k.scale[g], least = (unsigned)k.least[g];
        if (g < 4) {
            s[g] |= (uint8_t)scale;
            s[g + 4] |= (uint8_t)least;
        } else {
            s[g + 4] = (uint8_t)((scale & 15) | (least & 15) << 4);
            s[g - 4] |= (uint8_t)(scale >> 4 << 6);
            s[g] |= (uint8_t)(least >> 4 << 6);
        }
    }
    for (int i = 0; i < SUPER / 2; i++) {
        int at = i / BLOCK * 2 * BLOCK + i % BLOCK;
        qs[i] = (uint8_t)((unsigned)k.q[at] | (unsigned)k.q[at + BLOCK] << 4);
    }
    return k.d + k.dmin;
}

/* ---- Q6_K ---- */

typedef struct q6k {
    float d;
    float scale[SUPER / PART]; /* -128..127 */
    float q[SUPER];            /* -32..31 */
} q6k;

static void q6k_choose(q6k *k, const float *x)
{
    for (int g = 0; g < SUPER / PART; g++) {
        float inv = inverse(k->d * k->scale[g]);
        for (int i = PART * g; i < PART * (g + 1); i++)
            k->q[i] = clamp(nearest(x[i] * inv), -32, 31);
    }
}

static void q6k_fit(q6k *k, const float *x)
{
    float fit[SUPER / PART], xa = 0, aa = 0;
    for (int g = 0; g < SUPER / PART; g++)
        fit[g] = fit_symmetric(x + PART * g, PART, 32);
    k->d = farthest(fit, SUPER / PART) / -128;
    for (int g = 0; g < SUPER / PART; g++)
        k->scale[g] = clamp(nearest(fit[g] * inverse(k->d)), -128, 127);
    q6k_choose(k, x);
    for (int i = 0; i < SUPER; i++) {
        float a = k->scale[i / PART] * k->q[i];
        xa += x[i] * a;
        aa += a * a;
    }
    k->d = aa > 0 ? xa / aa : k->d;
}

static float q6_k(uint8_t *b, const float *x)
{
    q6k k;
    q6k_fit(&k, x);
    k.d = put_half(b + 208, k.d);
    q6k_choose(&k, x);
    memset(b, 0, 192);
    for (int run = 0; run < 8; run++) {
        uint8_t *low = b + run / 4 * 64 + run % 2 * 32, *high = b + 128 + run / 4 * 32;
        for (int i = 0; i < 32; i++) {
            unsigned q = (unsigned)(k.q[32 * run + i] + 32);
            low[i] |= (uint8_t)((q & 15) << run % 4 / 2 * 4);
            high[i] |= (uint8_t)(q >> 4 << run % 4 * 2);
        }
    }
    for (int g = 0; g < SUPER / PART; g++)
        b[192 + g] = (uint8_t)(int8_t)k.scale[g];
    return k.d;
}

/* ---- the table ---- */

static float (*const writers[DT_COUNT])(uint8_t *, const float *) = {
    [DT_Q8_0] = q8_0,
    [DT_Q4_0] = q4_0,
    [DT_Q4_K] = q4_k,
    [DT_Q6_K] = q6_k,
};

bool quants_writes(dtype dt)
{
    return writers[dt] != NULL;
}

static bool all_finite(const float *x, int64_t n)
{
    float sum = 0; /* x - x is 0, or not a number */
    for (int64_t i = 0; i < n; i++)
        sum += x[i] - x[i];
    return sum == 0;
}

bool quants_quantize(dtype dt, const float *x, int64_t n, void *blocks)
{
    uint8_t *b = blocks;
    int64_t block = (int64_t)dtype_block(dt);
    size_t bytes = dtype_block_bytes(dt);
    bool finite = true;
    for (int64_t i = 0; i + block <= n && finite; i += block, b += bytes)
        finite = all_finite(x + i, block) && isfinite(writers[dt](b, x + i));
    return finite;
}
