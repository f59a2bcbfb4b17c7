/* mxfp4: matrices in MXFP4, as gpt-oss stores its experts: 4-bit floats (e2m1), 32 in a row with a
 * common scale that is a power of two. Files hold NAME_blocks [...,n/32,16] and NAME_scales
 * [...,n/32], both U8. */
#ifndef PESC_FORMAT_MXFP4_H
#define PESC_FORMAT_MXFP4_H

#include "format/weights.h"

/* Makes one weight NAME_blocks [...,n] of each such pair: bf16, which holds every value.
 * PESC_FORMAT: blocks without scales, or of another shape. */
pesc_status mxfp4_group(weights *ws);

#endif
