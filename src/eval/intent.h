/* intent: the scorer of ESFT's intent benchmark, exactly as its reference code scores.
 *
 * An answer is JSON: {"intent": ..., "slots": {...}}. Of what a model wrote, the first line that is
 * not empty counts (inside a ```json fence where there is one), without white space and full stops
 * around it. It is right when the intent is the same and so are the slots: all of them and no
 * other. Spaces inside the model's slots do not count, those of the expected answer do; the order
 * of a slot that is a list does not.
 *
 * The reference compares texts that Python makes of values: a list is the text of its sorted tuple,
 * whose items are converted by str(). What makes the reference fail is scored 0 here. */
#ifndef PESC_EVAL_INTENT_H
#define PESC_EVAL_INTENT_H

#include <stddef.h>

/* The part of a model's text that is the answer; *n 0: nothing. A slice of the text, or "{}". */
const char *intent_answer(const char *text, size_t *n);

#endif
