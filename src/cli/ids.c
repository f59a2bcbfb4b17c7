#include "cli/ids.h"

#include "cli/input.h"
#include "cli/num.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind(const json_t *v)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return v ? kinds[json_typeof(v)] : "nothing";
}

static pesc_status parse(const char *where, const char *text, size_t n, json_t **out)
{
    json_error_t e;
    *out = json_loadb(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    return *out ? PESC_OK
                : out_fail(PESC_FORMAT, "%s: byte %d: this is not JSON: %s", where, e.position,
                           e.text);
}

static pesc_status copy_ids(const char *where, const json_t *array, int32_t *out)
{
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v)
    {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
            return out_fail(PESC_FORMAT, "%s: [%zu]: found %s, expected a token id from 0 to %d",
                            where, i, json_is_integer(v) ? "a number out of range" : kind(v),
                            INT32_MAX);
        out[i] = (int32_t)id;
    }
    return PESC_OK;
}

static pesc_status allocate(const char *where, ids_table *t, size_t n_seqs, size_t n_each)
{
    size_t n;
    t->n_seqs = n_seqs;
    t->n_each = n_each;
    if (!__builtin_mul_overflow(n_seqs, n_each, &n))
        t->ids = calloc(n ? n : 1, sizeof *t->ids);
    return t->ids ? PESC_OK : out_nomem(where);
}

static pesc_status fill(const char *where, const json_t *v, ids_table *t)
{
    if (json_is_object(v))
        v = json_object_get(v, json_object_get(v, "ids") ? "ids" : "input_ids");
    if (!json_is_array(v))
        return out_fail(PESC_FORMAT, "%s: found %s, expected an array of token ids", where,
                        kind(v));
    t->nested = json_is_array(json_array_get(v, 0));
    if (!t->nested) {
        TRY(allocate(where, t, 1, json_array_size(v)));
        return copy_ids(where, v, t->ids);
    }
    size_t n = json_array_size(json_array_get(v, 0));
    TRY(allocate(where, t, json_array_size(v), n));
    for (size_t i = 0; i < t->n_seqs; i++) {
        const json_t *row = json_array_get(v, i);
        if (!json_is_array(row) || json_array_size(row) != n)
            return out_fail(PESC_FORMAT,
                            "%s: [%zu]: found %s of length %zu, expected an array of "
                            "length %zu as the first",
                            where, i, kind(row), json_array_size(row), n);
        TRY(copy_ids(where, row, t->ids + i * n));
    }
    return PESC_OK;
}

/* Frees what a failed reading left. */
static pesc_status settle(pesc_status st, ids_table *t)
{
    if (st != PESC_OK) {
        free(t->ids);
        *t = (ids_table){ 0 };
    }
    return st;
}

pesc_status ids_from_json(const char *where, const char *text, size_t n, ids_table *out)
{
    json_t *v;
    *out = (ids_table){ 0 };
    TRY(parse(where, text, n, &v));
    pesc_status st = fill(where, v, out);
    json_decref(v);
    return settle(st, out);
}

pesc_status ids_read_json(const char *path, ids_table *out)
{
    char *text;
    size_t n;
    *out = (ids_table){ 0 };
    TRY(input_read(path, &text, &n));
    pesc_status st = ids_from_json(input_name(path), text, n, out);
    free(text);
    return st;
}

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip(const char *text, size_t n, size_t at, bool separators)
{
    while (at < n && is_separator(text[at]) == separators)
        at++;
    return at;
}

static pesc_status scan(const char *where, const char *text, size_t n, int32_t *out, size_t *count)
{
    *count = 0;
    for (size_t at = skip(text, n, 0, true), end; at < n; at = skip(text, n, end, true)) {
        int64_t id;
        end = skip(text, n, at, false);
        if (!num_int(text + at, end - at, 0, INT32_MAX, &id))
            return out_fail(PESC_FORMAT,
                            "%s: byte %zu: found \"%.*s\", expected a token id from 0 to %d", where,
                            at, (int)(end - at < 40 ? end - at : 40), text + at, INT32_MAX);
        out[(*count)++] = (int32_t)id;
    }
    return PESC_OK;
}

pesc_status ids_from_text(const char *where, const char *text, size_t n, ids_table *out)
{
    size_t first = skip(text, n, 0, true);
    if (first < n && (text[first] == '[' || text[first] == '{'))
        return ids_from_json(where, text, n, out);
    *out = (ids_table){ 0 };
    pesc_status st = allocate(where, out, 1, n / 2 + 1); /* an id and its separator: two bytes */
    if (st == PESC_OK)
        st = scan(where, text, n, out->ids, &out->n_each);
    return settle(st, out);
}

pesc_status ids_json_string(const char *where, const char *text, size_t n, char **out, size_t *len)
{
    json_t *v;
    TRY(parse(where, text, n, &v));
    pesc_status st = PESC_OK;
    *out = NULL;
    if (!json_is_string(v)) {
        st = out_fail(PESC_FORMAT, "%s: found %s, expected a string", where, kind(v));
    } else {
        *len = json_string_length(v);
        *out = malloc(*len + 1);
        if (*out)
            memcpy(*out, json_string_value(v), *len + 1);
        else
            st = out_nomem(where);
    }
    json_decref(v);
    return st;
}

pesc_status ids_encode(const pesc_tokenizer *t, const char *text, size_t n, unsigned flags,
                       int32_t **ids, size_t *count)
{
    /* Almost always a token has a byte or more, so that the first call is the only one. */
    size_t cap = n + 64;
    *ids = NULL;
    for (;;) {
        int32_t *more = realloc(*ids, cap * sizeof *more);
        if (!more) {
            free(*ids);
            *ids = NULL;
            return out_nomem("the ids of the text");
        }
        *ids = more;
        pesc_status st = pesc_tokenize(t, text, n, flags, *ids, cap, count);
        if (st != PESC_OK || *count <= cap) {
            if (st != PESC_OK) {
                free(*ids);
                *ids = NULL;
            }
            return st;
        }
        cap = *count;
    }
}
