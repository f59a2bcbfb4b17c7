#include "jinja/jinja_exec.h"

#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"

#include <stdio.h>
#include <string.h>

enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE }; /* jctx.flow */

static void exec_chain(jctx *c, const jnode *chain);

/* ---- names ---- */

static jscope *push_scope(jctx *c, jscope *around)
{
    jscope *s = jctx_alloc(c, 1, sizeof *s);
    if (s) {
        s->around = around;
        c->scope = s;
    }
    return s;
}

static jvar *find(jctx *c, const jscope *s, const char *name)
{
    size_t n = 0;
    jvar *v = s ? s->vars : NULL;
    for (; v && strcmp(v->name, name) != 0; v = v->next)
        n++;
    jctx_step(c, n / 4);
    return v;
}

jvalue jexec_lookup(jctx *c, const char *name)
{
    for (const jscope *s = c->scope; s; s = s->around) {
        const jvar *v = find(c, s, name);
        if (v)
            return v->value;
    }
    const jbuiltin *fn = jbuiltin_find(jinja_functions, name, strlen(name));
    if (fn)
        return (jvalue){ .kind = J_FUNCTION, .fn = fn };
    size_t n = strlen(name) + 32;
    char *why = jctx_alloc(c, n, 1);
    if (why)
        snprintf(why, n, "'%s' is undefined", name);
    return jundefined(why ? why : "");
}

void jexec_assign(jctx *c, const char *name, jvalue value)
{
    jvar *v = find(c, c->scope, name);
    if (!v && (v = jctx_alloc(c, 1, sizeof *v))) {
        v->name = name;
        v->next = c->scope->vars;
        c->scope->vars = v;
    }
    if (v)
        v->value = value;
}

static void assign_attribute(jctx *c, const jnode *target, jvalue value)
{
    jvalue space = jeval(c, target->a);
    if (jctx_failed(c))
        return;
    if (space.kind == J_NAMESPACE)
        jdict_set(c, space.dict, jvalue_text(c, target->name), value);
    else
        jctx_fail(c, "an attribute can only be set on a namespace, found '%s'", jvalue_type(space));
}

static void assign(jctx *c, const jnode *target, jvalue value)
{
    if (jctx_failed(c))
        return;
    if (target->kind == N_NAME) {
        jexec_assign(c, target->name, value);
        return;
    }
    if (target->kind == N_ATTR) {
        assign_attribute(c, target, value);
        return;
    }
    jseq items = jvalue_iterate(c, value);
    size_t i = 0;
    for (const jnode *t = target->list; t && !jctx_failed(c); t = t->next, i++) {
        if (i < items.n)
            assign(c, t, items.v[i]);
        else
            jctx_fail(c, "not enough values to unpack: found %zu", items.n);
    }
    if (i < items.n)
        jctx_fail(c, "too many values to unpack: expected %zu, found %zu", i, items.n);
}

/* ---- output that is caught ---- */

static jvalue catch_output(jctx *c, const jnode *body)
{
    jbuf b = { .c = c }, *out = c->out;
    c->out = &b;
    exec_chain(c, body);
    c->out = out;
    return jbuf_value(&b);
}

/* The same in a scope of its own. */
static jvalue catch_scoped(jctx *c, const jnode *body)
{
    jscope *around = c->scope;
    jvalue v = push_scope(c, around) ? catch_output(c, body) : jundefined("");
    c->scope = around;
    return v;
}

/* ---- macros ---- */

/* The keyword argument of that name, removed from the arguments that are left; NULL: none. */
static const jvalue *take_keyword(jargs *rest, const char *name)
{
    for (size_t i = 0; i < rest->n_kw; i++)
        if (jvalue_is(rest->kw[i].key, name)) {
            jpair found = rest->kw[i];
            memmove(rest->kw + i, rest->kw + i + 1, (rest->n_kw - i - 1) * sizeof found);
            rest->kw[--rest->n_kw] = found;
            return &rest->kw[rest->n_kw].value;
        }
    return NULL;
}

static jvalue missing_argument(jctx *c, const char *name)
{
    size_t n = strlen(name) + 48;
    char *why = jctx_alloc(c, n, 1);
    if (why)
        snprintf(why, n, "parameter '%s' was not provided", name);
    return jundefined(why ? why : "");
}

