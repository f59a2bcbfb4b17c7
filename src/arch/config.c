/* Reading config.json: key tables first (keys.c), then what no table can say (lists, names,
 * rotation), then the checks that fields agree. */
#include "arch/config.h"

#include "arch/family.h"
#include "arch/fused.h"
#include "arch/keys.h"
#include "arch/layer_kinds.h"
#include "arch/mixers.h"
#include "arch/rope_freq.h"
#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool config_layer_sparse(const config *c, int32_t layer)
{
    return c->moe.kind != EXPERT_NONE && layer >= c->first_sparse &&
           (c->last_sparse < 0 || layer <= c->last_sparse) &&
           (layer + c->sparse_shift) % c->sparse_step == 0 &&
           !(c->layer_dense && c->layer_dense[layer]);
}

int32_t config_layer_window(const config *c, int32_t layer)
{
    return c->layer_windowed && !c->layer_windowed[layer] ? 0 : c->window;
}

int32_t config_layer_rope(const config *c, int32_t layer)
{
    if (c->layer_unrotated && c->layer_unrotated[layer])
        return -1;
    if (c->rope_sliding && c->window && !config_layer_window(c, layer))
        return -1;
    return c->n_ropes > 1 && config_layer_window(c, layer) ? 1 : 0;
}

bool config_ropes_by_length(const config *c)
{
    bool by_length = false;
    for (int32_t i = 0; i < c->n_ropes; i++)
        by_length |= c->ropes[i].kind == ROPE_DYNAMIC || c->ropes[i].kind == ROPE_LONG;
    return by_length;
}

static head_shape heads_of(const config *c, bool full)
{
    head_shape s = { config_qk_dim(c), config_v_dim(c), config_kv_heads(c) };
    if (full && c->full_head_dim)
        s = (head_shape){ c->full_head_dim, c->full_head_dim, c->full_kv_heads };
    return s;
}

static head_widths widths_of(const config *c, bool full)
{
    const head_shape s = heads_of(c, full);
    const int64_t heads = c->n_heads, kv_heads = s.kv_heads;
    return (head_widths){ heads * s.qk_dim, kv_heads * s.qk_dim, kv_heads * s.v_dim,
                          heads * s.v_dim };
}

head_shape config_heads(const config *c, int32_t layer)
{
    return heads_of(c, !config_layer_window(c, layer));
}

head_widths config_layer_widths(const config *c, int32_t layer)
{
    return widths_of(c, !config_layer_window(c, layer));
}

int32_t config_layer_kv(const config *c, int32_t layer)
{
    const int32_t own = c->n_layers - c->n_kv_shared;
    int32_t from = layer < own ? layer : own - 1;
    while (from != layer && !config_layer_window(c, from) != !config_layer_window(c, layer))
        from--;
    return from;
}

int32_t config_layer_ffn(const config *c, int32_t layer)
{
    return c->ffn_doubled && layer >= c->n_layers - c->n_kv_shared ? 2 * c->ffn_dim : c->ffn_dim;
}

