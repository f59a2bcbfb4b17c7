
#include "jinja/jinja_python.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static unsigned digit(char ch)
{
    return ch >= '0' && ch <= '9'   ? (unsigned)(ch - '0')
           : ch >= 'a' && ch <= 'z' ? (unsigned)(ch - 'a' + 10)
           : ch >= 'A' && ch <= 'Z' ? (unsigned)(ch - 'A' + 10)
                                    : 99;
}

/* The digits at p, single underscores between two allowed; stops at the first that is none.
 * *value is -1 when it does not fit. */
static size_t take_digits(const char *p, size_t n, unsigned base, int64_t *value)
{
    size_t i = 0;
    *value = 0;
    while (i < n) {
        size_t at = i > 0 && p[i] == '_' ? i + 1 : i;
        unsigned d = at < n ? digit(p[at]) : 99;
        if (d >= base)
            break;
        if (*value >= 0 && (__builtin_mul_overflow(*value, (int64_t)base, value) ||
                            __builtin_add_overflow(*value, (int64_t)d, value)))
            *value = -1;
        i = at + 1;
    }
    return i;
}

static unsigned prefix_base(const char *p, size_t n)
{
    char x = n > 2 && p[0] == '0' ? (char)(p[1] | 0x20) : '\0';
    return x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
}

/* Reads decimal text of at most 400 bytes, without its underscores. */
static bool read_float(const char *p, size_t n, double *out)
{
    char text[401];
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (p[i] != '_') {
            if (k == sizeof text - 1)
                return false;
            text[k++] = p[i];
        }
    text[k] = '\0';
    char *end;
    *out = strtod(text, &end);
    return k > 0 && *end == '\0';
}

size_t jnumber_lex(const char *p, size_t n, bool *real, int64_t *i, double *f)
{
    unsigned base = prefix_base(p, n);
    int64_t ignored;
    *real = false;
    if (base) {
        size_t k = take_digits(p + 2, n - 2, base, i);
        return k > 0 && *i >= 0 ? 2 + k : 0;
    }
    size_t whole = take_digits(p, n, 10, i), end = whole;
    if (end + 1 < n && p[end] == '.' && digit(p[end + 1]) < 10) {
        end += 1 + take_digits(p + end + 1, n - end - 1, 10, &ignored);
        *real = true;
    }
    if (end < n && (p[end] | 0x20) == 'e') {
        size_t k = end + 1 + (end + 1 < n && (p[end + 1] == '+' || p[end + 1] == '-'));
        size_t exponent = k < n ? take_digits(p + k, n - k, 10, &ignored) : 0;
        if (exponent) {
            end = k + exponent;
            *real = true;
        }
    }
    if (*real)
        return read_float(p, end, f) ? end : 0;
    return *i >= 0 && !(whole > 1 && p[0] == '0' && *i != 0) ? whole : 0;
}

/* White space and a sign are taken off the front. */
static const char *skip_sign(const jstr *s, size_t *n, bool *negative)
{
    jslice part = jpython_strip(s->p, s->n, PYTEXT_BOTH, NULL);
    const char *p = s->p + part.at;
    *n = part.n;
    *negative = *n > 0 && *p == '-';
    if (*n > 0 && (*p == '-' || *p == '+')) {
        p++;
        --*n;
    }
    return p;
}

bool jnumber_int(const jstr *s, int64_t base, int64_t *out)
{
    size_t n;
    bool negative;
    const char *p = skip_sign(s, &n, &negative);
    unsigned prefix = prefix_base(p, n);
    if (base < 0 || base > 36 || base == 1)
        return false;
    if (prefix && (base == 0 || base == prefix)) {
        p += 2;
        n -= 2;
        base = prefix;
    }
    base = base ? base : 10;
    if (take_digits(p, n, (unsigned)base, out) != n || n == 0 || *out < 0)
        return false;
    *out = negative ? -*out : *out;
    return true;
}

static bool is_decimal(const char *p, size_t n)
{
    bool fine = true;
    for (size_t i = 0; fine && i < n; i++)
        fine = p[i] && strchr("0123456789._eE+-", p[i]);
    return fine;
}

bool jnumber_float(const jstr *s, double *out)
{
    size_t n;
    bool negative;
    const char *p = skip_sign(s, &n, &negative);
    if ((n == 3 && strncasecmp(p, "inf", 3) == 0) || (n == 8 && strncasecmp(p, "infinity", 8) == 0))
        *out = INFINITY;
    else if (n == 3 && strncasecmp(p, "nan", 3) == 0)
        *out = NAN;
    else if (n == 0 || !is_decimal(p, n) || p[0] == '_' || p[n - 1] == '_' ||
             !read_float(p, n, out))
        return false;
    *out = negative ? -*out : *out;
    return true;
}
