/* plan: what a step of training takes, told before anything is allocated. The trainer makes the
 * same calls, so what `pesc plan` prints is what a run takes. */
#ifndef PESC_TRAIN_PLAN_H
#define PESC_TRAIN_PLAN_H

#include "model/train.h"

/* How large one forward can be; fills micro_tokens where it was left open. */
pass_limits plan_limits(pesc_train_options *o, const device *dev);

typedef struct plan_pass {
    const pesc_model *shape; /* dev, cfg, act_dt and lora_rank are looked at */
    const train_spec *spec;
    int32_t first_layer; /* the lowest that backward reaches */
    pass_limits lim;
} plan_pass;

/* Layers below the top one that keep their activations: `asked`, or with -1 as many as fit into
 * `room` bytes. The top one's are still there when backward begins. */
int32_t plan_keep(const plan_pass *p, int64_t asked, uint64_t room);
uint64_t plan_pass_bytes(const plan_pass *p, int32_t keep);

/* Whether an optimiser's moments go to the host's memory: of `available` bytes, the device would
 * not hold them beside even the smallest pass. */
bool plan_paged(const plan_pass *p, uint64_t moments, uint64_t available);

/* The part of free memory that activations may take: the rest is for everything small. */
static inline uint64_t plan_room(uint64_t available)
{
    return available / 10 * 9;
}

#endif
