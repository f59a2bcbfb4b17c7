/* GBNF, the grammars of llama.cpp: name ::= alternatives, over quoted text, sets of characters,
 * names, groups and repetitions. A rule ends at the end of its line, except inside a group or after
 * |. Rules may be used before they are written. <[id]> is a control token. Two elements are not
 * llama.cpp's: %json SCHEMA is a JSON text that satisfies the schema, as in llguidance's grammars,
 * and %not ELEMENT is any text in which the element, a text or a group of such, does not occur.
 *
 * Characters are characters: \xHH is the one with that number, not a byte. */
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/frontends.h"

#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_RULES = 5000 };

typedef struct rule_name {
    const char *text; /* in the grammar */
    size_t n;
    uint32_t root; /* its expression; 0: not written */
    size_t at;     /* where it is named first */
} rule_name;

typedef struct reader {
    const char *text;
    size_t n, at;
    int depth;
    expr_pool pool;
    rule_name *names;
    size_t n_names, cap_names;
    json_t *schemas; /* an array; NULL: none */
    str *ignored;
    rules *r;
    spell_rules sets;
} reader;

static size_t line_at(const reader *p, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at && i < p->n; i++)
        line += p->text[i] == '\n';
    return line;
}

static size_t line_of(const reader *p)
{
    return line_at(p, p->at);
}

static pesc_status malformed(const reader *p, const char *what)
{
    return fail(PESC_FORMAT, "the grammar, line %zu: %s", line_of(p), what);
}

static char peek(const reader *p)
{
    return p->at < p->n ? p->text[p->at] : '\0';
}

static void skip_blanks(reader *p, bool lines)
{
    for (; p->at < p->n; p->at++) {
        char c = p->text[p->at];
        if (c == '#')
            while (p->at + 1 < p->n && p->text[p->at + 1] != '\n')
                p->at++;
        else if (!(c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))))
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

/* The number of the rule of a name. */
static pesc_status find_name(reader *p, const char *text, size_t n, uint32_t *number)
{
    for (size_t i = 0; i < p->n_names; i++)
        if (p->names[i].n == n && memcmp(p->names[i].text, text, n) == 0) {
            *number = (uint32_t)i;
            return PESC_OK;
        }
    if (p->n_names == MAX_RULES)
        return fail(PESC_UNSUPPORTED, "the grammar has more than %d rules", MAX_RULES);
    if (!mem_room((void **)&p->names, &p->cap_names, p->n_names, sizeof *p->names))
        return fail_nomem("a grammar", p->n_names * sizeof *p->names);
    p->names[p->n_names] = (rule_name){ text, n, 0, (size_t)(text - p->text) };
    *number = (uint32_t)p->n_names++;
    return PESC_OK;
}

static pesc_status take_name(reader *p, uint32_t *number)
{
    size_t from = p->at;
    while (is_name(peek(p)))
        p->at++;
    if (p->at == from)
        return malformed(p, "expected the name of a rule");
    return find_name(p, p->text + from, p->at - from, number);
}

/* ---- characters ---- */

static pesc_status take_hex(reader *p, int digits, uint32_t *c)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        char k = peek(p), low = (char)(k | 0x20);
        if (!(k >= '0' && k <= '9') && !(low >= 'a' && low <= 'f'))
            return malformed(p, "an escape has too few hexadecimal digits");
        v = v * 16 + (uint32_t)(k <= '9' ? k - '0' : low - 'a' + 10);
    }
    if (v > CHAR_LAST || (v >= SURROGATE_FIRST && v <= SURROGATE_LAST))
        return malformed(p, "an escape is no Unicode character");
    *c = v;
    return PESC_OK;
}

