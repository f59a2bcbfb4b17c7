/* chain: the steps of a component of tokenizer.json, in order.
 *
 * Normalizers, pre-tokenizers, post-processors and decoders share one shape: an object with a
 * "type", or a "Sequence" of such objects, which may nest. This walks them flat and hands each to
 * its owner with the JSON path to name in messages. */
#ifndef PESC_TEXT_CHAIN_H
#define PESC_TEXT_CHAIN_H

#include "base/json.h"

#define CHAIN_MAX 32 /* steps */
#define CHAIN_DEEP 8 /* Sequences inside Sequences */

typedef struct chain_walk {
    const char *file, *name; /* "normalizer" */
    const char *list;        /* the key of a Sequence's steps: "normalizers" */
    /* At most CHAIN_MAX calls; `where` is "file: normalizer.normalizers[2]". */
    pesc_status (*step)(void *ctx, const json_t *v, const char *type, const char *where);
    void *ctx;
    size_t n; /* steps so far */
} chain_walk;

pesc_status chain_each(chain_walk *w, const json_t *v);

#endif
