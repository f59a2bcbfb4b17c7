/* json: jansson, made strict and given typed getters that say where they failed.
 *
 * Duplicate keys, trailing bytes, NaN, comments and nesting above 2048 are refused. The getters
 * name the file and the key in their sentence. Objects are jansson's json_t; json_decref() frees.
 */
#ifndef PESC_BASE_JSON_H
#define PESC_BASE_JSON_H

#include "base/status.h"
#include "base/str.h"

#include <jansson.h>

/* `where` names the text in messages: a path, or "standard input". */
pesc_status json_parse(json_t **out, const char *text, size_t n, const char *where);
pesc_status json_read(json_t **out, const char *path, size_t max_bytes);
/* The same for files where transformers writes 10^30 for "no limit": an integer beyond 64 bits is
 * fine there, and makes every number of the file a JSON_REAL. */
pesc_status json_read_big(json_t **out, const char *path, size_t max_bytes);

/* As Python's json.loads takes what a model wrote: of equal keys the last one counts, an integer
 * beyond 64 bits makes every number a JSON_REAL. (Python's NaN and Infinity are still refused.) */
pesc_status json_parse_loose(json_t **out, const char *text, size_t n, const char *where);

/* Each getter: the key may be absent (or null) only when `required` is false; then *out keeps the
 * value it had. Wrong type or range is PESC_FORMAT: "config.json: hidden_size: found ..., ...". */
typedef struct json_where {
    const json_t *object;
    const char *file;
} json_where;

pesc_status json_get_i64(json_where w, const char *key, bool required, int64_t min, int64_t max,
                         int64_t *out);
pesc_status json_get_f64(json_where w, const char *key, bool required, double *out);
pesc_status json_get_bool(json_where w, const char *key, bool required, bool *out);
pesc_status json_get_str(json_where w, const char *key, bool required, const char **out);

/* The value of a key; NULL where the key is absent or null, which means the same in all files that
 * pesc reads. */
const json_t *json_value(const json_t *object, const char *key);

/* Whether the key is there and not null. */
bool json_has(const json_t *object, const char *key);

/* Removes members that are null, at every depth: columns of tables that are the union of the fields
 * of all records have them. */
void json_drop_nulls(json_t *v);

/* Appends any value as text; `flags` are jansson's (JSON_COMPACT, JSON_SORT_KEYS...). */
void json_put(str *out, const json_t *v, size_t flags);

/* "a string", "an object"... for messages. */
const char *json_kind(const json_t *v);

#endif
