#include "eval/intent.h"

#include "base/args.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- the answer in a text ---- */

typedef struct slice {
    const char *p;
    size_t n;
} slice;

static const char *const spaces[] = { /* all of Python's str.isspace() */
                                      "\t",     "\n",     "\v",     "\f",     "\r",       "\x1C",
                                      "\x1D",   "\x1E",   "\x1F",   " ",      "\xC2\x85", "\u00A0",
                                      "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",   "\u2004",
                                      "\u2005", "\u2006", "\u2007", "\u2008", "\u2009",   "\u200A",
                                      "\u2028", "\u2029", "\u202F", "\u205F", "\u3000",   NULL
};
static const char *const stops[] = { ".", "\u3002", NULL };

/* Bytes at the beginning (or end) of the slice that are one of the set's characters. */
static size_t match(slice s, const char *const *set, bool at_end)
{
    for (; *set; set++) {
        size_t n = strlen(*set);
        if (n <= s.n && memcmp(at_end ? s.p + s.n - n : s.p, *set, n) == 0)
            return n;
    }
    return 0;
}

static slice strip(slice s, const char *const *set)
{
    for (size_t n; (n = match(s, set, false)); s.n -= n)
        s.p += n;
    for (size_t n; (n = match(s, set, true));)
        s.n -= n;
    return s;
}

/* Where `what` stands in the slice, or its end. */
static size_t find(slice s, const char *what)
{
    const char *at = memmem(s.p, s.n, what, strlen(what));
    return at ? (size_t)(at - s.p) : s.n;
}

const char *intent_answer(const char *text, size_t *n)
{
    static const char fence[] = "```json";
    slice s = strip(strip((slice){ text, *n }, spaces), stops);
    size_t at = find(s, fence);
    if (at < s.n) {
        s = (slice){ s.p + at + sizeof fence - 1, s.n - at - (sizeof fence - 1) };
        size_t end = find(s, "```");
        s = end < s.n ? (slice){ s.p, end } : (slice){ "{}", 2 };
    }
    while (s.n > 0 && *s.p == '\n')
        s = (slice){ s.p + 1, s.n - 1 };
    s.n = find(s, "\n");
    s = strip(s, stops);
    *n = s.n;
    return s.p;
}

/* ---- values as Python writes them ---- */

