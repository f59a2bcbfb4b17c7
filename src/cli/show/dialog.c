#include "cli/show/dialog.h"

#include "cli/show/progress.h"

#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

pesc_status dialog_add(dialog *d, json_t *message)
{
    return message && json_array_append_new(d->messages, message) == 0
               ? PESC_OK
               : out_nomem("the conversation");
}

pesc_status dialog_push(dialog *d, const char *role, const char *content)
{
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", content);
    return m ? dialog_add(d, m) : out_fail(PESC_USAGE, "the message is not valid UTF-8");
}

size_t dialog_size(const dialog *d)
{
    return json_array_size(d->messages);
}

static const char *text_of(const json_t *m, const char *key)
{
    return json_string_value(json_object_get(m, key));
}

bool dialog_is_from(const dialog *d, size_t i, const char *role)
{
    const char *from = text_of(json_array_get(d->messages, i), "role");
    return from && strcmp(from, role) == 0;
}

void dialog_cut(dialog *d, size_t n)
{
    while (dialog_size(d) > n)
        json_array_remove(d->messages, dialog_size(d) - 1);
}

pesc_status dialog_encode(const dialog *d, int32_t **ids, size_t *n)
{
    size_t size = dialog_size(d), cap = 4096;
    pesc_message *list = calloc(size + 1, sizeof *list);
    pesc_status st = list ? PESC_OK : out_nomem("the conversation");
    for (size_t i = 0; list && i < size; i++) {
        const json_t *m = json_array_get(d->messages, i);
        list[i] = (pesc_message){ text_of(m, "role"), text_of(m, "content") };
    }
    *ids = NULL;
    for (bool fits = false; st == PESC_OK && !fits; cap = *n) {
        free(*ids);
        *ids = malloc(cap * sizeof **ids);
        st = *ids ? pesc_chat_tokenize(d->m->model, d->format, list, size, *ids, cap, n)
                  : out_nomem("the conversation");
        fits = *n <= cap;
    }
    free(list);
    return st; /* the caller frees *ids in any case */
}

pesc_status dialog_answer(const dialog *d, pesc_session *s, const char *tool_format,
                          pesc_turn_fn emit, void *ud, pesc_generation *g)
{
    char *messages = json_dumps(d->messages, JSON_COMPACT);
    char *tools = d->tools ? json_dumps(d->tools, JSON_COMPACT) : NULL;
    pesc_conversation c = PESC_INIT(pesc_conversation);
    c.format = d->format;
    c.messages = messages;
    c.tools = tools;
    c.tool_format = tool_format;
    pesc_status st = messages && !d->tools == !tools
                         ? pesc_session_answer(s, &c, &d->sampling, emit, ud, g)
                         : out_nomem("the conversation");
    free(messages);
    free(tools);
    return st;
}

/* ---- files ---- */

pesc_status dialog_save(const dialog *d, const char *path)
{
    json_t *file = json_pack("{s:O, s:O*}", "messages", d->messages, "tools", d->tools);
    if (!file)
        return out_nomem("the conversation");
    errno = 0;
    int failed = json_dump_file(file, path, JSON_INDENT(1));
    json_decref(file);
    return failed ? out_fail(PESC_IO, "%s: cannot write it: %s", path, strerror(errno)) : PESC_OK;
}

/* Whether it can be a message of this conversation: the system's only as the first, and a text
 * where it is no answer with calls. */
static bool is_message(const json_t *m, size_t index)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    const char *role = text_of(m, "role");
    size_t i = 0, n = sizeof roles / sizeof *roles;
    while (role && i < n && strcmp(role, roles[i]) != 0)
        i++;
    bool calls = json_array_size(json_object_get(m, "tool_calls")) > 0;
    return role && i < n && (i > 0 || index == 0) &&
           (text_of(m, "content") || (strcmp(role, "assistant") == 0 && calls));
}

pesc_status dialog_load(dialog *d, const char *path)
{
    json_error_t e;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!file)
        return out_fail(PESC_FORMAT, "%s: cannot read it as JSON: %s", path, e.text);
    json_t *list = json_object_get(file, "messages");
    pesc_status s = json_array_size(list) > 0
                        ? PESC_OK
                        : out_fail(PESC_FORMAT, "%s: found no messages, expected some", path);
    for (size_t i = 0; s == PESC_OK && i < json_array_size(list); i++)
        if (!is_message(json_array_get(list, i), i))
            s = out_fail(PESC_FORMAT,
                         "%s: message %zu: expected a role (system, which may only be the first, "
                         "user, assistant or tool) and a content that is text",
                         path, i + 1);
    if (s == PESC_OK) {
        json_decref(d->messages);
        d->messages = json_incref(list);
    }
    json_decref(file);
    return s;
}

