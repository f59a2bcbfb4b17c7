/* How a template reads messages. Templates differ in what they expect of a message with parts,
 * calls of tools or reasoning, and one that does not get what it expects often writes something
 * wrong instead of failing. So short conversations are rendered once, when a writer is opened, and
 * every message is given to the template in the form that came out right. */
#include "chat/chat_writer.h"

#include "base/mem.h"

#include <string.h>

static const char *const reasoning_names[] = { "reasoning_content", "reasoning", "thinking" };
enum { REASONING_NAMES = sizeof reasoning_names / sizeof *reasoning_names };

/* ---- what the template takes ---- */

/* A short conversation as the template writes it; no text where it refuses that. Takes `messages`.
 */
static pesc_status try_template(const chat_writer *w, json_t *messages, jinja_text *out)
{
    static const char tool[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                               "\"description\": \"\", \"parameters\": {\"type\": \"object\", "
                               "\"properties\": {}}}}]";
    json_t *tools = json_loads(tool, 0, NULL);
    *out = (jinja_text){ 0 };
    pesc_status s = messages && tools
                        ? chat_render(w, &(chat_request){ .tools = tools }, messages, false, out)
                        : fail_nomem("the model's chat template", sizeof tool);
    json_decref(messages);
    json_decref(tools);
    if (s == PESC_NOMEM)
        return s;
    status_clear();
    return PESC_OK;
}

/* Whether the template writes all of `what` for these messages, and no Python value. */
static pesc_status writes(const chat_writer *w, json_t *messages, const char *what, bool *does)
{
    jinja_text text;
    TRY(try_template(w, messages, &text));
    *does = text.text && strstr(text.text, what) && !strstr(text.text, "None") &&
            !strstr(text.text, "'ProbeKey'");
    jinja_text_free(&text);
    return PESC_OK;
}

static pesc_status find_joint(chat_writer *w)
{
    static const char first[] = "FirstPart", second[] = "SecondPart";
    jinja_text text;
    TRY(try_template(w,
                     json_pack("[{ss s[{ss ss} {ss ss}]}]", "role", "user", "content", "type",
                               "text", "text", first, "type", "text", "text", second),
                     &text));
    const char *from = text.text ? strstr(text.text, first) : NULL;
    const char *to = from ? strstr(from, second) : NULL;
    slice between = { from ? from + sizeof first - 1 : "", to ? (size_t)(to - from) : 0 };
    between.n -= to ? sizeof first - 1 : 0;
    if (to && between.n < sizeof w->joint && pytext_strip(between).n == 0) {
        memcpy(w->joint, between.p, between.n);
        w->joint[between.n] = '\0';
    }
    jinja_text_free(&text);
    return PESC_OK;
}

/* A question and a call; takes `arguments`. */
static json_t *call_messages(const char *content, json_t *arguments)
{
    return json_pack("[{ss ss} {ss ss? s[{ss ss s{ss so}}]}]", "role", "user", "content", "q",
                     "role", "assistant", "content", content, "tool_calls", "id", "call00000",
                     "type", "function", "function", "name", "f", "arguments", arguments);
}

/* Whether the template writes an object as its JSON text: else it has a notation of its own for
 * arguments, of which a text is no part. */
static pesc_status writes_json(const chat_writer *w, const char *content, bool *does)
{
    static const char *const texts[] = { "{\"ProbeKey\": \"x\"}", "{\"ProbeKey\":\"x\"}" };
    *does = false;
    for (int i = 0; i < 2 && !*does; i++)
        TRY(writes(w, call_messages(content, json_pack("{ss}", "ProbeKey", "x")), texts[i], does));
    return PESC_OK;
}

static pesc_status find_arguments(chat_writer *w)
{
    static const char json[] = "{\"ProbeKey\": \"x\"}";
    static const char *const contents[] = { "", NULL };
    bool object[2], text[2], same[2];
    for (int i = 0; i < 2; i++) {
        json_t *dictionary = json_pack("{ss}", "ProbeKey", "x");
        TRY(writes(w, call_messages(contents[i], dictionary), "ProbeKey", &object[i]));
        TRY(writes(w, call_messages(contents[i], json_string(json)), json, &text[i]));
        TRY(writes_json(w, contents[i], &same[i]));
        text[i] = text[i] && (same[i] || !object[i]);
    }
    w->null_content = object[1] || text[1];
    w->no_empty_content = w->null_content && !object[0] && !text[0];
    w->verbatim = text[0] || text[1];
    w->text_arguments = w->verbatim && !object[0] && !object[1];
    return PESC_OK;
}

/* Some templates write it with the last answer alone, some only with a call. */
static pesc_status find_reasoning(chat_writer *w)
{
    static const char thought[] = "ProbeThought";
    for (int i = 0; !w->reasoning && i < 2 * REASONING_NAMES; i++) {
        const char *name = reasoning_names[i % REASONING_NAMES];
        json_t *talk = i < REASONING_NAMES
                           ? json_pack("[{ss ss} {ss ss}]", "role", "user", "content", "q", "role",
                                       "assistant", "content", "a")
                           : call_messages(w->no_empty_content ? NULL : "",
                                           w->text_arguments ? json_string("{}") : json_object());
        json_t *answer = json_array_get(talk, 1);
        bool found = false;
        if (!answer || json_object_set_new(answer, name, json_string(thought)) != 0) {
            json_decref(talk);
            return fail_nomem("the model's chat template", 0);
        }
        TRY(writes(w, talk, thought, &found));
        w->reasoning = found ? name : NULL;
    }
    return PESC_OK;
}

static pesc_status find_late_system(chat_writer *w)
{
    static const char late[] = "ProbeLate";
    return writes(w,
                  json_pack("[{ss ss} {ss ss} {ss ss} {ss ss}]", "role", "user", "content", "q",
                            "role", "assistant", "content", "a", "role", "system", "content", late,
                            "role", "user", "content", "q"),
                  late, &w->late_system);
}

pesc_status chat_learn(chat_writer *w)
{
    TRY(find_joint(w));
    TRY(find_arguments(w));
    TRY(find_late_system(w));
    return find_reasoning(w);
}

bool chat_takes_late_system(const chat_writer *w)
{
    return w->format || w->late_system;
}

/* ---- reasoning ---- */

static bool is_answer(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

static slice text_of(const json_t *v)
{
    return (slice){ json_is_string(v) ? json_string_value(v) : "", json_string_length(v) };
}

/* What a text that begins with <think> has inside; *rest: where the text after </think> begins. */
static slice thought_inside(slice text, size_t *rest)
{
    static const char open[] = "<think>", close[] = "</think>";
    slice from = pytext_strip_chars(text, PYTEXT_LEFT, NULL);
    size_t at = pytext_find(from, close);
    if (from.n < sizeof open - 1 || memcmp(from.p, open, sizeof open - 1) != 0 || at == from.n)
        return (slice){ "", 0 };
    *rest = (size_t)(from.p - text.p) + at + sizeof close - 1;
    return (slice){ from.p + sizeof open - 1, at - (sizeof open - 1) };
}

slice chat_thought(const json_t *message)
{
    size_t rest;
    slice found = { "", 0 };
    for (int i = 0; is_answer(message) && found.n == 0 && i < REASONING_NAMES; i++)
        found = pytext_strip(text_of(json_object_get(message, reasoning_names[i])));
    if (is_answer(message) && found.n == 0)
        found = pytext_strip(thought_inside(text_of(json_object_get(message, "content")), &rest));
    return found;
}

pesc_status chat_drop_reasoning(json_t *message)
{
    size_t rest = 0;
    for (int i = 0; i < REASONING_NAMES; i++)
        json_object_del(message, reasoning_names[i]);
    slice text = text_of(json_object_get(message, "content"));
    (void)thought_inside(text, &rest);
    if (!is_answer(message) || rest == 0)
        return PESC_OK;
    slice said = pytext_strip_chars((slice){ text.p + rest, text.n - rest }, PYTEXT_LEFT, NULL);
    return json_object_set_new(message, "content", json_stringn(said.p, said.n)) == 0
               ? PESC_OK
               : fail_nomem("a message", said.n);
}

/* The text of an answer, with its reasoning before it as models write it. */
static json_t *think_aloud(slice thought, slice said)
{
    str both = { 0 };
    str_puts(&both, "<think>\n");
    str_add(&both, thought.p, thought.n);
    str_puts(&both, "\n</think>\n\n");
    str_add(&both, said.p, said.n);
    json_t *text = str_ok(&both) ? json_stringn(both.p, both.n) : NULL;
    str_free(&both);
    return text;
}

/* Under the name that the template reads. Where it reads none, the reasoning of a conversation that
 * is to be trained goes into the text; any other is left out, as the template does. */
static pesc_status adapt_reasoning(const chat_writer *w, json_t *m, chat_reasoning how)
{
    json_t *field = NULL;
    for (int i = 0; i < REASONING_NAMES; i++) {
        json_t *v = json_object_get(m, reasoning_names[i]);
        if (!field && json_is_string(v) && pytext_strip(text_of(v)).n > 0)
            field = json_incref(v);
        json_object_del(m, reasoning_names[i]);
    }
    bool fine = true;
    if (field && w->reasoning)
        fine = json_object_set(m, w->reasoning, field) == 0;
    else if (field && how != CHAT_REASONING_GIVEN)
        fine = json_object_set_new(
                   m, "content",
                   think_aloud(text_of(field), text_of(json_object_get(m, "content")))) == 0;
    json_decref(field);
    return fine ? PESC_OK : fail_nomem("a message", 0);
}

/* ---- content and calls ---- */

static pesc_status unfit(size_t number, const char *why)
{
    return fail(PESC_USAGE, "message %zu: %s", number, why);
}

/* Parts of the types text, and of reasoning, which is taken out of them. */
static pesc_status join_parts(const chat_writer *w, json_t *m, const json_t *parts, size_t number)
{
    str said = { 0 }, thought = { 0 };
    pesc_status s = PESC_OK;
    bool any = false;
    for (size_t i = 0; s == PESC_OK && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        bool thinks = type && (strcmp(type, "thinking") == 0 || strcmp(type, "reasoning") == 0);
        const json_t *text =
            json_object_get(part, thinks && !json_has(part, "text") ? type : "text");
        if (!type || !json_is_string(text) || (!thinks && strcmp(type, "text") != 0)) {
            s = unfit(number, "a part of its content is not text");
            break;
        }
        str *to = thinks ? &thought : &said;
        str_puts(to, thinks || !any ? "" : w->joint);
        str_add(to, json_string_value(text), json_string_length(text));
        any = any || !thinks;
    }
    if (s == PESC_OK &&
        (!str_ok(&said) || !str_ok(&thought) ||
         json_object_set_new(m, "content", json_stringn(said.p ? said.p : "", said.n)) != 0 ||
         (thought.n &&
          json_object_set_new(m, reasoning_names[0], json_stringn(thought.p, thought.n)) != 0)))
        s = fail_nomem("a message", said.n);
    str_free(&said);
    str_free(&thought);
    return s;
}

/* Null and an absent content are one thing, which few templates can read without calls beside it.
 */
static pesc_status adapt_content(const chat_writer *w, json_t *m, size_t number)
{
    json_t *v = json_object_get(m, "content");
    bool calls = json_array_size(json_object_get(m, "tool_calls")) > 0;
    if (json_is_array(v)) {
        json_incref(v);
        pesc_status s = join_parts(w, m, v, number);
        json_decref(v);
        return s;
    }
    if (v && !json_is_null(v) && !json_is_string(v))
        return unfit(number, "content: expected a string or an array of parts");
    bool empty = json_string_length(v) == 0, none = !json_is_string(v);
    if (!empty || (!none && !(calls && w->no_empty_content)))
        return PESC_OK;
    json_t *nothing = calls && w->null_content ? json_null() : json_string("");
    return json_object_set_new(m, "content", nothing) == 0 ? PESC_OK : fail_nomem("a message", 0);
}

/* Arguments are JSON text, as OpenAI has them, or an object: both as they are where the template
 * takes them so and writes both as JSON. Members that are null are those that a column of a table
 * has for other calls. */
static pesc_status adapt_arguments(const chat_writer *w, json_t *function, size_t number)
{
    json_t *given = json_object_get(function, "arguments"), *made = NULL;
    if (json_is_object(given))
        json_drop_nulls(given);
    if (given && !json_is_null(given) && !json_is_string(given)) {
        if (!w->text_arguments)
            return PESC_OK;
        str written = { 0 };
        json_put(&written, given, 0);
        made = str_ok(&written) ? json_stringn(written.p, written.n) : NULL;
        str_free(&written);
    } else {
        bool none = json_string_length(given) == 0 || strcmp(json_string_value(given), "null") == 0;
        const char *text = none ? "{}" : json_string_value(given);
        size_t n = none ? 2 : json_string_length(given);
        pesc_status s = json_parse(&made, text, n, "arguments");
        if (s != PESC_OK)
            return s == PESC_NOMEM
                       ? s
                       : unfit(number, "tool_calls: the arguments of a call are not JSON");
        if (w->verbatim) {
            json_decref(made);
            made = json_stringn(text, n);
        }
    }
    return json_object_set_new(function, "arguments", made) == 0 ? PESC_OK
                                                                 : fail_nomem("a message", 0);
}

static pesc_status adapt_calls(const chat_writer *w, json_t *m, size_t number)
{
    json_t *calls = json_object_get(m, "tool_calls");
    if (!json_array_size(calls)) {
        if (calls && !json_is_array(calls))
            return unfit(number, "tool_calls: expected an array");
        json_object_del(m, "tool_calls");
        return PESC_OK;
    }
    if (w->format && !w->takes_calls)
        return fail(PESC_USAGE,
                    "message %zu: tool_calls: the chat format \"%s\" cannot write calls of tools",
                    number, w->format->name);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        if (!json_is_string(json_object_get(function, "name")))
            return unfit(number, "tool_calls: a call is not one of a function with a name");
        TRY(adapt_arguments(w, function, number));
    }
    return PESC_OK;
}

/* ---- a message ---- */

static pesc_status adapt_message(const chat_writer *w, chat_reasoning how, json_t *m, size_t number)
{
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(m, next, key, v)
    {
        if (json_is_null(v) && strcmp(key, "content") != 0)
            json_object_del(m, key);
    }
    TRY(adapt_calls(w, m, number));
    TRY(adapt_content(w, m, number));
    return is_answer(m) ? adapt_reasoning(w, m, how) : PESC_OK;
}

pesc_status chat_adapt(const chat_writer *w, const chat_request *r, json_t **out)
{
    json_t *list = *out = json_array();
    if (!list)
        return fail_nomem("a conversation", 0);
    for (size_t i = 0; i < json_array_size(r->messages); i++) {
        json_t *given = json_array_get(r->messages, i);
        if (!json_is_object(given))
            return unfit(i + 1, "expected an object with a role");
        bool plain = json_object_size(given) == 2 && json_has(given, "role") &&
                     json_is_string(json_object_get(given, "content"));
        json_t *m = plain ? json_incref(given) : json_deep_copy(given);
        if (json_array_append_new(list, m) != 0)
            return fail_nomem("a conversation", json_array_size(r->messages));
        if (!plain)
            TRY(adapt_message(w, r->reasoning, m, i + 1));
    }
    return PESC_OK;
}
