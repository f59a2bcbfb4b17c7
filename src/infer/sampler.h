/* sampler: one token out of logits.
 *
 * Order, as in transformers: repetition penalty, the terms below, the grammar, temperature, top-k,
 * top-p, min-p, then a draw from the counter-based generator at (seed, step): the same request
 * gives the same tokens whatever else runs. Ties and sorting go by lowest id. Temperature 0 takes
 * the likeliest.
 */
#ifndef PESC_INFER_SAMPLER_H
#define PESC_INFER_SAMPLER_H

#include "backend/backend.h"
#include "grammar/grammar.h"

typedef struct sampler sampler;

/* What is added to logits. Arrays are borrowed. */
typedef struct sampler_bias {
    int32_t id;
    float add;
} sampler_bias;
/* A thought that has used up its tokens is ended: the tokens `end` follow. */
typedef struct thought_budget {
    const int32_t *begin; /* [n_begin] with which the generated tokens begin a thought; none: they
                           * are inside one */
    const int32_t *end;   /* [n_end]; none: there is no budget */
    size_t n_begin, n_end;
    int64_t tokens; /* of a thought, without these */
} thought_budget;

typedef struct sampler_terms {
    double presence;  /* subtracted where the token was generated before */
    double frequency; /* subtracted as often as it was generated */
    const sampler_bias *bias;
    size_t n_bias;
    /* The first `min_tokens` tokens are none of these. */
    int64_t min_tokens;
    const int32_t *ends;
    size_t n_ends;
    /* Excludes what it does not allow, and `ends` before the text is complete; NULL: no grammar. */
    matcher *matcher;
    thought_budget thought;
} sampler_terms;

/* The options are checked already: see options_take(). */
pesc_status sampler_open(sampler **out, const pesc_sample_options *opt, int32_t vocab);
void sampler_close(sampler *s);
/* Other options from now on. terms: kept as a pointer; NULL: none. */
void sampler_use(sampler *s, const pesc_sample_options *opt, const sampler_terms *terms);

/* `seen`: the tokens so far, for the penalties; the last `step` of them were generated. Non-finite
 * logits are PESC_NUMERIC. *id: -1 if the terms leave no token; of a matcher, matcher_status() says
 * why. */
pesc_status sampler_pick(sampler *s, const float *logits, const int32_t *seen, size_t n_seen,
                         uint64_t step, int32_t *id);

/* ---- sampling.c: the next tokens of several requests, drawn from the rows of a forward.
 *
 * With a GPU a forward of many rows takes less time than one thread needs to draw their tokens, so
 * the rows are downloaded together and divided among threads. A draw depends on its row and its
 * request alone. */

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
    bool after_guess; /* the last token of `seen` is a guess: this one is drawn only if that is the
                         token drawn from the row before */
    int32_t id;       /* the token that was drawn */
    bool failed;      /* instead */
} sampling_row;

/* threads: 0 is one for each core. dev is borrowed. */
pesc_status sampling_open(sampling **out, device *dev, int32_t vocab, int threads);
void sampling_close(sampling *s); /* NULL is allowed */

/* Draws rows[0, n) from f32 logits [R, V] on the device. */
pesc_status sampling_draw(sampling *s, tensor logits, sampling_row *rows, size_t n);

#endif
