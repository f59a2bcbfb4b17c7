/* cmd_chat: a conversation in the terminal.
 *
 * The conversation is a list of messages; for every answer all of it is rendered again, and the
 * session reuses the KV cache of the tokens it already has. So /reset and /system need no
 * bookkeeping, and the model always sees exactly what the chat format defines. */
#include "cli/command.h"
#include "cli/line.h"
#include "cli/open.h"
#include "cli/speak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat {
    const options *o;
    open_model m;
    pesc_session *session;
    line_input *lines;
    const char *format;
    pesc_sample_options sampling;
    const char **stops;
    pesc_message
        *messages; /* the first is the system message; its content is NULL if there is none */
    size_t n_messages;
    bool done;
} chat;

/* ---- the conversation ---- */

static pesc_status push(chat *c, const char *role, const char *content)
{
    pesc_message *more = realloc(c->messages, (c->n_messages + 1) * sizeof *more);
    if (more)
        c->messages = more;
    char *copy = more && content ? strdup(content) : NULL;
    if (!more || (content && !copy))
        return out_nomem("the conversation");
    c->messages[c->n_messages++] = (pesc_message){ .role = role, .content = copy };
    return PESC_OK;
}

static void cut(chat *c, size_t n)
{
    while (c->n_messages > n)
        free((char *)c->messages[--c->n_messages].content);
}

/* Ids of the conversation so far, for free(). */
static pesc_status encode(const chat *c, int32_t **ids, size_t *n)
{
    size_t first = c->messages[0].content ? 0 : 1, cap = 4096;
    for (;;) {
        *ids = malloc(cap * sizeof **ids);
        if (!*ids)
            return out_nomem("the conversation");
        pesc_status st = pesc_chat_tokenize(c->m.model, c->format, c->messages + first,
                                            c->n_messages - first, *ids, cap, n);
        if (st == PESC_OK && *n <= cap)
            return PESC_OK;
        free(*ids);
        *ids = NULL;
        TRY(st);
        cap = *n;
    }
}

static bool emit(void *ud, const char *text, size_t n)
{
    const chat *c = ud;
    return (c->o->json || speak_emit(NULL, text, n)) && !line_interrupted();
}

static pesc_status answer(chat *c)
{
    int32_t *ids = NULL;
    size_t n = 0;
    pesc_generation g = PESC_INIT(pesc_generation);
    bool json = c->o->json;
    TRY(encode(c, &ids, &n));
    pesc_status st = pesc_session_complete(c->session, ids, n, &c->sampling, emit, c, &g);
    if (st == PESC_OK && json)
        speak_json(&g);
    else if (st == PESC_OK)
        putchar('\n');
    fflush(stdout);
    if (st == PESC_OK)
        st = push(c, "assistant", g.text ? g.text : "");
    pesc_generation_free(&g);
    free(ids);
    return st;
}

/* Removes a message that got no answer; at a terminal the user may continue. */
static pesc_status say(chat *c, const char *text)
{
    size_t before = c->n_messages;
    pesc_status st = push(c, "user", text);
    if (st == PESC_OK)
        st = answer(c);
    if (st == PESC_OK)
        return st;
    cut(c, before);
    if (!line_is_terminal(c->lines))
        return st;
    out_report(st, false);
    return PESC_OK;
}

/* ---- commands that begin with / ---- */

static pesc_status do_reset(chat *c, const char *rest)
{
    (void)rest;
    cut(c, 1);
    return PESC_OK;
}

static pesc_status do_system(chat *c, const char *rest)
{
    cut(c, 0);
    return push(c, "system", rest[0] ? rest : NULL);
}

static pesc_status do_quit(chat *c, const char *rest)
{
    (void)rest;
    c->done = true;
    return PESC_OK;
}

static pesc_status do_help(chat *c, const char *rest);

static const struct {
    const char *name, *help;
    pesc_status (*run)(chat *c, const char *rest);
} inner[] = {
    { "/reset", "forget the conversation, keep the system message", do_reset },
    { "/system", "TEXT: a new system message and a new conversation; without TEXT none",
      do_system },
    { "/help", "this list", do_help },
    { "/quit", "leave; so does Ctrl-D", do_quit },
};
enum { N_INNER = sizeof inner / sizeof *inner };

