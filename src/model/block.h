/* block: one decoder layer of two sublayers: x += attention(norm x); x += ffn or experts(norm x).
 * Some families norm what a sublayer adds as well, or instead: x += norm attention(x). Adapters are
 * part of what their FFN adds, so such a norm comes after them. In some the stream that leaves a
 * layer is multiplied by a number of the layer. The residual stream x is f32 whatever the
 * activations are. */
#ifndef PESC_MODEL_BLOCK_H
#define PESC_MODEL_BLOCK_H

#include "model/attention.h"
#include "model/layer_input.h"
#include "model/moe.h"
#include "model/recurrent.h"

/* A slot: a layer's activations. In training a slot may be a layer's own; in inference there is
 * one. "shared" marks scratch that is cheap to recompute and that all slots share: block_restore()
 * computes it anew. The slot of a layer with a partial activation checkpoint owns only what is
 * small, but expensive to recompute: A x of each LoRA, the choice of experts, and the input and the
 * first product of adapters. All its other tensors are the shared slot's. */
/* Of experts beside a plain FFN: what the FFN gives, what the experts read and give, each [T,C],
 * the last in f32; f32 [T] of the norms of the three. */
typedef struct beside_acts {
    tensor ffn, h, experts;
    tensor ffn_rstd, h_rstd, experts_rstd;
} beside_acts;

typedef struct block_acts {
    tensor h; /* [T,C]: the normed input of a sublayer; in training of the second one; shared */
    tensor y; /* [T,C]: what a sublayer adds; shared */
    tensor
        f; /* [T,C]: the FFN's output: y, except where a partial checkpoint keeps it for adapters */
    tensor attn_raw, ffn_raw; /* [T,C]: what the sublayers give to the norms after them */
    tensor attn_post_rstd, ffn_post_rstd; /* f32 [T]: of these norms; training */
    attention_acts attn; /* this and the next share memory: a layer has one of them */
    recurrent_acts mix;
    layer_input_acts input;
    ffn_acts ffn;
    moe_acts moe, ffn_moe;
    beside_acts beside;
    tensor attn_h;              /* [T,C]: the normed input of attention */
    tensor middle;              /* f32 [T,C]: the residual stream between the sublayers; training */
    tensor attn_rstd, ffn_rstd; /* f32 [T]: of the two norms; training */
} block_acts;

void block_layout(block_acts *a, arena *mem, const acts_plan *plan);
/* The slot of a partial activation checkpoint; plan->share is the shared slot. */
void block_layout_partial(block_acts *a, arena *mem, const acts_plan *plan);

/* Makes tensors that were laid out for the widest layer as wide as those of this one. */
void block_fit(block_acts *a, const block *b);

/* p->stream goes through the layer; the stream's sum at the layer's input is kept in `x`, which may
 * be where the stream already is. In PHASE_RECOMPUTE it leaves only what backward reads. */
void block_fwd(pass *p, int32_t layer, tensor x);

/* Its two halves: attention with the norm after it, whose result is in the pass (acts.h), and the
 * FFN or the experts. Between them the stream has nothing to add. */
void block_attention_fwd(pass *p, int32_t layer, tensor x);
void block_ffn_fwd(pass *p, int32_t layer);

/* A sparse layer up to its router: the choice of experts is in the pass, the experts do not run and
 * the residual stream is of no further use. */
void block_route(pass *p, int32_t layer, tensor x);

/* After the last layer: adds what is still to be added to the stream; the sum is in p->x. */
void block_flush(pass *p);

/* Recomputes what slots share for a layer that kept all else: other layers have overwritten it. */
void block_restore(const pass *p, const block *b);

/* Backward of the layer whose activations are in the pass, which it overwrites. grads.dx is the
 * gradient of the layer's output, then of its input `x`: the latter only where something below
 * trains; grads.dy is the same as an activation. Mirrors block_fwd from the end. */
void block_bwd(const pass *p, int32_t layer, tensor x);

#endif
