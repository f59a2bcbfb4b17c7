/* chardfa: a deterministic automaton over characters, of the texts that satisfy several conditions
 * at once: regular expressions that match, or do not match, and bounds of the length.
 *
 * Its states are tuples: a set of positions in each expression, and the length as far as it
 * matters. Characters that no condition tells apart are one class. */
#ifndef PESC_GRAMMAR_CHARDFA_H
#define PESC_GRAMMAR_CHARDFA_H

#include "grammar/expr.h"
#include "grammar/spelling.h"

typedef struct char_condition {
    const expr_pool *pool;
    uint32_t root;
    bool anywhere; /* the expression matches a part of the text; else all of it */
    bool negated;  /* the texts that it does not match */
} char_condition;

typedef struct char_length {
    int64_t min, max; /* characters; max -1: no limit */
} char_length;

typedef struct chardfa {
    uint32_t n_states, n_classes; /* state 0 is the first one */
    uint32_t *next;               /* [n_states, n_classes] */
    unsigned char *accepts;       /* [n_states] */
    char_range *ranges;           /* [n_ranges] of all characters, sorted */
    uint32_t *class_of;           /* [n_ranges] */
    size_t n_ranges;
} chardfa;

enum { CHARDFA_MAX_STATES = 60000, CHARDFA_MAX_POSITIONS = 100000 };

/* PESC_UNSUPPORTED: it would be too large. */
pesc_status chardfa_build(chardfa *out, const char_condition *conditions, size_t n,
                          char_length length);
void chardfa_free(chardfa *d);

bool chardfa_matches(const chardfa *d, const char *text, size_t n); /* text: UTF-8 */
/* Its texts between two nodes. */
void chardfa_write(const chardfa *d, rules *r, spell_rules *s, rule_span at, spelling how);

#endif