static pesc_status take_char(reader *p, uint32_t *c)
{
    if (peek(p) != '\\') {
        p->at += (size_t)utf8_decode(p->text + p->at, p->n - p->at, c);
        return PESC_OK;
    }
    p->at++;
    char k = peek(p);
    p->at++;
    switch (k) {
    case 'x':
        return take_hex(p, 2, c);
    case 'u':
        return take_hex(p, 4, c);
    case 'U':
        return take_hex(p, 8, c);
    case 't':
        *c = '\t';
        return PESC_OK;
    case 'r':
        *c = '\r';
        return PESC_OK;
    case 'n':
        *c = '\n';
        return PESC_OK;
    case '\\':
    case '"':
    case '[':
    case ']':
        *c = (unsigned char)k;
        return PESC_OK;
    default:
        return malformed(p, "found an unknown escape, expected one of \\x \\u \\U \\t \\r \\n \\\\ "
                            "\\\" \\[ \\]");
    }
}

static pesc_status take_text(reader *p, uint32_t *e)
{
    *e = expr_add(&p->pool, EXPR_SEQUENCE, 0);
    p->at++;
    while (p->at < p->n && peek(p) != '"') {
        uint32_t c;
        if (peek(p) == '\n')
            return malformed(p, "a text has no closing quote");
        TRY(take_char(p, &c));
        expr_append(&p->pool, *e, expr_add(&p->pool, EXPR_CHAR, c));
    }
    if (p->at == p->n)
        return malformed(p, "a text has no closing quote");
    p->at++;
    return PESC_OK;
}

static pesc_status take_ranges(reader *p, charset *set)
{
    while (p->at < p->n && peek(p) != ']') {
        uint32_t lo, hi;
        TRY(take_char(p, &lo));
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            TRY(take_char(p, &hi));
        }
        if (hi < lo)
            return malformed(p, "the end of a range comes before its beginning");
        charset_add(set, lo, hi);
    }
    if (p->at == p->n)
        return malformed(p, "a set has no closing bracket");
    p->at++;
    return PESC_OK;
}

static pesc_status take_set(reader *p, uint32_t *e)
{
    charset set = { 0 };
    p->at++;
    bool negated = peek(p) == '^';
    p->at += negated;
    pesc_status st = take_ranges(p, &set);
    if (st != PESC_OK) {
        charset_free(&set);
        return st;
    }
    if (negated)
        charset_negate(&set);
    *e = expr_add_set(&p->pool, &set);
    return PESC_OK;
}

/* ---- expressions ---- */

static pesc_status take_choice(reader *p, bool group, uint32_t *e);

static pesc_status take_group(reader *p, uint32_t *e)
{
    if (++p->depth > EXPR_MAX_DEPTH)
        return fail(PESC_UNSUPPORTED, "the grammar has groups that are nested more than %d deep",
                    EXPR_MAX_DEPTH);
    p->at++;
    TRY(take_choice(p, true, e));
    if (peek(p) != ')')
        return malformed(p, "a group has no closing parenthesis");
    p->at++;
    p->depth--;
    return PESC_OK;
}

/* <[id]> */
static pesc_status take_token(reader *p, uint32_t *e)
{
    uint32_t id = 0;
    size_t digits = 0;
    p->at++;
    bool good = peek(p) == '[';
    for (p->at += good; peek(p) >= '0' && peek(p) <= '9' && digits < 9; p->at++, digits++)
        id = 10 * id + (uint32_t)(peek(p) - '0');
    if (!good || digits == 0 || p->n - p->at < 2 || memcmp(p->text + p->at, "]>", 2) != 0)
        return fail(PESC_UNSUPPORTED,
                    "the grammar, line %zu: a control token is written <[id]>, with its number",
                    line_of(p));
    *e = expr_add(&p->pool, EXPR_TOKEN, id);
    p->at += 2;
    return PESC_OK;
}

static pesc_status take_schema(reader *p, uint32_t *e)
{
    json_error_t where;
    size_t flags = JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    json_t *v = json_loadb(p->text + p->at, p->n - p->at, flags, &where);
    if (!v)
        return malformed(p, "%json has no JSON Schema after it");
    *e = expr_add(&p->pool, EXPR_JSON, (uint32_t)json_array_size(p->schemas));
    p->at += (size_t)where.position;
    p->schemas = p->schemas ? p->schemas : json_array();
    return json_array_append_new(p->schemas, v) == 0 ? PESC_OK : fail_nomem("a grammar", p->n);
}