int32_t config_widest_ffn(const config *c)
{
    return config_layer_ffn(c, c->n_layers - 1);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

head_widths config_widths(const config *c)
{
    const head_widths a = widths_of(c, false), b = widths_of(c, true);
    return (head_widths){ larger(a.q, b.q), larger(a.k, b.k), larger(a.v, b.v),
                          larger(a.out, b.out) };
}

void config_free(config *c)
{
    mem_free(c->layer_windowed);
    mem_free(c->layer_dense);
    mem_free(c->layer_unrotated);
    mem_free(c->layer_recurrent);
    mem_free(c->rope_factors);
    c->rope_factors = NULL;
    c->layer_windowed = c->layer_dense = c->layer_unrotated = c->layer_recurrent = NULL;
}

/* ---- what the tables cannot say ---- */

/* bitsandbytes' NF4 is read as it is stored, MXFP4 and FP8 as what they stand for; other
 * quantisers' tensors are not. */
static pesc_status check_quantization(json_where w)
{
    const json_t *q = json_value(w.object, "quantization_config");
    if (!q)
        return PESC_OK;
    json_where in = { q, w.file };
    const char *method = "bitsandbytes", *type = "nf4";
    bool four = true;
    if (!json_is_object(q))
        return fail(PESC_FORMAT, "%s: quantization_config: found %s, expected an object", w.file,
                    json_kind(q));
    TRY(json_get_str(in, "quant_method", false, &method));
    TRY(json_get_str(in, "bnb_4bit_quant_type", false, &type));
    TRY(json_get_bool(in, "load_in_4bit", false, &four));
    if (strcmp(method, "mxfp4") == 0 || strcmp(method, "fp8") == 0)
        return PESC_OK;
    if (strcmp(method, "bitsandbytes") != 0)
        return fail(
            PESC_UNSUPPORTED,
            "%s: quantization_config: found quant_method \"%s\", expected bitsandbytes, mxfp4 or "
            "fp8; "
            "use a model that is not quantised, or a GGUF file",
            w.file, method);
    if (!four || strcmp(type, "nf4") != 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: quantization_config: found %s, expected 4-bit nf4; use a model that is "
                    "not quantised, or a GGUF file",
                    w.file, four ? type : "8-bit");
    return PESC_OK;
}

/* ---- names ---- */

static const struct {
    const char *name;
    act_kind act;
} acts[] = {
    { "silu", ACT_SILU },          { "swish", ACT_SILU }, { "gelu", ACT_GELU },
    { "gelu_new", ACT_GELU_TANH }, { "relu", ACT_RELU },  { "gelu_pytorch_tanh", ACT_GELU_TANH },
};

const char *config_act_name(act_kind act)
{
    size_t i = 0;
    while (acts[i].act != act)
        i++;
    return acts[i].name;
}

/* The activation that a key names; *out stays where the key is absent. */
static pesc_status read_act(json_where w, const char *key, act_kind *out)
{
    const char *name = NULL;
    TRY(json_get_str(w, key, false, &name));
    for (size_t i = 0; name && i < sizeof acts / sizeof *acts; i++)
        if (strcmp(acts[i].name, name) == 0) {
            *out = acts[i].act;
            return PESC_OK;
        }
    return name ? fail(PESC_UNSUPPORTED,
                       "%s: %s: found \"%s\", expected silu, gelu, gelu_new, gelu_pytorch_tanh or "
                       "relu",
                       w.file, key, name)
                : PESC_OK;
}

static pesc_status read_dtype(config *c, json_where w)
{
    static const char *const known[] = { "float32", "bfloat16", "float16", "float64", "auto" };
    const char *key = json_has(w.object, "dtype") ? "dtype" : "torch_dtype", *name = NULL;
    TRY(json_get_str(w, key, false, &name));
    if (!name)
        return PESC_OK;
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], name) == 0) {
            snprintf(c->dtype, sizeof c->dtype, "%s", name);
            return PESC_OK;
        }
    return fail(PESC_UNSUPPORTED, "%s: %s: found \"%s\", expected float32, bfloat16 or float16",
                w.file, key, name);
}

/* How DeepSeek's router chooses. The scores are the family's; with a bias there is one method. */
static pesc_status read_topk_method(config *c, json_where w)
{
    bool sigmoid = c->moe.topk.score == SCORE_SIGMOID, bias = c->moe.has_bias;
    const char *expected = sigmoid ? "sigmoid" : "softmax", *score = expected;
    const char *method = bias ? "noaux_tc" : "greedy";
    TRY(json_get_str(w, "topk_method", false, &method));
    TRY(json_get_str(w, "scoring_func", false, &score));
    TRY(json_get_str(w, "score_function", false, &score));
    if (strcmp(score, expected) != 0)
        return fail(PESC_UNSUPPORTED, "%s: scoring_func: found \"%s\", expected %s", w.file, score,
                    expected);
    if (strcmp(method, bias ? "noaux_tc" : "group_limited_greedy") == 0)
        return PESC_OK;
    if (bias || strcmp(method, "greedy") != 0)
        return fail(PESC_UNSUPPORTED, "%s: topk_method: found \"%s\", expected %s", w.file, method,
                    bias ? "noaux_tc" : "greedy or group_limited_greedy");
    c->moe.topk.n_groups = c->moe.topk.k_groups = 1;
    return PESC_OK;
}

