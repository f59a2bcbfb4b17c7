/* str: a growing byte string. Zero-initialise to start; str_free() to end.
 *
 * Appending fails when memory runs out or `max` would be exceeded; the failure is remembered
 * (`failed`) and later appends do nothing, so a builder checks once at the end with str_ok(). */
#ifndef PESC_BASE_STR_H
#define PESC_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct str {
    char *p; /* NUL-terminated once anything was appended, else NULL */
    size_t n, cap;
    size_t max;        /* bytes it may hold; 0: any number */
    bool failed, full; /* full: because of `max` */
} str;

void str_add(str *s, const char *bytes, size_t n);
/* U+FFFD for each maximal part that is not UTF-8, as in Python. */
void str_add_valid(str *s, const char *bytes, size_t n);
void str_puts(str *s, const char *text);
void str_putc(str *s, char c);
void str_printf(str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_clear(str *s); /* keeps the memory and `max` */
void str_free(str *s);
static inline bool str_ok(const str *s)
{
    return !s->failed;
}

/* 64 bits as 16 hexadecimal digits. */
void str_hex(char out[17], uint64_t bits);
/* The value of a hexadecimal digit of either case; -1: it is none. */
int str_hex_digit(char c);

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Parses a whole decimal string; no sign unless min < 0, no space, no suffix. False otherwise. */
bool str_to_i64(const char *s, long long min, long long max, long long *out);
bool str_to_f64(const char *s, double *out); /* finite decimal or exponent form, nothing else */

#endif
