/* GGUF's metadata as the config.json that Hugging Face would have: rows where a key has a twin,
 * code where a fact must be worked out. */
#include "format/gguf_file.h"

#include "base/mem.h"

#include <string.h>

typedef enum kind { INT, REAL, BOOL } kind;

#define ANY ARCH_ANY
#define QWEN_MOE (ARCH_QWEN2MOE | ARCH_QWEN3MOE)
#define SINCE_2024                                                                                 \
    (ARCH_DEEPSEEK | ARCH_DOTS1 | ARCH_GLM4MOE | ARCH_ERNIEMOE | ARCH_AFMOE | ARCH_BAILING2)
#define DELTA_MOE (ARCH_QWEN35MOE | ARCH_QWEN3NEXT)
#define NUM_EXPERTS                                                                                \
    (QWEN_MOE | ARCH_OLMOE | ARCH_PESC | SINCE_2024 | ARCH_HUNYUANMOE | ARCH_GPTOSS |              \
     ARCH_LFM2MOE | DELTA_MOE)
#define LOCAL_EXPERTS (ARCH_MIXTRAL | ARCH_MINIMAX | ARCH_GRANITEMOE)
#define MIXTURES ((NUM_EXPERTS & ~ARCH_PESC) | LOCAL_EXPERTS | ARCH_DEEPSEEK2)
#define ROUTED (ARCH_DEEPSEEK2 | ARCH_DOTS1 | ARCH_GLM4MOE | ARCH_BAILING2)
#define GRANITES (ARCH_GRANITE | ARCH_GRANITEMOE)

enum {
    NEED = 1 << 0, /* must be there */
    NONE = 1 << 1, /* may be 0 or absent, both written as null: Hugging Face's default is not */
    ZERO = 1 << 2, /* may be 0; other integers are 1 or more */
};

