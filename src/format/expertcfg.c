#include "format/expertcfg.h"

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 1 << 20 };

void expertcfg_free(expertcfg *c)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        mem_free(c->layers[i].listed);
        mem_free(c->layers[i].ids);
        mem_free(c->layers[i].domains);
    }
    for (size_t i = 0; i < c->n_domains; i++)
        mem_free(c->domains[i]);
    mem_free(c->domains);
    mem_free(c->layers);
    *c = (expertcfg){ 0 };
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

pesc_status expertcfg_add(expertcfg *c, int32_t layer, const int32_t *listed, int32_t n)
{
    expertcfg_layer *all = mem_grow(c->layers, c->n_layers + 1, sizeof *all);
    if (!all)
        return fail_nomem("an expert configuration", (c->n_layers + 1) * sizeof *all);
    c->layers = all;
    size_t room = n > 0 ? (size_t)n : 1;
    expertcfg_layer l = { .layer = layer,
                          .n = n,
                          .listed = mem_alloc(room, sizeof *l.listed),
                          .ids = mem_alloc(room, sizeof *l.ids) };
    all[c->n_layers++] = l;
    if (!l.listed || !l.ids)
        return fail_nomem("an expert configuration", room * sizeof *l.ids);
    if (n > 0) {
        memcpy(l.listed, listed, (size_t)n * sizeof *listed);
        memcpy(l.ids, listed, (size_t)n * sizeof *listed);
        qsort(l.ids, (size_t)n, sizeof *l.ids, ascending);
    }
    return PESC_OK;
}

/* ---- reading ---- */

/* One layer's list. */
static pesc_status read_layer(expertcfg *c, const char *key, const json_t *list, const char *where)
{
    long long layer;
    bool plain = key[0] != '0' || key[1] == '\0';
    if (!plain || !str_to_i64(key, 0, INT32_MAX, &layer))
        return fail(PESC_FORMAT,
                    "%s: experts: found the key \"%s\", expected a layer such as \"1\"", where,
                    key);
    if (!json_is_array(list))
        return fail(PESC_FORMAT, "%s: experts.%s: found %s, expected a list of experts", where, key,
                    json_kind(list));
    size_t n = json_array_size(list);
    int32_t *ids = mem_alloc(n ? n : 1, sizeof *ids);
    if (!ids)
        return fail_nomem(where, n * sizeof *ids);
    pesc_status s = PESC_OK;
    for (size_t i = 0; i < n && s == PESC_OK; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= INT32_MAX)
            s = fail(PESC_FORMAT, "%s: experts.%s[%zu]: found %s, expected the number of an expert",
                     where, key, i, json_is_integer(v) ? "one out of range" : json_kind(v));
        else
            ids[i] = (int32_t)id;
    }
    if (s == PESC_OK)
        s = expertcfg_add(c, (int32_t)layer, ids, (int32_t)n);
    mem_free(ids);
    TRY(s);
    const expertcfg_layer *l = &c->layers[c->n_layers - 1];
    for (int32_t i = 1; i < l->n; i++)
        if (l->ids[i] == l->ids[i - 1])
            return fail(PESC_FORMAT, "%s: experts.%s: expert %d is listed twice", where, key,
                        l->ids[i]);
    return PESC_OK;
}

static pesc_status check_keys(const json_t *v, const char *where)
{
    static const char *const known[] = { "experts", "shared_experts", "non_expert_modules" };
    const size_t n_known = sizeof known / sizeof *known;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        size_t i = 0;
        while (i < n_known && strcmp(key, known[i]) != 0)
            i++;
        if (i == n_known)
            return fail(PESC_FORMAT,
                        "%s: %s: is not known; expected experts, shared_experts and "
                        "non_expert_modules",
                        where, key);
    }
    return PESC_OK;
}

static pesc_status read_all(expertcfg *out, const json_t *v, const char *where)
{
    if (!json_is_object(v))
        return fail(PESC_FORMAT, "%s: found %s, expected an object with experts", where,
                    json_kind(v));
    TRY(check_keys(v, where));
    json_t *experts = json_object_get(v, "experts");
    if (!json_is_object(experts))
        return fail(PESC_FORMAT, "%s: experts: found %s, expected an object of layers", where,
                    json_kind(experts));
    const char *key;
    json_t *list;
    json_object_foreach(experts, key, list) TRY(read_layer(out, key, list, where));
    json_where w = { v, where };
    TRY(json_get_bool(w, "shared_experts", false, &out->shared_experts));
    return json_get_bool(w, "non_expert_modules", false, &out->non_expert_modules);
}

pesc_status expertcfg_parse(expertcfg *out, const char *text, size_t n, const char *where)
{
    json_t *v;
    *out = (expertcfg){ 0 };
    TRY(json_parse(&v, text, n, where));
    pesc_status s = read_all(out, v, where);
    json_decref(v);
    return s;
}

pesc_status expertcfg_read(expertcfg *out, const char *path)
{
    char *text;
    size_t n;
    *out = (expertcfg){ 0 };
    TRY(io_read_file(path, FILE_BYTES, &text, &n));
    pesc_status s = expertcfg_parse(out, text, n, path);
    mem_free(text);
    return s;
}

/* ---- several domains ---- */

