/* fp8: matrices in FP8 E4M3 with scales, as DeepSeek-V3, MiniMax-M2 and Ministral 3 are published:
 * NAME.weight F8_E4M3 [O,I] and NAME.weight_scale_inv, one scale for each block of rows and columns
 * (weight_block_size), or one for the matrix. A scale is any float, F8_E8M0 too. What they stand
 * for is the product, in bf16. */
#ifndef PESC_FORMAT_FP8_H
#define PESC_FORMAT_FP8_H

#include "format/weights.h"

/* weight.read of one byte a number: e4m3, where 0x7f and 0xff are not numbers, and e8m0, powers of
 * two. */
pesc_status fp8_read_e4m3(const weight *w, int64_t first, int64_t n, float *out);
pesc_status fp8_read_e8m0(const weight *w, int64_t first, int64_t n, float *out);

/* Makes one weight of each such pair, and leaves out the scales of activations. `config` is that of
 * the model, which says weight_block_size; NULL: none. PESC_FORMAT: no scale, or of another shape.
 */
pesc_status fp8_group(weights *ws, const json_t *config, const char *file);

#endif
