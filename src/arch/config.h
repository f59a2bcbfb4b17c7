/* config: what an architecture is, as facts. Filled from config.json by the rows of family.h.
 *
 * Model code tests these fields and never a family's name. After config_read() every field is in
 * range and the fields agree with each other; sizes are small enough that the product of any three
 * fits in 63 bits. */
#ifndef PESC_ARCH_CONFIG_H
#define PESC_ARCH_CONFIG_H

#include "backend/backend.h"
#include "base/json.h"
#include "format/weights.h"

typedef struct family family;

typedef enum rope_kind {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC,
    ROPE_LONG,
    ROPE_PROPORTIONAL,
} rope_kind;
/* Where the norms of a layer are: before its two sublayers, after them (on what they add), both. */
typedef enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_AROUND } norm_place;
typedef enum qk_norm_kind { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_ROW } qk_norm_kind;
/* What mixes the tokens of a layer: attention, a gated short convolution (LFM2), a gated delta net
 * (Qwen3.5). */
typedef enum mixer_kind { MIXER_ATTENTION, MIXER_CONV, MIXER_DELTA } mixer_kind;
typedef enum expert_kind { EXPERT_NONE, EXPERT_ADAPTER, EXPERT_FFN, EXPERT_LORA } expert_kind;

typedef struct moe_rule {
    expert_kind kind;
    topk_rule topk;
    int32_t expert_dim;   /* F of one expert, or A of an adapter */
    float adapter_scale;  /* s of PESC */
    act_kind adapter_act; /* of adapters; gelu in the paper */
    int32_t n_shared;     /* shared experts; they are one FFN of width shared_dim */
    int32_t shared_each;  /* F of one of them; 0: as an expert's */
    int32_t shared_dim;   /* F of the shared experts together; 0: none */
    bool beside_ffn;      /* a sparse layer has its plain FFN too, each with norms of its own */
    bool shared_gate;     /* Qwen2-MoE: sigmoid(w x) times the shared output */
    bool has_bias;        /* e_score_correction_bias of the router (choosing only), */
    bool added_bias;      /* which the family has no place for: of pesc's own (family.c) */
    float aux_coef;
} moe_rule;

/* How one table of rotations is made. */
typedef struct rope_rule {
    rope_kind kind;
    float theta, factor, low, high, beta_fast, beta_slow;
    float mscale, mscale_all, attention_factor; /* yarn, longrope; 0: not given */
    float part;       /* proportional: of the pairs of a head, the first, which alone rotate */
    int32_t original; /* original context */
    bool truncate;
} rope_rule;

enum { CONFIG_MAX_EOS = 8, CONFIG_MAX_ROPES = 2 };

