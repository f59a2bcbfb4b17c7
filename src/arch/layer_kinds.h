/* layer_kinds: what layers of a model differ in: windows, rotation, and which are dense or sparse.
 */
#ifndef PESC_ARCH_LAYER_KINDS_H
#define PESC_ARCH_LAYER_KINDS_H

#include "arch/config.h"

/* Reads the lists of config.json, or fills them by the family's rules. Sizes are known by then. */
pesc_status layer_kinds_read(config *c, json_where w);

#endif
