/* minerva: how minerva_math (version 3.1) reads an answer and writes it in a normal form.
 *
 * The rules are those of the reference to the byte, also the odd ones. */
#ifndef PESC_EVAL_MINERVA_H
#define PESC_EVAL_MINERVA_H

#include "jinja/pytext.h"

/* What stands between "Final Answer: The final answer is" and ". I hope it is correct.", a sentence
 * that is first appended to the text; "[invalidanswer]" where there is no such place. */
void minerva_extract(str *out, slice text);

void minerva_normalize(str *out, slice answer);

/* Compares two answers in minerva_math's normal form. Read are whole numbers, decimal numbers, a/b
 * and \frac{a}{b} (dfrac, tfrac) of whole numbers, each with a sign, of at most 15 digits; anything
 * else leaves *equal as it is and returns false: an algebra system would have to decide. */
bool rational_compare(slice a, slice b, bool *equal);

#endif
