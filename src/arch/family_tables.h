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
    MAX_EXPERTS = 1 << 12,
    MAX_CONTEXT = 1 << 30,
};

#define INT(names, field, lo, hi, def)                                                             \
    {                                                                                              \
        names, KEY_I32, KEY_OPTIONAL, offsetof(config, field), def, lo, hi                         \
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
#define FLAG(names, field, def)                                                                    \
    {                                                                                              \
        names, KEY_BOOL, KEY_OPTIONAL, offsetof(config, field), def, 0, 1                          \
    }

#define MODEL(field) offsetof(transformer, field)
#define BLOCK(field) offsetof(block, field)
#define WEIGHT (RULE_LINEAR | RULE_QUANT)

extern const config_key common_keys[], llama_keys[], qwen2_keys[], granite_keys[];
extern const tensor_rule frame_tensors[], attention_tensors[], qk_norm_tensors[],
    sandwich_tensors[], norm_after_tensors[];

#endif
