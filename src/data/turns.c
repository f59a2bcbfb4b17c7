#include "data/turns.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static pesc_status no_memory(void)
{
    return fail_nomem("a data record", 0);
}

/* ---- roles ---- */

static const struct {
    const char *name, *role;
    bool calls; /* the text is a call, or a list of calls */
} roles[] = {
    { "human", "user", false },         { "user", "user", false },
    { "gpt", "assistant", false },      { "model", "assistant", false },
    { "bot", "assistant", false },      { "assistant", "assistant", false },
    { "system", "system", false },      { "developer", "system", false },
    { "tool", "tool", false },          { "observation", "tool", false },
    { "ipython", "tool", false },       { "tool_response", "tool", false },
    { "function", "function", false },  { "function_call", "assistant", true },
    { "tool_call", "assistant", true },
};
enum { ROLES = sizeof roles / sizeof *roles };

/* Whether a turn is marked as not trained: mask 1, train false or weight 0. */
static pesc_status is_masked(const json_t *turn, bool *out)
{
    static const struct {
        const char *key;
        bool hides;
    } rows[] = {
        { "mask", true }, { "train", false }, { "trainable", false }, { "weight", false }
    };
    *out = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = json_object_get(turn, rows[i].key);
        double x = json_is_boolean(v)  ? json_is_true(v)
                   : json_is_number(v) ? json_number_value(v)
                                       : 2;
        if (!v || json_is_null(v))
            continue;
        if (x != 0 && x != 1)
            return fail(PESC_FORMAT, "%s: found %s, expected true, false, 1 or 0", rows[i].key,
                        json_is_number(v) ? "another number" : json_kind(v));
        *out = *out || (x == 1) == rows[i].hides;
    }
    return PESC_OK;
}

/* ---- calls ---- */

/* One call as {"id", "type", "function": {"name", "arguments"}}. Some data sets have name and
 * arguments without the object around them. Members that are null are those that the column of a
 * table has for other calls. */
static pesc_status read_call(const json_t *given, const char *field, json_t **out)
{
    json_t *inner = json_object_get(given, "function"), *id = json_object_get(given, "id");
    bool wrapped = json_is_object(inner);
    if (!text_of(wrapped ? inner : given, "name"))
        return fail(PESC_FORMAT, "%s: a call is not an object with the name of a function", field);
    json_t *call = wrapped ? json_deep_copy(given)
                           : json_pack("{sO* so}", "id", id, "function", json_deep_copy(given));
    if (!call)
        return no_memory();
    if (!wrapped)
        json_object_del(json_object_get(call, "function"), "id");
    json_drop_nulls(call);
    if (!text_of(call, "type") && json_object_set_new(call, "type", json_string("function")) != 0) {
        json_decref(call);
        return no_memory();
    }
    *out = call;
    return PESC_OK;
}

/* The calls of a message: one, a list, or JSON text of either. A new reference. */
static pesc_status read_calls(const json_t *given, const char *field, json_t **out)
{
    json_t *parsed = NULL, *list = json_array();
    pesc_status s = list ? PESC_OK : no_memory();
    if (s == PESC_OK && json_is_string(given)) {
        s = json_parse(&parsed, json_string_value(given), json_string_length(given), field);
        given = parsed;
    }
    if (s == PESC_OK && !json_is_object(given) && !json_is_array(given))
        s = fail(PESC_FORMAT, "%s: found %s, expected calls of tools", field, json_kind(given));
    size_t n = json_is_array(given) ? json_array_size(given) : 1;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        json_t *call = NULL;
        s = read_call(json_is_array(given) ? json_array_get(given, i) : given, field, &call);
        if (s == PESC_OK && json_array_append_new(list, call) != 0)
            s = no_memory();
    }
    json_decref(parsed);
    if (s != PESC_OK)
        json_decref(list);
    else
        *out = list;
    return s;
}

/* Formats without ids of calls: templates that write them get some, of nine characters as Mistral's
 * want them. */
static pesc_status number_calls(record *r, json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        char id[24];
        json_t *call = json_array_get(calls, i);
        snprintf(id, sizeof id, "call%05u", ++r->n_calls % 100000);
        if (!json_has(call, "id") && json_object_set_new(call, "id", json_string(id)) != 0)
            return no_memory();
    }
    return PESC_OK;
}

