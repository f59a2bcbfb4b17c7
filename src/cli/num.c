#include "cli/num.h"

#include <math.h>
#include <stdlib.h>

bool num_int(const char *text, size_t n, int64_t min, int64_t max, int64_t *out)
{
    size_t i = n > 0 && text[0] == '-';
    bool negative = i == 1;
    int64_t v = 0;
    if (i == n)
        return false;
    for (; i < n; i++) {
        int digit = text[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, negative ? -digit : digit, &v))
            return false;
    }
    *out = v;
    return v >= min && v <= max;
}

static const char *digits(const char *s, bool *any)
{
    for (; *s >= '0' && *s <= '9'; s++)
        *any = true;
    return s;
}

bool num_real(const char *text, double min, double max, double *out)
{
    bool mantissa = false, exponent = true;
    const char *s = digits(text + (*text == '-'), &mantissa);
    if (*s == '.')
        s = digits(s + 1, &mantissa);
    if (*s == 'e' || *s == 'E') {
        exponent = false;
        s += s[1] == '+' || s[1] == '-' ? 2 : 1;
        s = digits(s, &exponent);
    }
    if (!mantissa || !exponent || *s)
        return false;
    *out = strtod(text, NULL); /* its form is checked; the locale of numbers is always C here */
    return isfinite(*out) && *out >= min && *out <= max;
}
