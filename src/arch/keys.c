#include "arch/keys.h"

#include <math.h>
#include <string.h>

/* One spelling of a key row, for messages and look-up. */
typedef struct spelling {
    char name[64];
} spelling;

static const char *next_spelling(const char *names, spelling *out)
{
    size_t n = strcspn(names, "|");
    ASSERT(n < sizeof out->name);
    memcpy(out->name, names, n);
    out->name[n] = '\0';
    return names[n] ? names + n + 1 : NULL;
}

/* A number for each layer is one number where all are equal. */
static pesc_status read_list(json_where w, const char *key, const json_t *list, double *out)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_equal(json_array_get(list, i), json_array_get(list, 0)))
            return fail(PESC_UNSUPPORTED,
                        "%s: %s: found numbers that differ from layer to layer, expected one",
                        w.file, key);
    if (!json_is_integer(json_array_get(list, 0)))
        return fail(PESC_FORMAT, "%s: %s: found a list without integers, expected an integer",
                    w.file, key);
    *out = (double)json_integer_value(json_array_get(list, 0));
    return PESC_OK;
}

/* LLLG: three layers with a window, then one without. */
static pesc_status read_period(json_where w, const char *key, const char *letters, double *out)
{
    size_t n = strspn(letters, "L");
    if (strcmp(letters + n, "G") != 0)
        return fail(PESC_UNSUPPORTED, "%s: %s: found \"%s\", expected a number or letters as LLLG",
                    w.file, key, letters);
    *out = (double)n + 1;
    return PESC_OK;
}

static pesc_status read_number(json_where w, const char *key, const config_key *k, double *out)
{
    const json_t *v = json_value(w.object, key);
    if (k->kind == KEY_BOOL || k->kind == KEY_SWITCH || k->kind == KEY_TRUE) {
        bool b = false;
        TRY(json_get_bool(w, key, true, &b));
        *out = b;
        if (k->kind == KEY_TRUE && !b)
            return fail(PESC_UNSUPPORTED, "%s: %s: found false, expected true", w.file, key);
    } else if (k->kind == KEY_LIST && json_is_array(v)) {
        TRY(read_list(w, key, v, out));
        if (*out < k->min || *out > k->max)
            return fail(PESC_FORMAT, "%s: %s: found %.0f, expected %.0f to %.0f", w.file, key, *out,
                        k->min, k->max);
    } else if (k->kind == KEY_PERIOD && json_is_string(v)) {
        TRY(read_period(w, key, json_string_value(v), out));
    } else if (k->kind == KEY_I32 || k->kind == KEY_LIST || k->kind == KEY_PERIOD) {
        int64_t i = 0;
        TRY(json_get_i64(w, key, true, (int64_t)k->min, (int64_t)k->max, &i));
        *out = (double)i;
    } else {
        TRY(json_get_f64(w, key, true, out));
        if (*out < k->min || *out > k->max)
            return fail(PESC_FORMAT, "%s: %s: found %g, expected %g to %g", w.file, key, *out,
                        k->min, k->max);
    }
    return PESC_OK;
}

static void store(config *c, const config_key *k, double v)
{
    char *at = (char *)c + k->offset;
    switch (k->kind) {
    case KEY_I32:
    case KEY_LIST:
    case KEY_PERIOD:
        *(int32_t *)(void *)at = (int32_t)v;
        break;
    case KEY_F32:
        *(float *)(void *)at = (float)v;
        break;
    case KEY_BOOL:
        *(bool *)(void *)at = v != 0;
        break;
    case KEY_SWITCH:
        *(uint32_t *)(void *)at = v != 0;
        break;
    case KEY_TRUE:
        break;
    }
}

