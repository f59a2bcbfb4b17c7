/* regex: a pattern of tokenizer.json, compiled once with PCRE2 and its JIT.
 *
 * Matching is bounded: steps in proportion to the text, heap and machine stack by a constant, so no
 * text overflows anything and a pattern made to explode ends in an error. The compiled pattern is
 * read-only; what a match writes is in a regex_scratch, one a thread. */
#ifndef PESC_TEXT_REGEX_H
#define PESC_TEXT_REGEX_H

#include "base/status.h"

typedef struct regex regex;
typedef struct regex_scratch regex_scratch;

/* Oniguruma's spelling (see onig.h). `where` names the pattern in messages and is copied. */
pesc_status regex_open(regex **out, const char *pattern, size_t n, const char *where);
void regex_close(regex *r); /* NULL is allowed */

pesc_status regex_scratch_open(regex_scratch **out);
void regex_scratch_close(regex_scratch *s); /* NULL is allowed */

/* Walks the matches of valid UTF-8, left to right, as Oniguruma's callers do: an empty match right
 * behind the last match does not count. */
typedef struct regex_walk {
    const regex *r;
    regex_scratch *scratch;
    const char *text;
    size_t n, from;
    size_t start, end; /* the match */
    bool any;          /* there was a match before: `end` holds where it ended */
    bool begun, newer; /* the text was looked at for characters newer than PCRE2; has some */
} regex_walk;
pesc_status regex_next(regex_walk *w, bool *found);

#endif
