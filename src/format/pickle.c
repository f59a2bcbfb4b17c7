#include "format/pickle.h"

#include "format/pickle_vm.h"

static pickle_tensor describe(const machine *m, const pair *p)
{
    const value *key = pickle_value(m, p->key),
                *args = pickle_value(m, pickle_value(m, p->value)->a);
    const value *storage = pickle_value(m, pickle_member(m, args, 0)->a);
    const value *size = pickle_member(m, args, 2), *stride = pickle_member(m, args, 3);
    pickle_tensor t = {
        .name = (const char *)m->code + key->b,
        .name_bytes = key->a,
        .key = (const char *)m->code + pickle_member(m, storage, 2)->b,
        .key_bytes = pickle_member(m, storage, 2)->a,
        .dt = pickle_globals[pickle_member(m, storage, 1)->a].dt,
        .storage_elements = (int64_t)pickle_member(m, storage, 4)->b,
        .offset = (int64_t)pickle_member(m, args, 1)->b,
        .nd = (int32_t)size->a,
    };
    for (size_t i = 0; i < size->a; i++) {
        t.ne[i] = (int64_t)pickle_member(m, size, i)->b;
        t.stride[i] = (int64_t)pickle_member(m, stride, i)->b;
    }
    return t;
}

static pesc_status deliver(machine *m, pickle_fn fn, void *ctx)
{
    uint32_t top = 0;
    TRY(pickle_run(m, &top));
    const value *dict = pickle_value(m, top);
    if (dict->kind != K_DICT)
        return pickle_bad(m, "the file holds %s, expected a dictionary of tensors",
                          pickle_kind_names[dict->kind]);
    for (uint32_t i = dict->a; i;) {
        const pair *p = (const pair *)m->pairs.p + i - 1;
        const value *key = pickle_value(m, p->key), *item = pickle_value(m, p->value);
        if (key->kind != K_STRING)
            return pickle_bad(m, "a key of the dictionary is %s, expected a string",
                              pickle_kind_names[key->kind]);
        if (item->kind != K_TENSOR)
            return pickle_bad(m, "entry %.*s is %s, expected a tensor",
                              (int)(key->a < 200 ? key->a : 200), (const char *)m->code + key->b,
                              pickle_kind_names[item->kind]);
        pickle_tensor t = describe(m, p);
        TRY(fn(ctx, &t));
        i = p->next;
    }
    return PESC_OK;
}

pesc_status pickle_tensors(const char *file, const unsigned char *bytes, size_t n, pickle_fn fn,
                           void *ctx)
{
    machine m;
    pickle_begin(&m, file, bytes, n);
    pesc_status s = deliver(&m, fn, ctx);
    pickle_end(&m);
    return s;
}
