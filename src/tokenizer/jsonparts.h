/* jsonparts: a large JSON text, parsed in small parts.
 *
 * A tokenizer.json is some megabytes of vocabulary and merges; as jansson objects it would take
 * twenty times that. So its members and elements are found by a scan for brackets, commas and
 * strings, and parsed a block at a time: the scan only finds places, jansson checks every byte. */
#ifndef PESC_TOKENIZER_JSONPARTS_H
#define PESC_TOKENIZER_JSONPARTS_H

#include "base/json.h"

/* A value inside a text. */
typedef struct json_span {
    const char *text; /* of the whole */
    size_t start, end;
    const char *file; /* for messages */
} json_span;

bool json_span_is(const json_span *s, char first); /* whether it begins with this byte */

/* Calls fn for each member of an object; keys may repeat. The key is valid for the call. */
typedef pesc_status (*jsonparts_member_fn)(void *ctx, const char *key, const json_span *value);
pesc_status jsonparts_members(const json_span *object, jsonparts_member_fn fn, void *ctx);

/* Calls fn for consecutive blocks of an object's members or an array's elements, each as a small
 * object or array; `first` counts those before it. */
typedef pesc_status (*jsonparts_block_fn)(void *ctx, const json_t *block, size_t first);
pesc_status jsonparts_blocks(const json_span *container, jsonparts_block_fn fn, void *ctx);

/* How many members or elements a container has (at most: it is not checked here). */
size_t jsonparts_count(const json_span *container);

/* The value as an object, for json_decref(). Refused above JSONPARTS_MAX bytes. */
#define JSONPARTS_MAX (2u << 20)
pesc_status jsonparts_parse(const json_span *value, json_t **out);

#endif
