#include "train/optimizer.h"

#include "backend/code8.h"
#include "base/mem.h"
#include "model/memory.h"

#include <math.h>

static void layout(optimizer *o, arena *a, int64_t n, bool eight_bit)
{
    dtype dt = eight_bit ? DT_U8 : DT_F32;
    int64_t blocks = (n + CODE8_BLOCK - 1) / CODE8_BLOCK;
    o->m = tensor_take1(a, dt, n);
    o->v = tensor_take1(a, dt, n);
    if (eight_bit) {
        o->m_scale = tensor_take1(a, DT_F32, blocks);
        o->v_scale = tensor_take1(a, DT_F32, blocks);
    }
    o->sumsq = tensor_take1(a, DT_F32, 1);
}

uint64_t optimizer_bytes(int64_t n, bool eight_bit)
{
    optimizer o = { 0 };
    arena a = { 0 };
    layout(&o, &a, n, eight_bit);
    return a.used;
}

pesc_status optimizer_open(optimizer **out, params *p, const optimizer_options *opt)
{
    static const memory_need need = { "the optimiser", "optimizer adamw8 needs less" };
    *out = NULL;
    optimizer *o = mem_zalloc(1, sizeof *o);
    if (!o)
        return fail_nomem("the optimiser", sizeof *o);
    o->p = p;
    o->opt = *opt;
    arena a = { 0 };
    layout(o, &a, p->n, opt->eight_bit);
    pesc_status s = memory_take(&a, p->m->dev, &need, &o->memory);
    if (s != PESC_OK) {
        optimizer_close(o);
        return s;
    }
    o->bytes = a.size;
    layout(o, &a, p->n, opt->eight_bit);
    p->m->dev->op->zero(p->m->dev, o->memory, o->bytes);
    *out = o;
    return PESC_OK;
}

void optimizer_close(optimizer *o)
{
    if (!o)
        return;
    if (o->memory)
        o->p->m->dev->op->free(o->p->m->dev, o->memory);
    mem_free(o);
}

pesc_status optimizer_norm(optimizer *o, double *norm)
{
    device *dev = o->p->m->dev;
    float sum = 0;
    dev->op->sumsq(dev, o->sumsq, o->p->grad);
    TRY(dev->op->download(dev, &sum, o->sumsq.data, sizeof sum));
    *norm = sqrt((double)sum);
    return PESC_OK;
}

void optimizer_step(optimizer *o, double lr, int64_t step)
{
    device *dev = o->p->m->dev;
    dev->op->adamw(dev, &(adamw){ .w = o->p->master,
                                  .grad = o->p->grad,
                                  .m = o->m,
                                  .v = o->v,
                                  .m_scale = o->m_scale,
                                  .v_scale = o->v_scale,
                                  .copy = o->p->work,
                                  .sumsq = o->sumsq,
                                  .clip = (float)o->opt.clip,
                                  .lr = (float)lr,
                                  .beta1 = (float)o->opt.beta1,
                                  .beta2 = (float)o->opt.beta2,
                                  .eps = (float)o->opt.eps,
                                  .weight_decay = (float)o->opt.weight_decay,
                                  .step = (int32_t)step });
    params_write_back(o->p);
}
