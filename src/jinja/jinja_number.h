/* jinja_number: numbers of Python: literals, int() and float() of text. */
#ifndef PESC_JINJA_JINJA_NUMBER_H
#define PESC_JINJA_JINJA_NUMBER_H

#include "jinja/jinja_value.h"

/* The number literal at p: its bytes and value; 0 bytes: none, or an integer beyond 64 bits. */
size_t jnumber_lex(const char *p, size_t n, bool *real, int64_t *i, double *f);

/* int(text, base) and float(text) of Python; false where these raise. */
bool jnumber_int(const jstr *s, int64_t base, int64_t *out);
bool jnumber_float(const jstr *s, double *out);

#endif
