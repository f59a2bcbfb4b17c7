#include "format/jscan.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

pesc_status jscan_fail(const jscan *j, size_t at, const char *fmt, ...)
{
    char reason[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    return fail(PESC_FORMAT, "%s: byte %zu: %s", j->file, j->base + at, reason);
}

char jscan_peek(jscan *j)
{
    while (j->at < j->n) {
        char c = j->text[j->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c;
        j->at++;
    }
    return '\0';
}

static pesc_status unexpected(jscan *j, const char *expected)
{
    char c = jscan_peek(j);
    if (j->at == j->n)
        return jscan_fail(j, j->at, "the text ends, expected %s", expected);
    return jscan_fail(j, j->at, "found '%c', expected %s", c, expected);
}

pesc_status jscan_expect(jscan *j, char c)
{
    if (jscan_peek(j) != c) {
        char expected[] = { '\'', c, '\'', '\0' };
        return unexpected(j, expected);
    }
    j->at++;
    return PESC_OK;
}

/* Four hexadecimal digits after "\u". */
static bool hex4(jscan *j, uint32_t *out)
{
    uint32_t v = 0;
    if (j->n - j->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = j->text[j->at + (size_t)i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (uint32_t)((c | 32) - 'a') + 10;
        else
            return false;
        v = v << 4 | digit;
    }
    j->at += 4;
    *out = v;
    return true;
}

/* One escape, the cursor after its backslash; its UTF-8 bytes. */
static pesc_status escape(jscan *j, char out[4], int *n)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    size_t start = j->at - 1;
    char c = j->at < j->n ? j->text[j->at++] : '\0';
    const char *simple = c ? strchr(letters, c) : NULL;
    if (simple) {
        out[0] = values[simple - letters];
        *n = 1;
        return PESC_OK;
    }
    uint32_t cp, low;
    if (c != 'u' || !hex4(j, &cp))
        return jscan_fail(j, start, "is not an escape that JSON has");
    if (cp >= 0xD800 && cp < 0xE000) {
        bool pair =
            cp < 0xDC00 && j->n - j->at >= 6 && j->text[j->at] == '\\' && j->text[j->at + 1] == 'u';
        j->at += pair ? 2 : 0;
        if (!pair || !hex4(j, &low) || low < 0xDC00 || low > 0xDFFF)
            return jscan_fail(j, start, "is half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    }
    *n = utf8_encode(cp, out);
    return PESC_OK;
}

/* A string; with `out` NULL it is checked and forgotten. */
static pesc_status string(jscan *j, str *out)
{
    TRY(jscan_expect(j, '"'));
    size_t start = j->at;
    if (out)
        str_clear(out);
    for (;;) {
        size_t run = j->at;
        while (j->at < j->n && j->text[j->at] != '"' && j->text[j->at] != '\\' &&
               (unsigned char)j->text[j->at] >= 0x20)
            j->at++;
        if (!utf8_valid(j->text + run, j->at - run))
            return jscan_fail(j, run, "the string here is not valid UTF-8");
        if (out && j->at - start > JSCAN_MAX_STRING)
            return jscan_fail(j, start, "the string has more than %d bytes", JSCAN_MAX_STRING);
        if (out)
            str_add(out, j->text + run, j->at - run);
        if (j->at == j->n)
            return jscan_fail(j, j->at, "the text ends inside a string");
        char c = j->text[j->at++];
        if (c == '"')
            break;
        if (c != '\\')
            return jscan_fail(j, j->at - 1, "found the control character 0x%02X in a string",
                              (unsigned)c);
        char bytes[4];
        int n = 0;
        TRY(escape(j, bytes, &n));
        if (out && n == 1 && bytes[0] == '\0')
            return jscan_fail(j, j->at - 6, "found U+0000 in a name");
        if (out)
            str_add(out, bytes, (size_t)n);
    }
    return !out || str_ok(out) ? PESC_OK : fail_nomem(j->file, JSCAN_MAX_STRING);
}

pesc_status jscan_string(jscan *j, str *out)
{
    return string(j, out);
}

static bool digit_here(const jscan *j)
{
    return j->at < j->n && j->text[j->at] >= '0' && j->text[j->at] <= '9';
}

pesc_status jscan_u64(jscan *j, uint64_t *out)
{
    jscan_peek(j);
    size_t start = j->at;
    uint64_t v = 0;
    while (digit_here(j)) {
        uint64_t digit = (uint64_t)(j->text[j->at++] - '0');
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v))
            return jscan_fail(j, start, "the number does not fit 64 bits");
    }
    char next = j->at < j->n ? j->text[j->at] : '\0';
    if (j->at == start)
        return unexpected(j, "a whole number");
    if (next == '.' || next == 'e' || next == 'E')
        return jscan_fail(j, start,
                          "the number has a fraction or exponent, expected a whole number");
    if (j->text[start] == '0' && j->at - start > 1)
        return jscan_fail(j, start, "the number has a leading zero");
    *out = v;
    return PESC_OK;
}

static bool digits(jscan *j)
{
    size_t start = j->at;
    while (digit_here(j))
        j->at++;
    return j->at > start;
}

static bool take_char(jscan *j, char a, char b)
{
    bool there = j->at < j->n && (j->text[j->at] == a || j->text[j->at] == b);
    j->at += there;
    return there;
}

/* The number grammar of RFC 8259. */
static pesc_status skip_number(jscan *j)
{
    size_t start = j->at;
    take_char(j, '-', '-');
    bool zero = j->at < j->n && j->text[j->at] == '0',
         fine = zero ? take_char(j, '0', '0') : digits(j);
    if (fine && take_char(j, '.', '.'))
        fine = digits(j);
    if (fine && take_char(j, 'e', 'E')) {
        take_char(j, '+', '-');
        fine = digits(j);
    }
    if (!fine || digit_here(j))
        return jscan_fail(j, start, "is not a number that JSON has");
    return PESC_OK;
}

static pesc_status skip_scalar(jscan *j)
{
    static const char *const words[] = { "true", "false", "null" };
    char c = jscan_peek(j);
    if (c == '"')
        return string(j, NULL);
    if (c == '-' || digit_here(j))
        return skip_number(j);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if (j->n - j->at >= n && memcmp(j->text + j->at, words[i], n) == 0) {
            j->at += n;
            return PESC_OK;
        }
    }
    return unexpected(j, "a JSON value");
}

pesc_status jscan_skip(jscan *j)
{
    uint64_t objects = 0; /* bit d: level d is an object */
    int depth = 0;
    do {
        char c = jscan_peek(j);
        bool opened = c == '{' || c == '[';
        if (opened) {
            if (depth == JSCAN_MAX_DEPTH)
                return jscan_fail(j, j->at, "is nested more than %d levels deep", JSCAN_MAX_DEPTH);
            j->at++;
            objects = objects << 1 | (c == '{');
            depth++;
        } else {
            TRY(skip_scalar(j));
        }
        while (depth > 0) {
            if (jscan_peek(j) != (objects & 1 ? '}' : ']')) {
                if (!opened)
                    TRY(jscan_expect(j, ','));
                if (objects & 1) {
                    TRY(string(j, NULL));
                    TRY(jscan_expect(j, ':'));
                }
                break;
            }
            j->at++;
            objects >>= 1;
            depth--;
            opened = false;
        }
    } while (depth > 0);
    return PESC_OK;
}

/* What separates two values of an object or array. */
static pesc_status separator(jscan *j, char close, size_t *count, bool *more)
{
    *more = jscan_peek(j) != close;
    if (!*more)
        j->at++;
    else if ((*count)++ > 0)
        TRY(jscan_expect(j, ','));
    return PESC_OK;
}

pesc_status jscan_member(jscan *j, size_t *count, bool *more, str *key)
{
    TRY(separator(j, '}', count, more));
    if (!*more)
        return PESC_OK;
    TRY(string(j, key));
    return jscan_expect(j, ':');
}

pesc_status jscan_element(jscan *j, size_t *count, bool *more)
{
    return separator(j, ']', count, more);
}