typedef struct config {
    const family *fam;
    const char *family;       /* for messages and pesc_info only */
    bool ffn_halved;          /* intermediate_size is the width of gate and up together */
    bool long_ntk, long_logn; /* use_dynamic_ntk, use_logn_attn: beyond the context it computes
                                 something else, so longer sequences are refused */
    int32_t dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_dim, vocab, context;
    float norm_eps;
    float norm_shift; /* norms multiply by w + norm_shift: 1 in Gemma, else 0 */
    norm_place norms;
    act_kind act;
    bool tie_embeddings, qkv_bias, o_bias, mlp_bias;
    qk_norm_kind qk_norm;
    bool qk_norm_rotated; /* queries and keys are normed after they are rotated, not before */
    bool v_norm;          /* values are normed too, each head, by a norm without a weight */
    /* Heads of layers without a window, where these have others (Gemma 4); 0: they have not. */
    int32_t full_head_dim, full_kv_heads;
    bool k_as_v;    /* those layers have no values: keys before their norm are in their place */
    bool last_full; /* the last layer has no window, whatever else says */
    /* The last layers project no keys and values: see config_layer_kv(). */
    int32_t n_kv_shared;
    bool ffn_doubled; /* and their FFN is twice as wide */
    /* x = embed_scale embed(id); x += residual_scale f(norm x); head(norm x) / logit_divisor */
    float embed_scale, residual_scale, logit_divisor; /* 1 where the family has none */
    bool embed_sqrt_dim; /* embed_scale is sqrt(dim), rounded as activations are */
    /* Each layer adds a term of an input of its own to the stream that leaves it: of this width, by
     * the token and the embedding; 0: it does not. */
    int32_t layer_input_dim, layer_input_vocab;
    float attn_scale; /* of q k; 0: 1/sqrt(attn_width), and with that 0 1/sqrt(qk_dim) */
    float attn_width; /* query_pre_attn_scalar */
    float attn_softcap, logit_softcap; /* z becomes cap tanh(z / cap); 0: it does not */
    float q_scale_beta;  /* queries times 1 + beta ln(1 + floor(pos / original)); 0: no scale */
    bool attn_gate;      /* what attention gives is times the sigmoid of a gate (out_gate) */
    bool attn_gate_in_q; /* which the query projection gives, after the queries of each head */
    bool sinks;          /* a logit for each head joins the softmax of attention */
    bool use_window;
    int32_t window;                    /* 0: none */
    int32_t max_window_layers;         /* Qwen's key; what it means is the family's window rule */
    int32_t window_pattern;            /* every so many layers one has no window (WINDOW_PATTERN) */
    uint8_t *layer_windowed;           /* one byte a layer, owned; NULL: all alike */
    rope_rule ropes[CONFIG_MAX_ROPES]; /* [1]: of the layers with a window, where n_ropes is 2 */
    int32_t n_ropes;
    bool rope_interleaved;
    float rotary;        /* the part of a head that rotates, its first columns; 0: all */
    int32_t rotary_dim;  /* the same as a number of columns; 0: not given */
    float *rope_factors; /* ROPE_LONG: divisors of up to `original` tokens, then of more; owned */
    int32_t no_rope_interval; /* of SmolLM3; 0: the family has no such layers */
    bool rope_sliding;        /* where layers have windows, those without do not rotate */
    bool rope_by_type;        /* layers rotate where position_embedding_type says "rope" */
    bool layer_types_needed;  /* without layer_types the layers are of a kind that is not read */
    uint8_t *layer_unrotated; /* one byte a layer, owned; NULL: all rotate */
    mixer_kind
        recurrent; /* of the layers without attention; MIXER_ATTENTION: the family has none */
    uint8_t *layer_recurrent;   /* one byte a layer, owned; NULL: all have attention */
    int32_t attention_interval; /* every so many layers one has attention; 0: no such rule */
    bool ffn_adjusted;          /* ffn_dim follows from what the file says, by a rule of LFM2 ... */
    int32_t ffn_multiple;       /* ... and is a multiple of this */
    int32_t conv_taps;          /* of the convolution in recurrent layers */
    bool conv_bias;
    int32_t delta_k_heads, delta_v_heads, delta_k_dim, delta_v_dim; /* of the delta net */
    bool delta_grouped; /* its input projections are two, whose rows are sorted by key head */
    /* MLA (DeepSeek): used when kv_lora_rank > 0 */
    int32_t q_lora_rank, kv_lora_rank, qk_nope_dim, qk_rope_dim, v_dim;
    float mla_norm_eps; /* of the norms on the latents, which ignore norm_eps */
    /* which layers are sparse */
    moe_rule moe;
    moe_rule ffn_moe;     /* the mixture that adapters read in the place of an FFN; its kind is
                             EXPERT_NONE where they read a plain one, or there are none */
    int32_t first_sparse; /* layers below have a plain FFN */
    int32_t last_sparse;  /* and layers above it; -1: none */
    int32_t sparse_step;  /* layer l is sparse when (l + sparse_shift) divides by it; 1: all */
    int32_t sparse_shift;
    int32_t n_prediction_layers; /* of multi-token prediction, stored after the others; not read */
    uint8_t *layer_dense;        /* one byte a layer (mlp_only_layers), or NULL */
    int32_t bos, n_eos, eos[CONFIG_MAX_EOS], pad; /* -1: not given */
    float init_range;                             /* of random weights */
    char dtype[16];                               /* as the file says, "" when it does not */
} config;

/* Reads config.json's object. `ws` (may be NULL) is asked only whether adapters and biases are
 * there, so that a mixture is never loaded as the dense model a careless file says it is; and what
 * files hold fused is split there (fused.h).
 * `generation` (may be NULL) is generation_config.json, whose end tokens win. */
typedef struct config_source {
    const json_t *json, *generation;
    const char *file;
    weights *ws;
} config_source;
pesc_status config_read(config *out, const config_source *src);
void config_free(config *c);

/* The key of moe_rule.added_bias, pesc's own. */
#define CONFIG_ADDED_BIAS "expert_choice_bias"

