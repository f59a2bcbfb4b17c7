#include "base/log.h"

#include "base/utf8.h"
#include "pesc/pesc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pesc_notice_fn listener;
static void *listener_data;

void pesc_on_notice(pesc_notice_fn fn, void *ud)
{
    listener = fn;
    listener_data = ud;
}

static pesc_progress_fn progress;
static void *progress_data;

void pesc_on_progress(pesc_progress_fn fn, void *ud)
{
    progress = fn;
    progress_data = ud;
}

void log_progress(const char *what, uint64_t done, uint64_t total)
{
    if (progress)
        progress(progress_data, what, done, total);
}

void log_notice(const char *fmt, ...)
{
    if (!listener)
        return;
    char raw[2048], shown[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    utf8_visible(shown, sizeof shown, raw, strlen(raw));
    listener(listener_data, shown);
}
