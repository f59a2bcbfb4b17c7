/* extract: from a generated text to what is compared, and the comparison of texts. */
#ifndef PESC_EVAL_EXTRACT_H
#define PESC_EVAL_EXTRACT_H

#include "eval/taskdef.h"

/* Applies a filter: the first or last match of its regex (of several groups the first that is not
 * empty; of no group the whole match) without white space around it, or its fallback. */
pesc_status extract_filter(const taskdef_filter *f, slice text, str *out);

/* exact_match of a prediction with any of `golds` (texts), after deleting what the task ignores. */
pesc_status extract_match(const taskdef *def, slice prediction, const json_t *golds, bool *match);

#endif
