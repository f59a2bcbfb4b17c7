/* moe_lora: LoRA experts (mixture of LoRA), inside the FFN's linears. */
#include "model/moe.h"

#include "model/pass.h"

/* One of the FFN's linears and its experts. */
typedef struct lora_part {
    const linear *w;
    const lora_stack *s; /* of the model, or of the gradients */
    tensor mid;          /* [T*k,R] */
    dropout_rows which;
} lora_part;

/* The rows of x that the experts of this linear read. */
static tensor lora_rows(const pass *p, const block *b, const lora_part *l, tensor x)
{
    const mixture m = moe_of(p, b);
    tensor in = moe_narrow(p->acts.moe.in, x.ne[1]);
    moe_gather(&m, in, x);
    moe_drop_rows(p, b, in, l->which);
    return in;
}

static void lora_part_fwd(const pass *p, const block *b, const lora_part *l, tensor y, tensor x)
{
    const moe_acts *a = &p->acts.moe;
    const mixture m = moe_of(p, b);
    tensor out = moe_narrow(a->out, y.ne[1]);
    linear_fwd(p, l->w, y, x);
    moe_product(&m, MM_NT, l->mid, lora_rows(p, b, l, x), l->s->a);
    moe_product(&m, MM_NT, out, l->mid, l->s->b);
    p->dev->op->scatter_add(p->dev, y, out, a->gates, a->inverse, p->m->cfg.moe.adapter_scale);
}

typedef struct lora_parts {
    lora_part gate, up, down;
} lora_parts;

static lora_parts lora_parts_of(const pass *p, const block *b)
{
    const moe_acts *a = &p->acts.moe;
    return (lora_parts){ .gate = { &b->ffn.gate, &b->moe.lora_gate, a->gate, DROPOUT_GATE },
                         .up = { &b->ffn.up, &b->moe.lora_up, a->up, DROPOUT_UP },
                         .down = { &b->ffn.down, &b->moe.lora_down, a->mid, DROPOUT_DOWN } };
}

void moe_lora_fwd(const pass *p, const block *b, tensor y, tensor h)
{
    const ffn_acts *f = &p->acts.ffn;
    lora_parts l = lora_parts_of(p, b);
    lora_part_fwd(p, b, &l.gate, f->gate, h);
    lora_part_fwd(p, b, &l.up, f->up, h);
    p->dev->op->glu_fwd(p->dev, f->glu, f->gate, f->up, p->m->cfg.act);
    lora_part_fwd(p, b, &l.down, y, f->glu);
}

/* ---- backward ---- */

/* dx (absent: not wanted) and dgates of one linear. The experts' outputs are recomputed, because
 * they are wide; A v is kept. */
static void lora_part_bwd(const pass *p, const block *b, const lora_part *l, const lora_part *g,
                          linear_flow f, tensor dgates)
{
    const mixture m = moe_of(p, b);
    tensor out = moe_narrow(p->acts.moe.out, f.dy.ne[1]), dmid = p->train->grads.moe.mid;
    linear_bwd(p, l->w, g->w, f);
    moe_product(&m, MM_NT, out, l->mid, l->s->b);
    moe_scatter_bwd(&m, out, dgates, f.dy, p->m->cfg.moe.adapter_scale);
    moe_product(&m, MM_TN, g->s->b, out, l->mid);
    moe_product(&m, MM_NN, dmid, out, l->s->b);
    tensor in = lora_rows(p, b, l, f.x);
    moe_product(&m, MM_TN, g->s->a, dmid, in);
    if (!f.dx.data)
        return;
    moe_product(&m, MM_NN, in, dmid, l->s->a);
    moe_drop_rows(p, b, in, l->which);
    moe_gather_bwd(&m, f.dx, in, true);
}

void moe_lora_bwd(const pass *p, const block *b, const block *g, tensor dy, moe_flow f)
{
    const ffn_acts *a = &p->acts.ffn;
    const moe_grads *d = &p->train->grads.moe;
    const ops *op = p->dev->op;
    lora_parts l = lora_parts_of(p, b), w = lora_parts_of(p, g);
    tensor dglu = moe_narrow(p->train->grads.glu, a->glu.ne[1]);
    lora_part_bwd(p, b, &l.down, &w.down, (linear_flow){ .dx = dglu, .dy = dy, .x = a->glu },
                  d->gates);
    op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dglu,
                                    .dup = a->up,
                                    .dy = dglu,
                                    .gate = a->gate,
                                    .up = a->up,
                                    .act = p->m->cfg.act });
    lora_part_bwd(p, b, &l.gate, &w.gate, (linear_flow){ .dx = f.dh, .dy = dglu, .x = f.h },
                  d->more);
    op->add(p->dev, d->gates, d->more, 1);
    lora_part_bwd(p, b, &l.up, &w.up,
                  (linear_flow){ .dx = f.dh, .dy = a->up, .x = f.h, .accumulate = true }, d->more);
    op->add(p->dev, d->gates, d->more, 1);
}
