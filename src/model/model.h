/* model: a loaded language model and the one forward over it.
 *
 * Shapes stand at the fields; letters as in backend.h. Every tensor lives in the model's arena on
 * the device, or in a mapped file when device memory is host memory and the stored bytes can be
 * used as they are. */
#ifndef PESC_MODEL_MODEL_H
#define PESC_MODEL_MODEL_H

#include "backend/backend.h"
#include "base/rng.h"
#include "format/hfdir.h"
#include "model/config.h"
#include "model/kvcache.h"
#include "text/chat.h"
#include "text/tokens.h"

typedef struct lora {
    tensor a, b; /* [R,I] [O,R]; of a full expert: its parts of `stack` */
    float scale;
    float dropout;            /* of what A reads, in training */
    uint64_t stream;          /* names its dropout masks */
    struct lora_stack *stack; /* NULL: it is a linear's */
    int32_t expert;
} lora;

/* The LoRAs of all specialists on one linear (specialists.h). */
typedef struct bank_part {
    tensor a;      /* [R,I]; absent: this specialist has none here */
    int64_t first; /* its first column in b */
    float scale;
} bank_part;
typedef struct lora_bank {
    tensor b;         /* [O, columns of all] */
    bank_part *parts; /* one for each specialist */
} lora_bank;

typedef struct linear {
    tensor w, bias;        /* w [O,I]: f32, bf16 or nf4; bias [O] or absent */
    lora *lora;            /* NULL: none */
    const lora_bank *bank; /* NULL: none */
} linear;

typedef struct ffn {
    linear gate, up, down; /* [F,C] [F,C] [C,F] */
} ffn;

/* LoRA experts of one linear, or the LoRA of one matrix of all full experts. */
typedef struct lora_stack {
    tensor a, b; /* [E,R,I] [E,O,R]; absent: none */
    float scale; /* full experts alone; a mixture of LoRA has adapter_scale */
} lora_stack;

/* Experts of specialists beside those of a layer (extra_experts.h), numbered after them. */
typedef struct extra_experts {
    tensor gate, up, down; /* like those of moe, of X experts; X 0: absent */
    tensor table; /* i32 [specialists + 1, E]: the expert that a row computes with where its router
                     has chosen e; row 0 is for rows without a specialist */
} extra_experts;

/* y = f + s * sum_k g_k U_k gelu(D_k f) for adapters (gates sum to 1, so the FFN runs once), or
 * y = sum_k g_k FFN_k(x) (+ shared experts) for full experts. */
typedef struct moe {
    tensor router, router_bias; /* [E,C] f32, [E] f32 or absent */
    tensor gate, up, down;      /* stacked [E,F,C] [E,F,C] [E,C,F]; adapters: up [E,C,A], down
                                   [E,A,C], no gate */
    lora_stack lora_gate, lora_up, lora_down;
    ffn shared;                 /* absent when shared_dim is 0 */
    tensor shared_gate;         /* [1,C] f32 or absent */
    const extra_experts *extra; /* NULL: none */
    /* Of a mirror of gradients: the experts that its stacks hold, ascending; NULL: all. */
    const int32_t *own;
    int32_t n_own;
} moe;

typedef struct mla {
    linear q, q_a, q_b, kv_a, kv_b; /* q, or q_a and q_b with a norm between */
    tensor q_norm, kv_norm;
} mla;

typedef struct block {
    tensor attn_norm, ffn_norm; /* [C] f32 */
    linear q, k, v, o;          /* [H,C] [K,C] [K,C] [C,H] */
    tensor q_norm, k_norm;      /* [head_dim], or [H] and [K]; absent: none */
    mla mla;
    ffn ffn; /* absent where experts are full FFNs */
    bool sparse;
    moe moe;
    int32_t window; /* 0: unlimited */
} block;

