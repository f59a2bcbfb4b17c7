/* layers: a list of layers as users write it, "0-11,20". */
#ifndef PESC_ARCH_LAYERS_H
#define PESC_ARCH_LAYERS_H

#include "base/status.h"

#include <stdint.h>

/* Layers by number, from 0, in ranges that include both ends. */
enum { LAYER_RANGES = 16 };
typedef struct layer_ranges {
    int32_t n; /* 0: all layers */
    struct {
        int32_t first, last;
    } at[LAYER_RANGES];
} layer_ranges;

/* "all", or numbers and ranges below n_layers, separated by commas or spaces. PESC_USAGE names
 * `key`, the option. */
pesc_status layers_read(layer_ranges *out, const char *key, const char *text, int32_t n_layers);

bool layers_has(const layer_ranges *r, int32_t layer);

#endif
