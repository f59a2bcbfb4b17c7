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

/* LoRA on a linear goes to a PEFT file; LoRA experts are tensors of the model. */
static bool is_peft(const param *q)
{
    return q->group == PARAM_LORA && !strstr(q->name, ".experts.");
}

pesc_status parts_collect(parts *a, const params *p, const optimizer *o)
{
    *a = (parts){ .dev = p->m->dev, .shards = shards_of(p) };
    bool fine = true;
    for (size_t i = 0; fine && i < p->n_list; i++) {
        const param *q = &p->list[i];
        bool adapter = is_peft(q);
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
    safetensors_writer *file; /* NULL: this process only sends */
    safetensors_spec *specs;  /* of `file` */
    void *buffer;             /* [CHUNK] */
    comm_part *send, *recv;   /* [size] */
} writing;

static pesc_status write_span(const writing *w, const char *p, size_t bytes)
{
    device *dev = w->a->dev;
    bool host = dev->op->host_memory(dev);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (!host)
            TRY(dev->op->download(dev, w->buffer, p + at, n));
        TRY(safetensors_write(w->file, host ? p + at : w->buffer, n));
    }
    return PESC_OK;
}

/* Sends n bytes of a rank, at `from` there, to the buffer of rank 0. */
static pesc_status fetch(const writing *w, int32_t rank, const char *from, size_t n)
{
    comm *c = w->a->shards.comm;
    device *dev = w->a->dev;
    bool sends = comm_rank(c) == rank;
    for (int32_t r = 0; r < comm_size(c); r++) {
        w->send[r] = (comm_part){ w->buffer, sends && r == 0 ? n : 0 };
        w->recv[r] = (comm_part){ w->buffer, comm_leads(c) && r == rank ? n : 0 };
    }
    if (sends)
        TRY(dev->op->download(dev, w->buffer, from, n));
    return comm_all_to_all(c, "the moments for a checkpoint", w->send, w->recv);
}

/* The part of a buffer of the optimiser that is one segment, in the memory of its owner. */
static tensor segment_part(const parts *a, const part_entry *e, int64_t segment)
{
    const shards *s = &a->shards;
    shard_range r = shards_segment(s, segment);
    int64_t at = shards_at(s, segment);
    return shards_part(e->t, (shard_range){ at, at + r.end - r.first }, e->per);
}

/* A buffer of the optimiser, segment by segment. *st is the outcome of writing; the result that of
 * the exchange. */
static pesc_status write_moment(const writing *w, const part_entry *e, pesc_status *st)
{
    const shards *s = &w->a->shards;
    for (int32_t i = 0; i < s->n_segments; i++) {
        tensor own = segment_part(w->a, e, i);
        size_t bytes = tensor_bytes(&own);
        if (shards_owner(s, i) == 0) {
            if (w->file && *st == PESC_OK)
                *st = write_span(w, own.data, bytes);
            continue;
        }
        for (size_t at = 0; at < bytes; at += CHUNK) {
            size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
            TRY(fetch(w, shards_owner(s, i), (const char *)own.data + at, n));
            if (w->file && *st == PESC_OK)
                *st = safetensors_write(w->file, w->buffer, n);
        }
    }
    return PESC_OK;
}

static pesc_status open_file(writing *w, const part_list *l, const char *dir, const char *stem)
{
    safetensors_spec *specs = w->specs = mem_zalloc(l->n, sizeof *specs);
    if (!specs)
        return fail_nomem("a checkpoint", l->n * sizeof *specs);
    for (size_t i = 0; i < l->n; i++) {
        specs[i] = (safetensors_spec){ l->list[i].name, l->list[i].t.dt, l->list[i].t.nd, { 0 } };
        memcpy(specs[i].ne, l->list[i].t.ne, sizeof l->list[i].t.ne);
    }
    return safetensors_writer_open(
        &w->file, &(safetensors_plan){ .dir = dir, .stem = stem, .specs = specs, .n = l->n });
}

static pesc_status close_file(writing *w, pesc_status s)
{
    if (s == PESC_OK && w->file)
        return safetensors_writer_finish(w->file);
    if (w->file)
        safetensors_writer_abort(w->file);
    return s;
}

static pesc_status write_list(const parts *a, int which, const char *dir)
{
    const part_list *l = &a->of[which];
    size_t size = (size_t)comm_size(a->shards.comm);
    writing w = { .a = a,
                  .buffer = mem_alloc(CHUNK, 1),
                  .send = mem_zalloc(size, sizeof *w.send),
                  .recv = mem_zalloc(size, sizeof *w.recv) };
    pesc_status sent = w.buffer && w.send && w.recv ? PESC_OK : fail_nomem("a checkpoint", CHUNK);
    pesc_status s = sent;
    if (sent == PESC_OK && dir)
        s = open_file(&w, l, dir, stems[which]);
    for (size_t i = 0; sent == PESC_OK && i < l->n; i++) {
        const part_entry *e = &l->list[i];
        if (e->per)
            sent = write_moment(&w, e, &s);
        else if (s == PESC_OK)
            s = write_span(&w, e->t.data, tensor_bytes(&e->t));
    }
    s = close_file(&w, sent != PESC_OK ? sent : s);
    mem_free(w.specs);
    mem_free(w.buffer);
    mem_free(w.send);
    mem_free(w.recv);
    return s;
}

pesc_status parts_write_weights(const parts *a, const char *dir)
{
    for (int i = 0; i < PART_MOMENTS; i++)
        if (a->of[i].n)
            TRY(write_list(a, i, dir));
    return PESC_OK;
}

pesc_status parts_write_moments(const parts *a, const char *dir)
{
    return a->of[PART_MOMENTS].n ? write_list(a, PART_MOMENTS, dir) : PESC_OK;
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
