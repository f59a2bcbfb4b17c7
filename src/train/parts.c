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
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        part_entry *p = mem_grow(l->list, cap, sizeof *p);
        if (!p)
            return NULL;
        l->list = p;
        l->cap = cap;
    }
    part_entry *to = &l->list[l->n++];
    *to = (part_entry){ .t = t };
    snprintf(to->name, sizeof to->name, "%s%s", prefix, name);
    l->bytes += tensor_bytes(&t);
    return to;
}

/* A buffer of the optimiser, of which this process has a slice. */
static bool add_moment(parts *a, const char *name, tensor slice, int64_t per)
{
    slice.ne[0] = (a->shards.n + per - 1) / per;
    part_entry *e = add(&a->of[PART_MOMENTS], "", name, slice);
    if (e)
        e->per = per;
    return e != NULL;
}

/* LoRA on a linear or a full expert goes to a PEFT file; LoRA experts are tensors of the model. */
static bool is_peft(const params *p, const param *q)
{
    bool mixture = p->m->cfg.moe.kind == EXPERT_LORA;
    return q->group == PARAM_LORA && !(mixture && strstr(q->name, ".experts."));
}

pesc_status parts_collect(parts *a, const params *p, const optimizer *o)
{
    *a = (parts){ .dev = p->m->dev, .shards = shards_of(p) };
    bool fine = true;
    for (size_t i = 0; fine && i < p->n_list; i++) {
        const param *q = &p->list[i];
        bool adapter = is_peft(p, q);
        fine = add(&a->of[adapter ? PART_ADAPTER : PART_TRAINED], adapter ? PEFT_PREFIX : "",
                   q->name, params_master(p, q));
    }
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
    device *dev = w->a->dev;
    bool host = dev->op->host_memory(dev);
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

/* The part of a buffer of the optimiser that is one segment, in the memory of its owner. */
static tensor segment_part(const parts *a, const part_entry *e, int64_t segment)
{
    const shards *s = &a->shards;
    shard_range r = shards_segment(s, segment);
    int64_t at = shards_at(s, segment);
    return shards_part(e->t, (shard_range){ at, at + r.end - r.first }, e->per);
}

static pesc_status fill_moment(const writing *w, size_t tensor_at)
{
    const shards *s = &w->a->shards;
    const part_entry *e = &w->a->of[PART_MOMENTS].list[tensor_at];
    size_t each = dtype_block_bytes(e->t.dt);
    for (int32_t i = 0; i < s->n_segments; i++) {
        uint64_t first = (uint64_t)(shards_segment(s, i).first / e->per) * each;
        if (shards_owner(s, i) == comm_rank(s->comm))
            TRY(fill_span(w, tensor_at, first, segment_part(w->a, e, i)));
    }
    return PESC_OK;
}

/* This process' part of one file. */
static pesc_status fill_list(writing *w, int which)
{
    const part_list *l = &w->a->of[which];
    const comm *c = w->a->shards.comm;
    for (size_t i = 0; i < l->n; i++) {
        bool ours = (int32_t)(i % (size_t)comm_size(c)) == comm_rank(c);
        if (which == PART_MOMENTS)
            TRY(fill_moment(w, i));
        else if (ours)
            TRY(fill_span(w, i, 0, l->list[i].t));
    }
    return PESC_OK;
}

static pesc_status fill_file(const parts *a, int which, const char *dir)
{
    writing w = { .a = a, .buffer = mem_alloc(CHUNK, 1) };
    pesc_status s = w.buffer ? describe(&w, which, dir) : fail_nomem("a checkpoint", CHUNK);
    if (s == PESC_OK)
        s = safetensors_fill_open(&w.file, &w.plan);
    if (s == PESC_OK) {
        s = fill_list(&w, which);
        if (s == PESC_OK)
            s = safetensors_fill_close(w.file);
        else
            safetensors_writer_abort(w.file);
    }
    mem_free(w.specs);
    mem_free(w.buffer);
    return s;
}

pesc_status parts_fill(const parts *a, const char *dir)
{
    for (int i = 0; i < PARTS; i++)
        if (a->of[i].n)
            TRY(fill_file(a, i, dir));
    return PESC_OK;
}

/* ---- reading ---- */

static void read_moment(const parts *a, const part_entry *e, const weight *w)
{
    const shards *s = &a->shards;
    tensor file = { .data = (void *)(uintptr_t)w->data, .dt = e->t.dt };
    for (int32_t i = 0; i < s->n_segments; i++) {
        tensor to = segment_part(a, e, i), from = shards_part(file, shards_segment(s, i), e->per);
        if (shards_owner(s, i) == comm_rank(s->comm))
            a->dev->op->upload(a->dev, to.data, from.data, tensor_bytes(&to));
    }
}

static pesc_status read_entry(const weights *ws, const parts *a, const part_entry *e,
                              const char *dir)
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
    if (e->per)
        read_moment(a, e, w);
    else if (w->bytes)
        a->dev->op->upload(a->dev, t->data, w->data, w->bytes);
    return PESC_OK;
}

static pesc_status read_list(weights *ws, const parts *a, int which, const char *dir)
{
    const part_list *l = &a->of[which];
    str path = { 0 };
    str_printf(&path, "%s/%s.safetensors", dir, stems[which]);
    pesc_status s = str_ok(&path) ? safetensors_read(ws, path.p) : fail_nomem(dir, 64);
    str_free(&path);
    for (size_t i = 0; s == PESC_OK && i < l->n; i++)
        s = read_entry(ws, a, &l->list[i], dir);
    return s;
}

pesc_status parts_read(const parts *a, const char *dir)
{
    weights *ws = NULL;
    TRY(weights_new(&ws));
    pesc_status s = PESC_OK;
    for (int i = 0; s == PESC_OK && i < PARTS; i++)
        if (a->of[i].n)
            s = read_list(ws, a, i, dir);
    if (s == PESC_OK)
        s = weights_check(ws);
    if (s == PESC_OK)
        s = a->dev->op->sync(a->dev); /* before the mapped files go */
    weights_close(ws);
    return s;
}
