#include "chat/chat_notation.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_SCHEMAS = 1000 };

const notation notation_python = { NULL, '=', ')', { "True", "False", "None" } };
const notation notation_gemma4 = { "<|\"|>", ':', '}', { "true", "false", "null" } };
const notation notation_functiongemma = { "<escape>", ':', '}', { "true", "false", "null" } };

json_t *notation_json(const char *text, size_t n)
{
    json_t *list = NULL, *v = NULL;
    str wrapped = { 0 };
    str_putc(&wrapped, '[');
    str_add(&wrapped, text, n);
    str_putc(&wrapped, ']');
    if (!str_ok(&wrapped) || json_parse_loose(&list, wrapped.p, wrapped.n, "a value") != PESC_OK)
        status_clear();
    if (json_array_size(list) == 1)
        v = json_incref(json_array_get(list, 0));
    json_decref(list);
    str_free(&wrapped);
    return v;
}

/* ---- literals ---- */

typedef struct literals {
    const notation *n;
    const char *quote;
    const char *p, *end;
    int depth;
} literals;

static json_t *read_literal(literals *r);

static void skip_blanks(literals *r)
{
    while (r->p < r->end && strchr(" \t\r\n", *r->p))
        r->p++;
}

static bool take(literals *r, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0)
        return false;
    r->p += n;
    return true;
}

static bool take_char(literals *r, char c)
{
    skip_blanks(r);
    return take(r, (const char[]){ c, '\0' });
}

/* A string in ' or ", whose escapes are JSON's, but for \' and a line that goes on. */
static json_t *read_quoted(literals *r, char quote)
{
    str json = { 0 };
    json_t *v = NULL;
    str_putc(&json, '"');
    while (r->p < r->end && *r->p != quote) {
        char c = *r->p++;
        bool escape = c == '\\' && r->p < r->end;
        if (escape && strchr("\"\\/bfnrtu", *r->p)) {
            str_putc(&json, c);
            str_putc(&json, *r->p++);
        } else if (escape) {
            str_puts(&json, *r->p == '\'' ? "" : "\\\\");
            str_putc(&json, *r->p++);
        } else if (c == '"') {
            str_puts(&json, "\\\"");
        } else if ((unsigned char)c < 0x20) {
            str_printf(&json, "\\u%04x", (unsigned)c);
        } else {
            str_putc(&json, c);
        }
    }
    str_putc(&json, '"');
    if (r->p < r->end && str_ok(&json))
        v = notation_json(json.p, json.n);
    r->p += r->p < r->end;
    str_free(&json);
    return v;
}

static json_t *read_string(literals *r)
{
    if (!r->quote) {
        char quote = *r->p;
        r->p++;
        return read_quoted(r, quote);
    }
    size_t n = strlen(r->quote);
    const char *from = r->p + n;
    const char *to = from <= r->end ? memmem(from, (size_t)(r->end - from), r->quote, n) : NULL;
    r->p = to ? to + n : r->end;
    return to ? json_stringn(from, (size_t)(to - from)) : NULL;
}

/* A name of an argument, or a key of an object: bare, or as a string. */
static bool read_key(literals *r, str *key)
{
    skip_blanks(r);
    bool quoted = r->p < r->end && (r->quote ? *r->p == *r->quote : *r->p == '"' || *r->p == '\'');
    if (quoted) {
        json_t *v = read_string(r);
        if (v)
            str_add(key, json_string_value(v), json_string_length(v));
        json_decref(v);
        return v && str_ok(key);
    }
    const char *from = r->p;
    while (r->p < r->end && !strchr(" \t\r\n=:,{}[]()\"'", *r->p))
        r->p++;
    str_add(key, from, (size_t)(r->p - from));
    return r->p > from && str_ok(key);
}

/* Pairs up to the character that closes, which is not taken where the text ends. */
static json_t *read_pairs(literals *r, char assigns, char closes)
{
    json_t *v = json_object();
    bool good = v != NULL, first = true;
    for (; good && r->p < r->end && !take_char(r, closes); first = false) {
        str key = { 0 };
        skip_blanks(r);
        if (r->p == r->end && first)
            break;
        good = (first || take_char(r, ',')) && read_key(r, &key) && take_char(r, assigns);
        json_t *x = good ? read_literal(r) : NULL;
        good = x && json_object_setn_new(v, key.p, key.n, x) == 0;
        str_free(&key);
        skip_blanks(r);
    }
    if (good)
        return v;
    json_decref(v);
    return NULL;
}

static json_t *read_list(literals *r)
{
    json_t *v = json_array();
    bool good = v != NULL, closed = good && take_char(r, ']');
    while (good && !closed) {
        json_t *x = read_literal(r);
        good = x && json_array_append_new(v, x) == 0;
        closed = good && take_char(r, ']');
        good = good && (closed || take_char(r, ','));
    }
    if (good)
        return v;
    json_decref(v);
    return NULL;
}

static json_t *read_word(literals *r)
{
    static json_t *(*const make[3])(void) = { json_true, json_false, json_null };
    for (size_t i = 0; i < 3; i++)
        if (take(r, r->n->words[i]))
            return make[i]();
    size_t n = 0, left = (size_t)(r->end - r->p);
    while (n < left && strchr("+-.0123456789eE", r->p[n]))
        n++;
    json_t *v = n ? notation_json(r->p, n) : NULL;
    r->p += n;
    return v;
}

