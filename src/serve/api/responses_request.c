/* The body of POST /v1/responses, OpenAI's newer interface. */
#include "serve/api/dialect.h"

#include <string.h>

static const char *text_of(const json_t *v, const char *key)
{
    const char *text = json_string_value(json_object_get(v, key));
    return text ? text : "";
}

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], text) == 0)
            return true;
    return false;
}

/* ---- items ---- */

/* The text of a string, or of parts. */
static bool add_text(rewriting *w, const json_t *v, str *out)
{
    static const char *const types[] = { "input_text", "output_text",    "text",
                                         "refusal",    "reasoning_text", "summary_text" };
    if (json_is_string(v)) {
        str_puts(out, json_string_value(v));
        return true;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i);
        const char *type = text_of(part, "type");
        if (!is_one_of(type, types, sizeof types / sizeof *types))
            return dialect_refuse(w, "input", "input: a part of type \"%.40s\" is not supported",
                                  type);
        str_puts(out, text_of(part, strcmp(type, "refusal") == 0 ? "refusal" : "text"));
    }
    return !v || json_is_null(v) || json_is_array(v) ||
           dialect_refuse(w, "input", "input: content: found %s, expected a string or parts",
                          json_kind(v));
}

/* The last message, where it is the assistant's: its items merge. */
static json_t *last_answer(rewriting *w)
{
    json_t *last = json_array_get(w->messages, json_array_size(w->messages) - 1);
    if (strcmp(text_of(last, "role"), "assistant") == 0)
        return last;
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    return dialect_add(w, w->messages, m) ? m : NULL;
}

/* Appends to a text of the assistant's message. */
static bool extend_answer(rewriting *w, const char *key, const str *text)
{
    json_t *m = last_answer(w);
    if (!m || text->n == 0)
        return m != NULL;
    str all = { 0 };
    str_puts(&all, text_of(m, key));
    str_add(&all, text->p, text->n);
    bool good = dialect_set(w, m, key, json_stringn(all.p, all.n));
    str_free(&all);
    return good;
}

static bool read_said(rewriting *w, const json_t *item)
{
    const char *role = text_of(item, "role");
    str text = { 0 };
    bool good = add_text(w, json_object_get(item, "content"), &text);
    if (good && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0))
        dialect_system(w, text.p ? text.p : "");
    else if (good && strcmp(role, "assistant") == 0)
        good = extend_answer(w, "content", &text);
    else if (good && strcmp(role, "user") == 0)
        good =
            dialect_add(w, w->messages,
                        json_pack("{s:s, s:s}", "role", "user", "content", text.p ? text.p : ""));
    else if (good)
        good = dialect_refuse(w, "input",
                              "input: found the role \"%.40s\", expected system, developer, user "
                              "or assistant",
                              role);
    str_free(&text);
    return good;
}

static bool read_call(rewriting *w, const json_t *item)
{
    json_t *m = last_answer(w), *calls = json_object_get(m, "tool_calls");
    if (m && !calls && dialect_set(w, m, "tool_calls", json_array()))
        calls = json_object_get(m, "tool_calls");
    return calls &&
           dialect_add(w, calls,
                       json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", text_of(item, "call_id"), "type",
                                 "function", "function", "name", text_of(item, "name"), "arguments",
                                 text_of(item, "arguments")));
}

static bool read_result(rewriting *w, const json_t *item)
{
    str text = { 0 };
    bool good = add_text(w, json_object_get(item, "output"), &text) &&
                dialect_add(w, w->messages,
                            json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id",
                                      text_of(item, "call_id"), "content", text.p ? text.p : ""));
    str_free(&text);
    return good;
}

static bool read_thought(rewriting *w, const json_t *item)
{
    str text = { 0 };
    const json_t *content = json_value(item, "content");
    bool good = add_text(w, content ? content : json_value(item, "summary"), &text) &&
                (text.n == 0 || extend_answer(w, "reasoning_content", &text));
    str_free(&text);
    return good;
}

