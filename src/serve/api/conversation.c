#include "serve/api/prompts.h"

#include "base/mem.h"

#include <xxhash.h>

#include <string.h>

/* ---- one message ---- */

static bool check_text(const json_t *v, size_t number, api_error *e)
{
    size_t n = json_string_length(v);
    if (v && strlen(json_string_value(v)) != n)
        return api_refuse(e, 400, NULL, "messages", "message %zu: has a NUL character", number);
    return n <= API_MAX_TEXT ||
           api_refuse(e, 400, "string_too_long", "messages",
                      "message %zu: has %zu bytes, expected at most %d", number, n, API_MAX_TEXT);
}

/* A string, or parts that are text. */
static bool check_content(const json_t *v, size_t number, api_error *e)
{
    if (json_is_string(v))
        return check_text(v, number, e);
    if (v && !json_is_null(v) && !json_is_array(v))
        return api_refuse(e, 400, NULL, "messages",
                          "message %zu: content: found %s, expected a string or an array of parts",
                          number, json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
            return api_refuse(e, 400, NULL, "messages",
                              "message %zu: a part of its content is not text", number);
        if (!check_text(text, number, e))
            return false;
    }
    return true;
}

/* Ids of calls in the shape that the family insists on: another one becomes a digest of it, the
 * same for the call and its result. */
static bool map_id(json_t *of, const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const char *id = json_string_value(json_object_get(of, key));
    char nine[10] = "";
    size_t n = id ? strlen(id) : 0;
    if (!id || (n == 9 && strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789") == n))
        return true;
    uint64_t bits = XXH3_64bits(id, n);
    for (size_t i = 0; i < 9; i++, bits /= 36)
        nine[i] = letters[bits % 36];
    return json_object_set_new(of, key, json_string(nine)) == 0;
}

static bool map_ids(const chat_speech *s, json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls");
    bool good = true;
    if (!s->calls || s->calls->ids != CALL_IDS_NINE)
        return true;
    for (size_t i = 0; good && i < json_array_size(calls); i++)
        good = map_id(json_array_get(calls, i), "id");
    return good && map_id(message, "tool_call_id");
}

/* Fields of a message: those that a template may use, and those that clients send back with an
 * answer although they say nothing. */
static bool check_keys(const json_t *message, size_t number, api_error *e)
{
    static const struct {
        const char *key;
        bool used;
    } rows[] = { { "role", true },       { "content", true },      { "name", true },
                 { "tool_calls", true }, { "tool_call_id", true }, { "reasoning_content", true },
                 { "reasoning", true },  { "thinking", true },     { "refusal", false },
                 { "audio", false },     { "annotations", false }, { "function_call", false } };
    enum { N = sizeof rows / sizeof *rows };
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)message, key, v)
    {
        bool says = !json_is_null(v) && !(json_is_array(v) && json_array_size(v) == 0);
        size_t i = 0;
        while (i < N && (strcmp(rows[i].key, key) != 0 || (says && !rows[i].used)))
            i++;
        if (i == N)
            return api_refuse(e, 400, "unknown_parameter", "messages",
                              "message %zu: \"%.60s\" is not a known field, or not supported",
                              number, key);
    }
    return true;
}

static const char *role_of(const json_t *message, size_t number, api_error *e)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!json_is_object(message) || !role) {
        api_refuse(e, 400, NULL, "messages", "message %zu: expected an object with a role", number);
        return NULL;
    }
    if (strcmp(role, "developer") == 0)
        return roles[0];
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    api_refuse(e, 400, NULL, "messages",
               "message %zu: found the role \"%.40s\", expected system, developer, user, "
               "assistant or tool",
               number, role);
    return NULL;
}

/* A copy of the message; chat_write() gives the template what it reads of it. NULL: *e says why. */
static json_t *read_message(const json_t *v, size_t number, const prompt_maker *p, bool lenient,
                            api_error *e)
{
    const char *role = role_of(v, number, e);
    if (!role || (!lenient && !check_keys(v, number, e)) ||
        !check_content(json_object_get(v, "content"), number, e))
        return NULL;
    json_t *m = json_deep_copy(v);
    if (m && json_object_set_new(m, "role", json_string(role)) == 0 && map_ids(p->speech, m))
        return m;
    api_failed(e, fail_nomem("a message", 0));
    json_decref(m);
    return NULL;
}

