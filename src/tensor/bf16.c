#include "tensor/bf16.h"

/* f16 -> f32 without branches: the 15 bits below the sign are a float whose exponent is 112 too
 * small; multiplying by 2^112 corrects that and normalises subnormals. Infinity and NaN (exponent
 * 31) need their exponent set afterwards. */
float f16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)(h & 0x7FFF) << 13;
    float x;
    memcpy(&x, &u, sizeof x);
    x *= 0x1p112f;
    memcpy(&u, &x, sizeof u);
    u |= (uint32_t)((h & 0x7C00) == 0x7C00) * 0x7F800000;
    u |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* f32 -> f16: normal results are rounded as integers (a carry into the exponent is correct, up to
 * infinity), subnormal ones by adding 0.5, whose last bit equals the smallest step of f16. */
uint16_t f16_from_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;

    float tiny;
    memcpy(&tiny, &a, sizeof tiny);
    tiny += 0.5f;
    uint32_t t;
    memcpy(&t, &tiny, sizeof t);

    uint32_t subnormal = t - 0x3F000000;
    uint32_t normal = (a - 0x38000000 + 0xFFF + (a >> 13 & 1)) >> 13;
    uint32_t nan = 0x7E00 | (a >> 13 & 0x3FF);
    uint32_t h = a < 0x38800000 ? subnormal : normal;
    h = a >= 0x47800000 ? 0x7C00 : h; /* 65536; from 65520 on the carry has made it infinity */
    h = a > 0x7F800000 ? nan : h;
    return (uint16_t)(sign | h);
}

void bf16_decode(float *restrict out, const void *restrict bits, int64_t n)
{
    const char *p = bits;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = bf16_to_f32(h);
    }
}

void bf16_encode(void *restrict bits, const float *restrict x, int64_t n)
{
    char *p = bits;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = bf16_from_f32(x[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

void f16_decode(float *restrict out, const void *restrict bits, int64_t n)
{
    const char *p = bits;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = f16_to_f32(h);
    }
}

void f16_encode(void *restrict bits, const float *restrict x, int64_t n)
{
    char *p = bits;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = f16_from_f32(x[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}