/* Below "<architecture>.". */
static const struct row {
    const char *gguf, *hf;
    kind kind;
    gguf_archs archs;
    uint32_t flags;
} rows[] = {
    { "context_length", "max_position_embeddings", INT, ANY, NEED },
    { "embedding_length", "hidden_size", INT, ANY, NEED },
    { "feed_forward_length", "intermediate_size", INT, ANY & ~(DELTA_MOE | ARCH_GEMMA4), NEED },
    { "feed_forward_length", "intermediate_size", INT, DELTA_MOE, ZERO },
    { "attention.layer_norm_rms_epsilon", "rms_norm_eps", REAL, ANY & ~ARCH_LFM2S, NEED },
    { "attention.layer_norm_rms_epsilon", "norm_eps", REAL, ARCH_LFM2S, NEED },
    { "shortconv.l_cache", "conv_L_cache", INT, ARCH_LFM2S, NEED },
    { "ssm.conv_kernel", "linear_conv_kernel_dim", INT, ARCH_DELTAS, NEED },
    { "ssm.group_count", "linear_num_key_heads", INT, ARCH_DELTAS, NEED },
    { "ssm.time_step_rank", "linear_num_value_heads", INT, ARCH_DELTAS, NEED },
    { "ssm.state_size", "linear_key_head_dim", INT, ARCH_DELTAS, NEED },
    { "full_attention_interval", "full_attention_interval", INT, ARCH_DELTAS, 0 },
    { "attention.sliding_window", "sliding_window", INT,
      ARCH_LLAMA | ARCH_PESC | ARCH_WINDOWS | ARCH_PHI3, 0 },
    { "attention.sliding_window_pattern", "sliding_window_pattern", INT, ARCH_GEMMA3 | ARCH_EXAONE4,
      0 },
    { "attention.sliding_window_pattern", "global_attn_every_n_layers", INT, ARCH_AFMOE, 0 },
    { "attn_logit_softcapping", "attn_logit_softcapping", REAL, ARCH_GEMMA2, 0 },
    { "final_logit_softcapping", "final_logit_softcapping", REAL, ARCH_GEMMA2 | ARCH_GEMMA4, 0 },
    { "rope.freq_base_swa", "rope_local_base_freq", REAL, ARCH_GEMMA3 | ARCH_OLMO2, 0 },
    { "logit_scale", "logits_scaling", REAL, GRANITES, 0 },
    { "embedding_scale", "embedding_multiplier", REAL, GRANITES, 0 },
    { "residual_scale", "residual_multiplier", REAL, GRANITES, 0 },
    { "attention.scale", "attention_multiplier", REAL, GRANITES, 0 },
    { "attention.clamp_kqv", "clip_qkv", REAL, ARCH_OLMOE, 0 },
    { "expert_count", "num_local_experts", INT, LOCAL_EXPERTS, NEED },
    { "expert_count", "num_experts", INT, NUM_EXPERTS, NEED },
    { "expert_count", "n_routed_experts", INT, ARCH_DEEPSEEK2, NEED },
    { "expert_used_count", "num_experts_per_tok", INT, MIXTURES, NEED },
    { "expert_used_count", "topk", INT, ARCH_PESC, NEED },
    { "expert_feed_forward_length", "moe_intermediate_size", INT,
      QWEN_MOE | ARCH_DEEPSEEK2 | SINCE_2024 | ARCH_LFM2MOE | DELTA_MOE, NEED },
    { "expert_shared_feed_forward_length", "shared_expert_intermediate_size", INT,
      ARCH_QWEN2MOE | DELTA_MOE, NEED },
    { "expert_shared_feed_forward_length", "shared_intermediate_size", INT, ARCH_GRANITEMOE, 0 },
    { "expert_weights_norm", "norm_topk_prob", BOOL,
      QWEN_MOE | ARCH_OLMOE | ROUTED | ARCH_DEEPSEEK | ARCH_LFM2MOE | ARCH_QWEN3NEXT, 0 },
    { "expert_weights_scale", "routed_scaling_factor", REAL, ROUTED | ARCH_LFM2MOE, 0 },
    { "expert_weights_scale", "route_scale", REAL, ARCH_AFMOE, 0 },
    { "expert_shared_count", "n_shared_experts", INT,
      ARCH_DEEPSEEK2 | ARCH_DEEPSEEK | ARCH_DOTS1 | ARCH_GLM4MOE, NONE },
    { "expert_shared_count", "num_shared_experts", INT, ARCH_AFMOE | ARCH_BAILING2, ZERO },
    { "expert_shared_count", "moe_num_shared_experts", INT, ARCH_ERNIEMOE, NONE },
    { "expert_group_count", "n_group", INT, ROUTED, 0 },
    { "expert_group_used_count", "topk_group", INT, ROUTED, 0 },
    { "leading_dense_block_count", "first_k_dense_replace", INT, ROUTED | ARCH_DEEPSEEK, ZERO },
    { "leading_dense_block_count", "num_dense_layers", INT, ARCH_AFMOE | ARCH_LFM2MOE, ZERO },
    { "leading_dense_block_count", "moe_layer_start_index", INT, ARCH_ERNIEMOE, ZERO },
    { "interleave_moe_layer_step", "moe_layer_interval", INT, ARCH_ERNIEMOE, 0 },
    { "attention.q_lora_rank", "q_lora_rank", INT, ARCH_DEEPSEEK2, NONE },
    { "attention.kv_lora_rank", "kv_lora_rank", INT, ARCH_DEEPSEEK2, NEED },
    { "adapter_length", "adapter_dim", INT, ARCH_PESC, NEED },
    { "adapter_scale", "moe_scaling", REAL, ARCH_PESC, NEED },
};

pesc_status gguf_config_put(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        return fail_nomem("a configuration", 0);
    return PESC_OK;
}

static pesc_status put_row(json_t *config, const gguf *g, const gguf_arch *a, const struct row *r,
                           int64_t n_layers)
{
    gguf_key key = gguf_arch_key(a, r->gguf);
    bool need = r->flags & NEED;
    gguf_range range = { need, r->flags & (NONE | ZERO) ? 0 : 1, INT32_MAX, n_layers };
    int64_t n = 0;
    double x = 0;
    bool b = false;
    if (!gguf_find(g, key.text) && !(r->flags & (NEED | NONE)))
        return PESC_OK;
    switch (r->kind) {
    case INT:
        TRY(gguf_get_int(g, key.text, range, &n));
        return gguf_config_put(config, r->hf,
                               n == 0 && (r->flags & NONE) ? json_null() : json_integer(n));
    case REAL:
        TRY(gguf_get_real(g, key.text, need, &x));
        return gguf_config_put(config, r->hf, json_real(x));
    default:
        TRY(gguf_get_bool(g, key.text, &b));
        return gguf_config_put(config, r->hf, json_boolean(b));
    }
}

