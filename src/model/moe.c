#include "model/moe.h"

#include "model/pass.h"
#include "model/routes.h"

#include <string.h>

/* LoRA experts: the widest input and output of the three linears. */
static int64_t widest(const config *c)
{
    const int32_t inner = config_widest_ffn(c);
    return c->dim > inner ? c->dim : inner;
}

mixture moe_of(const pass *p, const block *b)
{
    const train_state *t = p->train;
    return (mixture){ p, &p->m->cfg.moe, &b->moe, &p->acts.moe, t ? &t->grads.moe : NULL };
}

mixture moe_full(const pass *p, const block *b)
{
    const train_state *t = p->train;
    if (!config_adapters_on_experts(&p->m->cfg))
        return moe_of(p, b);
    return (mixture){ p, &p->m->cfg.ffn_moe, &b->ffn_moe, &p->acts.ffn_moe,
                      t ? &t->grads.ffn_moe : NULL };
}

/* ---- layout ---- */

void moe_layout_partial(moe_acts *a, arena *mem, const acts_plan *plan, const moe_rule *r)
{
    int64_t n = plan->n, k = r->topk.k, rows = n * k;
    a->logits = tensor_take2(mem, DT_F32, n, r->topk.n_experts);
    a->ids = tensor_take2(mem, DT_I32, n, k);
    a->gates = tensor_take2(mem, DT_F32, n, k);
    if (r->beside_ffn) {
        a->router_rstd = tensor_take1(mem, DT_F32, n);
        a->chosen = tensor_take2(mem, DT_F32, n, k);
        a->factor = tensor_take2(mem, DT_F32, n, k);
    }
    a->order = tensor_take1(mem, DT_I32, rows);
    a->inverse = tensor_take1(mem, DT_I32, rows);
    tensor offsets = tensor_take1(mem, DT_I32, (int64_t)r->topk.n_experts + plan->extra + 1);
    a->offsets = tensor_slice(&offsets, 0, (int64_t)r->topk.n_experts + 1);
    if (plan->extra) {
        a->extra_offsets = tensor_slice(&offsets, r->topk.n_experts, (int64_t)plan->extra + 1);
        a->remapped = tensor_take2(mem, DT_I32, n, k);
    }
    if (r->kind == EXPERT_ADAPTER)
        a->up = tensor_take2(mem, plan->dt, rows, r->expert_dim);
    if (r->shared_dim)
        a->shared_logit = tensor_take2(mem, DT_F32, n, 1);
}

void moe_layout(moe_acts *a, arena *mem, const acts_plan *plan, const moe_place *place)
{
    const moe_rule *r = place->rule;
    const moe_acts *share = place->share;
    int64_t n = plan->n, rows = n * r->topk.k, dim = plan->c->dim;
    bool mixed = r->kind == EXPERT_LORA, adapter = r->kind == EXPERT_ADAPTER;
    *a = (moe_acts){ 0 };
    bool small = r->kind != EXPERT_FFN; /* recomputing the output costs less than keeping it */
    int64_t width = mixed ? widest(plan->c) : dim;
    a->in = share && !adapter ? share->in : tensor_take2(mem, plan->dt, rows, width);
    a->out = share && small ? share->out : tensor_take2(mem, plan->dt, rows, width);
    a->mid = tensor_take2(mem, plan->dt, rows, r->expert_dim);
    if (!adapter) {
        a->gate = tensor_take2(mem, plan->dt, rows, r->expert_dim);
        a->up = tensor_take2(mem, plan->dt, rows, r->expert_dim);
    }
    const bool tuned = plan->expert_rank && r->kind == EXPERT_FFN;
    if (tuned && share) {
        memcpy(a->lora_mid, share->lora_mid, sizeof a->lora_mid);
        a->lora_wide = share->lora_wide;
    } else if (tuned) {
        for (int i = 0; i < 2; i++)
            a->lora_mid[i] = tensor_take2(mem, plan->dt, rows, plan->expert_rank);
        a->lora_wide = tensor_take2(mem, plan->dt, rows, dim > r->expert_dim ? dim : r->expert_dim);
    }
    if (r->shared_dim) {
        ffn_layout(&a->shared, mem, plan, r->shared_dim, share ? &share->shared : NULL);
        a->shared_out = tensor_take2(mem, plan->dt, n, dim);
    }
    moe_layout_partial(a, mem, plan, r);
}

