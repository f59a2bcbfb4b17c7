/* tune: the options of a run, as the library takes them. */
#ifndef PESC_CLI_TUNE_H
#define PESC_CLI_TUNE_H

#include "cli/opt/opt.h"

/* The values of --preset, replaced by those that were given. Borrows from `o`. */
pesc_status tune_options(const options *o, pesc_train_options *out);

/* Refuses a shape of experts that was given and differs from the model's; tells where the preset's
 * differs. */
pesc_status tune_check_experts(const options *o, const pesc_model_info *info);

#endif
