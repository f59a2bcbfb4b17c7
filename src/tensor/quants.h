/* quants: GGUF's block formats: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4
 * are read; Q8_0 Q4_0 Q4_K and Q6_K are also written.
 *
 * A block holds dtype_block() elements in dtype_block_bytes() bytes at any alignment, and an
 * element is scale * code (+ minimum). The sums are done in f32 in the order of the gguf package,
 * so results are bit for bit its own. */
#ifndef PESC_TENSOR_QUANTS_H
#define PESC_TENSOR_QUANTS_H

#include "tensor/dtype.h"

/* Whether dt is one of the block formats above. */
bool quants_is(dtype dt);

/* The n elements (whole blocks) that start at `blocks`. False when a block's scale or minimum is
 * not finite, which only a damaged file holds; `out` is then written all the same. */
bool quants_dequantize(dtype dt, const void *blocks, int64_t n, float *out);

enum { QUANTS_GROUP = 32 }; /* every block is one or more groups of so many elements */

/* Elements [first, first + n) of a row of blocks, both multiples of QUANTS_GROUP. */
void quants_unpack(dtype dt, const void *row, int64_t first, int64_t n, float *out);

/* Whether the scales and minima of n elements (whole blocks) are finite. */
bool quants_finite(dtype dt, const void *blocks, int64_t n);

/* Whether dt is one of those that are written. */
bool quants_writes(dtype dt);

/* Encodes n numbers (whole blocks) so that the sum of squared errors is small. False when a block
 * has a scale that is not finite in f16: a number was not finite or very large. */
bool quants_quantize(dtype dt, const float *x, int64_t n, void *blocks);

#endif