static bool read_item(rewriting *w, const json_t *item)
{
    static const struct {
        const char *type;
        bool (*read)(rewriting *w, const json_t *item);
    } rows[] = { { "message", read_said },
                 { "function_call", read_call },
                 { "function_call_output", read_result },
                 { "reasoning", read_thought } };
    static const char *const dropped[] = { "custom_tool_call", "custom_tool_call_output",
                                           "tool_search_call", "tool_search_output",
                                           "web_search_call",  "additional_tools" };
    const char *type = json_object_get(item, "type") ? text_of(item, "type") : "message";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].read(w, item);
    if (!is_one_of(type, dropped, sizeof dropped / sizeof *dropped))
        return dialect_refuse(w, "input", "input: an item of type \"%.40s\" is not supported",
                              type);
    dialect_ignore(w, type);
    return true;
}

static bool set_input(rewriting *w, const json_t *v)
{
    if (json_is_string(v))
        return dialect_add(w, w->messages, json_pack("{s:s, s:O}", "role", "user", "content", v));
    if (!json_is_array(v) || json_array_size(v) == 0)
        return dialect_refuse(w, "input", "input: expected a string or an array of items");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!read_item(w, json_array_get(v, i)))
            return false;
    return true;
}

/* Stands before what system items say, wherever the field is. */
static bool set_instructions(rewriting *w, const json_t *v)
{
    if (!json_is_string(v))
        return dialect_refuse(w, "instructions", "instructions: found %s, expected a string",
                              json_kind(v));
    str later = w->system;
    w->system = (str){ 0 };
    dialect_system(w, json_string_value(v));
    if (later.n)
        dialect_system(w, later.p);
    str_free(&later);
    return true;
}

/* ---- tools ---- */

static bool add_tools(rewriting *w, json_t *to, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tool = json_array_get(list, i);
        const char *type = text_of(tool, "type");
        if (strcmp(type, "namespace") == 0) {
            if (!add_tools(w, to, json_object_get(tool, "tools")))
                return false;
            continue;
        }
        if (strcmp(type, "function") != 0) {
            dialect_ignore(w, *type ? type : "tools");
            continue;
        }
        json_t *function = json_object();
        static const char *const keys[] = { "name", "description", "parameters", "strict" };
        for (size_t k = 0; function && k < sizeof keys / sizeof *keys; k++)
            if (json_value(tool, keys[k]))
                json_object_set(function, keys[k], json_object_get(tool, keys[k]));
        if (!dialect_add(w, to, json_pack("{s:s, s:o}", "type", "function", "function", function)))
            return false;
    }
    return true;
}

static bool set_tools(rewriting *w, const json_t *v)
{
    if (!json_is_array(v))
        return dialect_refuse(w, "tools", "tools: found %s, expected an array", json_kind(v));
    json_t *tools = json_array();
    if (add_tools(w, tools, v))
        return dialect_set(w, w->to, "tools", tools);
    json_decref(tools);
    return false;
}

/* {"type": "function", "name"} has its name inside in a chat; so have allowed tools. */
static json_t *chat_choice(const json_t *v)
{
    return json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", text_of(v, "name"));
}

static bool set_choice(rewriting *w, const json_t *v)
{
    const char *type = text_of(v, "type");
    if (json_is_string(v))
        return dialect_set(w, w->to, "tool_choice", json_incref((json_t *)(uintptr_t)v));
    if (strcmp(type, "allowed_tools") != 0)
        return dialect_set(w, w->to, "tool_choice", chat_choice(v));
    json_t *list = json_array();
    const json_t *tools = json_object_get(v, "tools");
    for (size_t i = 0; i < json_array_size(tools); i++)
        json_array_append_new(list, chat_choice(json_array_get(tools, i)));
    return dialect_set(w, w->to, "tool_choice",
                       json_pack("{s:s, s:{s:s, s:o}}", "type", "allowed_tools", "allowed_tools",
                                 "mode", text_of(v, "mode"), "tools", list));
}

/* ---- the rest ---- */