/* What no parameter takes: varargs and kwargs, where the template reads these. */
static void bind_rest(jctx *c, const jmacro *m, const jargs *rest)
{
    jvalue varargs = jvalue_seq(c, J_TUPLE, rest->n), kwargs = jvalue_dict(c, J_DICT, rest->n_kw);
    if (rest->n && !jinja_uses(c->t, "varargs"))
        jctx_fail(c, "the macro %s() is given too many arguments", m->n->name);
    if (rest->n_kw && !jinja_uses(c->t, "kwargs") && !jctx_failed(c))
        jctx_fail(c, "the macro %s() has no parameter '%.*s'", m->n->name,
                  (int)rest->kw[0].key.str->n, rest->kw[0].key.str->p);
    if (jctx_failed(c))
        return;
    for (size_t i = 0; i < rest->n; i++)
        jseq_add(c, varargs.seq, rest->v[i]);
    for (size_t i = 0; i < rest->n_kw; i++)
        jdict_add(c, kwargs.dict, rest->kw[i].key, rest->kw[i].value);
    jexec_assign(c, "varargs", varargs);
    jexec_assign(c, "kwargs", kwargs);
}

/* Parameters become variables; defaults are computed in the order of the parameters. */
static void bind_macro(jctx *c, const jmacro *m, const jargs *args)
{
    jargs rest = *args;
    const jvalue *caller = take_keyword(&rest, "caller");
    if (caller)
        jexec_assign(c, "caller", *caller);
    for (const jnode *p = m->n->list; p && !jctx_failed(c); p = p->next) {
        const jvalue *keyword = take_keyword(&rest, p->name);
        if (rest.n > 0) {
            if (keyword)
                jctx_fail(c, "the macro %s() is given '%s' twice", m->n->name, p->name);
            jexec_assign(c, p->name, *rest.v++);
            rest.n--;
        } else if (keyword) {
            jexec_assign(c, p->name, *keyword);
        } else {
            jexec_assign(c, p->name, p->a ? jeval(c, p->a) : missing_argument(c, p->name));
        }
    }
    if (!jctx_failed(c))
        bind_rest(c, m, &rest);
}

jvalue jexec_macro(jctx *c, const jmacro *m, const jargs *args)
{
    jscope *around = c->scope;
    int line = c->line;
    if (!jctx_enter(c))
        return jundefined("");
    jvalue v = jundefined("");
    if (push_scope(c, m->scope)) {
        bind_macro(c, m, args);
        v = catch_output(c, m->n->body);
    }
    c->scope = around;
    c->line = line;
    c->depth--;
    return v;
}

static jvalue make_macro(jctx *c, const jnode *n)
{
    jmacro *m = jctx_alloc(c, 1, sizeof *m);
    if (!m)
        return jundefined("");
    *m = (jmacro){ n, c->scope };
    return (jvalue){ .kind = J_MACRO, .macro = m };
}

static void exec_call_block(jctx *c, const jnode *n)
{
    jvalue callee = jeval(c, n->a->a), caller = make_macro(c, n->b);
    jargs args = jeval_args(c, n->a->list);
    jpair *kw = jctx_alloc(c, args.n_kw + 1, sizeof *kw);
    if (!kw)
        return;
    if (args.n_kw)
        memcpy(kw, args.kw, args.n_kw * sizeof *kw);
    kw[args.n_kw++] = (jpair){ jvalue_text(c, "caller"), caller };
    args.kw = kw;
    c->line = n->line;
    jprint_str(c->out, jeval_call(c, callee, &args));
}

/* ---- loops ---- */

static jvalue neighbour(const jloop *l, bool there, size_t i, const char *why)
{
    return there ? l->items.v[i] : jundefined(why);
}