/* ---- special tokens ---- */

/* An id beyond the vocabulary can never be produced: it is dropped, not an error, since tiny test
 * models often keep the ids of the large one. */
static pesc_status read_id(const config *c, const json_t *v, const char *file, const char *key,
                           int32_t *out)
{
    if (!json_is_integer(v))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected an integer", file, key, json_kind(v));
    json_int_t id = json_integer_value(v);
    *out = id >= 0 && id < c->vocab ? (int32_t)id : -1;
    if (id >= c->vocab)
        log_notice("%s: %s: %lld is beyond the vocabulary of %d and is ignored", file, key,
                   (long long)id, c->vocab);
    return PESC_OK;
}

static pesc_status read_one_id(config *c, json_where w, const char *key, int32_t *out)
{
    *out = -1;
    return json_has(w.object, key) ? read_id(c, json_object_get(w.object, key), w.file, key, out)
                                   : PESC_OK;
}

static pesc_status read_eos(config *c, const json_t *v, const char *file)
{
    const char *key = "eos_token_id";
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > CONFIG_MAX_EOS)
        return fail(PESC_UNSUPPORTED, "%s: %s: found %zu ids, expected at most %d", file, key, n,
                    CONFIG_MAX_EOS);
    c->n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        TRY(read_id(c, json_is_array(v) ? json_array_get(v, i) : v, file, key, &id));
        if (id >= 0)
            c->eos[c->n_eos++] = id;
    }
    return PESC_OK;
}

static pesc_status read_special(config *c, const config_source *src)
{
    json_where w = { src->json, src->file };
    TRY(read_one_id(c, w, "bos_token_id", &c->bos));
    TRY(read_one_id(c, w, "pad_token_id", &c->pad));
    if (json_has(src->json, "eos_token_id"))
        TRY(read_eos(c, json_object_get(src->json, "eos_token_id"), src->file));
    if (src->generation && json_has(src->generation, "eos_token_id"))
        TRY(read_eos(c, json_object_get(src->generation, "eos_token_id"), src->file));
    return PESC_OK;
}

/* ---- adapters ---- */

/* The official merge script writes model_type "llama": the adapters themselves must be believed. */
static bool has_adapters(const config_source *src)
{
    bool keys = json_has(src->json, "adapter_dim") || json_has(src->json, "moe_scaling");
    return keys ||
           (src->ws && weights_find(src->ws, "model.layers.0.mlp.moe_adapter.router.weight"));
}

/* What adapters may be beside the paper's, in keys of pesc's own. */
static pesc_status read_adapter_choices(config *c, json_where w)
{
    const char *router = "softmax-after";
    c->moe.adapter_act = ACT_GELU;
    TRY(read_act(w, "adapter_act", &c->moe.adapter_act));
    TRY(json_get_str(w, "adapter_router", false, &router));
    c->moe.topk.score_after_topk = strcmp(router, "softmax-after") == 0;
    if (!c->moe.topk.score_after_topk && strcmp(router, "softmax-before") != 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: adapter_router: found \"%s\", expected softmax-after or softmax-before",
                    w.file, router);
    return PESC_OK;
}

/* Adapters of a mixture are beside its experts. Its keys say how many those are, so the number of
 * adapters has a key of pesc's own. */
static pesc_status read_adapters(config *c, const config_source *src)
{
    json_where w = { src->json, src->file };
    if (!c->fam->adapters && !has_adapters(src))
        return PESC_OK;
    const bool beside = c->moe.kind != EXPERT_NONE;
    const config_key *keys = beside ? beside_keys : adapter_keys;
    if (c->moe.beside_ffn)
        return fail(PESC_UNSUPPORTED,
                    "%s: adapters beside experts that have a plain FFN beside them are not "
                    "supported",
                    src->file);
    if (beside) {
        c->ffn_moe = c->moe;
        c->moe = (moe_rule){ 0 };
    } else if (!c->fam->adapters) {
        c->family = "camelidae";
    }
    c->moe.kind = EXPERT_ADAPTER;
    TRY(read_adapter_choices(c, w));
    for (const config_key *k = keys; k->names; k++)
        if (!json_has(src->json, k->names))
            return fail(PESC_FORMAT,
                        "%s: %s: is missing; the model has adapters (PESC) and needs %s, %s, "
                        "adapter_dim and moe_scaling",
                        src->file, k->names, keys[0].names, keys[1].names);
    /* Qwen2idae's linears have biases whatever its model_type. */
    if (src->ws && weights_find(src->ws, "model.layers.0.self_attn.q_proj.bias"))
        c->qkv_bias = true;
    return keys_read(c, w, keys);
}

