/* boxed: the answer in a solution of the MATH data set, which stands in \boxed{...}. */
#ifndef PESC_EVAL_BOXED_H
#define PESC_EVAL_BOXED_H

#include "base/status.h"
#include "jinja/pytext.h"

/* The content of the last \boxed{...} with balanced braces, or of the form "\boxed x", which ends
 * at the next dollar sign: a slice of the solution. PESC_FORMAT where there is neither. */
pesc_status boxed_answer(slice solution, slice *out);

/* The text between the first and the last dollar sign; all of it when there are fewer than two. */
slice boxed_dollars(slice text);

#endif
