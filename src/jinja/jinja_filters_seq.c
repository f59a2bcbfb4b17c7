/* Filters that work on the elements of a sequence or mapping. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"
#include "jinja/jinja_python.h"
#include "jinja/jinja_value.h"

#include <string.h>

#define FILTER(name) static jvalue name(jctx *c, const jcall *call)

FILTER(filter_length)
{
    int64_t n = jvalue_length(call->self);
    return n >= 0 ? jint(n)
                  : jctx_fail(c, "an object of type '%s' has no length", jvalue_type(call->self));
}

FILTER(filter_first)
{
    if (call->self.kind == J_ITER && call->self.seq->taken < call->self.seq->n)
        return call->self.seq->v[call->self.seq->taken++];
    jseq s = jvalue_iterate(c, call->self);
    return s.n ? s.v[0] : jundefined("No first item, sequence was empty.");
}

FILTER(filter_last)
{
    if (call->self.kind == J_ITER)
        return jctx_fail(c, "'generator' object is not reversible");
    jseq s = jvalue_iterate(c, call->self);
    return s.n ? s.v[s.n - 1] : jundefined("No last item, sequence was empty.");
}

/* A new sequence with the elements of s. */
static jvalue copy(jctx *c, jkind kind, jseq s)
{
    jvalue out = jvalue_seq(c, kind, s.n);
    for (size_t i = 0; i < s.n && jctx_step(c, 1); i++)
        jseq_add(c, out.seq, s.v[i]);
    return out;
}

FILTER(filter_list)
{
    return copy(c, J_LIST, jvalue_iterate(c, call->self));
}

FILTER(filter_reverse)
{
    jseq s = jvalue_iterate(c, call->self);
    if (call->self.kind == J_STR) {
        jbuf b = { .c = c };
        for (size_t i = s.n; i-- > 0 && !jctx_failed(c);)
            jbuf_str(&b, s.v[i].str);
        return jbuf_value(&b);
    }
    jvalue out = jvalue_seq(c, call->self.kind == J_ITER ? J_LIST : J_ITER, s.n);
    for (size_t i = s.n; i-- > 0 && jctx_step(c, 1);)
        jseq_add(c, out.seq, s.v[i]);
    return out;
}

FILTER(filter_join)
{
    jbuf b = { .c = c };
    jvalue between = call->a[0].kind == J_MISSING ? jnone() : jprint_value(c, call->a[0]);
    jseq s = jvalue_iterate(c, call->self);
    for (size_t i = 0; i < s.n && !jctx_failed(c); i++) {
        if (i && between.kind == J_STR)
            jbuf_str(&b, between.str);
        jprint_str(&b, jgiven(call->a[1]) ? jops_path(c, s.v[i], call->a[1]) : s.v[i]);
    }
    return jbuf_value(&b);
}

FILTER(filter_items)
{
    if (call->self.kind != J_DICT && call->self.kind != J_UNDEFINED)
        return jctx_fail(c, "items needs a mapping, found '%s'", jvalue_type(call->self));
    jvalue out = jvalue_seq(c, J_ITER, 0);
    for (size_t i = 0; call->self.kind == J_DICT && i < call->self.dict->n && jctx_step(c, 1); i++)
        jseq_add(c, out.seq,
                 jvalue_tuple2(c, call->self.dict->v[i].key, call->self.dict->v[i].value));
    return out;
}

/* ---- map and select ---- */

/* The arguments after the first n positional ones. */
static jargs after(const jargs *all, size_t n)
{
    return (jargs){ .v = all->n > n ? all->v + n : NULL,
                    .n = all->n > n ? all->n - n : 0,
                    .kw = all->kw,
                    .n_kw = all->n_kw };
}

static const jvalue *keyword(const jargs *all, const char *name)
{
    for (size_t i = 0; i < all->n_kw; i++)
        if (jvalue_is(all->kw[i].key, name))
            return &all->kw[i].value;
    return NULL;
}

/* The elements of a value that is true: of None, as of an empty list, there are none. */
static jseq iterate_true(jctx *c, jvalue v)
{
    return jvalue_true(c, v) ? jvalue_iterate(c, v) : (jseq){ 0 };
}

static jvalue map_attribute(jctx *c, jvalue v, jvalue path, const jvalue *other)
{
    v = jops_path(c, v, path);
    return v.kind == J_UNDEFINED && other ? *other : v;
}

/* map("filter", ...) or map(attribute="a.b", default=...) */
FILTER(filter_map)
{
    const jvalue *path = call->all->n == 0 ? keyword(call->all, "attribute") : NULL;
    const jvalue *other = keyword(call->all, "default");
    jargs rest = after(call->all, 1);
    const jbuiltin *fn = NULL;
    if (call->all->n) {
        const jstr *name = jbuiltin_str(c, call->all->v[0]);
        fn = jbuiltin_filter(c->t, name->p, name->n);
    }
    if (!fn && !path)
        return jctx_fail(c, "map needs the name of a supported filter or an attribute");
    jseq s = iterate_true(c, call->self);
    jvalue out = jvalue_seq(c, J_ITER, s.n);
    for (size_t i = 0; i < s.n && jctx_step(c, 1); i++)
        jseq_add(c, out.seq,
                 fn ? jbuiltin_call(c, fn, s.v[i], &rest) : map_attribute(c, s.v[i], *path, other));
    return out;
}

