/* The context of a rendering: failures, limits and memory; see jinja_value.h. */
#include "base/mem.h"
#include "jinja/jinja_template.h"
#include "jinja/jinja_value.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* ---- the pool ---- */

typedef struct jpool_chunk {
    struct jpool_chunk *next;
    size_t used, size;
    max_align_t data[];
} jpool_chunk;

enum { FIRST_CHUNK = 4096, LAST_CHUNK = 1 << 18 };

static jpool_chunk *add_chunk(jpool *p, size_t bytes)
{
    size_t size = p->total < FIRST_CHUNK ? FIRST_CHUNK : p->total, all;
    size = size > LAST_CHUNK ? LAST_CHUNK : size;
    size = bytes > size ? bytes : size;
    p->full = !ckd_add_size(&all, p->total, size) || (p->max && all > p->max);
    jpool_chunk *c = p->full ? NULL : mem_zalloc(1, sizeof *c + size);
    if (!c)
        return NULL;
    *c = (jpool_chunk){ .next = p->chunks, .size = size };
    p->chunks = c;
    p->total = all;
    return c;
}

void *jpool_take(jpool *p, size_t n, size_t size)
{
    size_t bytes;
    if (!ckd_mul_size(&bytes, n, size) || bytes > (size_t)1 << 40) {
        p->full = true;
        return NULL;
    }
    bytes = (bytes + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    jpool_chunk *c = p->chunks;
    if (!c || c->size - c->used < bytes)
        c = add_chunk(p, bytes);
    if (!c)
        return NULL;
    void *at = (char *)c->data + c->used;
    c->used += bytes;
    return at;
}

void jpool_free(jpool *p)
{
    for (jpool_chunk *c = p->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    *p = (jpool){ .max = p->max };
}

/* ---- failures and limits ---- */

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
