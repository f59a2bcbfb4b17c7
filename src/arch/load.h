/* load: fills the tensors that binding placed. Streams tensor by tensor through one bounded buffer
 * (NF4 needs a whole matrix at a time, everything else a chunk), converting and quantising with
 * the device's ops. A weight that is not finite is refused by name where it is converted; weights
 * used in place are not read. */
#ifndef PESC_ARCH_LOAD_H
#define PESC_ARCH_LOAD_H

#include "arch/bind.h"
#include "arch/model.h"

pesc_status load_weights(pesc_model *m, const bind_source *src);

/* Some tensors, each from its weight. All is done when it returns. */
typedef struct load_item {
    const weight *w;
    tensor to;
} load_item;
pesc_status load_items(device *dev, const load_item *items, size_t n, bool double_quant);

#endif