/* ---- mixture of LoRA ---- */

static pesc_status read_molora(config *c, const config_source *src)
{
    bool keys = json_has(src->json, "molora_experts");
    bool there = src->ws && weights_find(src->ws, "model.layers.0.mlp.molora.router.weight");
    if (!keys && !there)
        return PESC_OK;
    if (c->moe.kind != EXPERT_NONE)
        return fail(PESC_UNSUPPORTED, "%s: a mixture of LoRA on a %s model is not supported",
                    src->file, c->family);
    c->moe.kind = EXPERT_LORA;
    c->moe.topk.score_after_topk = true;
    return keys_read(c, (json_where){ src->json, src->file }, molora_keys);
}

/* ---- a bias for choosing ---- */

/* Training has balanced the experts by a bias, in a family that has none. */
static pesc_status read_added_bias(config *c, json_where w)
{
    TRY(json_get_bool(w, CONFIG_ADDED_BIAS, false, &c->moe.added_bias));
    if (c->moe.added_bias && c->moe.kind == EXPERT_NONE)
        return fail(PESC_FORMAT, "%s: %s: is true, but the model has no experts", w.file,
                    CONFIG_ADDED_BIAS);
    c->moe.has_bias = c->moe.has_bias || c->moe.added_bias;
    return PESC_OK;
}

/* ---- agreement ---- */

/* What attention's kernels hold of a row. */
static pesc_status check_widths(const config *c, const char *file)
{
    enum { MOST = 2048 };
    int32_t most = config_qk_dim(c) > config_v_dim(c) ? config_qk_dim(c) : config_v_dim(c);
    most = c->full_head_dim > most ? c->full_head_dim : most;
    return most <= MOST ? PESC_OK
                        : fail(PESC_UNSUPPORTED,
                               "%s: heads of %d numbers; pesc computes heads of at most %d", file,
                               most, MOST);
}

static pesc_status check_heads(config *c, const char *file)
{
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (!config_mla(c) && !c->head_dim && c->dim % c->n_heads)
        return fail(PESC_FORMAT, "%s: num_attention_heads: %d heads do not divide hidden_size %d",
                    file, c->n_heads, c->dim);
    if (c->n_heads % c->n_kv_heads)
        return fail(PESC_FORMAT,
                    "%s: num_key_value_heads: %d does not divide num_attention_heads %d", file,
                    c->n_kv_heads, c->n_heads);
    if (config_mla(c) && c->n_kv_heads != c->n_heads)
        return fail(PESC_FORMAT,
                    "%s: num_key_value_heads: found %d, expected %d, the num_attention_heads", file,
                    c->n_kv_heads, c->n_heads);
    if (!c->head_dim)
        c->head_dim = c->dim / c->n_heads;
    if (config_mla(c))
        c->head_dim = config_qk_dim(c);
    if (c->rotary_dim > c->head_dim)
        return fail(PESC_FORMAT, "%s: rotary_dim: found %d, expected at most %d, the head_dim",
                    file, c->rotary_dim, c->head_dim);
    if (c->rotary_dim)
        c->rotary = (float)c->rotary_dim / (float)c->head_dim;
    return PESC_OK;
}

static pesc_status check_rotation(const config *c, const char *file)
{
    const char *part = config_mla(c) ? "qk_rope_head_dim"
                       : c->rotary != 0 && c->rotary != 1
                           ? "the rotary part of a head (partial_rotary_factor)"
                           : "head_dim";
    if (config_rot_dim(c) % 2 || config_rot_dim(c) == 0)
        return fail(PESC_FORMAT, "%s: %s: found %d, expected an even number, since pairs rotate",
                    file, part, config_rot_dim(c));
    if (c->ropes[0].kind == ROPE_DYNAMIC && config_rot_dim(c) < 4)
        return fail(PESC_FORMAT, "%s: head_dim: found %d, expected at least 4 with dynamic rope",
                    file, config_rot_dim(c));
    return PESC_OK;
}

