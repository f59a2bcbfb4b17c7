/* block: one decoder layer. x += attention(norm x); x += ffn or experts(norm x). The residual
 * stream x is f32 whatever the activations are. */
#ifndef PESC_MODEL_BLOCK_H
#define PESC_MODEL_BLOCK_H

#include "model/attention.h"
#include "model/moe.h"

/* A layer's activations: with training one slot a kept layer, without one slot for all. What costs
 * little to compute again all slots share: block_restore() brings it back. A layer that runs again
 * may have a light slot: of its own is only what is small and costs much to compute again, which is
 * what A of LoRA gives, the choice of experts, and what adapters read and their first half. */
typedef struct block_acts {
    tensor h; /* [T,C]: the normed input of either half; in training of the second; shared */
    tensor y; /* [T,C]: what either half adds; shared */
    tensor f; /* [T,C]: what the FFN adds: y, but where a light slot keeps it for adapters */
    attention_acts attn;
    ffn_acts ffn;
    moe_acts moe;
    tensor attn_h;              /* [T,C]: the normed input of the first half */
    tensor middle;              /* f32 [T,C]: the residual stream between the halves; training */
    tensor attn_rstd, ffn_rstd; /* f32 [T]: of the two norms; training */
} block_acts;

void block_layout(block_acts *a, arena *mem, const acts_plan *plan);
void block_layout_light(block_acts *a, arena *mem, const acts_plan *plan); /* beside plan->share */

/* p->stream goes through the layer; its input, summed up, is kept in `x`, which may be where it
 * lies. Where a layer runs again, the stream is of no further use. */
void block_fwd(pass *p, int32_t layer, tensor x);

/* A sparse layer up to its router: the choice of experts is in the pass, the experts do not run and
 * the residual stream is of no further use. */
void block_route(pass *p, int32_t layer, tensor x);

/* Behind the last layer: the stream, summed up, in p->x. */
void block_settle(pass *p);

/* Computes what slots share anew for a layer whose other activations are in the pass: forward has
 * been through other layers since. */
void block_restore(const pass *p, const block *b);

/* Backward of the layer whose activations are in the pass, which it uses up. p->grads.dx is the
 * gradient of the layer's output, then of its input `x`: the latter only where something below
 * trains; p->grads.dy is the same as an activation. Mirrors block_fwd from the end. */
void block_bwd(const pass *p, int32_t layer, tensor x);

#endif
