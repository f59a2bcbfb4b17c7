/* constraint: what an answer must be, as a request asks for it, and the grammars that were compiled
 * for earlier requests.
 *
 * A source is compiled once; grammars stay in a cache, the one that was used least recently goes
 * first when all together are too large. */
#ifndef PESC_SERVE_API_CONSTRAINT_H
#define PESC_SERVE_API_CONSTRAINT_H

#include "infer/constrain.h"
#include "serve/apierror.h"

/* Borrowed from the body of the request. */
typedef struct constraint {
    const char *field; /* that asks for it; NULL: any text */
    pesc_grammar_kind kind;
    const json_t *schema, *choices;
    const char *text; /* GBNF or a regular expression */
} constraint;

/* Takes the value of a field that constrains: response_format, a guided_ field and so on. False: *e
 * says what is wrong with it, or that another field constrains the answer, too. */
bool constraint_take(constraint *c, const char *field, const json_t *v, api_error *e);

typedef struct grammar_cache grammar_cache;
pesc_status grammar_cache_open(grammar_cache **out, pesc_model *m); /* m: borrowed */
void grammar_cache_close(grammar_cache *k);                         /* NULL is allowed */

/* Appends what the constraint asks for as the right side of a rule of GBNF. False: its kind cannot
 * be one. */
bool constraint_rule(const constraint *c, str *out);

/* The grammar of a constraint, which is then also the caller's, for grammar_close(). ignored: NULL,
 * or where the keywords go that cannot be enforced, separated by ", "; NULL makes them an error. */
bool constraint_compile(grammar_cache *k, const constraint *c, str *ignored, grammar **out,
                        api_error *e);

#endif
