/* batch: the sequences of one optimiser step, packed into forwards of at most micro_tokens.
 *
 * The loss of a step is one weighted sum over its target rows, whichever forwards they fall into,
 * so accumulation does not change it: token weights are 1 / (targets of the step); sequence weights
 * are 1 / (sequences * targets of that sequence). */
#ifndef PESC_TRAIN_BATCH_H
#define PESC_TRAIN_BATCH_H

#include "model/model.h"
#include "data/dataset.h"

typedef enum loss_kind { LOSS_TOKEN, LOSS_SEQUENCE } loss_kind;

typedef struct batch_options {
    int32_t batch;        /* records a step */
    int32_t micro_tokens; /* tokens a forward, at most */
    bool packing;         /* several sequences a forward; else one */
    loss_kind loss;
} batch_options;

/* One forward: packed sequences, and the rows whose next token is a target. */
typedef struct micro_batch {
    token_seq *seqs;
    int32_t n_seqs, n_tokens;
    int32_t *rows, *targets; /* row r predicts targets[i] */
    float *weights;
    int32_t n_targets;
} micro_batch;

typedef struct batch batch;
pesc_status batch_open(batch **out, dataset *data, batch_options opt);
void batch_close(batch *b);

/* Loads the records of a step, `first` of them numbered from the start of the run, at most `count`.
 */
pesc_status batch_load(batch *b, uint64_t first, int32_t count);
int32_t batch_micros(const batch *b);
const micro_batch *batch_micro(const batch *b, int32_t i);
int64_t batch_tokens(const batch *b);  /* of all sequences */
int64_t batch_targets(const batch *b); /* 0: every record of the step was dropped */

#endif
