/* recompute: what each layer keeps of its forward for its backward (activation checkpointing),
 * decided once when a pass for training is opened.
 *
 * Every layer that backward reaches keeps its input. What else it keeps trades memory for time; the
 * table of layer_plan rows says it for each layer. Activations live in slots (block_acts): a layer
 * with KEEP_ALL or KEEP_PARTIAL has a slot of its own, all others use one shared slot, which each
 * layer overwrites. */
#ifndef PESC_MODEL_RECOMPUTE_H
#define PESC_MODEL_RECOMPUTE_H

#include <stdint.h>

typedef enum layer_keep {
    KEEP_NOTHING,    /* backward does not reach the layer */
    KEEP_CHECKPOINT, /* the input alone: backward recomputes the layer from it */
    KEEP_PARTIAL,    /* a partial activation checkpoint: what is small, but expensive to recompute;
                        the rest is recomputed from the input */
    KEEP_ALL,        /* all but a few activations that block_restore() computes cheaply */
    KEEP_LIVE,       /* the top layer: backward begins with it, where forward has just left it */
} layer_keep;

/* How many layers keep all activations, from the lowest that backward reaches, and how many above
 * those keep a partial activation checkpoint. The top layer needs neither; more than there are
 * means all. */
typedef struct keep_counts {
    int32_t all, partial;
} keep_counts;

typedef struct recompute_plan {
    int32_t n_layers, first; /* backward reaches the layers first to n_layers - 1 */
    keep_counts keep;        /* at most as many as there are below the top layer */
} recompute_plan;

typedef struct layer_plan {
    layer_keep keep;
    int32_t slot; /* where its activations are */
} layer_plan;

recompute_plan recompute_plan_of(int32_t n_layers, int32_t first, keep_counts keep);

/* Slots: those of KEEP_ALL, then those of KEEP_PARTIAL, then the shared one. */
int32_t recompute_slots(const recompute_plan *p);

layer_plan recompute_layer(const recompute_plan *p, int32_t layer);

#endif
