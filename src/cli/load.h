/* load: requests on any server with OpenAI's interface, and how fast it answers. */
#ifndef PESC_CLI_LOAD_H
#define PESC_CLI_LOAD_H

#include "cli/opt.h"

/* `pesc bench serve`: sends, measures and prints. */
pesc_status load_run(const options *o);

#endif
