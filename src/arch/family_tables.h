/* family_tables: what rows of families are written with: the bounds of sizes, short forms of keys
 * and tensor rules, and the tables that several families share. Read by the files of rows alone. */
#ifndef PESC_ARCH_FAMILY_TABLES_H
#define PESC_ARCH_FAMILY_TABLES_H

#include "arch/family.h"
#include "arch/shape.h"

/* Bounds of sizes. The largest product of three stays below 2^63. */
enum {
    MAX_DIM = 1 << 20,
    MAX_FFN = 1 << 22,
    MAX_VOCAB = 1 << 24,
    MAX_HEADS = 1 << 12,
    MAX_LAYERS = 1 << 12,
    MAX_EXPERTS = FAMILY_MAX_EXPERTS,
    MAX_CONTEXT = 1 << 30,
    MAX_TAPS = CONV_TAPS,
};

#define INT(names, field, lo, hi, def)                                                             \
    {                                                                                              \
        names, KEY_I32, KEY_OPTIONAL, offsetof(config, field), def, lo, hi                         \
    }
#define INT_OR_LIST(names, field, lo, hi, def)                                                     \
    {                                                                                              \
        names, KEY_LIST, KEY_OPTIONAL, offsetof(config, field), def, lo, hi                        \
    }
#define INT_OR_NULL(names, field, lo, hi, def)                                                     \
    {                                                                                              \
        names, KEY_I32, KEY_NULLABLE, offsetof(config, field), def, lo, hi                         \
    }
#define NEED(names, field, lo, hi)                                                                 \
    {                                                                                              \
        names, KEY_I32, KEY_REQUIRED, offsetof(config, field), 0, lo, hi                           \
    }
#define REAL(names, field, lo, hi, def)                                                            \
    {                                                                                              \
        names, KEY_F32, KEY_OPTIONAL, offsetof(config, field), def, lo, hi                         \
    }
#define REAL_OR_NULL(names, field, lo, hi, def)                                                    \
    {                                                                                              \
        names, KEY_F32, KEY_NULLABLE, offsetof(config, field), def, lo, hi                         \
    }
/* A period of layers: a number, or a letter for each as in LLLG. */
#define PERIOD(names, field, def)                                                                  \
    {                                                                                              \
        names, KEY_PERIOD, KEY_OPTIONAL, offsetof(config, field), def, 0, MAX_LAYERS               \
    }
#define FLAG(names, field, def)                                                                    \
    {                                                                                              \
        names, KEY_BOOL, KEY_OPTIONAL, offsetof(config, field), def, 0, 1                          \
    }

#define SWITCH(names, field, def)                                                                  \
    {                                                                                              \
        names, KEY_SWITCH, KEY_OPTIONAL, offsetof(config, field), def, 0, 1                        \
    }
#define TRUE_ALWAYS(names)                                                                         \
    {                                                                                              \
        names, KEY_TRUE, KEY_OPTIONAL, 0, 1, 1, 1                                                  \
    }

/* Keys that several families have. */
#define ATTENTION_BIAS(def)                                                                        \
    FLAG("attention_bias", qkv_bias, def), FLAG("attention_bias", o_bias, def)
#define EXPERT_GROUPS(n, k)                                                                        \
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, n),                                          \
        INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, k)
#define EXPERTS                                                                                    \
    NEED("num_experts|num_local_experts|n_routed_experts", moe.topk.n_experts, 1, MAX_EXPERTS),    \
        REAL("router_aux_loss_coef|aux_loss_alpha", moe.aux_coef, 0, 1e6, 0.001)

#define MODEL(field) offsetof(transformer, field)
#define BLOCK(field) offsetof(block, field)
#define WEIGHT (RULE_LINEAR | RULE_QUANT)

/* The three matrices of the experts, and of the FFN that all tokens share, by the names in files.
 */
#define EXPERT(name, shape, field)                                                                 \
    {                                                                                              \
        name ".weight", shape, FACT_EXPERT, RULE_EXPERT | RULE_QUANT, BLOCK(field), INIT_NORMAL    \
    }
#define FULL_EXPERTS(at, w1, w3, w2)                                                               \
    EXPERT(at "." w1, "MC", moe.gate), EXPERT(at "." w3, "MC", moe.up),                            \
        EXPERT(at "." w2, "CM", moe.down)
#define SHARED(name, shape, field)                                                                 \
    {                                                                                              \
        name ".weight", shape, FACT_SHARED, WEIGHT, BLOCK(field), INIT_NORMAL                      \
    }
#define SHARED_FFN(at)                                                                             \
    SHARED(at ".gate_proj", "SC", moe.shared.gate.w),                                              \
        SHARED(at ".up_proj", "SC", moe.shared.up.w),                                              \
        SHARED(at ".down_proj", "CS", moe.shared.down.w)

extern const config_key common_keys[], llama_keys[], qwen2_keys[], granite_keys[],
    deepseek_v2_keys[];
extern const tensor_rule frame_tensors[], attention_tensors[], qk_norm_tensors[],
    sandwich_tensors[], norm_after_tensors[], mla_tensors[], mixtral_tensors[], expert_tensors[],
    deepseek_shared_tensors[], qwen2_shared_tensors[];

#endif