/* select, reject and their like for attributes, whose first argument is one. */
enum { KEEP = 1, ATTRIBUTE = 2 };
FILTER(filter_choose)
{
    const jargs *all = call->all;
    size_t n = call->mode & ATTRIBUTE ? 1 : 0;
    jargs rest = after(all, n + 1);
    const jbuiltin *test = NULL;
    if (all->n < n)
        return jctx_fail(c, "the name of an attribute is missing");
    if (all->n > n) {
        const jstr *name = jbuiltin_str(c, all->v[n]);
        test = jbuiltin_test(name->p, name->n);
        if (!test)
            return jctx_fail(c, "there is no test \"%.*s\"", (int)(name->n < 60 ? name->n : 60),
                             name->p);
    }
    jseq s = iterate_true(c, call->self);
    jvalue out = jvalue_seq(c, J_ITER, 0);
    for (size_t i = 0; i < s.n && jctx_step(c, 1); i++) {
        jvalue v = n && jgiven(all->v[0]) ? jops_path(c, s.v[i], all->v[0]) : s.v[i];
        v = test && !jctx_failed(c) ? jbuiltin_call(c, test, v, &rest) : v;
        if (jvalue_true(c, v) == (call->mode & KEEP))
            jseq_add(c, out.seq, s.v[i]);
    }
    return out;
}

/* ---- order ---- */

/* The keys by which elements are ordered: an attribute, in lower case where case does not count. */
static jvalue *order_keys(jctx *c, jseq s, jvalue path, bool cased)
{
    jvalue *keys = jctx_alloc(c, s.n, sizeof *keys);
    for (size_t i = 0; keys && i < s.n && !jctx_failed(c); i++) {
        keys[i] = jgiven(path) ? jops_path(c, s.v[i], path) : s.v[i];
        if (!cased && keys[i].kind == J_STR)
            keys[i] = jpython_cased(c, keys[i].str, JCASE_LOWER);
    }
    return jctx_failed(c) ? NULL : keys;
}

/* The keys of sort(), lists of what the attributes give, of which a comma may separate several. So
 * keys that are undefined are equal, and only what differs must have an order, as with jinja2. */
static jvalue *sort_keys(jctx *c, jseq s, jvalue path, bool cased)
{
    jvalue *keys = jctx_alloc(c, s.n, sizeof *keys);
    const jstr *names = path.kind == J_STR ? path.str : NULL;
    for (size_t i = 0; keys && i < s.n && !jctx_failed(c); i++)
        keys[i] = jvalue_seq(c, J_LIST, 1);
    for (size_t at = 0, n; keys && !jctx_failed(c); at += n + 1) {
        const char *comma = names ? memchr(names->p + at, ',', names->n - at) : NULL;
        n = (comma ? (size_t)(comma - names->p) : names ? names->n : 0) - at;
        jvalue *part = order_keys(c, s, names ? jpython_sub(c, names, at, n) : path, cased);
        for (size_t i = 0; part && i < s.n && !jctx_failed(c); i++)
            jseq_add(c, keys[i].seq, part[i]);
        if (!comma)
            break;
    }
    return jctx_failed(c) ? NULL : keys;
}

/* sort(reverse, case_sensitive, attribute) */
FILTER(filter_sort)
{
    jseq s = jvalue_iterate(c, call->self);
    jvalue *keys = sort_keys(c, s, call->a[2], jvalue_true(c, call->a[1]));
    bool reverse = jbuiltin_int(c, call->a[0], 0) != 0;
    size_t *order = keys ? jsort_order(c, keys, s.n, reverse) : NULL;
    jvalue out = jvalue_seq(c, J_LIST, s.n);
    for (size_t i = 0; order && i < s.n; i++)
        jseq_add(c, out.seq, s.v[order[i]]);
    return out;
}

/* dictsort(case_sensitive, by, reverse) */
FILTER(filter_dictsort)
{
    bool by_value = jvalue_is(call->a[1], "value");
    if (call->self.kind != J_DICT)
        return jctx_fail(c, "dictsort needs a mapping, found '%s'", jvalue_type(call->self));
    if (call->a[1].kind != J_MISSING && !by_value && !jvalue_is(call->a[1], "key"))
        return jctx_fail(c, "dictsort sorts by \"key\" or \"value\"");
    jseq parts = { .n = call->self.dict->n,
                   .v = jctx_alloc(c, call->self.dict->n, sizeof(jvalue)) };
    for (size_t i = 0; parts.v && i < parts.n; i++)
        parts.v[i] = by_value ? call->self.dict->v[i].value : call->self.dict->v[i].key;
    jvalue *keys = order_keys(c, parts, jnone(), jvalue_true(c, call->a[0]));
    bool reverse = jbuiltin_int(c, call->a[2], 0) != 0;
    size_t *order = keys ? jsort_order(c, keys, parts.n, reverse) : NULL;
    jvalue out = jvalue_seq(c, J_LIST, parts.n);
    for (size_t i = 0; order && i < parts.n; i++) {
        const jpair *p = &call->self.dict->v[order[i]];
        jseq_add(c, out.seq, jvalue_tuple2(c, p->key, p->value));
    }
    return out;
}

