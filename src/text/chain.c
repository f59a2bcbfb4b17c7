#include "text/chain.h"

#include "base/mem.h"
#include "base/str.h"

#include <string.h>

static pesc_status visit(chain_walk *w, const json_t *v, const str *path, int depth)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type)
        return fail(PESC_FORMAT, "%s: found %s, expected an object with a \"type\"", path->p,
                    json_kind(v));
    if (strcmp(type, "Sequence") != 0) {
        if (w->n++ == CHAIN_MAX)
            return fail(PESC_UNSUPPORTED, "%s: has more than %d steps", path->p, CHAIN_MAX);
        return w->step(w->ctx, v, type, path->p);
    }
    const json_t *list = json_object_get(v, w->list);
    if (!json_is_array(list))
        return fail(PESC_FORMAT, "%s.%s: found %s, expected an array", path->p, w->list,
                    json_kind(list));
    if (depth == CHAIN_DEEP)
        return fail(PESC_UNSUPPORTED, "%s: Sequences nest deeper than %d", path->p, CHAIN_DEEP);
    pesc_status s = PESC_OK;
    str inner = { 0 };
    for (size_t i = 0; s == PESC_OK && i < json_array_size(list); i++) {
        str_clear(&inner);
        str_printf(&inner, "%s.%s[%zu]", path->p, w->list, i);
        s = str_ok(&inner) ? visit(w, json_array_get(list, i), &inner, depth + 1)
                           : fail_nomem(w->file, inner.n);
    }
    str_free(&inner);
    return s;
}

pesc_status chain_each(chain_walk *w, const json_t *v)
{
    str path = { 0 };
    str_printf(&path, "%s: %s", w->file, w->name);
    pesc_status s = str_ok(&path) ? visit(w, v, &path, 0) : fail_nomem(w->file, path.n);
    str_free(&path);
    return s;
}
