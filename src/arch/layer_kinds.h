/* layer_kinds: what layers of a model differ in: windows, rotation, and which are dense or sparse.
 */
#ifndef PESC_ARCH_LAYER_KINDS_H
#define PESC_ARCH_LAYER_KINDS_H

#include "arch/config.h"

/* A list of config.json with a word for each layer: the usual one, which may have an older name
 * (else NULL), or another. */
typedef struct layer_words {
    const char *key, *usual, *older, *other;
} layer_words;

/* Whether the word of a layer is the other one; the list is there. */
pesc_status layer_words_read(const config *c, json_where w, layer_words words, int32_t layer,
                             bool *other);

/* Reads the lists of config.json, or fills them by the family's rules. Sizes are known by then. */
pesc_status layer_kinds_read(config *c, json_where w);

#endif
