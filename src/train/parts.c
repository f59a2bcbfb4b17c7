#include "train/parts.h"

#include "base/mem.h"
#include "base/str.h"
#include "format/safetensors.h"

#include <stdio.h>
#include <string.h>

#define PEFT_PREFIX "base_model.model."

enum { CHUNK = 4 << 20 };

static const char *const stems[PARTS] = { "adapter_model", "trained", "optimizer" };

/* ---- collecting ---- */

static pesc_status add(part_list *l, const char *prefix, const char *name, tensor t)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        part_entry *p = mem_grow(l->list, cap, sizeof *p);
        if (!p)
            return fail_nomem("a checkpoint", cap * sizeof *p);
        l->list = p;
        l->cap = cap;
    }
    part_entry *to = &l->list[l->n++];
    to->t = t;
    snprintf(to->name, sizeof to->name, "%s%s", prefix, name);
    l->bytes += tensor_bytes(&t);
    return PESC_OK;
}

/* LoRA on a linear goes to a PEFT file; LoRA experts are tensors of the model. */
static bool is_peft(const param *q)
{
    return q->group == PARAM_LORA && !strstr(q->name, ".experts.");
}

pesc_status parts_collect(parts *a, const params *p, const optimizer *o)
{
    *a = (parts){ .dev = p->m->dev };
    for (size_t i = 0; i < p->n_list; i++) {
        const param *q = &p->list[i];
        bool adapter = is_peft(q);
        TRY(add(&a->of[adapter ? PART_ADAPTER : PART_TRAINED], adapter ? PEFT_PREFIX : "", q->name,
                params_master(p, q)));
    }
    if (!o)
        return PESC_OK;
    part_list *l = &a->of[PART_MOMENTS];
    TRY(add(l, "", "m", o->m));
    TRY(add(l, "", "v", o->v));
    if (!o->opt.eight_bit)
        return PESC_OK;
    TRY(add(l, "", "m_scale", o->m_scale));
    return add(l, "", "v_scale", o->v_scale);
}

void parts_free(parts *a)
{
    for (int i = 0; i < PARTS; i++)
        mem_free(a->of[i].list);
    *a = (parts){ 0 };
}

uint64_t parts_bytes(const parts *a)
{
    uint64_t n = 0;
    for (int i = 0; i < PARTS; i++)
        n += a->of[i].bytes + (uint64_t)a->of[i].n * 256; /* 256: an entry of a header */
    return n;
}

/* ---- writing ---- */

static pesc_status write_tensor(safetensors_writer *w, device *dev, const tensor *t, void *buffer)
{
    const char *p = t->data;
    bool host = dev->op->host_memory(dev);
    for (size_t at = 0, total = tensor_bytes(t); at < total; at += CHUNK) {
        size_t n = total - at < CHUNK ? total - at : CHUNK;
        if (!host)
            TRY(dev->op->download(dev, buffer, p + at, n));
        TRY(safetensors_write(w, host ? p + at : buffer, n));
    }
    return PESC_OK;
}

static pesc_status write_list(const part_list *l, device *dev, const char *dir, const char *stem)
{
    safetensors_writer *w = NULL;
    safetensors_spec *specs = mem_zalloc(l->n, sizeof *specs);
    void *buffer = mem_alloc(CHUNK, 1);
    pesc_status s = specs && buffer ? PESC_OK : fail_nomem("a checkpoint", CHUNK);
    for (size_t i = 0; s == PESC_OK && i < l->n; i++) {
        specs[i] = (safetensors_spec){ l->list[i].name, l->list[i].t.dt, l->list[i].t.nd, { 0 } };
        memcpy(specs[i].ne, l->list[i].t.ne, sizeof l->list[i].t.ne);
    }
    if (s == PESC_OK)
        s = safetensors_writer_open(
            &w, &(safetensors_plan){ .dir = dir, .stem = stem, .specs = specs, .n = l->n });
    for (size_t i = 0; s == PESC_OK && i < l->n; i++)
        s = write_tensor(w, dev, &l->list[i].t, buffer);
    if (s == PESC_OK)
        s = safetensors_writer_finish(w);
    else
        safetensors_writer_abort(w);
    mem_free(buffer);
    mem_free(specs);
    return s;
}

pesc_status parts_write(const parts *a, const char *dir)
{
    for (int i = 0; i < PARTS; i++)
        if (a->of[i].n)
            TRY(write_list(&a->of[i], a->dev, dir, stems[i]));
    return PESC_OK;
}

/* ---- reading ---- */

static pesc_status read_entry(const weights *ws, device *dev, const part_entry *e, const char *dir)
{
    const tensor *t = &e->t;
    const char *name = e->name;
    name += str_starts(name, PEFT_PREFIX) ? sizeof PEFT_PREFIX - 1 : 0; /* the table drops it */
    const weight *w = weights_find(ws, name);
    if (!w)
        return fail(PESC_SHAPE, "%s: holds no %s, which shall train", dir, name);
    bool same = w->dt == t->dt && w->nd == t->nd && w->bytes == tensor_bytes(t);
    for (int32_t i = 0; same && i < t->nd; i++)
        same = w->ne[i] == t->ne[i];
    if (!same)
        return fail(PESC_SHAPE, "%s: %s: its shape or dtype is not that of what shall train",
                    w->file, name);
    dev->op->upload(dev, t->data, w->data, w->bytes);
    return PESC_OK;
}

static pesc_status read_list(weights *ws, const part_list *l, device *dev, const char *dir,
                             const char *stem)
{
    str path = { 0 };
    str_printf(&path, "%s/%s.safetensors", dir, stem);
    pesc_status s = str_ok(&path) ? safetensors_read(ws, path.p) : fail_nomem(dir, 64);
    str_free(&path);
    for (size_t i = 0; s == PESC_OK && i < l->n; i++)
        s = read_entry(ws, dev, &l->list[i], dir);
    return s;
}

pesc_status parts_read(const parts *a, const char *dir)
{
    weights *ws = NULL;
    TRY(weights_new(&ws));
    pesc_status s = PESC_OK;
    for (int i = 0; s == PESC_OK && i < PARTS; i++)
        if (a->of[i].n)
            s = read_list(ws, &a->of[i], a->dev, dir, stems[i]);
    if (s == PESC_OK)
        s = weights_check(ws);
    if (s == PESC_OK)
        s = a->dev->op->sync(a->dev); /* before the mapped files go */
    weights_close(ws);
    return s;
}
