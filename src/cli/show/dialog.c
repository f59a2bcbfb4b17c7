#include "cli/show/dialog.h"

#include "cli/show/progress.h"

#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

pesc_status dialog_push(dialog *d, const char *role, const char *content)
{
    pesc_message *more = realloc(d->messages, (d->n + 1) * sizeof *more);
    if (more)
        d->messages = more;
    char *copy = more && content ? strdup(content) : NULL;
    if (!more || (content && !copy))
        return out_nomem("the conversation");
    d->messages[d->n++] = (pesc_message){ .role = role, .content = copy };
    return PESC_OK;
}

void dialog_cut(dialog *d, size_t n)
{
    while (d->n > n)
        free((char *)d->messages[--d->n].content);
}

pesc_status dialog_encode(const dialog *d, int32_t **ids, size_t *n)
{
    size_t first = d->messages[0].content ? 0 : 1, cap = 4096;
    for (;;) {
        *ids = malloc(cap * sizeof **ids);
        if (!*ids)
            return out_nomem("the conversation");
        pesc_status st = pesc_chat_tokenize(d->m->model, d->format, d->messages + first,
                                            d->n - first, *ids, cap, n);
        if (st == PESC_OK && *n <= cap)
            return PESC_OK;
        free(*ids);
        *ids = NULL;
        TRY(st);
        cap = *n;
    }
}

/* ---- files ---- */

static json_t *to_json(const dialog *d)
{
    json_t *list = json_array(), *file = json_pack("{s:O}", "messages", list);
    bool good = list && file;
    for (size_t i = d->messages[0].content ? 0 : 1; good && i < d->n; i++) {
        const pesc_message *m = &d->messages[i];
        json_t *one = json_pack("{s:s, s:s}", "role", m->role, "content", m->content);
        good = one && json_array_append_new(list, one) == 0;
    }
    json_decref(list);
    if (good)
        return file;
    json_decref(file);
    return NULL;
}

pesc_status dialog_save(const dialog *d, const char *path)
{
    json_t *file = to_json(d);
    if (!file)
        return out_fail(PESC_FORMAT, "%s: the conversation is not valid UTF-8", path);
    errno = 0;
    int failed = json_dump_file(file, path, JSON_INDENT(1));
    json_decref(file);
    return failed ? out_fail(PESC_IO, "%s: cannot write it: %s", path, strerror(errno)) : PESC_OK;
}

static pesc_status take_message(dialog *to, const json_t *m, const char *path, size_t index)
{
    static const char *const roles[] = { "system", "user", "assistant" };
    const char *role = json_string_value(json_object_get(m, "role"));
    const char *content = json_string_value(json_object_get(m, "content"));
    for (size_t i = 0; role && content && i < 3; i++) {
        if (strcmp(role, roles[i]) != 0 || (i == 0 && index > 0))
            continue;
        if (i > 0 && to->n == 0)
            TRY(dialog_push(to, "system", NULL));
        return dialog_push(to, roles[i], content);
    }
    return out_fail(PESC_FORMAT,
                    "%s: message %zu: expected a role (system, which may only be the first, user "
                    "or assistant) and a content that is text",
                    path, index + 1);
}

pesc_status dialog_load(dialog *d, const char *path)
{
    json_error_t e;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!file)
        return out_fail(PESC_FORMAT, "%s: cannot read it as JSON: %s", path, e.text);
    const json_t *list = json_object_get(file, "messages");
    dialog loaded = { 0 };
    pesc_status s = json_array_size(list) > 0
                        ? PESC_OK
                        : out_fail(PESC_FORMAT, "%s: found no messages, expected some", path);
    for (size_t i = 0; s == PESC_OK && i < json_array_size(list); i++)
        s = take_message(&loaded, json_array_get(list, i), path, i);
    if (s == PESC_OK) {
        dialog_cut(d, 0);
        free(d->messages);
        d->messages = loaded.messages;
        d->n = loaded.n;
        loaded = (dialog){ 0 };
    }
    dialog_cut(&loaded, 0);
    free(loaded.messages);
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
    *d = (dialog){ .m = m };
    TRY(open_sampling(m, o, &d->sampling));
    TRY(pick_format(d, o));
    TRY(collect_stops(d, o));
    return dialog_push(d, "system", o->system);
}

void dialog_close(dialog *d)
{
    dialog_cut(d, 0);
    free(d->messages);
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

void dialog_json(const pesc_generation *g)
{
    out_begin(NULL, '{');
    out_ids("ids", g->ids, g->n_ids);
    out_string("text", g->text ? g->text : "", g->n_text);
    out_fields("finish=%s prompt_tokens=%ld", g->finish, g->n_prompt);
    /* the first token comes from prefill, the others from decode */
    out_fields("tokens_per_second=%.6g prefill_seconds=%.6g decode_seconds=%.6g",
               g->n_ids > 1 ? (double)(g->n_ids - 1) / g->decode_seconds : 0, g->prefill_seconds,
               g->decode_seconds);
    out_fields("draft_n=%ld draft_n_accepted=%ld", g->n_guessed, g->n_guesses_kept);
    out_end();
}
