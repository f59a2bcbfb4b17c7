/* num: arithmetic on sizes that several files need. Arguments are not negative, divisors positive;
 * nothing overflows because sizes of tensors stay far below 2^62. */
#ifndef PESC_BASE_NUM_H
#define PESC_BASE_NUM_H

#include <stdint.h>

static inline int64_t num_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* n / by, rounded up. */
static inline int64_t num_divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* The smallest multiple of `to` that is not below n. */
static inline int64_t num_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

#endif
