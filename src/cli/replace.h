/* replace: commands that write a model directory (-o DIR). What is there is refused; with
 * --overwrite the new model is made whole beside the old one before that goes. */
#ifndef PESC_CLI_REPLACE_H
#define PESC_CLI_REPLACE_H

#include "cli/opt.h"

typedef pesc_status (*replace_fn)(const options *o, const char *dir, void *ud);

/* Calls make with o->output, or, where that is to be replaced, with a directory beside it that then
 * takes its place (pesc_model_replace). */
pesc_status replace_dir(const options *o, replace_fn make, void *ud);

#endif
