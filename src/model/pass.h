/* pass: the inside of model.h's pass: the tokens of one forward and the memory it runs in.
 *
 * The layout depends on the number of tokens alone and grows with it. pass_open() measures it at
 * the limits and takes that much; pass_set() lays out the same span anew for the tokens at hand, so
 * every tensor has exactly the shape of this forward and nothing is cut or allocated later.
 *
 * A pass for training has more: the input of every layer backward reaches, slots for activations,
 * and one set of gradients. The lowest layers have a slot of their own, those above a light one
 * (block.h); what is in neither all share, and backward refills it by running the layer again from
 * its saved input. */
#ifndef PESC_MODEL_PASS_H
#define PESC_MODEL_PASS_H

#include "model/block.h"
#include "model/params.h"
#include "model/train.h"

/* Small host arrays. Those of the first `bytes` of host_memory are how pass_set() hands its tokens
 * to the device. */
typedef struct pass_host {
    int32_t *ids, *pos; /* [T] */
    int32_t *starts;    /* [n_seq + 1] */
    int32_t *rows;      /* [n_out] */
    int32_t *table;     /* [n_seq, max_pages] */
    float *inv_freq;    /* [n_seq or 1, rot/2] */
    size_t bytes;
    int32_t *kv_seq; /* [n_seq] */
    float *loss;     /* [n_out], training, like those below */
    float *balance;  /* [n_layers, 2E + 1] */
    int64_t *counts; /* [n_layers, E] */
} pass_host;

/* Gradients on their way through a layer: one set for all. */
typedef struct pass_grads {
    tensor dx;  /* f32 [T,C]: of the residual stream */
    tensor dy;  /* [T,C]: of what a half of a layer added, as an activation */
    tensor dh;  /* [T,C]: of the normed input of a half */
    tensor mid; /* [T,LINEARS * lora_rank] */
    tensor glu; /* [T,F] */
    attention_grads attn;
    moe_grads moe;
} pass_grads;

/* The residual stream as a half of a layer leaves it: what it adds is added by the next norm, in
 * the walk that reads the stream anyway. */
typedef struct residual {
    tensor x;             /* f32 [T,C] */
    tensor add;           /* [T,C]; absent: nothing, like rows */
    tensor rows, inverse; /* [T*k,C], i32 [T*k]: of experts, as moe_acts has them */
} residual;

struct pass {
    pesc_model *m; /* borrowed, like kv */
    device *dev;
    kvcache *kv; /* NULL: none */
    pass_limits lim;
    uint64_t id;              /* like no other pass' of this process */
    int32_t n, n_seqs, n_out; /* of the tokens that are set */
    void *memory, *host_memory;
    size_t bytes;
    pass_host host;
    tensor ids, pos, starts, rows, table; /* host's arrays on the device */
    tensor inv_freq; /* f32 [n_seq, rot/2] with dynamic rope, else [1, rot/2] */
    tensor cos, sin; /* f32 [T, rot/2] */
    tensor x;        /* f32 [T,C]: room for the residual stream, where no layer keeps it */
    residual stream;
    tensor mid; /* [T,LINEARS * lora_rank] */
    block_acts acts;
    tensor last, last_h; /* [n_out,C]: rows that meet the head, f32 and normed */
    tensor logits;       /* f32 [n_out,V]; training: of a chunk of rows */

    /* training */
    const params *params; /* NULL: forward alone */
    train_plan plan;
    bool drop;                           /* this forward has dropout */
    bool again;                          /* it runs a layer anew, for what backward reads of it */
    bool light;                          /* again, and the layer has a light slot */
    bool stale;                          /* backward: the FFN's glu is to be made again */
    bool first;                          /* gradients of adapters are written, not added */
    rng_key key;                         /* of its masks */
    float adapter_dropout, lora_dropout; /* of what experts read */
    block_acts *slots;                   /* whole, light, and the shared one; acts is one of them */
    tensor inputs;                       /* f32 [n_layers - first, T, C] */
    tensor dropped;                      /* [T, widest input of a linear with dropout] */
    tensor targets, weights, loss;       /* i32, f32, f32 [n_out] */
    tensor dlogits, last_rstd,
        dlast;      /* of a chunk: [rows,V] (absent: in place), [rows], [rows,C] */
    tensor balance; /* f32 [n_layers, 2E + 1]: shares, then aux */
    pass_grads grads;
};

/* The numbers of one tensor's dropout in this forward. */
static inline rng_key pass_key(const pass *p, uint64_t tensor_stream)
{
    return (rng_key){ p->key.seed, rng_stream(p->key.stream, tensor_stream, 0) };
}

#endif
