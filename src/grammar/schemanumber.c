/* Numbers of JSON Schema, with bounds that hold exactly: digits are compared with those of the
 * bounds one after another, and a remainder is kept for multipleOf.
 *
 * An integer has at most 16 digits (more if a bound has), a fraction at most 16, since models may
 * write digits without end. A number without bounds may have an exponent, one with bounds has
 * none. */
#include "base/mem.h"
#include "grammar/schemaparts.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INT_DIGITS = 16, FRACTION_DIGITS = 16, MAX_DIGITS = 330, EXPONENT_DIGITS = 2 };

/* A decimal number that is not negative. */
typedef struct decimal {
    char integer[MAX_DIGITS]; /* digits without leading zeros; "0" for none */
    int n_integer;
    char fraction[2 * MAX_DIGITS];
    int n_fraction;
} decimal;

static bool is_zero(const decimal *d)
{
    return d->n_integer == 1 && d->integer[0] == '0' && d->n_fraction == 0;
}

/* The absolute value; a real number in the shortest form that reads back the same. */
static void read_decimal(const json_t *v, decimal *d)
{
    char text[800];
    if (json_is_integer(v)) {
        long long n = json_integer_value(v);
        snprintf(text, sizeof text, "%llu",
                 n < 0 ? 0 - (unsigned long long)n : (unsigned long long)n);
    } else {
        double x = fabs(json_real_value(v));
        int digits = 0;
        do
            snprintf(text, sizeof text, "%.*f", digits, x);
        while (strtod(text, NULL) != x && ++digits < 700);
    }
    char *point = strchr(text, '.');
    d->n_integer = (int)(point ? point - text : (long)strlen(text));
    memcpy(d->integer, text, (size_t)d->n_integer);
    d->n_fraction = point ? (int)strlen(point + 1) : 0;
    d->n_fraction = d->n_fraction < 2 * MAX_DIGITS ? d->n_fraction : 2 * MAX_DIGITS;
    memcpy(d->fraction, point ? point + 1 : "", (size_t)d->n_fraction);
    while (d->n_fraction && d->fraction[d->n_fraction - 1] == '0')
        d->n_fraction--;
}

/* Numbers from lo to hi, neither negative; NULL: no such bound. */
typedef struct interval {
    const decimal *lo, *hi;
    bool lo_open, hi_open;
} interval;

typedef struct digits {
    schema_writer *w;
    interval in;
    bool real;
    uint32_t multiple; /* at least 1 */
    uint32_t end;
    int n_integer;       /* digits of the integer part, while it is bounded */
    uint32_t *free_int;  /* [INT_DIGITS + MAX_DIGITS, multiple]: digits that are still to come */
    uint32_t *free_part; /* [FRACTION_DIGITS + 1]: digits of the fraction so far */
    uint32_t *bounded;   /* [MAX_DIGITS + FRACTION_DIGITS + 2, 3, multiple] by digits so far */
} digits;

/* Whether the digits so far are those of a bound; neither: all that follow are free. */
enum { SAME_LO = 1, SAME_HI = 2 };

static uint32_t node_at(digits *d, uint32_t *at, bool *fresh)
{
    *fresh = *at == 0;
    if (*fresh)
        *at = 1 + rules_node(d->w->r);
    return *at - 1;
}

static void digit(digits *d, uint32_t from, uint32_t to, int lo, int hi)
{
    rules_bytes(d->w->r, from, to, (unsigned char)('0' + lo), (unsigned char)('0' + hi));
}

/* n digits of the fraction were read, nothing bounds the others. */
static uint32_t free_fraction(digits *d, int n)
{
    bool fresh;
    uint32_t node = node_at(d, &d->free_part[n], &fresh);
    if (!fresh)
        return node;
    if (n > 0)
        rules_empty(d->w->r, node, d->end);
    if (n < FRACTION_DIGITS)
        digit(d, node, free_fraction(d, n + 1), 0, 9);
    return node;
}

