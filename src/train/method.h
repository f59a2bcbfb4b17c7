/* method: which parameters each training method trains, one row a method. */
#ifndef PESC_TRAIN_METHOD_H
#define PESC_TRAIN_METHOD_H

#include "train/params.h"

/* The train_spec of the options, for a model with this configuration. PESC_USAGE says what to do
 * when the method does not suit the model. Sets experts, top_k and the other options that the model
 * or the method decides; aux_coef, where it is auto, to 0 if no router trains. One that is given
 * holds there too: its gradient flows through the frozen routers into what trains below them.
 * `own`, zeroed before, takes the experts that method esft trains: the spec points to it, and the
 * caller frees it, also after a failure. */
pesc_status method_spec(train_spec *out, expertcfg *own, pesc_train_options *o, const config *c);

/* The rank and alpha of a LoRA that the model brings, and keeps, become those of the options.
 * PESC_USAGE where the options ask for others than these and the defaults. */
pesc_status method_take_lora(pesc_train_options *o, const model_shape *m);

/* "train" or "frozen"; "" where the model has no routers. */
const char *method_routers(const train_spec *s, const config *c);

#endif
