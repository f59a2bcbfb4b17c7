/* moe_full: full experts: FFNs of their own on h, with LoRA on their matrices where they have it,
 * and the shared ones that every token takes. */
#include "model/moe.h"

#include "model/pass.h"

void moe_shared_fwd(const pass *p, const block *b, tensor h)
{
    const mixture x = moe_full(p, b);
    if (x.rule->shared_dim)
        ffn_fwd(p, &x.w->shared, &x.a->shared, x.a->shared_out, h);
}

void moe_shared_add(const pass *p, const block *b, tensor to)
{
    const mixture x = moe_full(p, b);
    if (x.rule->shared_gate)
        p->dev->op->add_gated(p->dev, to, x.a->shared_out, x.a->shared_logit);
    else if (x.rule->shared_dim)
        p->dev->op->add(p->dev, to, x.a->shared_out, 1);
}

/* out [T*k,O] = x times the layer's experts w, and for the rows after them the extra experts. */
static void expert_product(const mixture *x, tensor out, tensor in, tensor w, const tensor *extra)
{
    moe_product(x, MM_NT, out, in, w);
    if (extra)
        x->p->dev->op->grouped_matmul(
            x->p->dev,
            &(grouped_mm){ .out = out,
                           .a = in,
                           .b = *extra,
                           .offsets = tensor_slice(&x->a->extra_offsets, 0, extra->ne[0] + 1),
                           .scale = 1 });
}

/* One matrix of the full experts, and its LoRA if it has one. */
typedef struct expert_part {
    const lora_stack *s;
    tensor w, bias;      /* bias [E,O], or absent */
    const tensor *extra; /* of the extra experts; NULL: there are none */
    int mid;             /* which of the two of the pass its A x uses */
    dropout_rows which;
} expert_part;

typedef struct expert_parts {
    expert_part gate, up, down;
} expert_parts;

static expert_parts expert_parts_of(const moe *m, const extra_experts *x)
{
    const tensor *gate = x ? &x->gate : NULL, *up = x ? &x->up : NULL, *down = x ? &x->down : NULL;
    expert_parts e = { { &m->lora_gate, m->gate, m->gate_bias, gate, 0, DROPOUT_GATE },
                       { &m->lora_up, m->up, m->up_bias, up, 1, DROPOUT_UP },
                       { &m->lora_down, m->down, m->down_bias, down, 0, DROPOUT_DOWN } };
    if (x) {
        e.gate.bias = x->gate_bias;
        e.up.bias = x->up_bias;
        e.down.bias = x->down_bias;
    }
    return e;
}

/* What A reads: v, or in training v with dropout. */
static tensor expert_lora_in(const mixture *x, const block *b, const expert_part *e, tensor v)
{
    const pass *p = x->p;
    if (!pass_has_dropout(p) || p->train->mirror->facts.lora_dropout <= 0)
        return v;
    tensor in = moe_narrow(x->a->lora_wide, v.ne[1]);
    p->dev->op->copy(p->dev, in.data, v.data, tensor_bytes(&v));
    moe_drop_rows(p, b, in, e->which);
    return in;
}

/* scale A v, v [T*k,I], in the rows of experts that have a LoRA. */
static tensor expert_lora_mid(const mixture *x, const expert_part *e, tensor in)
{
    tensor mid = moe_narrow(x->a->lora_mid[e->mid], e->s->a.ne[1]);
    moe_own_product(
        x, (grouped_mm){ .layout = MM_NT, .out = mid, .a = in, .b = e->s->a, .scale = e->s->scale },
        &e->s->own);
    return mid;
}

/* y [T*k,N] += v times w, A or B, of the experts that have them, by way of scratch; going back (NN)
 * it is the gradient of a LoRA's input and goes through its dropout. */
static void expert_lora_add(const mixture *x, const block *b, const expert_part *e,
                            mm_layout layout, tensor y, tensor v, tensor w)
{
    const pass *p = x->p;
    const tensor more = moe_narrow(x->a->lora_wide, y.ne[1]);
    if (e->s->own.ids)
        p->dev->op->zero(p->dev, more.data, tensor_bytes(&more));
    moe_own_product(x, (grouped_mm){ .layout = layout, .out = more, .a = v, .b = w, .scale = 1 },
                    &e->s->own);
    if (layout == MM_NN)
        moe_drop_rows(p, b, more, e->which);
    p->dev->op->add(p->dev, y, more, 1);
}

