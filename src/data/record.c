#include "data/record.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

typedef pesc_status (*read_fn)(record *r, const record_format *f, const json_t *v);

struct record_format {
    const char *name;
    const char *needs[2]; /* fields that tell the format */
    const char *prompt[3], *answer, *system;
    record_kind kind;
    read_fn read;
};

static pesc_status read_columns(record *r, const record_format *f, const json_t *v);
static pesc_status read_text(record *r, const record_format *f, const json_t *v);
static pesc_status read_messages(record *r, const record_format *f, const json_t *v);
static pesc_status read_camelidae(record *r, const record_format *f, const json_t *v);
static pesc_status read_ids(record *r, const record_format *f, const json_t *v);

/* The order matters where a record fits two rows: the more specific row comes first. */
static const record_format formats[] = {
    { "ids", { "input_ids", "labels" }, { 0 }, 0, 0, RECORD_IDS, read_ids },
    { "camelidae", { "conversation", "corpus" }, { 0 }, 0, 0, RECORD_CHAT, read_camelidae },
    { "messages", { "messages" }, { "role", "content" }, 0, "system", RECORD_CHAT, read_messages },
    { "sharegpt",
      { "conversations" },
      { "from", "value" },
      0,
      "system",
      RECORD_CHAT,
      read_messages },
    { "alpaca",
      { "instruction", "output" },
      { "instruction", "input" },
      "output",
      "system",
      RECORD_CHAT,
      read_columns },
    { "dolly",
      { "instruction", "response" },
      { "instruction", "context", "input" },
      "response",
      0,
      RECORD_CHAT,
      read_columns },
    { "metamath", { "query", "response" }, { "query" }, "response", 0, RECORD_CHAT, read_columns },
    { "magicoder",
      { "problem", "solution" },
      { "problem" },
      "solution",
      0,
      RECORD_CHAT,
      read_columns },
    { "question",
      { "question", "answer" },
      { "question" },
      "answer",
      0,
      RECORD_CHAT,
      read_columns },
    { "completion",
      { "prompt", "completion" },
      { "prompt" },
      "completion",
      0,
      RECORD_COMPLETION,
      read_columns },
    { "prompt", { "prompt", "response" }, { "prompt" }, "response", 0, RECORD_CHAT, read_columns },
    { "text", { "text" }, { "text" }, 0, 0, RECORD_TEXT, read_text },
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const record_format *record_format_find(const char *name)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const char *record_format_name(const record_format *f)
{
    return f->name;
}

record_kind record_format_kind(const record_format *f)
{
    return f->kind;
}

/* "instruction", "text", ... for messages. */
static void list_fields(str *out, const json_t *v)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        str_printf(out, "%s\"%.40s\"", out->n ? ", " : "", key);
        if (out->n > 300)
            break;
    }
}

const record_format *record_format_detect(const json_t *v)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (json_has(v, formats[i].needs[0]) &&
            (!formats[i].needs[1] || json_has(v, formats[i].needs[1])))
            return &formats[i];
    str found = { 0 }, known = { 0 };
    list_fields(&found, v);
    for (int i = 0; i < N_FORMATS; i++)
        str_printf(&known, "%s%s (%s%s%s)", i ? ", " : "", formats[i].name, formats[i].needs[0],
                   formats[i].needs[1] ? ", " : "", formats[i].needs[1] ? formats[i].needs[1] : "");
    fail(PESC_FORMAT, "fits no data format: found the fields %s; known are %s",
         found.p ? found.p : "none", known.p ? known.p : "");
    str_free(&found);
    str_free(&known);
    return NULL;
}

static pesc_status detect(source *src, uint64_t first, const record_format **out)
{
    json_t *v;
    char why[1024];
    TRY(source_record(src, first, &v));
    *out = record_format_detect(v);
    json_decref(v);
    snprintf(why, sizeof why, "%s", pesc_last_error());
    return *out ? PESC_OK : fail(PESC_FORMAT, "%s: %s", source_where(src, first), why);
}

static pesc_status unknown_format(const char *name)
{
    str known = { 0 };
    for (int i = 0; i < N_FORMATS; i++)
        str_printf(&known, "%s%s", i ? ", " : "", formats[i].name);
    pesc_status s = fail(PESC_USAGE,
                         "format: found \"%s\", expected one of %s; without it the format is found "
                         "by looking at the first record",
                         name, str_ok(&known) ? known.p : "");
    str_free(&known);
    return s;
}

