/* nf4: 4-bit NormalFloat (QLoRA, arXiv 2305.14314), bit for bit as bitsandbytes computes it.
 *
 * Blocks of 64 consecutive elements of the row-major matrix share one scale, the block's absmax. An
 * element is code[q] * absmax. A byte holds two codes, the earlier element in the high nibble. The
 * storage of a matrix is the packed codes of all elements, padded to 4 bytes, then one f32 absmax
 * per block.
 *
 * Double quantisation replaces each absmax by the dequantised value of its 8-bit dynamic code: the
 * code of (absmax - mean) in blocks of 256. pesc stores the dequantised f32 value, so that readers
 * need not know which was used. The mean is correctly rounded (torch's depends on its order of
 * summation), and the codes are those of bitsandbytes on a CPU for that mean. */
#ifndef PESC_TENSOR_NF4_H
#define PESC_TENSOR_NF4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NF4_BLOCK = 64, NF4_NESTED_BLOCK = 256 };

extern const float nf4_code[16];

size_t nf4_codes_bytes(int64_t n);           /* of the packed codes, padding included */
float *nf4_scales(void *storage, int64_t n); /* the scales of n elements */

/* Quantises n floats. A block of zeros gets absmax 0 (1e-38 if it is the partial last block, as in
 * bitsandbytes) and code 7, zero. A block with a NaN gets absmax NaN. */
void nf4_quantize(void *storage, const float *x, int64_t n);

/* Elements [first, first + n) of `total` stored elements, as f32. */
void nf4_dequantize(float *out, const void *storage, int64_t total, int64_t first, int64_t n);

/* Rounds the scales by double quantisation, in place. `nested` receives the 8-bit codes,
 * `nested_absmax` one f32 for each 256 of them, `offset` the mean; each may be NULL. */
void nf4_double_quantize(void *storage, int64_t n, uint8_t *nested, float *nested_absmax,
                         float *offset);

/* bitsandbytes' signed dynamic map, 256 ascending values, as create_dynamic_map(signed=True). */
const float *nf4_dynamic_map(void);

#endif
