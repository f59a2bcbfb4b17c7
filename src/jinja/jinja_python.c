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

/* Upper or title case that is more than one character (SpecialCasing.txt): the parts of a character
 * in that case; an iota that is written below stands on its own. 0: it is one character. */
static size_t expand(utf8proc_int32_t cp, jcase to, utf8proc_int32_t out[4])
{
    bool parted = cp == 0x149 || cp == 0x587 || cp == 0x1e9a || (cp >= 0xfb00 && cp <= 0xfb17);
    bool accented = cp == 0x1f0 || cp == 0x390 || cp == 0x3b0 || (cp >= 0x1e96 && cp <= 0x1e99) ||
                    (cp >= 0x1f50 && cp <= 0x1ffc);
    bool title = utf8proc_category(cp) == UTF8PROC_CATEGORY_LT;
    if (cp == 0xdf) {
        out[0] = 'S';
        out[1] = to == JCASE_UPPER ? 'S' : 's';
        return 2;
    }
    if ((!parted && !accented) || (!title && utf8proc_category(cp) != UTF8PROC_CATEGORY_LL) ||
        (to == JCASE_TITLE && (title || utf8proc_totitle(cp) != cp)))
        return 0;
    int options = UTF8PROC_DECOMPOSE | (parted ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n = utf8proc_decompose_char(cp, out, 4, options, NULL);
    bool iota = n > 1 && n <= 4 && out[n - 1] == 0x345;
    if (n < 2 || n > 4 || (!iota && utf8proc_toupper(cp) != cp))
        return 0;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        if (to == JCASE_UPPER || i == 0 || cp == 0x149)
            out[i] = utf8proc_toupper(out[i]);
    if (iota) {
        utf8proc_int32_t last = to == JCASE_UPPER ? 0x399 : 0x345;
        n = utf8proc_normalize_utf32(out, n - 1, UTF8PROC_COMPOSE);
        out[n++] = last;
    }
    return (size_t)n;
}

static void put_case(jbuf *b, const jstr *s, size_t i, uint32_t cp, jcase to)
{
    uint16_t origin = s->origin ? s->origin[i] : 0;
    utf8proc_int32_t c = (utf8proc_int32_t)cp, parts[4];
    size_t n = to == JCASE_LOWER ? 0 : expand(c, to, parts);
    for (size_t k = 0; k < n; k++)
        jbuf_code(b, (uint32_t)parts[k], origin);
    if (n)
        return;
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
        in_word = pytext_case(cp);
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
