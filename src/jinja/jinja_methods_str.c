/* Methods of strings. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_print.h"
#include "jinja/jinja_python.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

#define METHOD(name) static jvalue name(jctx *c, const jcall *call)

/* ---- strip ---- */

METHOD(str_strip) /* mode: the sides */
{
    const jstr *chars = jgiven(call->a[0]) ? jbuiltin_str(c, call->a[0]) : NULL;
    return jpython_stripped(c, call->self.str, call->mode, chars);
}

METHOD(str_removeprefix)
{
    const jstr *s = call->self.str, *p = jbuiltin_str(c, call->a[0]);
    size_t n = s->n >= p->n && memcmp(s->p, p->p, p->n) == 0 ? p->n : 0;
    return jpython_sub(c, s, n, s->n - n);
}

METHOD(str_removesuffix)
{
    const jstr *s = call->self.str, *p = jbuiltin_str(c, call->a[0]);
    bool ends = s->n >= p->n && memcmp(s->p + s->n - p->n, p->p, p->n) == 0;
    return jpython_sub(c, s, 0, ends ? s->n - p->n : s->n);
}

/* ---- split ---- */

/* Where `what` last stands before byte `end`; SIZE_MAX: nowhere. */
static size_t find_last(jctx *c, const jstr *s, size_t end, const jstr *what)
{
    if (what->n == 0)
        return end;
    for (size_t at = end < what->n ? 0 : end - what->n + 1; at-- > 0;) {
        if (s->p[at] != what->p[0])
            continue;
        if (!jctx_step(c, what->n / 64))
            break;
        if (memcmp(s->p + at, what->p, what->n) == 0)
            return at;
    }
    return SIZE_MAX;
}

/* At white space: runs count as one, none at the ends. */
static jvalue split_space(jctx *c, const jstr *s, int64_t most)
{
    jvalue out = jvalue_seq(c, J_LIST, 0);
    jslice rest = jpython_strip(s->p, s->n, PYTEXT_LEFT, NULL);
    while (rest.n > 0 && !jctx_failed(c)) {
        const char *p = s->p + rest.at;
        size_t n = 0;
        uint32_t cp;
        for (int k; n < rest.n && (k = utf8_decode(p + n, rest.n - n, &cp)) > 0; n += (size_t)k)
            if (pytext_is_space(cp))
                break;
        if (most-- == 0)
            n = rest.n;
        jseq_add(c, out.seq, jpython_sub(c, s, rest.at, n));
        jslice next = jpython_strip(p + n, rest.n - n, PYTEXT_LEFT, NULL);
        rest = (jslice){ rest.at + n + next.at, next.n };
    }
    return out;
}

static void reverse(jseq *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        jvalue v = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = v;
    }
}

/* The same from the right. */
static jvalue rsplit_space(jctx *c, const jstr *s, int64_t most)
{
    jvalue out = jvalue_seq(c, J_LIST, 0);
    size_t end = jpython_strip(s->p, s->n, PYTEXT_RIGHT, NULL).n;
    while (end > 0 && !jctx_failed(c)) {
        size_t from = end;
        while (from > 0) {
            size_t k = 1;
            uint32_t cp = 0;
            while (k < from && k < 4 && ((unsigned char)s->p[from - k] & 0xc0) == 0x80)
                k++;
            utf8_decode(s->p + from - k, k, &cp);
            if (pytext_is_space(cp))
                break;
            from -= k;
        }
        if (most-- == 0)
            from = 0;
        jseq_add(c, out.seq, jpython_sub(c, s, from, end - from));
        end = jpython_strip(s->p, from, PYTEXT_RIGHT, NULL).n;
    }
    if (!jctx_failed(c))
        reverse(out.seq);
    return out;
}