pesc_status record_formats(source *src, const char *name, const record_format ***out)
{
    size_t n = source_files(src);
    const record_format *given = name ? record_format_find(name) : NULL;
    if (name && !given)
        return unknown_format(name);
    const record_format **list = mem_zalloc(n, sizeof *list);
    if (!list)
        return fail_nomem("the data formats", n * sizeof *list);
    *out = list;
    for (size_t i = 0; i < n; i++) {
        list[i] = given;
        if (!given)
            TRY(detect(src, source_file_first(src, i), &list[i]));
    }
    return PESC_OK;
}

static pesc_status missing(const json_t *v, const char *key)
{
    const json_t *there = json_object_get(v, key);
    if (there)
        return fail(PESC_FORMAT, "%s: found %s, expected text", key, json_kind(there));
    str found = { 0 };
    list_fields(&found, v);
    pesc_status s =
        fail(PESC_FORMAT, "%s: is missing; found %s", key, found.p ? found.p : "nothing");
    str_free(&found);
    return s;
}

/* The text of a field; NULL text with PESC_OK when it is absent or null and may be. */
static pesc_status text_of(const json_t *v, const char *key, bool required, const char **text)
{
    const json_t *t = json_object_get(v, key);
    *text = NULL;
    if (t && json_is_string(t)) {
        *text = json_string_value(t);
        if (strlen(*text) != json_string_length(t))
            return fail(PESC_FORMAT, "%s: holds a NUL character", key);
        return PESC_OK;
    }
    if (!required && (!t || json_is_null(t)))
        return PESC_OK;
    return missing(v, key);
}

static pesc_status own(record *r, char *text)
{
    char **p = text ? mem_grow(r->owned, r->n_owned + 1, sizeof *p) : NULL;
    if (!p) {
        mem_free(text);
        return fail_nomem("a data record", 64);
    }
    r->owned = p;
    r->owned[r->n_owned++] = text;
    return PESC_OK;
}

static pesc_status room(record *r, size_t n)
{
    r->messages = mem_zalloc(n ? n : 1, sizeof *r->messages);
    r->masked = mem_zalloc(n ? n : 1, sizeof *r->masked);
    return r->messages && r->masked ? PESC_OK
                                    : fail_nomem("a data record", n * sizeof *r->messages);
}

static void say(record *r, const char *role, const char *content)
{
    r->messages[r->n++] = (pesc_message){ role, content };
}

/* instruction, then input on a line of its own where there is one */
static pesc_status read_prompt(record *r, const record_format *f, const json_t *v, const char **out)
{
    const char *more;
    TRY(text_of(v, f->prompt[0], true, out));
    for (size_t i = 1; i < sizeof f->prompt / sizeof *f->prompt && f->prompt[i]; i++) {
        TRY(text_of(v, f->prompt[i], false, &more));
        if (!more || !*more)
            continue;
        str both = { 0 };
        str_printf(&both, "%s\n%s", *out, more);
        TRY(own(r, both.p));
        *out = both.p;
    }
    return PESC_OK;
}

/* NULL: not a text, or one with a NUL character. */
static const char *plain_text(const json_t *v)
{
    const char *text = json_string_value(v);
    return text && strlen(text) == json_string_length(v) ? text : NULL;
}

/* Alpaca's earlier turns: [[question, answer], ...]. */
static pesc_status read_history(record *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *turn = json_array_get(list, i);
        const char *question = plain_text(json_array_get(turn, 0));
        const char *answer = plain_text(json_array_get(turn, 1));
        if (json_array_size(turn) != 2 || !question || !answer)
            return fail(PESC_FORMAT, "history[%zu]: is not a question and an answer", i);
        say(r, "user", question);
        say(r, "assistant", answer);
    }
    return PESC_OK;
}

static pesc_status read_columns(record *r, const record_format *f, const json_t *v)
{
    const char *prompt, *answer, *system = NULL;
    const json_t *history = f->system ? json_object_get(v, "history") : NULL; /* alpaca alone */
    if (history && !json_is_null(history) && !json_is_array(history))
        return fail(PESC_FORMAT, "history: found %s, expected a list of turns", json_kind(history));
    TRY(room(r, 3 + 2 * json_array_size(history)));
    if (f->system)
        TRY(text_of(v, f->system, false, &system));
    TRY(read_prompt(r, f, v, &prompt));
    TRY(text_of(v, f->answer, true, &answer));
    if (system && *system)
        say(r, "system", system);
    TRY(read_history(r, history));
    say(r, "user", prompt);
    say(r, "assistant", answer);
    return PESC_OK;
}