void moe_grads_layout(moe_grads *g, arena *mem, const acts_plan *plan, const moe_rule *r)
{
    int64_t k = r->topk.k;
    *g = (moe_grads){ 0 };
    g->mid = tensor_take2(mem, plan->dt, plan->n * k, r->expert_dim);
    g->gates = tensor_take2(mem, DT_F32, plan->n, k);
    g->logits = tensor_take2(mem, DT_F32, plan->n, r->topk.n_experts);
    if (r->kind == EXPERT_LORA)
        g->more = tensor_take2(mem, DT_F32, plan->n, k);
    if (r->shared_gate)
        g->shared_logit = tensor_take2(mem, DT_F32, plan->n, 1);
}

/* ---- routing ---- */

const extra_experts *moe_extra(const mixture *x)
{
    return x->p->host.any_adapter ? x->w->extra : NULL;
}

/* a->ids stay the router's choices, whichever copies of these experts a row computes with. */
static void route(const mixture *x, bool chosen)
{
    const pass *p = x->p;
    const moe_acts *a = x->a;
    const extra_experts *extra = moe_extra(x);
    const ops *op = p->dev->op;
    int32_t n = x->rule->topk.n_experts;
    if (x->w->logit_bias.data)
        op->add_bias(p->dev, a->logits, x->w->logit_bias, (tensor){ 0 });
    if (!chosen)
        op->topk_fwd(p->dev, a->ids, a->gates, a->logits, &x->rule->topk, x->w->router_bias);
    moe_scale_gates(x);
    if (extra) {
        op->expert_remap(p->dev, a->remapped, a->ids, extra->table, p->adapter_of_row);
        n += (int32_t)extra->gate.ne[0];
    }
    op->expert_sort(p->dev, a->order, a->inverse, a->offsets, extra ? a->remapped : a->ids, n);
}

void moe_route(const pass *p, const block *b)
{
    const mixture x = moe_of(p, b);
    route(&x, routes_choose(p, b));
}

void moe_route_full(const pass *p, const block *b)
{
    const mixture x = moe_full(p, b);
    route(&x, false);
}

/* ---- rows that are sorted by expert ---- */

void moe_gather(const mixture *x, tensor out, tensor from)
{
    x->p->dev->op->gather_rows(x->p->dev, out, from, x->a->order, x->rule->topk.k);
}

void moe_gather_bwd(const mixture *x, tensor dx, tensor drows, bool accumulate)
{
    x->p->dev->op->gather_rows_bwd(x->p->dev, dx, drows, x->a->inverse, x->rule->topk.k,
                                   accumulate);
}

void moe_scatter_bwd(const mixture *x, tensor out, tensor dgates, tensor dy, float scale)
{
    const moe_acts *a = x->a;
    x->p->dev->op->scatter_add_bwd(x->p->dev, &(scatter_bwd){ .dx = out,
                                                              .dgates = dgates,
                                                              .dy = dy,
                                                              .x = out,
                                                              .gates = a->gates,
                                                              .inverse = a->inverse,
                                                              .scale = scale });
}

/* Whether the tokens of this pass, which are all of one domain, if of any, are for the i-th. */
static bool takes_tokens(const pass *p, const expert_list *own, int32_t i)
{
    return !own->domains || own->domains[i] & p->train->domain;
}

void moe_own_product(const mixture *x, grouped_mm a, const expert_list *own)
{
    const pass *p = x->p;
    tensor *stack = a.layout == MM_TN ? &a.out : &a.b;
    const tensor all = *stack, offsets = x->a->offsets;
    a.offsets = offsets;
    if (a.out.data && !own->ids)
        p->dev->op->grouped_matmul(p->dev, &a);
    for (int32_t i = 0, n; a.out.data && own->ids && i < own->n; i += n) {
        n = 1;
        if (!takes_tokens(p, own, i))
            continue;
        while (i + n < own->n && own->ids[i + n] == own->ids[i] + n && takes_tokens(p, own, i + n))
            n++;
        *stack = tensor_slice(&all, i, n);
        a.offsets = tensor_slice(&offsets, own->ids[i], n + 1);
        p->dev->op->grouped_matmul(p->dev, &a);
    }
}

void moe_product(const mixture *x, mm_layout layout, tensor out, tensor a, tensor b)
{
    moe_own_product(x, (grouped_mm){ .layout = layout, .out = out, .a = a, .b = b, .scale = 1 },
                    &(expert_list){ 0 });
}

