/* preference: the losses of preferences, as formulas over log-probabilities (docs/method.md,
 * Preferences).
 *
 * An answer is known by the log-probability of its tokens, their number, and the log-probability
 * that the reference gives it: the model as it was at the start of the run. A loss is a number and
 * its derivatives with regard to the log-probabilities; the derivative with regard to each token's
 * is the same, since they are added up. Names and formulas are those of TRL. */
#ifndef PESC_TRAIN_PREFERENCE_H
#define PESC_TRAIN_PREFERENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum preference_kind {
    PREFERENCE_NONE, /* instruction tuning */
    PREFERENCE_DPO,
    PREFERENCE_IPO,
    PREFERENCE_ORPO,
    PREFERENCE_SIMPO,
    PREFERENCE_KTO
} preference_kind;

typedef struct preference_rule {
    preference_kind kind;
    double beta, smoothing, gamma, lambda;
    double desirable, undesirable;
    double sft; /* weight of the cross-entropy of chosen answers */
} preference_rule;

static inline bool preference_has_reference(preference_kind k)
{
    return k == PREFERENCE_DPO || k == PREFERENCE_IPO || k == PREFERENCE_KTO;
}

/* Pairs of answers; else, of a kind other than PREFERENCE_NONE, answers with labels. */
static inline bool preference_has_pairs(preference_kind k)
{
    return k != PREFERENCE_NONE && k != PREFERENCE_KTO;
}

typedef struct preference_answer {
    double logp, reference; /* of all its tokens; reference: where the loss has one */
    int32_t tokens;
} preference_answer;

typedef struct preference_value {
    double loss;
    double slope[2];  /* of the loss, by logp of the chosen and the rejected answer */
    double reward[2]; /* of both */
    double logp[2];   /* as it is reported: the mean of its tokens where the loss uses that */
} preference_value;

/* of[0]: the chosen answer, of[1]: the rejected one. */
preference_value preference_pair(const preference_rule *r, const preference_answer of[2]);

/* Of an answer that is desirable, in the fields [0], or not, in the fields [1]; kl: how far the
 * model has moved from the reference, at least 0. */
preference_value preference_labelled(const preference_rule *r, const preference_answer *of,
                                     bool desirable, double kl);

#endif
