#include "craft/gguf_layout.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static pesc_status make_order(gguf_layout *l, delta_rows rows)
{
    const gguf_delta *d = &l->d;
    int64_t n = rows == DELTA_ROWS_PLAIN
                    ? gguf_delta_count(d, DELTA_ROWS_QKV) + gguf_delta_count(d, DELTA_ROWS_VALUES)
                    : gguf_delta_count(d, rows);
    int32_t *order = l->order[rows] = mem_alloc((size_t)n, sizeof *order);
    if (!order)
        return fail_nomem("the order of rows", (size_t)n * sizeof *order);
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)(rows == DELTA_ROWS_PLAIN ? gguf_delta_grouped(d, i)
                                                      : gguf_delta_tiled(d, rows, i));
    return PESC_OK;
}

pesc_status gguf_layout_open(gguf_layout *l, const config *c)
{
    *l = (gguf_layout){ { c->delta_k_heads, c->delta_v_heads, c->delta_k_dim, c->delta_v_dim },
                        { NULL } };
    if (c->recurrent != MIXER_DELTA)
        return PESC_OK;
    if (c->delta_grouped)
        return make_order(l, DELTA_ROWS_PLAIN);
    if (c->delta_k_heads == c->delta_v_heads)
        return PESC_OK;
    TRY(make_order(l, DELTA_ROWS_QKV));
    TRY(make_order(l, DELTA_ROWS_VALUES));
    return make_order(l, DELTA_ROWS_HEADS);
}

void gguf_layout_free(gguf_layout *l)
{
    for (size_t i = 0; i < sizeof l->order / sizeof *l->order; i++)
        mem_free(l->order[i]);
}

bool gguf_layout_parts(const gguf_layout *l, const char *name, gguf_layout_part parts[2])
{
    static const char whole[] = "in_proj_qkvz.weight";
    static const char *const to[2] = { "in_proj_qkv.weight", "in_proj_z.weight" };
    const int64_t n = l->order[DELTA_ROWS_PLAIN] ? gguf_delta_count(&l->d, DELTA_ROWS_QKV) : 0;
    if (n == 0 || !str_ends(name, whole))
        return false;
    for (int i = 0; i < 2; i++) {
        snprintf(parts[i].name, sizeof parts[i].name, "%.*s%s",
                 (int)(strlen(name) - (sizeof whole - 1)), name, to[i]);
        parts[i].rows = l->order[DELTA_ROWS_PLAIN] + (i ? n : 0);
        parts[i].n = i ? gguf_delta_count(&l->d, DELTA_ROWS_VALUES) : n;
    }
    return true;
}

static void add(tensor_list *list, const stream_row *row, const safetensors_spec *spec,
                const char *name)
{
    snprintf(list->names[list->n], sizeof *list->names, "%s", name);
    list->rows[list->n] = *row;
    list->specs[list->n] = *spec;
    list->specs[list->n].name = list->names[list->n];
    list->n++;
}

pesc_status gguf_layout_split(const gguf_layout *l, tensor_list *list)
{
    const size_t most = 2 * list->n;
    tensor_list out = { .bytes = list->bytes, .n_folded = list->n_folded };
    if (!l->order[DELTA_ROWS_PLAIN])
        return PESC_OK;
    out.rows = mem_alloc(most, sizeof *out.rows);
    out.specs = mem_alloc(most, sizeof *out.specs);
    out.names = mem_alloc(most, sizeof *out.names);
    if (!out.rows || !out.specs || !out.names) {
        tensor_list_free(&out);
        return fail_nomem("planning a model", most * sizeof *out.names);
    }
    for (size_t i = 0; i < list->n; i++) {
        gguf_layout_part parts[2];
        bool split = gguf_layout_parts(l, list->names[i], parts);
        stream_row row = list->rows[i];
        safetensors_spec spec = list->specs[i];
        for (int part = 0; split && part < 2; part++) {
            row.picked = parts[part].rows;
            row.each = spec.ne[1];
            spec.ne[0] = parts[part].n;
            add(&out, &row, &spec, parts[part].name);
        }
        if (!split)
            add(&out, &row, &spec, list->names[i]);
    }
    tensor_list_free(list);
    *list = out;
    return PESC_OK;
}

const int32_t *gguf_layout_rows(const gguf_layout *l, const gguf_place *place)
{
    return place->rows == DELTA_ROWS_PLAIN || place->columns ? NULL : l->order[place->rows];
}

const int32_t *gguf_layout_columns(const gguf_layout *l, const gguf_place *place)
{
    return place->rows == DELTA_ROWS_PLAIN || !place->columns ? NULL : l->order[place->rows];
}
