#include "arch/layer_kinds.h"

#include "arch/family.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

pesc_status layer_words_read(const config *c, json_where w, layer_words words, int32_t layer,
                             bool *other)
{
    const json_t *list = json_value(w.object, words.key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->n_layers)
        return fail(PESC_FORMAT, "%s: %s: found %s of %zu, expected an array of %d", w.file,
                    words.key, json_kind(list), json_array_size(list), c->n_layers);
    const json_t *v = json_array_get(list, (size_t)layer);
    const char *word = json_is_string(v) ? json_string_value(v) : json_kind(v);
    *other = strcmp(word, words.other) == 0;
    if (*other || strcmp(word, words.usual) == 0 || (words.older && strcmp(word, words.older) == 0))
        return PESC_OK;
    return fail(PESC_UNSUPPORTED, "%s: %s[%d]: found %s, expected %s or %s", w.file, words.key,
                layer, word, words.usual, words.other);
}

/* ---- windows ---- */

static pesc_status read_layer_types(config *c, json_where w)
{
    static const layer_words words = { "layer_types", "full_attention", "attention",
                                       "sliding_attention" };
    const json_t *list = json_value(w.object, words.key);
    if (!list && c->layer_types_needed)
        return fail(PESC_UNSUPPORTED,
                    "%s: layer_types: is missing, and without it all layers are of a kind that "
                    "pesc does not read; expected attention for every layer",
                    w.file);
    if (!list || c->recurrent != MIXER_ATTENTION) /* which mixers.c has read */
        return PESC_OK;
    for (int32_t i = 0; i < c->n_layers; i++) {
        bool sliding;
        TRY(layer_words_read(c, w, words, i, &sliding));
        if (sliding && !c->window)
            return fail(PESC_UNSUPPORTED,
                        "%s: layer_types[%d]: found sliding_attention, but there is no window",
                        w.file, i);
        if (c->layer_windowed)
            c->layer_windowed[i] = sliding;
    }
    return PESC_OK;
}

static pesc_status read_windows(config *c, json_where w)
{
    window_rule rule = c->fam->window;
    if (rule == WINDOW_NONE || !c->use_window)
        c->window = 0;
    if (c->window && rule == WINDOW_PATTERN && !c->window_pattern)
        return fail(PESC_FORMAT, "%s: sliding_window_pattern: found 0, expected 1 or more", w.file);
    if (c->window && rule != WINDOW_ALL) {
        c->layer_windowed = mem_alloc((size_t)c->n_layers, 1);
        if (!c->layer_windowed)
            return fail_nomem("reading a configuration", (size_t)c->n_layers);
        for (int32_t i = 0; i < c->n_layers; i++)
            c->layer_windowed[i] = rule == WINDOW_FROM ? i >= c->max_window_layers
                                   : rule == WINDOW_PATTERN
                                       ? (i + 1) % c->window_pattern != 0
                                       : i % 2 == 0 && i < c->max_window_layers;
    }
    TRY(read_layer_types(c, w));
    if (c->last_full && c->layer_windowed)
        c->layer_windowed[c->n_layers - 1] = 0;
    return PESC_OK;
}

/* ---- heads of layers without a window ---- */

/* transformers writes the heads of each layer that has others than the rest. */
static pesc_status read_layer_heads(const config *c, json_where w, int32_t layer, head_shape *out)
{
    char key[16];
    int64_t dim = c->head_dim, kv_heads = c->n_kv_heads;
    snprintf(key, sizeof key, "%d", layer);
    const json_t *all = json_value(w.object, "per_layer_config"), *own = json_value(all, key);
    json_where in = { own, w.file };
    if (own && !json_is_object(own))
        return fail(PESC_FORMAT, "%s: per_layer_config: found %s for layer %d, expected an object",
                    w.file, json_kind(own), layer);
    if (own) {
        TRY(json_get_i64(in, "head_dim", false, 1, 1 << 14, &dim));
        TRY(json_get_i64(in, "num_key_value_heads", false, 1, 1 << 12, &kv_heads));
    }
    *out = (head_shape){ (int32_t)dim, (int32_t)dim, (int32_t)kv_heads };
    return PESC_OK;
}

