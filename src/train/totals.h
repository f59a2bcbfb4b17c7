/* totals: what the micro-batches of a step add up to, beside their gradients: the loss, which
 * experts their tokens chose, and f and P of the balance loss.
 *
 * A process fills in the records of its micro-batches; after gradient_finish() every process has
 * all of them and adds them in the order of the micro-batches. So the sums are the same in each
 * process, and do not depend on how many there are. */
#ifndef PESC_TRAIN_TOTALS_H
#define PESC_TRAIN_TOTALS_H

#include "model/loss.h"
#include "train/batch.h"
#include "train/gradient.h"
#include "train/metrics.h"
#include "train/objective.h"

typedef struct step_totals {
    int32_t layers, experts; /* layers with experts */
    int32_t *sparse;         /* [layers]: their numbers */
    micro_records records;
    int32_t cap; /* of records */
    /* the sums */
    double ce, z;
    bool finite;
    preference_sums preferences;
    int64_t *chosen; /* [layers, experts] */
    double *balance; /* [layers, 2, experts]: f and P */
    float *shares;   /* [layers, experts]: of all choices of the layer */
} step_totals;

pesc_status totals_open(step_totals *r, const pesc_model *m);
void totals_close(step_totals *r);

/* Makes room for the records of a step; fills in one, `preferences` being what it has of them, if
 * anything; its weighted sum of losses; what it has of preferences. */
pesc_status totals_begin(step_totals *r, int32_t micros);
void totals_put(step_totals *r, int32_t micro, const train_output *got,
                const preference_sums *preferences);
double totals_loss(const step_totals *r, int32_t micro);
const preference_sums *totals_preferences(const step_totals *r, int32_t micro);

/* Adds the records of the micro-batches of b; f and P are weighted by their shares of its tokens.
 */
void totals_add(step_totals *r, const batch *b);

/* The mean over layers of E sum_i f_i P_i, over all tokens of the step, so it does not depend on
 * the split into micro-batches. */
double totals_aux(const step_totals *r);

static inline metrics_shares totals_shares(const step_totals *r)
{
    return (metrics_shares){ r->shares, r->layers, r->experts };
}

#endif
