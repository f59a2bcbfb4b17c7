/* params_walk: how the list of what trains is made: a walk over the tensors of a configuration,
 * once to measure (no list yet), once to list (no memory yet), once to place. params.c walks and
 * adds weights, params_loras.c adds LoRA. */
#ifndef PESC_TRAIN_PARAMS_WALK_H
#define PESC_TRAIN_PARAMS_WALK_H

#include "train/params.h"

typedef struct params_walk {
    params *p;
    pesc_model *m; /* NULL: only a configuration is known */
    const config *c;
    tensor staging; /* f32: rows of a parameter on their way to where they are kept */
    size_t n_list, n_loras, n_attached;
    pesc_status status; /* of the first failure */
} params_walk;

/* Gives q the next place of the flat buffers; more: the next of its stack follows, side by side.
 * exact: forward reads it in f32. */
void walk_take(params_walk *w, param *q, bool more, bool exact);

/* Backward must get as far down as this slot. */
void walk_reach(params_walk *w, const slot *s);

/* Copies what a model's tensor holds, some rows at a time; what it lacks is initialised. */
void walk_init(params_walk *w, const param *q, tensor from, init_kind init);

/* The stack of n matrices that ends with this one. */
param walk_stack(const param *last, int64_t n);

/* What forward reads of a trained tensor. */
tensor walk_working(const params *p, const param *q);

/* Adds the A, or with `second` the B, of the LoRA of a linear, or of the matrix of an expert, if it
 * has or gets one. A's of linears that read the same lie side by side, so that they can be
 * multiplied as one: all come first, then (the second time round) all B's. */
void walk_add_lora(params_walk *w, const slot *s, bool second);
void walk_add_expert_lora(params_walk *w, const slot *s, bool second);

#endif
