#include "attach/patched.h"

#include "arch/load.h"
#include "arch/param_group.h"
#include "attach/attached.h"
#include "backend/memory.h"
#include "base/args.h"
#include "base/mem.h"
#include "run/runmodel.h"
#include "tensor/quants.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- does it belong? ---- */

/* The first and the last few numbers of a tensor, after `h`. */
static uint64_t hash_numbers(const weight *w, uint64_t h)
{
    enum { FEW = 64 };
    float x[2 * FEW] = { 0 };
    int64_t total = weights_elements(w), n = total < FEW ? total : FEW;
    bool read = weights_read_f32(w, 0, n, x) == PESC_OK &&
                weights_read_f32(w, total - n, n, x + FEW) == PESC_OK;
    return read ? XXH3_64bits_withSeed(x, sizeof x, h) : h;
}

void patched_base_hash(const config *c, const weights *ws, char out[17])
{
    uint64_t h = 0;
    for (slot s = slot_first(); slot_next(c, &s);) {
        h = XXH3_64bits_withSeed(s.name, strlen(s.name), h);
        h = XXH3_64bits_withSeed(s.ne, (size_t)s.nd * sizeof *s.ne, h);
        h = hash_numbers(bind_find(c, ws, &s), h);
    }
    str_hex(out, h);
}

static bool is_patched(const void *ctx, const slot *s)
{
    return param_chosen(ctx, s);
}

pesc_status patched_check(const patch *p, const config *c, const weights *base, const char *path)
{
    char id[17];
    if (c->moe.kind != EXPERT_FFN)
        return fail(PESC_SHAPE, "%s: is a patch for experts, but %s has none", p->dir, path);
    TRY(param_check_chosen(&p->cfg, c, p->dir));
    TRY(bind_check_part(c, p->ws, p->dir, &(bind_part){ is_patched, &p->cfg }));
    patched_base_hash(c, base, id);
    if (p->base[0] && strcmp(p->base, id) != 0)
        return fail(PESC_SHAPE, "%s: was made for another model than %s (hash %s, this one has %s)",
                    p->dir, path, p->base, id);
    return PESC_OK;
}

/* ---- in and out ---- */

typedef struct row {
    const weight *base, *patch;
    tensor to;     /* what the patch fills */
    tensor *field; /* NULL, or what pointed to the base's file and points to `to` meanwhile */
    tensor before; /* of the field */
} row;

struct patched {
    patch *p;
    row *rows;
    size_t n;
    void *memory; /* of the rows with a field */
};

static void free_patched(struct patched *w, device *dev)
{
    if (!w)
        return;
    if (w->memory)
        dev->op->free(dev, w->memory);
    patch_close(w->p);
    mem_free(w->rows);
    mem_free(w);
}

void patched_close(pesc_model *m)
{
    free_patched(m->attached->patch, m->dev);
    m->attached->patch = NULL;
    m->attached->patch_hash[0] = '\0';
}

/* An expert in the dtype of its stack, all else as in the run that trained it. */
static dtype held_in(pesc_model *m, const slot *s, const weight *trained)
{
    return s->expert >= 0 ? bind_field(&m->shape.w, s)->dt
                          : holding_of_trained(&m->attached->how, s->rule, trained);
}

/* Run twice, like every layout: `rows` are there the second time. */
static size_t lay_out(struct patched *w, pesc_model *m, arena *a)
{
    size_t n = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        if (!is_patched(&w->p->cfg, &s))
            continue;
        const weight *base = bind_find(&m->shape.cfg, m->dir->ws, &s);
        row r = { .base = base, .patch = bind_find(&m->shape.cfg, w->p->ws, &s) };
        r.to = bind_tensor(&m->shape.w, &s);
        dtype dt = held_in(m, &s, r.patch);
        if (r.to.data == (const void *)base->data || dt != r.to.dt) {
            r.field = bind_field(&m->shape.w, &s);
            r.before = r.to;
            r.to = tensor_take(a, dt, r.to.nd, r.to.ne);
        }
        if (w->rows)
            w->rows[n] = r;
        n++;
    }
    return n;
}

static pesc_status place_patch(struct patched *w, pesc_model *m)
{
    static const memory_need need = { "an expert patch", "a patch of experts alone needs less" };
    arena a = { 0 };
    w->n = lay_out(w, m, &a);
    TRY(memory_take(&a, m->dev, &need, &w->memory));
    w->rows = mem_zalloc(w->n + 1, sizeof *w->rows);
    if (!w->rows)
        return fail_nomem("an expert patch", w->n * sizeof *w->rows);
    lay_out(w, m, &a);
    return PESC_OK;
}

