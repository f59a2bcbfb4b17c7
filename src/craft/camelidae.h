/* camelidae: the published layouts of models with adapters: Camelidae itself, sparsetral (which has
 * Mistral's window) and Qwen2idae. Their modelling files lie beside the published models; pesc
 * writes what those read, and needs none itself. */
#ifndef PESC_CRAFT_CAMELIDAE_H
#define PESC_CRAFT_CAMELIDAE_H

#include "craft/product.h"

typedef struct camelidae_size {
    int64_t experts, top_k, adapter_dim;
    double scale;
} camelidae_size;

/* Configures the product; size NULL: as the parent, which has adapters already. A parent that no
 * published layout can express keeps its own names, and a notice says that pesc alone opens it;
 * with `published` it is refused instead. */
pesc_status camelidae_configure(product *p, const camelidae_size *size, bool published);

#endif