/* n digits of the integer part are to come, and nothing bounds them. */
static uint32_t free_integer(digits *d, int n, uint32_t rest)
{
    bool fresh;
    rules *r = d->w->r;
    uint32_t node = node_at(d, &d->free_int[(size_t)n * d->multiple + rest], &fresh);
    if (!fresh || r->status != PESC_OK)
        return node;
    if (n == 0) {
        if (rest == 0)
            rules_empty(r, node, d->end);
        if (d->real)
            rules_bytes(r, node, free_fraction(d, 0), '.', '.');
    } else if (d->multiple == 1) {
        digit(d, node, free_integer(d, n - 1, 0), 0, 9);
    } else {
        for (uint32_t k = 0; k < 10; k++)
            digit(d, node, free_integer(d, n - 1, (10 * rest + k) % d->multiple), (int)k, (int)k);
    }
    return node;
}

/* The digit of a bound at a place; places after n_integer are of the fraction. */
static int bound_digit(const decimal *b, int n_integer, int place)
{
    if (place < n_integer)
        return b->integer[place] - '0';
    place -= n_integer;
    return place < b->n_fraction ? b->fraction[place] - '0' : 0;
}

static bool all_zero_from(const decimal *b, int n_integer, int place)
{
    for (int i = place; i < n_integer + b->n_fraction; i++)
        if (bound_digit(b, n_integer, i) != 0)
            return false;
    return true;
}

static bool may_end(const digits *d, int place, int same)
{
    const interval *in = &d->in;
    bool lo = !(same & SAME_LO) || (all_zero_from(in->lo, d->n_integer, place) && !in->lo_open);
    bool hi = !(same & SAME_HI) || !all_zero_from(in->hi, d->n_integer, place) || !in->hi_open;
    return lo && hi;
}

static uint32_t bounded(digits *d, int place, int same, uint32_t rest);

/* The node after `place` digits, whatever bounds the rest. */
static uint32_t after(digits *d, int place, int same, uint32_t rest)
{
    if (same)
        return bounded(d, place, same, rest);
    return place <= d->n_integer ? free_integer(d, d->n_integer - place, rest)
                                 : free_fraction(d, place - d->n_integer);
}

/* Edges of the digit at `place`, each with what it leaves bounded. */
static void next_digits(digits *d, uint32_t from, int place, int same, uint32_t rest)
{
    const interval *in = &d->in;
    int lo = same & SAME_LO ? bound_digit(in->lo, d->n_integer, place) : 0;
    int hi = same & SAME_HI ? bound_digit(in->hi, d->n_integer, place) : 9;
    int least = place == 0 && d->n_integer > 1 ? 1 : 0;
    for (int k = lo > least ? lo : least; k <= hi && d->w->r->status == PESC_OK; k++) {
        int then =
            (same & SAME_LO && k == lo ? SAME_LO : 0) | (same & SAME_HI && k == hi ? SAME_HI : 0);
        uint32_t left = place < d->n_integer ? (10 * rest + (uint32_t)k) % d->multiple : rest;
        digit(d, from, after(d, place + 1, then, left), k, k);
    }
}

static uint32_t bounded(digits *d, int place, int same, uint32_t rest)
{
    bool fresh;
    rules *r = d->w->r;
    size_t at = ((size_t)place * 3 + (size_t)(same - 1)) * d->multiple + rest;
    uint32_t node = node_at(d, &d->bounded[at], &fresh);
    if (!fresh || r->status != PESC_OK)
        return node;
    if (place < d->n_integer) {
        next_digits(d, node, place, same, rest);
        return node;
    }
    bool whole = place == d->n_integer;
    if (rest == 0 && may_end(d, place, same))
        rules_empty(r, node, d->end);
    if (!d->real || place == d->n_integer + FRACTION_DIGITS)
        return node;
    uint32_t from = node;
    if (whole) {
        from = rules_node(r);
        rules_bytes(r, node, from, '.', '.');
    }
    next_digits(d, from, place, same, rest);
    return node;
}

/* Numbers with n digits before the point. */
static void write_length(digits *d, uint32_t from, int n)
{
    const interval *in = &d->in;
    int same = (in->lo && in->lo->n_integer == n ? SAME_LO : 0) |
               (in->hi && in->hi->n_integer == n ? SAME_HI : 0);
    if ((in->lo && n < in->lo->n_integer) || (in->hi && n > in->hi->n_integer))
        return;
    d->n_integer = n;
    memset(d->bounded, 0, (size_t)(n + FRACTION_DIGITS + 2) * 3 * d->multiple * sizeof *d->bounded);
    next_digits(d, from, 0, same, 0);
}

