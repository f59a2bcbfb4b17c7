/* family: architectures as rows. A row says which config.json keys fill which fact, which facts
 * hold without being written, and which tensors a model of it has.
 *
 * Tensor rules carry shape letters, expanded from the configuration:
 *   V vocabulary  C width  F FFN width  H heads*qk_dim  K kv_heads*qk_dim  O heads*v_dim
 *   D head_dim    E experts  M one expert's (or adapter's) width  S shared experts' width
 *   N heads       Q q_lora_rank R kv_lora_rank  P kv_lora_rank+qk_rope_dim  B
 * heads*(qk_nope_dim+v_dim)  1 one  W columns of a convolution  T its taps  I columns of the input
 * projection before it  G queries with their gates  J value heads of a delta net  L 2*J  A columns
 * of one  X J*A  U tokens with inputs for layers  Y width of such an input  Z Y*layers  A rule
 * applies where all facts it needs hold (FACT_ bits, which may differ from layer to layer). Walking
 * the slots of a configuration gives every tensor of the model with name and shape: what binding
 * checks and loads, `info` counts and `new` writes. */
#ifndef PESC_ARCH_FAMILY_H
#define PESC_ARCH_FAMILY_H

#include "arch/config.h"

typedef enum key_kind {
    KEY_I32,
    KEY_LIST,   /* the same, or a list of equal numbers, one a layer */
    KEY_PERIOD, /* a number, or a letter for each layer of a period, the last one G: LLLG is 4 */
    KEY_F32,
    KEY_BOOL,
    KEY_SWITCH, /* a boolean: value 0 or 1 of an enum */
    KEY_TRUE,   /* a boolean that must be true, and is not stored */
} key_kind;

/* What a key means where it is absent or null. */
typedef enum key_absence {
    KEY_OPTIONAL, /* `def` for both */
    KEY_REQUIRED, /* an error for both */
    KEY_NULLABLE, /* absent: `def`; null: 0, "none", as transformers has it for a few keys */
} key_absence;

/* `names` may list spellings, split by '|'; where several are present they must agree. A later row
 * of the same fact wins. */
typedef struct config_key {
    const char *names;
    key_kind kind;
    key_absence absence;
    size_t offset; /* into config */
    double def, min, max;
} config_key;

enum {
    FACT_UNTIED = 1 << 0,
    FACT_QKV_BIAS = 1 << 1,
    FACT_O_BIAS = 1 << 2,
    FACT_MLP_BIAS = 1 << 3,
    FACT_NORM_HEAD = 1 << 4,
    FACT_NORM_ROW = 1 << 5,
    FACT_Q_LORA = 1 << 6,
    FACT_Q_FULL = 1 << 7,
    FACT_FFN = 1 << 8,      /* this layer has a plain FFN */
    FACT_SPARSE = 1 << 9,   /* this layer has a router and experts */
    FACT_ADAPTER = 1 << 10, /* whose experts are adapters */
    FACT_EXPERT = 1 << 11,  /* whose experts are FFNs */
    FACT_SHARED = 1 << 12,
    FACT_SHARED_GATE = 1 << 13,
    FACT_MOLORA = 1 << 14,      /* whose experts are LoRA of the plain FFN's linears */
    FACT_ROUTER_BIAS = 1 << 15, /* the router has a bias that chooses experts */
    FACT_NORM_BEFORE = 1 << 16, /* norms of llama: one before each sublayer */
    FACT_ATTENTION = 1 << 17,   /* this layer has attention */
    FACT_CONV = 1 << 18,        /* this layer has a gated short convolution */
    FACT_CONV_BIAS = 1 << 19,
    FACT_DELTA = 1 << 20,        /* this layer has a gated delta net */
    FACT_KEYS = 1 << 21,         /* this layer projects keys */
    FACT_VALUES = 1 << 22,       /* this layer projects values */
    FACT_BESIDE = 1 << 24,       /* this layer has experts beside a plain FFN */
    FACT_LAYER_INPUTS = 1 << 23, /* each layer has an input of its own */
};

enum {
    RULE_GLOBAL =
        1 << 0, /* one a model, else one a layer; the offset is into transformer or block */
    RULE_EXPERT = 1 << 1, /* one an expert, stacked into one tensor */
    RULE_QUANT = 1 << 2,  /* quantised when the base is nf4 */
    RULE_F32 = 1 << 3,    /* kept in f32 whatever the base is */
    RULE_LINEAR = 1 << 4, /* the offset is that of a linear: it may carry LoRA */
    RULE_TRAIN = 1 << 5,  /* trained by PESC */
    RULE_FIXED = 1 << 6,  /* trained by nothing */
    RULE_BELOW = 1 << 7,  /* one a model, read before the first layer */
};