METHOD(str_split)
{
    int64_t most = jbuiltin_int(c, call->a[1], -1);
    const jstr *s = call->self.str;
    most = most < 0 ? INT64_MAX : most;
    if (!jgiven(call->a[0]))
        return split_space(c, s, most);
    const jstr *by = jbuiltin_str(c, call->a[0]);
    if (by->n == 0)
        return jctx_fail(c, "split() needs a separator that is not empty");
    jvalue out = jvalue_seq(c, J_LIST, 0);
    size_t from = 0;
    for (size_t at; most > 0 && (at = jpython_find(s, from, by)) != SIZE_MAX; most--) {
        jseq_add(c, out.seq, jpython_sub(c, s, from, at - from));
        from = at + by->n;
        if (jctx_failed(c))
            return out;
    }
    jseq_add(c, out.seq, jpython_sub(c, s, from, s->n - from));
    return out;
}

METHOD(str_rsplit)
{
    int64_t most = jbuiltin_int(c, call->a[1], -1);
    const jstr *s = call->self.str;
    most = most < 0 ? INT64_MAX : most;
    if (!jgiven(call->a[0]))
        return rsplit_space(c, s, most);
    const jstr *by = jbuiltin_str(c, call->a[0]);
    if (by->n == 0)
        return jctx_fail(c, "rsplit() needs a separator that is not empty");
    jvalue out = jvalue_seq(c, J_LIST, 0);
    size_t end = s->n;
    for (size_t at; most > 0 && (at = find_last(c, s, end, by)) != SIZE_MAX; most--) {
        jseq_add(c, out.seq, jpython_sub(c, s, at + by->n, end - at - by->n));
        end = at;
        if (!jctx_step(c, s->n / 64))
            return out;
    }
    jseq_add(c, out.seq, jpython_sub(c, s, 0, end));
    if (!jctx_failed(c))
        reverse(out.seq);
    return out;
}

METHOD(str_splitlines)
{
    return jpython_lines(c, call->self.str, jbuiltin_int(c, call->a[0], 0) != 0);
}

METHOD(str_partition) /* mode: at the last separator */
{
    const jstr *s = call->self.str, *by = jbuiltin_str(c, call->a[0]);
    bool last = call->mode;
    if (by->n == 0)
        return jctx_fail(c, "partition() needs a separator that is not empty");
    size_t at = last ? find_last(c, s, s->n, by) : jpython_find(s, 0, by);
    bool found = at != SIZE_MAX;
    size_t head = found ? at : last ? 0 : s->n, after = found ? at + by->n : head;
    jvalue out = jvalue_seq(c, J_TUPLE, 3);
    jseq_add(c, out.seq, jpython_sub(c, s, 0, head));
    jseq_add(c, out.seq, jpython_sub(c, s, head, after - head));
    jseq_add(c, out.seq, jpython_sub(c, s, after, s->n - after));
    return out;
}

/* ---- find ---- */

/* s[start:end] by code points, as bytes; false where start lies after the end. */
static bool window(jctx *c, const jstr *s, const jvalue *bounds, jslice *out)
{
    int64_t n = (int64_t)s->chars;
    int64_t from = jgiven(bounds[0]) ? jbuiltin_int(c, bounds[0], 0) : 0;
    int64_t to = jgiven(bounds[1]) ? jbuiltin_int(c, bounds[1], 0) : n;
    from = from < 0 ? from + n : from;
    to = to < 0 ? to + n : to;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to > n ? n : to;
    if (from > to || jctx_failed(c))
        return false;
    out->at = jpython_offset(s, (size_t)from);
    out->n = jpython_offset(s, (size_t)to) - out->at;
    return true;
}

/* find, index and their like from the right: the index of a part in code points. */
enum { LAST = 1, MUST = 2 };
METHOD(str_find)
{
    jslice in;
    const jstr *s = call->self.str, *what = jbuiltin_str(c, call->a[0]);
    size_t at = SIZE_MAX;
    int64_t chars = 0;
    if (jctx_step(c, s->n / 64) && window(c, s, call->a + 1, &in)) {
        jstr part = { .p = s->p + in.at, .n = in.n };
        at = call->mode & LAST ? find_last(c, &part, part.n, what) : jpython_find(&part, 0, what);
    }
    if (at == SIZE_MAX)
        return call->mode & MUST ? jctx_fail(c, "index(): substring not found") : jint(-1);
    for (size_t i = 0; i < in.at + at; i++)
        chars += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return jint(chars);
}

