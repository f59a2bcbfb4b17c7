/* charset: a set of characters (Unicode scalar values), as ranges. */
#ifndef PESC_GRAMMAR_CHARSET_H
#define PESC_GRAMMAR_CHARSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHAR_LAST = 0x10FFFF, SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

typedef struct char_range {
    uint32_t lo, hi;
} char_range;

/* Zero-initialise to start. Ranges are sorted and apart from each other after charset_normalise()
 * and charset_negate(). `failed`: memory ran out, and the set is not to be used. */
typedef struct charset {
    char_range *r;
    size_t n, cap;
    bool failed;
} charset;

void charset_add(charset *s, uint32_t lo, uint32_t hi);
void charset_add_set(charset *s, const charset *more);
void charset_normalise(charset *s); /* also takes surrogates out */
void charset_negate(charset *s);
bool charset_has(const charset *s, uint32_t c); /* of a normalised set */
void charset_free(charset *s);

#endif
