/* sampler: one token out of logits.
 *
 * Order, as in transformers: repetition penalty, temperature, top-k, top-p, min-p, then a draw from
 * the counter-based generator at (seed, step): the same request gives the same tokens whatever else
 * runs. Ties and sorting go by lowest id. Temperature 0 takes the likeliest. */
#ifndef PESC_INFER_SAMPLER_H
#define PESC_INFER_SAMPLER_H

#include "base/status.h"

typedef struct sampler sampler;

/* The options are checked already: see options_take(). */
pesc_status sampler_open(sampler **out, const pesc_sample_options *opt, int32_t vocab);
void sampler_close(sampler *s);
void sampler_use(sampler *s, const pesc_sample_options *opt); /* other options from now on */

/* `seen`: the tokens so far, for the repetition penalty. Non-finite logits are PESC_NUMERIC. */
pesc_status sampler_pick(sampler *s, const float *logits, const int32_t *seen, size_t n_seen,
                         uint64_t step, int32_t *id);

#endif