/* Names layers of this model, and of them nothing but what read_layer_heads() takes. */
static pesc_status check_per_layer(const config *c, json_where w)
{
    json_t *all = json_object_get(w.object, "per_layer_config"), *own, *v;
    const char *layer, *key;
    if (!json_is_object(all))
        return fail(PESC_FORMAT, "%s: per_layer_config: found %s, expected an object", w.file,
                    json_kind(all));
    json_object_foreach(all, layer, own)
    {
        long long n;
        if (!str_to_i64(layer, 0, c->n_layers - 1, &n))
            return fail(PESC_FORMAT, "%s: per_layer_config: found layer \"%.20s\" of %d", w.file,
                        layer, c->n_layers);
        json_object_foreach(own, key, v)
        {
            if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
                return fail(PESC_UNSUPPORTED,
                            "%s: per_layer_config: layer %s has %.40s, which pesc reads of the "
                            "whole model alone",
                            w.file, layer, key);
        }
    }
    return PESC_OK;
}

static pesc_status read_per_layer(config *c, json_where w)
{
    TRY(check_per_layer(c, w));
    const head_shape usual = { c->head_dim, c->head_dim, c->n_kv_heads };
    bool any = false;
    for (int32_t i = 0; i < c->n_layers; i++) {
        head_shape s, expected = { c->full_head_dim, c->full_head_dim, c->full_kv_heads };
        bool full = !config_layer_window(c, i);
        TRY(read_layer_heads(c, w, i, &s));
        if (full && !any) {
            c->full_head_dim = s.qk_dim;
            c->full_kv_heads = s.kv_heads;
            expected = s;
        }
        any = any || full;
        if (memcmp(&s, full ? &expected : &usual, sizeof s) != 0)
            return fail(
                PESC_UNSUPPORTED,
                "%s: per_layer_config: layer %d has %d heads of %d for keys, expected those "
                "of the other layers of its type",
                w.file, i, s.kv_heads, s.qk_dim);
    }
    return PESC_OK;
}

static pesc_status read_full_heads(config *c, json_where w)
{
    if (!c->full_head_dim)
        return PESC_OK;
    if (!c->k_as_v || !c->full_kv_heads)
        c->full_kv_heads = c->n_kv_heads;
    if (json_has(w.object, "per_layer_config"))
        TRY(read_per_layer(c, w));
    if (c->full_head_dim % 2 || c->n_heads % c->full_kv_heads)
        return fail(
            PESC_FORMAT,
            "%s: global_head_dim: found %d heads of %d for keys, expected an even width and "
            "a number that divides num_attention_heads %d",
            w.file, c->full_kv_heads, c->full_head_dim, c->n_heads);
    for (int32_t i = 0; i < c->n_ropes; i++)
        if (c->ropes[i].kind == ROPE_LONG || c->ropes[i].kind == ROPE_DYNAMIC)
            return fail(PESC_UNSUPPORTED,
                        "%s: rope_type: depends on the length of a sequence, which pesc's %s does "
                        "not; expected default, linear, llama3, yarn or proportional",
                        w.file, c->family);
    return PESC_OK;
}

/* ---- rotation ---- */

/* All layers rotate, or none. */
static pesc_status read_position_type(config *c, json_where w)
{
    const char *type = "nope";
    TRY(json_get_str(w, "position_embedding_type", false, &type));
    if (strcmp(type, "rope") == 0)
        return PESC_OK;
    if (strcmp(type, "nope") != 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: position_embedding_type: found \"%s\", expected rope or nope", w.file,
                    type);
    c->layer_unrotated = mem_alloc((size_t)c->n_layers, 1);
    if (!c->layer_unrotated)
        return fail_nomem("reading a configuration", (size_t)c->n_layers);
    memset(c->layer_unrotated, 1, (size_t)c->n_layers);
    return PESC_OK;
}

/* SmolLM3's list has a 1 where a layer rotates, whatever its name says. Without a list every
 * no_rope_layer_interval-th layer does not. Where use_sliding_window is set, it is the layers
 * without rotation that have the window. */
