#include "cli/opt/digits.h"

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