METHOD(str_count)
{
    jslice in;
    const jstr *what = jbuiltin_str(c, call->a[0]);
    int64_t n = 0;
    if (!window(c, call->self.str, call->a + 1, &in))
        return jint(0);
    jstr part = { .p = call->self.str->p + in.at, .n = in.n };
    if (what->n == 0) {
        for (size_t i = 0; i < part.n; i++)
            n += ((unsigned char)part.p[i] & 0xc0) != 0x80;
        return jint(n + 1);
    }
    for (size_t at = 0; (at = jpython_find(&part, at, what)) != SIZE_MAX; at += what->n)
        n++;
    return jint(n);
}

static bool matches(jctx *c, const jstr *part, jvalue what, bool at_end)
{
    const jstr *w = jbuiltin_str(c, what);
    return !jctx_failed(c) && part->n >= w->n &&
           memcmp(part->p + (at_end ? part->n - w->n : 0), w->p, w->n) == 0;
}

/* startswith, endswith (mode); a tuple holds several texts of which one must match. */
METHOD(str_begins_or_ends)
{
    jslice in;
    bool found = false;
    const jvalue *a = call->a;
    if (!window(c, call->self.str, a + 1, &in))
        return jbool(false);
    jstr part = { .p = call->self.str->p + in.at, .n = in.n };
    if (a[0].kind != J_TUPLE)
        return jbool(matches(c, &part, a[0], call->mode));
    for (size_t i = 0; i < a[0].seq->n && !found && !jctx_failed(c); i++)
        found = matches(c, &part, a[0].seq->v[i], call->mode);
    return jbool(found);
}

/* ---- join, replace, pad ---- */

METHOD(str_join)
{
    jbuf b = { .c = c };
    jseq s = jvalue_iterate(c, call->a[0]);
    for (size_t i = 0; i < s.n && !jctx_failed(c); i++) {
        if (i)
            jbuf_str(&b, call->self.str);
        jbuf_str(&b, jbuiltin_str(c, s.v[i]));
    }
    return jbuf_value(&b);
}

METHOD(str_replace)
{
    const jstr *before = jbuiltin_str(c, call->a[0]), *after = jbuiltin_str(c, call->a[1]);
    return jpython_replace(c, call->self.str, before, after, jbuiltin_int(c, call->a[2], -1));
}

METHOD(str_format)
{
    return jformat_braces(c, call->self.str, call->all);
}

/* ljust, center, rjust. mode: the part of the padding that goes before the text, in halves */
METHOD(str_pad)
{
    const jstr *s = call->self.str;
    int64_t width = jbuiltin_int(c, call->a[0], 0), n = width - (int64_t)s->chars;
    const jstr *fill = jgiven(call->a[1]) ? jbuiltin_str(c, call->a[1]) : NULL;
    int64_t before = n <= 0 ? 0 : call->mode == 1 ? n / 2 + (n & width & 1) : call->mode ? n : 0;
    jbuf b = { .c = c };
    if (fill && fill->chars != 1)
        return jctx_fail(c, "the fill must be one character");
    for (int64_t i = 0; i <= n && jctx_step(c, 1); i++) {
        if (i == before)
            jbuf_str(&b, s);
        if (i < n && fill)
            jbuf_str(&b, fill);
        else if (i < n)
            jbuf_puts(&b, " ");
    }
    return n < 0 ? jpython_sub(c, s, 0, s->n) : jbuf_value(&b);
}

METHOD(str_zfill)
{
    const jstr *s = call->self.str;
    jbuf b = { .c = c };
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    jbuf_sub(&b, s, 0, sign);
    jbuf_fill(&b, '0', jbuiltin_int(c, call->a[0], 0) - (int64_t)s->chars);
    jbuf_sub(&b, s, sign, s->n - sign);
    return jbuf_value(&b);
}

/* ---- case and kinds of characters ---- */

METHOD(str_case) /* mode: a jcase */
{
    return jpython_cased(c, call->self.str, (jcase)call->mode);
}

METHOD(str_capitalize)
{
    return jpython_capitalized(c, call->self.str);
}

