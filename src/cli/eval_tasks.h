/* eval_tasks: benchmark tasks of one or several models: a table, a picture, results.json. */
#ifndef PESC_CLI_EVAL_TASKS_H
#define PESC_CLI_EVAL_TASKS_H

#include "cli/opt/opt.h"

/* The models of the options, one after the other, on a list of tasks with commas, divided among the
 * processes of `all`; NULL: there is only this one. */
pesc_status eval_tasks(const options *o, const char *tasks, pesc_comm *all);

pesc_status eval_list(const options *o); /* prints the built-in tasks */

#endif
