#include "model/linear.h"

#include "model/pass.h"

/* The start of a span, as narrow as this use of it is. */
static tensor narrow(tensor t, int64_t cols)
{
    t.ne[1] = cols;
    return t;
}

/* What A reads: x, or in training x with dropout. */
static tensor lora_input(const pass *p, const lora *l, tensor x)
{
    if (!p->drop || l->dropout <= 0)
        return x;
    tensor out = narrow(p->dropped, x.ne[1]);
    p->dev->op->dropout(p->dev, out, x, pass_key(p, l->stream), l->dropout);
    return out;
}

void linear_fwd(const pass *p, const linear *l, tensor out, tensor x)
{
    const ops *op = p->dev->op;
    op->matmul(p->dev, &(mm){ .out = out, .a = x, .b = l->w, .bias = l->bias, .scale = 1 });
    if (!l->lora)
        return;
    tensor ax = narrow(p->mid, l->lora->a.ne[0]);
    op->matmul(p->dev,
               &(mm){ .out = ax, .a = lora_input(p, l->lora, x), .b = l->lora->a, .scale = 1 });
    op->matmul(
        p->dev,
        &(mm){ .out = out, .a = ax, .b = l->lora->b, .scale = l->lora->scale, .accumulate = true });
}

/* ---- backward ---- */

/* dB += scale dy^T (A x), dA += (scale dy B)^T x. A x is computed again: it costs less than it
 * would take to keep. */
static void lora_grads(const pass *p, const lora *l, const lora *g, const linear_flow *f, tensor db)
{
    const ops *op = p->dev->op;
    tensor ax = narrow(p->mid, l->a.ne[0]), x = lora_input(p, l, f->x);
    op->matmul(p->dev, &(mm){ .out = ax, .a = x, .b = l->a, .scale = 1 });
    op->matmul(p->dev, &(mm){ .layout = MM_TN,
                              .out = g->b,
                              .a = f->dy,
                              .b = ax,
                              .scale = l->scale,
                              .accumulate = true });
    op->matmul(
        p->dev,
        &(mm){ .layout = MM_TN, .out = g->a, .a = db, .b = x, .scale = 1, .accumulate = true });
}

static void lora_bwd(const pass *p, const lora *l, const lora *g, const linear_flow *f)
{
    const ops *op = p->dev->op;
    tensor db = narrow(p->grads.mid, l->a.ne[0]);
    op->matmul(p->dev,
               &(mm){ .layout = MM_NN, .out = db, .a = f->dy, .b = l->b, .scale = l->scale });
    if (g)
        lora_grads(p, l, g, f, db);
    if (!f->dx.data)
        return;
    mm dx = { .layout = MM_NN, .out = f->dx, .a = db, .b = l->a, .scale = 1, .accumulate = true };
    if (p->drop && l->dropout > 0) {
        dx.out = narrow(p->dropped, f->x.ne[1]);
        dx.accumulate = false;
        op->matmul(p->dev, &dx);
        op->dropout(p->dev, dx.out, dx.out, pass_key(p, l->stream), l->dropout);
        op->add(p->dev, f->dx, dx.out, 1);
    } else {
        op->matmul(p->dev, &dx);
    }
}

void linear_bwd(const pass *p, const linear *l, const linear *g, linear_flow f)
{
    const ops *op = p->dev->op;
    if (g->w.data)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = g->w,
                                  .a = f.dy,
                                  .b = f.x,
                                  .scale = 1,
                                  .accumulate = true });
    if (g->bias.data)
        op->sum_rows(p->dev, g->bias, f.dy);
    if (f.dx.data)
        op->matmul(p->dev, &(mm){ .layout = MM_NN,
                                  .out = f.dx,
                                  .a = f.dy,
                                  .b = l->w,
                                  .scale = 1,
                                  .accumulate = f.accumulate });
    if (l->lora && (g->lora || f.dx.data))
        lora_bwd(p, l->lora, g->lora, &f);
}
