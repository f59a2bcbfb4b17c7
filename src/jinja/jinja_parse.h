/* jinja_parse: tokens -> tree. Recursive descent with a fixed limit of depth.
 *
 * The grammar is jinja2's. Filters, tests and names of functions are looked up here, so a template
 * that needs what pesc does not have is refused before anything is rendered. The first failure
 * stays in the parser; functions then return NULL, and loops end because the token at work is the
 * end. */
#ifndef PESC_JINJA_JINJA_PARSE_H
#define PESC_JINJA_JINJA_PARSE_H

#include "jinja/jinja_lex.h"

typedef struct jparser {
    jinja_template *t;
    const jtoken *at;
    const jtoken *end; /* the T_END token */
    pesc_status status;
    int depth;
    int loops, conditions; /* for and if statements around the place at work */
} jparser;

enum { JPARSE_DEPTH = 100, JPARSE_HEIGHT = 200 };

pesc_status jparse(jinja_template *t, jtoken *tokens);

/* Of both files. */
jnode *jparse_fail(jparser *p, pesc_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
jnode *jparse_unexpected(jparser *p, const char *expected);
jnode *jparse_node(jparser *p, jnode_kind kind);
/* Fills in the heights of a node whose children are set. NULL when the tree is too high. */
jnode *jparse_done(jparser *p, jnode *n);
bool jparse_enter(jparser *p);                        /* pair each true with p->depth-- */
const char *jparse_text(jparser *p, const jtoken *t); /* a copy, NUL-terminated */

bool jparse_is_op(const jparser *p, int op);
bool jparse_is_name(const jparser *p, const char *name);
bool jparse_skip_op(jparser *p, int op);
bool jparse_skip_name(jparser *p, const char *name);
bool jparse_expect_op(jparser *p, int op);
const char *jparse_expect_name(jparser *p); /* any name; NULL after a failure */
void jparse_next(jparser *p);

/* jinja_expr.c */
jnode *jexpr_parse(jparser *p);    /* with the inline if */
jnode *jexpr_parse_or(jparser *p); /* without it */
jnode *jexpr_primary(jparser *p);
/* One expression, or several with commas between as a tuple. end: a name that ends it, or NULL. */
typedef jnode *(*jexpr_fn)(jparser *p);
jnode *jexpr_tuple(jparser *p, jexpr_fn each, const char *end, bool parentheses);
jnode *jexpr_filters(jparser *p, jnode *input, bool first); /* first: no `|` before the name */

#endif
