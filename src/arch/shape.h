/* shape: the tensors of a model, and what decides their sizes.
 *
 * A model_shape is all that one needs to know of a model to plan a pass over it or to count what it
 * costs. In an open model (model.h) its tensors hold the weights, and a forward reads nothing else;
 * of a plan, which is made from a configuration and the headers of files, they have types and sizes
 * but no data. Letters as in backend.h. */
#ifndef PESC_ARCH_SHAPE_H
#define PESC_ARCH_SHAPE_H

#include "arch/config.h"

typedef struct lora {
    tensor a, b; /* [R,I] [O,R]; of a full expert: its parts of `stack` */
    float scale;
    float dropout;            /* of what A reads, in training */
    uint64_t stream;          /* names its dropout masks */
    struct lora_stack *stack; /* NULL: it is a linear's */
    int32_t expert;
} lora;

/* The LoRAs of all served adapters on one linear (attach/served_adapters.h). */
typedef struct bank_part {
    tensor a;      /* [R,I]; absent: this served adapter has none here */
    int64_t first; /* its first column in b */
    float scale;
} bank_part;
typedef struct lora_bank {
    tensor b;         /* [O, columns of all] */
    bank_part *parts; /* one for each served adapter */
} lora_bank;

typedef struct linear {
    tensor w, bias;        /* w [O,I]: f32, bf16 or nf4; bias [O] or absent */
    lora *lora;            /* NULL: none */
    const lora_bank *bank; /* NULL: none */
} linear;

typedef struct ffn {
    linear gate, up, down; /* [F,C] [F,C] [C,F] */
} ffn;

/* The experts of a layer that a stack holds, ascending; ids NULL: all of them. */
typedef struct expert_list {
    const int32_t *ids; /* [n] */
    int32_t n;
    /* [n], of a mirror of gradients: the domains (bits) whose tokens add to an expert's; NULL: all
     * tokens do. */
    const uint64_t *domains;
} expert_list;

/* Where a stack holds an expert; -1: it does not. */
int32_t expert_list_at(const expert_list *l, int32_t expert);

/* LoRA experts of one linear, or the LoRA of one matrix of full experts. */
typedef struct lora_stack {
    tensor a, b;     /* [n,R,I] [n,O,R] of n experts; absent: none */
    expert_list own; /* which: full experts alone, of others all */
    float scale;     /* full experts alone; a mixture of LoRA has adapter_scale */
} lora_stack;

/* Experts of served adapters beside those of a layer (extra_experts.h), numbered after them. */
typedef struct extra_experts {
    tensor gate, up, down;                /* like those of moe, of X experts; X 0: absent */
    tensor gate_bias, up_bias, down_bias; /* of the layer's experts and of these; or absent */
    tensor table; /* i32 [served adapters + 1, E]: the expert that a row computes with where its
                     router has chosen e; row 0 is for rows without a served adapter */
} extra_experts;

/* y = f + s * sum_k g_k U_k gelu(D_k f) for adapters (gates sum to 1, so the FFN runs once), or
 * y = sum_k g_k FFN_k(x) (+ shared experts) for full experts. */
typedef struct moe {
    tensor router, router_bias; /* [E,C] f32, [E] f32 or absent: chooses alone */
    tensor logit_bias;          /* [E] f32 or absent: added to the logits */
    tensor gate, up, down;      /* stacked [E,F,C] [E,F,C] [E,C,F]; adapters: up [E,C,A], down
                                   [E,A,C], no gate */
    tensor gate_bias, up_bias, down_bias; /* [E,F] [E,F] [E,C] f32 or absent */
    lora_stack lora_gate, lora_up, lora_down;
    ffn shared; /* absent when shared_dim is 0 */
    /* Experts beside the plain FFN: norms of what they read, of what they give, and of what the FFN
     * gives. Their router has a norm with a weight of its own, and what it gives is divided by
     * sqrt(C); a number of each expert is in its gates. [C] [C] [C] [C] [E] f32; absent: none. */
    tensor norm, post, ffn_post, router_scale, gate_scale;
    tensor shared_gate;         /* [1,C] f32 or absent */
    const extra_experts *extra; /* NULL: none */
    expert_list own;            /* of a mirror of gradients: what gate, up and down hold */
} moe;

typedef struct mla {
    linear q, q_a, q_b, kv_a, kv_b; /* q, or q_a and q_b with a norm between */
    tensor q_norm, kv_norm;
} mla;

