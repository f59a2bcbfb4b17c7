/* ggufkeys: the facts of a configuration as metadata of a GGUF file. */
#include "craft/ggufkeys.h"

#include "arch/family.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct keys {
    gguf_writer *w;
    const char *arch;
} keys;

/* ---- one key below the architecture's name ---- */

typedef struct key_text {
    char text[96];
} key_text;

static key_text key_of(const keys *k, const char *name)
{
    key_text t;
    snprintf(t.text, sizeof t.text, "%s.%s", k->arch, name);
    return t;
}

static void put_int(const keys *k, const char *name, int64_t value)
{
    gguf_put_u32(k->w, key_of(k, name).text, value);
}

static void put_real(const keys *k, const char *name, float value)
{
    gguf_put_f32(k->w, key_of(k, name).text, (double)value);
}

/* ---- what every model has ---- */

static void put_sizes(const keys *k, const config *c)
{
    put_int(k, "context_length", c->context);
    put_int(k, "embedding_length", c->dim);
    put_int(k, "block_count", c->n_layers);
    put_int(k, "feed_forward_length", c->ffn_dim);
    put_int(k, "attention.head_count", c->n_heads);
    put_int(k, "attention.head_count_kv", config_kv_heads(c));
    put_int(k, "attention.key_length", config_qk_dim(c));
    put_int(k, "attention.value_length", config_v_dim(c));
    put_real(k, "attention.layer_norm_rms_epsilon", c->norm_eps);
    put_int(k, "vocab_size", c->vocab);
    put_int(k, "rope.dimension_count", config_rot_dim(c));
    put_real(k, "rope.freq_base", c->ropes[0].theta);
    if (config_layer_window(c, 0))
        put_int(k, "attention.sliding_window", config_layer_window(c, 0));
    if (!config_mla(c))
        return;
    if (c->q_lora_rank)
        put_int(k, "attention.q_lora_rank", c->q_lora_rank);
    put_int(k, "attention.kv_lora_rank", c->kv_lora_rank);
}

