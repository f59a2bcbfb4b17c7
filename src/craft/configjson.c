#include "craft/configjson.h"

#include "arch/family.h"
#include "base/str.h"

#include <string.h>

/* ---- keys ---- */

pesc_status configjson_set(json_t *json, const char *key, json_t *value)
{
    return json_object_set_new(json, key, value) == 0 ? PESC_OK : fail_nomem(key, 0);
}

pesc_status configjson_default(json_t *json, const char *key, json_t *value)
{
    if (!json_has(json, key))
        return configjson_set(json, key, value);
    json_decref(value);
    return PESC_OK;
}

/* ---- spelling ---- */

/* rope_parameters {rope_type, rope_theta, ...} as rope_theta and rope_scaling, where its type may
 * be spelt as in rope_scaling, and its theta wins over one beside it (rope_freq.c). */
static pesc_status old_rope(json_t *json, const json_t *rotation)
{
    const json_t *type = json_value(rotation, "rope_type");
    type = type ? type : json_value(rotation, "type");
    bool plain = !type || strcmp(json_string_value(type), "default") == 0;
    static const char *const beside[] = { "rope_theta", "partial_rotary_factor" };
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (json_has(rotation, beside[i]))
            TRY(configjson_set(json, beside[i], json_copy(json_object_get(rotation, beside[i]))));
    if (plain)
        return configjson_set(json, "rope_scaling", json_null());
    json_t *scaling = json_copy((json_t *)(uintptr_t)rotation);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        json_object_del(scaling, beside[i]);
    /* the older spelling; newer programs do not mind it */
    bool ok =
        scaling && json_object_set_new(scaling, "type", json_string(json_string_value(type))) == 0;
    TRY(configjson_set(json, "rope_scaling", scaling));
    return ok ? PESC_OK : fail_nomem("rope_scaling", 0);
}

static pesc_status old_spellings(json_t *json)
{
    if (json_has(json, "dtype"))
        TRY(configjson_default(json, "torch_dtype", json_copy(json_object_get(json, "dtype"))));
    json_object_del(json, "dtype");
    const json_t *rotation = json_value(json, "rope_parameters");
    const json_t *full = json_value(rotation, "full_attention");
    const json_t *sliding = json_value(rotation, "sliding_attention");
    if (full && sliding)
        return PESC_OK; /* no older spelling says that, nor that both are the same */
    if (rotation && !json_has(json, "rope_scaling"))
        TRY(old_rope(json, full ? full : sliding ? sliding : rotation));
    json_object_del(json, "rope_parameters");
    return PESC_OK;
}

pesc_status configjson_from(const source_model *p, json_t **out)
{
    *out = json_deep_copy(p->dir->config);
    /* without memory jansson copies what it can */
    if (!json_equal(*out, p->dir->config))
        return fail_nomem(p->dir->config_file, 0);
    json_object_del(*out, "quantization_config"); /* what is written is not quantised */
    return old_spellings(*out);
}

pesc_status configjson_sparse_layers(json_t *json, const layer_ranges *sparse, int32_t n_layers)
{
    json_t *dense = json_array();
    bool ok = dense != NULL;
    for (int32_t i = 0; ok && i < n_layers; i++)
        ok = layers_has(sparse, i) || json_array_append_new(dense, json_integer(i)) == 0;
    if (ok && json_array_size(dense))
        return configjson_set(json, "mlp_only_layers", dense);
    json_decref(dense);
    return ok ? PESC_OK : fail_nomem("mlp_only_layers", 0);
}

pesc_status configjson_facts(json_t *json, const config *c)
{
    TRY(configjson_default(json, "num_key_value_heads", json_integer(c->n_kv_heads)));
    TRY(configjson_default(json, "head_dim", json_integer(c->head_dim)));
    TRY(configjson_default(json, "max_position_embeddings", json_integer(c->context)));
    TRY(configjson_default(json, "rms_norm_eps", json_real((double)c->norm_eps)));
    TRY(configjson_default(json, "rope_theta", json_real((double)c->ropes[0].theta)));
    return configjson_default(json, "tie_word_embeddings", json_boolean(c->tie_embeddings));
}

pesc_status configjson_name(json_t *json, const configjson_class *c)
{
    TRY(configjson_set(json, "model_type", json_string(c->model_type)));
    TRY(configjson_set(json, "architectures", json_pack("[s]", c->causal)));
    if (c->config_class)
        return configjson_set(json, "auto_map",
                              json_pack("{s:s,s:s,s:s}", "AutoConfig", c->config_class, "AutoModel",
                                        c->model_class, "AutoModelForCausalLM", c->causal));
    json_object_del(json, "auto_map");
    return PESC_OK;
}

pesc_status configjson_own_names(json_t *json, const config *c)
{
    json_object_del(json, "auto_map"); /* the code it names is not written along */
    if (c->fam->causal)
        return configjson_default(json, "architectures", json_pack("[s]", c->fam->causal));
    return PESC_OK;
}

