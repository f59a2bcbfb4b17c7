/* tfevents: scalars as TensorBoard reads them.
 *
 * A record is: length (u64), masked CRC-32C of the length, the Event message, masked CRC-32C of it.
 * Only the few protobuf fields TensorBoard needs are written. Records are appended; what is written
 * is complete after every call. */
#ifndef PESC_FORMAT_TFEVENTS_H
#define PESC_FORMAT_TFEVENTS_H

#include "base/status.h"
#include "base/str.h"

typedef struct tf_scalar {
    const char *tag;
    float value;
} tf_scalar;

/* Appends the first record of a file ("brain.Event:2") to `out`. */
void tfevents_header(str *out, double wall_time);

/* Appends one event with n scalars. */
void tfevents_scalars(str *out, double wall_time, int64_t step, const tf_scalar *s, size_t n);

#endif
