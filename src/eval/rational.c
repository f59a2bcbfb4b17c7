#include "eval/rational.h"

#include <stdint.h>
#include <string.h>

enum { DIGITS_MAX = 15 };

typedef struct rational {
    int64_t above, below; /* below > 0 */
} rational;

static bool take_text(slice *s, const char *text)
{
    size_t n = strlen(text);
    if (s->n < n || memcmp(s->p, text, n) != 0)
        return false;
    *s = (slice){ s->p + n, s->n - n };
    return true;
}

/* Digits at the front of s, as a number; false when there are none or too many. */
static bool take_digits(slice *s, int64_t *number, size_t *n_digits)
{
    size_t n = 0;
    for (; n < s->n && s->p[n] >= '0' && s->p[n] <= '9'; n++) {
        if (*n_digits + n >= DIGITS_MAX)
            return false;
        *number = *number * 10 + (s->p[n] - '0');
    }
    *s = (slice){ s->p + n, s->n - n };
    *n_digits += n;
    return n > 0;
}

static bool take_whole(slice *s, int64_t *out)
{
    size_t digits = 0;
    bool minus = take_text(s, "-");
    *out = 0;
    if (!take_digits(s, out, &digits))
        return false;
    *out = minus ? -*out : *out;
    return true;
}

static bool take_fraction(slice *s, rational *out)
{
    bool frac = take_text(s, "\\frac{") || take_text(s, "\\dfrac{") || take_text(s, "\\tfrac{");
    return frac && take_whole(s, &out->above) && take_text(s, "}{") && take_whole(s, &out->below) &&
           take_text(s, "}");
}

/* 12, 1.5, .5 or 3/4. */
static bool take_number(slice *s, rational *out)
{
    size_t digits = 0, whole;
    *out = (rational){ 0, 1 };
    bool any = take_digits(s, &out->above, &digits);
    whole = digits;
    if (any && take_text(s, "/"))
        return take_whole(s, &out->below);
    if (!take_text(s, "."))
        return any;
    if (!take_digits(s, &out->above, &digits))
        return false;
    for (size_t i = whole; i < digits; i++)
        out->below *= 10;
    return true;
}

static bool parse(slice s, rational *out)
{
    bool minus = take_text(&s, "-");
    slice start = s;
    if (!take_fraction(&s, out)) {
        s = start;
        if (!take_number(&s, out))
            return false;
    }
    if (s.n > 0 || out->below == 0)
        return false;
    if (minus != (out->below < 0))
        out->above = -out->above;
    out->below = out->below < 0 ? -out->below : out->below;
    return true;
}

bool rational_compare(slice a, slice b, bool *equal)
{
    rational x, y;
    if (!parse(a, &x) || !parse(b, &y))
        return false;
    *equal = (__int128)x.above * y.below == (__int128)y.above * x.below;
    return true;
}
