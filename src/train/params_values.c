/* The numbers of params: put in, zeroed, and shown to forward after an update. */
#include "train/params.h"

static void put_range(device *dev, tensor to, int64_t at, tensor x, flat_range r)
{
    tensor from = flat_part(x, r, 1);
    to = flat_part(to, (flat_range){ at, at + r.end - r.first }, 1);
    dev->op->convert(dev, to, from);
}

void params_put(params *p, const param *q, int64_t first, tensor x)
{
    device *dev = p->m->dev;
    int64_t n = tensor_count(&x);
    flat_range all = { 0, n }, flat = { q->at + first, q->at + first + n };
    for (size_t i = 0; p->divided && i < p->n_own; i++) {
        flat_range part = flat_within(p->own[i].flat, flat);
        flat_range from = { part.first - flat.first, part.end - flat.first };
        if (part.first < part.end)
            put_range(dev, p->master, flat_own(&p->own[i], part).first, x, from);
    }
    if (!p->divided)
        put_range(dev, p->master, flat.first, x, all);
    if (p->work.data && params_has_copy(p, q))
        put_range(dev, p->work, q->work_at + first, x, all);
    if (p->exact.data && q->exact_at >= 0)
        put_range(dev, p->exact, q->exact_at + first, x, all);
}

/* ---- after an update ---- */

/* Consecutive parameters with a copy are consecutive in both buffers, so a run of them is one call.
 */
static void refresh_copies(params *p)
{
    device *dev = p->m->dev;
    for (size_t i = 0, end; i < p->n_list; i = end + 1) {
        for (end = i; end < p->n_list && params_has_copy(p, &p->list[end]);)
            end++;
        int64_t stop = end < p->n_list ? p->list[end].at : p->n;
        flat_range run = { p->list[i].at, stop };
        if (end > i)
            put_range(dev, p->work, p->list[i].work_at, p->master, run);
    }
}

void params_refresh(params *p)
{
    if (p->work.data)
        refresh_copies(p);
    params_write_back(p);
}

void params_write_back(params *p)
{
    device *dev = p->m->dev;
    for (size_t i = 0; p->spec.own && i < p->n_list; i++)
        if (p->list[i].into.data) /* master is whole */
            dev->op->convert(dev, p->list[i].into, params_master(p, &p->list[i]));
}

void params_start_grad(params *p)
{
    const ops *op = p->m->dev->op;
    float *grad = p->grad.data;
    int64_t from = 0; /* what is to be zeroed begins here */
    for (size_t i = 0; i <= p->n_list; i++) {
        const param *q = i < p->n_list ? &p->list[i] : NULL;
        bool written = q && q->group == PARAM_ADAPTER;
        int64_t end = q ? q->at : p->n;
        if (q && !written)
            continue;
        if (end > from)
            op->zero(p->m->dev, grad + from, (size_t)(end - from) * sizeof *grad);
        if (q) {
            tensor t = params_grad(p, q);
            from = q->at + tensor_count(&t);
        }
    }
}
