/* Values that satisfy a list of schemas: what the keywords ask for together, and a part of the rule
 * for each type that is left. With enum or const the values are written out, those that satisfy
 * the rest. */
#include "base/mem.h"
#include "grammar/schemaparts.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double schema_number(const json_t *v)
{
    return json_number_value(v);
}

/* ---- keywords ---- */

static unsigned type_named(const json_t *v)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = { { "null", TYPE_NULL },       { "boolean", TYPE_BOOLEAN },
                  { "integer", TYPE_INTEGER }, { "number", TYPE_INTEGER | TYPE_REAL },
                  { "string", TYPE_STRING },   { "array", TYPE_ARRAY },
                  { "object", TYPE_OBJECT } };
    const char *name = json_string_value(v);
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return 0;
}

static void take_type(schema_writer *w, subschema s, const json_t *v, limits *l)
{
    unsigned types = type_named(v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        unsigned one = type_named(json_array_get(v, i));
        if (!one)
            schema_fail(w, PESC_FORMAT, s.path, "type: one of the list is no type");
        types |= one;
    }
    if (!types)
        schema_fail(w, PESC_FORMAT, s.path,
                    "type: found %.60s, expected null, boolean, integer, number, string, array or "
                    "object, or a list of them",
                    json_is_string(v) ? json_string_value(v) : json_kind(v));
    l->types &= types;
}

/* A count; a maximum keeps the smallest, a minimum the largest one. Above the limit a minimum is
 * refused, and a maximum cannot be enforced. */
static void take_count(schema_writer *w, subschema s, const char *key, const json_t *v, int64_t *to,
                       bool max)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || x < 0 || x != floor(x)) {
        schema_fail(w, PESC_FORMAT, s.path, "%s: found %s, expected an integer of at least 0", key,
                    json_is_number(v) ? "another number" : json_kind(v));
    } else if (x > SCHEMA_MAX_COUNT) {
        char why[64];
        snprintf(why, sizeof why, "it is more than %d", SCHEMA_MAX_COUNT);
        schema_cannot(w, s.path, key, why);
    } else if (max) {
        *to = *to < 0 || (int64_t)x < *to ? (int64_t)x : *to;
    } else {
        *to = (int64_t)x > *to ? (int64_t)x : *to;
    }
}

static void take_bound(schema_writer *w, subschema s, const char *key, const json_t *v, limits *l)
{
    bool open = key[0] == 'e', lower = strstr(key, "inimum") != NULL;
    const json_t **at = lower ? &l->lo : &l->hi;
    bool *at_open = lower ? &l->lo_open : &l->hi_open;
    if (!json_is_number(v)) {
        schema_fail(w, PESC_FORMAT, s.path, "%s: found %s, expected a number", key, json_kind(v));
        return;
    }
    double x = schema_number(v), old = *at ? schema_number(*at) : 0;
    bool tighter = !*at || (lower ? x > old : x < old) || (x == old && open);
    if (tighter) {
        *at = v;
        *at_open = open;
    }
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static void take_multiple(schema_writer *w, subschema s, const json_t *v, limits *l)
{
    enum { MOST = 1024 };
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x > 0))
        schema_fail(w, PESC_FORMAT, s.path, "multipleOf: expected a number above 0");
    else if (x != floor(x) || x > MOST)
        schema_cannot(w, s.path, "multipleOf", "it is no integer of at most 1024");
    else {
        int64_t m = common_multiple(l->multiple ? l->multiple : 1, (int64_t)x);
        if (m > MOST)
            schema_cannot(w, s.path, "multipleOf", "with others it is more than 1024");
        else
            l->multiple = m;
    }
}

static void take_keyword(schema_writer *w, subschema s, const char *key, const json_t *v, limits *l)
{
    const struct {
        const char *key;
        int64_t *to;
    } counts[] = {
        { "minLength", &l->min_length },         { "maxLength", &l->max_length },
        { "minItems", &l->min_items },           { "maxItems", &l->max_items },
        { "minProperties", &l->min_properties }, { "maxProperties", &l->max_properties }
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(key, counts[i].key) == 0)
            take_count(w, s, key, v, counts[i].to, i % 2);
    if (strcmp(key, "type") == 0)
        take_type(w, s, v, l);
    else if (strcmp(key, "multipleOf") == 0)
        take_multiple(w, s, v, l);
    else if (strstr(key, "inimum") || strstr(key, "aximum"))
        take_bound(w, s, key, v, l);
}

