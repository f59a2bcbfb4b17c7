/* jinja_exec: runs the statements of a template; jinja_eval.c computes its expressions. */
#ifndef PESC_JINJA_JINJA_EXEC_H
#define PESC_JINJA_JINJA_EXEC_H

#include "jinja/jinja_buf.h"
#include "jinja/jinja_template.h"

typedef struct jvar {
    const char *name;
    jvalue value;
    struct jvar *next;
} jvar;

/* Names that are visible: those of a scope, then those of the scopes around it. */
typedef struct jscope {
    struct jscope *around;
    jvar *vars;
} jscope;

typedef struct jmacro {
    const jnode *n;
    jscope *scope; /* where it was defined */
} jmacro;

typedef struct jloop {
    jseq items;
    size_t i;
    jvalue changed; /* the last argument of loop.changed() */
} jloop;

void jexec_template(jctx *c);                     /* into c->out */
jvalue jexec_expression(jctx *c, const jnode *n); /* the same for an expression */
jvalue jexec_macro(jctx *c, const jmacro *m, const jargs *args);
/* An attribute of the variable `loop` but its methods; false: there is none. */
bool jexec_loop_attribute(jctx *c, const jloop *l, const char *name, size_t n, jvalue *out);

/* The variable, or an undefined value. */
jvalue jexec_lookup(jctx *c, const char *name);
void jexec_assign(jctx *c, const char *name, jvalue v); /* in the scope at work */

/* jinja_eval.c */
jvalue jeval(jctx *c, const jnode *n);
jvalue jeval_call(jctx *c, jvalue callee, const jargs *args);
jvalue jeval_filters(jctx *c, const jnode *n, jvalue input); /* a chain whose input is outside */
jargs jeval_args(jctx *c, const jnode *list);

#endif
