#include "jinja/jinja_buf.h"

#include "base/utf8.h"

#include <string.h>

/* Room for n more bytes; with origins where `marked`. */
static bool reserve(jbuf *b, size_t n, bool marked)
{
    jctx *c = b->c;
    if (!jctx_step(c, n / 64))
        return false;
    if (b->cap - b->n < n) {
        size_t cap = b->cap * 2 > b->n + n ? b->cap * 2 : b->n + n + 64;
        char *p = jctx_alloc(c, cap, 1);
        uint16_t *o = p && b->origin ? jctx_alloc(c, cap, sizeof *o) : NULL;
        if (!p || (b->origin && !o))
            return false;
        if (b->n)
            memcpy(p, b->p, b->n);
        if (o)
            memcpy(o, b->origin, b->n * sizeof *o);
        b->p = p;
        b->origin = o;
        b->cap = cap;
    }
    if (marked && !b->origin)
        b->origin = jctx_alloc(c, b->cap, sizeof *b->origin);
    return !jctx_failed(c);
}

void jbuf_add(jbuf *b, const char *p, size_t n, const uint16_t *origin)
{
    if (n == 0 || !reserve(b, n, origin != NULL))
        return;
    memcpy(b->p + b->n, p, n);
    if (origin)
        memcpy(b->origin + b->n, origin, n * sizeof *origin);
    else if (b->origin)
        memset(b->origin + b->n, 0, n * sizeof *b->origin);
    b->n += n;
}

void jbuf_puts(jbuf *b, const char *text)
{
    jbuf_add(b, text, strlen(text), NULL);
}

void jbuf_putc(jbuf *b, char ch, uint16_t origin)
{
    jbuf_add(b, &ch, 1, origin ? &origin : NULL);
}

void jbuf_code(jbuf *b, uint32_t cp, uint16_t origin)
{
    char bytes[4];
    int n = utf8_encode(cp, bytes);
    for (int i = 0; i < n; i++)
        jbuf_putc(b, bytes[i], origin);
}

void jbuf_str(jbuf *b, const jstr *s)
{
    jbuf_add(b, s->p, s->n, s->origin);
}

void jbuf_sub(jbuf *b, const jstr *s, size_t from, size_t n)
{
    jbuf_add(b, s->p + from, n, s->origin ? s->origin + from : NULL);
}

void jbuf_fill(jbuf *b, char ch, int64_t count)
{
    if (count <= 0 || !reserve(b, (size_t)count, false))
        return;
    memset(b->p + b->n, ch, (size_t)count);
    if (b->origin)
        memset(b->origin + b->n, 0, (size_t)count * sizeof *b->origin);
    b->n += (size_t)count;
}

void jbuf_flag(jbuf *b, size_t from, uint16_t flag)
{
    if (from >= b->n || !reserve(b, 0, true))
        return;
    for (size_t i = from; i < b->n; i++)
        b->origin[i] |= flag;
}

jvalue jbuf_value(jbuf *b)
{
    return jvalue_str(b->c, b->p ? b->p : "", b->n, b->origin);
}