static limits find_limits(schema_writer *w, const all_of *of)
{
    const char *key;
    json_t *v;
    limits l = { .types = TYPE_ANY, .max_length = -1, .max_items = -1, .max_properties = -1 };
    for (size_t i = 0; i < of->n; i++)
        json_object_foreach((json_t *)of->all[i].v, key, v)
        {
            take_keyword(w, of->all[i], key, v, &l);
        }
    return l;
}

/* ---- enum and const ---- */

/* As JSON Schema compares: 1 and 1.0 are equal. */
static bool same_value(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *x;
    if (json_is_number(a) && json_is_number(b)) {
        if (json_is_integer(a) && json_is_integer(b))
            return json_integer_value(a) == json_integer_value(b);
        return json_number_value(a) == json_number_value(b);
    }
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        size_t n = json_array_size(a);
        for (size_t i = 0; i < n && n == json_array_size(b); i++)
            if (!same_value(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return n == json_array_size(b);
    }
    if (!json_is_object(a))
        return json_equal(a, b);
    json_object_foreach((json_t *)a, key, x)
    {
        const json_t *y = json_object_get(b, key);
        if (!y || !same_value(x, y))
            return false;
    }
    return json_object_size(a) == json_object_size(b);
}

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL: {
        double x = json_real_value(v);
        return x == floor(x) ? TYPE_INTEGER : TYPE_REAL;
    }
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

static bool number_fits(const limits *l, const json_t *v)
{
    double x = schema_number(v);
    double lo = l->lo ? schema_number(l->lo) : -INFINITY;
    double hi = l->hi ? schema_number(l->hi) : INFINITY;
    return (l->lo_open ? x > lo : x >= lo) && (l->hi_open ? x < hi : x <= hi) &&
           (!l->multiple || fmod(x, (double)l->multiple) == 0);
}

/* Keywords of arrays and objects are not compared with values that are written out. */
static void refuse_parts(schema_writer *w, const all_of *of, unsigned type)
{
    static const char *const words[][8] = {
        { "items", "prefixItems", "additionalItems", "minItems", "maxItems" },
        { "properties", "required", "additionalProperties", "patternProperties", "minProperties",
          "maxProperties" }
    };
    const char *const *all = words[type == TYPE_OBJECT];
    for (size_t i = 0; i < of->n; i++)
        for (size_t k = 0; k < 8 && all[k]; k++)
            if (json_object_get(of->all[i].v, all[k]))
                schema_cannot(w, of->all[i].path, all[k],
                              "enum and const beside it have values of that type");
}

static bool value_fits(schema_writer *w, const all_of *of, const limits *l, const json_t *v)
{
    unsigned type = type_of(v);
    if (!(l->types & type))
        return false;
    if (type & (TYPE_INTEGER | TYPE_REAL))
        return number_fits(l, v);
    if (type == TYPE_STRING)
        return schema_text_fits(w, of, l, v);
    if (type & (TYPE_ARRAY | TYPE_OBJECT))
        refuse_parts(w, of, type);
    return true;
}

static void blank(schema_writer *w, uint32_t from, uint32_t to)
{
    rules_call(w->r, from, to, w->blank);
}

static void write_const(schema_writer *w, const json_t *v, rule_span at);

/* A number in its shortest form; one that is an integer also with .0, if it was written so. */
static void write_const_number(schema_writer *w, const json_t *v, rule_span at)
{
    char text[64];
    double x = json_number_value(v);
    if (json_is_integer(v)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    } else {
        for (int digits = 1; digits <= DBL_DECIMAL_DIG; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, x);
            if (strtod(text, NULL) == x)
                break;
        }
        if (x == floor(x) && fabs(x) < 1e15) {
            snprintf(text, sizeof text, "%.1f", x);
            rules_text(w->r, at.start, at.end, text, strlen(text) - 2);
        }
    }
    rules_text(w->r, at.start, at.end, text, strlen(text));
}

