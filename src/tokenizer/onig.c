#include "tokenizer/onig.h"

#include "tokenizer/newchars.h"

#include <ctype.h>
#include <stdio.h>
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
#define HEX "0-9A-Fa-f"

/* Properties, separated by spaces. Outside brackets \w and \b take superscript digits and fractions
 * of Latin-1 for word characters, which they are not inside them. */
#define WORD "Alphabetic M Nd Pc"
#define LATIN_WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

/* How an escape is rewritten; `in_class` NULL: it has no equivalent inside brackets. */
typedef struct spelling {
    char letter;
    const char *outside, *in_class;
} spelling;
static const spelling escapes[] = {
    { 's', "[" SPACE "]", SPACE }, { 'S', "[^" SPACE "]", "\\S\\x{180E}" },
    { 'h', "[" HEX "]", HEX },     { 'H', "[^" HEX "]", NULL },
    { 'N', "[^\\n]", NULL },       { 'O', "(?s:.)", NULL },
};

typedef struct named {
    const char *name, *as;
} named;
static const named brackets[] = {
    /* as properties */
    { "alpha", "Alphabetic" }, { "digit", "Nd" },  { "alnum", "Alphabetic Nd" },
    { "word", WORD },          { "punct", "P S" }, { "upper", "Uppercase" },
    { "lower", "Lowercase" },
};
static const named spelled[] = { { "space", SPACE }, { "xdigit", HEX } };

