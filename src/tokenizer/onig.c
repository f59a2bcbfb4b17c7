#include "tokenizer/onig.h"

#include "tokenizer/newchars.h"

#include <ctype.h>
#include <string.h>

typedef struct walk {
    const char *begin, *p, *end;
    const char *where;
    str *out;
    bool newer;
    bool in_class;
} walk;

/* White space is Unicode's White_Space; PCRE2's own \s also takes U+180E. */
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define HEX "0-9A-Fa-f"

/* How an escape is rewritten; `in_class` NULL: it has no equivalent inside brackets. */
typedef struct spelling {
    char letter;
    const char *outside, *in_class;
} spelling;
static const spelling escapes[] = {
    { 's', "[" SPACE "]", SPACE }, { 'S', "[^" SPACE "]", "\\S\\x{180E}" },
    { 'w', "[" WORD "]", WORD },   { 'W', "[^" WORD "]", NULL },
    { 'h', "[" HEX "]", HEX },     { 'H', "[^" HEX "]", NULL },
    { 'N', "[^\\n]", NULL },       { 'O', "(?s:.)", NULL },
};

typedef struct named {
    const char *name, *as;
} named;
static const named brackets[] = {
    { "space", SPACE },
    { "alpha", "\\p{Alphabetic}" },
    { "digit", "\\p{Nd}" },
    { "alnum", "\\p{Alphabetic}\\p{Nd}" },
    { "word", WORD },
    { "punct", "\\p{P}\\p{S}" },
    { "xdigit", HEX },
    { "upper", "\\p{Uppercase}" },
    { "lower", "\\p{Lowercase}" },
};
static const named properties[] = {
    { "Any", "Any" },
    { "Alphabetic", "Alphabetic" },
    { "Alpha", "Alphabetic" },
    { "Letter", "L" },
    { "Mark", "M" },
    { "Number", "N" },
    { "Punctuation", "P" },
    { "Symbol", "S" },
    { "Separator", "Z" },
    { "Other", "C" },
    { "Uppercase", "Uppercase" },
    { "Lowercase", "Lowercase" },
    { "Uppercase_Letter", "Lu" },
    { "Lowercase_Letter", "Ll" },
    { "Decimal_Number", "Nd" },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *lookup(const named *rows, size_t n, const char *name, size_t name_n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].name) == name_n && memcmp(rows[i].name, name, name_n) == 0)
            return rows[i].as;
    return NULL;
}

static pesc_status refuse(const walk *w, const char *at, int n, const char *why)
{
    return fail(PESC_UNSUPPORTED, "%s: the regular expression has %s: '%.*s'", w->where, why, n,
                at);
}

/* A category, or its complement. Complements inside brackets cannot be widened. */
static void put_category(walk *w, const char *name, size_t n, bool negated)
{
    bool widen = w->newer && !(w->in_class && negated);
    if (widen && !w->in_class)
        str_puts(w->out, negated ? "[^" : "[");
    str_printf(w->out, "\\%c{%.*s}", negated && !widen ? 'P' : 'p', (int)n, name);
    if (widen)
        newchars_class(w->out, name, n);
    if (widen && !w->in_class)
        str_putc(w->out, ']');
}

/* \p{Name}: a category as it is; else a script, which PCRE2 would widen by script extensions. */
static pesc_status property(walk *w)
{
    const char *start = w->p; /* at the backslash */
    const char *name = w->p + 3, *close = memchr(w->p, '}', (size_t)(w->end - w->p));
    if (w->end - w->p < 4 || w->p[2] != '{' || !close)
        return refuse(w, start, 2, "a property without braces, which Oniguruma reads as a letter");
    bool negated = w->p[1] == 'P';
    if (name < close && *name == '^') {
        negated = !negated;
        name++;
    }
    size_t n = (size_t)(close - name);
    const char *as = lookup(properties, COUNT(properties), name, n);
    if (as || n <= 2)
        put_category(w, as ? as : name, as ? strlen(as) : n, negated);
    else
        str_printf(w->out, "\\%c{sc:%.*s}", negated ? 'P' : 'p', (int)n, name);
    w->p = close + 1;
    return PESC_OK;
}