/* [ items ] or { names: items }, with blanks where they may be. */
static void write_const_list(schema_writer *w, const json_t *v, rule_span at)
{
    rules *r = w->r;
    const char *key = "";
    json_t *x;
    bool object = json_is_object(v);
    size_t n = object ? json_object_size(v) : json_array_size(v), i = 0;
    void *iter = json_object_iter((json_t *)v);
    uint32_t open = rules_node(r), from = rules_node(r);
    rules_text(r, at.start, open, object ? "{" : "[", 1);
    blank(w, open, from);
    for (; i < n && r->status == PESC_OK; i++) {
        uint32_t a = rules_node(r), b = rules_node(r), next = rules_node(r), c = from;
        x = object ? json_object_iter_value(iter) : json_array_get(v, i);
        if (object) {
            uint32_t d = rules_node(r), e = rules_node(r);
            key = json_object_iter_key(iter);
            c = rules_node(r);
            spell_json_string(r, (rule_span){ from, d }, key, strlen(key));
            blank(w, d, e);
            rules_text(r, e, a, ":", 1);
            blank(w, a, c);
            a = rules_node(r);
            iter = json_object_iter_next((json_t *)v, iter);
        }
        write_const(w, x, (rule_span){ c, a });
        blank(w, a, b);
        if (i + 1 == n) {
            from = b;
            break;
        }
        uint32_t comma = rules_node(r);
        rules_text(r, b, comma, ",", 1);
        blank(w, comma, next);
        from = next;
    }
    rules_text(r, from, at.end, object ? "}" : "]", 1);
}

static void write_const(schema_writer *w, const json_t *v, rule_span at)
{
    const char *word = json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false";
    if (json_is_array(v) || json_is_object(v))
        write_const_list(w, v, at);
    else if (json_is_string(v))
        spell_json_string(w->r, at, json_string_value(v), json_string_length(v));
    else if (json_is_number(v))
        write_const_number(w, v, at);
    else
        rules_text(w->r, at.start, at.end, word, strlen(word));
}

/* The values of enum or const of a schema; n 1 and not an array: const. */
static const json_t *values_of(schema_writer *w, subschema s, const char *key)
{
    const json_t *v = json_object_get(s.v, key);
    if (v && key[0] == 'e' && !json_is_array(v))
        schema_fail(w, PESC_FORMAT, s.path, "enum: found %s, expected an array", json_kind(v));
    return v;
}

static bool has_value(const json_t *list, bool is_enum, const json_t *v)
{
    if (!is_enum)
        return same_value(list, v);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (same_value(json_array_get(list, i), v))
            return true;
    return false;
}

/* Whether every enum and const of the list has the value. */
static bool named_everywhere(const all_of *of, const json_t *v)
{
    for (size_t i = 0; i < of->n; i++) {
        const json_t *c = json_object_get(of->all[i].v, "const");
        const json_t *e = json_object_get(of->all[i].v, "enum");
        if ((c && !has_value(c, false, v)) || (e && !has_value(e, true, v)))
            return false;
    }
    return true;
}

/* True: the list has enum or const, and their values are written. */
static bool write_values(schema_writer *w, const all_of *of, const limits *l, rule_span at)
{
    const json_t *first = NULL;
    bool is_enum = false;
    for (size_t i = 0; i < of->n && !first; i++) {
        is_enum = json_object_get(of->all[i].v, "const") == NULL;
        first = values_of(w, of->all[i], is_enum ? "enum" : "const");
    }
    if (!first)
        return false;
    size_t n = is_enum ? json_array_size(first) : 1;
    for (size_t i = 0; i < n && w->r->status == PESC_OK; i++) {
        const json_t *v = is_enum ? json_array_get(first, i) : first;
        if (named_everywhere(of, v) && value_fits(w, of, l, v))
            write_const(w, v, at);
    }
    return true;
}

/* ---- types ---- */

void schema_write_value(schema_writer *w, const all_of *of, rule_span at)
{
    rules *r = w->r;
    limits l = find_limits(w, of);
    if (r->status != PESC_OK || write_values(w, of, &l, at))
        return;
    if (l.types & TYPE_OBJECT)
        schema_write_object(w, of, &l, at);
    if (l.types & TYPE_ARRAY)
        schema_write_array(w, of, &l, at);
    if (l.types & TYPE_STRING)
        schema_write_text(w, of, &l, at);
    if (l.types & (TYPE_INTEGER | TYPE_REAL))
        schema_write_number(w, &l, at);
    if (l.types & TYPE_BOOLEAN) {
        rules_text(r, at.start, at.end, "true", 4);
        rules_text(r, at.start, at.end, "false", 5);
    }
    if (l.types & TYPE_NULL)
        rules_text(r, at.start, at.end, "null", 4);
}