bool jexec_loop_attribute(jctx *c, const jloop *l, const char *name, size_t n, jvalue *out)
{
    (void)c;
    int64_t i = (int64_t)l->i, all = (int64_t)l->items.n;
    const struct {
        const char *name;
        jvalue value;
    } rows[] = {
        { "index", jint(i + 1) },
        { "index0", jint(i) },
        { "revindex", jint(all - i) },
        { "revindex0", jint(all - i - 1) },
        { "first", jbool(i == 0) },
        { "last", jbool(i + 1 == all) },
        { "length", jint(all) },
        { "depth", jint(1) },
        { "depth0", jint(0) },
        { "previtem", neighbour(l, i > 0, l->i - 1, "there is no previous item") },
        { "nextitem", neighbour(l, i + 1 < all, l->i + 1, "there is no next item") },
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (strlen(rows[k].name) == n && memcmp(rows[k].name, name, n) == 0) {
            *out = rows[k].value;
            return true;
        }
    return false;
}

/* The elements for which the condition of a loop holds. */
static jseq filter_items(jctx *c, const jnode *n, jseq items)
{
    jvalue kept = jvalue_seq(c, J_LIST, 0);
    jscope *around = c->scope;
    for (size_t i = 0; i < items.n && !jctx_failed(c) && push_scope(c, around); i++) {
        assign(c, n->a, items.v[i]);
        if (!jctx_failed(c) && jvalue_true(c, jeval(c, n->c)))
            jseq_add(c, kept.seq, items.v[i]);
    }
    c->scope = around;
    return jctx_failed(c) ? (jseq){ 0 } : *kept.seq;
}

static void exec_for(jctx *c, const jnode *n)
{
    jscope *around = c->scope;
    jloop *l = jctx_alloc(c, 1, sizeof *l);
    jseq items = jvalue_iterate(c, jeval(c, n->b));
    if (n->c)
        items = filter_items(c, n, items);
    if (!l || jctx_failed(c))
        return;
    l->items = items;
    for (; l->i < items.n && jctx_step(c, 1) && push_scope(c, around); l->i++) {
        jexec_assign(c, "loop", (jvalue){ .kind = J_LOOP, .loop = l });
        assign(c, n->a, items.v[l->i]);
        exec_chain(c, n->body);
        bool stop = c->flow == FLOW_BREAK;
        c->flow = FLOW_NEXT;
        if (stop)
            break;
    }
    c->scope = around;
    if (items.n == 0 && push_scope(c, around)) {
        exec_chain(c, n->other);
        c->scope = around;
    }
}

/* ---- other statements ---- */

static void exec_if(jctx *c, const jnode *n)
{
    for (; n && !jctx_failed(c); n = n->c) {
        bool holds = jvalue_true(c, jeval(c, n->a));
        if (holds || !n->c)
            exec_chain(c, holds ? n->body : n->other);
        if (holds)
            return;
    }
}

static void exec_with(jctx *c, const jnode *n)
{
    jscope *around = c->scope, *inside = jctx_alloc(c, 1, sizeof *inside);
    if (!inside)
        return;
    inside->around = around;
    for (const jnode *s = n->list; s && !jctx_failed(c); s = s->next) {
        c->scope = around; /* values do not see the names beside them */
        jvalue v = jeval(c, s->b);
        c->scope = inside;
        assign(c, s->a, v);
    }
    c->scope = inside;
    exec_chain(c, n->body);
    c->scope = around;
}

static void exec_generation(jctx *c, const jnode *n)
{
    jscope *around = c->scope;
    size_t from = c->out->n;
    if (push_scope(c, around))
        exec_chain(c, n->body);
    c->scope = around;
    if (!jctx_failed(c))
        jbuf_flag(c->out, from, JINJA_GENERATED);
}

static void exec_output(jctx *c, const jnode *n)
{
    for (const jnode *e = n->list; e && !jctx_failed(c); e = e->next) {
        jvalue v = jeval(c, e);
        c->line = n->line;
        if (!jctx_failed(c))
            jprint_str(c->out, v);
    }
}

static void exec(jctx *c, const jnode *n)
{
    switch (n->kind) {
    case N_TEXT:
        jbuf_str(c->out, n->value.str);
        break;
    case N_OUTPUT:
        exec_output(c, n);
        break;
    case N_IF:
        exec_if(c, n);
        break;
    case N_FOR:
        exec_for(c, n);
        break;
    case N_SET:
        assign(c, n->a, jeval(c, n->b));
        break;
    case N_SET_BLOCK:
        assign(c, n->a, jeval_filters(c, n->b, catch_scoped(c, n->body)));
        break;
    case N_MACRO:
        jexec_assign(c, n->name, make_macro(c, n));
        break;
    case N_CALL_BLOCK:
        exec_call_block(c, n);
        break;
    case N_FILTER_BLOCK:
        jprint_str(c->out, jeval_filters(c, n->b, catch_scoped(c, n->body)));
        break;
    case N_WITH:
        exec_with(c, n);
        break;
    case N_GENERATION:
        exec_generation(c, n);
        break;
    default:
        c->flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    }
}

static void exec_chain(jctx *c, const jnode *chain)
{
    if (!jctx_enter(c))
        return;
    for (const jnode *n = chain; n && c->flow == FLOW_NEXT && jctx_step(c, 1); n = n->next) {
        c->line = n->line;
        exec(c, n);
        if (c->out->n > c->output_max)
            jctx_fail(c, "the text is longer than %zu bytes", c->output_max);
    }
    c->depth--;
}

/* ---- the whole ---- */

static void add_variables(jctx *c, const json_t *object, uint16_t origin)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)object, key, v)
    {
        if (!jinja_uses(c->t, key) || jctx_failed(c))
            continue;
        bool messages = origin && strcmp(key, "messages") == 0;
        jexec_assign(c, key,
                     messages ? jvalue_from_messages(c, v) : jvalue_from_json(c, v, origin));
    }
}

static bool begin(jctx *c)
{
    if (!push_scope(c, NULL))
        return false;
    add_variables(c, c->in->trusted, JINJA_TEMPLATE);
    add_variables(c, c->in->variables, JINJA_DATA);
    return true;
}

void jexec_template(jctx *c)
{
    if (begin(c))
        exec_chain(c, c->t->body);
}

jvalue jexec_expression(jctx *c, const jnode *n)
{
    c->line = n->line;
    return begin(c) ? jeval(c, n) : jundefined("");
}