bool config_layer_sparse(const config *c, int32_t layer);
mixer_kind config_layer_mixer(const config *c, int32_t layer);
int32_t config_mixers(const config *c, int32_t n, mixer_kind kind); /* of the first n layers */
int32_t config_layer_window(const config *c, int32_t layer);        /* 0: unlimited */
int32_t config_layer_rope(const config *c, int32_t layer);          /* the table; -1: no rotation */
bool config_ropes_by_length(const config *c); /* rotations depend on a sequence's length */
const char *config_act_name(act_kind act);    /* as hidden_act has it */

/* Whether adapters read what full experts give, in the place of an FFN. */
static inline bool config_adapters_on_experts(const config *c)
{
    return c->ffn_moe.kind != EXPERT_NONE;
}
/* The mixture of full experts, or the only one there is. */
static inline const moe_rule *config_experts(const config *c)
{
    return config_adapters_on_experts(c) ? &c->ffn_moe : &c->moe;
}
static inline bool config_mla(const config *c)
{
    return c->kv_lora_rank > 0;
}
/* Width of one head of queries and keys, of values, and how many heads keys and values have. MLA
 * expands its latents to one key and value head a query head. */
static inline int32_t config_qk_dim(const config *c)
{
    return config_mla(c) ? c->qk_nope_dim + c->qk_rope_dim : c->head_dim;
}
static inline int32_t config_v_dim(const config *c)
{
    return config_mla(c) ? c->v_dim : c->head_dim;
}
static inline int32_t config_kv_heads(const config *c)
{
    return config_mla(c) ? c->n_heads : c->n_kv_heads;
}
/* The same of a layer, since layers may differ (full_head_dim); what is above holds for layers with
 * a window then. */
typedef struct head_shape {
    int32_t qk_dim, v_dim, kv_heads;
} head_shape;
head_shape config_heads(const config *c, int32_t layer);
/* The layer whose keys and values a layer attends to: its own, or, where the last layers share them
 * (n_kv_shared), those of the last layer before them that has a window or none as it has. */
int32_t config_layer_kv(const config *c, int32_t layer);
int32_t config_layer_ffn(const config *c, int32_t layer); /* F of its plain FFN */
int32_t config_widest_ffn(const config *c);
/* Columns of queries, keys and values, and of what attention gives: in a layer; the most of any. */
typedef struct head_widths {
    int64_t q, k, v, out;
} head_widths;
head_widths config_layer_widths(const config *c, int32_t layer);
head_widths config_widths(const config *c);
/* A sequence has a state beside its keys and values, which is that of its last token alone. */
static inline bool config_has_state(const config *c)
{
    return c->layer_recurrent != NULL;
}
/* Columns of the convolution of a recurrent layer. */
static inline int32_t config_conv_width(const config *c)
{
    return c->recurrent == MIXER_CONV ? c->dim
           : c->recurrent == MIXER_DELTA
               ? 2 * c->delta_k_heads * c->delta_k_dim + c->delta_v_heads * c->delta_v_dim
               : 0;
}
/* Values of a delta net, and numbers of its state. */
static inline int32_t config_delta_values(const config *c)
{
    return c->delta_v_heads * c->delta_v_dim;
}
static inline int64_t config_delta_state(const config *c)
{
    return (int64_t)config_delta_values(c) * c->delta_k_dim;
}
/* Columns of what the input projection of a recurrent layer gives. */
static inline int32_t config_recurrent_in(const config *c)
{
    int32_t width = config_conv_width(c);
    return c->recurrent == MIXER_CONV ? 3 * width
                                      : width + (c->delta_grouped ? config_delta_values(c) : 0);
}
/* Numbers of the rows that such a convolution needs of what went before. */
static inline int64_t config_conv_state(const config *c)
{
    return (int64_t)(c->conv_taps - 1) * config_conv_width(c);
}
static inline int32_t config_rot_dim(const config *c) /* columns of a head that rotate */
{
    if (config_mla(c) || c->rotary == 0)
        return config_mla(c) ? c->qk_rope_dim : c->head_dim;
    return (int32_t)(c->head_dim * (double)c->rotary + 1e-6);
}
static inline int32_t config_rope_dim(const config *c, int32_t table) /* the same of a table */
{
    return c->full_head_dim && table == 0 ? c->full_head_dim : config_rot_dim(c);
}
static inline int32_t config_widest_rope(const config *c)
{
    int32_t a = config_rope_dim(c, 0), b = config_rot_dim(c);
    return a > b ? a : b;
}

#endif
