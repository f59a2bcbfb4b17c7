/* hendrycks: the normal form that the authors of the MATH data set give an answer, which
 * hendrycks_math compares. */
#ifndef PESC_EVAL_HENDRYCKS_H
#define PESC_EVAL_HENDRYCKS_H

#include "jinja/pytext.h"

/* Appends the normal form. False: the reference raises an exception for this text. */
bool hendrycks_normalize(str *out, slice answer);

/* Whether two answers are equal: by their normal forms, or as they are where one has none. Out of
 * memory is reported in *ok. */
bool hendrycks_equal(slice a, slice b, bool *ok);

#endif
