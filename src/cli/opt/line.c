/* On a terminal.
 *
 * Waiting for a key must end when Ctrl-C is pressed, so the signal handler sets a flag and writes a
 * byte to a pipe, and every wait polls both (libedit's own read would be restarted). The terminal
 * is in raw mode before the prompt is shown, because a Ctrl-D that is typed in line mode would be
 * lost; and it stays in raw mode during an answer, so that what is typed then is not echoed into
 * the answer and waits for the next prompt.
 *
 * Bracketed paste: the terminal puts a paste between ESC [200~ and ESC [201~. libedit has one line
 * and ends it at a newline, so inside a paste newlines are shown as a symbol that no keyboard has,
 * and become newlines again when the line is done. */
#include "cli/opt/line.h"

#include <histedit.h>

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

struct line_input {
    EditLine *editor; /* NULL without a terminal */
    History *history;
    char history_file[PATH_MAX]; /* "": in memory only */
    char *text;
    size_t cap;
};

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
static const char paste_begins[] = "\033[200~", paste_ends[] = "\033[201~";
static const char newline_mark[] = "\xe2\x90\xa4"; /* U+2424, the symbol for newline */

/* What next_char() has read from the terminal but not given to libedit yet. */
static struct {
    char bytes[16];
    size_t n, at;
    bool pasting;
} ahead;

static volatile sig_atomic_t interrupts;
static int wake[2] = { -1, -1 }; /* a pipe: a Ctrl-C just before a wait ends it too */

static void on_interrupt(int signal_number)
{
    int before = errno;
    (void)signal_number;
    interrupts = 1;
    if (write(wake[1], "", 1) < 0)
        errno = before; /* the pipe is full, so the reader wakes up anyway */
}

static void drain(void)
{
    char bytes[16];
    while (read(wake[0], bytes, sizeof bytes) > 0)
        continue;
}

bool line_interrupted(void)
{
    bool was = interrupts;
    drain();
    interrupts = 0;
    if (was)
        clearerr(stdout); /* an interrupted write is not a failure */
    return was;
}

/* Waits for a byte: 1, or 0 at the end, or -1 when Ctrl-C came before it. */
static int next_byte(char *byte)
{
    struct pollfd in[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                           { .fd = wake[0], .events = POLLIN } };
    while (!interrupts) {
        int n = poll(in, 2, -1);
        if (n > 0 && in[1].revents)
            drain();
        else if (n > 0 && !interrupts)
            return (int)read(STDIN_FILENO, byte, 1);
    }
    return -1;
}

static bool is_begun(const char *mark, size_t n)
{
    return n < strlen(mark) && memcmp(ahead.bytes, mark, n) == 0;
}

static bool has_key(void)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    return poll(&in, 1, 20) > 0;
}

/* Reads what could be the beginning or the end of a paste. A lone ESC is a key: the terminal sends
 * the rest of a mark at once. */
static int read_ahead(void)
{
    const char *mark = ahead.pasting ? paste_ends : paste_begins;
    ahead.n = ahead.at = 0;
    do {
        int n = next_byte(&ahead.bytes[ahead.n]);
        if (n <= 0)
            return n;
        ahead.n++;
    } while (is_begun(mark, ahead.n) && has_key());
    if (ahead.n == strlen(mark) && memcmp(ahead.bytes, mark, ahead.n) == 0) {
        ahead.pasting = !ahead.pasting;
        return read_ahead();
    }
    if (ahead.pasting && (ahead.bytes[0] == '\r' || ahead.bytes[0] == '\n')) {
        memcpy(ahead.bytes, newline_mark, sizeof newline_mark - 1);
        ahead.n = sizeof newline_mark - 1;
    }
    return 1;
}

/* The next byte for libedit, as next_byte(). */
static int next_input(char *byte)
{
    if (ahead.at == ahead.n) {
        int n = read_ahead();
        if (n <= 0)
            return n;
    }
    *byte = ahead.bytes[ahead.at++];
    return 1;
}

