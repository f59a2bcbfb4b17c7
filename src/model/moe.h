/* moe: the sparse half of a block: a router, k of E experts a token, one grouped product for all.
 *
 * Adapters (PESC) stand on the FFN's output f and the router on its input h. With gates that sum
 * to 1 over the chosen k, sum_k g_k (f + s U_k gelu(D_k f)) = f + s sum_k g_k U_k gelu(D_k f): the
 * FFN runs once, only the small adapters are sparse, and zero U gives back the dense model bit for
 * bit. Full experts are FFNs of their own on h, plus shared ones that every token takes.
 *
 * Both add to the f32 residual stream. The norm before has made the router's logits.
 *
 * LoRA experts (mixture of LoRA) stand inside the FFN: each of its three linears is W v + s sum_k
 * g_k B_k A_k v, with one choice of k experts for all three. */
#ifndef PESC_MODEL_MOE_H
#define PESC_MODEL_MOE_H

#include "model/attention.h"
#include "model/ffn.h"

typedef struct moe_acts {
    tensor logits;         /* f32 [T,E] */
    tensor ids, gates;     /* i32, f32 [T,k] */
    tensor order, inverse; /* i32 [T*k] */
    tensor offsets;        /* i32 [E+1] */
    tensor in;            /* [T*k,C]: a row for each token and slot, sorted by expert; shared by all
                             slots but for adapters, like, of experts that are small, out */
    tensor gate, up, mid; /* [T*k,M]; adapters: up before and mid after activation and gate; LoRA:
                             what A gives in the linears gate, up and down */
    tensor out;           /* [T*k,C]; LoRA: in and out are scratch of the widest linear */
    ffn_acts shared;
    tensor shared_out;   /* [T,C] */
    tensor shared_logit; /* f32 [T,1] */
} moe_acts;

typedef struct moe_grads {
    tensor mid;                 /* [T*k,M] */
    tensor gates, more, logits; /* f32 [T,k] twice, [T,E] */
    tensor shared_logit;        /* f32 [T,1] */
    tensor share;               /* f32 [2,E]: of this layer, for the balance loss */
    float balance;              /* what the balance loss of a layer weighs */
} moe_grads;

void moe_layout(moe_acts *a, arena *mem, const acts_plan *plan);
void moe_layout_light(moe_acts *a, arena *mem, const acts_plan *plan);
void moe_grads_layout(moe_grads *g, arena *mem, const acts_plan *plan);

/* Chooses the experts of every token: ids, gates and the order of rows by expert. */
void moe_route(const pass *p, const block *b);

/* Adapters of f [T,C]: their rows, gates applied, are in the pass (out). */
void moe_adapter_fwd(const pass *p, const block *b, tensor f);

/* x [T,C] f32 += experts of h [T,C]. */
void moe_expert_fwd(const pass *p, const block *b, tensor x, tensor h);

/* y [T,C] = the FFN of h with LoRA experts. */
void moe_lora_fwd(const pass *p, const block *b, tensor y, tensor h);

/* What slots share (block_restore): h as forward had it. */
void moe_restore(const pass *p, tensor h);

/* Gradients of what trains are added to g; activations are used up. dx f32 [T,C] is that of the
 * residual stream, dh [T,C] (absent: not wanted) that of the experts' input. */
typedef struct moe_flow {
    tensor dh, dx, h;
} moe_flow;

/* dy [T,C], the gradient of the FFN's output, grows by what came through the adapters. */
void moe_adapter_bwd(const pass *p, const block *b, const block *g, tensor dy);

/* Behind any of the three: the gradient of the logits, for the norm's backward. */
void moe_router_bwd(const pass *p);

void moe_expert_bwd(const pass *p, const block *b, const block *g, moe_flow f);
void moe_lora_bwd(const pass *p, const block *b, const block *g, tensor dy, moe_flow f);

#endif