/* ---- format and sampling ---- */

static pesc_status list_formats(const options *o, const char *name)
{
    char list[512] = "";
    size_t at = 0;
    for (const char *const *f = pesc_chat_formats(); *f && at < sizeof list; f++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *f);
    return out_fail(PESC_USAGE, "%s: there is no chat format %s; --chat-format takes one of %s",
                    o->cmd->name, name, list);
}

static pesc_status pick_format(dialog *d, const options *o)
{
    const char *asked = o->chat_format;
    bool own = !asked || strcmp(asked, "own") == 0;
    size_t n;
    if (own && pesc_model_chat_format(d->m->model)[0])
        return PESC_OK;
    if (own && pesc_chat_tokenize(d->m->model, NULL, NULL, 0, NULL, 0, &n) != PESC_OK)
        return out_fail(PESC_UNSUPPORTED, "%s: %s, with --chat-format", o->model,
                        pesc_last_error());
    for (const char *const *f = pesc_chat_formats(); *f && asked; f++)
        if (strcmp(*f, asked) == 0)
            d->format = *f;
    return d->format ? PESC_OK : list_formats(o, asked ? asked : "");
}

/* The stop texts of the user and, unless the model's ends are to be ignored, of the chat format. */
static pesc_status collect_stops(dialog *d, const options *o)
{
    size_t n;
    const char *const *own =
        d->format ? pesc_chat_stops(d->format, &n) : pesc_model_chat_stops(d->m->model, &n);
    n = o->sample.ignore_eos ? 0 : n;
    d->stops = calloc(o->sample.n_stop + n + 1, sizeof *d->stops);
    if (!d->stops)
        return out_nomem("the stop texts");
    for (size_t i = 0; i < o->sample.n_stop; i++)
        d->stops[i] = o->sample.stop[i];
    for (size_t i = 0; i < n; i++)
        d->stops[o->sample.n_stop + i] = own[i];
    d->sampling.stop = d->stops;
    d->sampling.n_stop = o->sample.n_stop + n;
    return PESC_OK;
}

pesc_status dialog_open(dialog *d, const open_model *m, const options *o)
{
    *d = (dialog){ .m = m, .messages = json_array() };
    if (!d->messages)
        return out_nomem("the conversation");
    TRY(open_sampling(m, o, &d->sampling));
    TRY(pick_format(d, o));
    TRY(collect_stops(d, o));
    return o->system ? dialog_push(d, "system", o->system) : PESC_OK;
}

void dialog_close(dialog *d)
{
    json_decref(d->messages);
    json_decref(d->tools);
    free(d->stops);
}

/* ---- answers ---- */

bool dialog_emit(void *ud, const char *text, size_t n)
{
    (void)ud;
    progress_clear();
    out_write(text, n);
    return fflush(stdout) == 0;
}

/* What the turn has beside text: reasoning, and calls by name and arguments. */
static void put_turn(const json_t *turn)
{
    const json_t *thought = json_object_get(turn, "reasoning_content");
    const json_t *calls = json_object_get(turn, "tool_calls");
    if (thought)
        out_string("reasoning", json_string_value(thought), json_string_length(thought));
    if (calls)
        out_begin("tool_calls", '[');
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *f = json_object_get(call, "function");
        out_object(NULL, "id=%s name=%s arguments=%s", text_of(call, "id"), text_of(f, "name"),
                   text_of(f, "arguments"));
    }
    if (calls)
        out_end();
}

void dialog_json(const pesc_generation *g, const json_t *turn)
{
    out_begin(NULL, '{');
    out_ids("ids", g->ids, g->n_ids);
    out_string("text", g->text ? g->text : "", g->n_text);
    put_turn(turn);
    out_fields("finish=%s prompt_tokens=%ld", g->finish, g->n_prompt);
    /* the first token comes from prefill, the others from decode */
    out_fields("tokens_per_second=%.6g prefill_seconds=%.6g decode_seconds=%.6g",
               g->n_ids > 1 ? (double)(g->n_ids - 1) / g->decode_seconds : 0, g->prefill_seconds,
               g->decode_seconds);
    out_fields("draft_n=%ld draft_n_accepted=%ld", g->n_guessed, g->n_guesses_kept);
    if (g->n_ids > 1)
        out_fields("tokens_per_pass=%.4g",
                   (double)(g->n_ids - 1) / (double)(g->n_ids - 1 - g->n_guesses_kept));
    out_end();
}
