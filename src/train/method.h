/* method: what each way of tuning puts on the list of what trains. One row each. */
#ifndef PESC_TRAIN_METHOD_H
#define PESC_TRAIN_METHOD_H

#include "model/params.h"

/* The train_spec of the options, for a model with this configuration. PESC_USAGE says what to do
 * when the method does not suit the model. Fills experts, top_k and what else the model or the
 * method decides into the options. `own`, zeroed before, takes the experts that method esft trains:
 * the spec points to it, and the caller frees it, also after a failure. */
pesc_status method_spec(train_spec *out, expertcfg *own, pesc_train_options *o, const config *c);

/* The weight of the balance loss. 0 where no router trains, but for esft: there its gradient flows
 * through frozen routers into the experts below, which some want. */
double method_aux_coef(const train_spec *s, const pesc_train_options *o);

#endif
