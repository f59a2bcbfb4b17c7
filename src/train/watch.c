#include "train/watch.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>

static const double dead_share = 0.01;  /* of an even share */
static const double low_entropy = 0.85; /* three of eight experts with 80 % of the choices */
static const double high_balance = 1.1; /* 1 is even */
static const double least_fall = 0.01;  /* of a balance loss that moves, in a window */

pesc_status watch_open(watch *w, const int32_t *layers, int32_t n_layers, int32_t experts)
{
    size_t n = (size_t)n_layers * (size_t)experts;
    *w = (watch){ .layers = layers };
    w->idle = mem_zalloc(n + 1, sizeof *w->idle);
    w->low = mem_zalloc((size_t)n_layers + 1, sizeof *w->low);
    return w->idle && w->low ? PESC_OK : fail_nomem("the watch on routers", n * sizeof *w->idle);
}

void watch_close(watch *w)
{
    mem_free(w->idle);
    mem_free(w->low);
    *w = (watch){ 0 };
}

static double entropy_of(const metrics_shares *r, int32_t layer)
{
    double sum = 0;
    for (int32_t e = 0; e < r->experts; e++) {
        double f = (double)r->share[layer * r->experts + e];
        sum -= f > 0 ? f * log(f) : 0;
    }
    return r->experts > 1 ? sum / log((double)r->experts) : 1;
}

double watch_worst(const metrics_shares *r, int32_t *layer)
{
    double worst = NAN;
    *layer = 0;
    for (int32_t l = 0; l < r->layers; l++) {
        double h = entropy_of(r, l);
        if (!(h >= worst)) {
            worst = h;
            *layer = l;
        }
    }
    return worst;
}

/* True once, when the sign is seen for the first time. */
static bool first(watch *w, watch_sign sign)
{
    bool was = w->said[sign];
    w->said[sign] = true;
    return !was;
}

static void watch_experts(watch *w, const metrics_shares *r, int32_t layer)
{
    for (int32_t e = 0; e < r->experts; e++) {
        int32_t at = layer * r->experts + e;
        bool idle = (double)r->share[at] < dead_share / r->experts;
        w->idle[at] = idle ? w->idle[at] + 1 : 0;
        if (w->idle[at] == WATCH_STEPS && first(w, WATCH_DEAD))
            log_notice("layer %d: expert %d has had less than 1 %% of an even load for %d steps; "
                       "experts that no token chooses do not train: a larger aux_coef keeps them "
                       "in use, fewer experts or a smaller lr may help",
                       w->layers[layer], e, WATCH_STEPS);
    }
}

static void watch_layer(watch *w, const metrics_shares *r, int32_t layer)
{
    double h = entropy_of(r, layer);
    w->low[layer] = h < low_entropy ? w->low[layer] + 1 : 0;
    if (w->low[layer] == WATCH_STEPS && first(w, WATCH_COLLAPSE))
        log_notice(
            "layer %d: few experts have most of the choices (entropy %.2f of 1 for %d "
            "steps), even if the mean over layers looks balanced; aux_reduction sum, a larger "
            "aux_coef or a smaller lr may help; `pesc routes --over-time RUN` draws it",
            w->layers[layer], h, WATCH_STEPS);
}

static void watch_balance(watch *w, double aux, double aux_coef)
{
    w->now += aux / WATCH_WINDOW;
    if (w->steps % WATCH_WINDOW)
        return;
    bool stuck =
        w->steps > WATCH_WINDOW && w->now > high_balance && w->now > w->before * (1 - least_fall);
    if (stuck && aux_coef > 0 && first(w, WATCH_STUCK))
        log_notice("the balance loss does not fall: %.3f, after %.3f in the %d steps before, where "
                   "1 is even; a larger aux_coef gives it more weight",
                   w->now, w->before, WATCH_WINDOW);
    w->before = w->now;
    w->now = 0;
}

void watch_step(watch *w, const metrics_shares *r, double aux, double aux_coef)
{
    w->steps++;
    if (!r->layers)
        return;
    for (int32_t l = 0; l < r->layers; l++) {
        watch_experts(w, r, l);
        watch_layer(w, r, l);
    }
    watch_balance(w, aux, aux_coef);
}
