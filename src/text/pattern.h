/* pattern: what tokenizer.json searches text for: {"String": ...} or {"Regex": ...}. */
#ifndef PESC_TEXT_PATTERN_H
#define PESC_TEXT_PATTERN_H

#include "base/json.h"
#include "text/regex.h"

/* Zero-initialise to start; read-only once open. */
typedef struct pattern {
    char *text; /* NULL with a regex */
    size_t n;   /* at least 1 */
    regex *re;
} pattern;

/* The key `key` of an object; `where` names the object in messages. */
pesc_status pattern_open_json(pattern *p, const json_t *object, const char *key, const char *where);
pesc_status pattern_open_text(pattern *p, const char *text, size_t n, const char *where);
pesc_status pattern_open_regex(pattern *p, const char *re, const char *where);
void pattern_free(pattern *p);

/* Walks the matches of valid UTF-8: w.text, w.n and w.scratch set, all else zero. */
pesc_status pattern_next(const pattern *p, regex_walk *w, bool *found);

#endif
