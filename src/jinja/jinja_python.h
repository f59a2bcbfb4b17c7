/* jinja_python: Python's rules for text: white space, escapes of literals, upper and lower case,
 * numbers. */
#ifndef PESC_JINJA_JINJA_PYTHON_H
#define PESC_JINJA_JINJA_PYTHON_H

#include "jinja/jinja_buf.h"
#include "jinja/pytext.h"

typedef struct jslice {
    size_t at, n; /* bytes */
} jslice;
/* What remains of valid UTF-8 without the characters of `chars` (NULL: white space) at its ends. */
jslice jpython_strip(const char *p, size_t n, int sides, const jstr *chars);

jvalue jpython_stripped(jctx *c, const jstr *s, int sides, const jstr *chars); /* as a value */

/* The body of a string literal with its escapes resolved; `out` has room for n bytes. False where
 * an escape is cut off, names a surrogate or is \N{...}. */
bool jpython_unescape(char *out, size_t *n_out, const char *p, size_t n);

/* Appends s[from..from+n) in another case. */
typedef enum jcase { JCASE_LOWER, JCASE_UPPER, JCASE_TITLE } jcase;
void jpython_case(jbuf *b, const jstr *s, jslice part, jcase to);
jvalue jpython_cased(jctx *c, const jstr *s, jcase to); /* all of it */
jvalue jpython_capitalized(jctx *c, const jstr *s);     /* the first upper, the rest lower */

/* The byte offset of a code point, which may be the length. */
size_t jpython_offset(const jstr *s, size_t chars);
/* A part of a string by bytes; shares its memory. */
jvalue jpython_sub(jctx *c, const jstr *s, size_t at, size_t n);
/* Where `what` first stands in s at or after byte `from`; SIZE_MAX: nowhere. */
size_t jpython_find(const jstr *s, size_t from, const jstr *what);
/* splitlines(): a list. */
jvalue jpython_lines(jctx *c, const jstr *s, bool keep_ends);
/* replace(); count < 0: all. */
jvalue jpython_replace(jctx *c, const jstr *s, const jstr *before, const jstr *after,
                       int64_t count);

/* ---- text as numbers (jinja_number.c) ---- */

/* The number literal at p: its bytes and value; 0 bytes: none, or an integer beyond 64 bits. */
size_t jnumber_lex(const char *p, size_t n, bool *real, int64_t *i, double *f);

/* int(text, base) and float(text) of Python; false where these raise. */
bool jnumber_int(const jstr *s, int64_t base, int64_t *out);
bool jnumber_float(const jstr *s, double *out);

#endif
