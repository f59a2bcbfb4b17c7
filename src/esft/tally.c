#include "esft/tally.h"

#include "base/mem.h"

pesc_status tally_init(tally *t, size_t n_layers, size_t n_experts, size_t k)
{
    *t = (tally){ .n_layers = n_layers, .n_experts = n_experts, .k = k };
    t->hits = mem_zalloc(n_layers * n_experts, sizeof *t->hits);
    t->gates = mem_zalloc(n_layers * n_experts, sizeof *t->gates);
    return t->hits && t->gates ? PESC_OK : fail_nomem("the count of experts", n_layers * n_experts);
}

void tally_free(tally *t)
{
    mem_free(t->hits);
    mem_free(t->gates);
    *t = (tally){ 0 };
}

double tally_tokens(const tally *t, size_t layer)
{
    double n = 0;
    for (size_t e = 0; e < t->n_experts; e++)
        n += t->hits[layer * t->n_experts + e];
    return n;
}

void tally_scores(const tally *t, summary *s)
{
    ASSERT(s->n_layers == t->n_layers && s->n_experts == t->n_experts);
    for (size_t l = 0; l < t->n_layers; l++) {
        double n = tally_tokens(t, l);
        for (size_t i = l * t->n_experts; i < (l + 1) * t->n_experts; i++) {
            s->score[METRIC_TOKEN][i] = summary_round(t->hits[i] / n);
            s->score[METRIC_GATE][i] = summary_round(t->gates[i] / n);
        }
    }
}
