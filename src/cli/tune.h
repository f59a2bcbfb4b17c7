/* tune: the options of a run, as the library takes them. */
#ifndef PESC_CLI_TUNE_H
#define PESC_CLI_TUNE_H

#include "cli/opt.h"

/* The preset's values with what was given on top. Borrows from `o`. */
pesc_status tune_options(const options *o, pesc_train_options *out);
/* The way back: options that were not given get what tune_options() made of them. */
void tune_fill(options *o, const pesc_train_options *p);

/* What was said of experts must be so in the model. */
pesc_status tune_check_experts(const options *o, const pesc_model_info *info);

#endif
