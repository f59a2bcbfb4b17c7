#include "jinja/jinja_print.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- numbers ---- */

/* The digits d.ddd and exponent of the shortest form. */
static int shortest(double f, char digits[32])
{
    char text[48];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, fabs(f));
        if (strtod(text, NULL) == fabs(f))
            break;
    }
    size_t n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    int exponent = 0;
    sscanf(p, "e%d", &exponent);
    return exponent;
}

void jprint_float(char out[JPRINT_FLOAT_MAX], double f)
{
    char digits[32];
    const char *sign = signbit(f) ? "-" : "";
    if (!isfinite(f)) {
        snprintf(out, JPRINT_FLOAT_MAX, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int e = f == 0 ? (digits[0] = '0', digits[1] = '\0', 0) : shortest(f, digits);
    int n = (int)strlen(digits);
    if (e < -4 || e >= 16)
        snprintf(out, JPRINT_FLOAT_MAX, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 digits + 1, e < 0 ? '-' : '+', abs(e));
    else if (e < 0)
        snprintf(out, JPRINT_FLOAT_MAX, "%s0.%.*s%s", sign, -e - 1, "000", digits);
    else if (n <= e + 1)
        snprintf(out, JPRINT_FLOAT_MAX, "%s%s%.*s.0", sign, digits, e + 1 - n, "0000000000000000");
    else
        snprintf(out, JPRINT_FLOAT_MAX, "%s%.*s.%s", sign, e + 1, digits, digits + e + 1);
}

static void put_int(jbuf *b, int64_t i)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)i);
    jbuf_puts(b, text);
}

static void put_float(jbuf *b, double f)
{
    char text[JPRINT_FLOAT_MAX];
    jprint_float(text, f);
    jbuf_puts(b, text);
}

/* ---- repr ---- */

static bool is_printable(uint32_t cp)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return cp == ' ' || !(k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_ZS);
}

static void put_escape(jbuf *b, uint32_t cp, uint16_t origin)
{
    static const char from[] = "\n\r\t", to[] = "nrt";
    char text[16];
    const char *at = cp && cp < ' ' ? strchr(from, (int)cp) : NULL;
    if (at)
        snprintf(text, sizeof text, "\\%c", to[at - from]);
    else if (cp < 0x100)
        snprintf(text, sizeof text, "\\x%02x", cp);
    else if (cp < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", cp);
    else
        snprintf(text, sizeof text, "\\U%08x", cp);
    for (const char *p = text; *p; p++)
        jbuf_putc(b, *p, origin);
}

static void repr_str(jbuf *b, const jstr *s)
{
    bool single = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n);
    char quote = single ? '"' : '\'';
    jbuf_putc(b, quote, 0);
    for (size_t i = 0, k; i < s->n && !jctx_failed(b->c); i += k) {
        uint32_t cp = 0;
        int n = utf8_decode(s->p + i, s->n - i, &cp);
        uint16_t origin = s->origin ? s->origin[i] : 0;
        k = n > 0 ? (size_t)n : 1;
        if (cp == (uint32_t)quote || cp == '\\')
            jbuf_putc(b, '\\', origin);
        if (is_printable(cp))
            jbuf_sub(b, s, i, k);
        else
            put_escape(b, cp, origin);
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
        repr_str(b, v.str);
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

static void json_escape(jbuf *b, uint32_t cp, uint16_t origin)
{
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\";
    char text[16];
    const char *at = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (at)
        snprintf(text, sizeof text, "\\%c", to[at - from]);
    else if (cp < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", cp);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                 0xdc00 + ((cp - 0x10000) & 0x3ff));
    for (const char *p = text; *p; p++)
        jbuf_putc(b, *p, origin);
}

static void json_str(jbuf *b, const jstr *s, bool ensure_ascii)
{
    jbuf_putc(b, '"', 0);
    for (size_t i = 0, k; i < s->n && !jctx_failed(b->c); i += k) {
        uint32_t cp = 0;
        int n = utf8_decode(s->p + i, s->n - i, &cp);
        k = n > 0 ? (size_t)n : 1;
        if (cp < ' ' || cp == '"' || cp == '\\' || (ensure_ascii && cp > 0x7e))
            json_escape(b, cp, s->origin ? s->origin[i] : 0);
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

/* The pairs in the order of their keys. Insertion keeps equal keys in order. */
static jpair *sorted(jctx *c, const jdict *d)
{
    jpair *v = jctx_alloc(c, d->n, sizeof *v);
    for (size_t i = 0; v && i < d->n && !jctx_failed(c); i++) {
        size_t at = i;
        for (; at > 0 && jvalue_compare(c, v[at - 1].key, d->v[i].key) > 0; at--)
            v[at] = v[at - 1];
        v[at] = d->v[i];
    }
    return jctx_failed(c) ? NULL : v;
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
