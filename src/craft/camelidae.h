/* camelidae: the published layouts of models with adapters: Camelidae itself, sparsetral (which has
 * Mistral's window) and Qwen2idae. Their modelling files are published beside the models; pesc
 * writes what those read, and small files of the same names over its own modelling file. */
#ifndef PESC_CRAFT_CAMELIDAE_H
#define PESC_CRAFT_CAMELIDAE_H

#include "arch/layers.h"
#include "craft/target.h"

typedef struct camelidae_size {
    int64_t experts, top_k, adapter_dim;
    double scale;
    const char *activation, *router; /* as the options of craft name them */
    layer_ranges layers;             /* that become sparse */
} camelidae_size;

/* Configures the target; size NULL: as the source, which has adapters already. What no published
 * layout can express (facts of the source, another activation or router, layers without adapters)
 * keeps the source's names, and a notice says that pesc alone opens it; with `published` it is
 * refused instead. */
pesc_status camelidae_configure(target_model *p, const camelidae_size *size, bool published);

#endif
