/* mirror: the gradients of a model's weights, as backward sees them.
 *
 * A grad_mirror has the form of the model: where a weight trains, the tensor of the same name is
 * where its gradient is added; where it is frozen, the tensor is absent. So backward asks the
 * mirror, and nothing is computed for what does not train. A stack of which some experts train has
 * those alone (moe.own, and own of a lora_stack). Whoever trains fills it. */
#ifndef PESC_MODEL_MIRROR_H
#define PESC_MODEL_MIRROR_H

#include "arch/shape.h"

/* How far down backward goes, and what forward and backward do in training alone. */
typedef struct backward_facts {
    int32_t first_layer; /* the lowest layer that backward must reach; n_layers: none */
    bool first_attn;     /* whether that layer's attention half trains */
    bool fp8;            /* gradients pass through frozen linears in fp8, on a device that has it */
    bool dense_router;   /* routers learn from the outputs of all experts (moe_router.c) */
    bool step_shares;    /* f of the balance loss is given (train_input.shares) */
    float lora_dropout, adapter_dropout; /* rates, of what they read */
    uint64_t seed;                       /* of the dropout masks */
} backward_facts;

typedef struct grad_mirror {
    transformer of;
    backward_facts facts;
} grad_mirror;

/* Whether anything that is read before the first layer trains. */
static inline bool mirror_inputs(const grad_mirror *g)
{
    const layer_inputs *in = &g->of.inputs;
    return g->of.embed.data || in->embed.data || in->proj.data || in->norm.data;
}

/* Whether anything below a layer wants its gradient. */
static inline bool mirror_below(const grad_mirror *g, int32_t layer)
{
    return layer > g->facts.first_layer || mirror_inputs(g);
}

#endif
