/* moe_router: the gradient of the router's logits, from the gates of the chosen experts or of all.
 * For the latter one expert at a time runs on all tokens, by the grouped products of the layer: its
 * stack has one expert, and that one all rows. */
#include "model/moe.h"

#include "model/pass.h"

#include <math.h>

static float logit_scale(const pass *p)
{
    return 1 / sqrtf((float)p->m->cfg.dim);
}

void moe_router_norm(const mixture *x, tensor v)
{
    const pass *p = x->p;
    p->dev->op->rmsnorm_fwd(p->dev, &(norm_fwd){ .x = v,
                                                 .w = x->w->router_scale,
                                                 .rstd = x->a->router_rstd,
                                                 .eps = p->m->stream_eps,
                                                 .logits = x->a->logits,
                                                 .router = x->w->router });
    p->dev->op->scale_rows(p->dev, x->a->logits, (tensor){ 0 }, logit_scale(p));
}

/* A number for each token and choice. */
static tensor each_choice(tensor t)
{
    return tensor_view2(&t, tensor_count(&t), 1);
}

static tensor each_expert(tensor t)
{
    return tensor_view2(&t, t.ne[0], 1);
}

void moe_scale_gates(const mixture *x)
{
    const moe_acts *a = x->a;
    device *dev = x->p->dev;
    if (!x->w->gate_scale.data)
        return;
    dev->op->copy(dev, a->chosen.data, a->gates.data, tensor_bytes(&a->gates));
    dev->op->gather_rows(dev, each_choice(a->factor), each_expert(x->w->gate_scale),
                         each_choice(a->ids), 1);
    dev->op->scale_rows(dev, each_choice(a->gates), each_choice(a->factor), 1);
}

/* dgates becomes the gradient of the gates that the router's rule gave. `chosen` is overwritten. */
static void gates_bwd(const mixture *x, const moe *g, tensor dgates)
{
    const moe_acts *a = x->a;
    device *dev = x->p->dev;
    if (g->gate_scale.data) {
        dev->op->scale_rows(dev, each_choice(a->chosen), each_choice(dgates), 1);
        dev->op->embed_bwd(dev, each_expert(g->gate_scale), each_choice(a->chosen),
                           each_choice(a->ids));
    }
    dev->op->scale_rows(dev, each_choice(dgates), each_choice(a->factor), 1);
}

void moe_logits_bwd(const mixture *x, const moe *g)
{
    const moe_acts *a = x->a;
    const moe_grads *d = x->d;
    device *dev = x->p->dev;
    const bool dense = d->all.data != NULL;
    topk_bwd bwd = { .dlogits = d->logits,
                     .dgates = dense ? d->all : d->gates,
                     .ids = dense ? (tensor){ 0 } : a->ids,
                     .logits = a->logits,
                     .share = d->balance != 0 ? d->share : (tensor){ 0 },
                     .rule = x->rule->topk,
                     .balance = d->balance,
                     .z = d->z };
    if (dense)
        bwd.rule.k = bwd.rule.n_experts;
    if (x->w->gate_scale.data)
        gates_bwd(x, g, d->gates);
    dev->op->topk_bwd(dev, &bwd);
    if (x->w->router_scale.data)
        dev->op->scale_rows(dev, d->logits, (tensor){ 0 }, logit_scale(x->p));
    if (g->logit_bias.data)
        dev->op->add_bias_bwd(dev, g->logit_bias, d->logits, (tensor){ 0 });
}

void moe_router_bwd(const pass *p, const block *b, const block *g)
{
    const mixture x = moe_of(p, b);
    moe_logits_bwd(&x, &g->moe);
}

/* ---- the gates of all experts ---- */

void moe_dense_layout(moe_grads *g, arena *mem, const acts_plan *plan)
{
    g->all = tensor_take2(mem, DT_F32, plan->n, plan->c->moe.topk.n_experts);
    g->all_rows = tensor_take1(mem, DT_I32, 2);
}

/* Begins a layer; false: only chosen experts count. */
static bool begin(const pass *p)
{
    const moe_grads *d = &p->train->grads.moe;
    const int32_t offsets[2] = { 0, p->n };
    if (!d->all.data)
        return false;
    p->dev->op->zero(p->dev, d->all.data, tensor_bytes(&d->all));
    p->dev->op->upload(p->dev, d->all_rows.data, offsets, sizeof offsets);
    return true;
}

