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

/* What the keys of a mixture are made of. */
typedef struct mixture_size {
    const upcycle_size *size;
    int64_t experts, width; /* of a layer; hidden units of an expert */
} mixture_size;

static pesc_status mixtral_keys(json_t *json, const config *c, const mixture_size *z)
{
    json_t *window = c->window ? json_integer(c->window) : json_null();
    TRY(configjson_set(json, "num_local_experts", json_integer(z->experts)));
    TRY(configjson_set(json, "intermediate_size", json_integer(z->width)));
    return configjson_set(json, "sliding_window", window);
}

static pesc_status qwen_keys(json_t *json, const config *c, const mixture_size *z)
{
    (void)c;
    TRY(configjson_set(json, "num_experts", json_integer(z->experts)));
    TRY(configjson_set(json, "moe_intermediate_size", json_integer(z->width)));
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

static pesc_status qwen2_keys(json_t *json, const config *c, const mixture_size *z)
{
    int64_t zeros = c->ffn_dim < SHARED_DIM ? c->ffn_dim : SHARED_DIM;
    TRY(qwen_keys(json, c, z));
    TRY(configjson_set(json, "qkv_bias", json_boolean(c->qkv_bias)));
    TRY(configjson_set(json, "shared_expert_intermediate_size",
                       json_integer(z->size->shared ? c->ffn_dim : zeros)));
    if (c->window)
        TRY(configjson_set(json, "use_sliding_window", json_true()));
    return c->window ? layer_types(json, c) : PESC_OK;
}

static pesc_status granite_keys(json_t *json, const config *c, const mixture_size *z)
{
    (void)c;
    TRY(configjson_set(json, "intermediate_size", json_integer(z->width)));
    return configjson_set(json, "num_local_experts", json_integer(z->experts));
}

static pesc_status olmo2_keys(json_t *json, const config *c, const mixture_size *z)
{
    (void)c;
    TRY(configjson_set(json, "num_experts", json_integer(z->experts)));
    TRY(configjson_set(json, "intermediate_size", json_integer(z->width)));
    return configjson_set(json, "norm_topk_prob", json_true());
}

/* Its shared expert is zeros, too. */
static pesc_status hunyuan_keys(json_t *json, const config *c, const mixture_size *z)
{
    (void)c;
    TRY(configjson_set(json, "num_experts", json_integer(z->experts)));
    return configjson_set(json, "moe_topk",
                          json_copy(json_object_get(json, "num_experts_per_tok")));
}

static pesc_status dots_keys(json_t *json, const config *c, const mixture_size *z)
{
    (void)c;
    TRY(configjson_set(json, "n_routed_experts", json_integer(z->experts)));
    TRY(configjson_set(json, "moe_intermediate_size", json_integer(z->width)));
    TRY(configjson_set(json, "n_shared_experts", json_integer(z->size->granularity)));
    TRY(configjson_set(json, "n_group", json_integer(1)));
    TRY(configjson_set(json, "topk_group", json_integer(1)));
    TRY(configjson_set(json, "first_k_dense_replace", json_integer(0)));
    TRY(configjson_set(json, "sliding_window", json_null()));
    TRY(configjson_set(json, "norm_topk_prob", json_true()));
    return configjson_set(json, "routed_scaling_factor", json_real(1));
}

enum {
    DENSE_LAYERS = 1 << 0,   /* some layers may have a plain FFN, */
    DENSE_ALIKE = 1 << 1,    /* but then only pesc opens it, and experts are as wide as that */
    SHARED = 1 << 2,         /* has a shared expert, */
    SHARED_GATED = 1 << 3,   /* which a gate, 1/2 where its weights are zero, multiplies */
    WHOLE = 1 << 4,          /* an expert is as wide as the FFN */
    ATTENTION_BIAS = 1 << 5, /* the class reads this key */
};

/* Tried in order: the first of a source that can be what is asked for is taken. */
static const struct mixture {
    const char *source; /* model_type */
    configjson_class names;
    pesc_status (*keys)(json_t *json, const config *c, const mixture_size *z);
    unsigned can;
} mixtures[] = {
#define MIXTRAL { "mixtral", "MixtralForCausalLM", NULL, NULL }, mixtral_keys
#define QWEN2 { "qwen2_moe", "Qwen2MoeForCausalLM", NULL, NULL }, qwen2_keys
    { "llama", MIXTRAL, DENSE_LAYERS | DENSE_ALIKE },
    { "llama", QWEN2, DENSE_LAYERS | SHARED | SHARED_GATED },
    { "mistral", MIXTRAL, DENSE_LAYERS | DENSE_ALIKE },
    { "mistral", QWEN2, DENSE_LAYERS | SHARED | SHARED_GATED },
    { "qwen2", QWEN2, DENSE_LAYERS | SHARED | SHARED_GATED },
    { "qwen3", { "qwen3_moe", "Qwen3MoeForCausalLM", NULL, NULL }, qwen_keys, DENSE_LAYERS },
    { "qwen3", { "dots1", "Dots1ForCausalLM", NULL, NULL }, dots_keys, SHARED },
    { "granite",
      { "granitemoe", "GraniteMoeForCausalLM", NULL, NULL },
      granite_keys,
      DENSE_LAYERS | DENSE_ALIKE | ATTENTION_BIAS },
    { "olmo2",
      { "flex_olmo", "FlexOlmoForCausalLM", NULL, NULL },
      olmo2_keys,
      DENSE_LAYERS | DENSE_ALIKE | ATTENTION_BIAS },
    { "hunyuan_v1_dense",
      { "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", NULL, NULL },
      hunyuan_keys,
      DENSE_LAYERS | DENSE_ALIKE | WHOLE | ATTENTION_BIAS },
};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

static bool has_dense(const config *c, const layer_ranges *sparse)
{
    bool dense = false;
    for (int32_t i = 0; i < c->n_layers; i++)
        dense = dense || !layers_has(sparse, i);
    return dense;
}

static bool can_hold(const struct mixture *m, const config *c, const upcycle_size *z)
{
    bool dense = has_dense(c, &z->layers), narrow = z->granularity > 1;
    return strcmp(m->source, c->fam->model_type) == 0 && (!z->shared || m->can & SHARED) &&
           (!dense || m->can & DENSE_LAYERS) && !(dense && narrow && m->can & DENSE_ALIKE) &&
           !(narrow && m->can & WHOLE);
}

bool upcycle_only_here(const config *c)
{
    bool all = false, dense = false;
    for (size_t i = 0; i < N_MIXTURES; i++)
        all = all || (mixtures[i].can & DENSE_ALIKE &&
                      strcmp(mixtures[i].names.model_type, c->fam->model_type) == 0);
    for (int32_t i = 0; i < c->n_layers; i++)
        dense = dense || !config_layer_sparse(c, i);
    return all && dense;
}

static pesc_status configure(target_model *p, const struct mixture *m, const upcycle_size *size)
{
    static const char *const gone[] = { "mlp_bias", "pretraining_tp", "attention_bias" };
    const size_t n_gone = sizeof gone / sizeof *gone - (m->can & ATTENTION_BIAS ? 1 : 0);
    const config *c = &p->from.cfg;
    const mixture_size z = { size, size->experts * size->granularity,
                             c->ffn_dim / size->granularity };
    TRY(target_begin(p));
    TRY(configjson_name(p->json, &m->names));
    TRY(configjson_facts(p->json, c));
    TRY(configjson_set(p->json, "num_experts_per_tok",
                       json_integer(size->top_k * size->granularity)));
    TRY(configjson_set(p->json, "router_aux_loss_coef", json_real(0.01)));
    TRY(configjson_set(p->json, "output_router_logits", json_false()));
    for (size_t i = 0; i < n_gone; i++)
        json_object_del(p->json, gone[i]);
    TRY(m->keys(p->json, c, &z));
    return configjson_sparse_layers(p->json, &size->layers, c->n_layers);
}

/* The gates of the shards of a copy add up to the copy's, and each is 1/G of it; a shared copy has
 * half of the output. */
static void plan_copies(target_model *p, const struct mixture *m, const upcycle_size *z)
{
    p->plan.copies = (expert_copies){ .granularity = z->granularity,
                                      .down = (float)z->granularity / (z->shared ? 2.0F : 1.0F),
                                      .shared = z->shared,
                                      .shared_down = m->can & SHARED_GATED ? 1.0F : 0.5F,
                                      .reinit = z->reinit };
}

static pesc_status check_size(const target_model *p, const upcycle_size *z)
{
    const config *c = &p->from.cfg;
    if (c->ffn_dim % z->granularity != 0)
        return fail(PESC_USAGE,
                    "granularity: found %lld, expected a divisor of %d, the width of the FFN of %s "
                    "(intermediate_size)",
                    (long long)z->granularity, c->ffn_dim, p->from.path);
    if (z->experts * z->granularity > FAMILY_MAX_EXPERTS)
        return fail(PESC_USAGE,
                    "granularity: %lld copies cut into %lld are %lld experts, expected at most %d",
                    (long long)z->experts, (long long)z->granularity,
                    (long long)(z->experts * z->granularity), FAMILY_MAX_EXPERTS);
    return PESC_OK;
}

static pesc_status no_mixture(const target_model *p, const upcycle_size *z)
{
    const char *type = p->from.cfg.fam->model_type;
    const bool dense = has_dense(&p->from.cfg, &z->layers);
    for (size_t i = 0; i < N_MIXTURES; i++)
        if (strcmp(mixtures[i].source, type) == 0)
            return fail(PESC_UNSUPPORTED,
                        "%s: no mixture with the attention of a %s model has%s%s; leave out "
                        "--granularity or --shared%s",
                        p->from.path, type,
                        z->shared ? " a shared expert and" : " experts narrower than its FFN",
                        z->shared && dense ? " experts in some layers alone"
                        : z->shared        ? " such experts"
                                           : "",
                        dense ? ", or give --layers all" : "");
    return fail(PESC_UNSUPPORTED,
                "%s: a %s model cannot be upcycled; llama, mistral, qwen2, qwen3, granite, olmo2 "
                "and hunyuan_v1_dense can",
                p->from.path, type);
}

pesc_status upcycle_configure(target_model *p, const upcycle_size *size)
{
    const char *differs = NULL;
    size_t i = 0;
    while (i < N_MIXTURES && !can_hold(&mixtures[i], &p->from.cfg, size))
        i++;
    if (i == N_MIXTURES)
        return no_mixture(p, size);
    TRY(check_size(p, size));
    TRY(configure(p, &mixtures[i], size));
    TRY(target_read(p, &differs));
    if (differs)
        return fail(
            PESC_UNSUPPORTED,
            "%s: %s has no place for its %s, so it cannot be upcycled; --kind pesc keeps it",
            p->from.path, mixtures[i].names.model_type, differs);
    plan_copies(p, &mixtures[i], size);
    if (upcycle_only_here(&p->cfg))
        log_notice("%s: %s has experts in every layer in other programs: only pesc opens the "
                   "result, by its mlp_only_layers",
                   p->file, mixtures[i].names.model_type);
    return PESC_OK;
}
