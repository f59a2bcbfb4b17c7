/* unicode: the few classes of characters the pipeline needs itself (patterns use PCRE2's). */
#ifndef PESC_BASE_UNICODE_H
#define PESC_BASE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool unicode_is_space(uint32_t cp); /* White_Space */
bool unicode_is_mark(uint32_t cp);  /* M: combining marks */
bool unicode_is_word(uint32_t cp);  /* letters, marks, decimal digits, connectors, joiners */

/* The character that ends just before s[n] of valid UTF-8, n > 0; its length into *len. */
uint32_t unicode_last(const char *s, size_t n, size_t *len);

#endif
