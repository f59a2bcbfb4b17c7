/* tasktemplate: the text fields of task files, which are Jinja templates.
 *
 *   Question: {{ question.strip() }}\nA. {{ choices[0] }}
 *
 * They are rendered as lm-evaluation-harness renders its own: white space stays as it is written, a
 * last newline too, and a name that is not a column fails. The columns of a row are the variables.
 * Besides jinja2's filters there are regex_replace(pattern, replacement), which the harness has,
 * and boxed, minerva and integer. A template that is one {{ expression }} keeps the value's type.
 */
#ifndef PESC_EVAL_TASKTEMPLATE_H
#define PESC_EVAL_TASKTEMPLATE_H

#include "base/json.h"
#include "eval/allowance.h"

typedef struct task_template task_template;

/* `where` names the template in messages ("arc.json: question"). `work` must outlive it. */
pesc_status task_template_open(task_template **out, const char *source, const char *where,
                               allowance *work);
void task_template_close(task_template *t); /* NULL is allowed */

/* A new reference. PESC_FORMAT: the row does not have what the template reads. */
pesc_status task_template_value(const task_template *t, const json_t *row, json_t **out);

/* Appends the text; NULL for t appends nothing. */
pesc_status task_template_text(const task_template *t, const json_t *row, str *out);

/* Before Jinja, columns were written {name|filter}. PESC_FORMAT, with the sentence that says how to
 * write it now, where the template still has one of the columns that `row` has, or a filter; NULL
 * for t is allowed. */
pesc_status task_template_check(const task_template *t, const json_t *row);

#endif
