/* Filters that make text; each applies str() to its input first, as jinja2 does. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"
#include "jinja/jinja_python.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define FILTER(name) static jvalue name(jctx *c, const jcall *call)

static const jstr *text_of(jctx *c, jvalue v)
{
    static const jstr empty = { .p = "" };
    jvalue s = jprint_value(c, v);
    return s.kind == J_STR ? s.str : &empty;
}

FILTER(filter_upper)
{
    return jpython_cased(c, text_of(c, call->self), JCASE_UPPER);
}

FILTER(filter_lower)
{
    return jpython_cased(c, text_of(c, call->self), JCASE_LOWER);
}

FILTER(filter_capitalize)
{
    return jpython_capitalized(c, text_of(c, call->self));
}

/* Words begin after white space, "-" and opening brackets; not after an apostrophe. */
FILTER(filter_title)
{
    const jstr *s = text_of(c, call->self);
    jbuf b = { .c = c };
    bool begins = true;
    for (size_t i = 0, k; i < s->n && !jctx_failed(c); i += k) {
        uint32_t cp = 0;
        int n = utf8_decode(s->p + i, s->n - i, &cp);
        k = n > 0 ? (size_t)n : 1;
        jpython_case(&b, s, (jslice){ i, k }, begins ? JCASE_UPPER : JCASE_LOWER);
        begins = pytext_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp));
    }
    return jbuf_value(&b);
}

FILTER(filter_trim)
{
    const jstr *s = text_of(c, call->self);
    bool chars = jgiven(call->a[0]);
    return jpython_stripped(c, s, PYTEXT_BOTH, chars ? jbuiltin_str(c, call->a[0]) : NULL);
}

FILTER(filter_string)
{
    return jprint_value(c, call->self);
}

FILTER(filter_safe)
{
    return jops_markup(c, jprint_value(c, call->self));
}

FILTER(filter_escape)
{
    return jops_escape(c, call->self);
}

FILTER(filter_replace)
{
    int64_t count = call->a[2].kind == J_NONE ? -1 : jbuiltin_int(c, call->a[2], -1);
    const jstr *s = text_of(c, call->self), *before = text_of(c, call->a[0]),
               *after = text_of(c, call->a[1]);
    return jpython_replace(c, s, before, after, count);
}

FILTER(filter_format)
{
    if (call->all->n_kw && call->all->n)
        return jctx_fail(c, "format takes positional or keyword arguments, not both");
    jvalue values = call->all->n_kw ? jvalue_dict(c, J_DICT, call->all->n_kw)
                                    : jvalue_seq(c, J_TUPLE, call->all->n);
    for (size_t i = 0; i < call->all->n && !jctx_failed(c); i++)
        jseq_add(c, values.seq, call->all->v[i]);
    for (size_t i = 0; i < call->all->n_kw && !jctx_failed(c); i++)
        jdict_add(c, values.dict, call->all->kw[i].key, call->all->kw[i].value);
    return jctx_failed(c) ? jundefined("") : jformat_percent(c, text_of(c, call->self), values);
}

/* indent(width, first, blank): width may be a string. */
FILTER(filter_indent)
{
    jbuf b = { .c = c }, indent = { .c = c };
    const jstr *s = jbuiltin_str(c, call->self);
    if (call->a[0].kind == J_STR)
        jbuf_str(&indent, call->a[0].str);
    else
        jbuf_fill(&indent, ' ', jbuiltin_int(c, call->a[0], 4));
    jbuf_str(&b, s);
    jbuf_puts(&b, "\n"); /* so that a newline at the end makes an empty last line */
    jvalue whole = jbuf_value(&b);
    jseq lines = jvalue_iterate(c, jctx_failed(c) ? whole : jpython_lines(c, whole.str, false));
    b = (jbuf){ .c = c };
    for (size_t i = 0; i < lines.n && !jctx_failed(c); i++) {
        bool indented =
            i ? jvalue_true(c, call->a[2]) || lines.v[i].str->n : jvalue_true(c, call->a[1]);
        jbuf_puts(&b, i ? "\n" : "");
        if (indented)
            jbuf_add(&b, indent.p, indent.n, indent.origin);
        jbuf_str(&b, lines.v[i].str);
    }
    return jbuf_value(&b);
}

FILTER(filter_center)
{
    const jstr *s = text_of(c, call->self);
    int64_t width = jbuiltin_int(c, call->a[0], 80), pad = width - (int64_t)s->chars;
    int64_t left = pad > 0 ? pad / 2 + (pad & width & 1) : 0;
    jbuf b = { .c = c };
    jbuf_fill(&b, ' ', left);
    jbuf_str(&b, s);
    jbuf_fill(&b, ' ', pad - left);
    return jbuf_value(&b);
}

/* truncate(length, killwords, end, leeway) */
FILTER(filter_truncate)
{
    const jstr *end = call->a[2].kind == J_MISSING ? NULL : jbuiltin_str(c, call->a[2]);
    static const jstr dots = { .p = "...", .n = 3, .chars = 3 };
    end = end ? end : &dots;
    int64_t length = jbuiltin_int(c, call->a[0], 255),
            leeway = jgiven(call->a[3]) ? jbuiltin_int(c, call->a[3], 5) : 5;
    if (length < (int64_t)end->chars || leeway < 0)
        return jctx_fail(c, "truncate needs a length that its end fits in");
    int64_t n_self = call->self.kind == J_UNDEFINED && jctx_may_use(c, call->self)
                         ? 0
                         : jvalue_length(call->self);
    if (n_self < 0)
        return jctx_fail(c, "an object of type '%s' has no length", jvalue_type(call->self));
    if (n_self <= length + leeway)
        return call->self;
    const jstr *s = jbuiltin_str(c, call->self);
    size_t n = jpython_offset(s, (size_t)length - end->chars);
    if (!jvalue_true(c, call->a[1])) {
        size_t space = n;
        while (space > 0 && s->p[space - 1] != ' ')
            space--;
        n = space > 0 ? space - 1 : n;
    }
    jbuf b = { .c = c };
    jbuf_sub(&b, s, 0, n);
    jbuf_str(&b, end);
    return jbuf_value(&b);
}

