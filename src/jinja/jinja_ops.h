/* jinja_ops: operators, indices and attributes with Python's rules. */
#ifndef PESC_JINJA_JINJA_OPS_H
#define PESC_JINJA_JINJA_OPS_H

#include "jinja/jinja_value.h"

/* op: a character, OP_FLOORDIV or OP_POW (jinja_lex.h). */
jvalue jops_binary(jctx *c, int op, jvalue a, jvalue b);
jvalue jops_sign(jctx *c, int op, jvalue v); /* '-' or '+' */
/* op: OP_EQ, OP_NE, '<', OP_LE, '>', OP_GE, OP_IN or OP_NOT_IN */
bool jops_compare(jctx *c, int op, jvalue a, jvalue b);
bool jops_contains(jctx *c, jvalue container, jvalue item);

jvalue jops_item(jctx *c, jvalue of, jvalue index);
jvalue jops_attribute(jctx *c, jvalue of, jvalue name);
/* Bounds are J_NONE where they are left out. */
jvalue jops_slice(jctx *c, jvalue of, const jvalue bounds[3]);
/* A dotted path such as "function.name" or "items.0", as attribute= of filters takes it; a value
 * that is no string is an index. */
jvalue jops_path(jctx *c, jvalue of, jvalue path);

/* HTML escapes, as a string that is marked as escaped; one that is marked stays as it is. */
jvalue jops_escape(jctx *c, jvalue v);
jvalue jops_markup(jctx *c, jvalue v); /* v: a string */

#endif
