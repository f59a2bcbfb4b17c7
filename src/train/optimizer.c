#include "train/optimizer.h"

#include "backend/code8.h"
#include "backend/memory.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Takes the moments' tensors from `moments`, which may be the same arena as `near`. */
static void layout(optimizer *o, arena *near, arena *moments, int64_t n, bool eight_bit)
{
    dtype dt = eight_bit ? DT_U8 : DT_F32;
    int64_t blocks = (n + CODE8_BLOCK - 1) / CODE8_BLOCK;
    o->m = tensor_take1(moments, dt, n);
    o->v = tensor_take1(moments, dt, n);
    if (eight_bit) {
        o->m_scale = tensor_take1(moments, DT_F32, blocks);
        o->v_scale = tensor_take1(moments, DT_F32, blocks);
    }
    o->sumsq = tensor_take1(near, DT_F32, 1);
    o->squares = tensor_take1(near, DT_F32, FLAT_SEGMENTS);
}

uint64_t optimizer_bytes(int64_t n, bool eight_bit)
{
    optimizer o = { 0 };
    arena a = { 0 };
    layout(&o, &a, &a, n, eight_bit);
    return a.used;
}

static pesc_status open_memory(optimizer *o)
{
    static const memory_need need = { "the optimiser", "optimizer adamw8 needs less" };
    device *dev = o->p->m->dev;
    arena near = { 0 }, host = { 0 }, *moments = o->opt.paged ? &host : &near;
    int64_t n = o->p->n_kept;
    layout(o, &near, moments, n, o->opt.eight_bit);
    TRY(dev->op->reserve(dev, dev->op->scratch_bytes(dev, &(work_limits){ .trained = o->p->n })));
    TRY(memory_take(&near, dev, &need, &o->memory));
    if (o->opt.paged) {
        TRY(dev->op->alloc_host(dev, host.used, &o->paged));
        host = (arena){ .base = o->paged, .size = host.used };
        dev->op->zero(dev, o->paged, host.size);
    }
    layout(o, &near, moments, n, o->opt.eight_bit);
    o->bytes = near.size;
    o->paged_bytes = host.size;
    dev->op->zero(dev, o->memory, o->bytes);
    return PESC_OK;
}

pesc_status optimizer_open(optimizer **out, params *p, const optimizer_options *opt)
{
    *out = NULL;
    optimizer *o = mem_zalloc(1, sizeof *o);
    if (!o)
        return fail_nomem("the optimiser", sizeof *o);
    o->p = p;
    o->opt = *opt;
    pesc_status s = open_memory(o);
    if (s == PESC_OK)
        *out = o;
    else
        optimizer_close(o);
    return s;
}

void optimizer_close(optimizer *o)
{
    if (!o)
        return;
    device *dev = o->p->m->dev;
    if (o->memory)
        dev->op->free(dev, o->memory);
    if (o->paged)
        dev->op->free(dev, o->paged);
    mem_free(o);
}

/* What this process has of the gradient of a step: a part of a range that it owns. */
static tensor gradient_part(const params *p, const own_range *own, flat_range part)
{
    return p->own_grad.data ? flat_part(p->own_grad, flat_own(own, part), 1)
                            : flat_part(p->grad, part, 1);
}

/* The sums of squares of segments that follow each other, of `own`: one op, but for the last of
 * all, which may be shorter. */
static void sum_range(optimizer *o, const own_range *own)
{
    device *dev = o->p->m->dev;
    int64_t segment = o->p->segment, at = own->at / segment; /* among this process' own */
    int64_t n = (own->flat.end - own->flat.first) / segment;
    flat_range whole = { own->flat.first, own->flat.first + n * segment };
    flat_range rest = { whole.end, own->flat.end };
    if (n)
        dev->op->sumsq(dev, flat_part(o->squares, (flat_range){ at, at + n }, 1),
                       gradient_part(o->p, own, whole));
    if (rest.first < rest.end)
        dev->op->sumsq(dev, flat_part(o->squares, (flat_range){ at + n, at + n + 1 }, 1),
                       gradient_part(o->p, own, rest));
}

/* The sum of squares of every segment. Only one process does not have 0 for it, so the sum over the
 * processes has its bits. */
static pesc_status sum_segments(optimizer *o, float all[FLAT_SEGMENTS])
{
    const params *p = o->p;
    device *dev = p->m->dev;
    float own[FLAT_SEGMENTS];
    for (size_t i = 0; i < p->n_own; i++)
        sum_range(o, &p->own[i]);
    if (p->n_own)
        TRY(dev->op->download(dev, own, o->squares.data, sizeof own));
    for (size_t i = 0; i < p->n_own; i++) {
        const own_range *r = &p->own[i];
        size_t n = (size_t)((r->flat.end - r->flat.first + p->segment - 1) / p->segment);
        memcpy(all + r->flat.first / p->segment, own + r->at / p->segment, n * sizeof *own);
    }
    return peers_add(dev->peers, "the norm of the gradient", all, FLAT_SEGMENTS);
}

pesc_status optimizer_norm(optimizer *o, double *norm)
{
    device *dev = o->p->m->dev;
    float all[FLAT_SEGMENTS] = { 0 }, whole;
    double sum = 0;
    TRY(sum_segments(o, all));
    for (int64_t i = 0; i * o->p->segment < o->p->n; i++)
        sum += (double)all[i];
    whole = (float)sum;
    dev->op->upload(dev, o->sumsq.data, &whole, sizeof whole);
    *norm = sqrt((double)whole);
    return dev->op->sync(dev);
}

pesc_status optimizer_finite(optimizer *o, bool *finite)
{
    device *dev = o->p->m->dev;
    float sum = 0;
    tensor one = flat_part(o->squares, (flat_range){ 0, 1 }, 1);
    if (tensor_count(&o->p->master))
        dev->op->sumsq(dev, one, o->p->master);
    else
        dev->op->zero(dev, one.data, sizeof sum);
    TRY(dev->op->download(dev, &sum, one.data, sizeof sum));
    int64_t bad = !isfinite(sum);
    TRY(peers_most(dev->peers, "checking the weights", &bad));
    *finite = !bad;
    return PESC_OK;
}

pesc_status optimizer_step(optimizer *o, double lr, int64_t step)
{
    params *p = o->p;
    device *dev = p->m->dev;
    bool copied = params_work_whole(p);
    adamw a = { .sumsq = o->sumsq,
                .clip = (float)o->opt.clip,
                .lr = (float)lr,
                .beta1 = (float)o->opt.beta1,
                .beta2 = (float)o->opt.beta2,
                .eps = (float)o->opt.eps,
                .weight_decay = (float)o->opt.weight_decay,
                .step = (int32_t)step };
    for (size_t i = 0; i < p->n_own; i++) {
        const own_range *own = &p->own[i];
        flat_range kept = flat_own(own, own->flat);
        a.w = flat_part(p->master, p->divided ? kept : own->flat, 1);
        a.grad = gradient_part(p, own, own->flat);
        a.copy = copied ? flat_part(p->work, own->flat, 1) : (tensor){ 0 };
        a.m = flat_part(o->m, kept, 1);
        a.v = flat_part(o->v, kept, 1);
        if (o->opt.eight_bit) {
            a.m_scale = flat_part(o->m_scale, kept, CODE8_BLOCK);
            a.v_scale = flat_part(o->v_scale, kept, CODE8_BLOCK);
        }
        dev->op->adamw(dev, &a);
    }
    if (o->opt.reducer)
        return o->opt.reducer->publish(o->opt.reducer);
    if (copied)
        params_write_back(p);
    else
        params_refresh(p);
    return PESC_OK;
}