static pesc_status do_help(chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    for (size_t i = 0; i < N_INNER; i++)
        fprintf(stderr, "%-9s%s\n", inner[i].name, inner[i].help);
    fputs("Ctrl-C   stop the answer\n", stderr);
    return PESC_OK;
}

static pesc_status obey(chat *c, const char *text)
{
    size_t n = strcspn(text, " ");
    const char *rest = text + n + strspn(text + n, " ");
    for (size_t i = 0; i < N_INNER; i++)
        if (strlen(inner[i].name) == n && strncmp(inner[i].name, text, n) == 0)
            return inner[i].run(c, rest);
    pesc_status st = out_fail(PESC_USAGE,
                              "there is no %.*s; /help lists what there is, and a space "
                              "before / makes it a message",
                              (int)(n < 60 ? n : 60), text);
    if (!line_is_terminal(c->lines))
        return st;
    out_report(st, false);
    return PESC_OK;
}

/* ---- the command ---- */

static pesc_status list_formats(const chat *c, pesc_status s, const char *problem, const char *name)
{
    char list[512] = "";
    size_t at = 0;
    for (const char *const *f = pesc_chat_formats(); *f && at < sizeof list; f++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *f);
    return out_fail(s, "%s: %s%s; --chat-format takes one of %s",
                    s == PESC_USAGE ? "chat" : c->o->model, problem, name, list);
}

static pesc_status pick_format(chat *c)
{
    const char *own = pesc_model_chat_format(c->m.model), *asked = c->o->chat_format;
    if (!asked && own && own[0]) {
        c->format = own;
        return PESC_OK;
    }
    if (!asked)
        return list_formats(c, PESC_UNSUPPORTED, "its chat template is absent or not known", "");
    for (const char *const *f = pesc_chat_formats(); *f; f++)
        if (strcmp(*f, asked) == 0)
            c->format = *f;
    return c->format ? PESC_OK : list_formats(c, PESC_USAGE, "there is no chat format ", asked);
}

/* The stop texts of the user and of the chat format. */
static pesc_status collect_stops(chat *c)
{
    size_t n;
    const char *const *own = pesc_chat_stops(c->format, &n);
    c->stops = calloc(c->o->sample.n_stop + n + 1, sizeof *c->stops);
    if (!c->stops)
        return out_nomem("the stop texts");
    for (size_t i = 0; i < c->o->sample.n_stop; i++)
        c->stops[i] = c->o->sample.stop[i];
    for (size_t i = 0; i < n; i++)
        c->stops[c->o->sample.n_stop + i] = own[i];
    c->sampling.stop = c->stops;
    c->sampling.n_stop = c->o->sample.n_stop + n;
    return PESC_OK;
}

static pesc_status converse(chat *c)
{
    const char *text;
    if (line_is_terminal(c->lines) && !c->o->quiet)
        fprintf(stderr, "%s, %s format; /help, Ctrl-D leaves\n", c->m.info.family, c->format);
    while (!c->done) {
        switch (line_read(c->lines, &text)) {
        case LINE_END:
            if (line_is_terminal(c->lines))
                fputc('\n', stderr);
            return PESC_OK;
        case LINE_INTERRUPT:
            fputc('\n', stderr);
            break;
        case LINE_TEXT:
            if (text[0] == '/')
                TRY(obey(c, text));
            else if (text[strspn(text, " \t\r")])
                TRY(say(c, text));
        }
    }
    return PESC_OK;
}

static pesc_status run(chat *c)
{
    const pesc_tokenizer *t;
    TRY(open_from(&c->m, c->o));
    TRY(open_tokenizer(&c->m, c->o, &t));
    TRY(pick_format(c));
    TRY(collect_stops(c));
    TRY(push(c, "system", c->o->system));
    TRY(pesc_session_open(&c->session, c->m.model, (int32_t)c->o->ctx));
    TRY(line_open(&c->lines));
    return converse(c);
}

pesc_status cmd_chat(const options *o)
{
    chat c = { .o = o, .sampling = o->sample };
    pesc_status st = run(&c);
    cut(&c, 0);
    free(c.messages);
    free(c.stops);
    line_close(c.lines);
    pesc_session_close(c.session);
    open_free(&c.m);
    return st;
}
