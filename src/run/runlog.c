#include "run/runlog.h"

#include "base/mem.h"

#include <string.h>

enum { LINE_BYTES = 1 << 24 };

void runlog_close(runlog *l)
{
    io_map_close(l->map);
    mem_free(l->path);
    *l = (runlog){ 0 };
}

pesc_status runlog_open(runlog *l, const char *run, const char *name)
{
    *l = (runlog){ .path = io_join(run, name) };
    if (!l->path)
        return fail_nomem(run, strlen(run));
    if (io_kind_of(l->path) == IO_NONE)
        return PESC_OK;
    TRY(io_map_open(&l->map, l->path));
    const unsigned char *at = l->map->data, *end = at + l->map->size;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
        l->n++;
        at++;
    }
    return PESC_OK;
}

static pesc_status parse_line(const runlog *l, size_t i, const char *at, size_t n, runlog_fn each,
                              void *ud)
{
    json_t *v;
    if (n > LINE_BYTES)
        return fail(PESC_FORMAT, "%s: line %zu is %zu bytes long, expected at most %d", l->path,
                    i + 1, n, LINE_BYTES);
    TRY(json_parse(&v, at, n, l->path));
    pesc_status s = each(ud, (json_where){ v, l->path });
    json_decref(v);
    return s;
}

pesc_status runlog_each(const runlog *l, size_t first, size_t stride, runlog_fn each, void *ud)
{
    const char *at = l->n ? (const char *)l->map->data : NULL;
    for (size_t i = 0; i < l->n; i++) {
        const char *end =
            memchr(at, '\n', (size_t)((const char *)l->map->data + l->map->size - at));
        if ((i >= first && (i - first) % stride == 0) || i + 1 == l->n)
            TRY(parse_line(l, i, at, (size_t)(end - at), each, ud));
        at = end + 1;
    }
    return l->map ? io_map_check(l->map) : PESC_OK;
}

pesc_status runlog_shape(json_where w, size_t *layers, size_t *experts)
{
    const json_t *rows = json_object_get(w.object, "layers");
    bool fits = json_array_size(rows) > 0;
    if (*layers == 0) {
        *layers = json_array_size(rows);
        *experts = json_array_size(json_array_get(rows, 0));
    }
    fits = fits && *experts && json_array_size(rows) == *layers;
    for (size_t i = 0; fits && i < *layers; i++)
        fits = json_array_size(json_array_get(rows, i)) == *experts;
    return fits ? PESC_OK
                : fail(PESC_FORMAT, "%s: layers: expected rows of the same number of shares",
                       w.file);
}

double runlog_share(json_where w, size_t layer, size_t expert)
{
    const json_t *rows = json_object_get(w.object, "layers");
    return json_number_value(json_array_get(json_array_get(rows, layer), expert));
}
