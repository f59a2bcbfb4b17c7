#include "model/linear.h"

#include "model/pass.h"

/* The start of a span, as narrow as this use of it is. */
static tensor narrow(tensor t, int64_t cols)
{
    t.ne[1] = cols;
    return t;
}

static bool drops(const pass *p, const lora *l)
{
    return p->drop && l->dropout > 0;
}

/* What A reads: x, or in training x with dropout. */
static tensor lora_input(const pass *p, const lora *l, tensor x)
{
    if (!drops(p, l))
        return x;
    tensor out = narrow(p->dropped, x.ne[1]);
    p->dev->op->dropout(p->dev, out, x, pass_key(p, l->stream), l->dropout);
    return out;
}

/* out = scale B A x. */
static void lora_fwd(const pass *p, const lora *l, tensor out, tensor x)
{
    const ops *op = p->dev->op;
    tensor ax = narrow(p->mid, l->a.ne[0]);
    op->matmul(p->dev, &(mm){ .out = ax, .a = lora_input(p, l, x), .b = l->a, .scale = 1 });
    op->matmul(p->dev, &(mm){ .out = out, .a = ax, .b = l->b, .scale = l->scale });
}

/* LoRA came first: the small product only writes, and the large one, which has time to, adds. */
static void base_fwd(const pass *p, const linear *l, tensor out, tensor x)
{
    p->dev->op->matmul(p->dev, &(mm){ .out = out,
                                      .a = x,
                                      .b = l->w,
                                      .bias = l->bias,
                                      .scale = 1,
                                      .accumulate = l->lora != NULL });
}

void linear_fwd(const pass *p, const linear *l, tensor out, tensor x)
{
    if (l->lora)
        lora_fwd(p, l->lora, out, x);
    base_fwd(p, l, out, x);
}

/* ---- several of one x ---- */

/* Whether the A of a set can be taken as one matrix. */
static bool joined(const pass *p, const linear_set *s)
{
    for (int i = 0; i < s->n; i++) {
        const lora *l = s->l[i]->lora, *before = i ? s->l[i - 1]->lora : l;
        const char *end = i ? (const char *)before->a.data + tensor_bytes(&before->a) : NULL;
        if (!l || drops(p, l) || l->a.ne[0] != before->a.ne[0] || (i && l->a.data != (void *)end))
            return false;
    }
    return s->n > 1 && p->plan.on;
}

/* n matrices [R,...] that lie one behind the other, as one. */
static tensor joined_rows(tensor first, int n)
{
    first.ne[0] *= n;
    return first;
}

/* Room for what the A of a set give: [n R,T]. */
static tensor transposed(tensor room, const linear_set *s)
{
    room.ne[1] = room.ne[0];
    room.ne[0] = s->n * s->l[0]->lora->a.ne[0];
    return room;
}

static tensor part_of(tensor t, const linear_set *s, int i)
{
    int64_t r = s->l[0]->lora->a.ne[0];
    return tensor_slice(&t, i * r, r);
}

static tensor joined_ax(const pass *p, const linear_set *s, tensor x)
{
    tensor ax = transposed(p->mid, s);
    p->dev->op->matmul(
        p->dev, &(mm){ .out = ax, .a = joined_rows(s->l[0]->lora->a, s->n), .b = x, .scale = 1 });
    return ax;
}

void linears_fwd(const pass *p, const linear_set *s, tensor x)
{
    if (!joined(p, s)) {
        for (int i = 0; i < s->n; i++)
            linear_fwd(p, s->l[i], s->y[i], x);
        return;
    }
    tensor ax = joined_ax(p, s, x);
    for (int i = 0; i < s->n; i++) {
        const lora *l = s->l[i]->lora;
        p->dev->op->matmul(p->dev, &(mm){ .layout = MM_TT,
                                          .out = s->y[i],
                                          .a = part_of(ax, s, i),
                                          .b = l->b,
                                          .scale = l->scale });
        base_fwd(p, s->l[i], s->y[i], x);
    }
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

/* dx is written or added to, as the flow says; with dropout it is always added to. */
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
    mm dx = {
        .layout = MM_NN, .out = f->dx, .a = db, .b = l->a, .scale = 1, .accumulate = f->accumulate
    };
    if (drops(p, l)) {
        dx.out = narrow(p->dropped, f->x.ne[1]);
        dx.accumulate = false;
        op->matmul(p->dev, &dx);
        op->dropout(p->dev, dx.out, dx.out, pass_key(p, l->stream), l->dropout);
        op->add(p->dev, f->dx, dx.out, 1);
    } else {
        op->matmul(p->dev, &dx);
    }
}

