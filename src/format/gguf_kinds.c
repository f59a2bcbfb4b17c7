/* Layers with and without a window that have heads of their own (Gemma 4), in the words of
 * config.json. A GGUF file has a number for each layer, or one key for each of the two kinds. */
#include "format/gguf_file.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct kinds {
    json_t *config;
    const gguf *g;
    const gguf_arch *a;
    int64_t n, shared;           /* layers, and those of them that share keys */
    int64_t *windowed, *kv, *ff; /* of each layer */
} kinds;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static pesc_status get_int(const kinds *k, const char *key, gguf_range range, int64_t *out)
{
    return gguf_get_int(k->g, gguf_arch_key(k->a, key).text, range, out);
}

static pesc_status put_int(const kinds *k, const char *key, int64_t value)
{
    return gguf_config_put(k->config, key, json_integer(value));
}

/* ---- numbers of each layer ---- */

static pesc_status each_layer(const kinds *k, const char *name, int64_t most, int64_t *out)
{
    const gguf_key key = gguf_arch_key(k->a, name);
    if (!gguf_find(k->g, key.text))
        return fail(PESC_FORMAT, "%s: %s: is missing", k->g->path, key.text);
    TRY(gguf_get_layers(k->g, key.text, k->n, out));
    for (int64_t i = 0; i < k->n; i++)
        if (out[i] < (most > 1) || out[i] > most)
            return fail(PESC_FORMAT, "%s: %s: found %lld for layer %lld", k->g->path, key.text,
                        (long long)out[i], (long long)i);
    return PESC_OK;
}

static pesc_status put_layer_types(const kinds *k)
{
    json_t *list = json_array();
    bool fine = list != NULL;
    for (int64_t i = 0; fine && i < k->n; i++)
        fine = json_array_append_new(
                   list, json_string(k->windowed[i] ? "sliding_attention" : "full_attention")) == 0;
    if (fine)
        return gguf_config_put(k->config, "layer_types", list);
    json_decref(list);
    return fail_nomem(k->g->path, (size_t)k->n);
}

/* The number of all layers of a kind. */
static pesc_status of_kind(const kinds *k, const int64_t *each, int64_t windowed, const char *what,
                           int64_t *out)
{
    *out = 0;
    for (int64_t i = 0; i < k->n; i++) {
        if (k->windowed[i] != windowed)
            continue;
        if (*out && each[i] != *out)
            return fail(PESC_UNSUPPORTED,
                        "%s: %s.%s: found %lld and %lld for layers of the same type", k->g->path,
                        k->a->name, what, (long long)*out, (long long)each[i]);
        *out = each[i];
    }
    return PESC_OK;
}

/* Layers without a window that project keys may have no values. */
static bool without_values(const kinds *k)
{
    bool some = false;
    char name[48];
    for (int64_t i = 0; i < k->n - k->shared; i++) {
        snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)i);
        some = some || (!k->windowed[i] && !gguf_tensor_find(k->g, name));
    }
    return some;
}

static pesc_status put_heads(const kinds *k)
{
    int64_t full = 0, windowed = 0;
    const char *key = "attention.head_count_kv";
    TRY(of_kind(k, k->kv, 0, key, &full));
    TRY(of_kind(k, k->kv, 1, key, &windowed));
    TRY(put_int(k, "num_key_value_heads", windowed ? windowed : full));
    if (full)
        TRY(put_int(k, "num_global_key_value_heads", full));
    return gguf_config_put(k->config, "attention_k_eq_v", json_boolean(without_values(k)));
}

/* The FFN of the layers that share keys may be twice as wide. */
static pesc_status put_ffn(const kinds *k)
{
    const int64_t width = k->ff[0];
    const bool doubled = k->shared && k->ff[k->n - 1] == 2 * width;
    for (int64_t i = 0; i < k->n; i++) {
        const int64_t expected = doubled && i >= k->n - k->shared ? 2 * width : width;
        if (k->ff[i] != expected)
            return fail(PESC_UNSUPPORTED,
                        "%s: %s.feed_forward_length: found %lld for layer %lld, expected %lld",
                        k->g->path, k->a->name, (long long)k->ff[i], (long long)i,
                        (long long)expected);
    }
    TRY(put_int(k, "intermediate_size", width));
    return gguf_config_put(k->config, "use_double_wide_mlp", json_boolean(doubled));
}

static pesc_status put_layers(const kinds *k)
{
    TRY(each_layer(k, "attention.sliding_window_pattern", 1, k->windowed));
    TRY(each_layer(k, "attention.head_count_kv", INT32_MAX, k->kv));
    TRY(each_layer(k, "feed_forward_length", INT32_MAX, k->ff));
    TRY(put_layer_types(k));
    TRY(put_int(k, "num_kv_shared_layers", k->shared));
    TRY(put_heads(k));
    return put_ffn(k);
}

/* ---- numbers of each kind ---- */

/* Widths of the heads of keys and values, all of which rotate. */
static pesc_status put_width(const kinds *k, const char *suffix, const char *hf, int64_t *out)
{
    static const char *const same[] = { "attention.value_length", "rope.dimension_count" };
    gguf_range r = { .required = true, .min = 2, .max = INT32_MAX };
    char key[64];
    snprintf(key, sizeof key, "attention.key_length%s", suffix);
    TRY(get_int(k, key, r, out));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        int64_t other = *out;
        r.required = false;
        snprintf(key, sizeof key, "%s%s", same[i], suffix);
        TRY(get_int(k, key, r, &other));
        if (other != *out)
            return fail(PESC_UNSUPPORTED,
                        "%s: %s.%s: found %lld, expected %lld, the length of the keys", k->g->path,
                        k->a->name, key, (long long)other, (long long)*out);
    }
    return put_int(k, hf, *out);
}