static int64_t int_of(const json_t *config, const char *key)
{
    return json_integer_value(json_object_get(config, key));
}

/* ---- sizes ---- */

/* One number a layer: 0 where it has a convolution. */
static pesc_status kv_heads(const gguf *g, const char *key, int64_t n_layers, int64_t *out)
{
    int64_t *each = mem_zalloc((size_t)n_layers, sizeof *each);
    if (!each)
        return fail_nomem(g->path, (size_t)n_layers * sizeof *each);
    pesc_status s = gguf_get_layers(g, key, n_layers, each);
    *out = 0;
    for (int64_t i = 0; s == PESC_OK && i < n_layers; i++) {
        bool other = each[i] && *out && each[i] != *out;
        if (each[i] < 0 || each[i] > INT32_MAX || other)
            s = fail(PESC_UNSUPPORTED,
                     "%s: %s: layer %lld has %lld heads; pesc reads models whose layers have 0, or "
                     "all as many",
                     g->path, key, (long long)i, (long long)each[i]);
        *out = each[i] ? each[i] : *out;
    }
    *out = *out ? *out : 1;
    mem_free(each);
    return s;
}

pesc_status gguf_config_sizes(const gguf *g, const gguf_arch *a, gguf_sizes *out)
{
    gguf_range one = { .required = true, .min = 1, .max = INT32_MAX };
    gguf_key key = gguf_arch_key(a, "block_count");
    TRY(gguf_get_int(g, key.text, one, &out->layers));
    if ((uint64_t)out->layers > g->n_tensors)
        return fail(PESC_FORMAT, "%s: %s: found %lld layers, but the file has only %zu tensors",
                    g->path, key.text, (long long)out->layers, g->n_tensors);
    const int64_t all = out->layers;
    key = gguf_arch_key(a, "nextn_predict_layers");
    out->predicting = 0;
    TRY(gguf_get_int(g, key.text, (gguf_range){ .max = all - 1 }, &out->predicting));
    out->layers -= out->predicting;
    one.n_layers = all;
    key = gguf_arch_key(a, "attention.head_count");
    TRY(gguf_get_int(g, key.text, one, &out->heads));
    key = gguf_arch_key(a, "attention.head_count_kv");
    if (a->bit & ARCH_LFM2S)
        return kv_heads(g, key.text, all, &out->kv_heads);
    one.required = false;
    out->kv_heads = out->heads;
    if (a->bit == ARCH_GEMMA4) /* a number for each layer: gguf_kinds() */
        return PESC_OK;
    TRY(gguf_get_int(g, key.text, one, &out->kv_heads));
    /* DeepSeek's newer files say 1: what llama.cpp caches, not what the model has. */
    if (a->bit == ARCH_DEEPSEEK2)
        out->kv_heads = out->heads;
    return PESC_OK;
}

static pesc_status put_sizes(json_t *config, const gguf *g, const gguf_arch *a, const gguf_sizes *z)
{
    const gguf_tensor *embed = gguf_tensor_find(g, "token_embd.weight");
    if (!embed || embed->nd != 2 || embed->ne[0] > INT32_MAX)
        return fail(PESC_SHAPE, "%s: the tensor token_embd.weight is missing or not a matrix",
                    g->path);
    const gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->array && tokens->count > (uint64_t)embed->ne[0])
        return fail(PESC_SHAPE,
                    "%s: tokenizer.ggml.tokens: found %zu tokens, but token_embd.weight has %lld "
                    "rows",
                    g->path, tokens->count, (long long)embed->ne[0]);
    TRY(gguf_config_put(config, "vocab_size", json_integer(embed->ne[0])));
    TRY(gguf_config_put(config, "num_hidden_layers", json_integer(z->layers)));
    TRY(gguf_config_put(config, "num_attention_heads", json_integer(z->heads)));
    TRY(gguf_config_put(config, "num_key_value_heads", json_integer(z->kv_heads)));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].archs & a->bit)
            TRY(put_row(config, g, a, &rows[i], z->layers + z->predicting));
    return PESC_OK;
}

