/* watch: what shows that the routers of a run fail, said while it runs: an expert that dies, a
 * layer whose choices collapse onto few experts, a balance loss that does not fall. Each is one
 * notice a run, with what to try. */
#ifndef PESC_TRAIN_WATCH_H
#define PESC_TRAIN_WATCH_H

#include "train/metrics.h"

enum {
    WATCH_STEPS = 20,  /* in a row, before a notice about an expert or a layer */
    WATCH_WINDOW = 100 /* steps whose mean balance loss is compared with that of as many before */
};

typedef enum watch_sign { WATCH_DEAD, WATCH_COLLAPSE, WATCH_STUCK, WATCH_SIGNS } watch_sign;

typedef struct watch {
    const int32_t *layers; /* numbers of the sparse layers; borrowed */
    int32_t *idle;      /* [layers, experts]: steps in a row with less than 1 % of an even share */
    int32_t *low;       /* [layers]: steps in a row with a low entropy */
    double before, now; /* sums of the balance loss over a window */
    int64_t steps;      /* seen */
    bool said[WATCH_SIGNS];
} watch;

pesc_status watch_open(watch *w, const int32_t *layers, int32_t n_layers, int32_t experts);
void watch_close(watch *w);

/* Of one step; aux_coef 0: no balance loss is trained. */
void watch_step(watch *w, const metrics_shares *r, double aux, double aux_coef);

/* The layer, by its place in r, with the lowest entropy, and that entropy; NaN without experts. */
double watch_worst(const metrics_shares *r, int32_t *layer);

#endif