static pesc_status put_rope(const kinds *k, json_t *ropes, const char *type, const char *theta_key)
{
    double theta = 10000.0;
    json_t *rope = json_object();
    TRY(gguf_config_put(ropes, type, rope));
    TRY(gguf_get_real(k->g, gguf_arch_key(k->a, theta_key).text, false, &theta));
    TRY(gguf_config_put(rope, "rope_theta", json_real(theta)));
    return gguf_config_put(rope, "rope_type", json_string("default"));
}

/* rope_freqs: the factor of the pairs that rotate, then of each other a number so large that it
 * does not. */
static pesc_status put_proportional(const kinds *k, json_t *rope, int64_t dim)
{
    const gguf_tensor *t = gguf_tensor_find(k->g, "rope_freqs.weight");
    float factor = 1, f;
    int64_t turning = 0;
    bool rule = true;
    if (!t)
        return PESC_OK;
    if (t->dt != DT_F32 || t->nd != 1 || t->ne[0] != dim / 2)
        return fail(PESC_SHAPE, "%s: rope_freqs.weight: expected %lld numbers in f32", k->g->path,
                    (long long)(dim / 2));
    for (int64_t i = 0; i < dim / 2; i++) {
        memcpy(&f, t->data + (size_t)i * sizeof f, sizeof f);
        const bool turns = f > 0 && f < 1e20F;
        factor = i == 0 && turns ? f : factor;
        rule = rule && (turns ? turning == i && f == factor : f >= 1e20F);
        turning += turns;
    }
    if (!rule)
        return fail(PESC_UNSUPPORTED,
                    "%s: rope_freqs.weight: these factors are not one of the first pairs and more "
                    "than 1e20 of the others, as pesc reads it",
                    k->g->path);
    if (turning == dim / 2 && factor == 1)
        return PESC_OK;
    TRY(gguf_config_put(rope, "rope_type", json_string("proportional")));
    TRY(gguf_config_put(rope, "partial_rotary_factor",
                        json_real((double)(2 * turning) / (double)dim)));
    return gguf_config_put(rope, "factor", json_real((double)factor));
}

static pesc_status put_ropes(const kinds *k, int64_t full_dim)
{
    gguf_text scaling = { "none", 4 };
    json_t *ropes = json_object();
    const gguf_key key = gguf_arch_key(k->a, "rope.scaling.type");
    TRY(gguf_config_put(k->config, "rope_parameters", ropes));
    TRY(gguf_get_text(k->g, key.text, false, &scaling));
    if (!gguf_text_is(scaling, "none"))
        return fail(PESC_UNSUPPORTED, "%s: %s: found '%.*s', expected none", k->g->path, key.text,
                    (int)smaller((int64_t)scaling.n, 64), scaling.p);
    TRY(put_rope(k, ropes, "full_attention", "rope.freq_base"));
    TRY(put_rope(k, ropes, "sliding_attention", "rope.freq_base_swa"));
    return put_proportional(k, json_object_get(ropes, "full_attention"), full_dim);
}

/* ---- inputs of layers ---- */

static pesc_status put_inputs(const kinds *k)
{
    int64_t dim = 0;
    const gguf_tensor *table = gguf_tensor_find(k->g, "per_layer_token_embd.weight");
    TRY(get_int(k, "embedding_length_per_layer_input", (gguf_range){ .max = INT32_MAX }, &dim));
    if (dim && table && table->nd == 2)
        TRY(put_int(k, "vocab_size_per_layer_input", table->ne[0]));
    return put_int(k, "hidden_size_per_layer_input", dim);
}

/* ---- experts beside the FFN ---- */

static pesc_status put_experts(const kinds *k)
{
    static const struct {
        const char *gguf, *hf;
    } keys[] = { { "expert_count", "num_experts" },
                 { "expert_used_count", "top_k_experts" },
                 { "expert_feed_forward_length", "moe_intermediate_size" } };
    const gguf_range one = { .required = true, .min = 1, .max = INT32_MAX };
    int64_t experts = 0, n = 0;
    TRY(get_int(k, "expert_count", (gguf_range){ .max = INT32_MAX }, &experts));
    TRY(gguf_config_put(k->config, "enable_moe_block", json_boolean(experts > 0)));
    for (size_t i = 0; experts && i < sizeof keys / sizeof *keys; i++) {
        TRY(get_int(k, keys[i].gguf, one, &n));
        TRY(put_int(k, keys[i].hf, n));
    }
    return PESC_OK;
}

static pesc_status put_all(const kinds *k)
{
    int64_t full_dim = 0, dim = 0;
    TRY(put_experts(k));
    TRY(put_layers(k));
    TRY(put_width(k, "", "global_head_dim", &full_dim));
    TRY(put_width(k, "_swa", "head_dim", &dim));
    TRY(put_ropes(k, full_dim));
    return put_inputs(k);
}

pesc_status gguf_kinds(json_t *config, const gguf *g, const gguf_arch *a, int64_t n_layers)
{
    kinds k = { .config = config, .g = g, .a = a, .n = n_layers };
    TRY(get_int(&k, "attention.shared_kv_layers", (gguf_range){ .max = n_layers - 1 }, &k.shared));
    int64_t *memory = mem_zalloc(3 * (size_t)n_layers, sizeof *memory);
    if (!memory)
        return fail_nomem(g->path, 3 * (size_t)n_layers * sizeof *memory);
    k.windowed = memory;
    k.kv = memory + n_layers;
    k.ff = memory + 2 * n_layers;
    pesc_status s = put_all(&k);
    mem_free(memory);
    return s;
}
