#include "explain/divergence.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/shuffle.h"

#include <math.h>
#include <string.h>

static double entropy_part(double p)
{
    return p > 0 ? -p * log(p) : 0;
}

double divergence_of(const uint64_t *counts, divergence_shape z, size_t layer)
{
    double of_mean = 0, mean_of = 0, n = (double)z.domains;
    if (z.domains < 2)
        return NAN;
    double sums[PESC_DATA_DOMAINS] = { 0 };
    ASSERT(z.domains <= PESC_DATA_DOMAINS);
    for (size_t d = 0; d < z.domains; d++)
        for (size_t e = 0; e < z.experts; e++)
            sums[d] += (double)counts[(d * z.layers + layer) * z.experts + e];
    for (size_t e = 0; e < z.experts; e++) {
        double sum = 0;
        for (size_t d = 0; d < z.domains; d++) {
            double c = (double)counts[(d * z.layers + layer) * z.experts + e];
            double p = sums[d] > 0 ? c / sums[d] : 0;
            sum += p;
            mean_of += entropy_part(p) / n;
        }
        of_mean += entropy_part(sum / n);
    }
    double divergence = (of_mean - mean_of) / log(n);
    return divergence > 0 ? divergence : 0;
}

/* ---- records ---- */

pesc_status divergence_add(divergence_records *r, divergence_shape z, size_t domain)
{
    size_t row = z.layers * z.experts;
    if (!mem_room((void **)&r->counts, &r->cap, r->n, row * sizeof *r->counts) ||
        !mem_room((void **)&r->domain, &r->domain_cap, r->n, sizeof *r->domain))
        return fail_nomem("the choices of records", (r->n + 1) * row * sizeof *r->counts);
    memset(r->counts + r->n * row, 0, row * sizeof *r->counts);
    r->domain[r->n++] = (uint32_t)domain;
    return PESC_OK;
}

void divergence_free(divergence_records *r)
{
    mem_free(r->counts);
    mem_free(r->domain);
    *r = (divergence_records){ 0 };
}

/* ---- the test ---- */

/* Sums over records whose domains are exchanged by permutation number `time`. */
static void exchange(const divergence_records *r, divergence_shape z, rng_key key, uint64_t *sums)
{
    size_t row = z.layers * z.experts;
    memset(sums, 0, z.domains * row * sizeof *sums);
    for (size_t i = 0; i < r->n; i++) {
        uint64_t *to = sums + r->domain[shuffle_at(key, r->n, i)] * row;
        const uint32_t *from = r->counts + i * row;
        for (size_t k = 0; k < row; k++)
            to[k] += from[k];
    }
}

pesc_status divergence_permute(const divergence_records *r, divergence_shape z,
                               const divergence_test *t)
{
    if (z.domains < 2 || t->times == 0) {
        for (size_t l = 0; l < z.layers; l++)
            t->chance[l] = t->p[l] = NAN;
        return PESC_OK;
    }
    size_t bytes = z.domains * z.layers * z.experts * sizeof(uint64_t);
    uint64_t *sums = mem_alloc(bytes, 1);
    if (!sums)
        return fail_nomem("the permutation test", bytes);
    double times = (double)t->times;
    for (size_t l = 0; l < z.layers; l++) {
        t->chance[l] = 0;
        t->p[l] = 1;
    }
    for (int64_t i = 0; i < t->times; i++) {
        exchange(r, z, (rng_key){ t->seed, rng_stream(SHUFFLE_DOMAINS, (uint64_t)i, 0) }, sums);
        for (size_t l = 0; l < z.layers; l++) {
            double d = divergence_of(sums, z, l);
            t->chance[l] += d / times;
            t->p[l] += d >= t->observed[l];
        }
        log_progress("exchanging domains", (uint64_t)i, (uint64_t)t->times);
    }
    for (size_t l = 0; l < z.layers; l++)
        t->p[l] /= 1 + times;
    mem_free(sums);
    return PESC_OK;
}
