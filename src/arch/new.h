/* new: a randomly initialised model of a configuration, so that training from zero starts like any
 * other: from a Hugging Face directory. */
#ifndef PESC_ARCH_NEW_H
#define PESC_ARCH_NEW_H

#include "arch/family.h"

enum { NEW_SHARD_BYTES = 2000000000 };

/* Elements [first, first + n) of a slot's tensor as `seed` makes them: weights N(0, init_range^2),
 * norms 1, biases 0; PESC's routers and adapter_down U(-1/sqrt C, 1/sqrt C), adapter_up 0. They
 * depend on the seed, the tensor's name and the index only. */
void new_values(const config *c, const slot *s, uint64_t seed, int64_t first, int64_t n,
                float *out);

#endif
