/* routes: which experts the tokens of a pass go to, layer by layer, and with what gates.
 *
 * Either a forward for the sake of its routers: it ends at the last of them, so the experts of that
 * layer and the head do not run. Or beside the forwards of model_fwd(). Choices stay on the device
 * until the pass is through and then come over in two copies.
 *
 * Or the other way round: the routers of a forward choose what those of another model chose, and
 * compute their own gates for it. */
#ifndef PESC_MODEL_ROUTES_H
#define PESC_MODEL_ROUTES_H

#include "model/forward.h"

typedef struct routes {
    pesc_model *m;      /* borrowed */
    int32_t n_layers;   /* that have a router */
    int32_t *layers;    /* their numbers, ascending */
    int32_t k, n;       /* experts a token; tokens of the last forward */
    const int32_t *ids; /* [n_layers, n, k]: of the last forward */
    const float *gates; /* [n_layers, n, k] */

    int32_t max_tokens;
    void *device, *host; /* spans of so many bytes: ids, then gates */
    size_t bytes;
    void *choosing; /* on the device, f32 [n_layers, n, E]: 0 for the experts that routes_follow()
                       names, far below every score for others; NULL: routers choose themselves */
} routes;

/* PESC_UNSUPPORTED for a model without experts. */
pesc_status routes_open(routes **out, pesc_model *m, int32_t max_tokens);
void routes_close(routes *r); /* NULL is allowed */

/* Runs a pass (without a cache) whose tokens are set. */
pesc_status routes_fwd(routes *r, pass *p);

/* From now on each model_fwd() of the pass leaves the choices of its routers in r, which has room
 * for its tokens and must stay. NULL: not any more. */
void routes_record(routes *r, pass *p);
/* Parts of model_fwd(): after a layer, and after the last. Nothing where the pass has no routes. */
void routes_record_layer(pass *p, int32_t layer);
pesc_status routes_fetch(pass *p);

/* The next forwards of the pass, of n tokens without a cache, choose these experts [n_layers, n, k]
 * and record that. */
pesc_status routes_follow(routes *r, pass *p, const int32_t *ids, int32_t n);
/* A part of moe_route(): the choice of a layer, or false where its router chooses. */
bool routes_choose(const pass *p, const block *b);

#endif
