/* Methods of strings that find, cut and join. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_format.h"
#include "jinja/jinja_python.h"

#include <string.h>

#include "base/utf8.h"

#define METHOD(name) static jvalue name(jctx *c, jvalue self, const jvalue *a, const jargs *all)

static bool given(jvalue v)
{
    return v.kind != J_MISSING && v.kind != J_NONE;
}

/* ---- strip ---- */

static jvalue strip(jctx *c, const jstr *s, jvalue chars, int sides)
{
    return jpython_stripped(c, s, sides, given(chars) ? jbuiltin_str(c, chars) : NULL);
}

METHOD(str_strip)
{
    (void)all;
    return strip(c, self.str, a[0], PYTEXT_BOTH);
}

METHOD(str_lstrip)
{
    (void)all;
    return strip(c, self.str, a[0], PYTEXT_LEFT);
}

METHOD(str_rstrip)
{
    (void)all;
    return strip(c, self.str, a[0], PYTEXT_RIGHT);
}

METHOD(str_removeprefix)
{
    (void)all;
    const jstr *s = self.str, *p = jbuiltin_str(c, a[0]);
    size_t n = s->n >= p->n && memcmp(s->p, p->p, p->n) == 0 ? p->n : 0;
    return jpython_sub(c, s, n, s->n - n);
}

METHOD(str_removesuffix)
{
    (void)all;
    const jstr *s = self.str, *p = jbuiltin_str(c, a[0]);
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
    (void)all;
    int64_t most = jbuiltin_int(c, a[1], -1);
    const jstr *s = self.str;
    most = most < 0 ? INT64_MAX : most;
    if (!given(a[0]))
        return split_space(c, s, most);
    const jstr *by = jbuiltin_str(c, a[0]);
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
    (void)all;
    int64_t most = jbuiltin_int(c, a[1], -1);
    const jstr *s = self.str;
    most = most < 0 ? INT64_MAX : most;
    if (!given(a[0]))
        return rsplit_space(c, s, most);
    const jstr *by = jbuiltin_str(c, a[0]);
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
    (void)all;
    return jpython_lines(c, self.str, jvalue_true(c, a[0]));
}

static jvalue partition(jctx *c, const jstr *s, jvalue by, bool last)
{
    const jstr *b = jbuiltin_str(c, by);
    if (b->n == 0)
        return jctx_fail(c, "partition() needs a separator that is not empty");
    size_t at = last ? find_last(c, s, s->n, b) : jpython_find(s, 0, b);
    bool found = at != SIZE_MAX;
    size_t head = found ? at : last ? 0 : s->n, after = found ? at + b->n : head;
    jvalue out = jvalue_seq(c, J_TUPLE, 3);
    jseq_add(c, out.seq, jpython_sub(c, s, 0, head));
    jseq_add(c, out.seq, jpython_sub(c, s, head, after - head));
    jseq_add(c, out.seq, jpython_sub(c, s, after, s->n - after));
    return out;
}

METHOD(str_partition)
{
    (void)all;
    return partition(c, self.str, a[0], false);
}

METHOD(str_rpartition)
{
    (void)all;
    return partition(c, self.str, a[0], true);
}

/* ---- find ---- */

