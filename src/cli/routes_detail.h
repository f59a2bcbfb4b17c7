/* routes_detail: what routes prints beside its map: load, gates, the test of the domains, one layer
 * closely, and a run over time. */
#ifndef PESC_CLI_ROUTES_DETAIL_H
#define PESC_CLI_ROUTES_DETAIL_H

#include "cli/opt/opt.h"

/* Load, entropy and gates of each layer and domain, and how the domains differ. */
void routes_print_layers(const options *o, const pesc_routes_report *r);

/* The layer of --layer, index `at`, with the tokens of each expert. t may be NULL. */
void routes_print_layer(const pesc_routes_report *r, size_t at, const pesc_tokenizer *t);

/* The fields of an open object. */
void routes_json_domain(const pesc_routes_report *r, size_t domain);
void routes_json_tokens(const pesc_routes_report *r, const pesc_tokenizer *t);
void routes_json_reals(const char *key, const double *v, size_t n);

/* `routes --over-time RUN`. */
pesc_status routes_over_time(const options *o);

#endif