/* ---- kinds of layers ---- */

/* Which layers have attention: those with heads of keys, or those that are not said to be
 * recurrent. Without such a list full_attention_interval says it. */
static pesc_status put_layer_types(json_t *config, const gguf *g, const gguf_arch *a,
                                   const gguf_sizes *z)
{
    const bool conv = a->bit & ARCH_LFM2S;
    const int64_t n = z->layers + z->predicting;
    gguf_key key =
        gguf_arch_key(a, conv ? "attention.head_count_kv" : "attention.recurrent_layers");
    if (!(a->bit & (ARCH_LFM2S | ARCH_DELTAS)) || !gguf_find(g, key.text))
        return PESC_OK;
    int64_t *each = mem_zalloc((size_t)n, sizeof *each);
    json_t *list = json_array();
    bool fine = each && list;
    pesc_status s = fine ? gguf_get_layers(g, key.text, n, each) : PESC_OK;
    for (int64_t i = 0; fine && i < z->layers; i++) {
        bool attention = conv ? each[i] != 0 : each[i] == 0;
        const char *type = attention ? "full_attention" : conv ? "conv" : "linear_attention";
        fine = json_array_append_new(list, json_string(type)) == 0;
    }
    mem_free(each);
    if (!fine || s != PESC_OK) {
        json_decref(list);
        return s != PESC_OK ? s : fail_nomem(g->path, (size_t)n);
    }
    return gguf_config_put(config, "layer_types", list);
}

/* ---- heads ---- */

/* Multi-head latent attention. The keys with _mla give a head's true sizes where llama.cpp's own
 * describe its cache. */
static pesc_status put_latent(json_t *config, const gguf *g, const gguf_arch *a, int64_t *rope_dim)
{
    gguf_range r = { .required = true, .min = 1, .max = INT32_MAX };
    int64_t k = 0, v = 0;
    bool mla = gguf_find(g, gguf_arch_key(a, "attention.key_length_mla").text) != NULL;
    gguf_key k_key = gguf_arch_key(a, mla ? "attention.key_length_mla" : "attention.key_length");
    gguf_key v_key =
        gguf_arch_key(a, mla ? "attention.value_length_mla" : "attention.value_length");
    gguf_key rope = gguf_arch_key(a, "rope.dimension_count");
    TRY(gguf_get_int(g, k_key.text, r, &k));
    TRY(gguf_get_int(g, v_key.text, r, &v));
    r.min = 2;
    r.max = k - 1;
    TRY(gguf_get_int(g, rope.text, r, rope_dim));
    TRY(gguf_config_put(config, "qk_rope_head_dim", json_integer(*rope_dim)));
    TRY(gguf_config_put(config, "qk_nope_head_dim", json_integer(k - *rope_dim)));
    return gguf_config_put(config, "v_head_dim", json_integer(v));
}

static pesc_status put_head_dim(json_t *config, const gguf *g, const gguf_arch *a, int64_t n_heads,
                                int64_t *head_dim)
{
    gguf_range r = { .min = 2, .max = INT32_MAX };
    int64_t hidden = int_of(config, "hidden_size"), value_dim, rope_dim;
    gguf_key key = gguf_arch_key(a, "attention.key_length");
    *head_dim = hidden / n_heads;
    if (!gguf_find(g, key.text) && hidden % n_heads)
        return fail(PESC_SHAPE,
                    "%s: %s.embedding_length %lld does not divide by %lld heads, and %s is missing",
                    g->path, a->name, (long long)hidden, (long long)n_heads, key.text);
    TRY(gguf_get_int(g, key.text, r, head_dim));
    value_dim = rope_dim = *head_dim;
    key = gguf_arch_key(a, "attention.value_length");
    TRY(gguf_get_int(g, key.text, r, &value_dim));
    if (value_dim != *head_dim)
        return fail(PESC_UNSUPPORTED, "%s: %s: found %lld, expected %lld, the length of the keys",
                    g->path, key.text, (long long)value_dim, (long long)*head_dim);
    key = gguf_arch_key(a, "rope.dimension_count");
    TRY(gguf_get_int(g, key.text, r, &rope_dim));
    if (a->bit & ARCH_PARTIAL && rope_dim < *head_dim)
        TRY(gguf_config_put(config, "partial_rotary_factor",
                            json_real((double)rope_dim / (double)*head_dim)));
    else if (a->bit & ARCH_PARTIAL)
        TRY(gguf_config_put(config, "partial_rotary_factor", json_real(1)));
    if ((rope_dim != *head_dim && !(a->bit & ARCH_PARTIAL)) || rope_dim > *head_dim || rope_dim % 2)
        return fail(PESC_UNSUPPORTED,
                    "%s: %s: found %lld, expected %lld, the whole of a head, even", g->path,
                    key.text, (long long)rope_dim, (long long)*head_dim);
    return gguf_config_put(config, "head_dim", json_integer(*head_dim));
}

