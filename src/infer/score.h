/* score: the loss of given tokens. Sequences are packed into forwards of a size that keeps the
 * device busy; a long one continues in the next forward through the KV cache, so memory is bounded
 * whatever its length. The head is computed only for rows that are scored. */
#ifndef PESC_INFER_SCORE_H
#define PESC_INFER_SCORE_H

#include "model/forward.h"

typedef struct scorer scorer;
pesc_status scorer_open(scorer **out, pesc_model *m, int32_t n_ctx); /* tokens of a sequence */
void scorer_close(scorer *s);                                        /* NULL is allowed */

typedef struct score {
    double sum; /* of the losses, in nats */
    uint64_t count;
} score;

/* Adds the loss of each targets[i], predicted from ids[0..i]; a target below 0 is not scored. The
 * sequence is n + 1 tokens long, with what follows ids (which matters with dynamic RoPE). ids
 * and targets are copied; *out is complete after scorer_flush() and must stay valid until then. */
pesc_status scorer_add(scorer *s, const int32_t *ids, const int32_t *targets, int32_t n,
                       score *out);
pesc_status scorer_flush(scorer *s);

#endif