static void expert_part_fwd(const mixture *x, const block *b, const expert_part *e, tensor y,
                            tensor v)
{
    const pass *p = x->p;
    expert_product(x, y, v, e->w, e->extra);
    tensor offsets = x->a->offsets; /* and, after them, those of the extra experts */
    offsets.ne[0] = e->bias.ne[0] + 1;
    if (e->bias.data)
        p->dev->op->add_bias(p->dev, y, e->bias, offsets);
    if (!e->s->a.data)
        return;
    tensor mid = expert_lora_mid(x, e, expert_lora_in(x, b, e, v));
    expert_lora_add(x, b, e, MM_NT, y, mid, e->s->b);
}

/* Experts as the model has them, in inference: one op. */
static void plain_experts_fwd(const mixture *x, tensor to, tensor h)
{
    const moe_acts *a = x->a;
    const moe *w = x->w;
    x->p->dev->op->experts_fwd(x->p->dev, &(experts_fwd){ .x = to,
                                                          .h = h,
                                                          .gate = w->gate,
                                                          .up = w->up,
                                                          .down = w->down,
                                                          .gates = a->gates,
                                                          .order = a->order,
                                                          .inverse = a->inverse,
                                                          .offsets = a->offsets,
                                                          .in = a->in,
                                                          .out = a->out,
                                                          .gate_out = a->gate,
                                                          .up_out = a->up,
                                                          .mid = a->mid,
                                                          .act = x->p->m->cfg.act });
}

/* Experts with LoRA, experts beside the model's, or training, which reads the parts again. */
static void expert_parts_fwd(const mixture *x, const block *b, tensor to, tensor h)
{
    const moe_acts *a = x->a;
    const pass *p = x->p;
    expert_parts e = expert_parts_of(x->w, moe_extra(x));
    moe_gather(x, a->in, h);
    expert_part_fwd(x, b, &e.gate, a->gate, a->in);
    expert_part_fwd(x, b, &e.up, a->up, a->in);
    p->dev->op->glu_fwd(p->dev, a->mid, a->gate, a->up, p->m->cfg.act);
    expert_part_fwd(x, b, &e.down, a->out, a->mid);
    p->dev->op->scatter_add(p->dev, to, a->out, a->gates, a->inverse, 1);
}

void moe_expert_fwd(const pass *p, const block *b, tensor to, tensor h)
{
    const mixture x = moe_full(p, b);
    const moe *m = x.w;
    bool tuned = m->lora_gate.a.data || m->lora_up.a.data || m->lora_down.a.data;
    if (p->train || tuned || m->down_bias.data || moe_extra(&x)) /* the one op has no biases */
        expert_parts_fwd(&x, b, to, h);
    else
        plain_experts_fwd(&x, to, h);
}

void moe_experts_fwd(const pass *p, const block *b, tensor to, tensor h)
{
    moe_expert_fwd(p, b, to, h);
    moe_shared_fwd(p, b, h);
    moe_shared_add(p, b, to);
}

/* ---- backward ---- */

/* What comes through logits that a product of h gave, beside those of the layer's own router: the
 * gradient of h, and of the matrix w [n,C] where that trains. */
static void logits_bwd(const pass *p, const block *b, tensor dlogits, tensor w, tensor dw,
                       tensor dh)
{
    const ops *op = p->dev->op;
    const tensor x = p->acts.middle;
    if (dw.data && b->ffn_norm.data)
        op->rmsnorm_bwd(p->dev, &(norm_bwd){ .x = x,
                                             .w = b->ffn_norm,
                                             .rstd = p->acts.ffn_rstd,
                                             .dlogits = dlogits,
                                             .drouter = dw,
                                             .shift = p->m->cfg.norm_shift });
    else if (dw.data)
        op->matmul(
            p->dev,
            &(mm){
                .layout = MM_TN, .out = dw, .a = dlogits, .b = x, .scale = 1, .accumulate = true });
    if (dh.data)
        op->matmul(
            p->dev,
            &(mm){
                .layout = MM_NN, .out = dh, .a = dlogits, .b = w, .scale = 1, .accumulate = true });
}