/* Whether all of the expression is characters. */
static bool is_plain(const reader *p, uint32_t e)
{
    const expr *x = &p->pool.all[e];
    if (x->kind == EXPR_RULE || x->kind == EXPR_TOKEN || x->kind == EXPR_JSON ||
        x->kind == EXPR_NOT)
        return false;
    uint32_t c = x->first;
    while (c && is_plain(p, c))
        c = p->pool.all[c].next;
    return c == 0;
}

static pesc_status take_atom(reader *p, uint32_t *e);

static pesc_status take_not(reader *p, uint32_t *e)
{
    uint32_t child = 0;
    if (++p->depth > EXPR_MAX_DEPTH)
        return malformed(p, "%not is nested too deep");
    TRY(take_atom(p, &child));
    p->depth--;
    *e = expr_add(&p->pool, EXPR_NOT, 0);
    expr_append(&p->pool, *e, child);
    if (p->pool.failed)
        return fail_nomem("a grammar", p->n);
    return is_plain(p, child) ? PESC_OK
                              : malformed(p, "%not takes a text, a set or a group of such");
}

/* %json and %not */
static pesc_status take_own(reader *p, uint32_t *e)
{
    static const struct {
        const char *name;
        pesc_status (*take)(reader *p, uint32_t *e);
    } rows[] = { { "%json", take_schema }, { "%not", take_not } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].name);
        if (p->n - p->at < n || memcmp(p->text + p->at, rows[i].name, n) != 0)
            continue;
        p->at += n;
        skip_blanks(p, false);
        return rows[i].take(p, e);
    }
    return malformed(p, "found %, expected %json or %not");
}

static pesc_status take_atom(reader *p, uint32_t *e)
{
    charset any = { 0 };
    uint32_t rule;
    switch (peek(p)) {
    case '"':
        return take_text(p, e);
    case '[':
        return take_set(p, e);
    case '(':
        return take_group(p, e);
    case '.':
        p->at++;
        charset_negate(&any);
        *e = expr_add_set(&p->pool, &any);
        return PESC_OK;
    case '<':
        return take_token(p, e);
    case '%':
        return take_own(p, e);
    case '!':
        return fail(PESC_UNSUPPORTED, "the grammar, line %zu: ! is not supported", line_of(p));
    case '*':
    case '+':
    case '?':
    case '{':
        return malformed(p, "a repetition has nothing before it");
    default:
        TRY(take_name(p, &rule));
        *e = expr_add(&p->pool, EXPR_RULE, rule);
        return PESC_OK;
    }
}

static pesc_status take_repetitions(reader *p, uint32_t *e)
{
    for (int n = 0;; n++) {
        int32_t min, max;
        size_t taken = repetition_read(p->text + p->at, p->n - p->at, true, &min, &max);
        if (!taken && peek(p) == '{')
            return malformed(p, "expected {m}, {m,} or {m,n}");
        if (!taken)
            return PESC_OK;
        if (n == EXPR_MAX_DEPTH)
            return malformed(p, "too many repetitions follow each other");
        p->at += taken;
        if (min > EXPR_MAX_TIMES || max > EXPR_MAX_TIMES)
            return fail(
                PESC_UNSUPPORTED,
                "the grammar, line %zu: a repetition of more than %d times is not supported",
                line_of(p), EXPR_MAX_TIMES);
        if (max != EXPR_ANY_TIMES && max < min)
            return malformed(p, "the maximum of a repetition is below its minimum");
        *e = expr_add_repeat(&p->pool, *e, min, max);
        skip_blanks(p, p->depth > 0);
    }
}

static bool at_end(const reader *p)
{
    char c = peek(p);
    return p->at == p->n || c == '|' || c == ')' || c == '\n' || c == '\r';
}

