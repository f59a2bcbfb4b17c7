/* pytext: text as Python's str, repr and json treat it.
 *
 * Prompts, targets and their hashes are defined by what a Python program writes, so its notions of
 * white space, case, printing and JSON are needed to the byte. Texts are valid UTF-8; functions
 * append to `out`. */
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
bool pytext_is_cased(uint32_t cp);
/* Whether a cased character comes before the `len` bytes at `at` and none follows: a capital sigma
 * there has another lower case. */
bool pytext_ends_word(slice s, size_t at, size_t len);
void pytext_lower(str *out, slice s);
size_t pytext_length(slice s); /* code points */
void pytext_replace(str *out, slice s, const char *before, const char *after);

/* Where `what` first stands in s; s.n when it does not. And its last place. */
size_t pytext_find(slice s, const char *what);
size_t pytext_find_last(slice s, const char *what);

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