static pesc_status read_key(config *c, json_where w, const config_key *k)
{
    spelling s, found = { "" };
    double v = k->def, first = 0;
    for (const char *rest = k->names; rest;) {
        rest = next_spelling(rest, &s);
        bool off = k->absence == KEY_NULLABLE && json_is_null(json_object_get(w.object, s.name));
        if (!off && !json_has(w.object, s.name))
            continue;
        v = 0;
        if (!off)
            TRY(read_number(w, s.name, k, &v));
        if (found.name[0] && v != first)
            return fail(PESC_FORMAT, "%s: %s: found %g, but %s says %g", w.file, s.name, v,
                        found.name, first);
        found = s;
        first = v;
    }
    if (!found.name[0] && k->absence == KEY_REQUIRED) {
        next_spelling(k->names, &s);
        return fail(PESC_FORMAT, "%s: %s: is missing", w.file, s.name);
    }
    store(c, k, v);
    return PESC_OK;
}

pesc_status keys_read(config *c, json_where w, const config_key *keys)
{
    for (const config_key *k = keys; k && k->names; k++)
        TRY(read_key(c, w, k));
    return PESC_OK;
}

static bool table_has(const config_key *keys, const char *key)
{
    spelling s;
    for (const config_key *k = keys; k && k->names; k++)
        for (const char *rest = k->names; rest;) {
            rest = next_spelling(rest, &s);
            if (strcmp(s.name, key) == 0)
                return true;
        }
    return false;
}

static bool family_reads(const family *f, const char *key)
{
    for (int i = 0; i < FAMILY_MAX_TABLES; i++)
        if (table_has(f->keys[i], key))
            return true;
    return false;
}

/* ---- keys that change the function ---- */

/* Accepted only with the value that means "off"; NAN: only null. A family that reads the key
 * itself, or the one by which it is read as a list, is not asked. */
static const struct {
    const char *key;
    double off;
    const char *list_of;
} guards[] = {
    { "attention_bias", 0, NULL },
    { "mlp_bias", 0, NULL },
    { "partial_rotary_factor", 1, NULL },
    { "rotary_pct", 1, NULL },
    { "clip_qkv", NAN, NULL },
    { "attn_logit_softcapping", NAN, NULL },
    { "final_logit_softcapping", NAN, NULL },
    { "query_pre_attn_scalar", NAN, NULL },
    { "embedding_multiplier", 1, NULL },
    { "residual_multiplier", 1, NULL },
    { "attention_multiplier", 1, NULL },
    { "logits_scaling", 1, NULL },
    { "logit_scale", 1, NULL },
    { "attention_sinks", 0, NULL },
    { "hidden_size_per_layer_input", 0, NULL },
    { "num_kv_shared_layers", 0, NULL },
    { "enable_moe_block", 0, NULL },
    { "use_qk_norm", 0, NULL },
    { "use_bias", 0, NULL },
    { "swiglu_limit", 7, NULL },
    { "swiglu_alpha", 1.702, NULL },
    { "no_rope_layers", NAN, "no_rope_layer_interval" },
    { "num_nextn_predict_layers", 0, NULL },
};

/* With "vision" the tokens of a picture see each other, and text is as ever. */
static pesc_status guard_direction(const family *f, json_where w)
{
    const json_t *v = json_value(w.object, "use_bidirectional_attention");
    if (!v || json_is_false(v) ||
        (json_is_string(v) && strcmp(json_string_value(v), "vision") == 0))
        return PESC_OK;
    return fail(PESC_UNSUPPORTED,
                "%s: use_bidirectional_attention: is set, but pesc's %s has no such thing and "
                "would compute something else",
                w.file, f->name);
}

pesc_status keys_guard(const family *f, json_where w)
{
    TRY(guard_direction(f, w));
    for (size_t i = 0; i < sizeof guards / sizeof *guards; i++) {
        const json_t *v = json_value(w.object, guards[i].key);
        const char *list_of = guards[i].list_of;
        if (!v || family_reads(f, guards[i].key) || (list_of && family_reads(f, list_of)))
            continue;
        bool off = json_is_boolean(v)  ? json_is_true(v) == (guards[i].off == 1)
                   : json_is_number(v) ? json_number_value(v) == guards[i].off
                                       : json_is_array(v) && json_array_size(v) == 0;
        if (!off)
            return fail(PESC_UNSUPPORTED,
                        "%s: %s: is set, but pesc's %s has no such thing and would compute "
                        "something else",
                        w.file, guards[i].key, f->name);
    }
    return PESC_OK;
}