/* A character for libedit; bytes that belong to none are left out. */
static int next_char(EditLine *editor, wchar_t *c)
{
    mbstate_t state = { 0 };
    char byte;
    (void)editor;
    for (int n; (n = next_input(&byte)) != 0;) {
        if (n < 0)
            return -1;
        size_t used = mbrtowc(c, &byte, 1, &state);
        if (used <= 1)
            return 1;
        if (used == (size_t)-1)
            state = (mbstate_t){ 0 };
    }
    return 0;
}

/* That of the line that is read; libedit wants to be given it by a function. */
static const char *prompt_text = "";

static char *prompt(EditLine *editor)
{
    (void)editor;
    return (char *)(uintptr_t)prompt_text;
}

/* The history is kept between runs only if XDG_STATE_HOME is set. */
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

static void mark_terminal(const char *sequence)
{
    if (write(isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, sequence, strlen(sequence)) <
        0)
        clearerr(stdout); /* the terminal is gone: reading from it says so */
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
    el_set(l->editor, EL_GETCFN, next_char);
    el_source(l->editor, NULL);
    mark_terminal(paste_on);
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
    if (pipe2(wake, O_NONBLOCK | O_CLOEXEC) != 0)
        return out_fail(PESC_NOMEM, "chat: no pipe for signals: %s", strerror(errno));
    bool terminal = isatty(STDIN_FILENO);
    /* reading a pipe is to be interrupted; a terminal is waited for in next_byte() */
    struct sigaction act = { .sa_handler = on_interrupt, .sa_flags = terminal ? SA_RESTART : 0 };
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    return terminal ? open_editor(l) : PESC_OK;
}

bool line_is_terminal(const line_input *l)
{
    return l->editor != NULL;
}

/* Newlines of a paste, in place: a newline is shorter than its mark. */
static void restore_newlines(char *text)
{
    size_t mark = sizeof newline_mark - 1;
    char *to = text;
    for (const char *from = text; *from;) {
        bool found = strncmp(from, newline_mark, mark) == 0;
        *to++ = found ? '\n' : *from;
        from += found ? mark : 1;
    }
    *to = '\0';
}

static line_event edit(line_input *l, const char **text)
{
    int n = 0;
    HistEvent e;
    el_set(l->editor, EL_PREP_TERM, 1); /* raw mode before the prompt: see above */
    const char *typed = el_gets(l->editor, &n);
    el_set(l->editor, EL_PREP_TERM, 1); /* and during the answer */
    ahead.pasting = false;
    if (line_interrupted())
        return LINE_INTERRUPT;
    if (!typed || n <= 0)
        return LINE_END;
    if (strspn(typed, " \n") < (size_t)n)
        history(l->history, &e, H_ENTER, typed);
    free(l->text);
    l->text = strndup(typed, strcspn(typed, "\n"));
    if (l->text)
        restore_newlines(l->text);
    *text = l->text;
    return l->text ? LINE_TEXT : LINE_END;
}

void line_begin_with(line_input *l, const char *text)
{
    size_t n = strlen(text), at = 0;
    char *shown = l->editor ? malloc(n * (sizeof newline_mark - 1) + 1) : NULL;
    if (!shown)
        return; /* the user types it again */
    for (const char *p = text; *p; p++) {
        bool ends = *p == '\n';
        size_t len = ends ? sizeof newline_mark - 1 : 1;
        memcpy(shown + at, ends ? newline_mark : p, len);
        at += len;
    }
    shown[at] = '\0';
    el_push(l->editor, shown); /* copies */
    free(shown);
}

line_event line_read(line_input *l, const char *shown, const char **text)
{
    prompt_text = shown;
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
    if (l->editor) {
        mark_terminal(paste_off);
        el_end(l->editor);
    }
    free(l->text);
    free(l);
    signal(SIGINT, SIG_DFL); /* before its pipe is closed */
    close(wake[0]);
    close(wake[1]);
}
