/* rowscores: of rows of logits of a forward, the log-probability of a token and
 * which token is the most likely. The device computes both, so that no row of logits is downloaded.
 */
#ifndef PESC_INFER_ROWSCORES_H
#define PESC_INFER_ROWSCORES_H

#include "model/forward.h"

typedef struct row_score {
    int32_t row, token;
    float logprob; /* of the token */
    int32_t best;  /* the most likely one; ties: the lowest id */
    int32_t rank;  /* the caller's, like owner */
    void *owner;   /* the caller's */
} row_score;

typedef struct row_scores {
    device *dev; /* borrowed */
    row_score *all;
    size_t n, cap;
    int32_t chunk; /* rows on the device at a time */
    void *memory;
    tensor pairs, logprobs, best; /* [chunk,2], [chunk], [chunk] */
    int32_t *host; /* [chunk,2]: memory that the device can write to, for pairs, then results */
} row_scores;

pesc_status rowscores_open(row_scores *a, device *dev, int32_t chunk);
void rowscores_close(row_scores *a); /* also one that is all zeros */
pesc_status rowscores_add(row_scores *a, int32_t row, int32_t token, void *owner);
/* Fills in logprob and best of all from logits f32 [rows,V]. PESC_NUMERIC: one is not finite. */
pesc_status rowscores_compute(row_scores *a, tensor logits);
/* The same in two parts: rowscores_start() does not wait for the device, rowscores_finish() is
 * called after the device has been waited for. */
void rowscores_start(row_scores *a, tensor logits);
pesc_status rowscores_finish(row_scores *a, tensor logits);

#endif
