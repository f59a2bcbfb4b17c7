#include "train/optimizer.h"

#include "backend/code8.h"
#include "base/mem.h"
#include "model/memory.h"

#include <math.h>

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
    layout(o, &near, moments, o->p->n, o->opt.eight_bit);
    TRY(dev->op->reserve(dev, dev->op->scratch_bytes(dev, &(work_limits){ .trained = o->p->n })));
    TRY(memory_take(&near, dev, &need, &o->memory));
    if (o->opt.paged) {
        TRY(dev->op->alloc_host(dev, host.used, &o->paged));
        host = (arena){ .base = o->paged, .size = host.used };
        dev->op->zero(dev, o->paged, host.size);
    }
    layout(o, &near, moments, o->p->n, o->opt.eight_bit);
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

static pesc_status sum_squares(optimizer *o, tensor x, float *sum)
{
    device *dev = o->p->m->dev;
    dev->op->sumsq(dev, o->sumsq, x);
    return dev->op->download(dev, sum, o->sumsq.data, sizeof *sum);
}

pesc_status optimizer_norm(optimizer *o, double *norm)
{
    float sum = 0;
    TRY(sum_squares(o, o->p->grad, &sum));
    *norm = sqrt((double)sum);
    return PESC_OK;
}

pesc_status optimizer_finite(optimizer *o, bool *finite)
{
    float sum = 0;
    TRY(sum_squares(o, o->p->master, &sum));
    *finite = isfinite(sum);
    return PESC_OK;
}

void optimizer_step(optimizer *o, double lr, int64_t step)
{
    device *dev = o->p->m->dev;
    bool whole = params_work_whole(o->p);
    dev->op->adamw(dev, &(adamw){ .w = o->p->master,
                                  .grad = o->p->grad,
                                  .m = o->m,
                                  .v = o->v,
                                  .m_scale = o->m_scale,
                                  .v_scale = o->v_scale,
                                  .copy = whole ? o->p->work : (tensor){ 0 },
                                  .sumsq = o->sumsq,
                                  .clip = (float)o->opt.clip,
                                  .lr = (float)lr,
                                  .beta1 = (float)o->opt.beta1,
                                  .beta2 = (float)o->opt.beta2,
                                  .eps = (float)o->opt.eps,
                                  .weight_decay = (float)o->opt.weight_decay,
                                  .step = (int32_t)step });
    if (whole)
        params_write_back(o->p);
    else
        params_refresh(o->p);
}
