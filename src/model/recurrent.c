#include "model/recurrent.h"

#include "model/linear.h"
#include "model/pass.h"

void recurrent_layout_partial(recurrent_acts *a, arena *mem, const acts_plan *plan)
{
    if (!plan->rank || !config_has_state(plan->c))
        return;
    a->in_ax = tensor_take2(mem, plan->dt, plan->n, plan->rank);
    a->o_ax = tensor_take2(mem, plan->dt, plan->n, plan->rank);
}

void recurrent_layout(recurrent_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, width = config_conv_width(c);
    *a = (recurrent_acts){ 0 };
    if (!config_has_state(c))
        return;
    a->in = tensor_take2(mem, plan->dt, n, 3 * width);
    a->out = tensor_take2(mem, plan->dt, n, width);
    recurrent_layout_partial(a, mem, plan);
}

void recurrent_grads_layout(recurrent_grads *g, arena *mem, const acts_plan *plan)
{
    int64_t width = config_conv_width(plan->c);
    *g = (recurrent_grads){ 0 };
    if (!config_has_state(plan->c))
        return;
    g->in = tensor_take2(mem, plan->dt, plan->n, 3 * width);
    g->out = tensor_take2(mem, plan->dt, plan->n, width);
}

/* The op's arguments; the state, if any, is the caller's. */
static conv conv_args(const pass *p, const block *b)
{
    const recurrent_acts *a = &p->acts.mix;
    return (conv){ .out = a->out,
                   .x = a->in,
                   .w = b->mix.w,
                   .bias = b->mix.bias,
                   .starts = p->starts,
                   .pos = p->pos,
                   .gated = true };
}

void recurrent_fwd(const pass *p, const block *b, tensor y, tensor h)
{
    const recurrent_acts *a = &p->acts.mix;
    linears_fwd(p, &(linear_set){ 1, { &b->mix.in }, { a->in }, a->in_ax }, h);
    conv args = conv_args(p, b);
    if (p->kv) {
        args.state = kvcache_conv_state(p->kv, b->place);
        args.slots = p->timelines;
    }
    p->dev->op->conv_fwd(p->dev, &args);
    linears_fwd(p, &(linear_set){ 1, { &b->mix.out }, { y }, a->o_ax }, a->out);
}

void recurrent_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const recurrent_acts *a = &p->acts.mix;
    const recurrent_grads *d = &p->train->grads.mix;
    linears_bwd(p, &(linear_set){ 1, { &b->mix.out }, { f.dy }, a->o_ax },
                (const linear *[]){ &g->mix.out }, (linear_flow){ .dx = d->out, .x = a->out });
    p->dev->op->conv_bwd(p->dev, &(conv_bwd){ .fwd = conv_args(p, b),
                                              .dout = d->out,
                                              .dx = d->in,
                                              .dw = g->mix.w,
                                              .dbias = g->mix.bias });
    linears_bwd(p, &(linear_set){ 1, { &b->mix.in }, { d->in }, a->in_ax },
                (const linear *[]){ &g->mix.in }, (linear_flow){ .dx = f.dh, .x = f.h });
}
