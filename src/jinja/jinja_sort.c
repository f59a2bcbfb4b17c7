#include "jinja/jinja_sort.h"

#include <string.h>

/* Merges [from, middle) and [middle, to) of `in` into `out`. */
static void merge(jctx *c, const jvalue *keys, const size_t *in, size_t *out, const size_t at[3],
                  int sign)
{
    size_t left = at[0], right = at[1];
    for (size_t i = at[0]; i < at[2]; i++) {
        bool take_right = left == at[1];
        if (!take_right && right < at[2] && !jctx_failed(c))
            take_right = jvalue_compare(c, keys[in[right]], keys[in[left]]) * sign < 0;
        out[i] = in[take_right ? right++ : left++];
    }
}

size_t *jsort_order(jctx *c, const jvalue *keys, size_t n, bool descending)
{
    size_t *in = jctx_alloc(c, n, sizeof *in), *out = jctx_alloc(c, n, sizeof *out);
    if (!in || !out)
        return NULL;
    for (size_t i = 0; i < n; i++)
        in[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n;
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            merge(c, keys, in, out, (size_t[3]){ from, middle, to }, descending ? -1 : 1);
        }
        size_t *other = in;
        in = out;
        out = other;
    }
    return jctx_failed(c) ? NULL : in;
}
