/* recurrent: the first sublayer of a block without attention. Its output for a token depends on a
 * state of fixed size instead of on all tokens before. In training, and at the beginning of each
 * packed sequence, the state is zero; in inference the KV cache keeps it.
 *
 * - The gated short convolution (LFM2): [b | c | u] = in h; y = out (c conv(b u)).
 * - The gated delta net (Qwen3.5): qkv = silu(conv(in h)), the delta rule over it with decays and
 *   steps from a h and b h, y = out (norm(rule) silu(z h)), where the norm is that of each head. */
#ifndef PESC_MODEL_RECURRENT_H
#define PESC_MODEL_RECURRENT_H

#include "model/attention.h"

/* What both passes have: values forward, their gradients backward. */
typedef struct recurrent_rows {
    tensor in;          /* [T,3C], or of a delta net [T,W]: what the convolution reads */
    tensor out;         /* [T,C] or [T,X]: what the output projection reads */
    tensor qkvz, ba;    /* [T,W+X] [T,2J]: what grouped projections give; else absent */
    tensor z, b, a;     /* [T,X] [T,J] [T,J]: of a delta net, as all below */
    tensor mixed, rule; /* [T,W] [T,X]: after the convolution, after the delta rule */
} recurrent_rows;

typedef struct recurrent_acts {
    recurrent_rows x;
    tensor normed;             /* [T,X]; of a delta net */
    tensor rstd;               /* f32 [T*J]; of a delta net in training */
    tensor in_ax, ba_ax, o_ax; /* linear_set.ax */
} recurrent_acts;

typedef struct recurrent_grads {
    recurrent_rows x;
    tensor work, dqk; /* see delta_bwd */
} recurrent_grads;

/* Nothing, where all layers have attention. */
void recurrent_layout(recurrent_acts *a, arena *mem, const acts_plan *plan);
void recurrent_layout_partial(recurrent_acts *a, arena *mem, const acts_plan *plan);
void recurrent_grads_layout(recurrent_grads *g, arena *mem, const acts_plan *plan);

/* As attention_fwd() and attention_layer_bwd(). */
void recurrent_fwd(const pass *p, const block *b, tensor y, tensor h);
void recurrent_bwd(const pass *p, const block *b, const block *g, attention_flow f);

#endif
