#include "base/json.h"

#include "base/io.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* jansson's parser does not tell every failed allocation from bad input, and overlooks some: a
 * string then lacks a letter, and if that was its closing quote jansson reads on past its buffer.
 * So while it parses we remember the failure, but give it a second try at the memory and let it
 * come to an end. Its other functions report a failure as they should. */
static _Thread_local bool parsing, out_of_memory;

static void *alloc_one(size_t n)
{
    void *p = mem_alloc(n, 1);
    if (p || !parsing)
        return p;
    out_of_memory = true;
    return mem_alloc(n, 1);
}

static void use_mem(void)
{
    json_set_alloc_funcs(alloc_one, mem_free);
}

/* How a text may differ from strict JSON. jansson's complaint about an integer that does not fit is
 * an error of its own: BIG_INTEGERS gives such a text a second try with all its numbers as
 * fractions. */
enum { BIG_INTEGERS = 1, LAST_KEY = 2 };

static pesc_status parse(json_t **out, const char *text, size_t n, const char *where, unsigned how)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_mem);
    json_error_t e;
    *out = NULL;
    parsing = true;
    out_of_memory = false;
    /* JSON_ALLOW_NUL: text with \u0000 is data; a key with it is still refused by jansson. */
    size_t flags = JSON_ALLOW_NUL | (how & LAST_KEY ? 0 : JSON_REJECT_DUPLICATES);
    json_t *v = json_loadb(text, n, flags, &e);
    if (!v && how & BIG_INTEGERS && json_error_code(&e) == json_error_numeric_overflow)
        v = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, &e);
    parsing = false;
    if (out_of_memory) {
        json_decref(v);
        return fail_nomem(where, n);
    }
    if (!v)
        return fail(PESC_FORMAT, "%s: byte %d (line %d, column %d): is not JSON: %s", where,
                    e.position, e.line, e.column, e.text);
    *out = v;
    return PESC_OK;
}

pesc_status json_parse(json_t **out, const char *text, size_t n, const char *where)
{
    return parse(out, text, n, where, 0);
}

pesc_status json_parse_loose(json_t **out, const char *text, size_t n, const char *where)
{
    return parse(out, text, n, where, BIG_INTEGERS | LAST_KEY);
}

static pesc_status read_text(json_t **out, const char *path, size_t max_bytes, unsigned how)
{
    char *text;
    size_t n;
    *out = NULL;
    TRY(io_read_file(path, max_bytes, &text, &n));
    pesc_status s = parse(out, text, n, path, how);
    mem_free(text);
    return s;
}

pesc_status json_read(json_t **out, const char *path, size_t max_bytes)
{
    return read_text(out, path, max_bytes, 0);
}

pesc_status json_read_big(json_t **out, const char *path, size_t max_bytes)
{
    return read_text(out, path, max_bytes, BIG_INTEGERS);
}

const char *json_kind(const json_t *v)
{
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

const json_t *json_value(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

bool json_has(const json_t *object, const char *key)
{
    return json_value(object, key) != NULL;
}

/* *v is NULL when the key is absent and may be. */
static pesc_status find(json_where w, const char *key, bool required, const json_t **v)
{
    *v = json_value(w.object, key);
    if (!*v && required)
        return fail(PESC_FORMAT, "%s: %s: is missing", w.file, key);
    return PESC_OK;
}

pesc_status json_get_i64(json_where w, const char *key, bool required, int64_t min, int64_t max,
                         int64_t *out)
{
    const json_t *v;
    TRY(find(w, key, required, &v));
    if (!v)
        return PESC_OK;
    if (!json_is_integer(v))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected an integer", w.file, key,
                    json_kind(v));
    int64_t n = json_integer_value(v);
    if (n < min || n > max)
        return fail(PESC_FORMAT, "%s: %s: found %lld, expected %lld to %lld", w.file, key,
                    (long long)n, (long long)min, (long long)max);
    *out = n;
    return PESC_OK;
}

pesc_status json_get_f64(json_where w, const char *key, bool required, double *out)
{
    const json_t *v;
    TRY(find(w, key, required, &v));
    if (!v)
        return PESC_OK;
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected a number", w.file, key, json_kind(v));
    *out = json_number_value(v);
    return PESC_OK;
}

pesc_status json_get_bool(json_where w, const char *key, bool required, bool *out)
{
    const json_t *v;
    TRY(find(w, key, required, &v));
    if (!v)
        return PESC_OK;
    if (!json_is_boolean(v))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected true or false", w.file, key,
                    json_kind(v));
    *out = json_is_true(v);
    return PESC_OK;
}

pesc_status json_get_str(json_where w, const char *key, bool required, const char **out)
{
    const json_t *v;
    TRY(find(w, key, required, &v));
    if (!v)
        return PESC_OK;
    if (!json_is_string(v))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected a string", w.file, key, json_kind(v));
    *out = json_string_value(v);
    return PESC_OK;
}

static int put_bytes(const char *bytes, size_t n, void *out)
{
    str_add(out, bytes, n);
    return 0;
}

void json_drop_nulls(json_t *v)
{
    const char *key;
    json_t *member;
    void *next;
    json_object_foreach_safe(v, next, key, member)
    {
        if (json_is_null(member))
            json_object_del(v, key);
        else
            json_drop_nulls(member);
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        json_drop_nulls(json_array_get(v, i));
}

void json_put(str *out, const json_t *v, size_t flags)
{
    if (!v || json_dump_callback(v, put_bytes, out, flags | JSON_ENCODE_ANY) != 0)
        out->failed = true;
}
