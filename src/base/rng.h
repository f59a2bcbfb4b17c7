/* rng: counter-based random numbers (Philox 4x32-10, Salmon et al. 2011).
 *
 * A value depends only on (key, index), never on what was drawn before: so resume, recompute and
 * any number of threads see the same bits, and "the state of the generator" is the step number. */
#ifndef PESC_BASE_RNG_H
#define PESC_BASE_RNG_H

#include <stdint.h>

typedef struct rng_key {
    uint64_t seed;   /* the run's */
    uint64_t stream; /* what the numbers are for: a tensor, a step, a purpose; see rng_stream() */
} rng_key;

/* A stream from up to three small coordinates, e.g. (purpose, step, tensor). */
uint64_t rng_stream(uint64_t a, uint64_t b, uint64_t c);

uint32_t rng_u32(rng_key k, uint64_t index);
float rng_uniform(rng_key k, uint64_t index);              /* [0, 1), 24 bits */
float rng_normal(rng_key k, uint64_t index);               /* mean 0, variance 1 */
uint64_t rng_below(rng_key k, uint64_t index, uint64_t n); /* [0, n), n > 0; bias below 2^-32 */

#endif
