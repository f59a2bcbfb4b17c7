#include "serve/api/prompts.h"

#include "base/mem.h"

#include <xxhash.h>

#include <string.h>

/* ---- one message ---- */

/* Appends the text of a message: a string, or the texts of its parts, joined as the template joins
 * them. */
static bool read_content(const json_t *v, size_t number, const char *joint, str *out, api_error *e)
{
    if (json_is_string(v)) {
        str_add(out, json_string_value(v), json_string_length(v));
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            const json_t *part = json_array_get(v, i);
            const char *type = json_string_value(json_object_get(part, "type"));
            const json_t *text = json_object_get(part, "text");
            if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
                return api_refuse(e, 400, NULL, "messages",
                                  "message %zu: a part of its content is not text", number);
            str_puts(out, i ? joint : "");
            str_add(out, json_string_value(text), json_string_length(text));
        }
    } else if (v && !json_is_null(v)) {
        return api_refuse(e, 400, NULL, "messages",
                          "message %zu: content: found %s, expected a string or an array of parts",
                          number, json_kind(v));
    }
    str_puts(out, "");
    if (out->p && strlen(out->p) != out->n)
        return api_refuse(e, 400, NULL, "messages", "message %zu: has a NUL character", number);
    if (out->n > API_MAX_TEXT)
        return api_refuse(e, 400, "string_too_long", "messages",
                          "message %zu: has %zu bytes, expected at most %d", number, out->n,
                          API_MAX_TEXT);
    return str_ok(out) || api_failed(e, fail_nomem("a message", out->n));
}

/* Clients send the arguments of a call as JSON text; most templates expect the object, some text.
 */
static bool parse_arguments(json_t *call, size_t number, bool as_text, api_error *e)
{
    json_t *function = json_object_get(call, "function"), *parsed;
    const json_t *text = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name")))
        return api_refuse(e, 400, NULL, "messages",
                          "message %zu: tool_calls: a call is not one of a function with a name",
                          number);
    bool object = !json_is_string(text) && !json_is_null(text);
    bool empty = json_string_length(text) == 0 || strcmp(json_string_value(text), "null") == 0;
    if (object && (!text || !as_text))
        return true;
    if (!object && json_parse(&parsed, empty ? "{}" : json_string_value(text),
                              empty ? 2 : json_string_length(text), "arguments") != PESC_OK)
        return api_refuse(e, 400, NULL, "messages",
                          "message %zu: tool_calls: the arguments of a call are not JSON", number);
    if (as_text) {
        str written = { 0 };
        if (object)
            json_put(&written, text, 0);
        else
            str_puts(&written, empty ? "{}" : json_string_value(text));
        if (!object)
            json_decref(parsed);
        parsed = str_ok(&written) ? json_string(written.p) : NULL;
        str_free(&written);
    }
    return json_object_set_new(function, "arguments", parsed) == 0 ||
           api_failed(e, fail_nomem("a message", 0));
}

static bool read_calls(json_t *message, size_t number, bool as_text, api_error *e)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls || json_is_null(calls))
        return true;
    if (!json_is_array(calls))
        return api_refuse(e, 400, NULL, "messages",
                          "message %zu: tool_calls: found %s, expected an array", number,
                          json_kind(calls));
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!parse_arguments(json_array_get(calls, i), number, as_text, e))
            return false;
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

/* Thoughts that clients send back have three names; templates read reasoning_content, and those of
 * messages with headers `thinking`. */
static bool name_thoughts(const chat_speech *s, json_t *message)
{
    static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
    bool headers = s->calls && s->calls->channels;
    json_t *thought = NULL;
    for (size_t i = 0; i < 3 && !thought; i++) {
        thought = json_object_get(message, names[i]);
        thought = json_is_string(thought) ? thought : NULL;
    }
    json_incref(thought);
    for (size_t i = 0; i < 3; i++)
        json_object_del(message, names[i]);
    return !thought || json_object_set_new(message, names[headers ? 2 : 0], thought) == 0;
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

/* A copy of the message as the template expects it: one text, arguments of calls as it takes them.
 * NULL: *e says why. */
static json_t *read_message(const json_t *v, size_t number, const prompt_maker *p, bool lenient,
                            api_error *e)
{
    str text = { 0 };
    const char *role = role_of(v, number, e);
    bool good = role && (lenient || check_keys(v, number, e)) &&
                read_content(json_object_get(v, "content"), number, chat_joint(p->chat), &text, e);
    json_t *m = good ? json_deep_copy(v) : NULL;
    if (good && (!m || json_object_set_new(m, "role", json_string(role)) != 0 ||
                 json_object_set_new(m, "content", json_stringn(text.p, text.n)) != 0))
        good = api_failed(e, fail_nomem("a message", text.n));
    good = good && read_calls(m, number, chat_takes_text_arguments(p->chat), e) &&
           (map_ids(p->speech, m) || api_failed(e, fail_nomem("a message", 0))) &&
           (name_thoughts(p->speech, m) || api_failed(e, fail_nomem("a message", 0)));
    str_free(&text);
    if (good)
        return m;
    json_decref(m);
    return NULL;
}

/* ---- all of them ---- */

/* Looks at what the template wrote last. */
static bool find_thought(const prompt_maker *m, const chat_request *talk, thought_state *thought,
                         api_error *e)
{
    str opening = { 0 };
    const char *begin = NULL, *end = NULL, *mark;
    if (!m->speech->think_end || talk->end == CHAT_WHOLE)
        return true;
    pesc_status s = chat_opening(m->chat, talk, &opening);
    const char *text = opening.p ? opening.p : "";
    for (mark = text; (mark = strstr(mark, m->speech->thought->begin)); mark++)
        begin = mark;
    for (mark = text; (mark = strstr(mark, m->speech->thought->end)); mark++)
        end = mark;
    *thought = !begin && !end                   ? THOUGHT_FREE
               : begin && !(end && end > begin) ? THOUGHT_OPEN
                                                : THOUGHT_CLOSED;
    str_free(&opening);
    return s == PESC_OK || api_failed(e, s);
}

static bool encode(const prompt_maker *m, const api_request *r, const json_t *all, prompt *out,
                   api_error *e)
{
    chat_request talk = { .messages = all,
                          .tools = r->tools,
                          .variables = r->all_variables,
                          .end = r->continue_final_message  ? CHAT_GO_ON
                                 : r->add_generation_prompt ? CHAT_PROMPT
                                                            : CHAT_WHOLE };
    pesc_status s = chat_write(m->chat, &talk, NULL, &out->ids, NULL);
    if (s != PESC_OK) {
        api_failed(e, s);
        memcpy(e->param, "messages", sizeof "messages");
        return false;
    }
    return find_thought(m, &talk, &out->thought, e);
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
    good = good && encode(m, r, all, out, e);
    json_decref(all);
    return good;
}