static pesc_status put_attention(json_t *config, const gguf *g, const gguf_arch *a,
                                 const gguf_sizes *z)
{
    int64_t rope_dim = 0;
    double theta = 10000.0;
    if (a->bit == ARCH_GEMMA4)
        return gguf_kinds(config, g, a, z->layers);
    if (a->bit == ARCH_DEEPSEEK2)
        TRY(put_latent(config, g, a, &rope_dim));
    else
        TRY(put_head_dim(config, g, a, z->heads, &rope_dim));
    TRY(gguf_get_real(g, gguf_arch_key(a, "rope.freq_base").text, false, &theta));
    if (!(theta > 0))
        return fail(PESC_FORMAT, "%s: %s.rope.freq_base: found %g, expected more than 0", g->path,
                    a->name, theta);
    TRY(gguf_config_put(config, "rope_theta", json_real(theta)));
    return gguf_rope(config, g, a, theta, rope_dim);
}

/* ---- mixtures ---- */

/* Qwen's mixtures and models with adapters may have plain layers among the sparse ones: those
 * without a router. */
static pesc_status put_plain_layers(json_t *config, const gguf *g, const gguf_arch *a, int64_t n)
{
    unsigned char *sparse = mem_zalloc((size_t)n, 1);
    json_t *list = json_array();
    bool fine = sparse && list;
    for (size_t i = 0; fine && i < g->n_tensors; i++) {
        gguf_name name;
        if (gguf_name_of(&name, g->tensors[i].name, a) && (name.flags & NAME_ROUTER) &&
            name.layer < n)
            sparse[name.layer] = 1;
    }
    for (int64_t i = 0; fine && i < n; i++)
        fine = sparse[i] || json_array_append_new(list, json_integer(i)) == 0;
    mem_free(sparse);
    if (!fine) {
        json_decref(list);
        return fail_nomem(g->path, (size_t)n);
    }
    bool none = json_array_size(list) == 0;
    TRY(gguf_config_put(config, "mlp_only_layers", list));
    if (a->bit == ARCH_PESC) { /* a key of pesc's own, left out where it says nothing */
        if (none)
            json_object_del(config, "mlp_only_layers");
        return PESC_OK;
    }
    return gguf_config_put(config, "decoder_sparse_step", json_integer(1));
}

/* What crafting chose, where it is not what is published. */
static pesc_status put_adapters(json_t *config, const gguf *g, const gguf_arch *a)
{
    static const struct {
        const char *key, *published;
    } choices[] = { { "adapter_act", "gelu" }, { "adapter_router", "softmax-after" } };
    for (size_t i = 0; i < 2; i++) {
        gguf_text text = { choices[i].published, strlen(choices[i].published) };
        TRY(gguf_get_text(g, gguf_arch_key(a, choices[i].key).text, false, &text));
        if (!gguf_text_is(text, choices[i].published))
            TRY(gguf_config_put(config, choices[i].key, json_stringn(text.p, text.n)));
    }
    return PESC_OK;
}