static pesc_status read_unrotated(config *c, json_where w)
{
    const json_t *list = json_value(w.object, "no_rope_layers");
    if (c->rope_by_type)
        return read_position_type(c, w);
    if (!c->no_rope_interval)
        return PESC_OK;
    if (list && (!json_is_array(list) || json_array_size(list) < (size_t)c->n_layers))
        return fail(PESC_FORMAT, "%s: no_rope_layers: found %s of %zu, expected an array of %d",
                    w.file, json_kind(list), json_array_size(list), c->n_layers);
    c->layer_unrotated = mem_zalloc((size_t)c->n_layers, 1);
    if (!c->layer_unrotated)
        return fail_nomem("reading a configuration", (size_t)c->n_layers);
    for (int32_t i = 0; i < c->n_layers; i++) {
        const json_t *v = list ? json_array_get(list, (size_t)i) : NULL;
        if (v && !json_is_integer(v))
            return fail(PESC_FORMAT, "%s: no_rope_layers[%d]: found %s, expected 0 or 1", w.file, i,
                        json_kind(v));
        c->layer_unrotated[i] = v ? json_integer_value(v) == 0 : (i + 1) % c->no_rope_interval == 0;
        if (c->layer_windowed && !json_has(w.object, "layer_types"))
            c->layer_windowed[i] = c->layer_unrotated[i];
    }
    return PESC_OK;
}

/* ---- dense layers of a mixture ---- */

/* One word a layer, which takes the place of first_k_dense_replace. */
static pesc_status read_mlp_layer_types(config *c, json_where w)
{
    static const layer_words words = { "mlp_layer_types", "sparse", NULL, "dense" };
    c->layer_dense = mem_zalloc((size_t)c->n_layers, 1);
    if (!c->layer_dense)
        return fail_nomem("reading a configuration", (size_t)c->n_layers);
    c->first_sparse = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        bool dense;
        TRY(layer_words_read(c, w, words, i, &dense));
        c->layer_dense[i] = dense;
    }
    return PESC_OK;
}

static pesc_status read_dense_layers(config *c, json_where w)
{
    const char *key = "mlp_only_layers";
    const json_t *list = json_value(w.object, key), *v;
    size_t i;
    if (json_has(w.object, "mlp_layer_types") && config_experts(c)->kind == EXPERT_FFN)
        return read_mlp_layer_types(c, w);
    if (!list || (c->moe.kind != EXPERT_FFN && c->moe.kind != EXPERT_ADAPTER))
        return PESC_OK;
    if (!json_is_array(list))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected an array", w.file, key,
                    json_kind(list));
    c->layer_dense = mem_zalloc((size_t)c->n_layers, 1);
    if (!c->layer_dense)
        return fail_nomem("reading a configuration", (size_t)c->n_layers);
    json_array_foreach(list, i, v)
    {
        json_int_t l = json_is_integer(v) ? json_integer_value(v) : -1;
        if (l < 0 || l >= c->n_layers)
            return fail(PESC_FORMAT, "%s: %s[%zu]: expected a layer, 0 to %d", w.file, key, i,
                        c->n_layers - 1);
        c->layer_dense[l] = 1;
    }
    return PESC_OK;
}

/* ---- layers that share keys and values ---- */

static pesc_status check_shared(const config *c, const char *file)
{
    const int32_t own = c->n_layers - c->n_kv_shared;
    bool kinds[2] = { false, false };
    if (own <= 0)
        return fail(PESC_FORMAT,
                    "%s: num_kv_shared_layers: found %d, expected fewer than the %d layers", file,
                    c->n_kv_shared, c->n_layers);
    for (int32_t i = 0; i < c->n_layers; i++) {
        const int kind = config_layer_window(c, i) != 0;
        if (i >= own && !kinds[kind])
            return fail(PESC_FORMAT,
                        "%s: num_kv_shared_layers: layer %d shares the keys of an earlier layer of "
                        "its type, but none of the first %d is a %s layer",
                        file, i, own, kind ? "sliding_attention" : "full_attention");
        kinds[kind] = true;
    }
    return PESC_OK;
}

pesc_status layer_kinds_read(config *c, json_where w)
{
    TRY(read_windows(c, w));
    TRY(check_shared(c, w.file));
    TRY(read_full_heads(c, w));
    TRY(read_unrotated(c, w));
    return read_dense_layers(c, w);
}