/* ---- all of them ---- */

static bool is_system(const json_t *m)
{
    return strcmp(json_string_value(json_object_get(m, "role")), "system") == 0;
}

static void add_system(const json_t *content, str *all)
{
    if (json_is_string(content))
        str_printf(all, "%s%s", all->n ? "\n\n" : "", json_string_value(content));
    for (size_t i = 0; i < json_array_size(content); i++)
        add_system(json_object_get(json_array_get(content, i), "text"), all);
}

/* Makes one message of all that are of the system, the first of the conversation. */
static bool merge_system(json_t *all, api_error *e)
{
    str text = { 0 };
    for (size_t i = 0; i < json_array_size(all);) {
        const json_t *m = json_array_get(all, i);
        if (is_system(m))
            add_system(json_object_get(m, "content"), &text);
        if (!is_system(m))
            i++;
        else
            json_array_remove(all, i);
    }
    json_t *first = str_ok(&text) ? json_pack("{s:s, s:s%}", "role", "system", "content",
                                              text.p ? text.p : "", text.n)
                                  : NULL;
    str_free(&text);
    return (first && json_array_insert_new(all, 0, first) == 0) ||
           api_failed(e, fail_nomem("messages", 0));
}

/* Whether a message of the system follows others where the template has no place for it. */
static bool must_merge(const chat_writer *w, const json_t *all)
{
    bool late = false;
    for (size_t i = 1; i < json_array_size(all); i++)
        late = late || is_system(json_array_get(all, i));
    return late && !chat_takes_late_system(w);
}

static bool encode(const prompt_maker *m, const api_request *r, const json_t *all, prompt *out,
                   api_error *e)
{
    chat_request talk = { .messages = all,
                          .tools = r->choice == CALLS_NONE ? NULL : r->tools,
                          .variables = r->all_variables,
                          .end = r->continue_final_message  ? CHAT_GO_ON
                                 : r->add_generation_prompt ? CHAT_PROMPT
                                                            : CHAT_WHOLE };
    const thought_format *f = m->speech->thought;
    pesc_status s = chat_write(m->chat, &talk, NULL, &out->ids, NULL);
    if (s == PESC_OK && f)
        s = chat_thought_state(m->chat, &talk, f->begin, f->end, &out->thought);
    if (s == PESC_OK)
        return true;
    api_failed(e, s);
    memcpy(e->param, "messages", sizeof "messages");
    return false;
}

/* What the chosen format cannot write must not be dropped silently. */
static bool check_format(const prompt_maker *m, const api_request *r, api_error *e)
{
    const chat_format *format = chat_built_in(m->chat);
    if (!m->tok || (!format && !chat_is_own(m->chat)))
        return api_refuse(e, 400, "no_chat_template", "messages",
                          "the model has no chat template that is known; start the server with "
                          "--chat-format");
    if (r->tools && !chat_takes_tools(m->chat))
        return api_refuse(e, 400, "unsupported_parameter", "tools",
                          "tools: the chat template does not take tools");
    if (r->variables && format)
        return api_refuse(e, 400, "unsupported_parameter", "chat_template_kwargs",
                          "chat_template_kwargs: the chat format \"%s\" has no variables",
                          chat_name(format));
    return true;
}

bool conversation_encode(const prompt_maker *m, const api_request *r, prompt *out, api_error *e)
{
    size_t n = json_array_size(r->messages);
    if (!json_is_array(r->messages) || n == 0 || n > API_MAX_MESSAGES)
        return api_refuse(e, 400, NULL, "messages",
                          "messages: expected an array of 1 to %d messages", API_MAX_MESSAGES);
    if (!check_format(m, r, e))
        return false;
    json_t *all = json_array();
    bool good = all || api_failed(e, fail_nomem("messages", n));
    for (size_t i = 0; good && i < n; i++) {
        json_t *one = read_message(json_array_get(r->messages, i), i + 1, m, r->lenient, e);
        good = one &&
               (json_array_append_new(all, one) == 0 || api_failed(e, fail_nomem("messages", n)));
    }
    if (good && must_merge(m->chat, all))
        good = merge_system(all, e);
    good = good && encode(m, r, all, out, e);
    json_decref(all);
    return good;
}
