#include "grammar/regexparse.h"

#include "base/utf8.h"

#include <string.h>

typedef struct reader {
    expr_pool *pool;
    const char *text;
    size_t n, at;
    int depth;
} reader;

static pesc_status malformed(const reader *p, const char *what)
{
    return fail(PESC_FORMAT, "the regular expression has %s at byte %zu", what, p->at + 1);
}

static pesc_status unsupported(const reader *p, const char *what)
{
    return fail(PESC_UNSUPPORTED,
                "the regular expression has %s at byte %zu, which cannot be enforced", what,
                p->at + 1);
}

static bool looks_at(const reader *p, const char *word)
{
    size_t n = strlen(word);
    return p->n - p->at >= n && memcmp(p->text + p->at, word, n) == 0;
}

static char peek(const reader *p)
{
    return p->at < p->n ? p->text[p->at] : '\0';
}

/* ---- characters and sets ---- */

static void add_ranges(charset *s, const char_range *r, size_t n, bool negated)
{
    charset own = { 0 };
    for (size_t i = 0; i < n; i++)
        charset_add(&own, r[i].lo, r[i].hi);
    if (negated)
        charset_negate(&own);
    charset_add_set(s, &own);
    charset_free(&own);
}

/* \d, \w, \s and their opposites. */
static bool add_class(charset *s, char letter)
{
    static const char_range digit[] = { { '0', '9' } };
    static const char_range word[] = { { '0', '9' }, { 'A', 'Z' }, { 'a', 'z' }, { '_', '_' } };
    static const char_range blank[] = { { 9, 13 },          { ' ', ' ' },       { 0xa0, 0xa0 },
                                        { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
                                        { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
                                        { 0xfeff, 0xfeff } };
    static const struct {
        char letter;
        const char_range *r;
        size_t n;
    } classes[] = { { 'd', digit, 1 }, { 'w', word, 4 }, { 's', blank, 10 } };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if ((letter | 0x20) == classes[i].letter) {
            add_ranges(s, classes[i].r, classes[i].n, letter != classes[i].letter);
            return true;
        }
    return false;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n hexadecimal digits; -1: they are not there. */
static int64_t take_hex(reader *p, int n)
{
    int64_t v = 0;
    for (int i = 0; i < n; i++, p->at++) {
        int d = p->at < p->n ? hex_value(p->text[p->at]) : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* After \u: 4 digits, a pair of such for a character above U+FFFF, or any number in braces. */
static int64_t take_unicode(reader *p)
{
    if (peek(p) == '{') {
        int64_t v = 0;
        for (p->at++; p->at < p->n && hex_value(peek(p)) >= 0 && v <= CHAR_LAST; p->at++)
            v = v * 16 + hex_value(peek(p));
        bool good = peek(p) == '}' && p->text[p->at - 1] != '{';
        p->at++;
        return good ? v : -1;
    }
    int64_t v = take_hex(p, 4);
    if (v < SURROGATE_FIRST || v > SURROGATE_LAST)
        return v;
    if (v >= 0xDC00 || !looks_at(p, "\\u"))
        return -1;
    p->at += 2;
    int64_t low = take_hex(p, 4);
    return low >= 0xDC00 && low <= SURROGATE_LAST ? 0x10000 + ((v - 0xD800) << 10) + low - 0xDC00
                                                  : -1;
}

/* The character of an escape, after its backslash; what is a class or an assertion does not get
 * here. */
static pesc_status take_escape(reader *p, bool in_set, uint32_t *c)
{
    static const char letters[] = "tnrfv0", means[] = "\t\n\r\f\v";
    char k = peek(p);
    if (p->at == p->n)
        return malformed(p, "a backslash without a character");
    const char *known = k ? strchr(letters, k) : NULL;
    if (known &&
        !(k == '0' && p->at + 1 < p->n && p->text[p->at + 1] >= '0' && p->text[p->at + 1] <= '9')) {
        *c = k == '0' ? 0 : (unsigned char)means[known - letters];
        p->at++;
        return PESC_OK;
    }
    if (k == 'b' && in_set) {
        *c = 8;
        p->at++;
        return PESC_OK;
    }
    if (k >= '0' && k <= '9')
        return unsupported(p, in_set ? "an octal escape" : "a back reference");
    if (k == 'k')
        return unsupported(p, "a back reference");
    if (k == 'b' || k == 'B')
        return unsupported(p, "a word boundary");
    if (k == 'p' || k == 'P')
        return unsupported(p, "a Unicode property (\\p)");
    if (k == 'x' || k == 'u' || k == 'U') {
        p->at++;
        int64_t v = k == 'x' ? take_hex(p, 2) : k == 'U' ? take_hex(p, 8) : take_unicode(p);
        if (v < 0 || v > CHAR_LAST || (v >= SURROGATE_FIRST && v <= SURROGATE_LAST))
            return malformed(p, "an escape that is no character");
        *c = (uint32_t)v;
        return PESC_OK;
    }
    if (k == 'c' && p->at + 1 < p->n && ((p->text[p->at + 1] | 0x20) >= 'a') &&
        ((p->text[p->at + 1] | 0x20) <= 'z')) {
        *c = p->text[p->at + 1] & 0x1f;
        p->at += 2;
        return PESC_OK;
    }
    if ((k >= 'a' && k <= 'z') || (k >= 'A' && k <= 'Z'))
        return unsupported(p, "an escape of a letter without a meaning here");
    int len = utf8_decode(p->text + p->at, p->n - p->at, c);
    p->at += (size_t)len;
    return PESC_OK;
}

static pesc_status take_char(reader *p, bool in_set, uint32_t *c)
{
    if (peek(p) == '\\') {
        p->at++;
        return take_escape(p, in_set, c);
    }
    p->at += (size_t)utf8_decode(p->text + p->at, p->n - p->at, c);
    return PESC_OK;
}

/* One member of a set: a class, a character or a range. */
static pesc_status take_member(reader *p, charset *set)
{
    uint32_t lo, hi;
    if (peek(p) == '\\' && p->at + 1 < p->n && add_class(set, p->text[p->at + 1])) {
        p->at += 2;
        return PESC_OK;
    }
    if (looks_at(p, "[:"))
        return unsupported(p, "a named class ([:alpha:])");
    TRY(take_char(p, true, &lo));
    if (peek(p) != '-' || p->at + 1 >= p->n || p->text[p->at + 1] == ']') {
        charset_add(set, lo, lo);
        return PESC_OK;
    }
    p->at++;
    charset none = { 0 };
    bool is_class = peek(p) == '\\' && p->at + 1 < p->n && add_class(&none, p->text[p->at + 1]);
    charset_free(&none);
    if (is_class)
        return malformed(p, "a range that ends in a class");
    TRY(take_char(p, true, &hi));
    if (hi < lo)
        return malformed(p, "a range whose end comes before its beginning");
    charset_add(set, lo, hi);
    return PESC_OK;
}

static pesc_status take_set(reader *p, uint32_t *e)
{
    charset set = { 0 };
    p->at++;
    bool negated = peek(p) == '^';
    p->at += negated;
    if (peek(p) == ']')
        return unsupported(p, "an empty set ([] or [^])");
    while (p->at < p->n && peek(p) != ']') {
        pesc_status st = take_member(p, &set);
        if (st != PESC_OK) {
            charset_free(&set);
            return st;
        }
    }
    if (p->at == p->n) {
        charset_free(&set);
        return malformed(p, "a set without its ]");
    }
    p->at++;
    if (negated)
        charset_negate(&set);
    *e = expr_add_set(p->pool, &set);
    return PESC_OK;
}

/* ---- groups ---- */

static pesc_status take_choice(reader *p, uint32_t *e);

/* What follows "(?"; only groups that do nothing but group remain. */
static pesc_status take_group_kind(reader *p)
{
    static const struct {
        const char *begins, *is;
    } refused[] = { { "=", "a look-ahead ((?=)" },        { "!", "a look-ahead ((?!)" },
                    { "<=", "a look-behind ((?<=)" },     { "<!", "a look-behind ((?<!)" },
                    { ">", "an atomic group ((?>)" },     { "P=", "a back reference ((?P=)" },
                    { "P>", "a recursive group ((?P>)" }, { "(", "a conditional ((?()" },
                    { "#", "a comment ((?#)" },           { "R", "a recursive group ((?R)" } };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (looks_at(p, refused[i].begins))
            return unsupported(p, refused[i].is);
    if (looks_at(p, ":")) {
        p->at++;
        return PESC_OK;
    }
    if (!looks_at(p, "<") && !looks_at(p, "P<"))
        return unsupported(p, "flags ((?i) and others)");
    while (p->at < p->n && peek(p) != '>')
        p->at++;
    if (p->at == p->n)
        return malformed(p, "a group name without its >");
    p->at++;
    return PESC_OK;
}

static pesc_status take_group(reader *p, uint32_t *e)
{
    p->at++;
    if (++p->depth > EXPR_MAX_DEPTH)
        return fail(PESC_UNSUPPORTED,
                    "the regular expression has groups that are nested more than %d deep",
                    EXPR_MAX_DEPTH);
    if (peek(p) == '?') {
        p->at++;
        TRY(take_group_kind(p));
    }
    TRY(take_choice(p, e));
    if (peek(p) != ')' || p->at == p->n)
        return malformed(p, "a group without its )");
    p->at++;
    p->depth--;
    return PESC_OK;
}

static pesc_status take_atom(reader *p, uint32_t *e)
{
    static const char_range line_ends[] = { { 10, 10 }, { 13, 13 }, { 0x2028, 0x2029 } };
    charset set = { 0 };
    uint32_t c;
    switch (peek(p)) {
    case '(':
        return take_group(p, e);
    case '[':
        return take_set(p, e);
    case '^':
    case '$':
        *e = expr_add(p->pool, peek(p) == '^' ? EXPR_BEGIN : EXPR_END, 0);
        p->at++;
        return PESC_OK;
    case '*':
    case '+':
    case '?':
        return malformed(p, "a quantifier without anything before it");
    case '.':
        p->at++;
        add_ranges(&set, line_ends, 3, true);
        *e = expr_add_set(p->pool, &set);
        return PESC_OK;
    default:
        break;
    }
    if (peek(p) == '\\' && p->at + 1 < p->n && add_class(&set, p->text[p->at + 1])) {
        p->at += 2;
        *e = expr_add_set(p->pool, &set);
        return PESC_OK;
    }
    TRY(take_char(p, false, &c));
    *e = expr_add(p->pool, EXPR_CHAR, c);
    return PESC_OK;
}

/* ---- quantifiers ---- */

/* Anything else that begins with a brace is text. */
static pesc_status take_quantifiers(reader *p, uint32_t *e)
{
    int32_t min, max;
    size_t taken = repetition_read(p->text + p->at, p->n - p->at, false, &min, &max);
    if (!taken)
        return PESC_OK;
    p->at += taken;
    if (min > EXPR_MAX_TIMES || max > EXPR_MAX_TIMES)
        return fail(PESC_UNSUPPORTED,
                    "the regular expression has a repetition before byte %zu of more than %d times",
                    p->at + 1, EXPR_MAX_TIMES);
    if (max >= 0 && max < min)
        return malformed(p, "a repetition whose maximum is below its minimum before it,");
    if (peek(p) == '?')
        p->at++;
    else if (peek(p) == '+')
        return unsupported(p, "a possessive quantifier");
    if (peek(p) == '*' || peek(p) == '?' || peek(p) == '+')
        return malformed(p, "a quantifier after a quantifier");
    *e = expr_add_repeat(p->pool, *e, min, max);
    return PESC_OK;
}

static pesc_status take_sequence(reader *p, uint32_t *e)
{
    *e = expr_add(p->pool, EXPR_SEQUENCE, 0);
    while (p->at < p->n && peek(p) != '|' && peek(p) != ')') {
        uint32_t part = 0;
        TRY(take_atom(p, &part));
        TRY(take_quantifiers(p, &part));
        expr_append(p->pool, *e, part);
        if (p->pool->failed)
            return fail_nomem("a regular expression", p->n);
    }
    return PESC_OK;
}

static pesc_status take_choice(reader *p, uint32_t *e)
{
    uint32_t part = 0;
    *e = expr_add(p->pool, EXPR_CHOICE, 0);
    TRY(take_sequence(p, &part));
    expr_append(p->pool, *e, part);
    while (p->at < p->n && peek(p) == '|') {
        p->at++;
        TRY(take_sequence(p, &part));
        expr_append(p->pool, *e, part);
    }
    return p->pool->failed ? fail_nomem("a regular expression", p->n) : PESC_OK;
}

pesc_status regex_parse(expr_pool *pool, const char *text, size_t n, uint32_t *root)
{
    reader p = { .pool = pool, .text = text, .n = n };
    if (n > REGEX_MAX_BYTES)
        return fail(PESC_UNSUPPORTED, "the regular expression has %zu bytes, expected at most %d",
                    n, REGEX_MAX_BYTES);
    if (!utf8_valid(text, n))
        return fail(PESC_FORMAT, "the regular expression is not UTF-8");
    TRY(take_choice(&p, root));
    return p.at == n ? PESC_OK : malformed(&p, "a ) without its (");
}
