/* spelling: how a character stands in the text that a grammar describes: as UTF-8, or as part of a
 * JSON string, where it may be escaped. */
#ifndef PESC_GRAMMAR_SPELLING_H
#define PESC_GRAMMAR_SPELLING_H

#include "grammar/charset.h"
#include "grammar/intern.h"
#include "grammar/rules.h"

typedef enum spelling {
    SPELL_UTF8,
    /* Itself, but for " and \ and control characters; or one of \" \\ \/ \b \f \n \r \t; or \uXXXX,
     * above U+FFFF a pair of them. */
    SPELL_JSON,
} spelling;

/* Each set becomes a rule once. Zero-initialise to start. */
typedef struct spell_rules {
    intern sets;
    uint32_t *rule; /* [n] */
    size_t n, cap;
} spell_rules;
void spell_rules_free(spell_rules *s);

/* One character of the set, which is normalised, between two nodes. An empty set: no edge. */
void spell_set(rules *r, spell_rules *s, rule_span at, const charset *set, spelling how);

/* n bytes of UTF-8 as a JSON string with its quotes, in the spelling of most programs: escaped only
 * where it must be. */
void spell_json_string(rules *r, rule_span at, const char *text, size_t n);

#endif
