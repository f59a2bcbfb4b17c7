#include "train/parts.h"

#include "backend/code8.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/safetensors.h"

#include <stdio.h>
#include <string.h>

#define PEFT_PREFIX "base_model.model."

enum { CHUNK = 4 << 20 };

static const char *const stems[PARTS] = { "adapter_model", "trained", "optimizer" };

/* ---- collecting ---- */

static part_entry *add(part_list *l, const char *prefix, const char *name, tensor t)
{
    if (!mem_room((void **)&l->list, &l->cap, l->n, sizeof *l->list))
        return NULL;
    part_entry *to = &l->list[l->n++];
    *to = (part_entry){ .t = t };
    snprintf(to->name, sizeof to->name, "%s%s", prefix, name);
    l->bytes += tensor_bytes(&t);
    return to;
}

/* A buffer of the optimiser, of which this process has what it owns. */
static bool add_moment(parts *a, const char *name, tensor own, int64_t per)
{
    own.ne[0] = (a->p->n + per - 1) / per;
    part_entry *e = add(&a->of[PART_MOMENTS], "", name, own);
    if (e)
        e->per = per;
    return e != NULL;
}

/* LoRA on a linear or a full expert goes to a PEFT file; LoRA experts are tensors of the model. */
static bool is_peft(const params *p, const param *q)
{
    bool mixture = p->m->shape.cfg.moe.kind == EXPERT_LORA;
    return q->group == PARAM_LORA && !(mixture && strstr(q->name, ".experts."));
}

static bool add_param(parts *a, const param *q)
{
    const params *p = a->p;
    bool adapter = is_peft(p, q);
    part_entry *e = add(&a->of[adapter ? PART_ADAPTER : PART_TRAINED], adapter ? PEFT_PREFIX : "",
                        q->name, params_master(p, q));
    if (!e)
        return false;
    e->q = q;
    if (p->divided) {
        e->t.data = p->master.data;
        e->per = 1;
        e->at = q->at;
    }
    return true;
}

pesc_status parts_collect(parts *a, params *p, const optimizer *o)
{
    *a = (parts){ .p = p };
    bool fine = true;
    for (size_t i = 0; fine && i < p->n_list; i++)
        fine = add_param(a, &p->list[i]);
    if (o && fine)
        fine = add_moment(a, "m", o->m, 1) && add_moment(a, "v", o->v, 1);
    if (o && fine && o->opt.eight_bit)
        fine = add_moment(a, "m_scale", o->m_scale, CODE8_BLOCK) &&
               add_moment(a, "v_scale", o->v_scale, CODE8_BLOCK);
    return fine ? PESC_OK : fail_nomem("a checkpoint", p->n_list * sizeof(part_entry));
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

typedef struct writing {
    const parts *a;
    safetensors_spec *specs;
    safetensors_plan plan;
    safetensors_writer *file;
    void *buffer; /* [CHUNK] */
} writing;

/* Describes a file; w->specs is the caller's to free. */
static pesc_status describe(writing *w, int which, const char *dir)
{
    const part_list *l = &w->a->of[which];
    safetensors_spec *specs = w->specs = mem_zalloc(l->n, sizeof *specs);
    if (!specs)
        return fail_nomem("a checkpoint", l->n * sizeof *specs);
    for (size_t i = 0; i < l->n; i++) {
        specs[i] = (safetensors_spec){ l->list[i].name, l->list[i].t.dt, l->list[i].t.nd, { 0 } };
        memcpy(specs[i].ne, l->list[i].t.ne, sizeof l->list[i].t.ne);
    }
    w->plan = (safetensors_plan){ .dir = dir, .stem = stems[which], .specs = specs, .n = l->n };
    return PESC_OK;
}

pesc_status parts_lay_out(const parts *a, const char *dir)
{
    pesc_status s = PESC_OK;
    for (int i = 0; s == PESC_OK && i < PARTS; i++) {
        writing w = { .a = a };
        if (!a->of[i].n)
            continue;
        s = describe(&w, i, dir);
        if (s == PESC_OK)
            s = safetensors_lay_out(&w.plan);
        mem_free(w.specs);
    }
    return s;
}

/* Bytes at `p` of the device, from byte `first` of a tensor of the file on. */
static pesc_status fill_span(const writing *w, size_t tensor_at, uint64_t first, tensor span)
{
    device *dev = w->a->p->m->dev;
    bool host = w->a->on_host || dev->op->host_memory(dev);
    size_t bytes = tensor_bytes(&span);
    const char *p = span.data;
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (!host)
            TRY(dev->op->download(dev, w->buffer, p + at, n));
        TRY(safetensors_fill(w->file, tensor_at, first + at, host ? p + at : w->buffer, n));
    }
    return PESC_OK;
}

