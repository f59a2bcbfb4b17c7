/* pattern: what tokenizer.json searches text for: {"String": ...} or {"Regex": ...}. */
#ifndef PESC_TOKENIZER_PATTERN_H
#define PESC_TOKENIZER_PATTERN_H

#include "base/json.h"
#include "tokenizer/regex.h"

#define PATTERN_TEXT_MAX 4096 /* bytes of a literal text in a component of tokenizer.json */

/* Zero-initialise to start; read-only once open. */
typedef struct pattern {
    char *text; /* NULL with a regex */
    size_t n;   /* 1 to PATTERN_TEXT_MAX */
    regex *re;
} pattern;

/* The key `key` of an object; `where` names the object in messages. */
pesc_status pattern_open_json(pattern *p, const json_t *object, const char *key, const char *where);
pesc_status pattern_open_text(pattern *p, const char *text, size_t n, const char *where);
pesc_status pattern_open_regex(pattern *p, const char *re, const char *where);
void pattern_free(pattern *p);

/* The string under `key`, of at most PATTERN_TEXT_MAX bytes, copied for mem_free(). */
pesc_status pattern_get_text(const json_t *object, const char *key, const char *where, char **text,
                             size_t *n);

/* Walks the matches of valid UTF-8: w.text, w.n, w.scratch and w.work set, all else zero. The last
 * two may be NULL where the pattern is a text. */
pesc_status pattern_next(const pattern *p, regex_walk *w, bool *found);

#endif