/* Gradients of W and the bias. */
static void base_grads(const pass *p, const linear *g, const linear_flow *f)
{
    const ops *op = p->dev->op;
    if (g->w.data)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = g->w,
                                  .a = f->dy,
                                  .b = f->x,
                                  .scale = 1,
                                  .accumulate = true });
    if (g->bias.data)
        op->sum_rows(p->dev, g->bias, f->dy);
}

static void base_bwd(const pass *p, const linear *l, const linear_flow *f)
{
    if (f->dx.data)
        p->dev->op->matmul(p->dev, &(mm){ .layout = MM_NN,
                                          .out = f->dx,
                                          .a = f->dy,
                                          .b = l->w,
                                          .scale = 1,
                                          .accumulate = f->accumulate });
}

void linear_bwd(const pass *p, const linear *l, const linear *g, linear_flow f)
{
    base_grads(p, g, &f);
    bool wanted = l->lora && (g->lora || f.dx.data), last = wanted && drops(p, l->lora);
    if (wanted && !last) { /* first, as forward does it */
        lora_bwd(p, l->lora, g->lora, &f);
        f.accumulate = true;
    }
    base_bwd(p, l, &f);
    if (last)
        lora_bwd(p, l->lora, g->lora, &f);
}

/* dB of each and dA of all, from db [n R,T]. */
static void joined_grads(const pass *p, const linear_set *s, const linear *const *g, tensor x,
                         tensor db)
{
    const ops *op = p->dev->op;
    tensor ax = joined_ax(p, s, x);
    for (int i = 0; i < s->n; i++)
        op->matmul(p->dev, &(mm){ .layout = MM_TT,
                                  .out = g[i]->lora->b,
                                  .a = s->y[i],
                                  .b = part_of(ax, s, i),
                                  .scale = s->l[i]->lora->scale,
                                  .accumulate = true });
    op->matmul(p->dev, &(mm){ .layout = MM_NN,
                              .out = joined_rows(g[0]->lora->a, s->n),
                              .a = db,
                              .b = x,
                              .scale = 1,
                              .accumulate = true });
}

static void joined_bwd(const pass *p, const linear_set *s, const linear *const *g, linear_flow f)
{
    const ops *op = p->dev->op;
    tensor db = transposed(p->grads.mid, s);
    for (int i = 0; i < s->n; i++) {
        const lora *l = s->l[i]->lora;
        op->matmul(p->dev, &(mm){ .layout = MM_TT,
                                  .out = part_of(db, s, i),
                                  .a = l->b,
                                  .b = s->y[i],
                                  .scale = l->scale });
    }
    if (g[0]->lora)
        joined_grads(p, s, g, f.x, db);
    if (f.dx.data)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = f.dx,
                                  .a = db,
                                  .b = joined_rows(s->l[0]->lora->a, s->n),
                                  .scale = 1,
                                  .accumulate = f.accumulate });
}

void linears_bwd(const pass *p, const linear_set *s, const linear *const *g, linear_flow f)
{
    bool together = joined(p, s);
    if (together) {
        joined_bwd(p, s, g, f);
        f.accumulate = true;
    }
    for (int i = 0; i < s->n; i++) {
        f.dy = s->y[i];
        if (together) {
            base_grads(p, g[i], &f);
            base_bwd(p, s->l[i], &f);
        } else {
            linear_bwd(p, s->l[i], g[i], f);
        }
        f.accumulate = true;
    }
}
