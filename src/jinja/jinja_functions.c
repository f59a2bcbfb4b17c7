/* Global functions, and the methods of loop. */
#include "jinja/jinja_exec.h"
#include "jinja/jinja_print.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define FUNCTION(name) static jvalue name(jctx *c, const jcall *call)

enum { RANGE_MAX = 100000 }; /* the limit of jinja2's sandbox */

FUNCTION(function_range)
{
    bool one = call->a[1].kind == J_MISSING;
    int64_t start = one ? 0 : jbuiltin_int(c, call->a[0], 0);
    int64_t stop = jbuiltin_int(c, one ? call->a[0] : call->a[1], 0),
            step = jbuiltin_int(c, call->a[2], 1);
    if (step == 0)
        return jctx_fail(c, "the step of range() must not be zero");
    jvalue out = jvalue_seq(c, J_RANGE, 0);
    if (jctx_failed(c))
        return out;
    out.seq->start = start;
    out.seq->stop = stop;
    out.seq->step = step;
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && jctx_step(c, 1);) {
        if (out.seq->n == RANGE_MAX)
            return jctx_fail(c, "range() is longer than %d", RANGE_MAX);
        jseq_add(c, out.seq, jint(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return out;
}

/* dict(x, a=1) and namespace(x, a=1): a mapping or pairs, then keywords. */
static jvalue make_mapping(jctx *c, jkind kind, const jargs *all)
{
    jvalue out = jvalue_dict(c, kind, all->n_kw);
    if (all->n > 1)
        return jctx_fail(c, "%s() takes at most one positional argument",
                         kind == J_DICT ? "dict" : "namespace");
    if (all->n && all->v[0].kind == J_DICT) {
        for (size_t i = 0; i < all->v[0].dict->n && jctx_step(c, 1); i++)
            jdict_add(c, out.dict, all->v[0].dict->v[i].key, all->v[0].dict->v[i].value);
    } else if (all->n && all->v[0].kind == J_UNDEFINED) {
        return jctx_fail(c, "%s", all->v[0].why);
    } else if (all->n) {
        jseq pairs = jvalue_iterate(c, all->v[0]);
        for (size_t i = 0; i < pairs.n && !jctx_failed(c); i++) {
            jseq pair = jvalue_iterate(c, pairs.v[i]);
            if (pair.n != 2)
                return jctx_fail(c, "a mapping is made from pairs, found %zu values", pair.n);
            jdict_set(c, out.dict, pair.v[0], pair.v[1]);
        }
    }
    for (size_t i = 0; i < all->n_kw && !jctx_failed(c); i++)
        jdict_set(c, out.dict, all->kw[i].key, all->kw[i].value);
    return out;
}

FUNCTION(function_dict)
{
    return make_mapping(c, J_DICT, call->all);
}

FUNCTION(function_namespace)
{
    return make_mapping(c, J_NAMESPACE, call->all);
}

FUNCTION(function_raise)
{
    jbuf b = { .c = c };
    jprint_str(&b, call->a[0]);
    return jctx_fail_as(c, PESC_USAGE, "%s%.*s",
                        c->t->where ? "the chat template refuses the conversation: " : "",
                        (int)(b.n < 800 ? b.n : 800), b.p ? b.p : "");
}

/* datetime.now().strftime(): no time zone, so %z and %Z are empty. */
FUNCTION(function_strftime)
{
    const jstr *format = jbuiltin_str(c, call->a[0]);
    char text[64], one[3] = "%";
    struct tm tm = { 0 };
    time_t now = time(NULL);
    jbuf b = { .c = c };
    if (c->in->now)
        tm = *c->in->now;
    else if (!localtime_r(&now, &tm))
        return jctx_fail(c, "the current time cannot be read");
    for (size_t i = 0; i < format->n && !jctx_failed(c); i++) {
        if (format->p[i] != '%' || i + 1 == format->n) {
            jbuf_sub(&b, format, i, 1);
            continue;
        }
        one[1] = format->p[++i];
        bool own = one[1] == 'f' || one[1] == 'z' || one[1] == 'Z';
        bool padded = one[1] != '-' || i + 1 == format->n;
        if (!padded)
            one[1] = format->p[++i];
        size_t n = own ? 0 : strftime(text, sizeof text, one, &tm);
        size_t skip = !padded && n > 1 && text[0] == '0' ? 1 : 0;
        jbuf_add(&b, text + skip, n - skip, NULL);
        jbuf_puts(&b, one[1] == 'f' ? "000000" : "");
    }
    return jbuf_value(&b);
}

const jbuiltin jinja_functions[] = {
    { "range", function_range, "start stop step", 1, 0 },
    { "dict", function_dict, "*", 0, 0 },
    { "namespace", function_namespace, "*", 0, 0 },
    { "raise_exception", function_raise, "message", 1, 0 },
    { "strftime_now", function_strftime, "format", 1, 0 },
    { 0 },
};

/* ---- loop ---- */

FUNCTION(loop_cycle)
{
    if (call->all->n == 0)
        return jctx_fail(c, "loop.cycle() needs at least one argument");
    return call->all->v[call->self.loop->i % call->all->n];
}

FUNCTION(loop_changed)
{
    jvalue now = jvalue_seq(c, J_TUPLE, call->all->n);
    for (size_t i = 0; i < call->all->n && !jctx_failed(c); i++)
        jseq_add(c, now.seq, call->all->v[i]);
    bool changed = call->self.loop->changed.kind == J_MISSING ||
                   !jvalue_equal(c, call->self.loop->changed, now);
    call->self.loop->changed = now;
    return jbool(changed);
}

const jbuiltin jinja_methods_loop[] = {
    { "cycle", loop_cycle, "*", 0, 0 },
    { "changed", loop_changed, "*", 0, 0 },
    { 0 },
};
