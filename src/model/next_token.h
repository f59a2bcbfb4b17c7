/* next_token: the distribution of the next token that logits stand for, and how two differ. */
#ifndef PESC_MODEL_NEXT_TOKEN_H
#define PESC_MODEL_NEXT_TOKEN_H

#include <stddef.h>

typedef struct next_token {
    double mean, max, log_sum; /* log_sum: log of the sum of exp(x - max) */
    size_t best;               /* the first of the largest */
} next_token;

next_token next_token_of(const float *logits, size_t n);

/* log p of token i. */
static inline double next_token_log(const next_token *t, const float *logits, size_t i)
{
    return (double)logits[i] - t->max - t->log_sum;
}

/* KL divergence of q, of the logits b, from p, of the logits a, in nats. Rounding may leave -1e-17.
 */
double next_token_kl(const next_token *p, const float *a, const next_token *q, const float *b,
                     size_t n);

#endif
