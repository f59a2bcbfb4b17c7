/* Fields of a request about calls of tools and thoughts. */
#include "serve/api/api.h"

#include <string.h>

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

bool speech_tools(api_request *r, const json_t *v, api_error *e)
{
    size_t n = json_array_size(v);
    if (n > API_MAX_TOOLS)
        return api_refuse(e, 400, NULL, "tools", "tools: found %zu, expected at most %d", n,
                          API_MAX_TOOLS);
    if (tools_check(v, r->endpoint == API_CHAT) != PESC_OK)
        return api_refuse(e, 400, NULL, "tools", "%s", pesc_last_error());
    r->tools = n ? v : NULL;
    return true;
}

/* ---- tool_choice ---- */

static const json_t *find_tool(const api_request *r, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(r->tools); i++)
        if (strcmp(name_of(json_array_get(r->tools, i)), name) == 0)
            return json_array_get(r->tools, i);
    return NULL;
}

/* One more tool that may be called: {"type": "function", "function": {"name"}}. */
static bool allow(api_request *r, const json_t *v, api_error *e)
{
    const char *name = name_of(v);
    const json_t *tool = find_tool(r, name);
    if (!name)
        return api_refuse(e, 400, NULL, "tool_choice",
                          "tool_choice: found %s, expected a function with a name", json_kind(v));
    if (!tool)
        return api_refuse(e, 400, NULL, "tool_choice",
                          "tool_choice: there is no tool of the name \"%.80s\"", name);
    return json_array_append(r->callable, (json_t *)(uintptr_t)tool) == 0 ||
           api_failed(e, fail_nomem("tools", 0));
}

static bool choose_mode(api_request *r, const char *mode, api_error *e)
{
    static const struct {
        const char *name;
        call_choice choice;
    } rows[] = { { "auto", CALLS_AUTO }, { "none", CALLS_NONE }, { "required", CALLS_REQUIRED } };
    for (size_t i = 0; mode && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, mode) == 0) {
            r->choice = rows[i].choice;
            return true;
        }
    return api_refuse(e, 400, NULL, "tool_choice",
                      "tool_choice: found \"%.40s\", expected auto, none, required, a function or "
                      "allowed_tools",
                      mode ? mode : "");
}

static bool choose_allowed(api_request *r, const json_t *v, api_error *e)
{
    const json_t *list = json_object_get(v, "tools");
    const char *mode = json_string_value(json_object_get(v, "mode"));
    if (json_array_size(list) == 0 || !mode || strcmp(mode, "none") == 0)
        return api_refuse(e, 400, NULL, "tool_choice",
                          "tool_choice: allowed_tools: expected a mode, auto or required, and a "
                          "list of tools");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!allow(r, json_array_get(list, i), e))
            return false;
    return choose_mode(r, mode, e);
}

/* What may be called, once all fields are read. */
bool speech_choose(api_request *r, api_error *e)
{
    const json_t *v = json_value(r->body, "tool_choice");
    const char *type = json_string_value(json_object_get(v, "type"));
    r->explicit_choice = v != NULL;
    if (v && !r->tools) /* "none" says nothing then */
        return (json_is_string(v) && strcmp(json_string_value(v), "none") == 0) ||
               api_refuse(e, 400, "unsupported_parameter", "tool_choice",
                          "tool_choice needs tools");
    if (!r->tools)
        return true;
    if (!(r->callable = json_array()))
        return api_failed(e, fail_nomem("tools", 0));
    bool good = true;
    if (json_is_string(v)) {
        good = choose_mode(r, json_string_value(v), e);
    } else if (type && strcmp(type, "allowed_tools") == 0) {
        good = choose_allowed(r, json_object_get(v, "allowed_tools"), e);
    } else if (v) {
        r->choice = CALLS_REQUIRED;
        r->one_function = r->one_call = true;
        good = allow(r, v, e);
    }
    if (good && json_array_size(r->callable) == 0)
        good = json_array_extend(r->callable, (json_t *)(uintptr_t)r->tools) == 0 ||
               api_failed(e, fail_nomem("tools", 0));
    return good;
}

/* ---- thoughts ---- */

/* How hard the model is to think, for templates that read one of these. */
static bool add_variable(api_request *r, const char *name, json_t *v, api_error *e)
{
    if (!r->own_variables && !(r->own_variables = json_object()))
        return api_failed(e, fail_nomem("variables", 0));
    return json_object_set_new(r->own_variables, name, v) == 0 ||
           api_failed(e, fail_nomem("variables", 0));
}

bool speech_effort(api_request *r, const char *field, const json_t *v, api_error *e)
{
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh" };
    const char *effort = json_string_value(v);
    size_t i = 0, n = sizeof efforts / sizeof *efforts;
    while (i < n && (!effort || strcmp(efforts[i], effort) != 0))
        i++;
    if (i == n)
        return api_refuse(e, 400, NULL, field,
                          "%s: expected none, minimal, low, medium, high or xhigh", field);
    return (i == 0 || add_variable(r, "reasoning_effort", json_string(effort), e)) &&
           speech_thinking(r, i > 0, e);
}

bool speech_thinking(api_request *r, bool thinks, api_error *e)
{
    return add_variable(r, "enable_thinking", json_boolean(thinks), e) &&
           add_variable(r, "thinking", json_boolean(thinks), e);
}

/* llama.cpp's: none leaves thoughts in the content. */
bool speech_format(api_request *r, const json_t *v, api_error *e)
{
    static const char *const names[] = { "auto", "deepseek", "deepseek-legacy", "none" };
    const char *name = json_string_value(v);
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            r->thoughts = i < 3;
            return true;
        }
    return api_refuse(e, 400, NULL, "reasoning_format",
                      "reasoning_format: expected auto, deepseek or none");
}

/* Variables of the chat template: those of fields, and chat_template_kwargs, which win. */
bool speech_variables(api_request *r, api_error *e)
{
    if (!r->own_variables)
        return true;
    if (r->variables &&
        json_object_update(r->own_variables, (json_t *)(uintptr_t)r->variables) != 0)
        return api_failed(e, fail_nomem("variables", 0));
    r->all_variables = r->own_variables;
    return true;
}
