#include "grammar/spelling.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

#include <string.h>

/* ---- UTF-8 ----
 *
 * A range of characters whose first and last one have the same number of bytes is cut so that in
 * each part every byte but the last ones is fixed and the last ones take all values. */

static void utf8_sequence(rules *r, rule_span at, const char *lo, const char *hi, int n)
{
    uint32_t from = at.start;
    for (int i = 0; i < n; i++) {
        uint32_t to = i + 1 < n ? rules_node(r) : at.end;
        rules_bytes(r, from, to, (unsigned char)lo[i], (unsigned char)hi[i]);
        from = to;
    }
}

static void utf8_range(rules *r, rule_span at, uint32_t lo, uint32_t hi)
{
    static const uint32_t last_of_length[] = { 0x7f, 0x7ff, 0xffff };
    for (int i = 0; i < 3; i++)
        if (lo <= last_of_length[i] && hi > last_of_length[i]) {
            utf8_range(r, at, lo, last_of_length[i]);
            utf8_range(r, at, last_of_length[i] + 1, hi);
            return;
        }
    for (int bits = 6; bits < 24 && hi > 0x7f; bits += 6) {
        uint32_t below = (1u << bits) - 1;
        if ((lo & ~below) == (hi & ~below))
            break;
        if (lo & below) {
            utf8_range(r, at, lo, lo | below);
            utf8_range(r, at, (lo | below) + 1, hi);
            return;
        }
        if ((hi & below) != below) {
            utf8_range(r, at, lo, (hi & ~below) - 1);
            utf8_range(r, at, hi & ~below, hi);
            return;
        }
    }
    char first[4], last[4];
    int n = utf8_encode(lo, first);
    utf8_encode(hi, last);
    utf8_sequence(r, at, first, last, n);
}

/* ---- JSON's escapes ---- */

static const struct {
    uint32_t c;
    char letter;
} short_escapes[] = { { '"', '"' }, { '\\', '\\' }, { '/', '/' }, { 8, 'b' },
                      { 12, 'f' },  { 10, 'n' },    { 13, 'r' },  { 9, 't' } };

static void hex_digit(rules *r, rule_span at, uint32_t lo, uint32_t hi)
{
    if (lo <= 9)
        rules_bytes(r, at.start, at.end, (unsigned char)('0' + lo),
                    (unsigned char)('0' + (hi < 9 ? hi : 9)));
    if (hi < 10)
        return;
    lo = lo > 10 ? lo - 10 : 0;
    rules_bytes(r, at.start, at.end, (unsigned char)('a' + lo), (unsigned char)('a' + hi - 10));
    rules_bytes(r, at.start, at.end, (unsigned char)('A' + lo), (unsigned char)('A' + hi - 10));
}

/* The numbers lo to hi with n hexadecimal digits. */
static void hex_range(rules *r, rule_span at, uint32_t lo, uint32_t hi, int n)
{
    if (n == 1) {
        hex_digit(r, at, lo, hi);
        return;
    }
    uint32_t unit = 1u << (4 * (n - 1)), first = lo / unit, last = hi / unit;
    bool cut_first = lo % unit != 0, cut_last = hi % unit != unit - 1;
    if (first == last || (!cut_first && !cut_last)) {
        uint32_t rest = rules_node(r);
        hex_digit(r, (rule_span){ at.start, rest }, first, last);
        hex_range(r, (rule_span){ rest, at.end }, first == last ? lo % unit : 0,
                  first == last ? hi % unit : unit - 1, n - 1);
        return;
    }
    if (cut_first) {
        hex_range(r, at, lo, first * unit + unit - 1, n);
        hex_range(r, at, (first + 1) * unit, hi, n);
    } else {
        hex_range(r, at, lo, last * unit - 1, n);
        hex_range(r, at, last * unit, hi, n);
    }
}

/* Characters above U+FFFF as two halves; `at` begins after the first \u. */
static void pair_range(rules *r, rule_span at, uint32_t lo, uint32_t hi)
{
    enum { LOW_BITS = 10, LOW_LAST = 0x3ff, HIGH = 0xD800, LOW = 0xDC00 };
    uint32_t first = lo >> LOW_BITS, last = hi >> LOW_BITS;
    if (first != last && (lo & LOW_LAST) != 0) {
        pair_range(r, at, lo, (first << LOW_BITS) | LOW_LAST);
        pair_range(r, at, (first + 1) << LOW_BITS, hi);
    } else if (first != last && (hi & LOW_LAST) != LOW_LAST) {
        pair_range(r, at, lo, (last << LOW_BITS) - 1);
        pair_range(r, at, last << LOW_BITS, hi);
    } else {
        uint32_t a = rules_node(r), b = rules_node(r);
        hex_range(r, (rule_span){ at.start, a }, HIGH + first, HIGH + last, 4);
        rules_text(r, a, b, "\\u", 2);
        hex_range(r, (rule_span){ b, at.end }, LOW + (lo & LOW_LAST), LOW + (hi & LOW_LAST), 4);
    }
}

