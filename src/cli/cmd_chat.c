/* cmd_chat: a conversation in the terminal, in which the model may call programs of the user.
 *
 * The conversation is a list of messages; for every answer all of it is rendered again, and the
 * session reuses the KV cache of the tokens it already has. So /reset, /edit and /load need no
 * bookkeeping, and the model always sees exactly what the chat format defines. */
#include "cli/command.h"
#include "cli/show/dialog.h"
#include "cli/opt/line.h"
#include "cli/opt/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <termios.h>
#include <unistd.h>

typedef struct chat {
    const options *o;
    open_model m;
    pesc_session *session;
    line_input *lines;
    dialog talk;
    bool thinks, says; /* what is shown is a thought; there was content */
    bool done;         /* the input has ended */
    bool stopped;      /* Ctrl-C ended the turn */
} chat;

/* ---- what the model says ---- */

/* The answer goes to standard output, thoughts beside it to standard error. */
static bool emit(void *ud, bool thought, const char *text, size_t n)
{
    chat *c = ud;
    bool over = c->thinks && !thought, shown = !c->o->json, fine = true;
    c->thinks = thought;
    c->says = c->says || !thought;
    if (shown && over && !c->o->quiet)
        out_aside("\n\n", 2);
    if (shown && thought && !c->o->quiet)
        out_aside(text, n);
    if (shown && !thought)
        fine = dialog_emit(NULL, text, n);
    return fine && !line_interrupted();
}

/* One turn of the model; it becomes the last message. */
static pesc_status speak(chat *c)
{
    pesc_generation g = PESC_INIT(pesc_generation);
    c->thinks = c->says = false;
    pesc_status st = dialog_answer(&c->talk, c->session, c->o->tool_format, emit, c, &g);
    json_t *turn = st == PESC_OK ? json_loads(g.message, JSON_ALLOW_NUL, NULL) : NULL;
    if (st == PESC_OK && c->o->json)
        dialog_json(&g, turn);
    else if (st == PESC_OK && (c->says || !json_object_get(turn, "tool_calls")))
        putchar('\n');
    fflush(stdout);
    c->stopped = st == PESC_OK && strcmp(g.finish, "stopped") == 0;
    if (st == PESC_OK)
        st = dialog_add(&c->talk, turn);
    bool full = strcmp(g.finish, "length") == 0 && (int64_t)g.n_ids < c->talk.sampling.max_tokens;
    if (st == PESC_OK && full && !c->o->quiet)
        fputs("pesc: the context is full, so the answer ends here; /reset starts a new "
              "conversation\n",
              stderr);
    pesc_generation_free(&g);
    return st;
}

/* ---- calls of tools ---- */

/* Whether the user lets the program run; an input that has ended does not. */
static bool allows(chat *c, const char *name, const char *program, const char *arguments)
{
    char question[200];
    const char *text = "";
    char *call = NULL;
    if (asprintf(&call, "%s %s\n", name, arguments) < 0)
        return false;
    out_aside(call, strlen(call));
    free(call);
    snprintf(question, sizeof question, "run %.160s? [y/N] ", program);
    if (!line_is_terminal(c->lines))
        fputs(question, stderr);
    else
        tcflush(STDIN_FILENO, TCIFLUSH); /* what was typed before is no answer */
    line_event e = line_read(c->lines, question, &text);
    if (!line_is_terminal(c->lines))
        fputc('\n', stderr);
    c->done = c->done || e == LINE_END;
    c->stopped = c->stopped || e == LINE_INTERRUPT;
    return e == LINE_TEXT && (strcasecmp(text, "y") == 0 || strcasecmp(text, "yes") == 0);
}

/* Answers one call; what goes wrong with it is told to the model. */
static pesc_status answer_call(chat *c, const json_t *call)
{
    const json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const char *arguments = json_string_value(json_object_get(f, "arguments"));
    const char *program = tool_program(c->o->tool, c->o->n_tool, name);
    json_t *read = json_loads(arguments, JSON_ALLOW_NUL, NULL);
    char *result = NULL;
    pesc_status st = PESC_OK;
    if (read && allows(c, name, program, arguments))
        st = tool_run(program, arguments, &result);
    const char *said = result  ? result
                       : !read ? "error: the arguments are not JSON"
                               : "error: the user does not allow this call";
    json_decref(read);
    if (result && !c->o->quiet) {
        out_aside(result, strlen(result));
        out_aside("\n", 1);
    }
    if (st == PESC_OK)
        st = dialog_add(&c->talk, json_pack("{s:s, s:O, s:s}", "role", "tool", "tool_call_id",
                                            json_object_get(call, "id"), "content", said));
    free(result);
    return st;
}

/* The answer to the conversation as it is: turns of the model, as long as it calls tools. */
static pesc_status answer(chat *c)
{
    for (;;) {
        TRY(speak(c));
        const json_t *turn = json_array_get(c->talk.messages, dialog_size(&c->talk) - 1);
        const json_t *calls = json_object_get(turn, "tool_calls");
        for (size_t i = 0; !c->stopped && i < json_array_size(calls); i++)
            TRY(answer_call(c, json_array_get(calls, i)));
        if (json_array_size(calls) == 0 || c->done || c->stopped)
            return PESC_OK;
    }
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
    size_t before = dialog_size(&c->talk);
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
    dialog_cut(&c->talk, dialog_is_from(&c->talk, 0, "system"));
    return PESC_OK;
}

static pesc_status do_system(chat *c, const char *rest)
{
    dialog_cut(&c->talk, 0);
    return rest[0] ? dialog_push(&c->talk, "system", rest) : PESC_OK;
}

/* The number of messages up to the last of the user; 0: there is none. */
static size_t last_question(const chat *c)
{
    size_t n = dialog_size(&c->talk);
    while (n > 0 && !dialog_is_from(&c->talk, n - 1, "user"))
        n--;
    return n;
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
    dialog_cut(&c->talk, last);
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
        const json_t *m = json_array_get(c->talk.messages, last - 1);
        line_begin_with(c->lines, json_string_value(json_object_get(m, "content")));
        dialog_cut(&c->talk, last - 1);
        return PESC_OK;
    }
    dialog_cut(&c->talk, last - 1);
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
        switch (line_read(c->lines, "> ", &text)) {
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
    TRY(tool_open(c->o->tool, c->o->n_tool, &c->talk.tools));
    TRY(pesc_session_open(&c->session, c->m.model, (int32_t)c->o->ctx));
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
