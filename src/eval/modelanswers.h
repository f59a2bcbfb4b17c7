/* modelanswers: the answers of a model that is open here. All requests go through one scheduler in
 * the order of their tokens, so that what they share is computed once. */
#ifndef PESC_EVAL_MODELANSWERS_H
#define PESC_EVAL_MODELANSWERS_H

#include "eval/answerer.h"

/* m has a tokenizer; it and opt must outlive the answerer. */
pesc_status modelanswers_open(answerer *out, pesc_model *m, const taskrun_options *opt);

#endif