static pesc_status read_text(record *r, const record_format *f, const json_t *v)
{
    const char *text;
    TRY(room(r, 1));
    TRY(text_of(v, f->prompt[0], true, &text));
    say(r, "text", text);
    return PESC_OK;
}

/* ---- messages ---- */

static const char *role_of(const char *name)
{
    static const char *const roles[][2] = {
        { "human", "user" },        { "user", "user" },     { "gpt", "assistant" },
        { "model", "assistant" },   { "bot", "assistant" }, { "assistant", "assistant" },
        { "system", "system" },     { "tool", "tool" },     { "observation", "tool" },
        { "function", "function" },
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i][0], name) == 0)
            return roles[i][1];
    return NULL;
}

/* Whether a turn is marked as not trained: mask 1, train false or weight 0. */
static pesc_status is_masked(const json_t *turn, bool *out)
{
    static const struct {
        const char *key;
        bool hides;
    } rows[] = { { "mask", true }, { "train", false }, { "weight", false } };
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

/* Content as parts, [{"type": "text", "text": ...}]: the texts, with line ends between them. */
static pesc_status join_parts(record *r, const json_t *parts, const char **text)
{
    str joined = { 0 };
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type, *piece = NULL;
        s = text_of(part, "type", true, &type);
        if (s == PESC_OK && strcmp(type, "text") != 0)
            s = fail(PESC_FORMAT, "part %zu has the type \"%.40s\", expected text alone", i + 1,
                     type);
        if (s == PESC_OK)
            s = text_of(part, "text", true, &piece);
        if (s == PESC_OK)
            str_printf(&joined, "%s%s", i ? "\n" : "", piece);
    }
    if (s == PESC_OK && !str_ok(&joined))
        s = fail_nomem("a data record", joined.n);
    if (s == PESC_OK && !joined.p)
        s = fail(PESC_FORMAT, "found an empty list, expected text");
    if (s != PESC_OK) {
        str_free(&joined);
        return s;
    }
    *text = joined.p;
    return own(r, joined.p);
}

/* Puts the reasoning of an answer, if it is kept, before the content, as models write it. */
static pesc_status add_reasoning(record *r, const json_t *turn, const char **content)
{
    const char *thought;
    str both = { 0 };
    TRY(text_of(turn, "reasoning_content", false, &thought));
    if (!thought || !*thought)
        return PESC_OK;
    r->left_out = r->left_out || !r->keep_reasoning;
    if (!r->keep_reasoning)
        return PESC_OK;
    str_printf(&both, "<think>\n%s\n</think>\n\n%s", thought, *content);
    *content = both.p;
    return own(r, both.p);
}

static pesc_status content_of(record *r, const json_t *turn, const char *key, const char **text)
{
    static const char *const calls[] = { "tool_calls", "function_call" };
    const json_t *v = json_object_get(turn, key);
    for (size_t i = 0; i < 2; i++) {
        const json_t *call = json_object_get(turn, calls[i]);
        if (json_array_size(call) > 0 || json_object_size(call) > 0)
            return fail(PESC_FORMAT,
                        "%s: calls of tools are not in any built-in chat format; write them into "
                        "%s as the model is to write them",
                        calls[i], key);
    }
    return json_is_array(v) ? join_parts(r, v, text) : text_of(turn, key, true, text);
}

/* One turn of a conversation, appended to the record. */
static pesc_status read_turn(record *r, const record_format *f, const json_t *turn)
{
    const char *name, *content;
    bool masked;
    if (!json_is_object(turn))
        return fail(PESC_FORMAT, "found %s, expected a turn", json_kind(turn));
    TRY(text_of(turn, f->prompt[0], true, &name));
    TRY(content_of(r, turn, f->prompt[1], &content));
    TRY(is_masked(turn, &masked));
    const char *role = role_of(name);
    if (!role)
        return fail(PESC_FORMAT,
                    "%s: found \"%.40s\", expected system, user, assistant, tool or function "
                    "(human and gpt are read too)",
                    f->prompt[0], name);
    if (strcmp(role, "assistant") == 0)
        TRY(add_reasoning(r, turn, &content));
    say(r, role, content);
    r->masked[r->n - 1] = masked;
    return PESC_OK;
}

