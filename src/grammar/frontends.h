/* frontends: what a grammar can be written as. Each writes rules; *root is the rule that a text
 * must be. `r` is empty at first, and the caller's to free in any case. */
#ifndef PESC_GRAMMAR_FRONTENDS_H
#define PESC_GRAMMAR_FRONTENDS_H

#include "base/json.h"
#include "grammar/expr.h"
#include "grammar/spelling.h"

/* Each ends with rules_finish(). */
pesc_status regex_write(rules *r, const char *text, size_t n, uint32_t *root);
/* llama.cpp's GBNF; the rule "root" is what a text must be. ignored: of the schemas in it. */
pesc_status gbnf_write(rules *r, const char *text, size_t n, str *ignored, uint32_t *root);
/* A JSON Schema. ignored NULL: a keyword that cannot be enforced is PESC_UNSUPPORTED; else its name
 * is added there, after ", ". */
pesc_status schema_write(rules *r, const json_t *schema, str *ignored, uint32_t *root);
/* The same beside other rules, without rules_finish(). */
pesc_status schema_add_rules(rules *r, const json_t *schema, str *ignored, uint32_t *root);
/* exprwrite.c: the texts of an expression of `pool`, between two nodes. Rule i of the expression is
 * rule i of `r`. */
typedef struct expr_writer {
    const expr_pool *pool;
    const json_t *schemas; /* an array: those of the expression */
    str *ignored;          /* see schema_write() */
    rules *r;
    spell_rules *sets;
} expr_writer;
void expr_write(const expr_writer *w, uint32_t e, rule_span at);

/* One of these texts. */
pesc_status choices_write(rules *r, const char *const *texts, size_t n, uint32_t *root);

#endif
