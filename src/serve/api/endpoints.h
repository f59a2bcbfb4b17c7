/* endpoints: the table of paths, and their handlers. */
#ifndef PESC_SERVE_API_ENDPOINTS_H
#define PESC_SERVE_API_ENDPOINTS_H

#include "serve/exchange.h"

/* Sets the answer, or gives a call to the engine; false: exchange.error says why not. */
typedef bool route_handler(exchange *x);
struct route {
    const char *method, *path; /* a path that ends in / has an argument there, except / itself */
    route_handler *handle;
    bool open;         /* needs no key */
    int endpoint;      /* in metrics */
    api_endpoint body; /* the body is such a request; 0: it is not read */
};
typedef struct route_table {
    const route *v;
    size_t n;
    const char *offered; /* paths that a sentence names */
} route_table;
extern const route_table api_routes;  /* of a model */
extern const route_table runs_routes; /* of the page of runs */

/* In the table of the exchange's server. HEAD is found as GET; OPTIONS is found for every path.
 * NULL: *e says why. */
const route *endpoint_find(exchange *x, const char *method, const char *path, api_error *e);
/* Names of the endpoints in metrics. */
const char *const *endpoint_names(size_t *n);

route_handler handle_generation;           /* call.c */
route_handler handle_experts;              /* expertload.c */
route_handler handle_models, handle_model; /* models.c */
route_handler handle_health, handle_version, handle_requests, handle_slots, handle_props,
    handle_metrics;                          /* monitor.c */
route_handler handle_page, handle_runs_page; /* page.c */
route_handler handle_runs, handle_run;       /* runs.c */
route_handler handle_count, handle_tokenize, handle_detokenize, handle_tokenizer_info,
    handle_template; /* tokens.c */

#endif
