#include "jinja/jinja_print.h"

#include "base/utf8.h"
#include "jinja/jinja_value.h"
#include "jinja/pytext.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static void put_int(jbuf *b, int64_t i)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)i);
    jbuf_puts(b, text);
}

static void put_float(jbuf *b, double f)
{
    char text[PYTEXT_FLOAT_MAX];
    pytext_float(text, f);
    jbuf_puts(b, text);
}

/* ---- repr ---- */

static void put_escape(jbuf *b, const char *escape, size_t n, uint16_t origin)
{
    for (size_t i = 0; i < n; i++)
        jbuf_putc(b, escape[i], origin);
}

static void repr_str(jbuf *b, const jstr *s)
{
    char quote = pytext_quote((slice){ s->p, s->n }), escape[PYTEXT_ESCAPE_MAX];
    jctx_step(b->c, s->n / 8);
    jbuf_putc(b, quote, 0);
    for (size_t i = 0, k; i < s->n && !jctx_failed(b->c); i += k) {
        uint32_t cp = 0;
        int len = utf8_decode(s->p + i, s->n - i, &cp);
        size_t n = pytext_escape(escape, cp, quote);
        k = len > 0 ? (size_t)len : 1;
        if (n)
            put_escape(b, escape, n, s->origin ? s->origin[i] : 0);
        else
            jbuf_sub(b, s, i, k);
    }
    jbuf_putc(b, quote, 0);
}

static void repr_seq(jbuf *b, jvalue v)
{
    const jseq *s = v.seq;
    char text[96];
    if (v.kind == J_RANGE) {
        snprintf(text, sizeof text, s->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)s->start, (long long)s->stop, (long long)s->step);
        jbuf_puts(b, text);
        return;
    }
    bool tuple = v.kind == J_TUPLE;
    jbuf_puts(b, v.kind == J_VIEW ? s->label : "");
    jbuf_puts(b, tuple ? "(" : v.kind == J_VIEW ? "([" : "[");
    for (size_t i = 0; i < s->n && !jctx_failed(b->c); i++) {
        jbuf_puts(b, i ? ", " : "");
        jprint_repr(b, s->v[i]);
    }
    jbuf_puts(b, tuple ? (s->n == 1 ? ",)" : ")") : v.kind == J_VIEW ? "])" : "]");
}

static void repr_dict(jbuf *b, const jdict *d)
{
    jbuf_puts(b, "{");
    for (size_t i = 0; i < d->n && !jctx_failed(b->c); i++) {
        jbuf_puts(b, i ? ", " : "");
        jprint_repr(b, d->v[i].key);
        jbuf_puts(b, ": ");
        jprint_repr(b, d->v[i].value);
    }
    jbuf_puts(b, "}");
}

static void repr_any(jbuf *b, jvalue v)
{
    switch (v.kind) {
    case J_UNDEFINED:
        jbuf_puts(b, "Undefined");
        break;
    case J_NONE:
        jbuf_puts(b, "None");
        break;
    case J_BOOL:
        jbuf_puts(b, v.b ? "True" : "False");
        break;
    case J_INT:
        put_int(b, v.i);
        break;
    case J_FLOAT:
        put_float(b, v.f);
        break;
    case J_STR:
        jbuf_puts(b, v.str->markup ? "Markup(" : "");
        repr_str(b, v.str);
        jbuf_puts(b, v.str->markup ? ")" : "");
        break;
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_VIEW:
        repr_seq(b, v);
        break;
    case J_NAMESPACE:
        jbuf_puts(b, "<Namespace ");
        repr_dict(b, v.dict);
        jbuf_puts(b, ">");
        break;
    case J_DICT:
        repr_dict(b, v.dict);
        break;
    default: /* Python would show an address */
        jctx_fail(b->c, "a %s has no text", jvalue_type(v));
    }
}

void jprint_repr(jbuf *b, jvalue v)
{
    if (!jctx_step(b->c, 1) || !jctx_enter(b->c))
        return;
    repr_any(b, v);
    b->c->depth--;
}

void jprint_str(jbuf *b, jvalue v)
{
    if (v.kind == J_STR)
        jbuf_str(b, v.str);
    else if (jctx_may_use(b->c, v) && v.kind != J_UNDEFINED)
        jprint_repr(b, v);
}

jvalue jprint_value(jctx *c, jvalue v)
{
    jbuf b = { .c = c };
    if (v.kind == J_STR)
        return v;
    jprint_str(&b, v);
    return jbuf_value(&b);
}

/* ---- JSON ---- */

