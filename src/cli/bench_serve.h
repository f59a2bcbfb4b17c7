/* load: requests on any server with OpenAI's interface, and how fast it answers. */
#ifndef PESC_CLI_BENCH_SERVE_H
#define PESC_CLI_BENCH_SERVE_H

#include "cli/opt/opt.h"

/* `pesc bench serve`: sends, measures and prints. */
pesc_status load_run(const options *o);

#endif
