/* pyregex: the regular expressions of task files, with the meaning that Python's re gives them.
 *
 * PCRE2 with Unicode classes; "." does not match a newline, "$" matches at the end and before a
 * last newline. All searches take their steps off an allowance and fail with a sentence when it is
 * spent. The compiled pattern is read-only and may be shared by threads. */
#ifndef PESC_EVAL_PYREGEX_H
#define PESC_EVAL_PYREGEX_H

#include "eval/allowance.h"
#include "jinja/pytext.h"

typedef struct pyregex pyregex;

/* `where` names the pattern in messages. `work` must outlive the pattern. */
pesc_status pyregex_open(pyregex **out, const char *pattern, const char *where, allowance *work);
void pyregex_close(pyregex *r); /* NULL is allowed */

enum { PYREGEX_GROUPS = 8 };
typedef struct pyregex_match {
    size_t start, end;
    slice groups[PYREGEX_GROUPS]; /* [0] the whole match; p NULL: not part of the match */
    size_t n_groups;              /* that the pattern has, and one for the whole */
} pyregex_match;

/* Walks the matches in a text, as re.finditer does: an empty match may follow a match at its end.
 */
typedef struct pyregex_walk {
    const pyregex *r;
    slice text;
    size_t from; /* 0 to start */
} pyregex_walk;
pesc_status pyregex_next(pyregex_walk *w, pyregex_match *m, bool *found);

/* re.sub: every match replaced; "\1" to "\7" in `replacement` are groups, "\\" is a backslash. */
pesc_status pyregex_sub(const pyregex *r, slice text, const char *replacement, str *out);

#endif