static pesc_status escape(walk *w)
{
    if (w->end - w->p < 2)
        return refuse(w, w->p, 1, "a backslash at its end");
    char c = w->p[1];
    if (c == 'p' || c == 'P')
        return property(w);
    if (c == 'd' || c == 'D') {
        put_category(w, "Nd", 2, c == 'D');
        w->p += 2;
        return PESC_OK;
    }
    for (size_t i = 0; i < COUNT(escapes); i++) {
        if (escapes[i].letter != c)
            continue;
        const char *as = w->in_class ? escapes[i].in_class : escapes[i].outside;
        if (!as)
            return refuse(w, w->p, 2, "an escape that pesc does not support inside brackets");
        str_puts(w->out, as);
        w->p += 2;
        return PESC_OK;
    }
    if (c == 'u' && w->end - w->p >= 6) {
        str_printf(w->out, "\\x{%.4s}", w->p + 2);
        w->p += 6;
        return PESC_OK;
    }
    if (strchr("uykQEgCMcU", c))
        return refuse(w, w->p, 2, "an escape that pesc does not support");
    str_add(w->out, w->p, 2);
    w->p += 2;
    return PESC_OK;
}

/* Inside brackets, at '[': a POSIX name, or a class within a class. */
static pesc_status bracket(walk *w)
{
    const char *close = NULL;
    if (w->end - w->p > 3 && w->p[1] == ':')
        close = memmem(w->p + 2, (size_t)(w->end - w->p - 2), ":]", 2);
    if (!close)
        return refuse(w, w->p, 1, "a class inside a class, which pesc does not support");
    const char *as = lookup(brackets, COUNT(brackets), w->p + 2, (size_t)(close - (w->p + 2)));
    if (!as)
        return refuse(w, w->p, (int)(close + 2 - w->p), "a POSIX class pesc does not support");
    str_puts(w->out, as);
    w->p = close + 2;
    return PESC_OK;
}

static pesc_status class_char(walk *w)
{
    if (*w->p == '[')
        return bracket(w);
    if (w->end - w->p >= 2 && w->p[0] == '&' && w->p[1] == '&')
        return refuse(w, w->p, 2, "an intersection of classes, which pesc does not support");
    if (*w->p == ']')
        w->in_class = false;
    str_putc(w->out, *w->p++);
    return PESC_OK;
}

/* "(?im-x:" : Ruby's m lets the dot match a line feed, which PCRE2 spells s. */
static pesc_status group_options(walk *w)
{
    str_puts(w->out, "(?");
    w->p += 2;
    if (w->p == w->end || !(isalpha((unsigned char)*w->p) || *w->p == '-'))
        return PESC_OK;
    for (; w->p < w->end && *w->p != ':' && *w->p != ')'; w->p++) {
        if (!strchr("imx-", *w->p))
            return refuse(w, w->p, 1, "a group option that pesc does not support");
        str_putc(w->out, *w->p == 'm' ? 's' : *w->p);
    }
    return PESC_OK;
}

/* At the brace that closes an interval: Ruby repeats {n,m}+ and makes {n}? optional, where PCRE2
 * has a possessive and a lazy interval. */
static bool odd_interval(const walk *w)
{
    if (w->end - w->p < 2 || *w->p != '}')
        return false;
    bool comma = false;
    const char *q = w->p;
    while (q > w->begin && strchr("0123456789,", q[-1]))
        comma |= *--q == ',';
    if (q == w->begin || q[-1] != '{' || q == w->p)
        return false;
    return w->p[1] == '+' || (w->p[1] == '?' && !comma);
}

static pesc_status plain_char(walk *w)
{
    if (*w->p == '[') {
        w->in_class = true;
        str_putc(w->out, *w->p++);
        if (w->p < w->end && *w->p == '^')
            str_putc(w->out, *w->p++);
        if (w->p < w->end && *w->p == ']') {
            str_puts(w->out, "\\]");
            w->p++;
        }
        return PESC_OK;
    }
    if (w->end - w->p >= 2 && w->p[0] == '(' && w->p[1] == '?')
        return group_options(w);
    if (odd_interval(w))
        return refuse(w, w->p, 2, "an interval with a suffix that pesc does not support");
    str_putc(w->out, *w->p++);
    return PESC_OK;
}

pesc_status onig_to_pcre2(const char *pattern, size_t n, bool newer, const char *where, str *out)
{
    if (memchr(pattern, '\0', n))
        return fail(PESC_UNSUPPORTED, "%s: the regular expression holds a NUL", where);
    walk w = { .begin = pattern,
               .p = pattern,
               .end = pattern + n,
               .where = where,
               .out = out,
               .newer = newer };
    while (w.p < w.end) {
        if (*w.p == '\\')
            TRY(escape(&w));
        else if (w.in_class)
            TRY(class_char(&w));
        else
            TRY(plain_char(&w));
    }
    return str_ok(out) ? PESC_OK : fail_nomem("rewriting a regular expression", n);
}
