/* chain: the steps of a component of tokenizer.json, in order.
 *
 * Normalizers, pre-tokenizers, post-processors and decoders share one shape: an object with a
 * "type", or a "Sequence" of such objects, which may nest. chain_each() walks them flat and passes
 * each to its owner with the JSON path to name in messages; chain_open() makes a component of them.
 */
#ifndef PESC_TOKENIZER_CHAIN_H
#define PESC_TOKENIZER_CHAIN_H

#include "base/json.h"

#define CHAIN_MAX 32 /* steps */
#define CHAIN_DEEP 8 /* Sequences inside Sequences */

/* Called at most CHAIN_MAX times; `where` is "file: normalizer.normalizers[2]". */
typedef pesc_status (*chain_step_fn)(void *component, const json_t *v, const char *type,
                                     const char *where);

typedef struct chain {
    const char *name; /* "normalizer" */
    const char *list; /* the key of a Sequence's steps: "normalizers" */
    chain_step_fn step;
    size_t bytes;          /* of the component, for chain_open() */
    void (*close)(void *); /* the same */
} chain;

/* Calls c->step for each step of `v`. `file` is for messages. */
pesc_status chain_each(const chain *c, void *component, const json_t *v, const char *file);

/* A zeroed component to which every step has been added. `v` null or NULL gives *out NULL. */
pesc_status chain_open(void **out, const chain *c, const json_t *v, const char *file);

/* The row for a type in a table of rows that begin with `const char *type`. */
typedef struct chain_table {
    const char *name;
    const void *rows;
    size_t n, row_bytes;
} chain_table;
pesc_status chain_find(const void **row, const chain_table *t, const char *type, const char *where);

#endif
