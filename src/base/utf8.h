/* utf8: strict UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF). */
#ifndef PESC_BASE_UTF8_H
#define PESC_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length 1..4 of the valid character at s (n > 0 bytes left) and its code point, or 0 when the
 * bytes there are not a complete valid character. `cp` may be NULL. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes 1..4 bytes for a code point (which must be a scalar value) and returns how many. */
int utf8_encode(uint32_t cp, char out[4]);

bool utf8_valid(const char *s, size_t n);

/* How many bytes at the end of s[0..n) begin a character that more bytes could complete: 0..3.
 * A streaming decoder holds these back. */
size_t utf8_partial_tail(const char *s, size_t n);

/* Length 1..3 of the maximal invalid subpart at s (where utf8_decode gave 0): what one U+FFFD
 * stands for, as Python's errors="replace" and the Unicode standard count it. */
size_t utf8_bad_length(const char *s, size_t n);

/* Copies into out (NUL-terminated, at most cap bytes), showing control characters (newlines too),
 * bidi marks, other invisible characters and invalid bytes as \xNN or \u{...}; cuts with "..." when
 * too long. */
void utf8_visible(char *out, size_t cap, const char *s, size_t n);

#endif
