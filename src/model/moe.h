/* moe: the sparse FFN sublayer of a block: a router, k of E experts a token, one grouped product
 * for all of them.
 *
 * Adapters (PESC) read the FFN's output f, their router reads its input h. With gates that sum to 1
 * over the chosen k, sum_k g_k (f + s U_k gelu(D_k f)) = f + s sum_k g_k U_k gelu(D_k f): the FFN
 * runs once, only the small adapters are sparse, and zero U gives back the dense model bit for bit.
 * Full experts are FFNs of their own on h, plus shared ones that every token takes. Adapters may
 * also read the output of such a mixture in the place of an FFN's: then a layer has two routers on
 * h, and those of the adapters are the ones that training balances and `pesc routes` shows.
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

/* Which mixture of the configuration; the same of the shared slot, or NULL. */
typedef struct moe_place {
    const moe_rule *rule;
    const moe_acts *share;
} moe_place;

void moe_layout(moe_acts *a, arena *mem, const acts_plan *plan, const moe_place *place);
void moe_layout_partial(moe_acts *a, arena *mem, const acts_plan *plan, const moe_rule *r);
void moe_grads_layout(moe_grads *g, arena *mem, const acts_plan *plan, const moe_rule *r);
void moe_dense_layout(moe_grads *g, arena *mem, const acts_plan *plan);

/* ---- one mixture of a layer ---- */

typedef struct mixture {
    const pass *p;
    const moe_rule *rule;
    const moe *w;
    const moe_acts *a;
    const moe_grads *d; /* NULL: inference */
} mixture;
mixture moe_of(const pass *p, const block *b);   /* the layer's: of adapters, where it has some */
mixture moe_full(const pass *p, const block *b); /* that of full experts, or the only one */

/* The experts of served adapters, where a row may use them; NULL: none. */
const extra_experts *moe_extra(const mixture *x);

/* A row of `from` for each token and choice, sorted by expert, and its backward. */
void moe_gather(const mixture *x, tensor out, tensor from);
void moe_gather_bwd(const mixture *x, tensor dx, tensor drows, bool accumulate);

/* out, the experts' outputs, becomes their gradient. */
void moe_scatter_bwd(const mixture *x, tensor out, tensor dgates, tensor dy, float scale);

/* A product of a stack that holds some of the experts: one for each run of adjacent ones. Rows of
 * other experts are neither read nor written. out absent: not wanted. */
void moe_own_product(const mixture *x, grouped_mm a, const expert_list *own);

/* The same of all experts of the layer: out = a b. */
void moe_product(const mixture *x, mm_layout layout, tensor out, tensor a, tensor b);

/* Dropout of rows that experts read: each choice of a token has a mask of its own, which the kind
 * of the rows names. */
typedef enum dropout_rows { DROPOUT_ADAPTER, DROPOUT_GATE, DROPOUT_UP, DROPOUT_DOWN } dropout_rows;
void moe_drop_rows(const pass *p, const block *b, tensor rows, dropout_rows which);

/* The start of a scratch tensor, cut to the width of a linear. */
static inline tensor moe_narrow(tensor t, int64_t cols)
{
    t.ne[1] = cols;
    return t;
}

/* moe_router.c: the logits of a router with a norm of its own, from v, which that norm reads; the
 * gates times their experts' numbers; and the gradient of the logits, g: the mirror of w. */
void moe_router_norm(const mixture *x, tensor v);
void moe_scale_gates(const mixture *x);
void moe_logits_bwd(const mixture *x, const moe *g);

/* ---- forward ---- */

/* Chooses the experts of every token: ids, gates and the order of rows by expert. The second is for
 * the full experts that adapters read. */
void moe_route(const pass *p, const block *b);
void moe_route_full(const pass *p, const block *b);

/* Adapters of f [T,C]: their rows, gates applied, are in the pass (out). */
void moe_adapter_fwd(const pass *p, const block *b, tensor f);

/* Whether moe_adapters_add() serves this pass: inference of a few tokens, on a device for which one
 * op is faster than its parts. It routes by itself. */
bool moe_adapters_few(const pass *p);

/* x [T,C] f32 += f [T,C] + the adapters of f. */
void moe_adapters_add(const pass *p, const block *b, tensor x, tensor f);

/* to [T,C] f32 += the experts of h [T,C] that routers choose. */
void moe_expert_fwd(const pass *p, const block *b, tensor to, tensor h);

/* Computes the shared experts of h; to [T,C] f32 += what they gave. Nothing where there are none.
 */
void moe_shared_fwd(const pass *p, const block *b, tensor h);
void moe_shared_add(const pass *p, const block *b, tensor to);

/* The three: to [T,C] f32 += chosen and shared experts of h. */
void moe_experts_fwd(const pass *p, const block *b, tensor to, tensor h);

/* y [T,C] = the FFN of h with LoRA experts. */
void moe_lora_fwd(const pass *p, const block *b, tensor y, tensor h);

/* The part of block_restore(): recomputes what slots share from h and what the slot keeps. */
void moe_restore(const pass *p, const block *b, tensor h);

/* ---- backward ---- */

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

/* After moe_expert_bwd(), for full experts that adapters read: the gradient that goes through their
 * own router is added to dh (absent: not wanted). */
void moe_full_router_bwd(const pass *p, const block *b, const block *g, tensor dh);

void moe_expert_bwd(const pass *p, const block *b, const block *g, moe_flow f);
void moe_lora_bwd(const pass *p, const block *b, const block *g, tensor dy, moe_flow f);

#endif