typedef enum init_kind { INIT_NORMAL, INIT_ONE, INIT_ZERO, INIT_UNIFORM } init_kind;

typedef struct tensor_rule {
    const char *name; /* below "model.layers.L." unless global; {e} stands for the expert */
    const char *shape;
    uint32_t need, flags;
    size_t offset;
    init_kind init;
} tensor_rule;

/* A tensor of the files that holds several of those that tensor rules name, below
 * "model.layers.L." too; fused.h says how. */
typedef struct fused_rule {
    const char *name;
    const char *parts[3]; /* names of tensor rules; NULL: no more */
    uint32_t flags;
} fused_rule;

enum {
    FUSED_TRANSPOSED = 1 << 0, /* each matrix is stored as [in,out] */
    FUSED_ALTERNATE = 1 << 1,  /* rows of the parts alternate; else one part follows another */
    FUSED_VECTORS = 1 << 2,    /* parts are [E,n]: a vector for each expert */
    FUSED_UNWRITTEN = 1 << 3,  /* read, but written in parts; transformers and PEFT have it */
};

/* Which layers have a sliding window when the file does not list layer_types. */
typedef enum window_rule {
    WINDOW_NONE,      /* the family has none */
    WINDOW_ALL,       /* every layer */
    WINDOW_FROM,      /* layers from max_window_layers on */
    WINDOW_ALTERNATE, /* every second layer below max_window_layers */
    WINDOW_PATTERN,   /* all but layers window_pattern - 1, 2 window_pattern - 1, ... */
} window_rule;

/* How names of tensors begin, here and where they are written. */
typedef struct name_rule {
    const char *own, *written;
} name_rule;

enum {
    FAMILY_MAX_TABLES = 8,
    FAMILY_MAX_EXPERTS = 1 << 12, /* of a layer */
};

struct family {
    const char *name;       /* as pesc_info says it */
    const char *model_type; /* as config.json says it */
    const char *causal;     /* its class in transformers; NULL: it has none */
    const config_key *keys[FAMILY_MAX_TABLES];
    const tensor_rule *tensors[FAMILY_MAX_TABLES];
    const fused_rule *fused; /* NULL: none; the last has no name. Of several that hold the same part
                                files have one, and the first is written */
    const name_rule *names;  /* NULL: as they are; the last has no name. Read by weights.c */
    window_rule window;
    const char *act_key; /* of the activation; NULL: hidden_act */
    bool adapters;       /* PESC: a dense model with adapters as experts */
    const char *chat;    /* format of models that bring no template; NULL: none */
    config facts;        /* what holds without being written */
};

/* The rows: each array ends with one without a name. Then the tables that adapters add to any row
 * (beside_keys: to one of a mixture), and a mixture of LoRA to any dense one. */
extern const family dense_families[], mixture_families[], biased_families[], hybrid_families[];
extern const config_key adapter_keys[], beside_keys[], molora_keys[];
extern const tensor_rule adapter_tensors[], molora_tensors[], added_bias_tensors[];

/* The i-th of all rows; NULL after the last. */
const family *family_at(size_t i);

/* By config.json's model_type; PESC_UNSUPPORTED names what there is. */
pesc_status family_find(const family **out, const char *model_type, const char *file);

/* FACT_ bits of a layer; layer -1: those of the model as a whole. */
uint32_t family_facts(const config *c, int32_t layer);

/* One tensor of a model. Experts come one by one with their own name and the shape of one. */
typedef struct slot {
    const tensor_rule *rule;
    int32_t layer, expert; /* -1 where it has none */
    bool in_ffn; /* the rule says moe, but it is of the mixture that adapters read (ffn_moe) */
    int32_t nd;
    int64_t ne[4];
    char name[128];
    int32_t table, row; /* where the walk stands */
} slot;

/* Walks all tensors: the global ones, then layer by layer. Start with slot_first(); false: done. */
slot slot_first(void);
bool slot_next(const config *c, slot *s);
int64_t slot_count(const slot *s); /* elements */

/* The mixture that a tensor is of; of another tensor, the layer's. */
const moe_rule *slot_moe(const config *c, const slot *s);

/* Makes the slot of an expert that of another. */
void slot_set_expert(slot *s, int32_t expert);

/* The slot of a rule in a layer, of the first expert where it has experts; false: the layer has no
 * such tensor. */
bool slot_of_rule(const config *c, int32_t layer, const char *rule, slot *out);

#endif