/* A mixture of no experts is dense: its FFN is the one that a mixture shares, or stands beside. */
static void settle_experts(config *c)
{
    const bool beside = c->fam->facts.moe.beside_ffn;
    if (c->moe.kind != EXPERT_FFN || (beside ? c->moe.beside_ffn : c->moe.topk.n_experts > 0))
        return;
    if (!beside)
        c->ffn_dim = c->moe.shared_dim;
    c->moe = (moe_rule){ 0 };
}

static pesc_status check_experts(const config *c, moe_rule *r, const char *file)
{
    topk_rule *t = &r->topk;
    if (r->kind == EXPERT_NONE)
        return PESC_OK;
    const char *const k_name[] = { [EXPERT_ADAPTER] =
                                       config_experts(c) == r ? "topk" : beside_keys[1].names,
                                   [EXPERT_FFN] = "num_experts_per_tok",
                                   [EXPERT_LORA] = "molora_top_k" };
    if (r->beside_ffn && !(t->n_experts && t->k && r->expert_dim))
        return fail(PESC_FORMAT,
                    "%s: enable_moe_block: is true, but num_experts, top_k_experts or "
                    "moe_intermediate_size is missing",
                    file);
    if (t->k < 1 || t->k > t->n_experts)
        return fail(PESC_FORMAT, "%s: %s: found %d, expected 1 to %d, the number of experts", file,
                    k_name[r->kind], t->k, t->n_experts);
    if (t->scale == 0)
        t->scale = 1;
    if (!t->n_groups || !t->k_groups)
        t->n_groups = t->k_groups = 1;
    if (t->n_experts % t->n_groups)
        return fail(PESC_FORMAT, "%s: n_group: %d groups do not divide %d experts", file,
                    t->n_groups, t->n_experts);
    if (t->k_groups > t->n_groups || t->k > t->k_groups * (t->n_experts / t->n_groups))
        return fail(PESC_FORMAT,
                    "%s: topk_group: %d of %d groups of %d experts cannot give %d experts a token",
                    file, t->k_groups, t->n_groups, t->n_experts / t->n_groups, t->k);
    if (!r->expert_dim)
        r->expert_dim = c->ffn_dim;
    if (!r->shared_dim)
        r->shared_dim = r->n_shared * (r->shared_each ? r->shared_each : r->expert_dim);
    return PESC_OK;
}

/* LFM2 gives the width of an FFN of two matrices, and rounds what one of three may have up. The
 * multiplier is read here, since its product is truncated in double. */
static pesc_status adjust_ffn(config *c, json_where w)
{
    double multiplier = 1;
    const char *key = "block_ffn_dim_multiplier";
    const bool none = json_is_null(json_object_get(w.object, key));
    c->ffn_dim = (int32_t)(2 * (int64_t)c->ffn_dim / 3);
    if (none)
        return PESC_OK;
    TRY(json_get_f64(w, key, false, &multiplier));
    const double wide = multiplier * c->ffn_dim;
    if (!(wide >= 1) || wide > 0x1p22)
        return fail(PESC_FORMAT, "%s: %s: found %g, which makes an FFN of width %g", w.file, key,
                    multiplier, wide);
    const int32_t multiple = c->ffn_multiple;
    c->ffn_dim = (int32_t)(((int64_t)wide + multiple - 1) / multiple * multiple);
    return PESC_OK;
}

/* A model needs the width of plain FFNs where it has some, or where its experts have no other. */
static pesc_status check_ffn(config *c, json_where w)
{
    const moe_rule *full = config_experts(c);
    bool plain = full->kind != EXPERT_FFN || full->beside_ffn || !full->expert_dim;
    if (c->ffn_adjusted)
        TRY(adjust_ffn(c, w));
    for (int32_t l = 0; l < c->n_layers; l++)
        plain = plain || !config_layer_sparse(c, l);
    if (!c->ffn_dim && plain)
        return fail(PESC_FORMAT, "%s: intermediate_size: is missing", w.file);
    if (!c->ffn_dim)
        c->ffn_dim = full->expert_dim;
    return PESC_OK;
}

