#include "model/ffn.h"

#include "model/pass.h"

void ffn_layout(ffn_acts *a, arena *mem, dtype dt, int64_t n, int64_t width)
{
    a->gate = tensor_take2(mem, dt, n, width);
    a->up = tensor_take2(mem, dt, n, width);
    a->glu = tensor_take2(mem, dt, n, width);
}

void ffn_fwd(const pass *p, const ffn *f, const ffn_acts *a, tensor out, tensor x)
{
    linear_fwd(p, &f->gate, a->gate, x);
    linear_fwd(p, &f->up, a->up, x);
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
    linear_bwd(p, &f->gate, &g->gate,
               (linear_flow){ flow.dx, dglu, flow.x, .accumulate = flow.accumulate });
    linear_bwd(p, &f->up, &g->up, (linear_flow){ flow.dx, a->up, flow.x, .accumulate = true });
}