/* The mixer of a layer without attention: a gated short convolution, or a gated delta net. */
typedef struct recurrent {
    linear in, out;              /* [3C,C] [C,C]; delta: [W,C], grouped [W+X,C]; [C,X] */
    tensor w, bias;              /* of the convolution: f32 [W,1,taps], [W] or absent */
    linear z, b, a;              /* delta: [X,C] [J,C] [J,C]; grouped: b alone, [2J,C] */
    tensor a_log, dt_bias, norm; /* delta: f32 [J] [J] [A] */
} recurrent;

/* The input of one layer: x += norm(proj (act(gate x) * its row of the inputs)). */
typedef struct layer_input {
    linear gate, proj; /* [Y,C] [C,Y] */
    tensor norm;       /* [C] f32; absent: layers have no inputs */
} layer_input;

/* Those of all layers, side by side: (norm(proj x / sqrt(C)) + sqrt(Y) embed(id)) / sqrt(2), where
 * x is the embedding and the norm that of each layer's columns. */
typedef struct layer_inputs {
    tensor embed, proj, norm; /* [U,Z] [Z,C] [Y] f32; absent: none */
} layer_inputs;

/* Keys and values that layers share: of those without a window, and of those with one. */
enum { SHARED_FULL, SHARED_WINDOWED, SHARED_KINDS };

typedef struct block {
    tensor attn_norm, ffn_norm; /* [C] f32: before the sublayers; absent: none */
    tensor ffn_post, attn_post; /* [C] f32: of what they add; absent: none */
    linear q, k, v, o;          /* [H,C] [K,C] [K,C] [C,H] */
    linear out_gate;            /* [O,C]: what o reads is times its sigmoid; absent: it is not */
    tensor q_norm, k_norm;      /* [head_dim], or [H] and [K]; absent: none */
    tensor sinks;               /* [heads] f32 or absent */
    tensor scale;               /* f32 [1]: of the stream that leaves the layer; absent: 1 */
    head_shape heads;
    head_widths widths;
    mla mla;
    recurrent mix;
    layer_input input;
    ffn ffn;         /* absent where experts are full FFNs */
    int32_t ffn_dim; /* F */
    bool sparse;
    moe moe;
    moe ffn_moe;    /* of full experts, in the place of ffn, where moe has adapters; else absent */
    int32_t window; /* 0: unlimited */
    int32_t rope;   /* the table of its rotations; -1: none */
    mixer_kind mixer;
    int32_t place;     /* among the layers with this mixer, of its keys and values (borrows_kv) */
    bool borrows_kv;   /* it attends to keys and values of an earlier layer */
    int32_t shared_kv; /* which of the pass' pairs those are, of lender and borrowers; -1: none */
} block;

/* The tensors of a transformer: its weights, or the gradients of them (mirror.h). */
typedef struct transformer {
    tensor embed, final_norm, head; /* [V,C] [C] [V,C]; head is embed when tied */
    layer_inputs inputs;
    block *blocks; /* [n_layers] */
} transformer;

typedef struct model_shape {
    config cfg;
    transformer w;
    lora *loras; /* what linears and experts point to */
    size_t n_loras;
    int32_t *lora_experts;              /* [n_loras]: what the lists of their stacks are in */
    dtype act_dt;                       /* what activations are computed in: f32 or bf16 */
    float rope_scale[CONFIG_MAX_ROPES]; /* on cos and sin (yarn's mscale) */
    float attn_scale;                   /* 1/sqrt(qk_dim), times yarn's factor where it has one */
    /* The residual stream is kept divided by residual_scale: then what sublayers add is added as it
     * is, the embeddings are larger by as much, and the norms of the stream, which no common factor
     * changes, have their epsilon divided by its square. */
    float stream_eps;
    int32_t lora_rank;     /* the largest; 0: no LoRA */
    int32_t expert_rank;   /* of the LoRA on full experts, the largest; 0: none */
    int32_t bank_columns;  /* of the widest bank; 0: no served adapter is a LoRA */
    int32_t extra_experts; /* the most of a layer; 0: no served adapter is a patch */
} model_shape;

/* Allocates the blocks of a shape whose configuration is read, and sets what follows from that. */
pesc_status shape_open(model_shape *s);

/* A layer's full experts, or the only ones it has. */
static inline moe *shape_experts(const model_shape *s, int32_t layer)
{
    block *b = &s->w.blocks[layer];
    return config_adapters_on_experts(&s->cfg) ? &b->ffn_moe : &b->moe;
}

/* On the embeddings, as the stream takes them, and on those of the layers' inputs. */
float shape_embed_scale(const model_shape *s);
float shape_input_scale(const model_shape *s);

#endif
