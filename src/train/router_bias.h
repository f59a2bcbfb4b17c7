/* router_bias: experts are kept in use by a bias that counts in the choice alone (arXiv
 * 2408.15664).
 *
 * After each update the bias of an expert grows by the rate where it had less than the mean load of
 * its layer, over all tokens of the step and all processes, shrinks by it where it had more, and
 * stays where it had just as much. The biases are parameters without a gradient (train_spec): so
 * they are saved, resumed and shared like all others. */
#ifndef PESC_TRAIN_ROUTER_BIAS_H
#define PESC_TRAIN_ROUTER_BIAS_H

#include "train/params.h"
#include "train/totals.h"

typedef struct router_bias {
    int32_t layers, experts;
    const param **list; /* [layers], in the order of step_totals.sparse */
    int32_t *layer;     /* [layers] */
    float *now;         /* [layers, experts], while an update is made */
    void *memory;       /* on the device: of one layer; NULL: experts are not balanced so */
} router_bias;

pesc_status router_bias_open(router_bias *b, params *p);
void router_bias_close(router_bias *b, device *dev);

/* Before the optimiser's step, whose weight decay is not for biases; and after it. Both wait for
 * the device. */
pesc_status router_bias_read(router_bias *b, const pesc_model *m);
pesc_status router_bias_move(router_bias *b, params *p, const step_totals *r, double rate);

#endif