static pesc_status fill_rows(const struct patched *w, pesc_model *m, bool patched)
{
    load_item *items = mem_alloc(w->n + 1, sizeof *items);
    size_t n = 0;
    if (!items)
        return fail_nomem("an expert patch", w->n * sizeof *items);
    for (size_t i = 0; i < w->n; i++)
        if (patched || !w->rows[i].field)
            items[n++] = (load_item){ patched ? w->rows[i].patch : w->rows[i].base, w->rows[i].to };
    pesc_status s = load_items(m->dev, items, n, m->double_quant);
    mem_free(items);
    return s == PESC_OK ? weights_check(patched ? w->p->read : m->dir->ws) : s;
}

static void point_fields(const struct patched *w, pesc_model *m, bool patched)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i].field)
            *w->rows[i].field = patched ? w->rows[i].to : w->rows[i].before;
    if (m->shape.cfg.tie_embeddings)
        m->shape.w.head = m->shape.w.embed;
}

pesc_status patched_remove(pesc_model *m)
{
    if (!m->attached->patch)
        return PESC_OK;
    point_fields(m->attached->patch, m, false);
    pesc_status s = fill_rows(m->attached->patch, m, false);
    patched_close(m);
    return s;
}

/* A stack holds all its experts in one dtype, and numbers cannot be written into blocks. */
static pesc_status check_stacks(const struct patched *w, pesc_model *m)
{
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        dtype held = bind_field(&m->shape.w, &s)->dt;
        if (is_patched(&w->p->cfg, &s) && s.expert >= 0 && quants_is(held))
            return fail(PESC_USAGE,
                        "%s: %s is held in %s; open the model with this patch, or with base_dtype "
                        "bf16 or f32",
                        w->p->dir, s.name, dtype_name(held));
    }
    return PESC_OK;
}

/* A patch that fails half way, at a number that is not finite, leaves the base. */
static pesc_status apply_patch(pesc_model *m, struct patched *w)
{
    TRY(patched_check(w->p, &m->shape.cfg, m->dir->ws, m->dir->path));
    TRY(check_stacks(w, m));
    TRY(patched_remove(m));
    TRY(place_patch(w, m));
    pesc_status s = fill_rows(w, m, true);
    if (s != PESC_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        (void)fill_rows(w, m, false);
        return fail(s, "%s", why);
    }
    point_fields(w, m, true);
    return PESC_OK;
}

pesc_status patched_apply(pesc_model *m, const char *dir)
{
    struct patched *w = mem_zalloc(1, sizeof *w);
    if (!w)
        return fail_nomem(dir, sizeof *w);
    pesc_status s = runmodel_patch(&w->p, dir);
    if (s == PESC_OK)
        s = apply_patch(m, w);
    if (s != PESC_OK) {
        free_patched(w, m->dev);
        return s;
    }
    m->attached->patch = w;
    str_hex(m->attached->patch_hash, weights_hash(w->p->ws));
    return PESC_OK;
}

/* Tensors come from files, in and out: neither a LoRA that was folded into them nor what was
 * trained is in one. */
static pesc_status may_change(const pesc_model *m)
{
    if (m->in_training)
        return fail(PESC_USAGE, "the model has a trainer; close it before a patch is changed");
    if (m->attached->folded)
        return fail(PESC_USAGE,
                    "%s: its LoRA was added to the weights, and would be lost where a patch "
                    "changes them; open the model with the patch, or with merge_lora false",
                    m->dir->path);
    if (m->trained)
        return fail(PESC_USAGE,
                    "the model was trained, so its weights are not those of %s any "
                    "more, which a patch is for; open it again",
                    m->dir->path);
    return PESC_OK;
}

pesc_status pesc_model_patch(pesc_model *m, const char *dir)
{
    status_clear();
    NEED(m);
    NEED(dir);
    DEVICE_CALL(m->dev);
    TRY(may_change(m));
    return patched_apply(m, dir);
}

pesc_status pesc_model_unpatch(pesc_model *m)
{
    status_clear();
    NEED(m);
    DEVICE_CALL(m->dev);
    TRY(may_change(m));
    return patched_remove(m);
}
