#include "jinja/jinja_python.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

bool jpython_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* ---- strip ---- */

static bool is_stripped(const char *p, size_t n, const jstr *chars)
{
    uint32_t cp = 0;
    if (!chars)
        return utf8_decode(p, n, &cp) > 0 && jpython_is_space(cp);
    for (size_t i = 0; i + n <= chars->n; i++) /* a whole character is found at its start only */
        if (memcmp(chars->p + i, p, n) == 0)
            return true;
    return false;
}

/* The length of the last character. */
static size_t last_char(const char *p, size_t n)
{
    size_t k = 1;
    while (k < n && k < 4 && ((unsigned char)p[n - k] & 0xc0) == 0x80)
        k++;
    return k;
}

jslice jpython_strip(const char *p, size_t n, int sides, const jstr *chars)
{
    jslice s = { 0, n };
    while ((sides & JPYTHON_LEFT) && s.n > 0) {
        int k = utf8_decode(p + s.at, s.n, NULL);
        if (k <= 0 || !is_stripped(p + s.at, (size_t)k, chars))
            break;
        s.at += (size_t)k;
        s.n -= (size_t)k;
    }
    while ((sides & JPYTHON_RIGHT) && s.n > 0) {
        size_t k = last_char(p + s.at, s.n);
        if (!is_stripped(p + s.at + s.n - k, k, chars))
            break;
        s.n -= k;
    }
    return s;
}

/* ---- escapes ---- */

/* The value of up to `most` digits of a base at p; *used receives how many there are. */
static uint32_t digits(const char *p, size_t n, size_t most, unsigned base, size_t *used)
{
    uint32_t value = 0;
    size_t i = 0;
    for (; i < n && i < most; i++) {
        char ch = p[i];
        unsigned d = ch >= '0' && ch <= '9'   ? (unsigned)(ch - '0')
                     : ch >= 'a' && ch <= 'f' ? (unsigned)(ch - 'a' + 10)
                     : ch >= 'A' && ch <= 'F' ? (unsigned)(ch - 'A' + 10)
                                              : 99;
        if (d >= base)
            break;
        value = value * base + d;
    }
    *used = i;
    return value;
}

/* One escape: p[0] follows the backslash. Returns the bytes of it, 0 when it is not valid. */
static size_t unescape_one(const char *p, size_t n, char *out, size_t *n_out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *at = p[0] ? strchr(from, p[0]) : NULL;
    size_t most = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : p[0] == 'U' ? 8 : 0, used = 0;
    if (p[0] == '\n')
        return 1; /* continues the line */
    if (at) {
        out[(*n_out)++] = to[at - from];
        return 1;
    }
    bool octal = p[0] >= '0' && p[0] <= '7';
    if (p[0] == 'N')
        return 0;
    if (!most && !octal) { /* no escape: the backslash stays */
        out[(*n_out)++] = '\\';
        out[(*n_out)++] = p[0];
        return 1;
    }
    uint32_t cp = octal ? digits(p, n, 3, 8, &used) : digits(p + 1, n - 1, most, 16, &used);
    if ((most && used != most) || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000) || cp == 0)
        return 0;
    *n_out += (size_t)utf8_encode(cp, out + *n_out);
    return used + (most ? 1 : 0);
}

bool jpython_unescape(char *out, size_t *n_out, const char *p, size_t n)
{
    *n_out = 0;
    for (size_t i = 0; i < n;) {
        if (p[i] != '\\') {
            out[(*n_out)++] = p[i++];
            continue;
        }
        size_t used = i + 1 < n ? unescape_one(p + i + 1, n - i - 1, out, n_out) : 0;
        if (used == 0)
            return false;
        i += 1 + used;
    }
    return true;
}

/* ---- case ---- */

/* Characters whose upper or title case is more than one character. */
static const struct {
    uint32_t cp;
    const char *upper, *title;
} expanding[] = {
    { 0xdf, "SS", "Ss" },   { 0x149, "ʼN", "ʼN" },    { 0x1f0, "J̌", "J̌" },
    { 0x587, "ԵՒ", "Եւ" },  { 0xfb00, "FF", "Ff" },   { 0xfb01, "FI", "Fi" },
    { 0xfb02, "FL", "Fl" }, { 0xfb03, "FFI", "Ffi" }, { 0xfb04, "FFL", "Ffl" },
    { 0xfb05, "ST", "St" }, { 0xfb06, "ST", "St" },
};

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* Whether a capital sigma at byte i ends a word, where its lower case differs. */
static bool is_final_sigma(const jstr *s, size_t i)
{
    uint32_t before = 0, after = 0;
    size_t k = i ? last_char(s->p, i) : 0;
    if (k)
        utf8_decode(s->p + i - k, k, &before);
    if (i + 2 < s->n)
        utf8_decode(s->p + i + 2, s->n - i - 2, &after);
    return is_cased(before) && !is_cased(after);
}