static pesc_status check_layer_inputs(const config *c, const char *file)
{
    if (c->layer_input_dim && c->layer_input_vocab < c->vocab)
        return fail(PESC_UNSUPPORTED,
                    "%s: vocab_size_per_layer_input: found %d, expected vocab_size %d or more: "
                    "other tokens have no input for the layers",
                    file, c->layer_input_vocab, c->vocab);
    return PESC_OK;
}

static pesc_status check(config *c, json_where w)
{
    TRY(check_layer_inputs(c, w.file));
    TRY(check_rotation(c, w.file));
    TRY(check_experts(c, &c->moe, w.file));
    TRY(check_experts(c, &c->ffn_moe, w.file));
    for (int32_t i = 0; i < c->n_ropes; i++)
        if (c->ropes[i].theta <= 1 && c->ropes[i].kind == ROPE_YARN)
            return fail(PESC_FORMAT, "%s: rope_theta: found %g, expected more than 1", w.file,
                        (double)c->ropes[i].theta);
    if (c->use_window && c->fam->window != WINDOW_NONE && json_has(w.object, "sliding_window") &&
        !c->window)
        return fail(PESC_FORMAT, "%s: sliding_window: found 0, expected a positive number or null",
                    w.file);
    return PESC_OK;
}

static void notice_ignored(const config *c, json_where w)
{
    bool renormalise = false;
    /* what the published code of models with adapters does, pesc does itself */
    if (json_has(w.object, "auto_map") && c->moe.kind != EXPERT_ADAPTER)
        log_notice("%s: auto_map is ignored: pesc runs no code from a model directory", w.file);
    if (config_mla(c) && !config_experts(c)->has_bias &&
        json_get_bool(w, "norm_topk_prob", false, &renormalise) == PESC_OK && renormalise)
        log_notice("%s: norm_topk_prob is ignored, as transformers ignores it in this family",
                   w.file);
}

static pesc_status read_all(config *c, const config_source *src)
{
    json_where w = { src->json, src->file };
    const char *type = NULL;
    TRY(json_get_str(w, "model_type", true, &type));
    TRY(family_find(&c->fam, type, src->file));
    const family *fam = c->fam;
    *c = fam->facts;
    c->fam = fam;
    c->family = fam->name;
    c->bos = c->pad = -1;
    c->sparse_step = 1;
    c->last_sparse = -1;
    c->embed_scale = c->residual_scale = c->logit_divisor = 1;
    c->n_ropes = c->n_ropes ? c->n_ropes : 1;
    for (int i = 0; i < FAMILY_MAX_TABLES; i++)
        TRY(keys_read(c, w, fam->keys[i]));
    TRY(keys_guard(fam, w));
    TRY(check_quantization(w));
    TRY(read_act(w, fam->act_key ? fam->act_key : "hidden_act", &c->act));
    if (!fam->act_key && fam->facts.act != ACT_SILU)
        c->act = fam->facts.act;
    if (c->embed_sqrt_dim)
        c->embed_scale = sqrtf((float)c->dim);
    TRY(read_dtype(c, w));
    TRY(read_topk_method(c, w));
    if (c->ffn_halved)
        c->ffn_dim /= 2;
    TRY(check_heads(c, w.file));
    settle_experts(c);
    TRY(rope_read(c, w));
    TRY(read_adapters(c, src));
    TRY(read_molora(c, src));
    TRY(read_added_bias(c, w));
    TRY(read_special(c, src));
    TRY(check(c, w));
    TRY(mixers_read(c, w));
    TRY(layer_kinds_read(c, w));
    TRY(check_widths(c, w.file));
    TRY(check_ffn(c, w));
    notice_ignored(c, w);
    return src->ws ? fused_split(c, src->ws) : PESC_OK;
}

pesc_status config_read(config *out, const config_source *src)
{
    *out = (config){ 0 };
    if (!json_is_object(src->json))
        return fail(PESC_FORMAT, "%s: found %s, expected an object", src->file,
                    json_kind(src->json));
    pesc_status s = read_all(out, src);
    if (s != PESC_OK)
        config_free(out);
    return s;
}
