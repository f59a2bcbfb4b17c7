#include "data/record_format.h"

#include "base/mem.h"
#include "base/str.h"
#include "data/turns.h"

#include <stdio.h>
#include <string.h>

static pesc_status read_columns(record *r, const record_format *f, const json_t *v);
static pesc_status read_text(record *r, const record_format *f, const json_t *v);
static pesc_status read_messages(record *r, const record_format *f, const json_t *v);
static pesc_status read_dialogue(record *r, const record_format *f, const json_t *v);
static pesc_status read_camelidae(record *r, const record_format *f, const json_t *v);
static pesc_status read_ids(record *r, const record_format *f, const json_t *v);

/* The order matters where a record fits two rows: the more specific row comes first. */
static const record_format formats[] = {
    { "ids", { "input_ids", "labels" }, { 0 }, 0, 0, RECORD_IDS, read_ids, 0, 0 },
    { "camelidae", { "conversation", "corpus" }, { 0 }, 0, 0, RECORD_CHAT, read_camelidae, 0, 0 },
    { "messages",
      { "messages" },
      { "role", "content" },
      0,
      "system",
      RECORD_CHAT,
      read_messages,
      0,
      0 },
    { "sharegpt",
      { "conversations" },
      { "from", "value" },
      0,
      "system",
      RECORD_CHAT,
      read_messages,
      0,
      0 },
    { "alpaca",
      { "instruction", "output" },
      { "instruction", "input" },
      "output",
      "system",
      RECORD_CHAT,
      read_columns,
      0,
      0 },
    { "dolly",
      { "instruction", "response" },
      { "instruction", "context", "input" },
      "response",
      0,
      RECORD_CHAT,
      read_columns,
      0,
      0 },
    { "metamath",
      { "query", "response" },
      { "query" },
      "response",
      0,
      RECORD_CHAT,
      read_columns,
      0,
      0 },
    { "magicoder",
      { "problem", "solution" },
      { "problem" },
      "solution",
      0,
      RECORD_CHAT,
      read_columns,
      0,
      0 },
    { "question",
      { "question", "answer" },
      { "question" },
      "answer",
      0,
      RECORD_CHAT,
      read_columns,
      0,
      0 },
    { "completion",
      { "prompt", "completion" },
      { "prompt" },
      "completion",
      0,
      RECORD_COMPLETION,
      read_columns,
      0,
      0 },
    { "prompt",
      { "prompt", "response" },
      { "prompt" },
      "response",
      0,
      RECORD_CHAT,
      read_columns,
      0,
      0 },
    { "text", { "text" }, { "text" }, 0, 0, RECORD_TEXT, read_text, 0, 0 },
#define PREFERENCES(name, kind, of, form)                                                          \
    {                                                                                              \
        name, { "" }, { 0 }, 0, 0, kind, NULL, of, form                                            \
    }
    PREFERENCES("preference-ids", RECORD_IDS, RECORD_PAIR, PAIR_IDS),
    PREFERENCES("preference-human", RECORD_CHAT, RECORD_PAIR, PAIR_HUMAN),
    PREFERENCES("preference-text", RECORD_COMPLETION, RECORD_PAIR, PAIR_TEXT),
    PREFERENCES("preference", RECORD_CHAT, RECORD_PAIR, PAIR_CHAT),
    PREFERENCES("labelled-ids", RECORD_IDS, RECORD_LABELLED, PAIR_IDS),
    PREFERENCES("labelled-text", RECORD_COMPLETION, RECORD_LABELLED, PAIR_TEXT),
    PREFERENCES("labelled", RECORD_CHAT, RECORD_LABELLED, PAIR_CHAT),
#undef PREFERENCES
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* `completion` where its fields are lists of messages. */
static const record_format dialogue = { "completion",
                                        { "prompt", "completion" },
                                        { "role", "content" },
                                        0,
                                        0,
                                        RECORD_CHAT,
                                        read_dialogue,
                                        0,
                                        0 };

const record_format *record_row(size_t i)
{
    return i < N_FORMATS ? &formats[i] : NULL;
}

bool record_row_varies(const record_format *f)
{
    return strcmp(f->name, dialogue.name) == 0;
}

const record_format *record_row_of(const record_format *f, const json_t *v)
{
    bool messages = json_is_array(json_object_get(v, dialogue.needs[0]));
    return record_row_varies(f) && messages ? &dialogue : f;
}

void record_list_fields(str *out, const json_t *v)
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

static pesc_status missing(const json_t *v, const char *key)
{
    const json_t *there = json_object_get(v, key);
    if (there)
        return fail(PESC_FORMAT, "%s: found %s, expected text", key, json_kind(there));
    str found = { 0 };
    record_list_fields(&found, v);
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

pesc_status record_add(record *r, json_t *message, bool masked)
{
    if (r->n == r->cap) {
        size_t cap = r->cap * 2 + 8;
        unsigned char *p = mem_grow(r->masked, cap, 1);
        if (!p) {
            json_decref(message);
            return fail_nomem("a data record", cap);
        }
        r->masked = p;
        r->cap = cap;
    }
    if (!r->messages && !(r->messages = json_array())) {
        json_decref(message);
        return fail_nomem("a data record", 0);
    }
    if (json_array_append_new(r->messages, message) != 0)
        return fail_nomem("a data record", r->n);
    r->masked[r->n++] = masked;
    return PESC_OK;
}

const char *record_text(const record *r, size_t i)
{
    const char *text =
        json_string_value(json_object_get(json_array_get(r->messages, i), "content"));
    return text ? text : "";
}

bool record_is_answer(const record *r, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(r->messages, i), "role"));
    return role && strcmp(role, "assistant") == 0;
}