static void put_rope(const keys *k, const rope_rule *r)
{
    if (r->kind != ROPE_LINEAR && r->kind != ROPE_YARN)
        return; /* Llama 3's rule is a tensor */
    gguf_put_text(k->w, key_of(k, "rope.scaling.type").text,
                  r->kind == ROPE_LINEAR ? "linear" : "yarn");
    put_real(k, "rope.scaling.factor", r->factor);
    if (r->kind == ROPE_LINEAR)
        return;
    put_int(k, "rope.scaling.original_context_length", r->original);
    put_real(k, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_real(k, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (r->mscale_all != 0)
        put_real(k, "rope.scaling.yarn_log_multiplier", 0.1F * r->mscale_all);
}

/* ---- mixtures ---- */

static void put_mixture(const keys *k, const config *c)
{
    enum { SOFTMAX = 1 };
    const moe_rule *m = &c->moe;
    put_int(k, "expert_count", m->topk.n_experts);
    put_int(k, "expert_used_count", m->topk.k);
    if (m->kind == EXPERT_ADAPTER) {
        put_int(k, "adapter_length", m->expert_dim);
        put_real(k, "adapter_scale", m->adapter_scale);
        gguf_put_text(k->w, key_of(k, "adapter_act").text, config_act_name(m->adapter_act));
        gguf_put_text(k->w, key_of(k, "adapter_router").text,
                      m->topk.score_after_topk ? "softmax-after" : "softmax-before");
        return;
    }
    put_int(k, "expert_feed_forward_length", m->expert_dim);
    gguf_put_bool(k->w, key_of(k, "expert_weights_norm").text, m->topk.renormalise);
    put_int(k, "expert_gating_func", SOFTMAX);
    if (m->shared_gate)
        put_int(k, "expert_shared_feed_forward_length", m->shared_dim);
    else if (m->n_shared)
        put_int(k, "expert_shared_count", m->n_shared);
    if (!config_mla(c))
        return;
    put_real(k, "expert_weights_scale", m->topk.scale);
    put_int(k, "leading_dense_block_count", c->first_sparse);
    if (m->topk.n_groups > 1) {
        put_int(k, "expert_group_count", m->topk.n_groups);
        put_int(k, "expert_group_used_count", m->topk.k_groups);
    }
}

/* ---- what GGUF cannot say ---- */

static const char *unsaid(const config *c)
{
    const char *type = c->fam->model_type;
    bool own_window = strcmp(type, "mistral") == 0 || strcmp(type, "sparsetral") == 0;
    for (int32_t l = 0; l < c->n_layers; l++)
        if (config_layer_window(c, l) && (!own_window || config_layer_window(c, l) != c->window))
            return "sliding_window";
    const rope_rule *r = &c->ropes[0];
    if (r->kind == ROPE_DYNAMIC || r->attention_factor != 0 ||
        (r->kind == ROPE_YARN && !r->truncate))
        return "rope_scaling";
    if (r->kind == ROPE_YARN && r->mscale != r->mscale_all)
        return "rope_scaling.mscale";
    if (c->act != ACT_SILU)
        return "hidden_act";
    if (c->moe.kind == EXPERT_LORA)
        return "mixture of LoRA";
    if (c->moe.has_bias)
        return "e_score_correction_bias";
    return NULL;
}

pesc_status ggufkeys_check(const config *c, const char *path)
{
    const char *what = unsaid(c);
    return what ? fail(PESC_UNSUPPORTED, "%s: a GGUF file has no place for its %s", path, what)
                : PESC_OK;
}

/* What llama.cpp assumes of an architecture, whatever the file says. */
void ggufkeys_notice(const config *c, const char *path)
{
    static const struct {
        const char *model_type;
        bool renormalise;
    } assumed[] = { { "qwen2_moe", false }, { "olmoe", false }, { "qwen3_moe", true } };
    if (c->moe.kind == EXPERT_ADAPTER) {
        log_notice("%s: has adapters (PESC): only pesc reads a GGUF file of architecture camelidae",
                   path);
        return;
    }
    for (size_t i = 0; i < sizeof assumed / sizeof *assumed; i++)
        if (strcmp(c->fam->model_type, assumed[i].model_type) == 0 &&
            c->moe.topk.renormalise != assumed[i].renormalise)
            log_notice("%s: its norm_topk_prob is %s, and llama.cpp always computes %s with %s",
                       path, c->moe.topk.renormalise ? "true" : "false", c->fam->name,
                       assumed[i].renormalise ? "true" : "false");
    bool dense = false;
    for (int32_t l = 0; l < c->n_layers; l++)
        dense |= c->moe.kind == EXPERT_FFN && !config_mla(c) && !config_layer_sparse(c, l);
    if (dense)
        log_notice("%s: some of its layers have a plain FFN, which llama.cpp does not load in %s",
                   path, c->fam->name);
    if (config_mla(c) && !c->q_lora_rank && c->n_layers != 27)
        log_notice("%s: llama.cpp loads a %s model without q_lora_rank only when it has 27 layers",
                   path, c->fam->name);
    if (config_layer_window(c, 0))
        log_notice("%s: llama.cpp does not limit attention to its window of %d tokens", path,
                   c->window);
}

void ggufkeys_put(gguf_writer *w, const config *c, const char *arch)
{
    keys k = { w, arch };
    put_sizes(&k, c);
    put_rope(&k, &c->ropes[0]);
    if (c->moe.kind != EXPERT_NONE)
        put_mixture(&k, c);
}

/* ---- Llama 3's rule ---- */

int32_t ggufkeys_rope_factors(const config *c, float *out)
{
    int32_t pairs = config_rot_dim(c) / 2;
    const rope_rule *r = &c->ropes[0];
    double low = (double)r->low, high = (double)r->high, old = r->original;
    if (r->kind != ROPE_LLAMA3)
        return 0;
    for (int32_t i = 0; i < pairs; i++) {
        double wavelength =
            2 * 3.14159265358979323846 * pow((double)r->theta, (double)i / (double)pairs);
        double smooth = (old / wavelength - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        out[i] = (float)(1 / ((1 - smooth) / (double)r->factor + smooth));
    }
    return pairs;
}
