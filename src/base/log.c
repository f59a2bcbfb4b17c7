#include "base/log.h"

#include "base/args.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local const pesc_events *current; /* NULL: none */

pesc_status log_read_events(pesc_events *to, const pesc_events *ev, const char *function)
{
    *to = PESC_INIT(pesc_events);
    return ev ? args_read(to, sizeof *to, ev, function, "ev") : PESC_OK;
}

const pesc_events *log_swap(const pesc_events *ev)
{
    const pesc_events *before = current;
    current = ev;
    return before;
}

pesc_status log_begin(log_scope *s, const pesc_events *ev, const char *function)
{
    s->outer = current;
    TRY(log_read_events(&s->events, ev, function));
    if (ev)
        current = &s->events;
    return PESC_OK;
}

void log_end(log_scope *s)
{
    current = s->outer;
}

/* A callback that calls pesc gets no events from that call: else it could call itself for ever. */

void log_progress(const char *what, uint64_t done, uint64_t total)
{
    if (!current || !current->progress)
        return;
    const pesc_events *ev = log_swap(NULL);
    ev->progress(ev->ud, what, done, total);
    log_swap(ev);
}

void log_notice(const char *fmt, ...)
{
    if (!current || !current->notice)
        return;
    char raw[2048], shown[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    utf8_visible(shown, sizeof shown, raw, strlen(raw));
    const pesc_events *ev = log_swap(NULL);
    ev->notice(ev->ud, shown);
    log_swap(ev);
}