static void shared_bwd(const mixture *x, const block *b, const moe *g, moe_flow f)
{
    const pass *p = x->p;
    tensor dy = p->train->grads.dy;
    if (x->rule->shared_gate) {
        p->dev->op->add_gated_bwd(p->dev, dy, x->d->shared_logit, f.dx, x->a->shared_out,
                                  x->a->shared_logit);
        logits_bwd(p, b, x->d->shared_logit, x->w->shared_gate, g->shared_gate, f.dh);
    }
    ffn_bwd(p, &x->w->shared, &g->shared, &x->a->shared,
            (linear_flow){ f.dh, dy, f.h, .accumulate = true });
}

/* dw of the experts that train += dy^T v, from the rows that chose them. */
static void expert_dw(const mixture *x, const expert_list *own, tensor dw, tensor dy, tensor v)
{
    moe_own_product(x, (grouped_mm){ .layout = MM_TN, .out = dw, .a = dy, .b = v, .scale = 1 },
                    own);
}

static void expert_bias_bwd(const mixture *x, tensor dbias, tensor dy)
{
    if (dbias.data)
        x->p->dev->op->add_bias_bwd(x->p->dev, dbias, dy, x->a->offsets);
}

/* Gradients of A and B, from dy [T*k,O] and v [T*k,I]; scale B^T dy stays in the pass, for
 * expert_lora_dx(). */
static void expert_lora_bwd(const mixture *x, const block *b, const expert_part *e,
                            const lora_stack *g, tensor dy, tensor v)
{
    if (!e->s->a.data)
        return;
    tensor in = expert_lora_in(x, b, e, v), mid = expert_lora_mid(x, e, in);
    expert_dw(x, &g->own, g->b, dy, mid);
    moe_own_product(
        x, (grouped_mm){ .layout = MM_NN, .out = mid, .a = dy, .b = e->s->b, .scale = e->s->scale },
        &e->s->own);
    expert_dw(x, &g->own, g->a, mid, in);
}

/* dv = dy W + what comes through the LoRA. */
static void expert_part_dx(const mixture *x, const block *b, const expert_part *e, tensor dv,
                           tensor dy)
{
    moe_product(x, MM_NN, dv, dy, e->w);
    if (!e->s->a.data)
        return;
    tensor mid = moe_narrow(x->a->lora_mid[e->mid], e->s->a.ne[1]);
    expert_lora_add(x, b, e, MM_NN, dv, mid, e->s->a);
}

/* Activations are overwritten by gradients after their last use. */
void moe_expert_bwd(const pass *p, const block *b, const block *grads, moe_flow f)
{
    const mixture x = moe_full(p, b);
    const moe *g = moe_full(p, grads).w;
    const moe_acts *a = x.a;
    tensor dmid = x.d->mid;
    expert_parts e = expert_parts_of(x.w, NULL);
    moe_scatter_bwd(&x, a->out, x.d->gates, f.dx, 1);
    expert_dw(&x, &g->own, g->down, a->out, a->mid);
    expert_bias_bwd(&x, g->down_bias, a->out);
    expert_lora_bwd(&x, b, &e.down, &g->lora_down, a->out, a->mid);
    expert_part_dx(&x, b, &e.down, dmid, a->out);
    p->dev->op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dmid,
                                            .dup = a->up,
                                            .dy = dmid,
                                            .gate = a->gate,
                                            .up = a->up,
                                            .act = p->m->cfg.act });
    expert_dw(&x, &g->own, g->gate, dmid, a->in);
    expert_dw(&x, &g->own, g->up, a->up, a->in);
    expert_bias_bwd(&x, g->gate_bias, dmid);
    expert_bias_bwd(&x, g->up_bias, a->up);
    expert_lora_bwd(&x, b, &e.gate, &g->lora_gate, dmid, a->in);
    expert_lora_bwd(&x, b, &e.up, &g->lora_up, a->up, a->in);
    if (f.dh.data) {
        expert_part_dx(&x, b, &e.gate, a->in, dmid);
        expert_part_dx(&x, b, &e.up, a->out, a->up);
        moe_gather_bwd(&x, f.dh, a->in, false);
        moe_gather_bwd(&x, f.dh, a->out, true);
    }
    if (x.rule->shared_dim)
        shared_bwd(&x, b, g, f);
}

void moe_full_router_bwd(const pass *p, const block *b, const block *grads, tensor dh)
{
    const mixture x = moe_full(p, b);
    const moe *g = moe_full(p, grads).w;
    moe_logits_bwd(&x, g);
    logits_bwd(p, b, x.d->logits, x.w->router, g->router, dh);
}
