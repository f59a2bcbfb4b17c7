/* Typed questions to the metadata of a GGUF file (see gguf_file.h). */
#include "format/gguf_file.h"

#include <math.h>
#include <string.h>

/* Element i as an integer; false when the type is none or the number does not fit. */
static bool integer_at(const gguf_value *v, size_t i, int64_t *out)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } n;
    static const size_t sizes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_U64] = 8, [GGUF_I64] = 8,
    };
    size_t size = sizes[v->type];
    memcpy(&n, v->data + i * size, size);
    switch (v->type) {
    case GGUF_U8:
        *out = n.u8;
        return true;
    case GGUF_I8:
        *out = n.i8;
        return true;
    case GGUF_U16:
        *out = n.u16;
        return true;
    case GGUF_I16:
        *out = n.i16;
        return true;
    case GGUF_U32:
        *out = n.u32;
        return true;
    case GGUF_I32:
        *out = n.i32;
        return true;
    case GGUF_I64:
        *out = n.i64;
        return true;
    case GGUF_U64:
        *out = n.u64 <= INT64_MAX ? (int64_t)n.u64 : INT64_MAX;
        return true;
    default:
        return false;
    }
}

static pesc_status wrong_type(const gguf *g, const gguf_value *v, const char *expected)
{
    return fail(PESC_FORMAT, "%s: %.*s: found type %s%s, expected %s", g->path, (int)v->key.n,
                v->key.p, v->array ? "array of " : "", gguf_type_name(v->type), expected);
}

void gguf_text_of(const gguf *g, const char *key, char *out, size_t n)
{
    const gguf_value *v = gguf_find(g, key);
    gguf_text text = { "", 0 };
    if (v && !v->array && v->type == GGUF_STRING)
        (void)gguf_get_text(g, key, true, &text);
    size_t take = text.n < n ? text.n : n - 1;
    memcpy(out, text.p, take);
    out[take] = '\0';
}

static pesc_status absent(const gguf *g, const char *key)
{
    return fail(PESC_FORMAT, "%s: the metadata key %s is missing", g->path, key);
}

/* An array stands for one number when it has one entry a layer and all are equal. */
static pesc_status check_layers(const gguf *g, const gguf_value *v, gguf_range r)
{
    int64_t first, other;
    if (!r.n_layers)
        return wrong_type(g, v, "one integer");
    if (v->count != (uint64_t)r.n_layers)
        return fail(PESC_FORMAT,
                    "%s: %.*s: found %zu entries, expected one for each of %lld layers", g->path,
                    (int)v->key.n, v->key.p, v->count, (long long)r.n_layers);
    if (!integer_at(v, 0, &first))
        return wrong_type(g, v, "integers");
    for (size_t i = 1; i < v->count; i++)
        if (!integer_at(v, i, &other) || other != first)
            return fail(PESC_UNSUPPORTED,
                        "%s: %.*s: layer %zu has another value than layer 0; pesc reads models "
                        "whose layers are alike",
                        g->path, (int)v->key.n, v->key.p, i);
    return PESC_OK;
}

pesc_status gguf_get_int(const gguf *g, const char *key, gguf_range r, int64_t *out)
{
    const gguf_value *v = gguf_find(g, key);
    int64_t n;
    if (!v)
        return r.required ? absent(g, key) : PESC_OK;
    if (v->array)
        TRY(check_layers(g, v, r));
    if (!integer_at(v, 0, &n))
        return wrong_type(g, v, "an integer");
    if (n < r.min || n > r.max)
        return fail(PESC_FORMAT, "%s: %s: found %lld, expected %lld to %lld", g->path, key,
                    (long long)n, (long long)r.min, (long long)r.max);
    *out = n;
    return PESC_OK;
}

pesc_status gguf_get_real(const gguf *g, const char *key, bool required, double *out)
{
    const gguf_value *v = gguf_find(g, key);
    double x;
    float f;
    if (!v)
        return required ? absent(g, key) : PESC_OK;
    if (v->array || (v->type != GGUF_F32 && v->type != GGUF_F64))
        return wrong_type(g, v, "f32 or f64");
    if (v->type == GGUF_F32) {
        memcpy(&f, v->data, sizeof f);
        x = (double)f;
    } else {
        memcpy(&x, v->data, sizeof x);
    }
    if (!isfinite(x))
        return fail(PESC_FORMAT, "%s: %s: is not a finite number", g->path, key);
    *out = x;
    return PESC_OK;
}

pesc_status gguf_get_bool(const gguf *g, const char *key, bool *out)
{
    const gguf_value *v = gguf_find(g, key);
    if (!v)
        return PESC_OK;
    if (v->array || v->type != GGUF_BOOL)
        return wrong_type(g, v, "bool");
    *out = v->data[0] != 0;
    return PESC_OK;
}

pesc_status gguf_get_text(const gguf *g, const char *key, bool required, gguf_text *out)
{
    const gguf_value *v = gguf_find(g, key);
    uint64_t n;
    if (!v)
        return required ? absent(g, key) : PESC_OK;
    if (v->array || v->type != GGUF_STRING)
        return wrong_type(g, v, "string");
    memcpy(&n, v->data, sizeof n);
    *out = (gguf_text){ (const char *)v->data + sizeof n, (size_t)n };
    return PESC_OK;
}

pesc_status gguf_get_layers(const gguf *g, const char *key, int64_t n_layers, int64_t *out)
{
    const gguf_value *v = gguf_find(g, key);
    if (!v)
        return PESC_OK;
    if (v->array && v->count != (uint64_t)n_layers)
        return fail(PESC_FORMAT, "%s: %s: found %zu entries, expected one for each of %lld layers",
                    g->path, key, v->count, (long long)n_layers);
    for (int64_t i = 0; i < n_layers; i++) {
        size_t at = v->array ? (size_t)i : 0;
        if (v->type == GGUF_BOOL)
            out[i] = v->data[at] != 0;
        else if (!integer_at(v, at, &out[i]))
            return wrong_type(g, v, "integers");
    }
    return PESC_OK;
}
