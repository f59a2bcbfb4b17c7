#include "cli/show/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR_MS = 100, FIRST_LINE_MS = 1000, LINE_MS = 5000 };

static struct {
    const char *name;
    bool silent, terminal, drawn;
    char what[64];
    int64_t began, last; /* ms; of this piece of work, of what was shown of it (0: nothing yet) */
} p = { .silent = true };

double progress_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

/* One line: what would wrap could not be drawn over. A narrow terminal gets no bar, and of the text
 * what fits; the last column stays free, since some terminals wrap there. */
static void draw_bar(uint64_t done, uint64_t total, const char *left)
{
    char bar[64] = "", line[192];
    double part = (double)done / (double)total;
    const int room = columns() - 1;
    int width = room - (int)strlen(p.what) - 24;
    if (width >= 4) {
        width = width > 60 ? 60 : width;
        int full = (int)(part * width);
        memset(bar + 1, '#', (size_t)full);
        memset(bar + 1 + full, '.', (size_t)(width - full));
        bar[0] = '[';
        memcpy(bar + 1 + width, "] ", sizeof "] ");
    }
    snprintf(line, sizeof line, "%s %s%3.0f%%%s", p.what, bar, 100 * part, left);
    fprintf(stderr, "\r\033[K%.*s", room, line);
    fflush(stderr);
    p.drawn = true;
}

void progress_show(const char *what, uint64_t done, uint64_t total)
{
    progress_show_left(what, done, total, -1);
}

void progress_show_left(const char *what, uint64_t done, uint64_t total, double seconds_left)
{
    if (p.silent || total == 0)
        return;
    int64_t now = (int64_t)(progress_clock() * 1e3);
    done = done < total ? done : total;
    if (strcmp(p.what, what) != 0) {
        snprintf(p.what, sizeof p.what, "%s", what);
        p.began = now;
        p.last = 0;
    }
    int64_t wait = p.terminal ? BAR_MS : p.last ? LINE_MS : FIRST_LINE_MS;
    bool due = now - (p.last ? p.last : p.began) >= wait;
    bool finished = done == total && p.last; /* the end is reported only if the beginning was */
    if (!due && !finished)
        return;
    p.last = now;
    int64_t spent = now - p.began;
    char left[40] = ""; /* nothing is known before the first part is done */
    if (seconds_left < 0 && done)
        seconds_left = (double)spent / 1000 * (double)(total - done) / (double)done;
    if (seconds_left >= 0)
        snprintf(left, sizeof left, "%s %lld s left", p.terminal ? "" : ",",
                 (long long)seconds_left);
    if (!p.terminal)
        fprintf(stderr, "pesc: %s: %s %llu/%llu%s\n", p.name, p.what, (unsigned long long)done,
                (unsigned long long)total, left);
    else if (done < total)
        draw_bar(done, total, left);
    else
        progress_clear();
    if (done == total)
        p.what[0] = '\0'; /* the same work again is a new piece of work */
}

void progress_clear(void)
{
    if (p.drawn)
        fputs("\r\033[K", stderr);
    p.drawn = false;
}

static void on_progress(void *ud, const char *what, uint64_t done, uint64_t total)
{
    (void)ud;
    progress_show(what, done, total);
}

static void on_notice(void *ud, const char *text)
{
    (void)ud;
    progress_clear();
    fprintf(stderr, "pesc: note: %s\n", text);
}

void progress_open(const char *name, bool quiet)
{
    p.name = name;
    p.silent = quiet;
    p.terminal = isatty(STDERR_FILENO);
}

const pesc_events *progress_events(void)
{
    static const pesc_events events = { .size = sizeof events,
                                        .notice = on_notice,
                                        .progress = on_progress };
    return p.silent ? NULL : &events;
}

void progress_close(void)
{
    progress_clear();
    p.silent = true;
}
