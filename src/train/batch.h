/* batch: the records of one optimiser step as micro-batches, with the weight of each target.
 *
 * The loss of a step is one weighted sum over its targets, whichever micro-batch they are in, so
 * gradient accumulation does not change it: token weights are 1 / (targets of the step); sequence
 * weights are 1 / (sequences * targets of that sequence).
 *
 * Of preferences the weights follow from what forward gives (objective.h). Both answers of a pair
 * are in one micro-batch, the chosen one first. */
#ifndef PESC_TRAIN_BATCH_H
#define PESC_TRAIN_BATCH_H

#include "data/dataset.h"
#include "data/pack.h"
#include "format/expertcfg.h"

typedef enum loss_kind { LOSS_TOKEN, LOSS_SEQUENCE } loss_kind;

typedef struct batch_options {
    int32_t micro_tokens; /* of a micro-batch, at most */
    bool packing;         /* several sequences in a micro-batch; else one */
    loss_kind loss;
    bool whole_chosen; /* the prompt of a chosen answer is predicted too, as ORPO has it */
    /* The domains of the records (expertcfg.domains), each of which has micro-batches of its own:
     * their group is 1 + the domain, 0 where it is none of these. Borrowed; NULL: all are mixed. */
    const expertcfg *domains;
    uint64_t mismatched; /* of labelled answers: block of dataset_mismatched(); 0: none are read */
} batch_options;

/* A sequence of a batch: which answer it is, and where its answer's targets are among its own. */
typedef struct batch_answer {
    uint64_t record;
    answer_role role;
    int32_t first, n;
} batch_answer;

/* What the answers of a batch add up to. */
typedef struct batch_counts {
    int64_t chosen, rejected; /* answers; the chosen also of labelled ones that are desirable */
    int64_t chosen_tokens;    /* of chosen answers */
    int64_t chosen_targets;   /* the same, with their prompts where those are predicted */
} batch_counts;

typedef struct batch batch;
pesc_status batch_open(batch **out, dataset *data, batch_options opt); /* borrows data */
void batch_close(batch *b);                                            /* NULL is allowed */

/* Loads `count` records from position `first` of the run on. */
pesc_status batch_load(batch *b, uint64_t first, int32_t count);

/* Reads records for the next batch_load(), while the device computes with those that are loaded,
 * which stay as they are. A failure is that of batch_load(), which then reads them again. */
void batch_read_ahead(batch *b, uint64_t first, int32_t count);
int32_t batch_ahead(const batch *b); /* how many were read */

int32_t batch_micros(const batch *b);
micro_batch batch_micro(const batch *b, int32_t i); /* borrowed until the next load */
int64_t batch_tokens(const batch *b);               /* of all sequences */
int64_t batch_targets(const batch *b);

/* The sequence of a span, by its tag. */
const batch_answer *batch_answer_of(const batch *b, const pack_span *span);
batch_counts batch_count(const batch *b);

/* The prompts of labelled answers with the answers of other records: micro-batches of their own. */
int32_t batch_mismatched_micros(const batch *b);
micro_batch batch_mismatched(const batch *b, int32_t i);

#endif
