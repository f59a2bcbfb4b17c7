/* pyrandom: the random numbers of CPython's random.Random, so that few-shot examples are the ones
 * that lm-evaluation-harness draws from the same seed.
 *
 * The generator is the Mersenne Twister MT19937, seeded as CPython seeds it with an integer. */
#ifndef PESC_EVAL_PYRANDOM_H
#define PESC_EVAL_PYRANDOM_H

#include "base/status.h"

typedef struct pyrandom {
    uint32_t state[624];
    uint32_t next; /* the state word that comes next; 624: the state is used up */
} pyrandom;

void pyrandom_seed(pyrandom *r, uint32_t seed);
uint32_t pyrandom_u32(pyrandom *r);

/* A number in [0, n); n > 0. */
uint32_t pyrandom_below(pyrandom *r, uint32_t n);

/* k different numbers of [0, n) as random.sample(range(n), k) orders them; k <= n. Fails only when
 * memory runs out. */
pesc_status pyrandom_sample(pyrandom *r, uint32_t n, uint32_t k, uint32_t *out);

#endif