/* Fills in what this process owns of a tensor. */
static pesc_status fill_own(const writing *w, const part_entry *e, size_t tensor_at)
{
    const params *p = w->a->p;
    flat_range all = { e->at, e->at + tensor_count(&e->t) * e->per };
    size_t each = dtype_block_bytes(e->t.dt);
    for (size_t i = 0; i < p->n_own; i++) {
        flat_range own = flat_within(p->own[i].flat, all);
        uint64_t first = (uint64_t)((own.first - e->at) / e->per) * each;
        TRY(fill_span(w, tensor_at, first, flat_part(e->t, flat_own(&p->own[i], own), e->per)));
    }
    return PESC_OK;
}

/* This process' part of one file. */
static pesc_status fill_list(writing *w, int which)
{
    const part_list *l = &w->a->of[which];
    const peers *all = w->a->p->m->dev->peers;
    for (size_t i = 0; i < l->n; i++) {
        bool ours = (int32_t)(i % (size_t)peers_size(all)) == peers_rank(all);
        if (l->list[i].per)
            TRY(fill_own(w, &l->list[i], i));
        else if (ours)
            TRY(fill_span(w, i, 0, l->list[i].t));
    }
    return PESC_OK;
}

/* Begins to hash a file, while it is flushed to the disk and the next ones are written. */
static pesc_status sum_file(const parts *a, int which, const char *dir)
{
    char name[64];
    snprintf(name, sizeof name, "%s.safetensors", stems[which]);
    return runsums_add(a->sums, dir, name);
}

static pesc_status fill_file(const parts *a, int which, const char *dir)
{
    writing w = { .a = a, .buffer = mem_alloc(CHUNK, 1) };
    pesc_status s = w.buffer ? describe(&w, which, dir) : fail_nomem("a checkpoint", CHUNK);
    if (s == PESC_OK)
        s = safetensors_fill_open(&w.file, &w.plan);
    if (s == PESC_OK) {
        s = fill_list(&w, which);
        if (s == PESC_OK && a->sums)
            s = sum_file(a, which, dir);
        if (s == PESC_OK)
            s = safetensors_fill_close(w.file);
        else
            safetensors_writer_abort(w.file);
    }
    mem_free(w.specs);
    mem_free(w.buffer);
    return s;
}

/* The largest file, which has the moments, comes first: its hash takes the longest. */
pesc_status parts_fill(const parts *a, const char *dir)
{
    for (int i = PARTS; i-- > 0;)
        if (a->of[i].n)
            TRY(fill_file(a, i, dir));
    return PESC_OK;
}

/* ---- reading ---- */

typedef struct reading {
    const parts *a;
    const char *dir;
    tensor staging; /* f32 [CHUNK / 4] in device memory */
} reading;

static void read_moment(const parts *a, const part_entry *e, const weight *w)
{
    const params *p = a->p;
    device *dev = p->m->dev;
    size_t each = dtype_block_bytes(e->t.dt);
    for (size_t i = 0; i < p->n_own; i++) {
        flat_range own = p->own[i].flat;
        tensor to = flat_part(e->t, flat_own(&p->own[i], own), e->per);
        dev->op->upload(dev, to.data, w->data + (size_t)(own.first / e->per) * each,
                        tensor_bytes(&to));
    }
}