static void json_str(jbuf *b, const jstr *s, bool ensure_ascii)
{
    char escape[PYTEXT_ESCAPE_MAX];
    jctx_step(b->c, s->n / 8);
    jbuf_putc(b, '"', 0);
    for (size_t i = 0, k; i < s->n && !jctx_failed(b->c); i += k) {
        uint32_t cp = 0;
        int len = utf8_decode(s->p + i, s->n - i, &cp);
        size_t n = pytext_json_escape(escape, cp, ensure_ascii);
        k = len > 0 ? (size_t)len : 1;
        if (n)
            put_escape(b, escape, n, s->origin ? s->origin[i] : 0);
        else
            jbuf_sub(b, s, i, k);
    }
    jbuf_putc(b, '"', 0);
}

static void json_any(jbuf *b, jvalue v, const jprint_json_options *o, int level);

static void json_newline(jbuf *b, const jprint_json_options *o, int level)
{
    if (!o->indent)
        return;
    jbuf_puts(b, "\n");
    for (int i = 0; i < level && !jctx_failed(b->c); i++)
        jbuf_str(b, o->indent);
}

static void json_seq(jbuf *b, const jseq *s, const jprint_json_options *o, int level)
{
    jbuf_puts(b, "[");
    for (size_t i = 0; i < s->n && !jctx_failed(b->c); i++) {
        if (i)
            jbuf_str(b, o->item_separator);
        json_newline(b, o, level + 1);
        json_any(b, s->v[i], o, level + 1);
    }
    if (s->n)
        json_newline(b, o, level);
    jbuf_puts(b, "]");
}

/* Keys that are no strings are written as strings. */
static void json_key(jbuf *b, jvalue key, const jprint_json_options *o)
{
    bool plain = key.kind == J_STR;
    if (!plain && !jvalue_is_number(key) && key.kind != J_NONE) {
        jctx_fail(b->c, "keys of JSON must be text or numbers, not '%s'", jvalue_type(key));
        return;
    }
    jbuf_puts(b, plain ? "" : "\"");
    json_any(b, key, o, 0);
    jbuf_puts(b, plain ? "" : "\"");
}

/* The pairs in the order of their keys. */
static jpair *sorted(jctx *c, const jdict *d)
{
    jpair *v = jctx_alloc(c, d->n, sizeof *v);
    jvalue *keys = jctx_alloc(c, d->n, sizeof *keys);
    for (size_t i = 0; keys && i < d->n; i++)
        keys[i] = d->v[i].key;
    size_t *order = jsort_order(c, keys, d->n, false);
    for (size_t i = 0; order && i < d->n; i++)
        v[i] = d->v[order[i]];
    return order ? v : NULL;
}

static void json_dict(jbuf *b, const jdict *d, const jprint_json_options *o, int level)
{
    const jpair *v = o->sort_keys ? sorted(b->c, d) : d->v;
    jbuf_puts(b, "{");
    for (size_t i = 0; i < d->n && !jctx_failed(b->c); i++) {
        if (i)
            jbuf_str(b, o->item_separator);
        json_newline(b, o, level + 1);
        json_key(b, v[i].key, o);
        jbuf_str(b, o->key_separator);
        json_any(b, v[i].value, o, level + 1);
    }
    if (d->n)
        json_newline(b, o, level);
    jbuf_puts(b, "}");
}

static void json_float(jbuf *b, double f)
{
    if (isfinite(f))
        put_float(b, f);
    else
        jbuf_puts(b, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
}

static void json_any(jbuf *b, jvalue v, const jprint_json_options *o, int level)
{
    if (!jctx_step(b->c, 1) || !jctx_enter(b->c))
        return;
    switch (v.kind) {
    case J_NONE:
        jbuf_puts(b, "null");
        break;
    case J_BOOL:
        jbuf_puts(b, v.b ? "true" : "false");
        break;
    case J_INT:
        put_int(b, v.i);
        break;
    case J_FLOAT:
        json_float(b, v.f);
        break;
    case J_STR:
        json_str(b, v.str, o->ensure_ascii);
        break;
    case J_LIST:
    case J_TUPLE:
        json_seq(b, v.seq, o, level);
        break;
    case J_DICT:
        json_dict(b, v.dict, o, level);
        break;
    default:
        jctx_fail(b->c, "an object of type %s cannot be written as JSON", jvalue_type(v));
    }
    b->c->depth--;
}

void jprint_json(jbuf *b, jvalue v, const jprint_json_options *o)
{
    json_any(b, v, o, 0);
}
