#include "model/block.h"

#include "model/params.h"
#include "model/pass.h"

void block_layout(block_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, dim = c->dim;
    bool sparse = false, plain = false;
    for (int32_t i = 0; i < c->n_layers; i++) {
        bool s = config_layer_sparse(c, i);
        sparse |= s;
        plain |= !s || c->moe.kind != EXPERT_FFN;
    }
    *a = (block_acts){ 0 };
    const block_acts *share = plan->share;
    bool keep_y = plan->train && c->moe.kind == EXPERT_ADAPTER;
    a->h = share ? share->h : tensor_take2(mem, plan->dt, n, dim);
    a->y = share && !keep_y ? share->y : tensor_take2(mem, plan->dt, n, dim);
    a->attn_h = !plan->train ? a->h : share ? share->attn_h : tensor_take2(mem, plan->dt, n, dim);
    attention_layout(&a->attn, mem, plan);
    if (plain)
        ffn_layout(&a->ffn, mem, plan->dt, n, c->ffn_dim, share ? &share->ffn : NULL);
    if (sparse)
        moe_layout(&a->moe, mem, plan);
    if (!plan->train)
        return;
    a->middle = tensor_take2(mem, DT_F32, n, dim);
    a->attn_rstd = tensor_take1(mem, DT_F32, n);
    a->ffn_rstd = tensor_take1(mem, DT_F32, n);
}

/* What the router reads: the normed residual stream in f32. */
static tensor router_input(const block_acts *a)
{
    return a->moe.h.data ? a->moe.h : a->h;
}

/* The normed residual stream in a->h, and in f32 for the router: returns the latter. */
static tensor norm_for_router(const pass *p, const block *b, tensor x)
{
    const block_acts *a = &p->acts;
    const ops *op = p->dev->op;
    tensor h32 = router_input(a);
    op->rmsnorm_fwd(p->dev, h32, x, b->ffn_norm, a->ffn_rstd, p->m->cfg.norm_eps);
    if (a->moe.h.data)
        op->convert(p->dev, a->h, h32);
    return h32;
}

static void dense_fwd(const pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    ffn_fwd(p, &b->ffn, &a->ffn, a->y, a->h);
    p->dev->op->add(p->dev, p->x, a->y, 1);
}

static void sparse_fwd(const pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    tensor h32 = norm_for_router(p, b, p->x);
    switch (p->m->cfg.moe.kind) {
    case EXPERT_ADAPTER:
        dense_fwd(p, b);
        moe_adapter_fwd(p, b, p->x, a->y, h32);
        break;
    case EXPERT_LORA:
        moe_lora_fwd(p, b, a->y, a->h, h32);
        p->dev->op->add(p->dev, p->x, a->y, 1);
        break;
    default:
        moe_expert_fwd(p, b, p->x, a->h, h32);
    }
}

static void first_half_fwd(const pass *p, const block *b, int32_t layer)
{
    const block_acts *a = &p->acts;
    const ops *op = p->dev->op;
    op->rmsnorm_fwd(p->dev, a->attn_h, p->x, b->attn_norm, a->attn_rstd, p->m->cfg.norm_eps);
    attention_fwd(p, b, layer, a->y, a->attn_h);
    op->add(p->dev, p->x, a->y, 1);
}

void block_fwd(const pass *p, const block *b, int32_t layer)
{
    const block_acts *a = &p->acts;
    const ops *op = p->dev->op;
    first_half_fwd(p, b, layer);
    if (a->middle.data)
        op->copy(p->dev, a->middle.data, p->x.data, tensor_bytes(&p->x));
    if (b->sparse) {
        sparse_fwd(p, b);
    } else {
        op->rmsnorm_fwd(p->dev, a->h, p->x, b->ffn_norm, a->ffn_rstd, p->m->cfg.norm_eps);
        dense_fwd(p, b);
    }
}

void block_route(const pass *p, const block *b, int32_t layer)
{
    first_half_fwd(p, b, layer);
    moe_route(p, b, norm_for_router(p, b, p->x));
}

void block_restore(const pass *p, const block *b, tensor x)
{
    const block_acts *a = &p->acts;
    const ops *op = p->dev->op;
    float eps = p->m->cfg.norm_eps;
    op->rmsnorm_fwd(p->dev, a->attn_h, x, b->attn_norm, a->attn_rstd, eps);
    if (b->sparse)
        norm_for_router(p, b, a->middle);
    else
        op->rmsnorm_fwd(p->dev, a->h, a->middle, b->ffn_norm, a->ffn_rstd, eps);
    if (!b->sparse || p->m->cfg.moe.kind != EXPERT_FFN)
        op->glu_fwd(p->dev, a->ffn.glu, a->ffn.gate, a->ffn.up, p->m->cfg.act);
    if (b->sparse)
        moe_restore(p, b, a->y, a->h);
}

/* ---- backward ---- */

/* dh (absent: not wanted) of the second half's normed input, from dx. */
static void second_half_bwd(const pass *p, const block *b, const block *g, tensor dh)
{
    const block_acts *a = &p->acts;
    tensor dy = p->grads.dy;
    moe_flow f = { .dh = dh, .dx = p->grads.dx, .h = a->h, .h32 = router_input(a) };
    linear_flow through = { .dx = dh, .dy = dy, .x = a->h };
    p->dev->op->convert(p->dev, dy, p->grads.dx);
    if (!b->sparse) {
        ffn_bwd(p, &b->ffn, &g->ffn, &a->ffn, through);
        return;
    }
    switch (p->m->cfg.moe.kind) {
    case EXPERT_ADAPTER:
        moe_adapter_bwd(p, b, g, dy, f);
        ffn_bwd(p, &b->ffn, &g->ffn, &a->ffn, through);
        moe_router_bwd(p, b, g, f);
        break;
    case EXPERT_LORA:
        moe_lora_bwd(p, b, g, dy, f);
        break;
    default:
        moe_expert_bwd(p, b, g, f);
    }
}

void block_bwd(const pass *p, int32_t layer, tensor x)
{
    const block_acts *a = &p->acts;
    const block *b = &p->m->blocks[layer], *g = &p->params->grads.blocks[layer];
    const ops *op = p->dev->op;
    tensor none = { 0 }, dx = p->grads.dx, dh = p->grads.dh;
    bool below = params_train_below(p->params, layer);
    bool first =
        below || p->params->first_attn; /* does the first half train, or what is under it? */

    bool wanted = first || g->ffn_norm.data;
    second_half_bwd(p, b, g, wanted ? dh : none);
    if (wanted)
        op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = dx,
                                             .dy = dh,
                                             .x = a->middle,
                                             .w = b->ffn_norm,
                                             .rstd = a->ffn_rstd,
                                             .dw = g->ffn_norm,
                                             .accumulate = true });
    if (!first)
        return;
    wanted = below || g->attn_norm.data;
    op->convert(p->dev, p->grads.dy, dx);
    attention_layer_bwd(p, b, g, (attention_flow){ wanted ? dh : none, p->grads.dy, a->attn_h });
    if (wanted)
        op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = dx,
                                             .dy = dh,
                                             .x = x,
                                             .w = b->attn_norm,
                                             .rstd = a->attn_rstd,
                                             .dw = g->attn_norm,
                                             .accumulate = true });
}
