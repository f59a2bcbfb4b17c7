/* The context of a rendering: failures, limits and memory; see jinja_value.h. */
#include "jinja/jinja_template.h"
#include "jinja/jinja_value.h"

#include <stdarg.h>
#include <stdio.h>

static jvalue record(jctx *c, pesc_status s, const char *fmt, va_list args)
{
    char why[1024];
    if (jctx_failed(c))
        return jundefined("");
    vsnprintf(why, sizeof why, fmt, args);
    c->status =
        c->t->where ? fail(s, "%s: line %d: %s", c->t->where, c->line, why) : fail(s, "%s", why);
    return jundefined("");
}

jvalue jctx_fail(jctx *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    jvalue v = record(c, PESC_FORMAT, fmt, args);
    va_end(args);
    return v;
}

jvalue jctx_fail_as(jctx *c, pesc_status s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    jvalue v = record(c, s, fmt, args);
    va_end(args);
    return v;
}

bool jctx_may_use(jctx *c, jvalue v)
{
    if (v.kind == J_UNDEFINED && c->t->strict)
        jctx_fail(c, "%s", v.why);
    return !jctx_failed(c);
}

bool jctx_step(jctx *c, size_t n)
{
    if (jctx_failed(c))
        return false;
    if (c->steps < n) {
        jctx_fail(c, "the template takes too many steps; it may loop over a very long list");
        return false;
    }
    c->steps -= n;
    return true;
}

bool jctx_enter(jctx *c)
{
    if (jctx_failed(c))
        return false;
    if (c->depth >= JINJA_DEPTH) {
        jctx_fail(c, "nested deeper than %d levels", JINJA_DEPTH);
        return false;
    }
    c->depth++;
    return true;
}

void *jctx_alloc(jctx *c, size_t n, size_t size)
{
    if (jctx_failed(c))
        return NULL;
    void *p = jpool_take(&c->pool, n ? n : 1, size);
    if (p)
        return p;
    if (c->pool.full)
        jctx_fail(c, "the values of the template need more than %zu MiB", c->pool.max >> 20);
    else
        c->status = fail_nomem("rendering a chat template", n * size);
    return NULL;
}
