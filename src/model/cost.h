/* cost: the parameters and the matrix products of a model, by part, counted from its configuration.
 *
 * FLOP are those of matrix products, 2 for each multiply-add. Norms, rotations, softmax,
 * activations and the optimiser are not counted. Attention is causal: a token meets the keys up to
 * its own, or as many as the window has. Of E experts a token uses k, and the load is taken as
 * even.
 *
 * Backward has a product for the gradient of the input where something that trains is below, and
 * one for the gradient of each weight that trains. Two things are computed again in backward and
 * count there: the scores of attention, and the outputs of LoRA experts. Layers that are recomputed
 * for want of memory (recompute.h) are not counted. */
#ifndef PESC_MODEL_COST_H
#define PESC_MODEL_COST_H

#include "arch/family.h"
#include "arch/param_group.h"
#include "arch/shape.h"

typedef enum cost_part {
    COST_EMBED,
    COST_ATTENTION, /* projections */
    COST_SCORES,    /* Q K^T and the product with V; those with the state of a delta net */
    COST_FFN,
    COST_SHARED, /* shared experts */
    COST_EXPERTS,
    COST_ADAPTERS,
    COST_ROUTER,
    COST_LORA, /* with the experts of a mixture of LoRA */
    COST_NORM,
    COST_HEAD,
    COST_INPUTS, /* of layers that have inputs of their own */
    COST_PARTS
} cost_part;

extern const char *const cost_names[COST_PARTS];

typedef struct cost_row {
    uint64_t params, activated, trained; /* parameters */
    uint64_t inference;                  /* FLOP of a forward of the model as it is */
    uint64_t forward, backward;          /* FLOP of training */
} cost_row;

typedef struct cost_counts {
    cost_row part[COST_PARTS];
} cost_counts;

/* One sequence: `tokens` new ones after `past` that are in the cache; `rows` of them meet the head.
 */
typedef struct cost_work {
    int64_t tokens, past, rows;
} cost_work;

/* PESC_USAGE where the counts could exceed 2^62. */
pesc_status cost_check(const config *c, cost_work w);

/* Adds params, activated and inference. m->w.blocks may be NULL: it has no LoRA. */
void cost_of_model(cost_counts *out, const model_shape *m, cost_work w);

/* What a method trains of a model. */
typedef struct cost_method {
    const config *c; /* as training has it */
    const void *spec;
    bool (*trains)(const void *spec, const slot *s);
    /* Of the LoRA that a linear without one gets; 0: none. */
    int32_t (*lora_rank)(const void *spec, const config *c, const slot *s);
} cost_method;

/* Adds trained, forward and backward. m is as before training; LoRA that it has trains on. */
void cost_of_training(cost_counts *out, const model_shape *m, const cost_method *how, cost_work w);

cost_row cost_total(const cost_counts *c);

#endif
