/* hendrycks: the answer in a solution of the MATH data set, which stands in \boxed{...}, and the
 * normal form that the authors of the data set give it, which hendrycks_math compares. */
#ifndef PESC_EVAL_HENDRYCKS_H
#define PESC_EVAL_HENDRYCKS_H

#include "base/status.h"
#include "jinja/pytext.h"

/* The content of the last \boxed{...} with balanced braces, or of the form "\boxed x", which ends
 * at the next dollar sign: a slice of the solution. PESC_FORMAT where there is neither. */
pesc_status boxed_answer(slice solution, slice *out);

/* The text between the first and the last dollar sign; all of it when there are fewer than two. */
slice boxed_dollars(slice text);

/* Appends the normal form. False: the reference raises an exception for this text. */
bool hendrycks_normalize(str *out, slice answer);

/* Whether two answers are equal: by their normal forms, or as they are where one has none. Out of
 * memory is reported in *ok. */
bool hendrycks_equal(slice a, slice b, bool *ok);

#endif
