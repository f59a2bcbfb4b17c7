#include "data/shuffle.h"

enum { ROUNDS = 6 };

static uint64_t permute(rng_key key, unsigned half, uint64_t x)
{
    uint64_t mask = (1ull << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t r = 0; r < ROUNDS; r++) {
        uint64_t next = left ^ (rng_u32(key, right * ROUNDS + r) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t shuffle_at(rng_key key, uint64_t n, uint64_t i)
{
    unsigned half = 1;
    while (half < 31 && 1ull << 2 * half < n)
        half++;
    do
        i = permute(key, half, i);
    while (i >= n);
    return i;
}