static tensor one_of(tensor stack, int32_t expert)
{
    return stack.data ? tensor_slice(&stack, expert, 1) : stack;
}

/* y [T,O] = scale x times the transpose of an expert's matrix. */
static void product(const pass *p, tensor y, tensor x, tensor w, float scale)
{
    p->dev->op->grouped_matmul(p->dev, &(grouped_mm){ .layout = MM_NT,
                                                      .out = y,
                                                      .a = x,
                                                      .b = w,
                                                      .offsets = p->train->grads.moe.all_rows,
                                                      .scale = scale });
}

/* f is the mean of its copies, one for each choice, which the adapters have read: with dropout, of
 * k masks. */
void moe_adapter_dense(const pass *p, const block *b, tensor dy)
{
    const moe_acts *a = &p->acts.moe;
    const moe_rule *r = &p->m->cfg.moe;
    const ops *op = p->dev->op;
    if (!begin(p))
        return;
    tensor sum = p->train->grads.dh, mid = tensor_slice(&p->train->grads.moe.mid, 0, p->n);
    tensor out = tensor_slice(&a->out, 0, p->n);
    op->gather_rows_bwd(p->dev, sum, a->in, a->inverse, r->topk.k, false);
    for (int32_t e = 0; e < r->topk.n_experts; e++) {
        product(p, mid, sum, one_of(b->moe.down, e), 1 / (float)r->topk.k);
        op->act_fwd(p->dev, mid, mid, r->adapter_act, NULL);
        product(p, out, mid, one_of(b->moe.up, e), 1);
        op->dot_rows(p->dev, p->train->grads.moe.all, out, dy, e, r->adapter_scale);
    }
}

/* One matrix of an expert, with its bias and LoRA: y [T,O] from x [T,I]. */
typedef struct matrix {
    tensor w, bias;
    const lora_stack *lora;
} matrix;

static void matrix_fwd(const pass *p, const matrix *m, int32_t e, tensor y, tensor x)
{
    const moe_acts *a = &p->acts.moe;
    const ops *op = p->dev->op;
    product(p, y, x, one_of(m->w, e), 1);
    if (m->bias.data)
        op->add_bias(p->dev, y, one_of(m->bias, e), p->train->grads.moe.all_rows);
    const int32_t at = expert_list_at(&m->lora->own, e);
    if (!m->lora->a.data || at < 0)
        return;
    tensor mid = tensor_slice(&a->lora_mid[0], 0, p->n);
    tensor more = tensor_slice(&a->lora_wide, 0, p->n);
    mid.ne[1] = m->lora->a.ne[1];
    more.ne[1] = y.ne[1];
    product(p, mid, x, one_of(m->lora->a, at), m->lora->scale);
    product(p, more, mid, one_of(m->lora->b, at), 1);
    op->add(p->dev, y, more, 1);
}

void moe_expert_dense(const pass *p, const block *b, moe_flow f)
{
    const moe_acts *a = &p->acts.moe;
    const moe *x = &b->moe;
    const matrix gate = { x->gate, x->gate_bias, &x->lora_gate },
                 up = { x->up, x->up_bias, &x->lora_up },
                 down = { x->down, x->down_bias, &x->lora_down };
    if (!begin(p))
        return;
    tensor g = tensor_slice(&a->gate, 0, p->n), u = tensor_slice(&a->up, 0, p->n);
    tensor mid = tensor_slice(&a->mid, 0, p->n), out = tensor_slice(&a->out, 0, p->n);
    for (int32_t e = 0; e < p->m->cfg.moe.topk.n_experts; e++) {
        matrix_fwd(p, &gate, e, g, f.h);
        matrix_fwd(p, &up, e, u, f.h);
        p->dev->op->glu_fwd(p->dev, mid, g, u, p->m->cfg.act);
        matrix_fwd(p, &down, e, out, mid);
        p->dev->op->dot_rows(p->dev, p->train->grads.moe.all, out, f.dx, e, 1);
    }
}