void moe_drop_rows(const pass *p, const block *b, tensor rows, dropout_rows which)
{
    uint64_t layer = (uint64_t)(b - p->m->w.blocks);
    if (!pass_has_dropout(p))
        return;
    const backward_facts *f = &p->train->mirror->facts;
    float rate = which == DROPOUT_ADAPTER ? f->adapter_dropout : f->lora_dropout;
    if (rate > 0)
        p->dev->op->dropout(p->dev, rows, rows, pass_key(p, rng_stream(layer, which, 0)), rate);
}

/* ---- adapters ---- */

/* Gates are applied on the narrow side, before U: backward then needs no output of an expert. */
static row_gates adapter_gates(const pass *p)
{
    const moe_acts *a = &p->acts.moe;
    return (
        row_gates){ .gates = a->gates, .order = a->order, .scale = p->m->cfg.moe.adapter_scale };
}

void moe_adapter_fwd(const pass *p, const block *b, tensor f)
{
    const moe_acts *a = &p->acts.moe;
    const mixture x = moe_of(p, b);
    row_gates gates = adapter_gates(p);
    moe_gather(&x, a->in, f);
    moe_drop_rows(p, b, a->in, DROPOUT_ADAPTER);
    if (!pass_has_partial(p))
        moe_product(&x, MM_NT, a->up, a->in, b->moe.down);
    p->dev->op->act_fwd(p->dev, a->mid, a->up, p->m->cfg.moe.adapter_act, &gates);
    if (!pass_recomputes(p) || b->ffn_post.data) /* whose backward reads the sum with f */
        moe_product(&x, MM_NT, a->out, a->mid, b->moe.up);
}

bool moe_adapters_few(const pass *p)
{
    const moe_rule *r = &p->m->cfg.moe;
    bool paper = r->adapter_act == ACT_GELU && r->topk.score_after_topk; /* what the op computes */
    const bool plain = !config_adapters_on_experts(&p->m->cfg);          /* the op adds f itself */
    return r->kind == EXPERT_ADAPTER && paper && plain && !r->has_bias && !p->train &&
           p->m->act_dt == DT_BF16 && (int64_t)p->n * r->topk.k <= p->dev->few_choices;
}

void moe_adapters_add(const pass *p, const block *b, tensor x, tensor f)
{
    const moe_acts *a = &p->acts.moe;
    const moe_rule *r = &p->m->cfg.moe;
    p->dev->op->adapters_fwd(p->dev, &(adapters_fwd){ .x = x,
                                                      .f = f,
                                                      .logits = a->logits,
                                                      .down = b->moe.down,
                                                      .up = b->moe.up,
                                                      .mid = a->mid,
                                                      .k = r->topk.k,
                                                      .scale = r->adapter_scale });
}

void moe_restore(const pass *p, const block *b, tensor h)
{
    const ffn_acts *f = &p->acts.ffn;
    const mixture full = moe_full(p, b);
    if (full.rule->kind == EXPERT_FFN)
        moe_gather(&full, full.a->in, h);
    else if (full.rule->kind == EXPERT_LORA)
        p->dev->op->glu_fwd(p->dev, f->glu, f->gate, f->up, p->m->cfg.act);
}

static void adapter_dw(const mixture *x, tensor dw, tensor dy, tensor v)
{
    const bool fresh = x->p->train->first_micro_batch;
    moe_own_product(
        x, (grouped_mm){ .layout = MM_TN, .out = dw, .a = dy, .b = v, .scale = 1, .fresh = fresh },
        &(expert_list){ 0 });
}

void moe_adapter_bwd(const pass *p, const block *b, const block *g, tensor dy)
{
    const moe_acts *a = &p->acts.moe;
    const mixture x = moe_of(p, b);
    tensor dmid = p->train->grads.moe.mid;
    row_gates gates = adapter_gates(p);
    gates.dgates = p->train->grads.moe.gates;
    moe_gather(&x, a->out, dy);
    adapter_dw(&x, g->moe.up, a->out, a->mid);
    moe_product(&x, MM_NN, dmid, a->out, b->moe.up);
    p->dev->op->act_bwd(p->dev, dmid, dmid, a->up, p->m->cfg.moe.adapter_act, &gates);
    adapter_dw(&x, g->moe.down, dmid, a->in);
    moe_product(&x, MM_NN, a->in, dmid, b->moe.down);
    moe_drop_rows(p, b, a->in, DROPOUT_ADAPTER);
    moe_gather_bwd(&x, dy, a->in, true);
}
