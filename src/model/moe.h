/* moe: the sparse FFN sublayer of a block: a router, k of E experts a token, one grouped product
 * for all of them.
 *
 * Adapters (PESC) read the FFN's output f, their router reads its input h. With gates that sum to 1
 * over the chosen k, sum_k g_k (f + s U_k gelu(D_k f)) = f + s sum_k g_k U_k gelu(D_k f): the FFN
 * runs once, only the small adapters are sparse, and zero U gives back the dense model bit for bit.
 * Full experts are FFNs of their own on h, plus shared ones that every token takes.
 *
 * Both add to the f32 residual stream. The norm before them has computed the router's logits.
 *
 * A full expert may carry LoRA on its matrices: W_e v + s B_e A_e v.
 *
 * LoRA experts (mixture of LoRA) are inside the FFN: each of its three linears is W v + s sum_k
 * g_k B_k A_k v, with one choice of k experts for all three. */
#ifndef PESC_MODEL_MOE_H
#define PESC_MODEL_MOE_H

#include "model/attention.h"
#include "model/ffn.h"

typedef struct moe_acts {
    tensor logits;      /* f32 [T,E] */
    tensor router_rstd; /* f32 [T]: of the router's own norm */
    tensor ids, gates;  /* i32, f32 [T,k] */
    tensor chosen,
        factor; /* f32 [T,k]: gates before their experts' numbers (gate_scale), and these */
    tensor order, inverse; /* i32 [T*k] */
    tensor offsets;        /* i32 [E+1] */
    tensor remapped;       /* i32 [T,k]: ids, or the experts of served adapters in their place */
    tensor extra_offsets;  /* i32 [X+1]: goes on from the last of offsets; both are absent where no
                              served adapter is a patch */
    tensor in;  /* [T*k,C]: a row for each token and choice, sorted by expert; shared by all slots,
                   except with adapters */
    tensor out; /* [T*k,C]; shared by all slots, except with full experts. With LoRA experts `in`
                   and `out` are scratch as wide as the widest linear */
    tensor gate, up, mid; /* [T*k,M]; adapters: up before and mid after activation and gate; LoRA:
                             A v of the linears gate, up and down */
    tensor lora_mid[2]; /* LoRA of full experts, scratch of all slots: [T*k,R] twice, and rows as */
    tensor lora_wide;   /* wide as the widest matrix */
    ffn_acts shared;
    tensor shared_out;   /* [T,C] */
    tensor shared_logit; /* f32 [T,1] */
} moe_acts;

typedef struct moe_grads {
    tensor mid;                 /* [T*k,M] */
    tensor gates, more, logits; /* f32 [T,k] twice, [T,E] */
    tensor shared_logit;        /* f32 [T,1] */
    tensor share;               /* f32 [2,E]: of this layer, for the balance loss */
    float balance, z;           /* weights of a layer's balance loss and of its z-loss */
    tensor all;                 /* f32 [T,E]: of the gates of all experts; absent: of the chosen */
    tensor all_rows;            /* i32 [2]: the offsets of one expert that has every token */
} moe_grads;

void moe_layout(moe_acts *a, arena *mem, const acts_plan *plan);
void moe_layout_partial(moe_acts *a, arena *mem, const acts_plan *plan);
void moe_grads_layout(moe_grads *g, arena *mem, const acts_plan *plan);
void moe_dense_layout(moe_grads *g, arena *mem, const acts_plan *plan);

/* moe_router.c: the logits of a router with a norm of its own, from x, which that norm reads; and
 * the gates times their experts' numbers. */
void moe_router_norm(const pass *p, const block *b, tensor x);
void moe_scale_gates(const pass *p, const block *b);

/* Chooses the experts of every token: ids, gates and the order of rows by expert. */
void moe_route(const pass *p, const block *b);

/* Adapters of f [T,C]: their rows, gates applied, are in the pass (out). */
void moe_adapter_fwd(const pass *p, const block *b, tensor f);

/* Whether moe_adapters_add() serves this pass: inference of a few tokens, on a device for which one
 * op is faster than its parts. It routes by itself. */
bool moe_adapters_few(const pass *p);

/* x [T,C] f32 += f [T,C] + the adapters of f. */
void moe_adapters_add(const pass *p, const block *b, tensor x, tensor f);

/* x [T,C] f32 += experts of h [T,C]. */
void moe_expert_fwd(const pass *p, const block *b, tensor x, tensor h);

/* y [T,C] = the FFN of h with LoRA experts. */
void moe_lora_fwd(const pass *p, const block *b, tensor y, tensor h);

/* The part of block_restore(): recomputes what slots share from h and what the slot keeps. */
void moe_restore(const pass *p, tensor h);

/* Gradients of what trains are added to g; activations are overwritten. dx f32 [T,C] is that of the
 * residual stream, dh [T,C] (absent: not wanted) that of the experts' input. */
typedef struct moe_flow {
    tensor dh, dx, h;
} moe_flow;

/* moe_router.c: the gradient of the gates of all experts (DenseMixer), <dy, E_i(x)> for each token
 * and expert, into train->grads.moe.all; nothing where routers learn from the chosen experts alone.
 *
 * Forward keeps the k chosen experts. The router's gradient is that of a layer in which all experts
 * were chosen, at the same outputs: straight through the choice. Dropout is off in it.
 *
 * Adapters: before moe_adapter_bwd(), with dy as it gets it. Full experts: after moe_expert_bwd(),
 * whose activations are then free. */
void moe_adapter_dense(const pass *p, const block *b, tensor dy);
void moe_expert_dense(const pass *p, const block *b, moe_flow f);

/* Adds the gradient that comes through the adapters to dy [T,C], that of the FFN's output. */
void moe_adapter_bwd(const pass *p, const block *b, const block *g, tensor dy);

/* After any of the three: the gradient of the logits, which the norm's backward reads. */
void moe_router_bwd(const pass *p, const block *b, const block *g);

void moe_expert_bwd(const pass *p, const block *b, const block *g, moe_flow f);
void moe_lora_bwd(const pass *p, const block *b, const block *g, tensor dy, moe_flow f);

#endif
