/* rational: exact comparison of answers that are written as rational numbers. */
#ifndef PESC_EVAL_RATIONAL_H
#define PESC_EVAL_RATIONAL_H

#include "jinja/pytext.h"

/* Compares two answers in minerva_math's normal form. Read are whole numbers, decimal numbers, a/b
 * and \frac{a}{b} (dfrac, tfrac) of whole numbers, each with a sign, of at most 15 digits; anything
 * else leaves *equal as it is and returns false: an algebra system would have to decide. */
bool rational_compare(slice a, slice b, bool *equal);

#endif