static void put_case(jbuf *b, const jstr *s, size_t i, uint32_t cp, jcase to)
{
    uint16_t origin = s->origin ? s->origin[i] : 0;
    for (size_t k = 0; to != JCASE_LOWER && k < sizeof expanding / sizeof *expanding; k++)
        if (expanding[k].cp == cp) {
            const char *text = to == JCASE_UPPER ? expanding[k].upper : expanding[k].title;
            for (; *text; text++)
                jbuf_putc(b, *text, origin);
            return;
        }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    if (to == JCASE_UPPER)
        c = utf8proc_toupper(c);
    else if (to == JCASE_TITLE)
        c = utf8proc_totitle(c);
    else if (cp == 0x130) { /* I with a dot becomes i and a combining dot */
        jbuf_code(b, 'i', origin);
        c = 0x307;
    } else
        c = cp == 0x3a3 && is_final_sigma(s, i) ? 0x3c2 : utf8proc_tolower(c);
    jbuf_code(b, (uint32_t)c, origin);
}

void jpython_case(jbuf *b, const jstr *s, jslice part, jcase to)
{
    bool in_word = false;
    for (size_t i = part.at, k; i < part.at + part.n && !jctx_failed(b->c); i += k) {
        uint32_t cp = 0;
        int n = utf8_decode(s->p + i, s->n - i, &cp);
        k = n > 0 ? (size_t)n : 1;
        put_case(b, s, i, cp, to == JCASE_TITLE && in_word ? JCASE_LOWER : to);
        in_word = is_cased(cp);
    }
}

jvalue jpython_cased(jctx *c, const jstr *s, jcase to)
{
    jbuf b = { .c = c };
    jpython_case(&b, s, (jslice){ 0, s->n }, to);
    return jbuf_value(&b);
}

jvalue jpython_capitalized(jctx *c, const jstr *s)
{
    jbuf b = { .c = c };
    size_t first = s->n ? jpython_offset(s, 1) : 0;
    jpython_case(&b, s, (jslice){ 0, first }, JCASE_TITLE);
    jpython_case(&b, s, (jslice){ first, s->n - first }, JCASE_LOWER);
    return jbuf_value(&b);
}

/* ---- places ---- */

size_t jpython_offset(const jstr *s, size_t chars)
{
    size_t at = 0;
    if (s->chars == s->n) /* ASCII */
        return chars < s->n ? chars : s->n;
    while (chars > 0 && at < s->n) {
        at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80)
            at++;
        chars--;
    }
    return at;
}

jvalue jpython_sub(jctx *c, const jstr *s, size_t at, size_t n)
{
    return jvalue_str(c, s->p + at, n, s->origin ? s->origin + at : NULL);
}

jvalue jpython_stripped(jctx *c, const jstr *s, int sides, const jstr *chars)
{
    size_t work = 0;
    if (chars && !ckd_mul_size(&work, s->n, chars->n))
        work = SIZE_MAX;
    if (!jctx_step(c, work / 256))
        return jundefined("");
    jslice part = jpython_strip(s->p, s->n, sides, chars);
    return jpython_sub(c, s, part.at, part.n);
}

size_t jpython_find(const jstr *s, size_t from, const jstr *what)
{
    if (from > s->n)
        return SIZE_MAX;
    if (what->n == 0)
        return from;
    const char *at = memmem(s->p + from, s->n - from, what->p, what->n);
    return at ? (size_t)(at - s->p) : SIZE_MAX;
}

/* The bytes of the line break at p; 0: none. */
static size_t line_break(const char *p, size_t n)
{
    uint32_t cp = 0;
    int k = utf8_decode(p, n, &cp);
    if (cp == '\r' && n > 1 && p[1] == '\n')
        return 2;
    bool breaks = (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                  cp == 0x2028 || cp == 0x2029;
    return breaks ? (size_t)k : 0;
}

jvalue jpython_lines(jctx *c, const jstr *s, bool keep_ends)
{
    jvalue out = jvalue_seq(c, J_LIST, 0);
    size_t from = 0, n;
    for (size_t i = 0; i < s->n && !jctx_failed(c);) {
        if ((n = line_break(s->p + i, s->n - i)) == 0) {
            i++;
            continue;
        }
        jseq_add(c, out.seq, jpython_sub(c, s, from, i - from + (keep_ends ? n : 0)));
        i += n;
        from = i;
    }
    if (from < s->n && !jctx_failed(c))
        jseq_add(c, out.seq, jpython_sub(c, s, from, s->n - from));
    return out;
}

/* Between all characters, before the first and after the last. */
static jvalue replace_nothing(jctx *c, const jstr *s, const jstr *after, int64_t count)
{
    jbuf b = { .c = c };
    for (size_t i = 0; i <= s->n && !jctx_failed(c);) {
        if (count != 0) {
            jbuf_str(&b, after);
            count--;
        }
        size_t k = i < s->n ? (size_t)utf8_decode(s->p + i, s->n - i, NULL) : 0;
        jbuf_sub(&b, s, i, k);
        i += k ? k : 1;
    }
    return jbuf_value(&b);
}

jvalue jpython_replace(jctx *c, const jstr *s, const jstr *before, const jstr *after, int64_t count)
{
    jbuf b = { .c = c };
    size_t from = 0;
    if (before->n == 0)
        return replace_nothing(c, s, after, count);
    for (size_t at; count != 0 && (at = jpython_find(s, from, before)) != SIZE_MAX; count--) {
        jbuf_sub(&b, s, from, at - from);
        jbuf_str(&b, after);
        from = at + before->n;
        if (jctx_failed(c))
            break;
    }
    jbuf_sub(&b, s, from, s->n - from);
    return jbuf_value(&b);
}
