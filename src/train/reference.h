/* reference: the log-probabilities of all answers of a run's data at its start, by which losses
 * with a reference measure how far the model has moved.
 *
 * They are computed once, before the first step, without dropout, and kept in RUN/reference.json
 * with hashes of the data, the options and the weights that train; so no second copy of the weights
 * is ever in memory. A resumed run reads them; where they are gone or of other data, it computes
 * them again before it loads its checkpoint. A checkpoint has the hash of the weights too: both
 * must be of the same start. */
#ifndef PESC_TRAIN_REFERENCE_H
#define PESC_TRAIN_REFERENCE_H

#include "train/objective.h"

/* What to call where the values must be computed: the weights of the start are then to be those of
 * the model. */
typedef pesc_status (*reference_start)(pesc_trainer *t);

/* Fills in t->reference and t->eval_reference, where the objective has one. Called by all
 * processes, before a checkpoint is loaded. */
pesc_status reference_open(pesc_trainer *t, reference_start start);

/* Called by rank 0 when t->state is that of the start or of the loaded checkpoint, whose reference
 * it must be: else PESC_USAGE. Writes RUN/reference.json where the values were computed. */
pesc_status reference_settle(pesc_trainer *t);
void reference_close(reference *r);

#endif
