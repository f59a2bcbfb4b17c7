/* mixers: which layers have attention, and which a mixer with a state of its own instead. */
#ifndef PESC_ARCH_MIXERS_H
#define PESC_ARCH_MIXERS_H

#include "arch/config.h"

/* Fills layer_recurrent of a configuration whose sizes are known: from layer_types, else from
 * full_attn_idxs, else by the family's interval; without any of them all layers have attention. */
pesc_status mixers_read(config *c, json_where w);

/* The word for a layer of this kind in layer_types. */
const char *mixers_name(mixer_kind kind);

#endif