static pesc_status put_mixture(json_t *config, const gguf *g, const gguf_arch *a, int64_t n_layers)
{
    enum { SOFTMAX = 1, SIGMOID = 2, SOFTMAX_OF_CHOSEN = 3 };
    const gguf_archs sigmoid =
        ARCH_DOTS1 | ARCH_GLM4MOE | ARCH_MINIMAX | ARCH_AFMOE | ARCH_BAILING2 | ARCH_LFM2MOE;
    int64_t expected = a->bit & sigmoid        ? SIGMOID
                       : a->bit == ARCH_GPTOSS ? SOFTMAX_OF_CHOSEN
                                               : SOFTMAX;
    int64_t experts = 0, used = 0, gating = expected;
    gguf_key key = gguf_arch_key(a, "expert_gating_func");
    TRY(gguf_get_int(g, key.text, (gguf_range){ .max = INT32_MAX }, &gating));
    bool v3 = a->bit == ARCH_DEEPSEEK2 && gating == SIGMOID;
    if (gating != expected && !v3)
        return fail(PESC_UNSUPPORTED, "%s: %s: found %lld, expected %lld", g->path, key.text,
                    (long long)gating, (long long)expected);
    gguf_range r = { .required = true, .min = 1, .max = INT32_MAX };
    TRY(gguf_get_int(g, gguf_arch_key(a, "expert_count").text, r, &experts));
    r.max = experts;
    TRY(gguf_get_int(g, gguf_arch_key(a, "expert_used_count").text, r, &used));
    if (a->bit & (QWEN_MOE | ARCH_PESC | ARCH_QWEN3NEXT))
        TRY(put_plain_layers(config, g, a, n_layers));
    if (a->bit == ARCH_PESC)
        TRY(put_adapters(config, g, a));
    if ((a->bit & (ARCH_QWEN2MOE | ARCH_QWEN3MOE | ARCH_OLMOE | ARCH_DEEPSEEK2)) &&
        !json_has(config, "norm_topk_prob"))
        TRY(gguf_config_put(config, "norm_topk_prob", json_boolean(a->bit == ARCH_QWEN3MOE)));
    if (a->bit != ARCH_DEEPSEEK2)
        return PESC_OK;
    if (v3 && !json_has(config, "n_group")) {
        TRY(gguf_config_put(config, "n_group", json_integer(1)));
        TRY(gguf_config_put(config, "topk_group", json_integer(1)));
    }
    if (v3)
        return gguf_config_put(config, "scoring_func", json_string("sigmoid"));
    bool groups = int_of(config, "n_group") > 1;
    TRY(gguf_config_put(config, "scoring_func", json_string("softmax")));
    TRY(gguf_config_put(config, "moe_layer_freq", json_integer(1)));
    return gguf_config_put(config, "topk_method",
                           json_string(groups ? "group_limited_greedy" : "greedy"));
}

/* ---- the rest ---- */

/* The ends of a turn and of a message end a generation as well: a list where there are several. */
static pesc_status put_ids(json_t *config, const gguf *g)
{
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    static const struct {
        const char *gguf, *hf;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", "bos_token_id" },
        { "tokenizer.ggml.padding_token_id", "pad_token_id" },
    };
    gguf_range r = { .max = int_of(config, "vocab_size") - 1 };
    for (size_t i = 0; i < 2; i++) {
        int64_t id = -1;
        TRY(gguf_get_int(g, ids[i].gguf, r, &id));
        if (id >= 0)
            TRY(gguf_config_put(config, ids[i].hf, json_integer(id)));
    }
    json_t *list = json_array();
    TRY(gguf_config_put(config, "eos_token_id", list));
    int64_t seen[3] = { -1, -1, -1 };
    for (size_t i = 0; i < 3; i++) {
        TRY(gguf_get_int(g, ends[i], r, &seen[i]));
        bool fresh = seen[i] >= 0;
        for (size_t j = 0; j < i; j++)
            fresh = fresh && seen[i] != seen[j];
        if (fresh && json_array_append_new(list, json_integer(seen[i])) != 0)
            return fail_nomem("a configuration", 0);
    }
    size_t n = json_array_size(list);
    if (n == 0)
        json_object_del(config, "eos_token_id");
    return n == 1 ? gguf_config_put(config, "eos_token_id", json_incref(json_array_get(list, 0)))
                  : PESC_OK;
}

