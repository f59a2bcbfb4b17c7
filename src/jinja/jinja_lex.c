/* The rules are those of jinja2 with trim_blocks and lstrip_blocks: a newline after a block or
 * comment is removed, and so is white space before one that stands first in its line; `-` removes
 * all white space on its side, `+` keeps it. A plain template has neither of the two. */
#include "jinja/jinja_lex.h"

#include "base/utf8.h"
#include "jinja/jinja_python.h"

#include <string.h>

typedef struct lexer {
    jinja_template *t;
    const char *p;
    size_t n, at;
    int line;
    bool line_start; /* the text at `at` begins a line, or follows a newline that was removed */
    jtoken *tokens;
    size_t n_tokens, cap;
    char brackets[256]; /* open ones of the tag at work */
    size_t n_brackets;
} lexer;

static pesc_status refuse(const lexer *l, const char *why)
{
    return fail(PESC_FORMAT, "%s: line %d: %s", l->t->where, l->line, why);
}

static pesc_status add(lexer *l, jtoken token)
{
    if (l->n_tokens == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        jtoken *p = jpool_take(&l->t->pool, cap, sizeof *p);
        if (!p)
            return fail_nomem("a chat template", cap * sizeof *p);
        if (l->n_tokens)
            memcpy(p, l->tokens, l->n_tokens * sizeof *p);
        l->tokens = p;
        l->cap = cap;
    }
    l->tokens[l->n_tokens++] = token;
    return PESC_OK;
}

static pesc_status add_plain(lexer *l, jtoken_kind kind, int op)
{
    return add(l, (jtoken){ .kind = kind, .line = l->line, .op = op });
}

static bool starts(const lexer *l, size_t at, const char *text)
{
    size_t n = strlen(text);
    return l->n - at >= n && memcmp(l->p + at, text, n) == 0;
}

/* Bytes of white space at `at`, any number of characters. */
static size_t space_at(const lexer *l, size_t at)
{
    size_t from = at;
    uint32_t cp;
    for (int k; at < l->n && (k = utf8_decode(l->p + at, l->n - at, &cp)) > 0; at += (size_t)k)
        if (!pytext_is_space(cp))
            break;
    return at - from;
}

/* Moves on and counts lines. */
static void advance(lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->p[l->at + i] == '\n';
    if (n)
        l->line_start = l->p[l->at + n - 1] == '\n';
    l->at += n;
}

/* ---- text between tags ---- */

/* Adds text[from..to) as data; `sign` is what follows the brace of the tag after it, `lstrip`
 * whether lstrip_blocks applies to that tag. */
static pesc_status add_data(lexer *l, size_t from, size_t to, char sign, bool lstrip)
{
    const char *p = l->p;
    size_t end = to;
    if (sign == '-') {
        end = from + jpython_strip(p + from, to - from, PYTEXT_RIGHT, NULL).n;
    } else if (sign != '+' && lstrip && !l->t->plain) {
        size_t line = to;
        while (line > from && p[line - 1] != '\n')
            line--;
        if (line < to && (line > from || l->line_start) && space_at(l, line) >= to - line)
            end = line;
    }
    jtoken data = { .kind = T_DATA, .line = l->line, .p = p + from, .n = end - from };
    return end > from ? add(l, data) : PESC_OK;
}

/* After the end of a block or comment: "-" removes white space, else one newline goes. */
static void after_tag(lexer *l, char sign, bool trim)
{
    if (sign == '-')
        advance(l, space_at(l, l->at));
    else if (trim && !l->t->plain && sign != '+' && l->at < l->n && l->p[l->at] == '\n')
        advance(l, 1);
}

static char sign_at(const lexer *l, size_t at)
{
    return at < l->n && (l->p[at] == '-' || l->p[at] == '+') ? l->p[at] : '\0';
}

static pesc_status lex_comment(lexer *l)
{
    size_t end = l->at + 2;
    while (end < l->n && !starts(l, end, "#}"))
        end++;
    if (end >= l->n)
        return refuse(l, "a comment is not closed: expected #}");
    bool opened = end == l->at + 2; /* the sign of {#-#} belongs to its begin */
    char sign = opened || (end == l->at + 3 && sign_at(l, l->at + 2)) ? '\0' : sign_at(l, end - 1);
    advance(l, end + 2 - l->at);
    after_tag(l, sign, true);
    return PESC_OK;
}

/* The bytes of `{% NAME %}` at `at`, 0 when there is none; the signs into begin and end. */
static size_t bare_tag(const lexer *l, size_t at, const char *name, char signs[2])
{
    size_t from = at;
    if (!starts(l, at, "{%"))
        return 0;
    signs[0] = sign_at(l, at + 2);
    at += signs[0] ? 3 : 2;
    at += space_at(l, at);
    if (!starts(l, at, name))
        return 0;
    at += strlen(name);
    at += space_at(l, at);
    signs[1] = sign_at(l, at);
    at += signs[1] ? 1 : 0;
    return starts(l, at, "%}") ? at + 2 - from : 0;
}

static pesc_status lex_raw(lexer *l, size_t tag, char end_sign)
{
    char signs[2];
    size_t n = 0;
    advance(l, tag);
    if (end_sign == '-')
        advance(l, space_at(l, l->at));
    size_t end = l->at;
    while (end < l->n && (n = bare_tag(l, end, "endraw", signs)) == 0)
        end++;
    if (end >= l->n)
        return refuse(l, "a raw block is not closed: expected {% endraw %}");
    TRY(add_data(l, l->at, end, signs[0], true));
    advance(l, end + n - l->at);
    after_tag(l, signs[1], true);
    return PESC_OK;
}