/* Characters that PCRE2 knows without the property that a newer Unicode gives them. */
static const named gained[] = {
    { "Alphabetic",
      "\\x{363}-\\x{36F}\\x{C04}\\x{F82}\\x{F83}\\x{1DD3}-\\x{1DE6}\\x{11080}\\x{11081}" },
    { "Lowercase", "\\x{10FC}\\x{A7F2}-\\x{A7F4}\\x{AB69}" },
    { "Mc", "\\x{1171E}" },
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
    /* short names of scripts that grew */
    { "Arab", "sc:Arabic" },
    { "Bali", "sc:Balinese" },
    { "Cyrl", "sc:Cyrillic" },
    { "Deva", "sc:Devanagari" },
    { "Egyp", "sc:Egyptian_Hieroglyphs" },
    { "Hani", "sc:Han" },
    { "Hira", "sc:Hiragana" },
    { "Kana", "sc:Katakana" },
    { "Khoj", "sc:Khojki" },
    { "Kits", "sc:Khitan_Small_Script" },
    { "Knda", "sc:Kannada" },
    { "Laoo", "sc:Lao" },
    { "Latn", "sc:Latin" },
    { "Mymr", "sc:Myanmar" },
    { "Zyyy", "sc:Common" },
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

/* The inside of a class: what has a property. */
static void put_members(const walk *w, const char *name, size_t n)
{
    const char *more = lookup(gained, COUNT(gained), name, n);
    str_printf(w->out, "\\p{%.*s}%s", (int)n, name, more ? more : "");
    if (w->newer)
        newchars_class(w->out, name, n);
}

/* The same of several properties. */
static void put_all_members(const walk *w, const char *names)
{
    for (size_t n; *names; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        put_members(w, names, n);
    }
}

/* What PCRE2 takes for members but a newer Unicode does not, as the inside of a class: of Mn, and
 * of what is not assigned. */
static void put_lost(const walk *w, const char *name, size_t n)
{
    if (n == 2 && memcmp(name, "Mn", n) == 0)
        str_puts(w->out, "\\x{1171E}");
    else if (w->newer && n <= 2 && (name[n - 1] == 'C' || memcmp(name, "Cn", n) == 0))
        newchars_class(w->out, n == 1 ? "Graphic" : "", n == 1 ? strlen("Graphic") : 0);
}

/* A property, or its complement, outside brackets: a class, unless the name alone says it. */
static void put_class(const walk *w, const char *name, size_t n, bool negated)
{
    size_t begin = w->out->n;
    str_puts(w->out, negated ? "[^" : "[");
    size_t open = w->out->n;
    put_members(w, name, n);
    if (w->out->n - open == n + strlen("\\p{}")) {
        w->out->n = begin;
        str_printf(w->out, "\\%c{%.*s}", negated ? 'P' : 'p', (int)n, name);
    } else {
        str_putc(w->out, ']');
    }
}

/* The same, where a newer Unicode took members away, too. */
static void put_property(const walk *w, const char *name, size_t n, bool negated)
{
    str lost = { 0 };
    walk of = *w;
    of.out = &lost;
    put_lost(&of, name, n);
    if (lost.n == 0) {
        put_class(w, name, n, negated);
    } else {
        str_printf(w->out, "%s(?![%s])", negated ? "(?s:(?!" : "(?:", lost.p);
        put_class(w, name, n, false);
        str_puts(w->out, negated ? ").)" : ")");
    }
    w->out->failed |= lost.failed;
    str_free(&lost);
}

/* Inside brackets nothing can be taken away. */
static pesc_status member_property(const walk *w, const char *name, size_t n, bool negated)
{
    bool rest = n <= 2 && (name[n - 1] == 'C' || memcmp(name, "Cn", n) == 0);
    if (negated || rest || (n == 2 && memcmp(name, "Mn", n) == 0))
        return refuse(w, w->p, (int)strcspn(w->p, "}") + 1,
                      "what has no property, is not assigned, or is no spacing mark, inside "
                      "brackets");
    put_members(w, name, n);
    return PESC_OK;
}

/* A class of word characters, as outside brackets, after `open` and before `close`. */
static void put_word(const walk *w, const char *open, const char *close)
{
    str_puts(w->out, open);
    put_all_members(w, WORD);
    str_puts(w->out, LATIN_WORD);
    str_puts(w->out, close);
}

/* \w, \W, \b or \B, whose words are not PCRE2's; false: it is none of them. */
static bool word_escape(walk *w, char c)
{
    if (!strchr("wWbB", c) || (w->in_class && c != 'w'))
        return false;
    if (w->in_class) {
        put_all_members(w, WORD);
    } else if (c == 'w' || c == 'W') {
        put_word(w, c == 'w' ? "[" : "[^", "]");
    } else {
        put_word(w, "(?:(?<=[", "])");
        put_word(w, c == 'b' ? "(?![" : "(?=[", "])|");
        put_word(w, "(?<![", "])");
        put_word(w, c == 'b' ? "(?=[" : "(?![", "]))");
    }
    w->p += 2;
    return true;
}

/* \p{Name}: a category as it is; else a script, which PCRE2 would widen by script extensions. */
static pesc_status property(walk *w)
{
    const char *start = w->p; /* at the backslash */
    const char *name = w->p + 3, *close = memchr(w->p, '}', (size_t)(w->end - w->p));
    char script[64];
    if (w->end - w->p < 4 || w->p[2] != '{' || !close)
        return refuse(w, start, 2, "a property without braces, which Oniguruma reads as a letter");
    bool negated = w->p[1] == 'P';
    if (name < close && *name == '^') {
        negated = !negated;
        name++;
    }
    size_t n = (size_t)(close - name);
    const char *as = lookup(properties, COUNT(properties), name, n);
    if (!as && n > 2) {
        snprintf(script, sizeof script, "sc:%.*s", n < 60 ? (int)n : 60, name);
        as = script;
    }
    n = as ? strlen(as) : n;
    if (w->in_class)
        TRY(member_property(w, as ? as : name, n, negated));
    else
        put_property(w, as ? as : name, n, negated);
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
    if (c == 'd' && w->in_class)
        put_members(w, "Nd", 2);
    else if ((c == 'd' || c == 'D') && !w->in_class)
        put_property(w, "Nd", 2, c == 'D');
    if (c == 'd' || (c == 'D' && !w->in_class)) {
        w->p += 2;
        return PESC_OK;
    }
    if (word_escape(w, c))
        return PESC_OK;
    if (w->in_class && strchr("WDB", c))
        return refuse(w, w->p, 2, "an escape that pesc does not support inside brackets");
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
    if (strchr("uykQEgCMcUX", c))
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
    size_t n = (size_t)(close - (w->p + 2));
    const char *names = lookup(brackets, COUNT(brackets), w->p + 2, n);
    const char *as = lookup(spelled, COUNT(spelled), w->p + 2, n);
    if (names)
        put_all_members(w, names);
    else if (as)
        str_puts(w->out, as);
    else
        return refuse(w, w->p, (int)(close + 2 - w->p), "a POSIX class pesc does not support");
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
