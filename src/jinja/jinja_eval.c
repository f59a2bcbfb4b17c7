/* Expressions; see jinja_exec.h. The depth of recursion is that of the tree, which the parser
 * limits, and of the macros at work, which jctx_enter() limits. */
#include "jinja/jinja_exec.h"
#include "jinja/jinja_lex.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"

#include <string.h>

/* ---- calls ---- */

static void add_keyword(jctx *c, jargs *args, jvalue key, jvalue value)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (jvalue_equal(c, args->kw[i].key, key))
            jctx_fail(c, "a keyword argument is given twice");
    if (key.kind != J_STR)
        jctx_fail(c, "keywords must be strings");
    args->kw[args->n_kw++] = (jpair){ key, value };
}

/* How many arguments a list makes, with room for those it spreads. */
static size_t count_spread(jctx *c, const jnode *list, jvalue *spread)
{
    size_t n = 0;
    for (const jnode *a = list; a && !jctx_failed(c); a = a->next) {
        if (!a->op) {
            n++;
            continue;
        }
        jvalue v = jeval(c, a->a);
        if (a->op == 'd' && v.kind != J_DICT)
            jctx_fail(c, "the argument after ** must be a mapping");
        if (a->op == '*' && !jctx_failed(c)) {
            jvalue s = jvalue_seq(c, J_LIST, 0);
            jseq items = jvalue_iterate(c, v);
            if (!jctx_failed(c))
                *s.seq = items;
            v = s;
        }
        if (jctx_failed(c))
            return 0;
        *spread++ = v;
        n += a->op == 'd' ? v.dict->n : v.seq->n;
    }
    return n;
}

jargs jeval_args(jctx *c, const jnode *list)
{
    jargs args = { 0 };
    size_t n = 0, n_spread = 0;
    for (const jnode *a = list; a; a = a->next)
        n_spread += a->op != 0;
    jvalue *spread = n_spread ? jctx_alloc(c, n_spread, sizeof *spread) : NULL;
    n = list ? count_spread(c, list, spread) : 0;
    args.v = n ? jctx_alloc(c, n, sizeof *args.v) : NULL;
    args.kw = n ? jctx_alloc(c, n, sizeof *args.kw) : NULL;
    for (const jnode *a = list; a && !jctx_failed(c); a = a->next) {
        if (a->op == '*') {
            for (size_t i = 0; i < spread->seq->n; i++)
                args.v[args.n++] = spread->seq->v[i];
            spread++;
        } else if (a->op == 'd') {
            for (size_t i = 0; i < spread->dict->n; i++)
                add_keyword(c, &args, spread->dict->v[i].key, spread->dict->v[i].value);
            spread++;
        } else if (a->name) {
            add_keyword(c, &args, jvalue_text(c, a->name), jeval(c, a->a));
        } else {
            args.v[args.n++] = jeval(c, a->a);
        }
    }
    return args;
}

/* What a method of an escaped string gives is escaped too. */
static jvalue call_method(jctx *c, const jmethod *m, const jargs *args)
{
    jvalue v = jbuiltin_call(c, m->fn, m->self, args);
    if (m->self.kind != J_STR || !m->self.str->markup || jctx_failed(c))
        return v;
    for (size_t i = 0; (v.kind == J_LIST || v.kind == J_TUPLE) && i < v.seq->n; i++)
        v.seq->v[i] = jops_markup(c, v.seq->v[i]);
    return jops_markup(c, v);
}

jvalue jeval_call(jctx *c, jvalue callee, const jargs *args)
{
    if (jctx_failed(c))
        return jundefined("");
    switch (callee.kind) {
    case J_MACRO:
        return jexec_macro(c, callee.macro, args);
    case J_FUNCTION:
        return jbuiltin_call(c, callee.fn, jnone(), args);
    case J_METHOD:
        return call_method(c, callee.method, args);
    case J_UNDEFINED:
        return jctx_fail(c, "%s", callee.why);
    default:
        return jctx_fail(c, "'%s' object is not callable", jvalue_type(callee));
    }
}

static jvalue eval_call(jctx *c, const jnode *n)
{
    jvalue callee = jeval(c, n->a);
    jargs args = jeval_args(c, n->list);
    c->line = n->line;
    return jeval_call(c, callee, &args);
}

static jvalue eval_builtin(jctx *c, const jnode *n, jvalue self)
{
    jargs args = jeval_args(c, n->list);
    c->line = n->line;
    if (!n->fn)
        return jctx_fail(c, "there is no %s \"%s\"", n->kind == N_TEST ? "test" : "filter",
                         n->name);
    bool may_lack =
        n->kind == N_TEST || strcmp(n->fn->name, "default") == 0 || strcmp(n->fn->name, "d") == 0;
    if (!may_lack && !jctx_may_use(c, self))
        return jundefined("");
    return jctx_failed(c) ? jundefined("") : jbuiltin_call(c, n->fn, self, &args);
}

