/* configjson: the config.json of a model that is made from another.
 *
 * It begins as the source's, in the spellings of transformers 4, which every program reads. What
 * the new architecture leaves out takes that architecture's default, so every fact a default could
 * change is written down; and before a byte of weights is written the new configuration is read
 * back and its facts compared with the source's. So a model is never written as one that computes
 * something else, also where a short test would not show it (a window, a context). */
#ifndef PESC_CRAFT_CONFIGJSON_H
#define PESC_CRAFT_CONFIGJSON_H

#include "arch/layers.h"
#include "craft/source_model.h"

/* A copy to be changed, without quantization_config. *out is the caller's also when it failed. */
pesc_status configjson_from(const source_model *p, json_t **out);

/* Steal the value. configjson_default leaves a key that is there. */
pesc_status configjson_set(json_t *json, const char *key, json_t *value);
pesc_status configjson_default(json_t *json, const char *key, json_t *value);

/* mlp_only_layers: those that are not to be sparse; nothing where all are. */
pesc_status configjson_sparse_layers(json_t *json, const layer_ranges *sparse, int32_t n_layers);

/* Facts of the dense part that architectures have different defaults for. */
pesc_status configjson_facts(json_t *json, const config *c);

/* model_type, architectures and, where `config_class` is given, auto_map. */
typedef struct configjson_class {
    const char *model_type;
    const char *causal;                     /* "LlamaForCausalLM" */
    const char *config_class, *model_class; /* NULL: a class of transformers itself */
} configjson_class;
pesc_status configjson_name(json_t *json, const configjson_class *c);

/* The names of the family itself: architectures where they are missing, no auto_map. */
pesc_status configjson_own_names(json_t *json, const config *c);

pesc_status configjson_dtype(json_t *json, dtype dt); /* torch_dtype */

/* Reads it as a configuration, and tells the key of the first fact of the dense part that differs
 * from the source's; *differs NULL: none. `file` is for messages. */
pesc_status configjson_read(const json_t *json, const char *file, const source_model *p,
                            config *out, const char **differs);

#endif