static void json_escapes(rules *r, rule_span at, const charset *set)
{
    enum { PLANE = 0x10000 };
    uint32_t slash = rules_node(r), u = rules_node(r);
    rules_bytes(r, at.start, slash, '\\', '\\');
    rules_bytes(r, slash, u, 'u', 'u');
    for (size_t i = 0; i < sizeof short_escapes / sizeof *short_escapes; i++)
        if (charset_has(set, short_escapes[i].c))
            rules_bytes(r, slash, at.end, (unsigned char)short_escapes[i].letter,
                        (unsigned char)short_escapes[i].letter);
    for (size_t i = 0; i < set->n; i++) {
        char_range k = set->r[i];
        if (k.lo < PLANE)
            hex_range(r, (rule_span){ u, at.end }, k.lo, k.hi < PLANE ? k.hi : PLANE - 1, 4);
        if (k.hi >= PLANE)
            pair_range(r, (rule_span){ u, at.end }, k.lo < PLANE ? 0 : k.lo - PLANE, k.hi - PLANE);
    }
}

/* The range without " and \ and control characters. */
static void json_plain(rules *r, rule_span at, char_range k)
{
    static const char_range plain[] = { { ' ', '!' }, { '#', '[' }, { ']', CHAR_LAST } };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        uint32_t lo = k.lo > plain[i].lo ? k.lo : plain[i].lo;
        uint32_t hi = k.hi < plain[i].hi ? k.hi : plain[i].hi;
        if (lo <= hi)
            utf8_range(r, at, lo, hi);
    }
}

/* ---- rules for sets ---- */

static void spell_ranges(rules *r, rule_span at, const charset *set, spelling how)
{
    for (size_t i = 0; i < set->n; i++)
        if (how == SPELL_JSON)
            json_plain(r, at, set->r[i]);
        else
            utf8_range(r, at, set->r[i].lo, set->r[i].hi);
    if (how == SPELL_JSON && set->n)
        json_escapes(r, at, set);
}

/* The rule of the set; a new one is written. */
static uint32_t set_rule(rules *r, spell_rules *s, const charset *set, spelling how)
{
    intern *t = &s->sets;
    size_t n = 2 * set->n + 1;
    uint32_t *key = mem_alloc(n, sizeof *key);
    if (key) {
        key[0] = (uint32_t)how;
        memcpy(key + 1, set->r, set->n * sizeof *set->r);
    }
    uint32_t number = key ? intern_add(t, key, n) : INTERN_NONE;
    mem_free(key);
    if (number == INTERN_NONE || !mem_room((void **)&s->rule, &s->cap, s->n, sizeof *s->rule)) {
        rules_fail(r, fail_nomem("a grammar", n * sizeof *key));
        return 0;
    }
    if (number < s->n)
        return s->rule[number];
    uint32_t rule = s->rule[s->n++] = rules_add(r);
    if (r->status == PESC_OK)
        spell_ranges(r, r->rules[rule], set, how);
    return rule;
}

void spell_set(rules *r, spell_rules *s, rule_span at, const charset *set, spelling how)
{
    if (r->status != PESC_OK || set->n == 0)
        return;
    if (set->failed)
        rules_fail(r, fail_nomem("a grammar", set->n * sizeof *set->r));
    else if (how == SPELL_UTF8 && set->r[set->n - 1].hi < 0x80)
        spell_ranges(r, at, set, how);
    else
        rules_call(r, at.start, at.end, set_rule(r, s, set, how));
}

void spell_rules_free(spell_rules *s)
{
    intern_free(&s->sets);
    mem_free(s->rule);
    *s = (spell_rules){ 0 };
}

void spell_json_string(rules *r, rule_span at, const char *text, size_t n)
{
    str out = { 0 };
    str_putc(&out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        char letter = 0;
        for (size_t k = 0; k < sizeof short_escapes / sizeof *short_escapes; k++)
            if (c == short_escapes[k].c && c != '/')
                letter = short_escapes[k].letter;
        if (letter)
            str_printf(&out, "\\%c", letter);
        else if (c < 0x20)
            str_printf(&out, "\\u%04x", c);
        else
            str_add(&out, text + i, 1);
    }
    str_putc(&out, '"');
    if (str_ok(&out))
        rules_text(r, at.start, at.end, out.p, out.n);
    else
        rules_fail(r, fail_nomem("a grammar", out.n));
    str_free(&out);
}
