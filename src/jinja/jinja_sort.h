/* jinja_sort: a stable order of values. */
#ifndef PESC_JINJA_JINJA_SORT_H
#define PESC_JINJA_JINJA_SORT_H

#include "jinja/jinja_value.h"

/* The indices of keys in ascending or descending order; equal keys keep their order, as with
 * Python's sort(reverse=...). NULL after a failure: keys that cannot be compared. */
size_t *jsort_order(jctx *c, const jvalue *keys, size_t n, bool descending);

#endif