/* The call that a result without an id answers: of the last message with calls, the one after those
 * that were answered since. NULL: none. */
static const json_t *answered_call(const record *r)
{
    size_t results = 0;
    for (size_t i = json_array_size(r->messages); i-- > 0;) {
        const json_t *m = json_array_get(r->messages, i);
        const json_t *calls = json_object_get(m, "tool_calls");
        if (calls)
            return json_array_get(calls, results);
        if (strcmp(text_of(m, "role"), "tool") != 0)
            return NULL;
        results++;
    }
    return NULL;
}

static pesc_status link_result(const record *r, json_t *message)
{
    const json_t *call = r->n_calls ? answered_call(r) : NULL;
    json_t *id = json_object_get(call, "id");
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    if (!id || json_has(message, "tool_call_id"))
        return PESC_OK;
    bool fine = json_object_set(message, "tool_call_id", id) == 0 &&
                (json_has(message, "name") || json_object_set(message, "name", name) == 0);
    return fine ? PESC_OK : no_memory();
}

/* ---- a turn ---- */

/* The texts that a template may read, where they are there. */
static pesc_status copy_texts(json_t *message, const json_t *turn)
{
    static const char *const keys[] = { "name", "tool_call_id", "reasoning_content", "reasoning",
                                        "thinking" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(turn, keys[i]);
        if (!v || json_is_null(v))
            continue;
        if (!json_is_string(v))
            return fail(PESC_FORMAT, "%s: found %s, expected text", keys[i], json_kind(v));
        if (strlen(json_string_value(v)) != json_string_length(v))
            return fail(PESC_FORMAT, "%s: holds a NUL character", keys[i]);
        if (json_object_set(message, keys[i], v) != 0)
            return no_memory();
    }
    return PESC_OK;
}

static pesc_status copy_calls(record *r, json_t *message, const json_t *turn)
{
    static const char *const keys[] = { "tool_calls", "function_call" };
    for (int i = 0; i < 2; i++) {
        const json_t *given = json_object_get(turn, keys[i]);
        json_t *calls = NULL;
        if (!given || json_is_null(given) || (json_is_array(given) && !json_array_size(given)) ||
            (json_is_string(given) && !json_string_length(given)))
            continue;
        TRY(read_calls(given, keys[i], &calls));
        pesc_status s = i == 1 ? number_calls(r, calls) : PESC_OK;
        if (json_object_set_new(message, "tool_calls", calls) != 0)
            return no_memory();
        TRY(s);
    }
    return PESC_OK;
}

/* A text, or parts, of which what is no text is refused. */
static pesc_status check_parts(const json_t *parts, const char *field)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = text_of(part, "type");
        bool thinks = type && (strcmp(type, "thinking") == 0 || strcmp(type, "reasoning") == 0);
        if (!type || (strcmp(type, "text") != 0 && !thinks))
            return fail(PESC_FORMAT, "%s: part %zu has the type \"%.40s\", expected text alone",
                        field, i + 1, type ? type : "");
        const json_t *text =
            json_object_get(part, thinks && !text_of(part, "text") ? type : "text");
        if (!json_is_string(text) || strlen(json_string_value(text)) != json_string_length(text))
            return fail(PESC_FORMAT, "%s: part %zu has no text", field, i + 1);
    }
    return json_array_size(parts)
               ? PESC_OK
               : fail(PESC_FORMAT, "%s: found an empty list, expected text", field);
}

static pesc_status copy_content(json_t *message, const json_t *turn, const char *field)
{
    json_t *v = json_object_get(turn, field);
    bool may_be_absent = json_has(message, "tool_calls") ||
                         json_has(message, "reasoning_content") || json_has(message, "reasoning") ||
                         json_has(message, "thinking");
    if (json_is_array(v)) {
        TRY(check_parts(v, field));
    } else if (!json_is_string(v) && !(may_be_absent && (!v || json_is_null(v)))) {
        return v ? fail(PESC_FORMAT, "%s: found %s, expected text", field, json_kind(v))
                 : fail(PESC_FORMAT, "%s: is missing", field);
    } else if (json_is_string(v) && strlen(json_string_value(v)) != json_string_length(v)) {
        return fail(PESC_FORMAT, "%s: holds a NUL character", field);
    }
    return json_object_set(message, "content", v ? v : json_null()) == 0 ? PESC_OK : no_memory();
}

