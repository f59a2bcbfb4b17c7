/* asked: what is asked of the rows of logits of a forward: the log-probability of a token, and
 * which token is the most likely. The device computes both, so that no row of logits is downloaded.
 */
#ifndef PESC_INFER_ASKED_H
#define PESC_INFER_ASKED_H

#include "model/forward.h"

typedef struct asked_row {
    int32_t row, token;
    float logprob; /* of the token */
    int32_t best;  /* the most likely one; ties: the lowest id */
    int32_t rank;  /* the caller's, like owner */
    void *owner;   /* the caller's */
} asked_row;

typedef struct asked_rows {
    device *dev; /* borrowed */
    asked_row *all;
    size_t n, cap;
    int32_t chunk; /* rows on the device at a time */
    void *memory;
    tensor pairs, logprobs, best; /* [chunk,2], [chunk], [chunk] */
    int32_t *host; /* [chunk,2]: memory that the device can write to, for pairs, then results */
} asked_rows;

pesc_status asked_open(asked_rows *a, device *dev, int32_t chunk);
void asked_close(asked_rows *a); /* also one that is all zeros */
pesc_status asked_add(asked_rows *a, int32_t row, int32_t token, void *owner);
/* Fills in logprob and best of all from logits f32 [rows,V]. PESC_NUMERIC: one is not finite. */
pesc_status asked_compute(asked_rows *a, tensor logits);
/* The same in two parts: asked_start() does not wait for the device, asked_finish() is called after
 * the device has been waited for. */
void asked_start(asked_rows *a, tensor logits);
pesc_status asked_finish(asked_rows *a, tensor logits);

#endif
