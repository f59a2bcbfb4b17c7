/* plan: the memory of a training step, computed before anything is allocated. The trainer makes the
 * same calls, so `pesc plan` prints what a run uses. */
#ifndef PESC_TRAIN_PLAN_H
#define PESC_TRAIN_PLAN_H

#include "model/loss.h"
#include "train/params.h"

/* The limits of one pass; sets micro_tokens where it was not given. */
pass_limits plan_limits(pesc_train_options *o, const device *dev);

typedef struct plan_pass {
    device *dev;
    const model_shape *shape;
    const train_spec *spec;
    int32_t first_layer; /* the lowest that backward reaches */
    pass_limits lim;
} plan_pass;

/* Layers below the top one that keep their activations: `asked`, or with -1 as many as fit into
 * `room` bytes; and as many of the others as fit a partial activation checkpoint, which saves more
 * time per byte and so comes first. The top one's are still there when backward begins. */
keep_counts plan_keep(const plan_pass *p, int64_t asked, uint64_t room);
uint64_t plan_pass_bytes(const plan_pass *p, keep_counts keep);

/* PESC_NOMEM where the device has not left what that takes, with the largest forward that fits. */
pesc_status plan_check(const plan_pass *p, keep_counts keep);

/* Measures where memory is short, cheapest in time first: adapters have no
 * copies (train_spec.no_adapter_copies) unless every layer keeps its activations beside them;
 * forwards are smaller, if that was left open, when layers would not even keep a partial activation
 * checkpoint; and the optimiser's moments go to the host's memory when nothing else fits beside
 * them. `available`: without weights that train, gradients and moments. Sets o->micro_tokens and
 * p->lim.
 */
typedef struct plan_savings {
    bool no_adapter_copies, paged;
} plan_savings;
plan_savings plan_save(plan_pass *p, pesc_train_options *o, uint64_t available);

/* The part of free memory that activations may take: the rest is for everything small. */
static inline uint64_t plan_room(uint64_t available)
{
    return available / 10 * 9;
}

#endif
