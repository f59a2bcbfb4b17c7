#include "tensor/nf4.h"

#include <math.h>
#include <string.h>

const float nf4_code[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/* Midpoints of neighbouring codes, rounded to f32; an element above threshold[i] has a code above
 * i.
 */
static const float threshold[15] = {
    -0.8480963706970215f,  -0.6106328964233398f,  -0.4599952697753906f,   -0.33967941999435425f,
    -0.23460739850997925f, -0.13791173696517944f, -0.045525018125772476f, 0.03979014977812767f,
    0.120255246758461f,    0.2035212516784668f,   0.2920137643814087f,    0.3893125355243683f,
    0.5016634464263916f,   0.6427869200706482f,   0.8614784479141235f,
};

/* The dynamic 8-bit type: a sign, a power of ten 10^-6..10^0 in unary, and a linear fraction in the
 * remaining bits. The values are those of bitsandbytes' create_dynamic_map() in f32. */
static const float dynamic_map[256] = {
    -0.992968738f,    -0.978906274f,    -0.96484375f,     -0.950781226f,
    -0.936718762f,    -0.922656238f,    -0.908593774f,    -0.89453125f,
    -0.880468726f,    -0.866406262f,    -0.852343738f,    -0.838281274f,
    -0.82421875f,     -0.810156226f,    -0.796093762f,    -0.782031238f,
    -0.767968774f,    -0.75390625f,     -0.739843726f,    -0.725781262f,
    -0.711718798f,    -0.697656274f,    -0.68359375f,     -0.669531226f,
    -0.655468762f,    -0.641406298f,    -0.627343774f,    -0.61328125f,
    -0.599218726f,    -0.585156262f,    -0.571093798f,    -0.557031274f,
    -0.54296875f,     -0.528906226f,    -0.514843702f,    -0.500781238f,
    -0.486718714f,    -0.47265625f,     -0.458593726f,    -0.444531262f,
    -0.430468738f,    -0.416406244f,    -0.40234375f,     -0.388281226f,
    -0.374218762f,    -0.360156238f,    -0.346093744f,    -0.33203125f,
    -0.317968726f,    -0.303906262f,    -0.289843738f,    -0.275781274f,
    -0.26171875f,     -0.247656241f,    -0.233593747f,    -0.219531253f,
    -0.205468744f,    -0.19140625f,     -0.177343756f,    -0.163281247f,
    -0.149218753f,    -0.135156244f,    -0.12109375f,     -0.107031256f,
    -0.0985937491f,   -0.0957812592f,   -0.0929687545f,   -0.0901562497f,
    -0.0873437524f,   -0.0845312476f,   -0.0817187577f,   -0.078906253f,
    -0.0760937482f,   -0.0732812509f,   -0.0704687461f,   -0.0676562563f,
    -0.0648437515f,   -0.0620312504f,   -0.0592187531f,   -0.0564062484f,
    -0.053593751f,    -0.05078125f,     -0.047968749f,    -0.0451562516f,
    -0.0423437469f,   -0.0395312496f,   -0.0367187522f,   -0.0339062512f,
    -0.0310937501f,   -0.028281251f,    -0.0254687499f,   -0.0226562507f,
    -0.0198437516f,   -0.0170312505f,   -0.0142187504f,   -0.0114062503f,
    -0.00971874967f,  -0.00915624946f,  -0.00859375019f,  -0.00803124998f,
    -0.00746874977f,  -0.00690625003f,  -0.00634374982f,  -0.00578125007f,
    -0.00521875033f,  -0.00465624966f,  -0.00409374991f,  -0.00353124971f,
    -0.00296874996f,  -0.00240624999f,  -0.00184375001f,  -0.00128124992f,
    -0.000943750085f, -0.000831249985f, -0.00071875006f,  -0.000606250076f,
    -0.000493750034f, -0.000381250022f, -0.000268750038f, -0.000156250011f,
    -8.87499991e-05f, -6.62500024e-05f, -4.37499984e-05f, -2.12499981e-05f,
    -7.7499999e-06f,  -3.25000019e-06f, -5.50000038e-07f, 0.0f,
    5.50000038e-07f,  3.25000019e-06f,  7.7499999e-06f,   2.12499981e-05f,
    4.37499984e-05f,  6.62500024e-05f,  8.87499991e-05f,  0.000156250011f,
    0.000268750038f,  0.000381250022f,  0.000493750034f,  0.000606250076f,
    0.00071875006f,   0.000831249985f,  0.000943750085f,  0.00128124992f,
    0.00184375001f,   0.00240624999f,   0.00296874996f,   0.00353124971f,
    0.00409374991f,   0.00465624966f,   0.00521875033f,   0.00578125007f,
    0.00634374982f,   0.00690625003f,   0.00746874977f,   0.00803124998f,
    0.00859375019f,   0.00915624946f,   0.00971874967f,   0.0114062503f,
    0.0142187504f,    0.0170312505f,    0.0198437516f,    0.0226562507f,
    0.0254687499f,    0.028281251f,     0.0310937501f,    0.0339062512f,
    0.0367187522f,    0.0395312496f,    0.0423437469f,    0.0451562516f,
    0.047968749f,     0.05078125f,      0.053593751f,     0.0564062484f,
    0.0592187531f,    0.0620312504f,    0.0648437515f,    0.0676562563f,
    0.0704687461f,    0.0732812509f,    0.0760937482f,    0.078906253f,
    0.0817187577f,    0.0845312476f,    0.0873437524f,    0.0901562497f,
    0.0929687545f,    0.0957812592f,    0.0985937491f,    0.107031256f,
    0.12109375f,      0.135156244f,     0.149218753f,     0.163281247f,
    0.177343756f,     0.19140625f,      0.205468744f,     0.219531253f,
    0.233593747f,     0.247656241f,     0.26171875f,      0.275781274f,
    0.289843738f,     0.303906262f,     0.317968726f,     0.33203125f,
    0.346093744f,     0.360156238f,     0.374218762f,     0.388281226f,
    0.40234375f,      0.416406244f,     0.430468738f,     0.444531262f,
    0.458593726f,     0.47265625f,      0.486718714f,     0.500781238f,
    0.514843702f,     0.528906226f,     0.54296875f,      0.557031274f,
    0.571093798f,     0.585156262f,     0.599218726f,     0.61328125f,
    0.627343774f,     0.641406298f,     0.655468762f,     0.669531226f,
    0.68359375f,      0.697656274f,     0.711718798f,     0.725781262f,
    0.739843726f,     0.75390625f,      0.767968774f,     0.782031238f,
    0.796093762f,     0.810156226f,     0.82421875f,      0.838281274f,
    0.852343738f,     0.866406262f,     0.880468726f,     0.89453125f,
    0.908593774f,     0.922656238f,     0.936718762f,     0.950781226f,
    0.96484375f,      0.978906274f,     0.992968738f,     1.0f
};

const float *nf4_dynamic_map(void)
{
    return dynamic_map;
}

size_t nf4_codes_bytes(int64_t n)
{
    return ((size_t)n + 7) / 8 * 4;
}

float *nf4_scales(void *storage, int64_t n)
{
    return (float *)((char *)storage + nf4_codes_bytes(n));
}

/* The largest magnitude. Without their signs floats compare like the integers of their bits, and
 * NaN compares above all: so the loop vectorises, and a block with a NaN keeps it. */
static float absmax_of(const float *x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float absmax;
    memcpy(&absmax, &most, sizeof absmax);
    return absmax;
}

/* The codes of a block of scaled elements: the number of thresholds below each. The comparison is
 * written so that NaN counts all of them, as in bitsandbytes; loops of fixed length vectorise. */
static void codes_of_block(uint8_t *codes, const float *s)
{
    int32_t below[NF4_BLOCK] = { 0 };
    for (int t = 0; t < 15; t++)
        for (int i = 0; i < NF4_BLOCK; i++)
            below[i] += !(s[i] <= threshold[t]);
    for (int i = 0; i < NF4_BLOCK; i++)
        codes[i] = (uint8_t)below[i];
}

/* The smallest divisor of bitsandbytes; without it a block of tiny numbers would overflow. */
static const float min_absmax = 1e-38f;

/* As in bitsandbytes, whose codes would differ otherwise: full blocks are multiplied by the
 * reciprocal, the partial last one is divided, and only its stored absmax is raised to the minimum.
 * The missing elements of a partial block are coded as zero. */
static float quantize_block(uint8_t *codes, const float *x, int64_t n)
{
    float absmax = absmax_of(x, n), least = absmax < min_absmax ? min_absmax : absmax;
    float s[NF4_BLOCK] = { 0 }, inverse = 1.0f / least;
    if (n == NF4_BLOCK)
        for (int64_t i = 0; i < NF4_BLOCK; i++)
            s[i] = x[i] * inverse;
    else
        for (int64_t i = 0; i < n; i++)
            s[i] = x[i] / least;
    codes_of_block(codes, s);
    return n == NF4_BLOCK ? absmax : least;
}

void nf4_quantize(void *storage, const float *x, int64_t n)
{
    uint8_t *out = storage;
    float *scales = nf4_scales(storage, n);
    for (int64_t b = 0; b * NF4_BLOCK < n; b++) {
        uint8_t codes[NF4_BLOCK];
        int64_t first = b * NF4_BLOCK, left = n - first, len = left < NF4_BLOCK ? left : NF4_BLOCK;
        scales[b] = quantize_block(codes, x + first, len);
        for (int64_t i = 0; i < len; i += 2)
            out[(first + i) / 2] = (uint8_t)(codes[i] << 4 | codes[i + 1]);
    }
    size_t used = (size_t)n / 2 + n % 2;
    memset(out + used, 0, nf4_codes_bytes(n) - used);
}

void nf4_dequantize(float *out, const void *storage, int64_t total, int64_t first, int64_t n)
{
    const uint8_t *codes = storage;
    const float *scales = (const float *)((const char *)storage + nf4_codes_bytes(total));
    for (int64_t i = first; i < first + n; i++) {
        int q = codes[i / 2] >> (i % 2 ? 0 : 4) & 15;
        *out++ = nf4_code[q] * scales[i / NF4_BLOCK];
    }
}

/* On a CPU bitsandbytes rounds to a grid of 65536 points over [-1, 1] and takes the value of the
 * map nearest to the grid point. The product is exact in double, so it is rounded once. */
static uint8_t dynamic_code(float s)
{
    float unit = (s + 1.0f) * 0.5f;
    double point = floor((float)((double)unit * 65535.0 + 0.5)) / 65535.0 * 2.0 - 1.0;
    int low = 0, high = 255;
    while (low < high) {
        int mid = (low + high) / 2;
        if (point > ((double)dynamic_map[mid] + dynamic_map[mid + 1]) / 2)
            low = mid + 1;
        else
            high = mid;
    }
    return (uint8_t)low;
}

void nf4_double_quantize(void *storage, int64_t n, uint8_t *nested, float *nested_absmax,
                         float *offset)
{
    float *scales = nf4_scales(storage, n);
    int64_t count = (n + NF4_BLOCK - 1) / NF4_BLOCK;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += scales[i];
    float mean = count ? (float)(sum / (double)count) : 0.0f;

    for (int64_t first = 0; first < count; first += NF4_NESTED_BLOCK) {
        int64_t len = count - first < NF4_NESTED_BLOCK ? count - first : NF4_NESTED_BLOCK;
        float *s = scales + first;
        for (int64_t i = 0; i < len; i++)
            s[i] -= mean;
        float absmax = absmax_of(s, len), inverse = 1.0f / absmax;
        for (int64_t i = 0; i < len; i++) {
            /* if all scales are equal, absmax is 0 and any code gives the mean */
            uint8_t q = absmax > 0 ? dynamic_code(s[i] * inverse) : 0;
            if (nested)
                nested[first + i] = q;
            s[i] = dynamic_map[q] * absmax + mean;
        }
        if (nested_absmax)
            nested_absmax[first / NF4_NESTED_BLOCK] = absmax;
    }
    if (offset)
        *offset = mean;
}