static bool set_text(rewriting *w, const json_t *v)
{
    json_t *format = json_object_get(v, "format");
    if (json_value(v, "verbosity"))
        dialect_ignore(w, "text.verbosity");
    if (!format || json_is_null(format))
        return true;
    if (strcmp(text_of(format, "type"), "json_schema") != 0)
        return dialect_set(w, w->to, "response_format", json_incref(format));
    return dialect_set(w, w->to, "response_format",
                       json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format));
}

static bool set_reasoning(rewriting *w, const json_t *v)
{
    json_t *effort = json_object_get(v, "effort");
    if (json_value(v, "summary"))
        dialect_ignore(w, "reasoning.summary");
    return !effort || json_is_null(effort) ||
           dialect_set(w, w->to, "reasoning_effort", json_incref(effort));
}

static bool set_top(rewriting *w, const json_t *v)
{
    return dialect_set(w, w->to, "logprobs", json_true()) &&
           dialect_set(w, w->to, "top_logprobs", json_incref((json_t *)(uintptr_t)v));
}

/* Of what an answer may have beside its text, log-probabilities are there. */
static bool set_include(rewriting *w, const json_t *v)
{
    if (!json_is_array(v))
        return dialect_refuse(w, "include", "include: found %s, expected an array", json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *what = json_string_value(json_array_get(v, i));
        if (!what || strcmp(what, "message.output_text.logprobs") != 0)
            dialect_ignore(w, "include");
        else if (!dialect_set(w, w->to, "logprobs", json_true()))
            return false;
    }
    return true;
}

static bool refuse_on(rewriting *w, const json_t *v)
{
    return json_is_false(v) ||
           dialect_refuse(w, "background", "background, conversation and prompt are not supported");
}

/* What the answer reads from the body itself. */
static bool leave(rewriting *w, const json_t *v)
{
    (void)w;
    (void)v;
    return true;
}

/* Events of a stream may be padded against eavesdroppers; these are not. */
static bool set_stream_options(rewriting *w, const json_t *v)
{
    (void)v;
    dialect_ignore(w, "stream_options");
    return true;
}

bool responses_to_chat(const json_t *body, json_t **chat, bool lenient, str *ignored, api_error *e)
{
    static const dialect_field rows[] = {
        { "model", "model", NULL },
        { "input", NULL, set_input },
        { "instructions", NULL, set_instructions },
        { "tools", NULL, set_tools },
        { "tool_choice", NULL, set_choice },
        { "parallel_tool_calls", "parallel_tool_calls", NULL },
        { "text", NULL, set_text },
        { "reasoning", NULL, set_reasoning },
        { "max_output_tokens", "max_completion_tokens", NULL },
        { "temperature", "temperature", NULL },
        { "top_p", "top_p", NULL },
        { "top_logprobs", NULL, set_top },
        { "stream", "stream", NULL },
        { "previous_response_id", NULL, leave },
        { "store", NULL, leave },
        { "chat_template_kwargs", "chat_template_kwargs", NULL },
        { "seed", "seed", NULL },
        { "top_k", "top_k", NULL },
        { "cache_salt", "cache_salt", NULL },
        { "background", NULL, refuse_on },
        { "conversation", NULL, refuse_on },
        { "prompt", NULL, refuse_on },
        { "stream_options", NULL, set_stream_options },
        { "metadata", NULL, NULL },
        { "user", NULL, NULL },
        { "include", NULL, set_include },
        { "prompt_cache_key", NULL, NULL },
        { "prompt_cache_retention", NULL, NULL },
        { "service_tier", NULL, NULL },
        { "safety_identifier", NULL, NULL },
        { "client_metadata", NULL, NULL },
        { "max_tool_calls", NULL, NULL },
        { "truncation", NULL, NULL },
    };
    rewriting w = { .from = body, .ignored = ignored, .lenient = lenient, .e = e };
    bool good = dialect_fields(&w, rows, sizeof rows / sizeof *rows);
    str_free(&w.system);
    if (good && !json_has(body, "input"))
        good = dialect_refuse(&w, "input", "input: is missing, and has no default");
    if (good)
        *chat = w.to;
    else
        json_decref(w.to);
    return good;
}
