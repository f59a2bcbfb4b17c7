/* shuffle: a seeded permutation of 0..n-1 whose i-th entry is computed, not stored.
 *
 * A Feistel network over the next power of four, walked until it lands inside (about one extra step
 * on average). So the place in a shuffled epoch is one number: resuming costs nothing, and 10^9
 * records cost no memory. */
#ifndef PESC_DATA_SHUFFLE_H
#define PESC_DATA_SHUFFLE_H

#include "base/rng.h"

/* What a permutation is for: the first coordinate of its rng_stream(). */
enum {
    SHUFFLE_EPOCH = 3,  /* the order of an epoch */
    SHUFFLE_PART = 5,   /* mixing: the records of a part, */
    SHUFFLE_SLOTS = 6,  /* and which part comes next */
    SHUFFLE_HELD = 8,   /* the records held out for validation */
    SHUFFLE_DOMAINS = 9 /* domains exchanged among records, to test whether they differ */
};

uint64_t shuffle_at(rng_key key, uint64_t n, uint64_t i); /* i < n */

#endif
