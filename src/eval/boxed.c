#include "eval/boxed.h"

#include <string.h>

/* The end of the braces that open after the start, just after the last one; 0 when they do not
 * close. */
static size_t balanced_end(slice s)
{
    long open = 0;
    for (size_t i = 0; i < s.n; i++) {
        open += s.p[i] == '{';
        if (s.p[i] == '}' && --open == 0)
            return i + 1;
    }
    return 0;
}

pesc_status boxed_answer(slice solution, slice *out)
{
    static const char spaced[] = "\\boxed ", braced[] = "\\boxed{";
    const size_t n = sizeof spaced - 1;
    size_t at = pytext_find_last(solution, spaced);
    if (at < solution.n) {
        *out = (slice){ solution.p + at + n, solution.n - at - n };
        out->n = pytext_find(*out, "$");
        return PESC_OK;
    }
    at = pytext_find_last(solution, "\\boxed");
    slice rest = { solution.p + at, solution.n - at };
    size_t end = balanced_end(rest);
    if (rest.n < n || memcmp(rest.p, braced, n) != 0 || end == 0)
        return fail(PESC_FORMAT, "the solution has no answer in \\boxed{...}");
    *out = (slice){ rest.p + n, end - 1 - n };
    return PESC_OK;
}

slice boxed_dollars(slice text)
{
    const char *first = memchr(text.p, '$', text.n), *last = memrchr(text.p, '$', text.n);
    return first == last ? text : (slice){ first + 1, (size_t)(last - first) - 1 };
}
