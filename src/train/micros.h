/* micros: what each micro-batch of a step adds to the numbers of the step, beside its gradient:
 * its part of the loss, which experts its tokens chose, and f and P of the balance loss.
 *
 * A process fills in the records of its micro-batches; after micros_exchange() every process has
 * all of them and adds them in the order of the micro-batches. So the sums are the same in each
 * process, and do not depend on how many there are. */
#ifndef PESC_TRAIN_MICROS_H
#define PESC_TRAIN_MICROS_H

#include "model/loss.h"
#include "train/gradient.h"

typedef struct micro_results {
    const int32_t *sparse; /* [layers]: numbers of the layers with experts; borrowed */
    int32_t layers, experts;
    size_t bytes; /* of a record */
    char *list;   /* [cap] records */
    int32_t cap;
} micro_results;

/* What the records of a step add up to. The arrays are the caller's; NULL: not
 * wanted, both of them. */
typedef struct micro_sums {
    double ce;
    bool finite;
    int64_t *chosen; /* [layers, experts] */
    double *balance; /* [layers, 2, experts] */
} micro_sums;

void micros_open(micro_results *r, const int32_t *sparse, int32_t layers, int32_t experts);
void micros_close(micro_results *r);

/* Makes room for the records of a step. */
pesc_status micros_begin(micro_results *r, int32_t micros);
void micros_put(micro_results *r, int32_t micro, const train_output *got);
pesc_status micros_exchange(micro_results *r, const gradient *g, int32_t micros);

/* Adds a record; f and P are weighted by `part`, the micro-batch's share of the step's tokens. */
void micros_add(const micro_results *r, int32_t micro, double part, micro_sums *sums);

#endif