jvalue jeval_filters(jctx *c, const jnode *n, jvalue input)
{
    if (!n || jctx_failed(c))
        return input;
    if (!jctx_enter(c))
        return jundefined("");
    jvalue v = eval_builtin(c, n, jeval_filters(c, n->a, input));
    c->depth--;
    return v;
}

/* ---- displays ---- */

static jvalue eval_seq(jctx *c, const jnode *n, jkind kind)
{
    jvalue out = jvalue_seq(c, kind, 0);
    for (const jnode *e = n->list; e && !jctx_failed(c); e = e->next)
        jseq_add(c, out.seq, jeval(c, e));
    return out;
}

static jvalue eval_dict(jctx *c, const jnode *n)
{
    jvalue out = jvalue_dict(c, J_DICT, 0);
    for (const jnode *e = n->list; e && !jctx_failed(c); e = e->next->next) {
        jvalue key = jeval(c, e), value = jeval(c, e->next);
        if (!jctx_failed(c))
            jdict_set(c, out.dict, key, value);
    }
    return out;
}

static jvalue eval_concat(jctx *c, const jnode *n)
{
    jbuf b = { .c = c };
    for (const jnode *e = n->list; e && !jctx_failed(c); e = e->next)
        jprint_str(&b, jeval(c, e));
    return jbuf_value(&b);
}

/* ---- operators ---- */

static jvalue eval_item(jctx *c, const jnode *n)
{
    jvalue of = jeval(c, n->a), bounds[3];
    if (n->b->kind != N_SLICE) {
        jvalue index = jeval(c, n->b);
        c->line = n->line;
        return jops_item(c, of, index);
    }
    bounds[0] = n->b->a ? jeval(c, n->b->a) : jnone();
    bounds[1] = n->b->b ? jeval(c, n->b->b) : jnone();
    bounds[2] = n->b->c ? jeval(c, n->b->c) : jnone();
    c->line = n->line;
    bool fits =
        of.kind == J_STR || of.kind == J_LIST || of.kind == J_TUPLE || of.kind == J_UNDEFINED;
    for (int i = 0; i < 3; i++)
        fits = fits && (bounds[i].kind == J_NONE || jvalue_is_int(bounds[i]));
    if (n->folded && !fits && !jctx_failed(c))
        return jundefined("a constant of this kind has no slices");
    return jops_slice(c, of, bounds);
}

/* a < b < c: each operand is evaluated once, and the rest not after one that fails to hold. */
static jvalue eval_compare(jctx *c, const jnode *n)
{
    jvalue left = jeval(c, n->a);
    for (const jnode *o = n->list; o && !jctx_failed(c); o = o->next) {
        jvalue right = jeval(c, o->a);
        c->line = n->line;
        if (jctx_failed(c) || !jops_compare(c, o->op, left, right))
            return jbool(false);
        left = right;
    }
    return jbool(true);
}

static jvalue eval_binary(jctx *c, const jnode *n)
{
    jvalue a = jeval(c, n->a), b = jeval(c, n->b);
    c->line = n->line;
    return jctx_failed(c) ? jundefined("") : jops_binary(c, n->op, a, b);
}

static jvalue eval_logic(jctx *c, const jnode *n)
{
    jvalue a = jeval(c, n->a);
    if (n->kind == N_NOT)
        return jbool(!jvalue_true(c, a));
    return jvalue_true(c, a) == (n->kind == N_OR) ? a : jeval(c, n->b);
}

static jvalue eval_cond(jctx *c, const jnode *n)
{
    if (jvalue_true(c, jeval(c, n->a)))
        return jeval(c, n->b);
    return n->c ? jeval(c, n->c)
                : jundefined("the inline if-expression has no else and its condition is false");
}

static jvalue eval(jctx *c, const jnode *n)
{
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return jexec_lookup(c, n->name);
    case N_LIST:
        return eval_seq(c, n, J_LIST);
    case N_TUPLE:
        return eval_seq(c, n, J_TUPLE);
    case N_DICT:
        return eval_dict(c, n);
    case N_CALL:
        return eval_call(c, n);
    case N_FILTER:
    case N_TEST:
        return eval_builtin(c, n, jeval(c, n->a));
    case N_ATTR:
        return jops_attribute(c, jeval(c, n->a), n->value);
    case N_ITEM:
        return eval_item(c, n);
    case N_NOT:
    case N_AND:
    case N_OR:
        return eval_logic(c, n);
    case N_SIGN:
        return jops_sign(c, n->op, jeval(c, n->a));
    case N_COND:
        return eval_cond(c, n);
    case N_COMPARE:
        return eval_compare(c, n);
    case N_BINARY:
        return eval_binary(c, n);
    case N_CONCAT:
        return eval_concat(c, n);
    default:
        return jctx_fail(c, "a statement stands where a value is expected");
    }
}

jvalue jeval(jctx *c, const jnode *n)
{
    if (!jctx_step(c, 1) || !jctx_enter(c))
        return jundefined("");
    c->line = n->line;
    jvalue v = eval(c, n);
    c->depth--;
    return v;
}
