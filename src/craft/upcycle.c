#include "craft/upcycle.h"

#include "arch/family.h"
#include "base/log.h"
#include "craft/configjson.h"

#include <string.h>

enum {
    /* Qwen2-MoE always has a shared expert. Ours is all zeros: it adds nothing, and its gradient is
     * zero too, so training leaves it so. This is the narrowest that every quantiser takes. */
    SHARED_DIM = 256,
};

static pesc_status mixtral_keys(json_t *json, const config *c, int64_t experts)
{
    json_t *window = c->window ? json_integer(c->window) : json_null();
    TRY(configjson_set(json, "num_local_experts", json_integer(experts)));
    return configjson_set(json, "sliding_window", window);
}

static pesc_status qwen_keys(json_t *json, const config *c, int64_t experts)
{
    TRY(configjson_set(json, "num_experts", json_integer(experts)));
    TRY(configjson_set(json, "moe_intermediate_size", json_integer(c->ffn_dim)));
    TRY(configjson_set(json, "norm_topk_prob", json_true()));
    TRY(configjson_set(json, "decoder_sparse_step", json_integer(1)));
    return configjson_set(json, "mlp_only_layers", json_array());
}

/* Which layers slide is written out: Qwen2-MoE's own rule is not Qwen2's. */
static pesc_status layer_types(json_t *json, const config *c)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int32_t i = 0; ok && i < c->n_layers; i++) {
        bool slides = config_layer_window(c, i) > 0;
        json_t *name = json_string(slides ? "sliding_attention" : "full_attention");
        ok = json_array_append_new(list, name) == 0;
    }
    TRY(configjson_set(json, "layer_types", list));
    return ok ? PESC_OK : fail_nomem("layer_types", 0);
}

static pesc_status qwen2_keys(json_t *json, const config *c, int64_t experts)
{
    TRY(qwen_keys(json, c, experts));
    TRY(configjson_set(json, "qkv_bias", json_true()));
    TRY(configjson_set(json, "shared_expert_intermediate_size",
                       json_integer(c->ffn_dim < SHARED_DIM ? c->ffn_dim : SHARED_DIM)));
    return c->window ? layer_types(json, c) : PESC_OK;
}

static pesc_status granite_keys(json_t *json, const config *c, int64_t experts)
{
    (void)c;
    return configjson_set(json, "num_local_experts", json_integer(experts));
}

static pesc_status olmo2_keys(json_t *json, const config *c, int64_t experts)
{
    (void)c;
    TRY(configjson_set(json, "num_experts", json_integer(experts)));
    return configjson_set(json, "norm_topk_prob", json_true());
}

/* Its shared expert is zeros, too. */
static pesc_status hunyuan_keys(json_t *json, const config *c, int64_t experts)
{
    (void)c;
    TRY(configjson_set(json, "num_experts", json_integer(experts)));
    return configjson_set(json, "moe_topk",
                          json_copy(json_object_get(json, "num_experts_per_tok")));
}

static const struct mixture {
    const char *source; /* model_type */
    configjson_class names;
    pesc_status (*keys)(json_t *json, const config *c, int64_t experts);
    bool all_layers;     /* the class has experts in every layer */
    bool attention_bias; /* and reads this key */
} mixtures[] = {
    { "llama", { "mixtral", "MixtralForCausalLM", NULL, NULL }, mixtral_keys, true, false },
    { "mistral", { "mixtral", "MixtralForCausalLM", NULL, NULL }, mixtral_keys, true, false },
    { "qwen2", { "qwen2_moe", "Qwen2MoeForCausalLM", NULL, NULL }, qwen2_keys, false, false },
    { "qwen3", { "qwen3_moe", "Qwen3MoeForCausalLM", NULL, NULL }, qwen_keys, false, false },
    { "granite", { "granitemoe", "GraniteMoeForCausalLM", NULL, NULL }, granite_keys, true, true },
    { "olmo2", { "flex_olmo", "FlexOlmoForCausalLM", NULL, NULL }, olmo2_keys, true, true },
    { "hunyuan_v1_dense",
      { "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", NULL, NULL },
      hunyuan_keys,
      true,
      true },
};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

bool upcycle_only_here(const config *c)
{
    bool all = false, dense = false;
    for (size_t i = 0; i < N_MIXTURES; i++)
        all = all || (mixtures[i].all_layers &&
                      strcmp(mixtures[i].names.model_type, c->fam->model_type) == 0);
    for (int32_t i = 0; i < c->n_layers; i++)
        dense = dense || !config_layer_sparse(c, i);
    return all && dense;
}

static pesc_status configure(target_model *p, const struct mixture *m, const upcycle_size *size)
{
    static const char *const gone[] = { "mlp_bias", "pretraining_tp", "attention_bias" };
    const size_t n_gone = sizeof gone / sizeof *gone - (m->attention_bias ? 1 : 0);
    TRY(target_begin(p));
    TRY(configjson_name(p->json, &m->names));
    TRY(configjson_facts(p->json, &p->from.cfg));
    TRY(configjson_set(p->json, "num_experts_per_tok", json_integer(size->top_k)));
    TRY(configjson_set(p->json, "router_aux_loss_coef", json_real(0.01)));
    TRY(configjson_set(p->json, "output_router_logits", json_false()));
    for (size_t i = 0; i < n_gone; i++)
        json_object_del(p->json, gone[i]);
    TRY(m->keys(p->json, &p->from.cfg, size->experts));
    return configjson_sparse_layers(p->json, &size->layers, p->from.cfg.n_layers);
}

pesc_status upcycle_configure(target_model *p, const upcycle_size *size)
{
    const char *type = p->from.cfg.fam->model_type, *differs = NULL;
    size_t i = 0;
    while (i < N_MIXTURES && strcmp(mixtures[i].source, type) != 0)
        i++;
    if (i == N_MIXTURES)
        return fail(PESC_UNSUPPORTED,
                    "%s: a %s model cannot be upcycled; llama, mistral, qwen2, qwen3, granite, "
                    "olmo2 and hunyuan_v1_dense can",
                    p->from.path, type);
    TRY(configure(p, &mixtures[i], size));
    TRY(target_read(p, &differs));
    if (differs)
        return fail(
            PESC_UNSUPPORTED,
            "%s: %s has no place for its %s, so it cannot be upcycled; --kind pesc keeps it",
            p->from.path, mixtures[i].names.model_type, differs);
    if (upcycle_only_here(&p->cfg))
        log_notice("%s: %s has experts in every layer in other programs: only pesc opens the "
                   "result, by its mlp_only_layers",
                   p->file, mixtures[i].names.model_type);
    return PESC_OK;
}