/* Makes room for n more. */
static pesc_status grow_layer(expertcfg_layer *l, int32_t n)
{
    const size_t room = (size_t)l->n + (size_t)n + 1;
    int32_t *listed = mem_grow(l->listed, room, sizeof *listed);
    l->listed = listed ? listed : l->listed;
    int32_t *ids = mem_grow(l->ids, room, sizeof *ids);
    l->ids = ids ? ids : l->ids;
    uint64_t *domains = mem_grow(l->domains, room, sizeof *domains);
    l->domains = domains ? domains : l->domains;
    return listed && ids && domains ? PESC_OK
                                    : fail_nomem("an expert configuration", room * sizeof *ids);
}

static void add_expert(expertcfg_layer *l, int32_t expert, uint64_t bit)
{
    int32_t at = 0;
    while (at < l->n && l->ids[at] < expert)
        at++;
    if (at < l->n && l->ids[at] == expert) {
        l->domains[at] |= bit;
        return;
    }
    for (int32_t i = l->n; i > at; i--) {
        l->ids[i] = l->ids[i - 1];
        l->domains[i] = l->domains[i - 1];
    }
    l->ids[at] = l->listed[l->n++] = expert;
    l->domains[at] = bit;
}

static pesc_status add_name(expertcfg *c, const char *name)
{
    char **all = mem_grow(c->domains, c->n_domains + 1, sizeof *all);
    char *copy = mem_strdup(name);
    c->domains = all ? all : c->domains;
    if (!all || !copy) {
        mem_free(copy);
        return fail_nomem("an expert configuration", strlen(name));
    }
    c->domains[c->n_domains++] = copy;
    return PESC_OK;
}

pesc_status expertcfg_add_domain(expertcfg *out, const char *name, const expertcfg *c)
{
    const uint64_t bit = (uint64_t)1 << out->n_domains;
    ASSERT(out->n_domains < EXPERTCFG_DOMAINS);
    if (!out->n_domains) {
        out->shared_experts = c->shared_experts;
        out->non_expert_modules = c->non_expert_modules;
    }
    TRY(add_name(out, name));
    for (size_t i = 0; i < c->n_layers; i++) {
        const expertcfg_layer *from = &c->layers[i];
        if (!expertcfg_find(out, from->layer))
            TRY(expertcfg_add(out, from->layer, NULL, 0));
        expertcfg_layer *l = out->layers;
        while (l->layer != from->layer)
            l++;
        TRY(grow_layer(l, from->n));
        for (int32_t k = 0; k < from->n; k++)
            add_expert(l, from->listed[k], bit);
    }
    return PESC_OK;
}

/* ---- asking ---- */

const expertcfg_layer *expertcfg_find(const expertcfg *c, int32_t layer)
{
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].layer == layer)
            return &c->layers[i];
    return NULL;
}

bool expertcfg_has(const expertcfg *c, int32_t layer, int32_t expert)
{
    const expertcfg_layer *l = expertcfg_find(c, layer);
    return l && l->n && bsearch(&expert, l->ids, (size_t)l->n, sizeof *l->ids, ascending);
}

int64_t expertcfg_total(const expertcfg *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->n_layers; i++)
        n += c->layers[i].n;
    return n;
}

pesc_status expertcfg_check(const expertcfg *c, expertcfg_shape shape, const char *where)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        const expertcfg_layer *l = &c->layers[i];
        if (l->layer >= shape.n_layers)
            return fail(PESC_FORMAT,
                        "%s: experts.%d: the model's layers are 0 to %d (layers are counted from "
                        "0)",
                        where, l->layer, shape.n_layers - 1);
        if (!shape.sparse[l->layer])
            return fail(PESC_FORMAT, "%s: experts.%d: this layer of the model has no experts",
                        where, l->layer);
        if (l->n > 0 && l->ids[l->n - 1] >= shape.n_experts)
            return fail(PESC_FORMAT, "%s: experts.%d: found expert %d, expected 0 to %d", where,
                        l->layer, l->ids[l->n - 1], shape.n_experts - 1);
    }
    for (int32_t layer = 0; layer < shape.n_layers; layer++)
        if (shape.sparse[layer] && !expertcfg_find(c, layer))
            return fail(PESC_FORMAT,
                        "%s: experts: layer %d is missing; write \"%d\": [] where none of its "
                        "experts train",
                        where, layer, layer);
    return PESC_OK;
}

/* ---- writing ---- */

void expertcfg_put(str *out, const expertcfg *c)
{
    str_puts(out, "{\"experts\": {");
    for (size_t i = 0; i < c->n_layers; i++) {
        const expertcfg_layer *l = &c->layers[i];
        str_printf(out, "%s\"%d\": [", i ? ", " : "", l->layer);
        for (int32_t k = 0; k < l->n; k++)
            str_printf(out, "%s%d", k ? ", " : "", l->listed[k]);
        str_putc(out, ']');
    }
    str_printf(out, "}, \"shared_experts\": %s, \"non_expert_modules\": %s}",
               c->shared_experts ? "true" : "false", c->non_expert_modules ? "true" : "false");
}

pesc_status expertcfg_write(const expertcfg *c, const char *path)
{
    str text = { 0 };
    expertcfg_put(&text, c);
    pesc_status s = str_ok(&text) ? io_write_file(path, text.p, text.n) : fail_nomem(path, text.n);
    str_free(&text);
    return s;
}
