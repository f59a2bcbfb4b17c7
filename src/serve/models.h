/* models: the names that requests may give; the only place where they are looked up. */
#ifndef PESC_SERVE_MODELS_H
#define PESC_SERVE_MODELS_H

#include "serve/server.h"

typedef struct served_model {
    char *name;
    int32_t adapter; /* of attach/served_adapters.h; 0: the model itself */
} served_model;

pesc_status models_open(pesc_server *s);
void models_close(pesc_server *s);
/* name NULL: the first model. NULL: there is none of that name, and *e says so. */
const served_model *models_find(const pesc_server *s, const char *name, api_error *e);

#endif
