/* jinja_print: values as text: Python's str() and repr(), JSON as json.dumps() writes it, and
 * formatted. */
#ifndef PESC_JINJA_JINJA_PRINT_H
#define PESC_JINJA_JINJA_PRINT_H

#include "jinja/jinja_buf.h"
#include "jinja/jinja_builtin.h"

void jprint_str(jbuf *b, jvalue v);
void jprint_repr(jbuf *b, jvalue v);
jvalue jprint_value(jctx *c, jvalue v); /* str() as a value */

typedef struct jprint_json_options {
    bool ensure_ascii, sort_keys;
    const jstr *indent; /* NULL: on one line */
    const jstr *item_separator, *key_separator;
} jprint_json_options;
void jprint_json(jbuf *b, jvalue v, const jprint_json_options *o);

/* ---- the two ways of formatting (jinja_format.c): "%s" % value and "{}".format(value) ---- */

/* values: a tuple, a dictionary for %(name)s, or one value. */
jvalue jformat_percent(jctx *c, const jstr *format, jvalue values);
jvalue jformat_braces(jctx *c, const jstr *format, const jargs *args);

#endif
