/* tally: the choices of routers, accumulated into ESFT's two scores (docs/method.md).
 *
 * Each choice of an expert adds 1/k to its hits and the gate to its gates, in the order in which
 * tokens come, in f64. With N = the sum of a layer's hits (its tokens), the token score is hits/N
 * and the gate score gates/N: the rule of the first release. Gate scores are not normalised to
 * sum 1.
 */
#ifndef PESC_ESFT_TALLY_H
#define PESC_ESFT_TALLY_H

#include "esft/summary.h"

typedef struct tally {
    size_t n_layers, n_experts, k;
    double *hits, *gates; /* [n_layers, n_experts] */
} tally;

pesc_status tally_init(tally *t, size_t n_layers, size_t n_experts, size_t k);
void tally_free(tally *t);

static inline void tally_add(tally *t, size_t layer, int32_t expert, double gate)
{
    size_t at = layer * t->n_experts + (size_t)expert;
    t->hits[at] += 1.0 / (double)t->k;
    t->gates[at] += gate;
}

double tally_tokens(const tally *t, size_t layer);

/* The scores of all layers, rounded. `s` has their shape. */
void tally_scores(const tally *t, summary *s);

#endif
