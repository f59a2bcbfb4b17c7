/* cmd_esft_models: the actions of esft that write models. */
#ifndef PESC_CLI_CMD_ESFT_MODELS_H
#define PESC_CLI_CMD_ESFT_MODELS_H

#include "cli/opt/opt.h"

pesc_status esft_apply(options *o);
pesc_status esft_unapply(options *o);
pesc_status esft_prune(options *o);

/* The usage error of an action that lacks something. */
pesc_status esft_needs(const options *o, const char *what, const char *usage);

#endif
