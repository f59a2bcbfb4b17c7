/* The body of POST /v1/messages, Anthropic's interface. */
#include "serve/api/dialect.h"

#include <string.h>

/* ---- content ---- */

static const char *text_of(const json_t *v, const char *key)
{
    const char *text = json_string_value(json_object_get(v, key));
    return text ? text : "";
}

/* Changes with every request of one client and says nothing: with it nothing would be cached. */
static bool is_billing(const char *text)
{
    return strncmp(text, "x-anthropic-billing-header:", 27) == 0;
}

/* Appends the text of a block, or of all of a list of blocks. */
static bool add_text(rewriting *w, const json_t *v, const char *param, str *out)
{
    if (json_is_string(v)) {
        str_puts(out, json_string_value(v));
        return true;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i);
        if (strcmp(text_of(block, "type"), "text") != 0)
            return dialect_refuse(w, param, "%s: found a block of type \"%.40s\", expected text",
                                  param, text_of(block, "type"));
        str_printf(out, "%s%s", out->n ? "\n" : "", text_of(block, "text"));
    }
    if (!v || json_is_array(v))
        return true;
    return dialect_refuse(w, param, "%s: found %s, expected a string or blocks", param,
                          json_kind(v));
}

static bool set_system(rewriting *w, const json_t *v)
{
    str text = { 0 };
    bool good = true;
    if (!json_is_array(v))
        good = add_text(w, v, "system", &text);
    for (size_t i = 0; good && i < json_array_size(v); i++) {
        str one = { 0 };
        json_t *list = json_pack("[O]", json_array_get(v, i));
        good = add_text(w, list, "system", &one);
        if (good && one.n && !is_billing(one.p))
            str_printf(&text, "%s%s", text.n ? "\n" : "", one.p);
        json_decref(list);
        str_free(&one);
    }
    if (good && text.n && !is_billing(text.p))
        dialect_system(w, text.p);
    str_free(&text);
    return good;
}

/* ---- messages ---- */

/* A message that blocks are put into. */
typedef struct parts {
    str text, thought;
    json_t *calls, *results;
} parts;

static bool add_result(rewriting *w, parts *p, const json_t *block)
{
    str text = { 0 };
    bool good = add_text(w, json_value(block, "content"), "messages", &text);
    if (good && json_is_true(json_object_get(block, "is_error")) && text.n == 0)
        str_puts(&text, "error");
    json_t *m = json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id",
                          text_of(block, "tool_use_id"), "content", text.p ? text.p : "");
    str_free(&text);
    if (!good)
        json_decref(m);
    return good && dialect_add(w, p->results, m);
}

static bool add_use(rewriting *w, parts *p, const json_t *block)
{
    const json_t *input = json_value(block, "input");
    str arguments = { 0 };
    if (input)
        json_put(&arguments, input, JSON_ENCODE_ANY);
    else
        str_puts(&arguments, "{}");
    json_t *call =
        json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", text_of(block, "id"), "type", "function",
                  "function", "name", text_of(block, "name"), "arguments", arguments.p);
    str_free(&arguments);
    return dialect_add(w, p->calls, call);
}

static bool add_said(rewriting *w, parts *p, const json_t *block)
{
    (void)w;
    str_printf(&p->text, "%s%s", p->text.n ? "\n" : "", text_of(block, "text"));
    return true;
}

static bool add_thought(rewriting *w, parts *p, const json_t *block)
{
    (void)w;
    str_puts(&p->thought, text_of(block, "thinking"));
    return true;
}

static bool skip_block(rewriting *w, parts *p, const json_t *block)
{
    (void)w;
    (void)p;
    (void)block;
    return true;
}

static bool add_block(rewriting *w, parts *p, const json_t *block)
{
    static const struct {
        const char *type;
        bool (*add)(rewriting *w, parts *p, const json_t *block);
    } rows[] = { { "text", add_said },
                 { "thinking", add_thought },
                 { "redacted_thinking", skip_block },
                 { "tool_reference", skip_block },
                 { "tool_use", add_use },
                 { "tool_result", add_result } };
    const char *type = text_of(block, "type");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].add(w, p, block);
    return dialect_refuse(w, "messages", "messages: a block of type \"%.40s\" is not supported",
                          type);
}