/* Fills in a message that has a role. */
static pesc_status fill(record *r, json_t *message, const json_t *turn, const char *field,
                        bool is_call)
{
    json_t *calls = NULL;
    TRY(copy_texts(message, turn));
    if (is_call) {
        TRY(read_calls(json_object_get(turn, field), field, &calls));
        pesc_status s = number_calls(r, calls);
        if (json_object_set_new(message, "tool_calls", calls) != 0 ||
            json_object_set_new(message, "content", json_null()) != 0)
            return no_memory();
        return s;
    }
    TRY(copy_calls(r, message, turn));
    TRY(copy_content(message, turn, field));
    return strcmp(text_of(message, "role"), "tool") == 0 ? link_result(r, message) : PESC_OK;
}

static pesc_status read_turn(record *r, const json_t *turn, const char *role, const char *content)
{
    if (!json_is_object(turn))
        return fail(PESC_FORMAT, "found %s, expected a turn", json_kind(turn));
    const json_t *name = json_object_get(turn, role);
    if (!json_is_string(name))
        return name ? fail(PESC_FORMAT, "%s: found %s, expected text", role, json_kind(name))
                    : fail(PESC_FORMAT, "%s: is missing", role);
    size_t i = 0;
    while (i < ROLES && strcmp(roles[i].name, json_string_value(name)) != 0)
        i++;
    if (i == ROLES)
        return fail(PESC_FORMAT,
                    "%s: found \"%.40s\", expected system, user, assistant, tool or function "
                    "(human and gpt are read too)",
                    role, json_string_value(name));
    bool masked;
    TRY(is_masked(turn, &masked));
    /* what a function_call of OpenAI's returns has the role function: elsewhere it is a tool's */
    bool result = strcmp(roles[i].role, "function") == 0 && r->n_calls > 0;
    json_t *message = json_pack("{ss}", "role", result ? "tool" : roles[i].role);
    pesc_status s = message ? fill(r, message, turn, content, roles[i].calls) : no_memory();
    if (s != PESC_OK) {
        json_decref(message);
        return s;
    }
    return record_add(r, message, masked);
}

pesc_status turns_read(record *r, const json_t *list, const char *name, const char *role,
                       const char *content)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return fail(PESC_FORMAT, "%s: found %s, expected a list of turns", name,
                    json_is_array(list) ? "an empty list" : json_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        pesc_status s = read_turn(r, json_array_get(list, i), role, content);
        char why[1024];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        if (s == PESC_FORMAT)
            return fail(s, "%s[%zu]: %s", name, i, why);
        TRY(s);
    }
    return PESC_OK;
}

/* ---- tools ---- */

/* A copy without the nulls of a table's column. A schema has null only as a value. */
static void drop_nulls_of_tools(json_t *v)
{
    const char *key;
    json_t *member;
    void *next;
    json_object_foreach_safe(v, next, key, member)
    {
        if (!json_is_null(member))
            drop_nulls_of_tools(member);
        else if (strcmp(key, "default") != 0 && strcmp(key, "const") != 0)
            json_object_del(v, key);
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        drop_nulls_of_tools(json_array_get(v, i));
}

static pesc_status wrap_functions(json_t *functions)
{
    for (size_t i = 0; i < json_array_size(functions); i++)
        if (json_array_set_new(functions, i,
                               json_pack("{ss sO}", "type", "function", "function",
                                         json_array_get(functions, i))) != 0)
            return no_memory();
    return PESC_OK;
}

pesc_status turns_tools(record *r, const json_t *v)
{
    bool old = !json_has(v, "tools") && json_has(v, "functions");
    const char *field = old ? "functions" : "tools";
    const json_t *given = json_object_get(v, field);
    const char *text = json_string_value(given);
    if (!given || json_is_null(given) || (text && !*text))
        return PESC_OK;
    if (text)
        TRY(json_parse(&r->tools, text, json_string_length(given), field));
    else if (!(r->tools = json_deep_copy(given)))
        return no_memory();
    if (!json_is_array(r->tools))
        return fail(PESC_FORMAT, "%s: found %s, expected a list", field, json_kind(r->tools));
    if (!text)
        drop_nulls_of_tools(r->tools);
    if (old)
        TRY(wrap_functions(r->tools));
    if (json_array_size(r->tools) == 0) {
        json_decref(r->tools);
        r->tools = NULL;
    }
    return PESC_OK;
}
