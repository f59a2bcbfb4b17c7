/* expertload: what the routers choose, counted over all requests. */
#ifndef PESC_SERVE_EXPERTLOAD_H
#define PESC_SERVE_EXPERTLOAD_H

#include "serve/api/call.h"

pesc_status expertload_open(pesc_server *s);
void expertload_close(pesc_server *s);

/* Counts what the routers chose for tokens of the call. Takes the lock. */
void expertload_count(call *c, const sched_routes *r);
/* A row of counts for each layer; null where there are none. Under the lock. */
json_t *expertload_counts(const expert_load *load, const uint64_t *counts);
/* Appends the load of each layer for /metrics. Under the lock. */
void expertload_metrics(const pesc_server *s, str *out);
/* The experts and gates of generated tokens [from, n_routed). */
json_t *expertload_of(const choice *c, size_t from);

#endif
