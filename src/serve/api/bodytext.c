#include "serve/api/api.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of the text, as it is written, in the field of a request or somewhere inside it. */
typedef struct number {
    const char *text;
    size_t n;
    char field[64];
} number;

/* Whether jansson takes it: an integer of 64 bits with a sign, or a real that is finite. */
static bool fits(const number *v)
{
    char copy[400];
    if (v->n >= sizeof copy)
        return true; /* jansson decides, without the name of the field */
    memcpy(copy, v->text, v->n);
    copy[v->n] = '\0';
    const char *digits = copy + (copy[0] == '-');
    long long value;
    if (strpbrk(copy, ".eE"))
        return isfinite(strtod(copy, NULL));
    return digits[strspn(digits, "0123456789")] || str_to_i64(copy, LLONG_MIN, LLONG_MAX, &value);
}

/* A seed of 64 bits without a sign: *seed is its value, and the text has zero instead. */
static bool take_large_seed(const number *v, char *text, int64_t *seed)
{
    uint64_t value = 0;
    if (strcmp(v->field, "seed") != 0)
        return false;
    for (size_t i = 0; i < v->n; i++) {
        uint64_t digit = (uint64_t)(v->text[i] - '0');
        if (digit > 9 || value > (UINT64_MAX - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    memset(text, ' ', v->n);
    text[0] = '0';
    *seed = (int64_t)value;
    return true;
}

/* The end of the string that begins after its quotation mark. */
static size_t string_end(const char *text, size_t n, size_t i)
{
    while (i < n && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    return i < n ? i : n;
}

bool bodytext_check(char *text, size_t n, int64_t *seed, bool *large, api_error *e)
{
    int depth = 0;
    number v = { 0 };
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"') {
            size_t end = string_end(text, n, i + 1), len = end - i - 1;
            if (depth == 1 && text[end + strspn(text + end, "\" \t\r\n")] == ':')
                snprintf(v.field, sizeof v.field, "%.*s", (int)(len < 63 ? len : 63), text + i + 1);
            i = end;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            char *number_at = text + i;
            v.text = number_at;
            v.n = strspn(v.text, "+-.0123456789Ee");
            i += v.n - 1;
            bool unfit = depth > 0 && v.field[0] && !fits(&v);
            if (unfit && depth == 1 && take_large_seed(&v, number_at, seed))
                *large = true;
            else if (unfit)
                return api_refuse(e, 400, NULL, v.field,
                                  "%s: found the number %.*s, which is out of range", v.field,
                                  (int)(v.n < 40 ? v.n : 40), v.text);
        }
        if (depth > API_MAX_DEPTH)
            return api_refuse(e, 400, NULL, NULL, "the JSON text is nested deeper than %d",
                              API_MAX_DEPTH);
    }
    return true;
}