static pesc_status take_sequence(reader *p, bool group, uint32_t *e)
{
    *e = expr_add(&p->pool, EXPR_SEQUENCE, 0);
    skip_blanks(p, true);
    while (!at_end(p)) {
        uint32_t part = 0;
        size_t from = p->at;
        while (is_name(peek(p)))
            p->at++;
        skip_blanks(p, false);
        bool next_rule =
            p->at > from && p->n - p->at >= 3 && memcmp(p->text + p->at, "::=", 3) == 0;
        p->at = from;
        if (next_rule)
            return malformed(p, "a rule has no right side");
        TRY(take_atom(p, &part));
        skip_blanks(p, group);
        TRY(take_repetitions(p, &part));
        expr_append(&p->pool, *e, part);
        if (p->pool.failed)
            return fail_nomem("a grammar", p->n);
    }
    return PESC_OK;
}

static pesc_status take_choice(reader *p, bool group, uint32_t *e)
{
    uint32_t part = 0;
    *e = expr_add(&p->pool, EXPR_CHOICE, 0);
    TRY(take_sequence(p, group, &part));
    expr_append(&p->pool, *e, part);
    while (peek(p) == '|') {
        p->at++;
        TRY(take_sequence(p, group, &part));
        expr_append(&p->pool, *e, part);
    }
    return p->pool.failed ? fail_nomem("a grammar", p->n) : PESC_OK;
}

static pesc_status take_rule(reader *p)
{
    uint32_t rule, e = 0;
    TRY(take_name(p, &rule));
    skip_blanks(p, false);
    if (p->n - p->at < 3 || memcmp(p->text + p->at, "::=", 3) != 0)
        return malformed(p, "expected ::= after the name of a rule");
    p->at += 3;
    TRY(take_choice(p, false, &e));
    if (peek(p) == ')')
        return malformed(p, "found ) without a group");
    p->names[rule].root = e; /* of two rules with one name the last one counts, as in llama.cpp */
    skip_blanks(p, true);
    return PESC_OK;
}

/* ---- rules ---- */

static const char *name_of(const void *ud, uint32_t rule)
{
    static _Thread_local char text[80];
    const reader *p = ud;
    if (rule >= p->n_names)
        return "a set of characters";
    size_t n = p->names[rule].n < 60 ? p->names[rule].n : 60;
    memcpy(text, "rule ", 5);
    memcpy(text + 5, p->names[rule].text, n);
    text[5 + n] = '\0';
    return text;
}

static pesc_status read_and_write(reader *p, uint32_t *root)
{
    if (p->n > MAX_BYTES)
        return fail(PESC_UNSUPPORTED, "the grammar has %zu bytes, expected at most %d", p->n,
                    MAX_BYTES);
    if (!utf8_valid(p->text, p->n))
        return fail(PESC_FORMAT, "the grammar is not UTF-8");
    skip_blanks(p, true);
    while (p->at < p->n)
        TRY(take_rule(p));
    for (*root = 0; *root < p->n_names; *root += 1)
        if (p->names[*root].n == 4 && memcmp(p->names[*root].text, "root", 4) == 0)
            break;
    if (*root == p->n_names || !p->names[*root].root)
        return fail(PESC_FORMAT,
                    "the grammar has no rule named root, which is where a text begins");
    for (size_t i = 0; i < p->n_names; i++) {
        if (!p->names[i].root)
            return fail(PESC_FORMAT, "the grammar, line %zu: %s is used but not written",
                        line_at(p, p->names[i].at), name_of(p, (uint32_t)i));
        rules_add(p->r); /* its number is that of the name */
    }
    expr_writer w = { &p->pool, p->schemas, p->ignored, p->r, &p->sets };
    for (size_t i = 0; i < p->n_names && p->r->status == PESC_OK; i++)
        expr_write(&w, p->names[i].root, p->r->rules[i]);
    return rules_finish(p->r, *root, name_of, p);
}

pesc_status gbnf_write(rules *r, const char *text, size_t n, str *ignored, uint32_t *root)
{
    reader p = { .text = text, .n = n, .ignored = ignored, .r = r };
    pesc_status st = read_and_write(&p, root);
    json_decref(p.schemas);
    expr_pool_free(&p.pool);
    spell_rules_free(&p.sets);
    mem_free(p.names);
    return st;
}