pesc_status configjson_dtype(json_t *json, dtype dt)
{
    const char *name = dt == DT_F32 ? "float32" : dt == DT_BF16 ? "bfloat16" : "float16";
    return configjson_set(json, "torch_dtype", json_string(name));
}

/* ---- facts ---- */

#define FACT(key, field)                                                                           \
    {                                                                                              \
        key, offsetof(config, field), sizeof((config *)0)->field                                   \
    }

/* What the dense part computes; tying and vocabulary are checked by the tensors themselves. */
static const struct {
    const char *key;
    size_t at, size;
} facts[] = {
    FACT("hidden_size", dim),
    FACT("num_hidden_layers", n_layers),
    FACT("num_attention_heads", n_heads),
    FACT("num_key_value_heads", n_kv_heads),
    FACT("head_dim", head_dim),
    FACT("global_head_dim", full_head_dim),
    FACT("num_global_key_value_heads", full_kv_heads),
    FACT("attention_k_eq_v", k_as_v),
    FACT("num_kv_shared_layers", n_kv_shared),
    FACT("intermediate_size", ffn_dim),
    FACT("use_double_wide_mlp", ffn_doubled),
    FACT("hidden_size_per_layer_input", layer_input_dim),
    FACT("vocab_size", vocab),
    FACT("max_position_embeddings", context),
    FACT("rms_norm_eps", norm_eps),
    FACT("hidden_act", act),
    FACT("attention_bias", qkv_bias),
    FACT("attention_bias", o_bias),
    FACT("mlp_bias", mlp_bias),
    FACT("q_norm", qk_norm),
    FACT("rope_theta", ropes[0].theta),
    FACT("rope_local_base_freq", ropes[1].theta),
    FACT("rope_parameters", ropes[1].kind),
    FACT("rope_scaling", ropes[0].kind),
    FACT("rope_scaling", rope_interleaved),
    FACT("rope_scaling", ropes[0].factor),
    FACT("rope_scaling", ropes[0].part),
    FACT("rope_scaling", ropes[0].low),
    FACT("rope_scaling", ropes[0].high),
    FACT("rope_scaling", ropes[0].beta_fast),
    FACT("rope_scaling", ropes[0].beta_slow),
    FACT("rope_scaling", ropes[0].mscale),
    FACT("rope_scaling", ropes[0].mscale_all),
    FACT("rope_scaling", ropes[0].attention_factor),
    FACT("rope_scaling", ropes[0].original),
    FACT("rope_scaling", ropes[0].truncate),
    FACT("partial_rotary_factor", rotary),
    FACT("llama_4_scaling_beta", q_scale_beta),
    FACT("embedding_multiplier", embed_scale),
    FACT("residual_multiplier", residual_scale),
    FACT("attention_multiplier", attn_scale),
    FACT("logits_scaling", logit_divisor),
    FACT("query_pre_attn_scalar", attn_width),
    FACT("attn_logit_softcapping", attn_softcap),
    FACT("final_logit_softcapping", logit_softcap),
    FACT("kv_lora_rank", kv_lora_rank),
    FACT("q_lora_rank", q_lora_rank),
    FACT("conv_L_cache", conv_taps),
    FACT("linear_num_key_heads", delta_k_heads),
    FACT("linear_num_value_heads", delta_v_heads),
    FACT("linear_key_head_dim", delta_k_dim),
    FACT("linear_value_head_dim", delta_v_dim),
};

/* In a mixture without a plain FFN no layer has that width. */
static bool has_ffn(const config *c)
{
    const moe_rule *full = config_experts(c);
    bool plain = full->kind != EXPERT_FFN || full->beside_ffn;
    for (int32_t l = 0; l < c->n_layers; l++)
        plain = plain || !config_layer_sparse(c, l);
    return plain;
}

static const char *first_difference(const config *a, const config *b)
{
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (memcmp((const char *)a + facts[i].at, (const char *)b + facts[i].at, facts[i].size) !=
                0 &&
            (facts[i].at != offsetof(config, ffn_dim) || has_ffn(a)))
            return facts[i].key;
    for (int32_t l = 0; l < a->n_layers; l++)
        if (config_layer_window(a, l) != config_layer_window(b, l))
            return "sliding_window";
    for (int32_t l = 0; l < a->n_layers; l++)
        if (config_layer_rope(a, l) != config_layer_rope(b, l))
            return "no_rope_layers";
    for (int32_t l = 0; l < a->n_layers; l++)
        if (config_layer_mixer(a, l) != config_layer_mixer(b, l))
            return "layer_types";
    return NULL;
}

pesc_status configjson_read(const json_t *json, const char *file, const source_model *p,
                            config *out, const char **differs)
{
    const hfdir *d = p->dir;
    TRY(config_read(out, &(config_source){ json, d->generation, file, d->ws }));
    out->tie_embeddings = p->cfg.tie_embeddings;
    *differs = first_difference(out, &p->cfg);
    return PESC_OK;
}
