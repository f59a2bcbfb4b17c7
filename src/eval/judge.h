/* judge: from a model's answer to the metrics of a document (task_judge() of task.h); here are its
 * steps for a generated text: what is compared, and the comparison. */
#ifndef PESC_EVAL_JUDGE_H
#define PESC_EVAL_JUDGE_H

#include "eval/taskdef.h"

/* Applies a filter: the first or last match of its regex (of several groups the first that is not
 * empty; of no group the whole match) without white space around it, or its fallback. */
pesc_status judge_filter(const taskdef_filter *f, slice text, str *out);

/* exact_match of a prediction with any of `golds` (texts), after deleting what the task ignores. */
pesc_status judge_text_match(const taskdef *def, slice prediction, const json_t *golds,
                             bool *match);

/* The part of a model's text that is the answer to ESFT's intent benchmark (intent.c); *n 0:
 * nothing. A slice of the text, or "{}". */
const char *intent_answer(const char *text, size_t *n);

#endif
