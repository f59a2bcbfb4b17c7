#include "cli/line.h"

#include <histedit.h>

#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct line_input {
    EditLine *editor; /* NULL without a terminal */
    History *history;
    char history_file[PATH_MAX]; /* "": in memory only */
    char *text;
    size_t cap;
};

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupts = 1;
}

bool line_interrupted(void)
{
    bool was = interrupts;
    interrupts = 0;
    if (was)
        clearerr(stdout); /* it may have cut a write short: that was no failure */
    return was;
}

static char *prompt(EditLine *editor)
{
    static char text[] = "> ";
    (void)editor;
    return text;
}

/* A user who has said where programs may keep their state has a history between runs. */
static void find_history(line_input *l)
{
    const char *state = getenv("XDG_STATE_HOME");
    if (!state || state[0] != '/' || strlen(state) > PATH_MAX - 32)
        return;
    snprintf(l->history_file, sizeof l->history_file, "%s/pesc", state);
    if (access(state, W_OK) != 0 ||
        (mkdir(l->history_file, 0700) != 0 && access(l->history_file, W_OK)))
        l->history_file[0] = '\0';
    else
        snprintf(l->history_file, sizeof l->history_file, "%s/pesc/history", state);
}

static pesc_status open_editor(line_input *l)
{
    HistEvent e;
    /* libedit decodes what is typed by the locale; in "C" everything but ASCII would be lost */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    l->editor = el_init("pesc", stdin, isatty(STDOUT_FILENO) ? stdout : stderr, stderr);
    l->history = history_init();
    if (!l->editor || !l->history)
        return out_nomem("line editing");
    history(l->history, &e, H_SETSIZE, 1000);
    history(l->history, &e, H_SETUNIQUE, 1);
    el_set(l->editor, EL_PROMPT, prompt);
    el_set(l->editor, EL_EDITOR, "emacs");
    el_set(l->editor, EL_HIST, history, l->history);
    el_source(l->editor, NULL);
    find_history(l);
    if (l->history_file[0])
        history(l->history, &e, H_LOAD, l->history_file);
    return PESC_OK;
}

pesc_status line_open(line_input **out)
{
    line_input *l = *out = calloc(1, sizeof *l);
    if (!l)
        return out_nomem("reading lines");
    struct sigaction act = { .sa_handler = on_interrupt }; /* reading is to be interrupted */
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    return isatty(STDIN_FILENO) ? open_editor(l) : PESC_OK;
}

bool line_is_terminal(const line_input *l)
{
    return l->editor != NULL;
}

static line_event edit(line_input *l, const char **text)
{
    int n = 0;
    HistEvent e;
    const char *typed = el_gets(l->editor, &n);
    if (line_interrupted())
        return LINE_INTERRUPT;
    if (!typed || n <= 0)
        return LINE_END;
    if (strspn(typed, " \n") < (size_t)n)
        history(l->history, &e, H_ENTER, typed);
    free(l->text);
    l->text = strndup(typed, strcspn(typed, "\n"));
    *text = l->text;
    return l->text ? LINE_TEXT : LINE_END;
}

line_event line_read(line_input *l, const char **text)
{
    if (l->editor)
        return edit(l, text);
    ssize_t n = getline(&l->text, &l->cap, stdin);
    if (line_interrupted() || n < 0)
        return LINE_END;
    l->text[strcspn(l->text, "\n")] = '\0';
    *text = l->text;
    return LINE_TEXT;
}

void line_close(line_input *l)
{
    HistEvent e;
    if (!l)
        return;
    if (l->history && l->history_file[0])
        history(l->history, &e, H_SAVE, l->history_file);
    if (l->history)
        history_end(l->history);
    if (l->editor)
        el_end(l->editor);
    free(l->text);
    free(l);
}