/* unique(case_sensitive, attribute) */
FILTER(filter_unique)
{
    jseq s = jvalue_iterate(c, call->self), seen = { 0 };
    jvalue *keys = order_keys(c, s, call->a[1], jvalue_true(c, call->a[0]));
    jvalue out = jvalue_seq(c, J_ITER, 0);
    for (size_t i = 0; keys && i < s.n && !jctx_failed(c); i++) {
        bool known = false;
        if (!jvalue_hashable(c, keys[i]))
            break;
        for (size_t k = 0; k < seen.n && !known && !jctx_failed(c); k++)
            known = jvalue_equal(c, seen.v[k], keys[i]);
        if (known)
            continue;
        jseq_add(c, &seen, keys[i]);
        jseq_add(c, out.seq, s.v[i]);
    }
    return out;
}

/* min and max(case_sensitive, attribute): the first of equal ones. mode: max */
FILTER(filter_extreme)
{
    jseq s = jvalue_iterate(c, call->self);
    jvalue *keys = order_keys(c, s, call->a[1], jvalue_true(c, call->a[0]));
    size_t best = 0;
    if (!keys || s.n == 0)
        return jundefined("No aggregated item, sequence was empty.");
    for (size_t i = 1; i < s.n && !jctx_failed(c); i++)
        if (jvalue_compare(c, keys[i], keys[best]) * (call->mode ? 1 : -1) > 0)
            best = i;
    return s.v[best];
}

/* sum(attribute, start) */
FILTER(filter_sum)
{
    jvalue total = call->a[1].kind == J_MISSING ? jint(0) : call->a[1];
    if (total.kind == J_STR)
        return jctx_fail(c, "sum cannot add text: join does");
    jseq s = jvalue_iterate(c, call->self);
    for (size_t i = 0; i < s.n && !jctx_failed(c); i++)
        total = jops_binary(c, '+', total,
                            jgiven(call->a[0]) ? jops_path(c, s.v[i], call->a[0]) : s.v[i]);
    return total;
}

/* batch(linecount, fill_with): lists of that many elements. A count that no length reaches makes
 * one list. */
FILTER(filter_batch)
{
    jseq s = jvalue_iterate(c, call->self);
    jvalue out = jvalue_seq(c, J_ITER, 0), row = jvalue_seq(c, J_LIST, 0);
    for (size_t i = 0; i < s.n && jctx_step(c, 1); i++) {
        if (jvalue_equal(c, jint((int64_t)row.seq->n), call->a[0])) {
            jseq_add(c, out.seq, row);
            row = jvalue_seq(c, J_LIST, 0);
        }
        if (!jctx_failed(c))
            jseq_add(c, row.seq, s.v[i]);
    }
    if (jctx_failed(c) || s.n == 0)
        return out;
    bool fill = jgiven(call->a[1]) && jvalue_compare(c, jint((int64_t)row.seq->n), call->a[0]) < 0;
    int64_t n = fill ? jbuiltin_int(c, call->a[0], 0) : 0;
    while ((int64_t)row.seq->n < n && jctx_step(c, 1))
        jseq_add(c, row.seq, call->a[1]);
    jseq_add(c, out.seq, row);
    return out;
}

const jbuiltin jinja_filters_seq[] = {
    { "length", filter_length, "", 0, 0 },
    { "count", filter_length, "", 0, 0 },
    { "first", filter_first, "", 0, 0 },
    { "last", filter_last, "", 0, 0 },
    { "list", filter_list, "", 0, 0 },
    { "reverse", filter_reverse, "", 0, 0 },
    { "join", filter_join, "d attribute", 0, 0 },
    { "items", filter_items, "", 0, JLAZY },
    { "map", filter_map, "*", 0, JLAZY },
    { "select", filter_choose, "*", 0, JLAZY | KEEP },
    { "reject", filter_choose, "*", 0, JLAZY },
    { "selectattr", filter_choose, "*", 0, JLAZY | ATTRIBUTE | KEEP },
    { "rejectattr", filter_choose, "*", 0, JLAZY | ATTRIBUTE },
    { "sort", filter_sort, "reverse case_sensitive attribute", 0, 0 },
    { "dictsort", filter_dictsort, "case_sensitive by reverse", 0, 0 },
    { "unique", filter_unique, "case_sensitive attribute", 0, JLAZY },
    { "min", filter_extreme, "case_sensitive attribute", 0, 0 },
    { "max", filter_extreme, "case_sensitive attribute", 0, 1 },
    { "sum", filter_sum, "attribute start", 0, 0 },
    { "batch", filter_batch, "linecount fill_with", 1, JLAZY },
    { 0 },
};