/* Numbers of an interval, without a sign. */
static void write_interval(schema_writer *w, const limits *l, const interval *in, rule_span at)
{
    uint32_t m = l->multiple ? (uint32_t)l->multiple : 1;
    digits d = {
        .w = w,
        .in = *in,
        .real = (l->types & TYPE_REAL) && !l->multiple,
        .multiple = m,
        .end = at.end,
        .free_int = mem_zalloc((INT_DIGITS + MAX_DIGITS + 1) * (size_t)m, sizeof(uint32_t)),
        .free_part = mem_zalloc(FRACTION_DIGITS + 1, sizeof(uint32_t)),
        .bounded = mem_zalloc((MAX_DIGITS + FRACTION_DIGITS + 3) * (size_t)3 * m, sizeof(uint32_t))
    };
    int most = in->hi                                      ? in->hi->n_integer
               : in->lo && in->lo->n_integer >= INT_DIGITS ? in->lo->n_integer + 1
                                                           : INT_DIGITS;
    if (!d.free_int || !d.free_part || !d.bounded)
        rules_fail(w->r, fail_nomem("a schema", m));
    for (int n = 1; n <= most && n < MAX_DIGITS && w->r->status == PESC_OK; n++)
        write_length(&d, at.start, n);
    mem_free(d.free_int);
    mem_free(d.free_part);
    mem_free(d.bounded);
}

void schema_write_number(schema_writer *w, const limits *l, rule_span at)
{
    rules *r = w->r;
    if (!l->lo && !l->hi && !l->multiple) {
        rules_call(r, at.start, at.end, l->types & TYPE_REAL ? w->number : w->integer);
        return;
    }
    decimal *lo = mem_zalloc(2, sizeof *lo);
    if (!lo) {
        rules_fail(r, fail_nomem("a schema", sizeof *lo));
        return;
    }
    decimal *hi = lo + 1;
    double low = l->lo ? schema_number(l->lo) : -INFINITY;
    double high = l->hi ? schema_number(l->hi) : INFINITY;
    if (l->lo)
        read_decimal(l->lo, lo);
    if (l->hi)
        read_decimal(l->hi, hi);
    if (high >= 0) {
        interval in = { low > 0 || (l->lo && is_zero(lo)) ? lo : NULL, l->hi ? hi : NULL,
                        l->lo_open, l->hi_open };
        write_interval(w, l, &in, at);
    }
    if (low <= 0) {
        uint32_t minus = rules_node(r);
        interval in = { high < 0 || (l->hi && is_zero(hi)) ? hi : NULL, l->lo ? lo : NULL,
                        l->hi_open, l->lo_open };
        rules_bytes(r, at.start, minus, '-', '-');
        write_interval(w, l, &in, (rule_span){ minus, at.end });
    }
    mem_free(lo);
}

/* min to max digits. */
static void write_digits(rules *r, rule_span at, int min, int max)
{
    uint32_t from = at.start;
    for (int i = 0; i < max; i++) {
        uint32_t to = i + 1 < max ? rules_node(r) : at.end;
        if (i >= min)
            rules_empty(r, from, at.end);
        rules_bytes(r, from, to, '0', '9');
        from = to;
    }
}

void schema_write_any_number(rules *r, rule_span at, bool integer)
{
    uint32_t sign = rules_node(r), first = rules_node(r), whole = rules_node(r);
    uint32_t point = rules_node(r), fraction = rules_node(r), e = rules_node(r),
             e_sign = rules_node(r);
    rules_empty(r, at.start, sign);
    rules_bytes(r, at.start, sign, '-', '-');
    rules_bytes(r, sign, whole, '0', '0');
    rules_bytes(r, sign, first, '1', '9');
    write_digits(r, (rule_span){ first, whole }, 0, INT_DIGITS - 1);
    if (integer) {
        rules_empty(r, whole, at.end);
        return;
    }
    rules_empty(r, whole, fraction);
    rules_bytes(r, whole, point, '.', '.');
    write_digits(r, (rule_span){ point, fraction }, 1, FRACTION_DIGITS);
    rules_empty(r, fraction, at.end);
    rules_bytes(r, fraction, e, 'e', 'e');
    rules_bytes(r, fraction, e, 'E', 'E');
    rules_empty(r, e, e_sign);
    rules_bytes(r, e, e_sign, '+', '+');
    rules_bytes(r, e, e_sign, '-', '-');
    write_digits(r, (rule_span){ e_sign, at.end }, 1, EXPONENT_DIGITS);
}