/* What the assistant may call: a list, or, as LLaMA-Factory has it, the text of one. */
static pesc_status read_tools(record *r, const json_t *v)
{
    json_t *tools = json_object_get(v, "tools");
    const char *text = json_string_value(tools);
    if (!tools || json_is_null(tools) || (text && !*text))
        return PESC_OK;
    if (text)
        TRY(json_parse(&r->tools, text, json_string_length(tools), "tools"));
    else
        r->tools = json_incref(tools);
    if (!json_is_array(r->tools))
        return fail(PESC_FORMAT, "tools: found %s, expected a list", json_kind(r->tools));
    if (json_array_size(r->tools) == 0) {
        json_decref(r->tools);
        r->tools = NULL;
    }
    return PESC_OK;
}

static pesc_status read_messages(record *r, const record_format *f, const json_t *v)
{
    const json_t *list = json_object_get(v, f->needs[0]);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return fail(PESC_FORMAT, "%s: found %s, expected a list of turns", f->needs[0],
                    json_is_array(list) ? "an empty list" : json_kind(list));
    const char *system;
    TRY(text_of(v, f->system, false, &system));
    TRY(read_tools(r, v));
    TRY(room(r, json_array_size(list) + 1));
    if (system && *system)
        say(r, "system", system);
    for (size_t i = 0; i < json_array_size(list); i++) {
        pesc_status s = read_turn(r, f, json_array_get(list, i));
        char why[1024];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        if (s == PESC_FORMAT)
            return fail(s, "%s[%zu]: %s", f->needs[0], i, why);
        TRY(s);
    }
    return PESC_OK;
}

/* {"corpus", "instruction", "conversation": [{"input", "output"}]}: a corpus is plain text, else
 * the instruction is the system prompt. All turns are kept. */
static pesc_status read_camelidae(record *r, const record_format *f, const json_t *v)
{
    const char *corpus, *system, *text;
    TRY(text_of(v, "corpus", false, &corpus));
    TRY(text_of(v, "instruction", false, &system));
    if (corpus && *corpus) {
        r->kind = RECORD_TEXT;
        TRY(room(r, 1));
        say(r, "text", corpus);
        return PESC_OK;
    }
    const json_t *list = json_object_get(v, f->needs[0]);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return fail(PESC_FORMAT, "conversation: found %s, expected a list of turns",
                    json_is_array(list) ? "an empty list" : json_kind(list));
    TRY(room(r, 2 * json_array_size(list) + 1));
    if (system && *system)
        say(r, "system", system);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *turn = json_array_get(list, i);
        TRY(text_of(turn, "input", true, &text));
        say(r, "user", text);
        TRY(text_of(turn, "output", true, &text));
        say(r, "assistant", text);
    }
    return PESC_OK;
}

static pesc_status ids_of(const json_t *v, const char *key, int64_t min, size_t n, int32_t **out)
{
    const json_t *list = json_object_get(v, key);
    if (!json_is_array(list))
        return fail(PESC_FORMAT, "%s: found %s, expected a list of token ids", key,
                    json_kind(list));
    if (json_array_size(list) != n)
        return fail(PESC_FORMAT, "%s: has %zu entries, input_ids %zu; they must be as many", key,
                    json_array_size(list), n);
    int32_t *ids = mem_alloc(n, sizeof *ids);
    if (!ids)
        return fail_nomem("a data record", n * sizeof *ids);
    *out = ids;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || (json_integer_value(id) < 0 && json_integer_value(id) != min) ||
            json_integer_value(id) > INT32_MAX)
            return fail(PESC_FORMAT, "%s[%zu]: is not a token id%s", key, i,
                        min < 0 ? " or -100" : "");
        ids[i] = (int32_t)json_integer_value(id);
    }
    return PESC_OK;
}

static pesc_status read_ids(record *r, const record_format *f, const json_t *v)
{
    r->n_ids = json_array_size(json_object_get(v, f->needs[0]));
    if (r->n_ids == 0)
        return fail(PESC_FORMAT, "input_ids: is not a list with at least one token id");
    TRY(ids_of(v, f->needs[0], 0, r->n_ids, &r->ids));
    return ids_of(v, f->needs[1], -100, r->n_ids, &r->labels);
}

pesc_status record_read(record *r, const record_format *f, const json_t *v, bool keep_reasoning)
{
    *r = (record){ .kind = f->kind, .keep_reasoning = keep_reasoning };
    return f->read(r, f, v);
}

void record_free(record *r)
{
    for (size_t i = 0; i < r->n_owned; i++)
        mem_free(r->owned[i]);
    mem_free(r->owned);
    json_decref(r->tools);
    mem_free(r->messages);
    mem_free(r->masked);
    mem_free(r->ids);
    mem_free(r->labels);
    *r = (record){ 0 };
}
