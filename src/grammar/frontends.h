/* frontends: what a grammar can be written as. Each writes rules; *root is the rule that a text
 * must be. `r` is empty at first, and the caller's to free in any case. */
#ifndef PESC_GRAMMAR_FRONTENDS_H
#define PESC_GRAMMAR_FRONTENDS_H

#include "base/json.h"
#include "grammar/rules.h"

/* Each ends with rules_finish(). */
pesc_status regex_write(rules *r, const char *text, size_t n, uint32_t *root);
/* llama.cpp's GBNF; the rule "root" is what a text must be. */
pesc_status gbnf_write(rules *r, const char *text, size_t n, uint32_t *root);
/* A JSON Schema. ignored NULL: a keyword that cannot be enforced is PESC_UNSUPPORTED; else its name
 * is added there, after ", ". */
pesc_status schema_write(rules *r, const json_t *schema, str *ignored, uint32_t *root);
/* One of these texts. */
pesc_status choices_write(rules *r, const char *const *texts, size_t n, uint32_t *root);

#endif
