/* nf4: 4-bit NormalFloat, bit for bit as bitsandbytes does it (QLoRA, arXiv 2305.14314).
 *
 * Blocks of 64 consecutive elements of the row-major matrix share one scale, the block's absmax.
 * An element is code[q] * absmax. Two codes a byte, the earlier element in the high nibble. A span
 * holds the packed codes of all elements, padded to 4 bytes, then one f32 absmax a block.
 *
 * Double quantisation replaces each absmax by what an 8-bit dynamic code of (absmax - mean) in
 * blocks of 256 gives back; pesc stores the given-back f32 value, so every reader of a span is the
 * same. The mean is the correctly rounded one (torch's depends on its order of summation), and the
 * codes are those of bitsandbytes on a CPU for that mean. */
#ifndef PESC_TENSOR_NF4_H
#define PESC_TENSOR_NF4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NF4_BLOCK = 64, NF4_NESTED_BLOCK = 256 };

extern const float nf4_code[16];

size_t nf4_codes_bytes(int64_t n);        /* of the packed codes, padding included */
float *nf4_scales(void *span, int64_t n); /* the scales part of a span of n elements */

/* Quantises n floats into a span. A block of zeros gets absmax 0 (the partial last block of a span
 * 1e-38, as in bitsandbytes) and code 7, zero. A block with a NaN gets absmax NaN. */
void nf4_quantize(void *span, const float *x, int64_t n);

/* Elements [first, first + n) of a span of `total` elements, as f32. */
void nf4_dequantize(float *out, const void *span, int64_t total, int64_t first, int64_t n);

/* Rounds the span's scales through double quantisation, in place; `nested` (may be NULL) receives
 * the 8-bit codes, `nested_absmax` one f32 for each 256, `offset` the mean. */
void nf4_double_quantize(void *span, int64_t n, uint8_t *nested, float *nested_absmax,
                         float *offset);

/* bitsandbytes' signed dynamic map, 256 ascending values, as create_dynamic_map(signed=True). */
const float *nf4_dynamic_map(void);

#endif