/* Rows that differ in one fact only: Mistral is a Llama with a window. PESC keeps the type of its
 * dense part: Qwen3's heads have norms, and Qwen2's queries have biases but its outputs have none.
 */
static const char *type_of(const json_t *config, const gguf *g, const gguf_arch *a)
{
    bool window = json_has(config, "sliding_window");
    const char *scoring = json_string_value(json_object_get(config, "scoring_func"));
    if (a->bit == ARCH_OLMO2 && window)
        return "olmo3";
    if (a->bit == ARCH_GRANITEMOE && json_has(config, "shared_intermediate_size"))
        return "granitemoeshared";
    if (a->bit == ARCH_DEEPSEEK2 && scoring && strcmp(scoring, "sigmoid") == 0)
        return "deepseek_v3";
    if (a->bit == ARCH_LLAMA)
        return window ? "mistral" : a->model_type;
    if (a->bit != ARCH_PESC)
        return a->model_type;
    if (gguf_tensor_find(g, "blk.0.attn_q_norm.weight"))
        return "qwen3";
    if (gguf_tensor_find(g, "blk.0.attn_q.bias") && !gguf_tensor_find(g, "blk.0.attn_output.bias"))
        return "qwen2";
    return window ? "sparsetral" : a->model_type;
}

static bool text_ends(gguf_text t, const char *end)
{
    size_t n = strlen(end);
    return t.n >= n && memcmp(t.p + t.n - n, end, n) == 0;
}

/* The key by which a family says that queries, keys and values have biases, and outputs. */
static pesc_status put_biases(json_t *config, const gguf *g, const gguf_arch *a)
{
    static const struct {
        gguf_archs archs;
        const char *qkv, *o;
    } keys[] = {
        { ARCH_SEED, "attention_bias", "attention_out_bias" },
        { ARCH_ERNIE | ARCH_ERNIEMOE, "use_bias", NULL },
        { ARCH_BAILING2, "use_qkv_bias", "use_bias" },
        { ARCH_GRANITE | ARCH_GRANITEMOE | ARCH_SMOLLM3 | ARCH_OLMO2 | ARCH_GLM4 | ARCH_GLM4MOE |
              ARCH_DOTS1 | ARCH_HUNYUAN | ARCH_HUNYUANMOE | ARCH_DEEPSEEK | ARCH_GEMMAS |
              ARCH_GEMMA4 | ARCH_GPTOSS | ARCH_AFMOE | ARCH_DELTAS,
          "attention_bias", NULL },
    };
    bool qkv =
        gguf_tensor_find(g, "blk.0.attn_q.bias") || gguf_tensor_find(g, "blk.0.attn_qkv.bias");
    bool o = gguf_tensor_find(g, "blk.0.attn_output.bias") != NULL;
    for (size_t i = 0; a->bit & ARCH_DELTAS && i < g->n_tensors; i++)
        qkv = qkv || text_ends(g->tensors[i].name, ".attn_q.bias"); /* not all have attention */
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].archs & a->bit) {
            TRY(gguf_config_put(config, keys[i].qkv, json_boolean(qkv)));
            if (keys[i].o)
                TRY(gguf_config_put(config, keys[i].o, json_boolean(o)));
        }
    return PESC_OK;
}

