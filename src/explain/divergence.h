/* divergence: how differently domains choose experts, and whether that is more than chance. */
#ifndef PESC_EXPLAIN_DIVERGENCE_H
#define PESC_EXPLAIN_DIVERGENCE_H

#include "base/status.h"

typedef struct divergence_shape {
    size_t domains, layers, experts;
} divergence_shape;

/* Jensen-Shannon divergence of the domains' choices in a layer, with equal weights, divided by its
 * maximum, the logarithm of their number. counts: [domains, layers, experts]. NaN: one domain. */
double divergence_of(const uint64_t *counts, divergence_shape z, size_t layer);

/* The choices of every record, which are what the test exchanges: tokens of one record are not
 * independent of each other. */
typedef struct divergence_records {
    uint32_t *counts; /* [n, layers, experts] */
    uint32_t *domain; /* [n] */
    size_t n, cap, domain_cap;
} divergence_records;

/* Appends a record; its counts are zero. */
pesc_status divergence_add(divergence_records *r, divergence_shape z, size_t domain);
void divergence_free(divergence_records *r);

/* Domains are exchanged among the records `times` times, each time all at once and without changing
 * how many records a domain has. chance [layers]: the mean divergence. p [layers]: (1 + exchanges
 * that diverge at least as much as `observed`) / (1 + times). NaN where there is no test. */
typedef struct divergence_test {
    int64_t times;
    uint64_t seed;
    const double *observed; /* [layers] */
    double *chance, *p;
} divergence_test;
pesc_status divergence_permute(const divergence_records *r, divergence_shape z,
                               const divergence_test *t);

#endif