/* The results of tools come before what a user says with them. */
static bool put_message(rewriting *w, parts *p, const char *role)
{
    bool results = json_array_size(p->results) > 0, calls = json_array_size(p->calls) > 0;
    if (results && json_array_extend(w->messages, p->results) != 0)
        return api_failed(w->e, fail_nomem("a request", 0));
    if (results && p->text.n == 0)
        return true;
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", p->text.p ? p->text.p : "");
    if (m && p->thought.n)
        json_object_set_new(m, "reasoning_content", json_string(p->thought.p));
    if (m && calls)
        json_object_set(m, "tool_calls", p->calls);
    return dialect_add(w, w->messages, m);
}

static bool read_message(rewriting *w, const json_t *v)
{
    const char *role = text_of(v, "role");
    const json_t *content = json_object_get(v, "content");
    if (strcmp(role, "system") == 0)
        return set_system(w, content);
    if (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
        return dialect_refuse(
            w, "messages", "messages: found the role \"%.40s\", expected user or assistant", role);
    if (!json_is_string(content) && !json_is_array(content))
        return dialect_refuse(w, "messages",
                              "messages: content: found %s, expected a string or blocks",
                              json_kind(content));
    parts p = { .calls = json_array(), .results = json_array() };
    bool good = true;
    if (json_is_string(content))
        str_puts(&p.text, json_string_value(content));
    for (size_t i = 0; good && i < json_array_size(content); i++)
        good = add_block(w, &p, json_array_get(content, i));
    good = good && put_message(w, &p, role);
    json_decref(p.calls);
    json_decref(p.results);
    str_free(&p.text);
    str_free(&p.thought);
    return good;
}

/* A last message of the assistant is the beginning of the answer. */
static bool set_messages(rewriting *w, const json_t *v)
{
    size_t n = json_array_size(v);
    if (n == 0)
        return dialect_refuse(w, "messages", "messages: expected an array of messages");
    for (size_t i = 0; i < n; i++)
        if (!read_message(w, json_array_get(v, i)))
            return false;
    const json_t *last = json_array_get(v, n - 1);
    const json_t *made = json_array_get(w->messages, json_array_size(w->messages) - 1);
    if (strcmp(text_of(last, "role"), "assistant") != 0 || json_object_get(made, "tool_calls"))
        return true;
    return dialect_set(w, w->to, "continue_final_message", json_true()) &&
           dialect_set(w, w->to, "add_generation_prompt", json_false());
}

/* ---- tools ---- */

/* Tools that a server of Anthropic runs have no schema. */
static bool set_tools(rewriting *w, const json_t *v)
{
    json_t *tools = json_array();
    if (!json_is_array(v)) {
        json_decref(tools);
        return dialect_refuse(w, "tools", "tools: found %s, expected an array", json_kind(v));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *tool = json_array_get(v, i), *schema = json_object_get(tool, "input_schema");
        if (!schema) {
            dialect_ignore(w, json_is_object(tool) ? text_of(tool, "type") : "tools");
            continue;
        }
        json_t *function =
            json_pack("{s:s, s:s, s:O}", "name", text_of(tool, "name"), "description",
                      text_of(tool, "description"), "parameters", schema);
        if (function && json_is_true(json_object_get(tool, "strict")))
            json_object_set_new(function, "strict", json_true());
        if (!dialect_add(w, tools,
                         json_pack("{s:s, s:o}", "type", "function", "function", function))) {
            json_decref(tools);
            return false;
        }
    }
    return dialect_set(w, w->to, "tools", tools);
}

static bool set_choice(rewriting *w, const json_t *v)
{
    static const struct {
        const char *type, *as;
    } rows[] = { { "auto", "auto" }, { "any", "required" }, { "none", "none" }, { "tool", NULL } };
    const char *type = text_of(v, "type");
    size_t i = 0, n = sizeof rows / sizeof *rows;
    while (i < n && strcmp(rows[i].type, type) != 0)
        i++;
    if (i == n)
        return dialect_refuse(w, "tool_choice",
                              "tool_choice: found \"%.40s\", expected auto, any, tool or none",
                              type);
    json_t *as = rows[i].as ? json_string(rows[i].as)
                            : json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name",
                                        text_of(v, "name"));
    bool one = json_is_true(json_object_get(v, "disable_parallel_tool_use"));
    return dialect_set(w, w->to, "tool_choice", as) &&
           (!one || dialect_set(w, w->to, "parallel_tool_calls", json_false()));
}

