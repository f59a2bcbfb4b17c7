/* regex: a pattern of tokenizer.json, compiled once with PCRE2 and its JIT.
 *
 * The work on a text is bounded, whatever the pattern: heap and machine stack by a constant, time
 * by the text's length. PCRE2's own limit counts steps for one start of one match, and one step may
 * scan the whole rest of the text. So a match is first sought with few steps in a short window of
 * the text, where all of that together is little. Only where this does not decide, at a start from
 * which the window's end is reached or the steps run out, a second program counts every item tried
 * and every character passed over, and takes them off the caller's budget.
 *
 * The compiled pattern is read-only; what a match writes is in a regex_scratch, one a thread. */
#ifndef PESC_TOKENIZER_REGEX_H
#define PESC_TOKENIZER_REGEX_H

#include "tokenizer/budget.h"

typedef struct regex regex;
typedef struct regex_scratch regex_scratch;

/* Oniguruma's spelling (see onig.h). `where` names the pattern in messages and is copied. */
pesc_status regex_open(regex **out, const char *pattern, size_t n, const char *where);
void regex_close(regex *r); /* NULL is allowed */

pesc_status regex_scratch_open(regex_scratch **out);
void regex_scratch_close(regex_scratch *s); /* NULL is allowed */

/* Walks the matches of valid UTF-8, left to right, as Oniguruma's callers do: an empty match right
 * after another match does not count. */
typedef struct regex_walk {
    const regex *r;
    regex_scratch *scratch;
    budget *work;
    const char *text;
    size_t n, from;
    size_t start, end; /* the match */
    bool any;          /* there was a match before: `end` holds where it ended */
    bool begun, newer; /* the text was searched for characters newer than PCRE2; has some */
    size_t counted;    /* up to here starts are tried by the counting program alone */
} regex_walk;
pesc_status regex_next(regex_walk *w, bool *found);

#endif
