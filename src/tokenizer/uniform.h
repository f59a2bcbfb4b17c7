/* uniform: the Unicode normal forms, linear in the text.
 *
 * utf8proc decomposes and composes single characters; the order of combining marks is made here,
 * with a counting sort, because sorting them one by one takes quadratic time on a long run. */
#ifndef PESC_TOKENIZER_UNIFORM_H
#define PESC_TOKENIZER_UNIFORM_H

#include "base/str.h"

#include <stdint.h>

typedef enum uniform_form { UNIFORM_NFD, UNIFORM_NFC, UNIFORM_NFKD, UNIFORM_NFKC } uniform_form;

/* A growing buffer of code points; zero-initialise to start. */
typedef struct uniform_scratch {
    int32_t *cp;
    size_t n, cap;
} uniform_scratch;

/* Appends the form of valid UTF-8; false when out of memory. */
bool uniform_apply(uniform_form form, const char *text, size_t n, uniform_scratch *s, str *out);

#endif
