/* endpoints: the table of paths, and their handlers. */
#ifndef PESC_SERVE_API_ENDPOINTS_H
#define PESC_SERVE_API_ENDPOINTS_H

#include "serve/exchange.h"

typedef void (*route_handler)(exchange *x);
struct route {
    const char *method, *path; /* a path that ends in / has an argument there, except / itself */
    route_handler handle;      /* sets the answer, or gives a call to the engine */
    bool open;                 /* needs no key */
    int endpoint;              /* in metrics */
};
/* HEAD is found as GET; OPTIONS is found for every path. NULL: *e says why. */
const route *endpoint_find(exchange *x, const char *method, const char *path, api_error *e);
/* Names of the endpoints in metrics. */
const char *const *endpoint_names(size_t *n);

/* call.c */
void handle_completion(exchange *x);
void handle_native(exchange *x);
void handle_chat(exchange *x);
/* monitor.c */
void handle_health(exchange *x);
void handle_version(exchange *x);
void handle_requests(exchange *x);
void handle_slots(exchange *x);
void handle_props(exchange *x);
void handle_metrics(exchange *x);
void handle_unsupported(exchange *x);
/* tokens.c */
void handle_tokenize(exchange *x);
void handle_detokenize(exchange *x);
void handle_tokenizer_info(exchange *x);
void handle_template(exchange *x);
/* models.c, page.c, expertload.c */
void handle_models(exchange *x);
void handle_model(exchange *x);
void handle_page(exchange *x);
void handle_experts(exchange *x);

#endif
