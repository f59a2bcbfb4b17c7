/* normalform: the Unicode normal forms, linear in the text.
 *
 * utf8proc decomposes and composes single characters; the order of combining marks is made here,
 * with a counting sort, because sorting them one by one takes quadratic time on a long run. */
#ifndef PESC_TOKENIZER_NORMALFORM_H
#define PESC_TOKENIZER_NORMALFORM_H

#include "base/str.h"

#include <stdint.h>

typedef enum normal_form {
    NORMALFORM_NFD,
    NORMALFORM_NFC,
    NORMALFORM_NFKD,
    NORMALFORM_NFKC
} normal_form;

/* A growing buffer of code points; zero-initialise to start. */
typedef struct normalform_scratch {
    int32_t *cp;
    size_t n, cap;
} normalform_scratch;

/* Appends the form of valid UTF-8; false when out of memory. */
bool normalform_apply(normal_form form, const char *text, size_t n, normalform_scratch *s,
                      str *out);

#endif
