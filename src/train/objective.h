/* objective: what a run learns, where that is preferences: the losses of a micro-batch's answers as
 * weights of its targets, and what a step or a validation reports of them.
 *
 * The gradient of a token's logits is that of its cross-entropy, times the derivative of the loss
 * with regard to it. So a loss of preferences is the loss of instruction tuning with other weights,
 * which follow from the log-probabilities of whole answers. */
#ifndef PESC_TRAIN_OBJECTIVE_H
#define PESC_TRAIN_OBJECTIVE_H

#include "train/batch.h"
#include "train/preference.h"

/* The log-probabilities of the answers of a data set at the start of the run. */
typedef struct reference_row {
    double answer; /* of the answer, or of the chosen one */
    double other;  /* of the rejected one; of a label: of another record's answer */
} reference_row;

typedef struct reference {
    reference_row *rows; /* [records], of those that are used; NULL: the loss has none */
    uint64_t records;
    char start[17]; /* hash of the weights that gave them; of the training data, in rank 0 */
    bool computed;  /* by this process: not in RUN/reference.json yet */
} reference;

/* Sums over answers, each weighted by 1, so that those of micro-batches add up. */
typedef struct preference_sums {
    double loss, right; /* of pairs, or of labelled answers; pairs with the higher reward chosen */
    double n[2], reward[2], logp[2]; /* chosen or desirable; rejected or not */
    double ce, ce_n;                 /* cross-entropy of chosen answers, and how many it is of */
    double whole, whole_n;           /* the same with their prompts, where these are predicted */
    double moved;                    /* log-ratios of mismatched answers, or kl of each answer */
} preference_sums;

void preference_sums_add(preference_sums *to, const preference_sums *more);

typedef struct objective {
    preference_rule rule;
    loss_kind loss;
    double kl; /* of the batch: how far mismatched answers have moved; at least 0 */
    /* the current micro-batch */
    const batch *batch;
    const reference *ref;
    micro_batch micro;
    preference_sums sums;
} objective;

void objective_take(objective *o, const pesc_train_options *opt);

/* Sequences of a record that are in one micro-batch: 2 of a pair of answers. */
int32_t objective_answers(const pesc_train_options *opt);

/* Measures the answers of o->micro from the cross-entropy of its targets into o->sums; with `weigh`
 * it fills in the weights of the targets in the loss of o->batch. */
void objective_measure(objective *o, const float *losses, bool weigh);

/* The sum of the log-ratios of o->micro, a micro-batch of mismatched answers. */
double objective_moved(const objective *o, const float *losses);

/* The log-probability of a sequence's answer; first, n: its targets among those of the span. */
double objective_logp(const float *losses, const pack_span *span, int32_t first, int32_t n);

/* The loss of a step or a validation, without the balance loss, and what is reported of it. */
double objective_value(const objective *o, const preference_sums *s, pesc_preference *out);

#endif
