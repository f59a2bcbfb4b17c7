/* mixture: `pesc data mix`, one data set made of the files of several domains. */
#ifndef PESC_CLI_DATA_MIX_H
#define PESC_CLI_DATA_MIX_H

#include "cli/opt/opt.h"

pesc_status mixture_run(const options *o);

#endif
