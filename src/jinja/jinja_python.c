#include "jinja/jinja_python.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/pytext.h"

#include <string.h>
#include <utf8proc.h>

jslice jpython_strip(const char *p, size_t n, int sides, const jstr *chars)
{
    slice set = chars ? (slice){ chars->p, chars->n } : (slice){ 0 };
    slice rest = pytext_strip_chars((slice){ p, n }, sides, chars ? &set : NULL);
    return (jslice){ (size_t)(rest.p - p), rest.n };
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

/* Characters whose upper or title case is more than one character (SpecialCasing.txt). */
static const struct {
    uint32_t cp;
    const char *upper, *title;
} expanding[] = { { 0xDF, "SS", "Ss" },
                  { 0x149, "\u02BCN", "\u02BCN" },
                  { 0x1F0, "J\u030C", "J\u030C" },
                  { 0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301" },
                  { 0x3B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301" },
                  { 0x587, "\u0535\u0552", "\u0535\u0582" },
                  { 0x1E96, "H\u0331", "H\u0331" },
                  { 0x1E97, "T\u0308", "T\u0308" },
                  { 0x1E98, "W\u030A", "W\u030A" },
                  { 0x1E99, "Y\u030A", "Y\u030A" },
                  { 0x1E9A, "A\u02BE", "A\u02BE" },
                  { 0x1F50, "\u03A5\u0313", "\u03A5\u0313" },
                  { 0x1F52, "\u03A5\u0313\u0300", "\u03A5\u0313\u0300" },
                  { 0x1F54, "\u03A5\u0313\u0301", "\u03A5\u0313\u0301" },
                  { 0x1F56, "\u03A5\u0313\u0342", "\u03A5\u0313\u0342" },
                  { 0x1F80, "\u1F08\u0399", "\u1F88" },
                  { 0x1F81, "\u1F09\u0399", "\u1F89" },
                  { 0x1F82, "\u1F0A\u0399", "\u1F8A" },
                  { 0x1F83, "\u1F0B\u0399", "\u1F8B" },
                  { 0x1F84, "\u1F0C\u0399", "\u1F8C" },
                  { 0x1F85, "\u1F0D\u0399", "\u1F8D" },
                  { 0x1F86, "\u1F0E\u0399", "\u1F8E" },
                  { 0x1F87, "\u1F0F\u0399", "\u1F8F" },
                  { 0x1F88, "\u1F08\u0399", "\u1F88" },
                  { 0x1F89, "\u1F09\u0399", "\u1F89" },
                  { 0x1F8A, "\u1F0A\u0399", "\u1F8A" },
                  { 0x1F8B, "\u1F0B\u0399", "\u1F8B" },
                  { 0x1F8C, "\u1F0C\u0399", "\u1F8C" },
                  { 0x1F8D, "\u1F0D\u0399", "\u1F8D" },
                  { 0x1F8E, "\u1F0E\u0399", "\u1F8E" },
                  { 0x1F8F, "\u1F0F\u0399", "\u1F8F" },
                  { 0x1F90, "\u1F28\u0399", "\u1F98" },
                  { 0x1F91, "\u1F29\u0399", "\u1F99" },
                  { 0x1F92, "\u1F2A\u0399", "\u1F9A" },
                  { 0x1F93, "\u1F2B\u0399", "\u1F9B" },
                  { 0x1F94, "\u1F2C\u0399", "\u1F9C" },
                  { 0x1F95, "\u1F2D\u0399", "\u1F9D" },
                  { 0x1F96, "\u1F2E\u0399", "\u1F9E" },
                  { 0x1F97, "\u1F2F\u0399", "\u1F9F" },
                  { 0x1F98, "\u1F28\u0399", "\u1F98" },
                  { 0x1F99, "\u1F29\u0399", "\u1F99" },
                  { 0x1F9A, "\u1F2A\u0399", "\u1F9A" },
                  { 0x1F9B, "\u1F2B\u0399", "\u1F9B" },
                  { 0x1F9C, "\u1F2C\u0399", "\u1F9C" },
                  { 0x1F9D, "\u1F2D\u0399", "\u1F9D" },
                  { 0x1F9E, "\u1F2E\u0399", "\u1F9E" },
                  { 0x1F9F, "\u1F2F\u0399", "\u1F9F" },
                  { 0x1FA0, "\u1F68\u0399", "\u1FA8" },
                  { 0x1FA1, "\u1F69\u0399", "\u1FA9" },
                  { 0x1FA2, "\u1F6A\u0399", "\u1FAA" },
                  { 0x1FA3, "\u1F6B\u0399", "\u1FAB" },
                  { 0x1FA4, "\u1F6C\u0399", "\u1FAC" },
                  { 0x1FA5, "\u1F6D\u0399", "\u1FAD" },
                  { 0x1FA6, "\u1F6E\u0399", "\u1FAE" },
                  { 0x1FA7, "\u1F6F\u0399", "\u1FAF" },
                  { 0x1FA8, "\u1F68\u0399", "\u1FA8" },
                  { 0x1FA9, "\u1F69\u0399", "\u1FA9" },
                  { 0x1FAA, "\u1F6A\u0399", "\u1FAA" },
                  { 0x1FAB, "\u1F6B\u0399", "\u1FAB" },
                  { 0x1FAC, "\u1F6C\u0399", "\u1FAC" },
                  { 0x1FAD, "\u1F6D\u0399", "\u1FAD" },
                  { 0x1FAE, "\u1F6E\u0399", "\u1FAE" },
                  { 0x1FAF, "\u1F6F\u0399", "\u1FAF" },
                  { 0x1FB2, "\u1FBA\u0399", "\u1FBA\u0345" },
                  { 0x1FB3, "\u0391\u0399", "\u1FBC" },
                  { 0x1FB4, "\u0386\u0399", "\u0386\u0345" },
                  { 0x1FB6, "\u0391\u0342", "\u0391\u0342" },
                  { 0x1FB7, "\u0391\u0342\u0399", "\u0391\u0342\u0345" },
                  { 0x1FBC, "\u0391\u0399", "\u1FBC" },
                  { 0x1FC2, "\u1FCA\u0399", "\u1FCA\u0345" },
                  { 0x1FC3, "\u0397\u0399", "\u1FCC" },
                  { 0x1FC4, "\u0389\u0399", "\u0389\u0345" },
                  { 0x1FC6, "\u0397\u0342", "\u0397\u0342" },
                  { 0x1FC7, "\u0397\u0342\u0399", "\u0397\u0342\u0345" },
                  { 0x1FCC, "\u0397\u0399", "\u1FCC" },
                  { 0x1FD2, "\u0399\u0308\u0300", "\u0399\u0308\u0300" },
                  { 0x1FD3, "\u0399\u0308\u0301", "\u0399\u0308\u0301" },
                  { 0x1FD6, "\u0399\u0342", "\u0399\u0342" },
                  { 0x1FD7, "\u0399\u0308\u0342", "\u0399\u0308\u0342" },
                  { 0x1FE2, "\u03A5\u0308\u0300", "\u03A5\u0308\u0300" },
                  { 0x1FE3, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301" },
                  { 0x1FE4, "\u03A1\u0313", "\u03A1\u0313" },
                  { 0x1FE6, "\u03A5\u0342", "\u03A5\u0342" },
                  { 0x1FE7, "\u03A5\u0308\u0342", "\u03A5\u0308\u0342" },
                  { 0x1FF2, "\u1FFA\u0399", "\u1FFA\u0345" },
                  { 0x1FF3, "\u03A9\u0399", "\u1FFC" },
                  { 0x1FF4, "\u038F\u0399", "\u038F\u0345" },
                  { 0x1FF6, "\u03A9\u0342", "\u03A9\u0342" },
                  { 0x1FF7, "\u03A9\u0342\u0399", "\u03A9\u0342\u0345" },
                  { 0x1FFC, "\u03A9\u0399", "\u1FFC" },
                  { 0xFB00, "FF", "Ff" },
                  { 0xFB01, "FI", "Fi" },
                  { 0xFB02, "FL", "Fl" },
                  { 0xFB03, "FFI", "Ffi" },
                  { 0xFB04, "FFL", "Ffl" },
                  { 0xFB05, "ST", "St" },
                  { 0xFB06, "ST", "St" },
                  { 0xFB13, "\u0544\u0546", "\u0544\u0576" },
                  { 0xFB14, "\u0544\u0535", "\u0544\u0565" },
                  { 0xFB15, "\u0544\u053B", "\u0544\u056B" },
                  { 0xFB16, "\u054E\u0546", "\u054E\u0576" },
                  { 0xFB17, "\u0544\u053D", "\u0544\u056D" } };

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
        c = cp == 0x3a3 && pytext_ends_word((slice){ s->p, s->n }, i, 2) ? 0x3c2
                                                                         : utf8proc_tolower(c);
    jbuf_code(b, (uint32_t)c, origin);
}

void jpython_case(jbuf *b, const jstr *s, jslice part, jcase to)
{
    bool in_word = false;
    if (!jctx_step(b->c, part.n))
        return;
    for (size_t i = part.at, k; i < part.at + part.n && !jctx_failed(b->c); i += k) {
        uint32_t cp = 0;
        int n = utf8_decode(s->p + i, s->n - i, &cp);
        k = n > 0 ? (size_t)n : 1;
        put_case(b, s, i, cp, to == JCASE_TITLE && in_word ? JCASE_LOWER : to);
        in_word = pytext_is_cased(cp);
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
    if (chars && !jctx_step(c, s->n - part.n))
        return jundefined("");
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
    jctx_step(c, s->n / 8);
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
