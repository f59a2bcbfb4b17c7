/* pickle: the part of Python's pickle language in which torch.save() writes a dictionary of
 * tensors.
 *
 * A pickle is a program for a stack machine, and a full machine runs anything. This one knows two
 * containers, numbers, strings and the few names below; whatever else a file asks for is refused by
 * name, so nothing is ever run. Values live in flat arrays with fixed limits and refer to each
 * other by number: no recursion, no cycles to follow, no memory beyond the limits. */
#ifndef PESC_FORMAT_PICKLE_H
#define PESC_FORMAT_PICKLE_H

#include "base/status.h"
#include "format/weights.h"

/* One entry of the dictionary. The strings are inside the pickle and not NUL-terminated; sizes and
 * strides are as written, unchecked but for being at least 0. */
typedef struct pickle_tensor {
    const char *name, *key; /* key: which storage */
    size_t name_bytes, key_bytes;
    dtype dt;
    int64_t storage_elements;
    int64_t offset; /* in elements */
    int32_t nd;
    int64_t ne[WEIGHTS_MAX_DIMS], stride[WEIGHTS_MAX_DIMS];
} pickle_tensor;

typedef pesc_status (*pickle_fn)(void *ctx, const pickle_tensor *t);

/* Calls fn for each tensor in the order of the dictionary; its failure ends the walk. */
pesc_status pickle_tensors(const char *file, const unsigned char *bytes, size_t n, pickle_fn fn,
                           void *ctx);

#endif
