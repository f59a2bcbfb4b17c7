#include "model/ffn.h"

#include "model/pass.h"

void ffn_layout(ffn_acts *a, arena *mem, const acts_plan *plan, int64_t width,
                const ffn_acts *share)
{
    a->gate = tensor_take2(mem, plan->dt, plan->n, width);
    a->up = tensor_take2(mem, plan->dt, plan->n, width);
    a->glu = share ? share->glu : tensor_take2(mem, plan->dt, plan->n, width);
    ffn_layout_partial(a, mem, plan);
}

void ffn_layout_partial(ffn_acts *a, arena *mem, const acts_plan *plan)
{
    if (!plan->rank)
        return;
    a->in_ax = tensor_take2(mem, plan->dt, plan->n, 2 * plan->rank);
    a->down_ax = tensor_take2(mem, plan->dt, plan->n, plan->rank);
}

void ffn_fit(ffn_acts *a, int64_t width)
{
    a->gate.ne[1] = a->up.ne[1] = a->glu.ne[1] = width;
}

void ffn_fwd(const pass *p, const ffn *f, const ffn_acts *a, tensor out, tensor x)
{
    linears_fwd(p, &(linear_set){ 2, { &f->gate, &f->up }, { a->gate, a->up }, a->in_ax }, x);
    if (pass_has_partial(p) && !out.data)
        return; /* backward computes glu, and A x of `down` was kept */
    p->dev->op->glu_fwd(p->dev, a->glu, a->gate, a->up, p->m->cfg.act);
    linears_fwd(p, &(linear_set){ 1, { &f->down }, { out }, a->down_ax }, a->glu);
}

void ffn_bwd(const pass *p, const ffn *f, const ffn *g, const ffn_acts *a, linear_flow flow)
{
    static const linear frozen;
    linear_set down = { 1, { &f->down }, { flow.dy }, a->down_ax };
    bool lost = pass_lost_glu(p); /* then gradients that need glu wait for glu_bwd */
    const linear *all = &g->down, *now = lost ? &frozen : all;
    tensor dglu = p->train->grads.glu; /* then the gradient of gate */
    dglu.ne[1] = a->glu.ne[1];
    linears_bwd(p, &down, &now, (linear_flow){ .dx = dglu, .x = a->glu });
    p->dev->op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dglu,
                                            .dup = a->up,
                                            .dy = dglu,
                                            .gate = a->gate,
                                            .up = a->up,
                                            .glu = lost ? a->glu : (tensor){ 0 },
                                            .act = p->m->cfg.act });
    if (lost)
        linears_bwd(p, &down, &all, (linear_flow){ .x = a->glu });
    linears_bwd(p, &(linear_set){ 2, { &f->gate, &f->up }, { dglu, a->up }, a->in_ax },
                (const linear *[]){ &g->gate, &g->up },
                (linear_flow){ .dx = flow.dx, .x = flow.x, .accumulate = flow.accumulate });
}
