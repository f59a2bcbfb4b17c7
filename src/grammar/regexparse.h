/* regexparse: a regular expression as an expression tree.
 *
 * The syntax is that of ECMA 262 (JSON Schema's) as far as Python's `re` agrees: alternatives,
 * groups, sets, . \d \w \s and their opposites, escapes, * + ? {m} {m,} {m,n}, ^ and $. The lazy
 * forms of quantifiers are taken as the plain ones: they describe the same texts. \d, \w and \s are
 * ASCII, but for the blanks of ECMA 262; . is anything but the end of a line. What would need more
 * than a finite automaton, or means different things in different languages, is refused by name. */
#ifndef PESC_GRAMMAR_REGEXPARSE_H
#define PESC_GRAMMAR_REGEXPARSE_H

#include "base/status.h"
#include "grammar/expr.h"

enum { REGEX_MAX_BYTES = 4096 };

/* *root: the expression in `pool`. PESC_FORMAT: it is no regular expression; PESC_UNSUPPORTED: it
 * has what is not supported, or is too large. */
pesc_status regex_parse(expr_pool *pool, const char *text, size_t n, uint32_t *root);

#endif
