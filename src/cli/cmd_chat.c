/* cmd_chat: a conversation in the terminal.
 *
 * The conversation is a list of messages; for every answer all of it is rendered again, and the
 * session reuses the KV cache of the tokens it already has. So /reset, /edit and /load need no
 * bookkeeping, and the model always sees exactly what the chat format defines. */
#include "cli/command.h"
#include "cli/show/dialog.h"
#include "cli/opt/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat {
    const options *o;
    open_model m;
    pesc_session *session;
    line_input *lines;
    dialog talk;
    bool done;
} chat;

/* ---- answers ---- */

static bool emit(void *ud, const char *text, size_t n)
{
    const chat *c = ud;
    return (c->o->json || dialog_emit(NULL, text, n)) && !line_interrupted();
}

/* The answer to the conversation as it is; it becomes its last message. */
static pesc_status answer(chat *c)
{
    int32_t *ids = NULL;
    size_t n = 0;
    pesc_generation g = PESC_INIT(pesc_generation);
    bool json = c->o->json;
    TRY(dialog_encode(&c->talk, &ids, &n));
    pesc_status st = pesc_session_complete(c->session, ids, n, &c->talk.sampling, emit, c, &g);
    if (st == PESC_OK && json)
        dialog_json(&g);
    else if (st == PESC_OK)
        putchar('\n');
    fflush(stdout);
    if (st == PESC_OK)
        st = dialog_push(&c->talk, "assistant", g.text ? g.text : "");
    bool full = strcmp(g.finish, "length") == 0 && (int64_t)g.n_ids < c->talk.sampling.max_tokens;
    if (st == PESC_OK && full && !c->o->quiet)
        fputs("pesc: the context is full, so the answer ends here; /reset starts a new "
              "conversation\n",
              stderr);
    pesc_generation_free(&g);
    free(ids);
    return st;
}

/* At a terminal a failure is shown and the user may continue. */
static pesc_status show_failure(const chat *c, pesc_status st)
{
    if (st == PESC_OK || !line_is_terminal(c->lines))
        return st;
    out_report(st, false);
    return PESC_OK;
}

/* Removes a message that got no answer. */
static pesc_status say(chat *c, const char *text)
{
    size_t before = c->talk.n;
    pesc_status st = dialog_push(&c->talk, "user", text);
    if (st == PESC_OK)
        st = answer(c);
    if (st != PESC_OK)
        dialog_cut(&c->talk, before);
    return show_failure(c, st);
}

/* ---- commands that begin with / ---- */

static pesc_status do_reset(chat *c, const char *rest)
{
    (void)rest;
    dialog_cut(&c->talk, 1);
    return PESC_OK;
}

static pesc_status do_system(chat *c, const char *rest)
{
    dialog_cut(&c->talk, 0);
    return dialog_push(&c->talk, "system", rest[0] ? rest : NULL);
}

/* Index of the last message of the user; 0: there is none. */
static size_t last_question(const chat *c)
{
    size_t i = c->talk.n - 1;
    while (i > 0 && strcmp(c->talk.messages[i].role, "user") != 0)
        i--;
    return i;
}

static pesc_status nothing_said(void)
{
    return out_fail(PESC_USAGE, "there is no message yet");
}

/* Another seed, else the answer would be the same. */
static pesc_status do_retry(chat *c, const char *rest)
{
    (void)rest;
    size_t last = last_question(c);
    if (last == 0)
        return nothing_said();
    dialog_cut(&c->talk, last + 1);
    c->talk.sampling.seed++;
    return answer(c);
}

static pesc_status do_edit(chat *c, const char *rest)
{
    size_t last = last_question(c);
    if (last == 0)
        return nothing_said();
    if (!rest[0] && !line_is_terminal(c->lines))
        return out_fail(PESC_USAGE, "/edit needs the new text");
    if (!rest[0]) {
        line_begin_with(c->lines, c->talk.messages[last].content);
        dialog_cut(&c->talk, last);
        return PESC_OK;
    }
    dialog_cut(&c->talk, last);
    return say(c, rest);
}

static bool can_set(const pesc_option *row)
{
    return row->of == PESC_OPTIONS_SAMPLE && row->kind != PESC_OPTION_LIST;
}

static void show_settings(chat *c)
{
    for (const pesc_option *r = NULL; (r = opt_next(c->o->cmd, r));) {
        char value[64];
        if (!can_set(r))
            continue;
        (void)pesc_option_get(r, &c->talk.sampling, value, sizeof value);
        fprintf(stderr, "%-19s%s\n", r->key, value);
    }
}

static pesc_status do_set(chat *c, const char *rest)
{
    char key[32];
    size_t n = strcspn(rest, " =");
    const char *value = rest + n + strspn(rest + n, " =");
    if (!rest[0]) {
        show_settings(c);
        return PESC_OK;
    }
    snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : sizeof key - 1), rest);
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    const pesc_option *row = opt_find(c->o->cmd, key);
    if (!row || !can_set(row))
        return out_fail(PESC_USAGE, "there is no setting %s; /set lists them", key);
    return pesc_option_set(row, &c->talk.sampling, value, key);
}

static pesc_status do_save(chat *c, const char *rest)
{
    return rest[0] ? dialog_save(&c->talk, rest)
                   : out_fail(PESC_USAGE, "/save needs the name of a file");
}

static pesc_status do_load(chat *c, const char *rest)
{
    return rest[0] ? dialog_load(&c->talk, rest)
                   : out_fail(PESC_USAGE, "/load needs the name of a file");
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
    { "/retry", "another answer to the last message", do_retry },
    { "/edit", "TEXT: replace the last message and answer it; without TEXT, edit it", do_edit },
    { "/reset", "forget the conversation, keep the system message", do_reset },
    { "/system", "TEXT: a new system message and a new conversation; without TEXT none",
      do_system },
    { "/set", "KEY VALUE: change a sampling option, such as temperature; alone, list them",
      do_set },
    { "/save", "FILE: write the conversation as JSON", do_save },
    { "/load", "FILE: continue a conversation that was saved", do_load },
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
            return show_failure(c, inner[i].run(c, rest));
    return show_failure(c, out_fail(PESC_USAGE,
                                    "there is no %.*s; /help lists what there is, and a space "
                                    "before / makes it a message",
                                    (int)(n < 60 ? n : 60), text));
}

/* ---- the command ---- */

static pesc_status converse(chat *c)
{
    const char *text;
    if (line_is_terminal(c->lines) && !c->o->quiet)
        fprintf(stderr, "%s, %s format, temperature %g; /help, Ctrl-D leaves\n", c->m.info.family,
                c->talk.format ? c->talk.format : c->m.info.chat, c->talk.sampling.temperature);
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
            else if (text[strspn(text, " \t\r\n")])
                TRY(say(c, text));
        }
    }
    return PESC_OK;
}

static pesc_status run_chat(chat *c)
{
    const pesc_tokenizer *t;
    TRY(open_from(&c->m, c->o));
    TRY(open_tokenizer(&c->m, c->o, &t));
    TRY(dialog_open(&c->talk, &c->m, c->o));
    TRY(pesc_session_open(&c->session, c->m.model, (int32_t)c->o->ctx));
    TRY(open_draft(&c->m, c->o, c->session));
    TRY(line_open(&c->lines));
    return converse(c);
}

pesc_status cmd_chat(const options *o)
{
    chat c = { .o = o };
    pesc_status st = run_chat(&c);
    dialog_close(&c.talk);
    line_close(c.lines);
    pesc_session_close(c.session);
    open_free(&c.m);
    return st;
}