METHOD(str_is_case) /* mode: 'u' or 'l'. No character has another case, and one has this. */
{
    const jstr *s = call->self.str;
    bool found = false;
    if (!jctx_step(c, s->n / 8))
        return jbool(false);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp), is = pytext_case(cp);
        if (is && is != call->mode)
            return jbool(false);
        found = found || is;
        i += k > 0 ? (size_t)k : 1;
    }
    return jbool(found);
}

enum {
    LETTERS = 1 << UTF8PROC_CATEGORY_LU | 1 << UTF8PROC_CATEGORY_LL | 1 << UTF8PROC_CATEGORY_LT |
              1 << UTF8PROC_CATEGORY_LM | 1 << UTF8PROC_CATEGORY_LO,
    DIGITS = 1 << UTF8PROC_CATEGORY_ND,
    NUMBERS = DIGITS | 1 << UTF8PROC_CATEGORY_NL | 1 << UTF8PROC_CATEGORY_NO,
};
static const struct {
    int categories;
    bool (*also)(uint32_t cp);
} kinds[] = { { LETTERS, NULL }, { DIGITS, NULL },       { DIGITS, pytext_is_digit },
              { NUMBERS, NULL }, { 0, pytext_is_alnum }, { 0, pytext_is_space } };
enum { ALPHA, DECIMAL, DIGIT, NUMERIC, ALNUM, SPACE };

METHOD(str_is) /* mode: the kind of all characters */
{
    const jstr *s = call->self.str;
    if (!jctx_step(c, s->n / 8))
        return jbool(false);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        bool is = kinds[call->mode].categories >> utf8proc_category((utf8proc_int32_t)cp) & 1;
        if (!is && !(kinds[call->mode].also && kinds[call->mode].also(cp)))
            return jbool(false);
        i += k > 0 ? (size_t)k : 1;
    }
    return jbool(s->n > 0);
}

const jbuiltin jinja_methods_str[] = {
    { "strip", str_strip, "chars", 0, PYTEXT_BOTH },
    { "lstrip", str_strip, "chars", 0, PYTEXT_LEFT },
    { "rstrip", str_strip, "chars", 0, PYTEXT_RIGHT },
    { "removeprefix", str_removeprefix, "prefix", 1, 0 },
    { "removesuffix", str_removesuffix, "suffix", 1, 0 },
    { "split", str_split, "sep maxsplit", 0, 0 },
    { "rsplit", str_rsplit, "sep maxsplit", 0, 0 },
    { "splitlines", str_splitlines, "keepends", 0, 0 },
    { "partition", str_partition, "sep", 1, 0 },
    { "rpartition", str_partition, "sep", 1, LAST },
    { "find", str_find, "sub start end", 1, 0 },
    { "rfind", str_find, "sub start end", 1, LAST },
    { "index", str_find, "sub start end", 1, MUST },
    { "rindex", str_find, "sub start end", 1, MUST | LAST },
    { "count", str_count, "sub start end", 1, 0 },
    { "startswith", str_begins_or_ends, "prefix start end", 1, false },
    { "endswith", str_begins_or_ends, "suffix start end", 1, true },
    { "join", str_join, "iterable", 1, 0 },
    { "replace", str_replace, "old new count", 2, 0 },
    { "format", str_format, "*", 0, 0 },
    { "ljust", str_pad, "width fillchar", 1, 0 },
    { "center", str_pad, "width fillchar", 1, 1 },
    { "rjust", str_pad, "width fillchar", 1, 2 },
    { "zfill", str_zfill, "width", 1, 0 },
    { "upper", str_case, "", 0, JCASE_UPPER },
    { "lower", str_case, "", 0, JCASE_LOWER },
    { "title", str_case, "", 0, JCASE_TITLE },
    { "capitalize", str_capitalize, "", 0, 0 },
    { "isupper", str_is_case, "", 0, 'u' },
    { "islower", str_is_case, "", 0, 'l' },
    { "isalpha", str_is, "", 0, ALPHA },
    { "isdecimal", str_is, "", 0, DECIMAL },
    { "isdigit", str_is, "", 0, DIGIT },
    { "isnumeric", str_is, "", 0, NUMERIC },
    { "isalnum", str_is, "", 0, ALNUM },
    { "isspace", str_is, "", 0, SPACE },
    { 0 },
};
