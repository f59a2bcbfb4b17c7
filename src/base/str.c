#include "base/str.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(str *s, size_t more)
{
    size_t need;
    if (s->failed || !ckd_add_size(&need, s->n, more) || !ckd_add_size(&need, need, 1)) {
        s->failed = true;
        return false;
    }
    if (s->max && need - 1 > s->max) {
        s->failed = s->full = true;
        return false;
    }
    if (need <= s->cap)
        return true;
    size_t cap = s->cap < SIZE_MAX / 2 ? s->cap * 2 : need;
    if (cap < need)
        cap = need;
    if (cap < 64)
        cap = 64;
    char *p = mem_grow(s->p, cap, 1);
    if (!p) {
        s->failed = true;
        return false;
    }
    s->p = p;
    s->cap = cap;
    return true;
}

void str_add(str *s, const char *bytes, size_t n)
{
    if (!reserve(s, n))
        return;
    if (n)
        memcpy(s->p + s->n, bytes, n);
    s->n += n;
    s->p[s->n] = '\0';
}

void str_add_valid(str *s, const char *bytes, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        int good = utf8_decode(bytes + i, n - i, NULL);
        if (good == 0) {
            str_add(s, bytes + from, i - from);
            str_puts(s, "\xEF\xBF\xBD");
            from = i + utf8_bad_length(bytes + i, n - i);
        }
        i = good ? i + (size_t)good : from;
    }
    str_add(s, bytes + from, n - from);
}

void str_puts(str *s, const char *text)
{
    str_add(s, text, strlen(text));
}

void str_putc(str *s, char c)
{
    str_add(s, &c, 1);
}

void str_printf(str *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(s, (size_t)n)) {
        s->failed = true;
    } else {
        vsnprintf(s->p + s->n, (size_t)n + 1, fmt, again);
        s->n += (size_t)n;
    }
    va_end(again);
}

void str_clear(str *s)
{
    s->n = 0;
    s->failed = s->full = false;
    if (s->p)
        s->p[0] = '\0';
}

void str_free(str *s)
{
    mem_free(s->p);
    *s = (str){ 0 };
}

void str_hex(char out[17], uint64_t bits)
{
    snprintf(out, 17, "%016llx", (unsigned long long)bits);
}

int str_hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool str_to_i64(const char *s, long long min, long long max, long long *out)
{
    bool negative = min < 0 && *s == '-';
    long long v = 0;
    s += negative;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10LL, &v) ||
            __builtin_sub_overflow(v, (long long)(*s - '0'), &v))
            return false;
    }
    if (!negative && __builtin_sub_overflow(0LL, v, &v))
        return false;
    if (v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool str_to_f64(const char *s, double *out)
{
    const char *p = s;
    p += *p == '-' || *p == '+';
    if (!isdigit((unsigned char)*p) && !(*p == '.' && isdigit((unsigned char)p[1])))
        return false;
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
        return false;
    char *end;
    double v = strtod(s, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}
