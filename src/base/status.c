#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 16384 }; /* room for every misfit of a model, by name */

static _Thread_local char message[MESSAGE_BYTES];

static const char *const texts[] = {
#define PESC_STATUS_TEXT(name, value, code, text) [value] = text,
    PESC_STATUS_MAP(PESC_STATUS_TEXT)
#undef PESC_STATUS_TEXT
};

static const int exit_codes[] = {
#define PESC_STATUS_CODE(name, value, code, text) [value] = code,
    PESC_STATUS_MAP(PESC_STATUS_CODE)
#undef PESC_STATUS_CODE
};

const char *pesc_version(void)
{
    return PESC_VERSION;
}

const char *pesc_status_text(pesc_status s)
{
    return (unsigned)s < sizeof texts / sizeof *texts ? texts[s] : "an unknown status";
}

int pesc_status_exit_code(pesc_status s)
{
    return (unsigned)s < sizeof exit_codes / sizeof *exit_codes ? exit_codes[s] : 1;
}

const char *pesc_last_error(void)
{
    return message;
}

void status_clear(void)
{
    message[0] = '\0';
}

static void set_message(const char *fmt, va_list ap, const char *tail)
{
    char raw[MESSAGE_BYTES];
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    if (n < 0)
        n = 0;
    size_t used = (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1;
    if (tail && used < sizeof raw - 1)
        snprintf(raw + used, sizeof raw - used, ": %s", tail);
    utf8_visible(message, sizeof message, raw, strlen(raw));
}

pesc_status fail(pesc_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_message(fmt, ap, NULL);
    va_end(ap);
    return s;
}

pesc_status fail_errno(pesc_status s, int err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_message(fmt, ap, strerror(err));
    va_end(ap);
    return s;
}

pesc_status fail_nomem(const char *what, size_t bytes)
{
    return fail(PESC_NOMEM, "out of memory: %s needs %zu bytes", what, bytes);
}

_Noreturn void status_assert(const char *cond, const char *file, int line)
{
    fprintf(stderr, "pesc: internal error: %s is false at %s:%d\n", cond, file, line);
    abort();
}
