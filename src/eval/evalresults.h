/* evalresults: the files of an evaluation that are not samples. evaluation.json says what is
 * evaluated and with which options; results.json holds the scores, under the names of
 * lm-evaluation-harness.
 */
#ifndef PESC_EVAL_EVALRESULTS_H
#define PESC_EVAL_EVALRESULTS_H

#include "eval/taskrun.h"

/* Makes opt->dir ready. If evaluation.json there is of another evaluation, a notice says what
 * differs, and the files of the tasks that it lists are removed. Such files of which no
 * evaluation.json speaks, and an evaluation.json of something else, are PESC_USAGE. */
pesc_status evalresults_begin(const taskrun *r, const task_set *set, const taskrun_options *opt);

/* Whether a group has a score: its tasks have the same metrics. */
bool evalresults_has_score(const taskrun *r, const task_group *g);

/* The text of results.json, and with it how many tokens this run was asked for and computed. The
 * file has no such counts: after an interruption they would be others. */
pesc_status evalresults_text(str *out, const taskrun *r, const task_set *set,
                             const taskrun_options *opt);

/* Writes results.json of a run whose documents are all judged. */
pesc_status evalresults_write(const taskrun *r, const task_set *set, const taskrun_options *opt);

#endif
