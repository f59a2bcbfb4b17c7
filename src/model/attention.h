/* attention: the first sublayer of a block, in two forms. The standard one projects queries, keys
 * and values and rotates them; MLA (DeepSeek) projects low-rank latents, rotates a part all heads
 * share, and expands. Both end in the same op over the same kind of cache. */
#ifndef PESC_MODEL_ATTENTION_H
#define PESC_MODEL_ATTENTION_H

#include "model/forward.h"

/* What a slot of activations is laid out for. Backward reads some that inference does not need;
 * what it does not read is scratch, which all slots share. */
typedef struct acts_plan {
    const config *c;
    dtype dt;
    int64_t n;
    bool train;
    int32_t extra;                  /* experts of served adapters, the most of a layer */
    int32_t rank;                   /* of LoRA, whose A x is kept; 0: none is */
    int32_t expert_rank;            /* of LoRA on full experts; 0: none */
    const struct block_acts *share; /* the slot whose scratch is used, or NULL */
} acts_plan;

typedef struct attention_acts {
    tensor q, k, v;                 /* [T,H] [T,K] [T,K], rotated: what the op reads */
    tensor out;                     /* [T,O] */
    tensor gate, gated;             /* [T,O]: of out_gate, out times its sigmoid; absent: no gate */
    tensor q_gate;                  /* [T,2H]: each query head and its gate; absent: none there */
    tensor q_raw, k_raw, v_raw;     /* before q_norm, k_norm, v_norm; absent: no such norm */
    tensor q_low, q_lat;            /* MLA: [T,Q], before and after the norm */
    tensor kv_low;                  /* [T,P]: the latent, then the shared rotating columns */
    tensor kv_in, kv_lat;           /* [T,R], before and after the norm */
    tensor kv;                      /* [T,B]: keys and values of each head, side by side; scratch */
    tensor lse;                     /* f32 [T,heads]: this and those below are for backward */
    tensor q_rstd, k_rstd, kv_rstd; /* f32: of the norms on queries, keys and the latent */
    tensor v_rstd;                  /* and on values */
    tensor qkv_ax, o_ax;            /* linear_set.ax */
} attention_acts;

/* Keys and values that several layers attend to: the pass keeps them, a pair for layers without a
 * window and one for those with one (block.shared_kv). Their gradients are f32 sums. */
typedef struct shared_kv {
    tensor k, v; /* [T,K] */
} shared_kv;

/* Gradients on their way through one layer. */
typedef struct attention_grads {
    tensor q, k, v, out;
    tensor ungated; /* [T,O]: of attention's own output, where that has a gate */
    tensor q_gate;  /* like that of attention_acts */
    tensor delta;   /* f32 [T,heads] */
    tensor q_low;   /* MLA, like kv_low, kv_lat, kv */
    tensor kv_low, kv_lat, kv;
} attention_grads;

void attention_layout(attention_acts *a, arena *mem, const acts_plan *plan);
void attention_layout_partial(attention_acts *a, arena *mem, const acts_plan *plan);
void attention_grads_layout(attention_grads *g, arena *mem, const acts_plan *plan);
/* Of the kinds that are shared, in plan->dt; `shared` is zeros before. */
void attention_shared_layout(shared_kv shared[SHARED_KINDS], arena *mem, const acts_plan *plan);

/* Makes tensors that were laid out for the widest layer as wide as those of this one. */
void attention_fit(attention_acts *a, const block *b);
void attention_grads_fit(attention_grads *g, const block *b);

/* y [T,C] = attention of h [T,C] in this pass. */
void attention_fwd(const pass *p, const block *b, tensor y, tensor h);

/* dh [T,C] (absent: not wanted) from dy [T,C]; gradients of what trains are added to g. */
typedef struct attention_flow {
    tensor dh, dy, h;
} attention_flow;
void attention_layer_bwd(const pass *p, const block *b, const block *g, attention_flow f);

#endif