/* What an architecture of llama.cpp has without saying it. */
static pesc_status put_assumed(json_t *config, const gguf *g, const gguf_arch *a)
{
    if (a->bit & ARCH_GEMMAS) {
        /* the largest of each has another scale of queries than its heads' width */
        bool largest = int_of(config, "num_hidden_layers") == (a->bit == ARCH_GEMMA2 ? 46 : 62);
        int64_t width = largest
                            ? int_of(config, "hidden_size") / int_of(config, "num_attention_heads")
                            : int_of(config, "head_dim");
        TRY(gguf_config_put(config, "query_pre_attn_scalar", json_integer(width)));
    }
    if (a->bit & (ARCH_GEMMAS | ARCH_GEMMA4))
        TRY(gguf_config_put(config, "hidden_activation", json_string("gelu_pytorch_tanh")));
    if (a->bit & (ARCH_WINDOWS | ARCH_PHI3) && !json_has(config, "sliding_window"))
        TRY(gguf_config_put(config, "sliding_window", json_null()));
    if (a->bit == ARCH_AFMOE)
        TRY(gguf_config_put(config, "mup_enabled", json_true()));
    if (a->bit & ARCH_LFM2S)
        TRY(gguf_config_put(config, "block_auto_adjust_ff_dim", json_false()));
    if (a->bit == ARCH_LFM2MOE) {
        bool any = false;
        for (size_t i = 0; i < g->n_tensors; i++)
            any = any || text_ends(g->tensors[i].name, ".exp_probs_b.bias");
        TRY(gguf_config_put(config, "use_expert_bias", json_boolean(any)));
    }
    if (a->bit & ARCH_DELTAS) {
        gguf_arranging delta;
        TRY(gguf_arrange_open(&delta, g, a));
        TRY(gguf_config_put(config, "linear_value_head_dim", json_integer(delta.d.v_dim)));
    }
    if (a->bit == ARCH_GLM4MOE)
        TRY(gguf_config_put(config, "use_qk_norm",
                            json_boolean(gguf_tensor_find(g, "blk.0.attn_q_norm.weight"))));
    if (a->bit == ARCH_QWEN) {
        TRY(gguf_config_put(config, "kv_channels",
                            json_incref(json_object_get(config, "head_dim"))));
        TRY(gguf_config_put(config, "layer_norm_epsilon",
                            json_incref(json_object_get(config, "rms_norm_eps"))));
        TRY(gguf_config_put(config, "rotary_emb_base",
                            json_incref(json_object_get(config, "rope_theta"))));
        TRY(gguf_config_put(config, "seq_length",
                            json_incref(json_object_get(config, "max_position_embeddings"))));
    }
    return PESC_OK;
}

static pesc_status put_facts(json_t *config, const gguf *g, const gguf_arch *a)
{
    static const struct {
        int64_t file_type;
        const char *name;
    } dtypes[] = { { 0, "float32" }, { 1, "float16" }, { 32, "bfloat16" } };
    int64_t file_type = -1;
    bool biased = gguf_tensor_find(g, "blk.0.attn_q.bias") != NULL;
    TRY(gguf_config_put(config, "model_type", json_string(type_of(config, g, a))));
    TRY(gguf_config_put(config, "hidden_act", json_string("silu")));
    TRY(gguf_config_put(config, "tie_word_embeddings",
                        json_boolean(!gguf_tensor_find(g, "output.weight"))));
    bool both = a->bit == ARCH_PESC && gguf_tensor_find(g, "blk.0.attn_output.bias");
    if (biased && (both || a->bit & (ARCH_LLAMA | ARCH_QWEN3 | ARCH_QWEN3MOE | ARCH_OLMOE)))
        TRY(gguf_config_put(config, "attention_bias", json_true()));
    if (gguf_tensor_find(g, "blk.0.ffn_gate.bias") && !(a->bit & (ARCH_ERNIE | ARCH_ERNIEMOE)))
        TRY(gguf_config_put(config, "mlp_bias", json_true()));
    TRY(put_biases(config, g, a));
    TRY(put_assumed(config, g, a));
    TRY(gguf_get_int(g, "general.file_type", (gguf_range){ .max = INT32_MAX }, &file_type));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].file_type == file_type)
            TRY(gguf_config_put(config, "torch_dtype", json_string(dtypes[i].name)));
    return PESC_OK;
}

static pesc_status fill_config(json_t *config, const gguf *g)
{
    const gguf_arch *a;
    gguf_sizes z;
    TRY(gguf_arch_of(&a, g));
    TRY(gguf_config_sizes(g, a, &z));
    TRY(put_sizes(config, g, a, &z));
    TRY(put_layer_types(config, g, a, &z));
    TRY(put_attention(config, g, a, &z));
    if (a->experts)
        TRY(put_mixture(config, g, a, z.layers));
    TRY(put_ids(config, g));
    return put_facts(config, g, a);
}

pesc_status gguf_config(json_t **out, const gguf *g)
{
    json_t *config;
    *out = NULL;
    TRY(json_parse(&config, "{}", 2, g->path));
    pesc_status s = fill_config(config, g);
    if (s == PESC_OK)
        *out = config;
    else
        json_decref(config);
    return s;
}
