/* flat: the flat buffers of params in segments and ranges.
 *
 * A flat buffer has 64 segments of equal length, more where it is large (one for each 2^16
 * elements, up to FLAT_SEGMENTS) and fewer where it is tiny, whatever the number of processes. Sums
 * over a buffer (the gradient's norm) are made segment by segment, so they do not depend on the
 * number of processes. Segments begin at multiples of 256, the block of 8-bit moments. */
#ifndef PESC_TRAIN_FLAT_H
#define PESC_TRAIN_FLAT_H

#include "tensor/tensor.h"

enum { FLAT_SEGMENTS = 1024 };

/* Elements [first, end) of the flat buffers. */
typedef struct flat_range {
    int64_t first, end;
} flat_range;

/* A range that begins with a segment, and where a process that keeps its own ranges alone has it:
 * also a multiple of the segment's length. */
typedef struct own_range {
    flat_range flat;
    int64_t at;
} own_range;

int64_t flat_segment(int64_t n); /* elements of a segment of a buffer of n, but for the last */

/* Elements of its own ranges that one of so many processes keeps at most. */
int64_t flat_most(int64_t n, int64_t processes);

flat_range flat_within(flat_range a, flat_range b); /* what is in both; may be empty */

/* Where a part of own->flat is in what a process keeps of its own. */
static inline flat_range flat_own(const own_range *own, flat_range part)
{
    int64_t shift = own->at - own->flat.first;
    return (flat_range){ part.first + shift, part.end + shift };
}

/* The part of a flat buffer; `per` elements of the flat buffers have one element of it (256 for
 * the scales of 8-bit moments, else 1). */
tensor flat_part(tensor flat, flat_range r, int64_t per);

#endif