static pesc_status say(record *r, const char *role, const char *content)
{
    return record_add(r, json_pack("{ss ss}", "role", role, "content", content), false);
}

/* instruction, then input on a line of its own where there is one */
static pesc_status read_prompt(str *out, const record_format *f, const json_t *v)
{
    const char *more;
    TRY(text_of(v, f->prompt[0], true, &more));
    str_puts(out, more);
    for (size_t i = 1; i < sizeof f->prompt / sizeof *f->prompt && f->prompt[i]; i++) {
        TRY(text_of(v, f->prompt[i], false, &more));
        if (more && *more)
            str_printf(out, "\n%s", more);
    }
    return str_ok(out) ? PESC_OK : fail_nomem("a data record", out->n);
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
    if (list && !json_is_null(list) && !json_is_array(list))
        return fail(PESC_FORMAT, "history: found %s, expected a list of turns", json_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *turn = json_array_get(list, i);
        const char *question = plain_text(json_array_get(turn, 0));
        const char *answer = plain_text(json_array_get(turn, 1));
        if (json_array_size(turn) != 2 || !question || !answer)
            return fail(PESC_FORMAT, "history[%zu]: is not a question and an answer", i);
        TRY(say(r, "user", question));
        TRY(say(r, "assistant", answer));
    }
    return PESC_OK;
}

static pesc_status say_columns(record *r, const record_format *f, const json_t *v,
                               const char *prompt)
{
    const char *answer, *system = NULL;
    const json_t *history = f->system ? json_object_get(v, "history") : NULL; /* alpaca alone */
    TRY(text_of(v, f->answer, true, &answer));
    if (f->system)
        TRY(text_of(v, f->system, false, &system));
    if (system && *system)
        TRY(say(r, "system", system));
    TRY(read_history(r, history));
    TRY(say(r, "user", prompt));
    return say(r, "assistant", answer);
}

static pesc_status read_columns(record *r, const record_format *f, const json_t *v)
{
    str prompt = { 0 };
    pesc_status s = read_prompt(&prompt, f, v);
    if (s == PESC_OK)
        s = say_columns(r, f, v, prompt.p ? prompt.p : "");
    str_free(&prompt);
    return s;
}

static pesc_status read_text(record *r, const record_format *f, const json_t *v)
{
    const char *text;
    TRY(text_of(v, f->prompt[0], true, &text));
    return say(r, "text", text);
}

/* ---- messages ---- */

static pesc_status read_messages(record *r, const record_format *f, const json_t *v)
{
    const char *system;
    TRY(text_of(v, f->system, false, &system));
    TRY(turns_tools(r, v));
    if (system && *system)
        TRY(say(r, "system", system));
    return turns_read(r, json_object_get(v, f->needs[0]), f->needs[0], f->prompt[0], f->prompt[1]);
}

/* A prompt and a completion that are lists of messages: the answers of the prompt are not trained.
 */
static pesc_status read_dialogue(record *r, const record_format *f, const json_t *v)
{
    TRY(turns_tools(r, v));
    for (int i = 0; i < 2; i++) {
        TRY(turns_read(r, json_object_get(v, f->needs[i]), f->needs[i], f->prompt[0],
                       f->prompt[1]));
        if (i == 0)
            memset(r->masked, 1, r->n);
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
        return say(r, "text", corpus);
    }
    const json_t *list = json_object_get(v, f->needs[0]);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return fail(PESC_FORMAT, "conversation: found %s, expected a list of turns",
                    json_is_array(list) ? "an empty list" : json_kind(list));
    if (system && *system)
        TRY(say(r, "system", system));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *turn = json_array_get(list, i);
        TRY(text_of(turn, "input", true, &text));
        TRY(say(r, "user", text));
        TRY(text_of(turn, "output", true, &text));
        TRY(say(r, "assistant", text));
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

pesc_status record_read(record *r, const record_format *f, const json_t *v)
{
    *r = (record){ .kind = f->kind };
    return f->read(r, f, v);
}

void record_free(record *r)
{
    json_decref(r->tools);
    json_decref(r->messages);
    mem_free(r->masked);
    mem_free(r->ids);
    mem_free(r->labels);
    *r = (record){ 0 };
}
