/* replace: commands that write a model directory (-o DIR). A directory that is not empty is
 * refused; with --overwrite the new model is complete before it replaces the old one. */
#ifndef PESC_CLI_OUTPUT_H
#define PESC_CLI_OUTPUT_H

#include "cli/opt/opt.h"

typedef pesc_status (*replace_fn)(const options *o, const char *dir, void *ud);

/* Calls make with o->output, or, where that is to be replaced, with a temporary directory that then
 * replaces it (pesc_model_replace). */
pesc_status replace_dir(const options *o, replace_fn make, void *ud);

/* The same for a result that is one file, -o FILE, with what belongs to it beside it. */
pesc_status replace_file(const options *o, replace_fn make, void *ud);

#endif
