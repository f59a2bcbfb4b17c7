/* budget: how much work one call may cause, in proportion to the size of its input.
 *
 * A tokenizer.json can multiply a text at each of its steps, and its regular expressions can
 * backtrack without end. So each encoding, and each stream of decoding, carries one budget: the
 * bytes that all steps together write, the length a text may reach, and the steps of matches that
 * look far or backtrack much. A tokenizer in use stays far below all of them. */
#ifndef PESC_TOKENIZER_BUDGET_H
#define PESC_TOKENIZER_BUDGET_H

#include "base/status.h"
#include "base/str.h"

/* Zero-initialise to start. */
typedef struct budget {
    size_t input;   /* bytes given so far */
    size_t longest; /* bytes a text may grow to */
    uint64_t bytes; /* still to be written by all steps */
    uint64_t steps; /* still to be taken by regular expressions */
} budget;

void budget_add(budget *b, size_t n); /* n more bytes of input; the first call opens the budget */

/* Empties `to` and keeps it from growing beyond what is left. */
void budget_open_text(const budget *b, str *to);
/* Takes the bytes of a text that is complete off the budget. Fails when it was cut off or memory
 * ran out; `what` is the component at work ("the normalizer"). */
pesc_status budget_take_text(budget *b, const str *text, const char *what);

/* False when no steps are left. */
static inline bool budget_take_steps(budget *b, uint64_t n)
{
    bool enough = b->steps >= n;
    b->steps = enough ? b->steps - n : 0;
    return enough;
}

#endif