/* ---- inside a tag ---- */

static bool is_name(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_' || (unsigned char)ch >= 0x80;
}

static pesc_status lex_string(lexer *l)
{
    char quote = l->p[l->at];
    size_t end = l->at + 1;
    while (end < l->n && l->p[end] != quote)
        end += l->p[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return refuse(l, "a string is not closed");
    jtoken t = { .kind = T_STRING, .line = l->line };
    char *text = jpool_take(&l->t->pool, end - l->at, 1);
    if (!text)
        return fail_nomem("a chat template", end - l->at);
    if (!jpython_unescape(text, &t.n, l->p + l->at + 1, end - l->at - 1))
        return refuse(l, "a string has an escape that is not valid or not supported");
    t.p = text;
    advance(l, end + 1 - l->at);
    return add(l, t);
}

static pesc_status lex_number(lexer *l)
{
    jtoken t = { .line = l->line };
    bool real;
    size_t n = jnumber_lex(l->p + l->at, l->n - l->at, &real, &t.i, &t.f);
    if (n == 0)
        return refuse(l, "a number is not valid or beyond 64 bits");
    t.kind = real ? T_FLOAT : T_INT;
    advance(l, n);
    return add(l, t);
}

static pesc_status lex_operator(lexer *l)
{
    static const struct {
        char text[3];
        int op;
    } twos[] = { { "==", OP_EQ }, { "!=", OP_NE },       { "<=", OP_LE },
                 { ">=", OP_GE }, { "//", OP_FLOORDIV }, { "**", OP_POW } };
    char ch = l->p[l->at];
    for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
        if (starts(l, l->at, twos[i].text)) {
            advance(l, 2);
            return add_plain(l, T_OP, twos[i].op);
        }
    if (!strchr("+-/*%~[](){}><=.:|,", ch))
        return refuse(l, "a character inside a tag is not part of the language");
    if (strchr("([{", ch)) {
        if (l->n_brackets == sizeof l->brackets)
            return refuse(l, "brackets are nested too deeply");
        l->brackets[l->n_brackets++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
    } else if (strchr(")]}", ch)) {
        if (l->n_brackets == 0 || l->brackets[l->n_brackets - 1] != ch)
            return refuse(l, "a bracket is closed that is not open");
        l->n_brackets--;
    }
    TRY(add_plain(l, T_OP, (unsigned char)ch));
    advance(l, 1);
    return PESC_OK;
}

static pesc_status lex_inside(lexer *l)
{
    char ch = l->p[l->at];
    size_t n = 0;
    if (ch == '\'' || ch == '"')
        return lex_string(l);
    if (ch >= '0' && ch <= '9')
        return lex_number(l);
    if (!is_name(ch))
        return lex_operator(l);
    while (l->at + n < l->n && is_name(l->p[l->at + n]))
        n++;
    TRY(add(l, (jtoken){ .kind = T_NAME, .line = l->line, .p = l->p + l->at, .n = n }));
    advance(l, n);
    return PESC_OK;
}

/* A tag from its opening brace to its closing one. */
static pesc_status lex_tag(lexer *l, bool block)
{
    const char *close = block ? "%}" : "}}";
    char sign = sign_at(l, l->at + 2);
    int line = l->line;
    TRY(add_plain(l, block ? T_BLOCK_BEGIN : T_VARIABLE_BEGIN, 0));
    advance(l, sign ? 3 : 2);
    l->n_brackets = 0;
    for (;;) {
        advance(l, space_at(l, l->at));
        if (l->at >= l->n) {
            l->line = line;
            return refuse(l, block ? "a block is not closed: expected %}"
                                   : "an expression is not closed: expected }}");
        }
        sign = sign_at(l, l->at);
        sign = sign == '+' && !block ? '\0' : sign;
        if (l->n_brackets == 0 && starts(l, l->at + (sign ? 1 : 0), close))
            break;
        TRY(lex_inside(l));
    }
    TRY(add_plain(l, block ? T_BLOCK_END : T_VARIABLE_END, 0));
    advance(l, sign ? 3 : 2);
    after_tag(l, sign, block);
    return PESC_OK;
}

/* ---- the whole ---- */

static bool at_tag(const lexer *l, size_t at)
{
    return l->p[at] == '{' && at + 1 < l->n && strchr("%{#", l->p[at + 1]) && l->p[at + 1];
}

static pesc_status lex_next(lexer *l)
{
    size_t end = l->at;
    char signs[2];
    while (end < l->n && !at_tag(l, end))
        end++;
    if (end == l->n) {
        TRY(add_data(l, l->at, end, '+', false));
        l->at = end;
        return PESC_OK;
    }
    char kind = l->p[end + 1];
    TRY(add_data(l, l->at, end, sign_at(l, end + 2), kind != '{'));
    advance(l, end - l->at);
    size_t raw = kind == '%' ? bare_tag(l, l->at, "raw", signs) : 0;
    if (raw && signs[1] != '+')
        return lex_raw(l, raw, signs[1]);
    return kind == '#' ? lex_comment(l) : lex_tag(l, kind == '%');
}

pesc_status jlex_tokens(jinja_template *t, jtoken **out)
{
    lexer l = { .t = t, .p = t->source, .n = t->n, .line = 1, .line_start = true };
    while (l.at < l.n)
        TRY(lex_next(&l));
    TRY(add_plain(&l, T_END, 0));
    *out = l.tokens;
    return PESC_OK;
}
