/* pytext: text as Python's str, repr and json treat it.
 *
 * Templates, prompts, targets and their hashes are defined by what a Python program writes, so its
 * notions of white space, case, printing and JSON are needed to the byte. The interpreter of
 * templates (jinja_python.h, jinja_print.h) adds the origin of each byte to the rules that are
 * here. Texts are valid UTF-8; functions append to `out`. */
#ifndef PESC_JINJA_PYTEXT_H
#define PESC_JINJA_PYTEXT_H

#include "base/json.h"
#include "base/str.h"

#include <stdint.h>

/* A piece of a text that belongs to someone else. */
typedef struct slice {
    const char *p;
    size_t n;
} slice;
static inline slice slice_of(const str *s)
{
    return (slice){ s->p ? s->p : "", s->n };
}

bool pytext_is_space(uint32_t cp); /* str.isspace() */
slice pytext_strip(slice s);       /* str.strip() */
/* The same at some sides; chars: which characters are taken off, NULL: white space. */
enum { PYTEXT_LEFT = 1, PYTEXT_RIGHT = 2, PYTEXT_BOTH = 3 };
slice pytext_strip_chars(slice s, int sides, const slice *chars);
/* 'u': upper case, 'l': lower case, 't': title case, 0: none, by Unicode's properties. */
int pytext_case(uint32_t cp);
bool pytext_is_alnum(uint32_t cp); /* str.isalnum() */
bool pytext_is_digit(uint32_t cp); /* str.isdigit() of a character that is no decimal digit */
/* Whether a cased character comes before the `len` bytes at `at` and none follows: a capital sigma
 * there has another lower case. */
bool pytext_ends_word(slice s, size_t at, size_t len);
void pytext_lower(str *out, slice s);
size_t pytext_length(slice s); /* code points */
void pytext_replace(str *out, slice s, const char *before, const char *after);

/* Where `what` first stands in s; s.n when it does not. And its last place. */
size_t pytext_find(slice s, const char *what);
size_t pytext_find_last(slice s, const char *what);

/* What repr() and json.dumps() write for a character; 0 bytes: itself. quote: see below; ascii:
 * ensure_ascii. */
enum { PYTEXT_ESCAPE_MAX = 16 };
size_t pytext_escape(char out[PYTEXT_ESCAPE_MAX], uint32_t cp, char quote);
size_t pytext_json_escape(char out[PYTEXT_ESCAPE_MAX], uint32_t cp, bool ascii);
char pytext_quote(slice s); /* what repr() writes around a text */

/* repr() of a float: the shortest digits that read back as the same number. */
enum { PYTEXT_FLOAT_MAX = 64 };
void pytext_float(char out[PYTEXT_FLOAT_MAX], double f);

/* A value as Python's str() and repr() write it. */
void pytext_str(str *out, const json_t *v);
void pytext_repr(str *out, const json_t *v);
void pytext_repr_text(str *out, slice s);

/* json.dumps(v, indent=2, ensure_ascii=False) */
void pytext_json(str *out, const json_t *v);

/* A text that is a Python list or tuple display of literals, as str() prints that list again: "[1,
 * 2.50]" becomes "[1, 2.5]". False, with nothing appended, when it is anything else. */
bool pytext_literal(str *out, slice s);

#endif
