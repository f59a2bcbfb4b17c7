#include "tokenizer/chain.h"

#include "base/mem.h"
#include "base/str.h"

#include <string.h>

typedef struct walk {
    const chain *c;
    void *component;
    const char *file;
    size_t n; /* steps so far */
} walk;

static pesc_status visit(walk *w, const json_t *v, const str *path, int depth)
{
    const char *type = json_string_value(json_object_get(v, "type")), *list_key = w->c->list;
    if (!type)
        return fail(PESC_FORMAT, "%s: found %s, expected an object with a \"type\"", path->p,
                    json_kind(v));
    if (strcmp(type, "Sequence") != 0) {
        if (w->n++ == CHAIN_MAX)
            return fail(PESC_UNSUPPORTED, "%s: has more than %d steps", path->p, CHAIN_MAX);
        return w->c->step(w->component, v, type, path->p);
    }
    const json_t *list = json_object_get(v, list_key);
    if (!json_is_array(list))
        return fail(PESC_FORMAT, "%s.%s: found %s, expected an array", path->p, list_key,
                    json_kind(list));
    if (depth == CHAIN_DEEP)
        return fail(PESC_UNSUPPORTED, "%s: Sequences nest deeper than %d", path->p, CHAIN_DEEP);
    pesc_status s = PESC_OK;
    str inner = { 0 };
    for (size_t i = 0; s == PESC_OK && i < json_array_size(list); i++) {
        str_clear(&inner);
        str_printf(&inner, "%s.%s[%zu]", path->p, list_key, i);
        s = str_ok(&inner) ? visit(w, json_array_get(list, i), &inner, depth + 1)
                           : fail_nomem(w->file, inner.n);
    }
    str_free(&inner);
    return s;
}

pesc_status chain_each(const chain *c, void *component, const json_t *v, const char *file)
{
    walk w = { c, component, file, 0 };
    str path = { 0 };
    str_printf(&path, "%s: %s", file, c->name);
    pesc_status s = str_ok(&path) ? visit(&w, v, &path, 0) : fail_nomem(file, path.n);
    str_free(&path);
    return s;
}

pesc_status chain_open(void **out, const chain *c, const json_t *v, const char *file)
{
    *out = NULL;
    if (!v || json_is_null(v))
        return PESC_OK;
    void *component = mem_zalloc(1, c->bytes);
    if (!component)
        return fail_nomem(file, c->bytes);
    pesc_status s = chain_each(c, component, v, file);
    if (s == PESC_OK)
        *out = component;
    else
        c->close(component);
    return s;
}

pesc_status chain_find(const void **row, const chain_table *t, const char *type, const char *where)
{
    for (size_t i = 0; i < t->n; i++) {
        *row = (const char *)t->rows + i * t->row_bytes;
        if (strcmp(*(const char *const *)*row, type) == 0)
            return PESC_OK;
    }
    return fail(PESC_UNSUPPORTED, "%s: the %s type '%s' is not supported", where, t->name, type);
}