static void read_param(const reading *r, const param *q, const weight *w)
{
    device *dev = r->a->p->m->dev;
    int64_t n = (int64_t)(w->bytes / sizeof(float));
    for (int64_t at = 0; at < n; at += r->staging.ne[0]) {
        tensor x = r->staging;
        x.ne[0] = x.ne[0] < n - at ? x.ne[0] : n - at;
        dev->op->upload(dev, x.data, w->data + (size_t)at * sizeof(float), tensor_bytes(&x));
        params_put(r->a->p, q, at, x);
    }
}

/* As the table of weights has it, which drops the prefix. */
static const char *file_name(const part_entry *e)
{
    return e->name + (str_starts(e->name, PEFT_PREFIX) ? sizeof PEFT_PREFIX - 1 : 0);
}

static pesc_status read_entry(const weights *ws, const reading *r, const part_entry *e)
{
    const tensor *t = &e->t;
    const char *name = file_name(e);
    const weight *w = weights_find(ws, name);
    if (!w)
        return fail(PESC_SHAPE,
                    "%s: has no %s, which this run trains; give method, lora_targets and "
                    "lora_layers as in its run.yaml",
                    r->dir, name);
    bool same = w->dt == t->dt && w->nd == t->nd && w->bytes == tensor_bytes(t);
    for (int32_t i = 0; same && i < t->nd; i++)
        same = w->ne[i] == t->ne[i];
    if (!same)
        return fail(PESC_SHAPE,
                    "%s: %s: its shape or dtype is not that of the parameter that this run trains",
                    w->file, name);
    if (e->q)
        read_param(r, e->q, w);
    else
        read_moment(r->a, e, w);
    return PESC_OK;
}

static pesc_status read_list(weights *ws, const reading *r, int which)
{
    const part_list *l = &r->a->of[which];
    str path = { 0 };
    str_printf(&path, "%s/%s.safetensors", r->dir, stems[which]);
    pesc_status s = str_ok(&path) ? PESC_OK : fail_nomem(r->dir, 64);
    bool wanted = l->n || (which != PART_MOMENTS && str_ok(&path) && io_kind_of(path.p) == IO_FILE);
    if (s == PESC_OK && wanted)
        s = safetensors_read(ws, path.p);
    str_free(&path);
    for (size_t i = 0; s == PESC_OK && i < l->n; i++)
        s = read_entry(ws, r, &l->list[i]);
    return s;
}

static bool has_entry(const parts *a, const char *name)
{
    for (int which = 0; which < PARTS; which++)
        for (size_t i = 0; i < a->of[which].n; i++)
            if (strcmp(file_name(&a->of[which].list[i]), name) == 0)
                return true;
    return false;
}

/* A weight that is left would be lost: the run would begin with another model. */
static pesc_status check_all_used(const weights *ws, const reading *r)
{
    size_t n = 0, i = 0;
    for (int which = 0; which < PARTS; which++)
        n += r->a->of[which].n;
    if (weights_count(ws) == n) /* each was found */
        return PESC_OK;
    while (i + 1 < weights_count(ws) && has_entry(r->a, weights_at(ws, i)->name))
        i++;
    return fail(PESC_USAGE,
                "%s: has %s, which this run does not train, so that it would be lost; give method, "
                "lora_targets and lora_layers as in its run.yaml, or merge it and train the result",
                r->dir, weights_at(ws, i)->name);
}

pesc_status parts_read(const parts *a, const char *dir)
{
    device *dev = a->p->m->dev;
    reading r = { a, dir, { .dt = DT_F32, .nd = 1, .ne = { CHUNK / (int)sizeof(float) } } };
    weights *ws = NULL;
    TRY(weights_new(&ws));
    pesc_status s = dev->op->alloc(dev, CHUNK, &r.staging.data);
    for (int i = 0; s == PESC_OK && i < PARTS; i++)
        s = read_list(ws, &r, i);
    if (s == PESC_OK)
        s = check_all_used(ws, &r);
    params_write_back(a->p);
    if (s == PESC_OK)
        s = weights_check(ws);
    if (s == PESC_OK)
        s = dev->op->sync(dev); /* before the mapped files go */
    dev->op->free(dev, r.staging.data);
    weights_close(ws);
    return s;
}
