#include "serve/api/dialect.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool dialect_refuse(rewriting *w, const char *param, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return api_refuse(w->e, 400, NULL, param, "%s", text);
}

void dialect_ignore(rewriting *w, const char *what)
{
    char shown[64];
    utf8_visible(shown, sizeof shown, what, strlen(what));
    if (!w->ignored->p || !strstr(w->ignored->p, shown))
        str_printf(w->ignored, "%s%s", w->ignored->n ? ", " : "", shown);
}

bool dialect_set(rewriting *w, json_t *to, const char *key, json_t *v)
{
    return json_object_set_new(to, key, v) == 0 || api_failed(w->e, fail_nomem("a request", 0));
}

bool dialect_add(rewriting *w, json_t *list, json_t *v)
{
    return json_array_append_new(list, v) == 0 || api_failed(w->e, fail_nomem("a request", 0));
}

void dialect_system(rewriting *w, const char *text)
{
    str_printf(&w->system, "%s%s", w->system.n ? "\n\n" : "", text);
}

static bool take(rewriting *w, const dialect_field *rows, size_t n, const char *key, json_t *v)
{
    size_t i = 0;
    while (i < n && strcmp(rows[i].name, key) != 0)
        i++;
    if (json_is_null(v))
        return true;
    if (i == n && !w->lenient)
        return api_refuse(w->e, 400, "unknown_parameter", key, "\"%.60s\" is not a known field",
                          key);
    if (i < n && rows[i].set)
        return rows[i].set(w, v);
    if (i < n && rows[i].as)
        return dialect_set(w, w->to, rows[i].as, json_incref(v));
    dialect_ignore(w, key);
    return true;
}

bool dialect_fields(rewriting *w, const dialect_field *rows, size_t n)
{
    const char *key;
    json_t *v;
    w->to = json_object();
    w->messages = json_array();
    bool good = w->to && dialect_set(w, w->to, "messages", w->messages);
    if (!good)
        return api_failed(w->e, fail_nomem("a request", 0));
    json_object_foreach((json_t *)(uintptr_t)w->from, key, v)
    {
        if (!take(w, rows, n, key, v))
            return false;
    }
    if (w->system.n == 0)
        return str_ok(&w->system) || api_failed(w->e, fail_nomem("a request", 0));
    json_t *m = json_pack("{s:s, s:s}", "role", "system", "content", w->system.p);
    return m && json_array_insert_new(w->messages, 0, m) == 0
               ? true
               : api_failed(w->e, fail_nomem("a request", 0));
}
