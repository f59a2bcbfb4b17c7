/* fill: templates of task files, filled in with the columns of a row.
 *
 *   Question: {question|strip}\nA. {choices[0]}
 *
 * {column} stands for a value, {a.b} for a member of an object, {a[0]} for an element of a list; {{
 * and }} are braces. Filters follow after "|", some with an argument after ":". A list is filtered
 * element by element. Inside other text a value is written as Python's str() writes it; a template
 * that is one {...} alone keeps the value's type. */
#ifndef PESC_EVAL_FILL_H
#define PESC_EVAL_FILL_H

#include "base/json.h"

typedef struct fill fill;

/* `where` names the template in messages ("arc.json: question"). */
pesc_status fill_open(fill **out, const char *template, const char *where);
/* A filter for the whole text, such as "strip". */
pesc_status fill_then(fill *f, const char *filter, const char *where);
void fill_close(fill *f); /* NULL is allowed */

/* A new reference. The sentence of a failure names the column, not the row. */
pesc_status fill_value(const fill *f, const json_t *row, json_t **out);

/* Appends the text; NULL for f appends nothing. */
pesc_status fill_text(const fill *f, const json_t *row, str *out);

#endif
