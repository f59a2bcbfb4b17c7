/* open_model: a model from its files, with the patch and the LoRA that the options name. */
#ifndef PESC_ATTACH_OPEN_MODEL_H
#define PESC_ATTACH_OPEN_MODEL_H

#include "arch/model.h"

/* pesc_model_open(), except that opt->lora takes the place of a LoRA that the model has, which
 * otherwise is refused. */
pesc_status model_open_replacing(pesc_model **out, device *dev, const char *path,
                                 const pesc_load_options *opt);

#endif
