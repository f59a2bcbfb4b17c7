/* mathtext: how the two benchmarks of mathematics read an answer and write it in a normal form. The
 * rules are those of the references to the byte, also the odd ones. */
#ifndef PESC_EVAL_MATHTEXT_H
#define PESC_EVAL_MATHTEXT_H

#include "base/status.h"
#include "jinja/pytext.h"

/* ---- minerva_math, version 3.1 (minerva.c) ---- */

/* What stands between "Final Answer: The final answer is" and ". I hope it is correct.", a sentence
 * that is first appended to the text; "[invalidanswer]" where there is no such place. */
void minerva_extract(str *out, slice text);

void minerva_normalize(str *out, slice answer);

/* Compares two answers in minerva_math's normal form. Read are whole numbers, decimal numbers, a/b
 * and \frac{a}{b} (dfrac, tfrac) of whole numbers, each with a sign, of at most 15 digits; anything
 * else leaves *equal as it is and returns false: an algebra system would have to decide. */
bool rational_compare(slice a, slice b, bool *equal);

/* ---- hendrycks_math (hendrycks.c), with the normal form of the MATH data set's authors ---- */

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
