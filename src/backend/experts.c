#include "backend/experts.h"

static void product(device *d, const experts_fwd *a, tensor out, tensor x, tensor w)
{
    d->op->grouped_matmul(
        d, &(grouped_mm){
               .layout = MM_NT, .out = out, .a = x, .b = w, .offsets = a->offsets, .scale = 1 });
}

void experts_by_parts(device *d, const experts_fwd *a)
{
    d->op->gather_rows(d, a->in, a->h, a->order, (int32_t)tensor_cols(&a->gates));
    product(d, a, a->gate_out, a->in, a->gate);
    product(d, a, a->up_out, a->in, a->up);
    d->op->glu_fwd(d, a->mid, a->gate_out, a->up_out, a->act);
    product(d, a, a->out, a->mid, a->down);
    d->op->scatter_add(d, a->x, a->out, a->gates, a->inverse, 1);
}
