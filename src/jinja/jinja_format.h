/* jinja_format: Python's two ways of formatting: "%s" % value and "{}".format(value). */
#ifndef PESC_JINJA_JINJA_FORMAT_H
#define PESC_JINJA_JINJA_FORMAT_H

#include "jinja/jinja_builtin.h"

/* values: a tuple, a dictionary for %(name)s, or one value. */
jvalue jformat_percent(jctx *c, const jstr *format, jvalue values);
jvalue jformat_braces(jctx *c, const jstr *format, const jargs *args);

#endif