/* ---- the rest ---- */

static bool set_thinking(rewriting *w, const json_t *v)
{
    const char *type = text_of(v, "type");
    if (strcmp(type, "adaptive") == 0)
        return true;
    bool on = strcmp(type, "enabled") == 0;
    if (!on && strcmp(type, "disabled") != 0)
        return dialect_refuse(w, "thinking",
                              "thinking: found \"%.40s\", expected enabled, disabled or adaptive",
                              type);
    json_t *budget = on ? json_object_get(v, "budget_tokens") : NULL;
    if (budget && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return dialect_refuse(w, "thinking",
                              "thinking: budget_tokens: expected a number of tokens");
    return dialect_set(w, w->to, "enable_thinking", json_boolean(on)) &&
           (!budget || dialect_set(w, w->to, "thinking_token_budget", json_incref(budget)));
}

static bool set_output(rewriting *w, const json_t *v)
{
    json_t *effort = json_object_get(v, "effort"), *format = json_object_get(v, "format");
    json_t *schema = json_object_get(format, "schema");
    const char *name = json_string_value(effort);
    if (name && strcmp(name, "max") == 0)
        name = "xhigh";
    if (name && !dialect_set(w, w->to, "reasoning_effort", json_string(name)))
        return false;
    return !format || json_is_null(format) ||
           dialect_set(w, w->to, "response_format",
                       json_pack("{s:s, s:{s:s, s:O?}}", "type", text_of(format, "type"),
                                 "json_schema", "name", "answer", "schema", schema));
}

static bool set_max(rewriting *w, const json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return dialect_refuse(w, "max_tokens", "max_tokens: expected an integer from 1");
    return dialect_set(w, w->to, "max_tokens", json_incref((json_t *)(uintptr_t)v));
}

static bool read_body(rewriting *w, json_t **chat)
{
    static const dialect_field rows[] = {
        { "model", "model", NULL },
        { "messages", NULL, set_messages },
        { "system", NULL, set_system },
        { "max_tokens", NULL, set_max },
        { "stop_sequences", "stop", NULL },
        { "temperature", "temperature", NULL },
        { "top_p", "top_p", NULL },
        { "top_k", "top_k", NULL },
        { "stream", "stream", NULL },
        { "tools", NULL, set_tools },
        { "tool_choice", NULL, set_choice },
        { "thinking", NULL, set_thinking },
        { "output_config", NULL, set_output },
        { "chat_template_kwargs", "chat_template_kwargs", NULL },
        { "seed", "seed", NULL },
        { "cache_salt", "cache_salt", NULL },
        { "metadata", NULL, NULL },
        { "cache_control", NULL, NULL },
        { "service_tier", NULL, NULL },
        { "container", NULL, NULL },
        { "inference_geo", NULL, NULL },
        { "context_management", NULL, NULL },
        { "betas", NULL, NULL },
    };
    bool good = dialect_fields(w, rows, sizeof rows / sizeof *rows);
    str_free(&w->system);
    if (good && !json_has(w->from, "messages"))
        good = dialect_refuse(w, "messages", "messages: is missing, and has no default");
    if (good && !w->counts && !json_has(w->from, "max_tokens"))
        good = dialect_refuse(w, "max_tokens", "max_tokens: is missing, and has no default");
    if (good)
        *chat = w->to;
    else
        json_decref(w->to);
    return good;
}

bool messages_to_chat(const json_t *body, json_t **chat, bool lenient, str *ignored, api_error *e)
{
    rewriting w = { .from = body, .ignored = ignored, .lenient = lenient, .e = e };
    return read_body(&w, chat);
}

bool messages_to_count(const json_t *body, json_t **chat, bool lenient, str *ignored, api_error *e)
{
    rewriting w = { .from = body, .ignored = ignored, .lenient = lenient, .counts = true, .e = e };
    return read_body(&w, chat);
}