static bool is_printable(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

static void repr_character(str *out, const char *p, size_t n, int32_t c, char quote)
{
    if (c == '\\' || c == quote)
        str_printf(out, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        str_puts(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    else if (is_printable(c))
        str_add(out, p, n);
    else
        str_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void repr_text(str *out, const char *p, size_t n)
{
    bool single = memchr(p, '\'', n), twofold = memchr(p, '"', n);
    char quote = single && !twofold ? '"' : '\'';
    str_putc(out, quote);
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)p + at, (utf8proc_ssize_t)(n - at), &c);
        if (len <= 0) /* JSON is UTF-8: never */
            break;
        repr_character(out, p + at, (size_t)len, c, quote);
        at += (size_t)len;
    }
    str_putc(out, quote);
}

/* The fewest digits that give back the number; with an exponent below 1e-4 and from 1e16 on. */
static void repr_real(str *out, double x)
{
    char digits[32];
    double back = 0;
    int n = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", n, x);
    while (n++ < 17 && (!str_to_f64(digits, &back) || back != x));
    n -= 1; /* decimals after the first digit */
    char *e = strchr(digits, 'e');
    long long exponent = 0;
    str_to_i64(e[1] == '+' ? e + 2 : e + 1, -400, 400, &exponent);
    if (exponent >= -4 && exponent < 16) {
        int decimals = n - (int)exponent;
        str_printf(out, "%.*f", decimals > 0 ? decimals : 1, x);
    } else {
        str_puts(out, digits);
    }
}

/* As deep as the parser lets a text nest. */
void intent_repr(str *out, const json_t *v)
{
    const char *key, *comma = "";
    json_t *value;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_STRING:
        repr_text(out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        str_printf(out, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        repr_real(out, json_real_value(v));
        break;
    case JSON_ARRAY:
        str_putc(out, '[');
        json_array_foreach((json_t *)(uintptr_t)v, i, value)
        {
            str_puts(out, i ? ", " : "");
            intent_repr(out, value);
        }
        str_putc(out, ']');
        break;
    case JSON_OBJECT:
        str_putc(out, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, value)
        {
            str_puts(out, comma);
            repr_text(out, key, strlen(key));
            str_puts(out, ": ");
            intent_repr(out, value);
            comma = ", ";
        }
        str_putc(out, '}');
        break;
    default:
        str_puts(out, json_is_true(v) ? "True" : json_is_false(v) ? "False" : "None");
    }
}

void intent_str(str *out, const json_t *v)
{
    if (json_is_string(v))
        str_add(out, json_string_value(v), json_string_length(v));
    else
        intent_repr(out, v);
}

/* ---- slots ---- */

static void remove_spaces(str *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->p[i] != ' ')
            s->p[n++] = s->p[i];
    s->n = n;
}

/* UTF-8 sorts as its code points do. */
static int by_code_point(const void *a, const void *b)
{
    const str *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int d = n ? memcmp(x->p, y->p, n) : 0;
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* The text of a sorted tuple of texts. */
static void list_text(str *out, const json_t *list, bool predicted)
{
    size_t n = json_array_size(list);
    str *items = mem_zalloc(n ? n : 1, sizeof *items);
    out->failed = out->failed || !items;
    for (size_t i = 0; items && i < n; i++) {
        intent_str(&items[i], json_array_get(list, i));
        if (predicted)
            remove_spaces(&items[i]);
        out->failed = out->failed || items[i].failed;
    }
    if (!out->failed) {
        qsort(items, n, sizeof *items, by_code_point);
        str_putc(out, '(');
        for (size_t i = 0; i < n; i++) {
            str_puts(out, i ? ", " : "");
            repr_text(out, items[i].p ? items[i].p : "", items[i].n);
        }
        str_puts(out, n == 1 ? ",)" : ")");
    }
    for (size_t i = 0; items && i < n; i++)
        str_free(&items[i]);
    mem_free(items);
}

/* What a slot is compared by; false: it cannot be equal to another. */
static bool slot_text(str *out, const json_t *v, bool predicted)
{
    if (json_is_array(v)) {
        list_text(out, v, predicted);
        return true;
    }
    if (!json_is_string(v))
        return false;
    intent_str(out, v);
    if (predicted)
        remove_spaces(out);
    return true;
}

static pesc_status same_slot(const json_t *predicted, const json_t *expected, bool *same)
{
    str a = { 0 }, b = { 0 };
    *same = slot_text(&a, predicted, true) && slot_text(&b, expected, false) && a.n == b.n &&
            (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
    bool ok = str_ok(&a) && str_ok(&b);
    str_free(&a);
    str_free(&b);
    return ok ? PESC_OK : fail_nomem("the slots of an answer", 0);
}

static pesc_status same_slots(const json_t *predicted, const json_t *expected, bool *same)
{
    const char *key;
    json_t *value;
    *same = (!predicted || json_is_object(predicted)) &&
            json_object_size(predicted) == json_object_size(expected);
    json_object_foreach((json_t *)(uintptr_t)expected, key, value)
    {
        const json_t *other = json_object_get(predicted, key);
        *same = *same && other;
        if (*same)
            TRY(same_slot(other, value, same));
    }
    return PESC_OK;
}

/* ---- the score ---- */

/* An absent intent is the empty one. */
static bool same_intent(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "intent"), *y = json_object_get(b, "intent");
    if (x && y)
        return json_equal(x, y);
    const json_t *there = x ? x : y;
    return !there || (json_is_string(there) && json_string_length(there) == 0);
}

static pesc_status read_expected(json_t **out, const char *text, size_t n)
{
    TRY(json_parse_loose(out, text, n, "the expected answer"));
    const json_t *slots = json_object_get(*out, "slots");
    const char *key;
    json_t *value;
    if (!json_is_object(*out) || (slots && !json_is_object(slots)))
        return fail(PESC_FORMAT,
                    "the expected answer: expected an object with intent and an object slots");
    json_object_foreach(
        (json_t *)(uintptr_t)slots, key,
        value) if (json_is_object(value)) return fail(PESC_FORMAT,
                                                      "the expected answer: slots.%s: found an "
                                                      "object, expected text or a list",
                                                      key);
    return PESC_OK;
}

pesc_status pesc_eval_intent(const char *prediction, size_t n, const char *expected,
                             size_t n_expected, bool *match_out)
{
    status_clear();
    NEED(prediction);
    NEED(expected);
    NEED(match_out);
    *match_out = false;
    json_t *want = NULL, *have = NULL;
    bool slots = false;
    const char *answer = intent_answer(prediction, &n);
    pesc_status st = read_expected(&want, expected, n_expected);
    if (st == PESC_OK) {
        st = json_parse_loose(&have, answer, n, "a prediction");
        st = st == PESC_FORMAT ? PESC_OK
                               : st; /* an answer that is not JSON is wrong, not a failure */
    }
    if (st == PESC_OK && json_is_object(have))
        st = same_slots(json_object_get(have, "slots"), json_object_get(want, "slots"), &slots);
    if (st == PESC_OK) {
        *match_out = slots && same_intent(have, want);
        status_clear();
    }
    json_decref(have);
    json_decref(want);
    return st;
}