FILTER(filter_wordcount)
{
    const jstr *s = text_of(c, call->self);
    int64_t words = 0;
    bool in_word = false;
    jctx_step(c, s->n / 4);
    for (size_t i = 0; i < s->n && !jctx_failed(c);) {
        uint32_t cp = 0;
        int n = utf8_decode(s->p + i, s->n - i, &cp);
        bool word = pytext_is_alnum(cp) || cp == '_';
        words += word && !in_word;
        in_word = word;
        i += n > 0 ? (size_t)n : 1;
    }
    return jint(words);
}

/* query: for a query string, where a slash is quoted too and a space is "+". */
static void url_quote(jbuf *b, const jstr *s, bool query)
{
    char hex[4];
    jctx_step(b->c, s->n);
    for (size_t i = 0; i < s->n && !jctx_failed(b->c); i++) {
        unsigned char ch = (unsigned char)s->p[i];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                     (ch >= '0' && ch <= '9') || (ch && strchr(query ? "_.-~" : "_.-~/", ch));
        snprintf(hex, sizeof hex, "%%%02X", ch);
        if (plain)
            jbuf_sub(b, s, i, 1);
        else
            jbuf_puts(b, query && ch == ' ' ? "+" : hex);
    }
}

static void url_pair(jbuf *b, jvalue key, jvalue value)
{
    jbuf_puts(b, b->n ? "&" : "");
    url_quote(b, text_of(b->c, key), true);
    jbuf_puts(b, "=");
    url_quote(b, text_of(b->c, value), true);
}

/* A text; or a mapping, or a list of pairs, as a query string. */
FILTER(filter_urlencode)
{
    jbuf b = { .c = c };
    if (call->self.kind == J_DICT) {
        for (size_t i = 0; i < call->self.dict->n && jctx_step(c, 1); i++)
            url_pair(&b, call->self.dict->v[i].key, call->self.dict->v[i].value);
    } else if (jvalue_is_seq(call->self)) {
        jseq pairs = jvalue_iterate(c, call->self);
        for (size_t i = 0; i < pairs.n && jctx_step(c, 1); i++) {
            jseq pair = jvalue_iterate(c, pairs.v[i]);
            if (pair.n != 2)
                return jctx_fail(c, "urlencode needs pairs, found %zu values", pair.n);
            url_pair(&b, pair.v[0], pair.v[1]);
        }
    } else {
        url_quote(&b, text_of(c, call->self), false);
    }
    return jbuf_value(&b);
}

/* tojson(ensure_ascii, indent, separators, sort_keys), as transformers defines it. */
FILTER(filter_tojson)
{
    static const jstr comma = { .p = ",", .n = 1, .chars = 1 };
    static const jstr comma_space = { .p = ", ", .n = 2, .chars = 2 };
    static const jstr colon = { .p = ": ", .n = 2, .chars = 2 };
    jbuf b = { .c = c }, indent = { .c = c };
    bool indented = jgiven(call->a[1]);
    jprint_json_options o = { .ensure_ascii = jvalue_true(c, call->a[0]),
                              .sort_keys = jvalue_true(c, call->a[3]),
                              .item_separator = indented ? &comma : &comma_space,
                              .key_separator = &colon };
    if (indented && call->a[1].kind == J_STR)
        o.indent = call->a[1].str;
    else if (indented) {
        jbuf_fill(&indent, ' ', jbuiltin_int(c, call->a[1], 0));
        jvalue s = jbuf_value(&indent);
        o.indent = s.kind == J_STR ? s.str : NULL;
    }
    if (jgiven(call->a[2])) {
        jseq two = jvalue_iterate(c, call->a[2]);
        if (two.n != 2)
            return jctx_fail(c, "the separators of tojson must be two strings");
        o.item_separator = jbuiltin_str(c, two.v[0]);
        o.key_separator = jbuiltin_str(c, two.v[1]);
    }
    if (!jctx_failed(c))
        jprint_json(&b, call->self, &o);
    return jbuf_value(&b);
}

const jbuiltin jinja_filters_text[] = {
    { "upper", filter_upper, "", 0, 0 },
    { "lower", filter_lower, "", 0, 0 },
    { "capitalize", filter_capitalize, "", 0, 0 },
    { "title", filter_title, "", 0, 0 },
    { "trim", filter_trim, "chars", 0, 0 },
    { "string", filter_string, "", 0, 0 },
    { "safe", filter_safe, "", 0, 0 },
    { "e", filter_escape, "", 0, 0 },
    { "escape", filter_escape, "", 0, 0 },
    { "replace", filter_replace, "old new count", 2, 0 },
    { "format", filter_format, "*", 0, 0 },
    { "indent", filter_indent, "width first blank", 0, 0 },
    { "center", filter_center, "width", 0, 0 },
    { "truncate", filter_truncate, "length killwords end leeway", 0, 0 },
    { "wordcount", filter_wordcount, "", 0, 0 },
    { "urlencode", filter_urlencode, "", 0, 0 },
    { "tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0, 0 },
    { 0 },
};
