/* Methods of dictionaries and lists. */
#include "jinja/jinja_builtin.h"

#define METHOD(name) static jvalue name(jctx *c, const jcall *call)

/* ---- dictionaries ---- */

enum { KEYS, VALUES, ITEMS };
METHOD(dict_view) /* mode: of what */
{
    static const char *const labels[] = { "dict_keys", "dict_values", "dict_items" };
    const jdict *d = call->self.dict;
    jvalue out = jvalue_seq(c, J_VIEW, d->n);
    for (size_t i = 0; i < d->n && jctx_step(c, 1); i++) {
        const jpair *p = &d->v[i];
        jseq_add(c, out.seq,
                 call->mode == KEYS     ? p->key
                 : call->mode == VALUES ? p->value
                                        : jvalue_tuple2(c, p->key, p->value));
    }
    if (!jctx_failed(c))
        out.seq->label = labels[call->mode];
    return out;
}

METHOD(dict_get)
{
    const jvalue *v = jdict_get(c, call->self.dict, call->a[0]);
    return v ? *v : call->a[1].kind == J_MISSING ? jnone() : call->a[1];
}

/* copy() of a dictionary or list: values do not change, so it is the same. */
METHOD(same)
{
    return call->self.kind == J_DICT || call->self.kind == J_LIST
               ? call->self
               : jctx_fail(c, "'%s object' has no attribute 'copy'", jvalue_type(call->self));
}

const jbuiltin jinja_methods_dict[] = {
    { "keys", dict_view, "", 0, KEYS },   { "values", dict_view, "", 0, VALUES },
    { "items", dict_view, "", 0, ITEMS }, { "get", dict_get, "key default", 1, 0 },
    { "copy", same, "", 0, 0 },           { 0 },
};

/* ---- lists and tuples ---- */

METHOD(list_index)
{
    for (size_t i = 0; i < call->self.seq->n && !jctx_failed(c); i++)
        if (jvalue_equal(c, call->self.seq->v[i], call->a[0]))
            return jint((int64_t)i);
    return jctx_fail(c, "index(): the value is not in the list");
}

METHOD(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < call->self.seq->n && !jctx_failed(c); i++)
        n += jvalue_equal(c, call->self.seq->v[i], call->a[0]);
    return jint(n);
}

const jbuiltin jinja_methods_list[] = {
    { "index", list_index, "value", 1, 0 },
    { "count", list_count, "value", 1, 0 },
    { "copy", same, "", 0, 0 },
    { 0 },
};