/* s[start:end] by code points, as bytes; false where start lies after the end. */
static bool window(jctx *c, const jstr *s, const jvalue *bounds, jslice *out)
{
    int64_t n = (int64_t)s->chars;
    int64_t from = given(bounds[0]) ? jbuiltin_int(c, bounds[0], 0) : 0;
    int64_t to = given(bounds[1]) ? jbuiltin_int(c, bounds[1], 0) : n;
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

/* The index of a part in code points; -1: not there. */
static int64_t find(jctx *c, const jstr *s, const jvalue *a, bool last)
{
    jslice in;
    const jstr *what = jbuiltin_str(c, a[0]);
    if (!jctx_step(c, s->n / 64) || !window(c, s, a + 1, &in))
        return -1;
    jstr part = { .p = s->p + in.at, .n = in.n };
    size_t at = last ? find_last(c, &part, part.n, what) : jpython_find(&part, 0, what);
    int64_t chars = 0;
    for (size_t i = 0; at != SIZE_MAX && i < in.at + at; i++)
        chars += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return at == SIZE_MAX ? -1 : chars;
}

METHOD(str_find)
{
    (void)all;
    return jint(find(c, self.str, a, false));
}

METHOD(str_rfind)
{
    (void)all;
    return jint(find(c, self.str, a, true));
}

METHOD(str_index)
{
    (void)all;
    int64_t at = find(c, self.str, a, false);
    return at >= 0 ? jint(at) : jctx_fail(c, "index(): substring not found");
}

METHOD(str_rindex)
{
    (void)all;
    int64_t at = find(c, self.str, a, true);
    return at >= 0 ? jint(at) : jctx_fail(c, "rindex(): substring not found");
}

METHOD(str_count)
{
    (void)all;
    jslice in;
    const jstr *what = jbuiltin_str(c, a[0]);
    int64_t n = 0;
    if (!window(c, self.str, a + 1, &in))
        return jint(0);
    jstr part = { .p = self.str->p + in.at, .n = in.n };
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

/* A tuple holds several texts of which one must match. */
static jvalue starts_or_ends(jctx *c, const jstr *s, const jvalue *a, bool at_end)
{
    jslice in;
    bool found = false;
    if (!window(c, s, a + 1, &in))
        return jbool(false);
    jstr part = { .p = s->p + in.at, .n = in.n };
    if (a[0].kind != J_TUPLE)
        return jbool(matches(c, &part, a[0], at_end));
    for (size_t i = 0; i < a[0].seq->n && !found && !jctx_failed(c); i++)
        found = matches(c, &part, a[0].seq->v[i], at_end);
    return jbool(found);
}

METHOD(str_startswith)
{
    (void)all;
    return starts_or_ends(c, self.str, a, false);
}

METHOD(str_endswith)
{
    (void)all;
    return starts_or_ends(c, self.str, a, true);
}

/* ---- join, replace, pad ---- */

METHOD(str_join)
{
    (void)all;
    jbuf b = { .c = c };
    jseq s = jvalue_iterate(c, a[0]);
    for (size_t i = 0; i < s.n && !jctx_failed(c); i++) {
        if (i)
            jbuf_str(&b, self.str);
        jbuf_str(&b, jbuiltin_str(c, s.v[i]));
    }
    return jbuf_value(&b);
}

METHOD(str_replace)
{
    (void)all;
    const jstr *before = jbuiltin_str(c, a[0]), *after = jbuiltin_str(c, a[1]);
    return jpython_replace(c, self.str, before, after, jbuiltin_int(c, a[2], -1));
}

METHOD(str_format)
{
    (void)a;
    return jformat_braces(c, self.str, all);
}

/* left: part of the padding that goes before the text, in halves. */
static jvalue pad(jctx *c, const jstr *s, const jvalue *a, int left)
{
    int64_t width = jbuiltin_int(c, a[0], 0), n = width - (int64_t)s->chars;
    const jstr *fill = given(a[1]) ? jbuiltin_str(c, a[1]) : NULL;
    int64_t before = n <= 0 ? 0 : left == 1 ? n / 2 + (n & width & 1) : left ? n : 0;
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

METHOD(str_ljust)
{
    (void)all;
    return pad(c, self.str, a, 0);
}

METHOD(str_rjust)
{
    (void)all;
    return pad(c, self.str, a, 2);
}

METHOD(str_center)
{
    (void)all;
    return pad(c, self.str, a, 1);
}

METHOD(str_zfill)
{
    (void)all;
    const jstr *s = self.str;
    jbuf b = { .c = c };
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    jbuf_sub(&b, s, 0, sign);
    jbuf_fill(&b, '0', jbuiltin_int(c, a[0], 0) - (int64_t)s->chars);
    jbuf_sub(&b, s, sign, s->n - sign);
    return jbuf_value(&b);
}

const jbuiltin jinja_methods_str[] = {
    { "strip", str_strip, "chars", 0 },
    { "lstrip", str_lstrip, "chars", 0 },
    { "rstrip", str_rstrip, "chars", 0 },
    { "removeprefix", str_removeprefix, "prefix", 1 },
    { "removesuffix", str_removesuffix, "suffix", 1 },
    { "split", str_split, "sep maxsplit", 0 },
    { "rsplit", str_rsplit, "sep maxsplit", 0 },
    { "splitlines", str_splitlines, "keepends", 0 },
    { "partition", str_partition, "sep", 1 },
    { "rpartition", str_rpartition, "sep", 1 },
    { "find", str_find, "sub start end", 1 },
    { "rfind", str_rfind, "sub start end", 1 },
    { "index", str_index, "sub start end", 1 },
    { "rindex", str_rindex, "sub start end", 1 },
    { "count", str_count, "sub start end", 1 },
    { "startswith", str_startswith, "prefix start end", 1 },
    { "endswith", str_endswith, "suffix start end", 1 },
    { "join", str_join, "iterable", 1 },
    { "replace", str_replace, "old new count", 2 },
    { "format", str_format, "*", 0 },
    { "ljust", str_ljust, "width fillchar", 1 },
    { "rjust", str_rjust, "width fillchar", 1 },
    { "center", str_center, "width fillchar", 1 },
    { "zfill", str_zfill, "width", 1 },
    { 0 },
};
