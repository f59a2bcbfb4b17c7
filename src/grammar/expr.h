/* expr: an expression as a tree: what a regular expression, and the right side of a GBNF rule, is
 * made of. Numbers of nodes begin at 1; 0 is none. */
#ifndef PESC_GRAMMAR_EXPR_H
#define PESC_GRAMMAR_EXPR_H

#include "grammar/charset.h"

typedef enum expr_kind {
    EXPR_CHAR,     /* one character, `value` */
    EXPR_SET,      /* a character of sets[value] */
    EXPR_RULE,     /* a text of rule `value` (GBNF, like the next three) */
    EXPR_TOKEN,    /* the control token with the id `value` */
    EXPR_JSON,     /* a JSON text that satisfies schema `value` */
    EXPR_NOT,      /* a text in which the child does not occur */
    EXPR_SEQUENCE, /* all children, one after another; none: the empty text */
    EXPR_CHOICE,   /* one of the children */
    EXPR_REPEAT,   /* the child, min to max times */
    EXPR_BEGIN,    /* the place before the first character (regular expressions) */
    EXPR_END,      /* the place after the last one */
} expr_kind;

enum { EXPR_ANY_TIMES = -1, EXPR_MAX_TIMES = 2000, EXPR_MAX_DEPTH = 100 };

typedef struct expr {
    expr_kind kind;
    uint32_t value;
    uint32_t first, last, next; /* children; the next child of the same parent */
    int32_t min, max;           /* max: may be EXPR_ANY_TIMES */
} expr;

/* Zero-initialise to start. */
typedef struct expr_pool {
    expr *all;
    size_t n, cap;
    charset *sets;
    size_t n_sets, cap_sets;
    bool failed; /* memory ran out */
} expr_pool;

uint32_t expr_add(expr_pool *p, expr_kind kind, uint32_t value);
uint32_t expr_add_set(expr_pool *p, charset *set); /* takes the set, which it normalises */
void expr_append(expr_pool *p, uint32_t parent, uint32_t child);
uint32_t expr_add_repeat(expr_pool *p, uint32_t child, int32_t min, int32_t max);
void expr_pool_free(expr_pool *p);

/* Reads *, +, ?, {m}, {m,} or {m,n} at the beginning of the text; `blanks`: there may be some
 * inside the braces. Returns its bytes, 0 where there is none. A number above EXPR_MAX_TIMES is
 * read as one that is above it, too; which numbers are allowed is the caller's to say. */
size_t repetition_read(const char *text, size_t n, bool blanks, int32_t *min, int32_t *max);

#endif
