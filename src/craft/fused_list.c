#include "craft/fused_list.h"

#include "arch/fused.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void fused_list_free(fused_list *j)
{
    mem_free(j->rows);
    mem_free(j->specs);
    mem_free(j->tensors);
    mem_free(j->names);
    mem_free(j->joins);
}

/* The place of a slot in the list, from `from` on. */
static size_t find(const tensor_list *list, size_t from, const char *name)
{
    while (strcmp(list->names[from], name) != 0) {
        from++;
        ASSERT(from < list->n);
    }
    return from;
}

static void add_row(fused_list *j, const tensor_list *list, size_t i)
{
    j->rows[j->n] = list->rows[i];
    j->specs[j->n++] = list->specs[i];
}

/* Parts differ in dtype where a run has trained some, in f32: they are worked in that of the others
 * (arch/holding.h). */
static dtype both(dtype a, dtype b)
{
    return a == b ? a : a == DT_BF16 || b == DT_BF16 ? DT_BF16 : DT_F32;
}

/* The rows of one fused tensor whose first part is at `at`. */
static void add_fused(fused_list *j, const tensor_list *list, const fused_layout *l, size_t at)
{
    const size_t first = j->n;
    dtype dt = list->specs[at].dt;
    for (int32_t e = 0; e < l->experts; e++)
        for (int32_t part = 0; part < l->n_parts; part++) {
            slot s = l->parts[part];
            if (s.expert >= 0)
                slot_set_expert(&s, e);
            add_row(j, list, find(list, at, s.name));
            dt = both(dt, j->specs[j->n - 1].dt);
            if (l->plain)
                continue;
            const fused_place *p = &l->places[part];
            j->joins[j->n_joins] = (stream_join){ .base = p->base,
                                                  .group = p->group,
                                                  .group_step = p->group_step,
                                                  .row_step = p->row_step,
                                                  .col_step = p->col_step,
                                                  .cols = p->cols,
                                                  .elements = l->share,
                                                  .last = part + 1 == l->n_parts };
            j->rows[j->n - 1].join = &j->joins[j->n_joins++];
        }
    for (size_t i = first; i < j->n; i++)
        j->specs[i].dt = dt;
    safetensors_spec *t = &j->tensors[j->n_tensors];
    memcpy(j->names[j->n_tensors], l->name, sizeof l->name);
    *t = (safetensors_spec){ .name = j->names[j->n_tensors++], .dt = dt, .nd = l->nd };
    memcpy(t->ne, l->ne, (size_t)l->nd * sizeof *l->ne);
}

/* The beginnings of names as the family writes them. */
static void rename_all(fused_list *j, const family *f)
{
    for (const name_rule *r = f->names; r && r->own; r++)
        for (size_t i = 0; i < j->n_tensors; i++) {
            char old[sizeof *j->names];
            size_t n = strlen(r->own);
            memcpy(old, j->names[i], sizeof old);
            if (strncmp(old, r->own, n) == 0)
                snprintf(j->names[i], sizeof old, "%s%.100s", r->written, old + n);
        }
}

static void add_bytes(fused_list *j)
{
    for (size_t i = 0; i < j->n_tensors; i++) {
        uint64_t n = dtype_block_bytes(j->tensors[i].dt);
        for (int32_t d = 0; d < j->tensors[i].nd; d++)
            n *= (uint64_t)j->tensors[i].ne[d];
        j->bytes += n;
    }
}

pesc_status fused_list_make(fused_list *j, const tensor_list *list, const config *target)
{
    size_t i = 0;
    *j = (fused_list){ .rows = mem_alloc(list->n, sizeof *j->rows),
                       .specs = mem_alloc(list->n, sizeof *j->specs),
                       .tensors = mem_alloc(list->n, sizeof *j->tensors),
                       .names = mem_alloc(list->n, sizeof *j->names),
                       .joins = mem_alloc(list->n, sizeof *j->joins) };
    if (!j->rows || !j->specs || !j->tensors || !j->names || !j->joins)
        return fail_nomem("planning a model", list->n * sizeof *j->names);
    for (slot s = slot_first(); slot_next(target, &s); i++) {
        int32_t part = 0;
        fused_layout l;
        const fused_rule *rule = fused_rule_of(target->fam, s.rule->name, &part);
        if (!rule || !fused_layout_of(&l, target, rule, s.layer)) {
            add_row(j, list, i);
            memcpy(j->names[j->n_tensors], list->names[i], sizeof *j->names);
            j->tensors[j->n_tensors] = list->specs[i];
            j->tensors[j->n_tensors].name = j->names[j->n_tensors];
            j->n_tensors++;
        } else if (part == 0 && s.expert <= 0) {
            add_fused(j, list, &l, i);
        }
    }
    rename_all(j, target->fam);
    add_bytes(j);
    return PESC_OK;
}
