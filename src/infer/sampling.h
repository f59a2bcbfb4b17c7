/* sampling: the next tokens of several requests, drawn from the rows of a forward.
 *
 * With a GPU a forward of many rows takes less time than one thread needs to draw their tokens, so
 * the rows are downloaded together and divided among threads. A draw depends on its row and its
 * request alone. */
#ifndef PESC_INFER_SAMPLING_H
#define PESC_INFER_SAMPLING_H

#include "backend/backend.h"
#include "infer/sampler.h"

typedef struct sampling sampling;

/* A token to draw. The arrays are borrowed during the call. */
typedef struct sampling_row {
    int32_t row;         /* of the logits */
    const float *logits; /* set by the call: that row in host memory */
    const pesc_sample_options *opt;
    const sampler_terms *terms; /* NULL: none */
    const int32_t *seen;        /* as sampler_pick() takes them */
    size_t n_seen;
    uint64_t step;
    int32_t id;  /* the token that was drawn */
    bool failed; /* instead */
} sampling_row;

/* threads: 0 is one for each core. dev is borrowed. */
pesc_status sampling_open(sampling **out, device *dev, int32_t vocab, int threads);
void sampling_close(sampling *s); /* NULL is allowed */

/* Draws rows[0, n) from f32 logits [R, V] on the device. */
pesc_status sampling_draw(sampling *s, tensor logits, sampling_row *rows, size_t n);

#endif
