/* bf16: conversions between the two 16-bit float formats and f32.
 *
 * Encoding rounds to nearest even; overflow gives infinity, NaN stays NaN. Decoding is exact.
 * Arrays of 16-bit numbers are addressed as bytes, because in a mapped file they may be unaligned;
 * the loops are plain so that the compiler vectorises them. */
#ifndef PESC_TENSOR_BF16_H
#define PESC_TENSOR_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t rounded = (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    uint32_t quiet = u >> 16 | 0x40; /* a NaN must not round to infinity */
    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float x);

/* Arrays of n. `bits` holds n 16-bit numbers at any alignment; the arrays do not overlap. */
void bf16_decode(float *out, const void *bits, int64_t n);
void bf16_encode(void *bits, const float *x, int64_t n);
void f16_decode(float *out, const void *bits, int64_t n);
void f16_encode(void *bits, const float *x, int64_t n);

#endif