static json_t *read_literal(literals *r)
{
    json_t *v = NULL;
    skip_blanks(r);
    if (r->p == r->end || ++r->depth > MAX_DEPTH)
        return NULL;
    if (take(r, "["))
        v = read_list(r);
    else if (take(r, "{"))
        v = read_pairs(r, ':', '}');
    else if (r->quote ? *r->p == *r->quote : *r->p == '"' || *r->p == '\'')
        v = read_string(r);
    else
        v = read_word(r);
    r->depth--;
    return v;
}

bool notation_read(const notation *n, const char *quote, const char *text, size_t size, str *json)
{
    literals r = { n, quote, text, text + size, 0 };
    json_t *v = read_pairs(&r, n->assigns, n->closes);
    skip_blanks(&r);
    bool good = v && r.p == r.end;
    if (good)
        json_put(json, v, 0);
    json_decref(v);
    return good;
}

/* ---- values by their schema ---- */

enum {
    KIND_NULL = 1,
    KIND_INTEGER = 2,
    KIND_NUMBER = 4,
    KIND_BOOLEAN = 8,
    KIND_OBJECT = 16,
    KIND_ARRAY = 32,
    KIND_STRING = 64
};

static unsigned kind_of_value(const json_t *v)
{
    return json_is_null(v)      ? KIND_NULL
           : json_is_integer(v) ? KIND_INTEGER | KIND_NUMBER
           : json_is_real(v)    ? KIND_NUMBER
           : json_is_boolean(v) ? KIND_BOOLEAN
           : json_is_object(v)  ? KIND_OBJECT
           : json_is_array(v)   ? KIND_ARRAY
                                : KIND_STRING;
}

static unsigned kind_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned kind;
    } rows[] = { { "null", KIND_NULL },     { "integer", KIND_INTEGER },
                 { "number", KIND_NUMBER }, { "boolean", KIND_BOOLEAN },
                 { "object", KIND_OBJECT }, { "array", KIND_ARRAY },
                 { "string", KIND_STRING } };
    for (size_t i = 0; name && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].kind;
    return 0;
}

/* The definition that a reference within the parameters names; NULL: there is none. */
static const json_t *referred(const json_t *parameters, const char *ref)
{
    static const char *const places[] = { "$defs", "definitions" };
    const char *name = ref ? strrchr(ref, '/') : NULL;
    const json_t *v = NULL;
    for (size_t i = 0; name && !v && i < 2; i++)
        v = json_object_get(json_object_get(parameters, places[i]), name + 1);
    return v;
}

/* The types that a schema declares, 0: none. *budget: schemas that may still be looked at. */
static unsigned kinds_of(const json_t *parameters, const json_t *schema, int *budget)
{
    static const char *const unions[] = { "anyOf", "oneOf", "allOf" };
    unsigned kinds = kind_of_name(json_string_value(json_object_get(schema, "type")));
    const json_t *types = json_object_get(schema, "type"),
                 *values = json_object_get(schema, "enum");
    if (--*budget < 0)
        return 0;
    for (size_t i = 0; i < json_array_size(types); i++)
        kinds |= kind_of_name(json_string_value(json_array_get(types, i)));
    for (size_t i = 0; !kinds && i < json_array_size(values); i++)
        kinds |= kind_of_value(json_array_get(values, i));
    if (!kinds && json_object_get(schema, "const"))
        kinds = kind_of_value(json_object_get(schema, "const"));
    for (size_t i = 0; i < sizeof unions / sizeof *unions; i++) {
        const json_t *list = json_object_get(schema, unions[i]);
        for (size_t k = 0; k < json_array_size(list); k++)
            kinds |= kinds_of(parameters, json_array_get(list, k), budget);
    }
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    return ref ? kinds | kinds_of(parameters, referred(parameters, ref), budget) : kinds;
}

static unsigned kinds_of_parameter(const json_t *parameters, const char *key)
{
    return kinds_of(parameters, json_object_get(json_object_get(parameters, "properties"), key),
                    &(int){ MAX_SCHEMAS });
}

/* The value as one of the kinds; NULL: it is none of them. */
static json_t *as_kind(unsigned kinds, const char *text, size_t n)
{
    bool yes = (n == 4 && strncasecmp(text, "true", 4) == 0) || (n == 1 && *text == '1');
    bool no = (n == 5 && strncasecmp(text, "false", 5) == 0) || (n == 1 && *text == '0');
    json_t *v = notation_json(text, n);
    if (v && !json_is_string(v) && (kind_of_value(v) & kinds))
        return v;
    json_decref(v);
    return (kinds & KIND_BOOLEAN) && (yes || no) ? json_boolean(yes) : NULL;
}

json_t *notation_typed(const json_t *parameters, const char *key, const char *text, size_t n)
{
    json_t *v = as_kind(kinds_of_parameter(parameters, key), text, n);
    return v ? v : json_stringn(text, n);
}

json_t *notation_schema(const json_t *parameters, const char *key, bool *text)
{
    static const char *const places[] = { "$defs", "definitions" };
    const json_t *own = json_object_get(json_object_get(parameters, "properties"), key);
    unsigned kinds = kinds_of_parameter(parameters, key);
    *text = !kinds || (kinds & KIND_STRING);
    json_t *v = json_is_object(own) ? json_copy((json_t *)(uintptr_t)own) : NULL;
    for (size_t i = 0; v && i < 2; i++) {
        json_t *defs = json_object_get(parameters, places[i]);
        if (defs && json_object_set(v, places[i], defs) != 0) {
            json_decref(v);
            v = NULL;
        }
    }
    return v;
}