struct pesc_model {
    device *dev;      /* kept */
    int32_t users;    /* sessions and trainers that are open, see model_keep */
    bool in_training; /* a trainer is open; it needs the model alone */
    config cfg;
    hfdir *dir;   /* keeps mapped files alive */
    void *memory; /* the arena's span on the device */
    size_t memory_bytes;
    void *mixture; /* adapters and their routers: training moves them and gives the span back */
    size_t mixture_bytes;
    void *trained;                  /* what training moved (params.h); NULL: it never was trained */
    struct lora *trained_loras;     /* those it attached */
    tensor embed, final_norm, head; /* [V,C] [C] [V,C]; head is embed when tied */
    float rope_scale;               /* on cos and sin (yarn's mscale) */
    float attn_scale;               /* 1/sqrt(qk_dim), times yarn's factor where it has one */
    block *blocks;                  /* n_layers */
    struct swap *swap;              /* the expert patch that is in; NULL: none */
    char patch_hash[17];            /* of its contents; "": none */
    char lora_hash[17];             /* of the LoRA that was loaded (peft_hash); "": none */
    struct specialists *specialists; /* NULL: none */
    struct traffic *traffic;         /* exchanges beside the computation (traffic.h); NULL: none */
    struct layer_shards *shards;     /* of a sharded base (layer_shards.h); NULL: it is whole */
    bool double_quant;               /* how weights are quantised, with nf4 */
    lora *loras;                     /* what the linears point to */
    size_t n_loras;
    bool folded;             /* some of them are in the weights (fold.h) */
    int32_t lora_rank;       /* the largest; 0: no LoRA */
    int32_t bank_columns;    /* of the widest bank; 0: no specialist is a LoRA */
    int32_t extra_experts;   /* the most of a layer; 0: no specialist is a patch */
    int32_t expert_rank;     /* of the LoRA on full experts, the largest; 0: none */
    dtype act_dt;            /* what activations are computed in: f32 or bf16 */
    pesc_tokenizer *tok;     /* NULL: none */
    const chat_format *chat; /* NULL: none recognised */
    char stop_text[64];  /* the token that ends an answer of a template that is not recognised */
    const char *stop[1]; /* the same; NULL: none */
    pesc_model_info info;
};

/* pesc_model_open(), except that opt->lora takes the place of a LoRA that the model has, which
 * otherwise is refused. */
pesc_status model_open_replacing(pesc_model **out, device *dev, const char *path,
                                 const pesc_load_options *opt);

/* Keeps the model until one pesc_model_close() more, so that a caller may close its handle before
 * the sessions and trainers that use it. */
void model_keep(pesc_model *m);

/* All one forward needs: n tokens of any number of packed sequences. Training, prefill and batched
 * decode are this same call. The pass owns its buffers; nothing is allocated after pass_open. */
typedef struct pass pass;
typedef struct pass_limits {
    int32_t max_tokens, max_seqs, max_out; /* out: rows that meet the head in one forward */
} pass_limits;
pesc_status pass_open(pass **out, pesc_model *m, pass_limits lim, kvcache *kv);
void pass_close(pass *p);

/* Sets the tokens and which rows (indices into the packed tokens, ascending) meet the head. Ids are
 * checked against the vocabulary. */
pesc_status pass_set(pass *p, const token_seq *seqs, int32_t n_seqs, const int32_t *out_rows,
                     int32_t n_out);

/* Runs it. logits: f32 [n_out, V] on the device, valid until the next forward of this pass. Grows
 * the cache's timelines. */
pesc_status model_fwd(pesc_model *m, pass *p, tensor *logits);
/* The same in two parts: model_start() returns while a device with memory of its own still
 * computes, and more ops may follow; model_finish() waits for them all. */
void model_start(pesc_model *m, pass *p, tensor *logits);
pesc_status model_finish(pesc_model *m, pass *p);

/* Its first step: the residual stream of the pass' tokens, and the rotations of their positions. */
void model_embed(pass *p);

/* Its last step: the final norm and the head over `rows` (i32 [n]) of the residual stream; logits
 * f32 [n,V]. rstd: f32 [n], what the norm's backward reads; absent: not wanted. */
tensor model_head(const pass *p, tensor rows, tensor rstd);

#endif
