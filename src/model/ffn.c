#include "model/ffn.h"

#include "model/pass.h"

void ffn_layout(ffn_acts *a, arena *mem, dtype dt, int64_t n, int64_t width, const ffn_acts *share)
{
    a->gate = tensor_take2(mem, dt, n, width);
    a->up = tensor_take2(mem, dt, n, width);
    a->glu = share ? share->glu : tensor_take2(mem, dt, n, width);
}

void ffn_fwd(const pass *p, const ffn *f, const ffn_acts *a, tensor out, tensor x)
{
    linears_fwd(p, &(linear_set){ 2, { &f->gate, &f->up }, { a->gate, a->up } }, x);
    p->dev->op->glu_fwd(p->dev, a->glu, a->gate, a->up, p->m->cfg.act);
    linear_fwd(p, &f->down, out, a->glu);
}

void ffn_bwd(const pass *p, const ffn *f, const ffn *g, const ffn_acts *a, linear_flow flow)
{
    tensor dglu = p->grads.glu; /* then the gradient of gate */
    dglu.ne[1] = a->glu.ne[1];
    linear_bwd(p, &f->down, &g->down, (linear_flow){ .dx = dglu, .dy = flow.dy, .x = a->glu });
    p->dev->op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dglu,
                                            .dup = a->up,
                                            .dy = dglu,
                                            .gate = a->gate,
                                            .up = a->up,
                                            .act = p->m->cfg.act });
    linears_bwd(p, &(linear_set){ 2, { &f->gate, &f->up }, { dglu, a->up } },
                (const linear *[]){ &g->gate, &g->up },
                (linear_flow){ .dx = flow.dx, .x = flow.x, .accumulate = flow.accumulate });
}
