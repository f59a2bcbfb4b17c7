#include "cli/opt/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const size_t max_text = (size_t)4 << 30; /* limit for devices that never end */

static bool is_stdin(const char *path)
{
    return !path || strcmp(path, "-") == 0;
}

const char *input_name(const char *path)
{
    return is_stdin(path) ? "standard input" : path;
}

/* The size of the file plus a byte to detect its end; pipes start small. */
static size_t first_guess(FILE *f)
{
    struct stat st;
    bool known = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
    return known && (uint64_t)st.st_size < max_text ? (size_t)st.st_size + 2 : 1 << 16;
}

static pesc_status read_all(FILE *f, const char *name, char **text, size_t *n)
{
    size_t cap = first_guess(f);
    *text = malloc(cap);
    *n = 0;
    while (*text) {
        *n += fread(*text + *n, 1, cap - 1 - *n, f);
        if (ferror(f))
            return out_fail(PESC_IO, "%s: cannot be read: %s", name, strerror(errno));
        if (feof(f)) {
            (*text)[*n] = '\0';
            return PESC_OK;
        }
        if (cap >= max_text)
            return out_fail(PESC_FORMAT, "%s: found more than 4 GiB, expected a text", name);
        cap *= 2;
        char *more = realloc(*text, cap);
        if (!more)
            break;
        *text = more;
    }
    return out_nomem(name);
}

pesc_status input_read(const char *path, char **text, size_t *n)
{
    *text = NULL;
    *n = 0;
    FILE *f = is_stdin(path) ? stdin : fopen(path, "rb");
    if (!f)
        return out_fail(PESC_IO, "%s: cannot be read: %s", path, strerror(errno));
    pesc_status st = read_all(f, input_name(path), text, n);
    if (f != stdin)
        fclose(f);
    if (st != PESC_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

pesc_status input_lines(const char *text, size_t n, input_line_fn each, void *ud)
{
    size_t number = 0;
    for (size_t at = 0, length; at < n; at += length + 1) {
        const char *newline = memchr(text + at, '\n', n - at);
        length = newline ? (size_t)(newline - text) - at : n - at;
        TRY(each(ud, text + at, length, ++number));
    }
    return PESC_OK;
}

bool input_int(const char *text, size_t n, int64_t min, int64_t max, int64_t *out)
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
