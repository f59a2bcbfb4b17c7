/* replace: commands that write a model directory (-o DIR). What is there is refused; with
 * --overwrite the new model is made whole beside the old one before that goes. */
#ifndef PESC_CLI_REPLACE_H
#define PESC_CLI_REPLACE_H

#include "cli/opt.h"

typedef pesc_status (*replace_fn)(const options *o, const char *dir, void *ud);

/* Calls make with o->output, or with a directory beside it whose files then take the place of the
 * model files in o->output; other files there stay. */
pesc_status replace_dir(const options *o, replace_fn make, void *ud);

#endif
