/* train_state: what a pass has for training beside what inference needs: the slots of activations
 * with the plan of what each layer keeps, the gradients on their way down, and the loss.
 *
 * Like all of a pass it is laid out for the current tokens, in the pass' one span of memory. */
#ifndef PESC_MODEL_TRAIN_STATE_H
#define PESC_MODEL_TRAIN_STATE_H

#include "model/block.h"
#include "model/loss.h"
#include "model/mirror.h"

/* Gradients on their way through a layer: one set, which all layers use in turn. */
typedef struct train_grads {
    tensor dx;            /* f32 [T,C]: of the residual stream */
    tensor dy;            /* [T,C]: of what a sublayer added, as an activation */
    tensor dh;            /* [T,C]: of the normed input of a sublayer */
    tensor mid;           /* [T,LINEARS * lora_rank]: of A x */
    tensor glu;           /* [T,F] */
    tensor beside;        /* [T,C]: dy once more, of experts beside a plain FFN; else absent */
    attention_grads attn; /* shares its memory with the next */
    recurrent_grads mix;
    moe_grads moe, ffn_moe;
} train_grads;

/* Results of a forward on the host. */
typedef struct train_results {
    float *loss;     /* [n_out] */
    float *balance;  /* [n_layers, 2E + 2] */
    int64_t *counts; /* [n_layers, E] */
} train_results;

typedef struct train_state {
    const grad_mirror *mirror; /* borrowed: what trains, and where its gradients are added */
    train_plan plan;
    layer_plan *layers; /* [n_layers]: what each layer keeps, and its slot */
    block_acts *slots;  /* [recompute_slots()] */
    tensor inputs;      /* f32 [n_layers - first, T, C]: of each layer that backward reaches */
    layer_keep keep;    /* of the current layer */

    rng_key key;            /* of the dropout masks of this micro-batch */
    tensor dropped;         /* [T, plan.dropout_width]: a LoRA's input with dropout */
    bool first_micro_batch; /* gradients of adapters are written, not added to */
    uint64_t domain;        /* the bit of that of its tokens (expert_list.domains) */

    tensor targets, weights, loss; /* i32, f32, f32 [n_out] */
    tensor last_rstd, dlast;       /* of a chunk of target rows: f32 [rows], f32 [rows,C] */
    tensor dlogits;                /* [rows,V]; absent: they overwrite the logits */
    tensor balance; /* f32 [n_layers, 2E + 2]: f and P of each layer, its aux and its z */
    shared_kv shared[SHARED_KINDS]; /* gradients, like the pass' */
    tensor shares; /* f32 [n_layers, E]: train_input.shares; absent: they are never given */
    train_grads grads;
    train_results results;
} train_state;

/* Parts of the pass' layout; n tokens, n_out target rows. */
void train_state_layout(pass *p, arena *a, int64_t n, int64_t n_out);
void train_state_host_layout(pass *p, arena *a);

/* Rows of the next chunk that meets the head, of n that are left. */
int64_t train_state_chunk(const pass *p, int64_t n);

#endif
