#include "eval/functioncalls.h"

#include "base/str.h"
#include "chat/chat_calls.h"

#include <ctype.h>
#include <string.h>

/* ---- tools ---- */

/* A schema in which types that are named as in Python have the names of JSON Schema. Other members
 * may be called "type" too: what is below properties are names. */
static bool rename_types(json_t *schema, bool names)
{
    static const char *const types[][2] = { { "dict", "object" },
                                            { "float", "number" },
                                            { "tuple", "array" } };
    const char *type = names ? NULL : json_string_value(json_object_get(schema, "type"));
    const char *key, *other = NULL;
    json_t *v;
    size_t i;
    bool good = true, any = type && strcmp(type, "any") == 0;
    for (i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i][0]) == 0)
            other = types[i][1];
    if (other) /* ends `type` */
        good = json_object_set_new(schema, "type", json_string(other)) == 0;
    if (any)
        json_object_del(schema, "type");
    json_object_foreach(schema, key, v)
    {
        bool data = !names && (strcmp(key, "enum") == 0 || strcmp(key, "default") == 0);
        good = good && (data || rename_types(v, !names && strcmp(key, "properties") == 0));
    }
    json_array_foreach(schema, i, v)
    {
        good = good && rename_types(v, false);
    }
    return good;
}

pesc_status functioncalls_tools(const json_t *given, json_t **out)
{
    json_t *all = *out = json_array();
    bool good = all != NULL;
    if (!json_is_array(given))
        return fail(PESC_FORMAT, "tools: found %s, expected a list of functions", json_kind(given));
    for (size_t i = 0; good && i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i), *inner = json_object_get(one, "function");
        json_t *function = json_deep_copy(inner ? inner : one);
        good = rename_types(json_object_get(function, "parameters"), false) &&
               json_array_append_new(
                   all, json_pack("{s:s, s:o}", "type", "function", "function", function)) == 0;
    }
    if (!good)
        return fail_nomem("tools", 0);
    pesc_status s = tools_check(all, true);
    return s == PESC_USAGE ? fail(PESC_FORMAT, "%s", pesc_last_error()) : s;
}

/* ---- what is expected ---- */

pesc_status functioncalls_check(const json_t *expected)
{
    if (!json_is_array(expected))
        return fail(PESC_FORMAT, "the target: found %s, expected a list of calls",
                    json_kind(expected));
    for (size_t i = 0; i < json_array_size(expected); i++) {
        json_t *call = json_array_get(expected, i), *allowed;
        const char *argument;
        json_t *arguments = json_object_iter_value(json_object_iter(call));
        if (json_object_size(call) != 1 || !json_is_object(arguments))
            return fail(PESC_FORMAT,
                        "the target: call %zu: expected {\"name\": {\"argument\": [allowed value, "
                        "...]}}",
                        i + 1);
        json_object_foreach(arguments, argument, allowed)
        {
            if (json_array_size(allowed) == 0)
                return fail(PESC_FORMAT,
                            "the target: call %zu: %.80s: found %s, expected a list of allowed "
                            "values",
                            i + 1, argument, json_kind(allowed));
        }
    }
    return PESC_OK;
}

/* ---- values ---- */

/* The next byte of a text that counts, in lower case; 0: none. */
static int next_byte(const char **p, const char *end)
{
    while (*p < end && strchr(" ,./-_*^'\"", **p))
        ++*p;
    return *p < end ? tolower((unsigned char)*(*p)++) : 0;
}

static bool same_text(const json_t *a, const json_t *b)
{
    const char *p = json_string_value(a), *q = json_string_value(b);
    const char *p_end = p + json_string_length(a), *q_end = q + json_string_length(b);
    for (;;) {
        int x = next_byte(&p, p_end), y = next_byte(&q, q_end);
        if (x != y || !x)
            return x == y;
    }
}

static bool is_allowed(const json_t *value, const json_t *allowed);

/* Each member is one of its allowed values, or left out where it may be; there are no others. */
static bool same_object(const json_t *value, const json_t *allowed)
{
    const char *key;
    json_t *list;
    size_t found = 0;
    json_object_foreach((json_t *)(uintptr_t)allowed, key, list)
    {
        const json_t *v = json_object_get(value, key);
        bool optional = false;
        for (size_t i = 0; !v && i < json_array_size(list); i++)
            optional = optional || (json_is_string(json_array_get(list, i)) &&
                                    json_string_length(json_array_get(list, i)) == 0);
        if (v ? !is_allowed(v, list) : !optional)
            return false;
        found += v != NULL;
    }
    return json_is_object(value) && found == json_object_size(value);
}

static bool same_value(const json_t *value, const json_t *allowed)
{
    if (json_is_string(value) && json_is_string(allowed))
        return same_text(value, allowed);
    if (json_is_number(value) && json_is_number(allowed))
        return json_is_integer(value) && json_is_integer(allowed)
                   ? json_integer_value(value) == json_integer_value(allowed)
                   : json_number_value(value) == json_number_value(allowed);
    if (json_is_object(allowed))
        return same_object(value, allowed);
    if (!json_is_array(value) || !json_is_array(allowed))
        return json_equal(value, allowed);
    bool same = json_array_size(value) == json_array_size(allowed);
    for (size_t i = 0; same && i < json_array_size(value); i++)
        same = same_value(json_array_get(value, i), json_array_get(allowed, i));
    return same;
}

static bool is_allowed(const json_t *value, const json_t *allowed)
{
    for (size_t i = 0; i < json_array_size(allowed); i++)
        if (same_value(value, json_array_get(allowed, i)))
            return true;
    return false;
}

/* ---- calls ---- */

enum { MOST_CALLS = 64 };

static bool same_call(const json_t *call, const json_t *expected)
{
    const json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const json_t *text = json_object_get(f, "arguments");
    void *at = json_object_iter((json_t *)(uintptr_t)expected);
    json_t *arguments = NULL;
    if (strcmp(name, json_object_iter_key(at)) != 0)
        return false;
    if (json_parse_loose(&arguments, json_string_value(text), json_string_length(text),
                         "arguments") != PESC_OK) {
        status_clear();
        return false;
    }
    bool same = same_object(arguments, json_object_iter_value(at));
    json_decref(arguments);
    return same;
}

/* Finds a call for expected number i, moving those that were placed before to others (augmenting
 * paths). of: which expected call each call is for, or -1. */
static bool place(const json_t *calls, const json_t *expected, int i, int *of, bool *seen)
{
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *want = json_array_get(expected, (size_t)i);
        if (seen[k] || !same_call(json_array_get(calls, k), want))
            continue;
        seen[k] = true;
        if (of[k] < 0 || place(calls, expected, of[k], of, seen)) {
            of[k] = i;
            return true;
        }
    }
    return false;
}

bool functioncalls_match(const json_t *message, const json_t *expected)
{
    int of[MOST_CALLS];
    const json_t *calls = json_object_get(message, "tool_calls");
    size_t n = json_array_size(calls);
    bool all = n == json_array_size(expected) && n <= MOST_CALLS;
    for (size_t k = 0; k < MOST_CALLS; k++)
        of[k] = -1;
    for (size_t i = 0; all && i < n; i++)
        all = place(calls, expected, (int)i, of, (bool[MOST_CALLS]){ false });
    return all;
}
