/* hfadapters: a model with adapters (PESC) as transformers opens it, with a modelling file of
 * pesc's own beside the weights (share/python), which its config.json names. */
#ifndef PESC_CRAFT_HFADAPTERS_H
#define PESC_CRAFT_HFADAPTERS_H

#include "craft/target.h"

/* Whether the modelling file has classes for adapters on models of this type. */
bool hfadapters_has(const char *model_type);

/* Configures the target, which will write the modelling file too. */
pesc_status hfadapters_configure(target_model *p);

pesc_status hfadapters_write_code(const target_model *p); /* the modelling file */

#endif
