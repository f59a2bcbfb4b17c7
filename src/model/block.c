#include "model/block.h"

#include "model/pass.h"

static void beside_layout(beside_acts *a, arena *mem, const acts_plan *plan)
{
    const int64_t n = plan->n, dim = plan->c->dim;
    if (!plan->c->moe.beside_ffn)
        return;
    a->ffn = tensor_take2(mem, plan->dt, n, dim);
    a->h = tensor_take2(mem, plan->dt, n, dim);
    a->experts = tensor_take2(mem, DT_F32, n, dim);
    if (!plan->train)
        return;
    a->ffn_rstd = tensor_take1(mem, DT_F32, n);
    a->h_rstd = tensor_take1(mem, DT_F32, n);
    a->experts_rstd = tensor_take1(mem, DT_F32, n);
}

void block_layout(block_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, dim = c->dim;
    bool sparse = false, plain = false, under = config_adapters_on_experts(c);
    for (int32_t i = 0; i < c->n_layers; i++) {
        bool s = config_layer_sparse(c, i);
        sparse |= s;
        const moe_rule *full = config_experts(c);
        plain |= !s || full->kind != EXPERT_FFN || full->beside_ffn;
    }
    *a = (block_acts){ 0 };
    const block_acts *share = plan->share;
    a->h = share ? share->h : tensor_take2(mem, plan->dt, n, dim);
    a->y = share ? share->y : tensor_take2(mem, plan->dt, n, dim);
    a->f = a->y;
    a->attn_h = plan->train ? tensor_take2(mem, plan->dt, n, dim) : a->h;
    if (c->norms != NORM_BEFORE) {
        a->attn_raw = tensor_take2(mem, plan->dt, n, dim);
        /* experts add to it, slot by slot */
        a->ffn_raw =
            tensor_take2(mem, config_experts(c)->kind == EXPERT_FFN ? DT_F32 : plan->dt, n, dim);
    } else if (under) { /* what the adapters read, before it is rounded */
        a->ffn_raw = share ? share->ffn_raw : tensor_take2(mem, DT_F32, n, dim);
    }
    arena other = *mem;
    attention_layout(&a->attn, mem, plan);
    recurrent_layout(&a->mix, &other, plan);
    mem->used = mem->used > other.used ? mem->used : other.used;
    if (plain)
        ffn_layout(&a->ffn, mem, plan, config_widest_ffn(c), share ? &share->ffn : NULL);
    if (sparse)
        moe_layout(&a->moe, mem, plan, &(moe_place){ &c->moe, share ? &share->moe : NULL });
    if (under)
        moe_layout(&a->ffn_moe, mem, plan,
                   &(moe_place){ &c->ffn_moe, share ? &share->ffn_moe : NULL });
    beside_layout(&a->beside, mem, plan);
    layer_input_layout(&a->input, mem, plan);
    if (!plan->train)
        return;
    a->middle = tensor_take2(mem, DT_F32, n, dim);
    a->attn_rstd = tensor_take1(mem, DT_F32, n);
    a->ffn_rstd = tensor_take1(mem, DT_F32, n);
    if (c->norms != NORM_BEFORE) {
        a->attn_post_rstd = tensor_take1(mem, DT_F32, n);
        a->ffn_post_rstd = tensor_take1(mem, DT_F32, n);
    }
}

void block_layout_partial(block_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    *a = *plan->share;
    arena other = *mem;
    attention_layout_partial(&a->attn, mem, plan);
    recurrent_layout_partial(&a->mix, &other, plan);
    mem->used = mem->used > other.used ? mem->used : other.used;
    if (a->ffn.gate.nd)
        ffn_layout_partial(&a->ffn, mem, plan);
    const bool under = config_adapters_on_experts(c);
    moe_acts *full = under ? &a->ffn_moe : &a->moe;
    if (full->shared.gate.nd)
        ffn_layout_partial(&full->shared, mem, plan);
    if (c->moe.kind != EXPERT_NONE)
        moe_layout_partial(&a->moe, mem, plan, &c->moe);
    if (under)
        moe_layout_partial(&a->ffn_moe, mem, plan, &c->ffn_moe);
    else if (c->moe.kind == EXPERT_ADAPTER)
        a->f = tensor_take2(mem, plan->dt, plan->n, c->dim);
}

void block_fit(block_acts *a, const block *b)
{
    attention_fit(&a->attn, b);
    ffn_fit(&a->ffn, b->ffn_dim);
}

/* ---- the residual stream ---- */

/* The same without a norm: out = the sum, rounded. Norms after sublayers leave nothing in rows. */
static void stream_plain(pass *p, tensor to, norm_fwd n)
{
    const ops *op = p->dev->op;
    residual *s = &p->stream;
    if (to.data != s->x.data)
        op->copy(p->dev, to.data, s->x.data, tensor_bytes(&to));
    if (s->add.data)
        op->add(p->dev, to, s->add, 1);
    if (n.out.data)
        op->convert(p->dev, n.out, to);
    if (n.logits.data)
        op->matmul(p->dev, &(mm){ .out = n.logits, .a = to, .b = n.router, .scale = 1 });
    *s = (residual){ .x = to };
}

/* Adds what is to be added to the stream, keeps the sum in `to`, and computes its norm. */
static void stream_norm(pass *p, tensor to, norm_fwd n)
{
    residual *s = &p->stream;
    if (!n.w.data) {
        stream_plain(p, to, n);
        return;
    }
    n.shift = p->m->cfg.norm_shift;
    n.x = s->x;
    n.add = s->add;
    n.rows = s->rows;
    n.inverse = s->inverse;
    n.eps = p->m->stream_eps;
    if (s->add.data || s->rows.data || to.data != s->x.data)
        n.sum = to;
    p->dev->op->rmsnorm_fwd(p->dev, &n);
    *s = (residual){ .x = to };
}

void block_flush(pass *p)
{
    stream_norm(p, p->x, (norm_fwd){ .w = p->m->w.final_norm });
}

/* The norm before the FFN or the experts, into a->h. The router's product, in f32, is part of the
 * same walk over the stream. */
static void ffn_norm_fwd(pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    norm_fwd n = { .out = a->h, .w = b->ffn_norm, .rstd = a->ffn_rstd };
    bool route = b->sparse && !pass_has_partial(p), own = b->moe.router_scale.data;
    if (route && !own) {
        n.logits = a->moe.logits;
        n.router = b->moe.router;
    }
    stream_norm(p, a->middle.data ? a->middle : p->x, n);
    const mixture full = moe_full(p, b);
    if (route && own)
        moe_router_norm(&full, p->stream.x);
    const struct {
        tensor logits, router;
    } more[] = { { full.a->shared_logit, full.w->shared_gate },
                 { full.a->logits, full.w != &b->moe ? full.w->router : (tensor){ 0 } } };
    for (size_t i = 0; route && i < sizeof more / sizeof *more; i++)
        if (more[i].router.data)
            stream_norm(
                p, p->stream.x,
                (norm_fwd){ .w = b->ffn_norm, .logits = more[i].logits, .router = more[i].router });
}

/* The norm after a sublayer: y = norm raw, which the stream is to add. */
static void post_norm_fwd(pass *p, tensor raw, tensor w, tensor rstd)
{
    const config *c = &p->m->cfg;
    p->dev->op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = p->acts.y,
                                                 .x = raw,
                                                 .w = w,
                                                 .rstd = rstd,
                                                 .eps = c->norm_eps,
                                                 .shift = c->norm_shift });
    p->stream.add = p->acts.y;
}

/* ---- forward ---- */

/* Recomputing needs the FFN's output only where adapters or a norm after it read it and it was not
 * kept. */
static void dense_fwd(pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    bool post = b->ffn_post.data && !b->sparse;
    bool wanted = !pass_recomputes(p) || (b->sparse && !pass_has_partial(p)) || post;
    tensor f = post ? a->ffn_raw : a->f;
    ffn_fwd(p, &b->ffn, &a->ffn, wanted ? f : (tensor){ 0 }, a->h);
    p->stream.add = f;
    if (post)
        post_norm_fwd(p, f, b->ffn_post, a->ffn_post_rstd);
}

/* What is added to the stream in place must not be added to the one that backward reads. */
static void stream_here(pass *p)
{
    if (p->stream.x.data != p->x.data)
        p->dev->op->copy(p->dev, p->x.data, p->stream.x.data, tensor_bytes(&p->x));
    p->stream.x = p->x;
}

/* Full experts in the place of the FFN. The stream takes what they give as it does without
 * adapters, sum by sum, so that adapters with U = 0 change no bit; f is a copy for the adapters. */
static void mixture_fwd(pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    const ops *op = p->dev->op;
    if (!pass_has_partial(p))
        moe_route_full(p, b);
    op->zero(p->dev, a->ffn_raw.data, tensor_bytes(&a->ffn_raw));
    moe_expert_fwd(p, b, a->ffn_raw, a->h);
    moe_shared_fwd(p, b, a->h);
    if (!b->ffn_post.data) {
        stream_here(p);
        op->add(p->dev, p->x, a->ffn_raw, 1);
        moe_shared_add(p, b, p->x);
    }
    moe_shared_add(p, b, a->ffn_raw);
    op->convert(p->dev, a->f, a->ffn_raw);
}

/* Adds the rows of adapters to the FFN's output and norms the sum. */
static void post_norm_adapters(pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    const ops *op = p->dev->op;
    if (!config_adapters_on_experts(&p->m->cfg))
        op->copy(p->dev, a->ffn_raw.data, a->f.data, tensor_bytes(&a->f));
    op->gather_rows_bwd(p->dev, a->ffn_raw, a->moe.out, a->moe.inverse, p->m->cfg.moe.topk.k, true);
    post_norm_fwd(p, a->ffn_raw, b->ffn_post, a->ffn_post_rstd);
}

static void norm_of(const pass *p, norm_fwd n)
{
    n.eps = p->m->cfg.norm_eps;
    n.shift = p->m->cfg.norm_shift;
    p->dev->op->rmsnorm_fwd(p->dev, &n);
}

/* The FFN and the experts beside it: norm(norm ffn(norm x) + norm experts(norm x)), four norms. */
static void beside_fwd(pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    const beside_acts *s = &a->beside;
    const ops *op = p->dev->op;
    ffn_fwd(p, &b->ffn, &a->ffn, s->ffn, a->h);
    norm_of(p, (norm_fwd){ .out = a->y, .x = s->ffn, .w = b->moe.ffn_post, .rstd = s->ffn_rstd });
    op->convert(p->dev, a->ffn_raw, a->y);
    norm_of(p, (norm_fwd){ .out = s->h, .x = p->stream.x, .w = b->moe.norm, .rstd = s->h_rstd });
    op->zero(p->dev, s->experts.data, tensor_bytes(&s->experts));
    moe_expert_fwd(p, b, s->experts, s->h);
    norm_of(p,
            (norm_fwd){ .out = a->y, .x = s->experts, .w = b->moe.post, .rstd = s->experts_rstd });
    op->add(p->dev, a->ffn_raw, a->y, 1);
    post_norm_fwd(p, a->ffn_raw, b->ffn_post, a->ffn_post_rstd);
}

static void sparse_fwd(pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    const bool post = b->ffn_post.data;
    if (!post && moe_adapters_few(p)) {
        dense_fwd(p, b);
        moe_adapters_add(p, b, p->stream.x, a->f);
        p->stream.add = (tensor){ 0 };
        return;
    }
    if (!pass_has_partial(p))
        moe_route(p, b);
    switch (p->m->cfg.moe.kind) {
    case EXPERT_ADAPTER:
        (config_adapters_on_experts(&p->m->cfg) ? mixture_fwd : dense_fwd)(p, b);
        moe_adapter_fwd(p, b, a->f);
        if (post) {
            post_norm_adapters(p, b);
            break;
        }
        p->stream.rows = a->moe.out;
        p->stream.inverse = a->moe.inverse;
        break;
    case EXPERT_LORA:
        moe_lora_fwd(p, b, post ? a->ffn_raw : a->y, a->h);
        p->stream.add = a->y;
        if (post)
            post_norm_fwd(p, a->ffn_raw, b->ffn_post, a->ffn_post_rstd);
        break;
    default:
        if (b->moe.post.data) {
            beside_fwd(p, b);
            break;
        }
        if (post) {
            p->dev->op->zero(p->dev, a->ffn_raw.data, tensor_bytes(&a->ffn_raw));
            moe_experts_fwd(p, b, a->ffn_raw, a->h);
            post_norm_fwd(p, a->ffn_raw, b->ffn_post, a->ffn_post_rstd);
            break;
        }
        stream_here(p);
        moe_experts_fwd(p, b, p->x, a->h);
    }
}

void block_attention_fwd(pass *p, int32_t layer, tensor x)
{
    const block *b = &p->m->w.blocks[layer];
    const block_acts *a = &p->acts;
    block_fit(&p->acts, b);
    stream_norm(p, x, (norm_fwd){ .out = a->attn_h, .w = b->attn_norm, .rstd = a->attn_rstd });
    const bool post = b->attn_post.data;
    const tensor y = post ? a->attn_raw : a->y;
    if (b->mixer == MIXER_ATTENTION)
        attention_fwd(p, b, y, a->attn_h);
    else
        recurrent_fwd(p, b, y, a->attn_h);
    p->stream.add = a->y;
    if (post)
        post_norm_fwd(p, a->attn_raw, b->attn_post, a->attn_post_rstd);
    ffn_norm_fwd(p, b);
}

/* What the layer's own input adds. Backward reads what was between the sublayers, so the stream
 * goes on elsewhere. */
static void input_fwd(pass *p, int32_t layer)
{
    const block *b = &p->m->w.blocks[layer];
    const layer_input_acts *a = &p->acts.input;
    if (!b->input.norm.data)
        return;
    stream_plain(p, p->x, (norm_fwd){ .out = a->h });
    layer_input_fwd(p, layer);
    post_norm_fwd(p, a->raw, b->input.norm, a->rstd);
}

/* The stream with what the layer adds, times the layer's number; elsewhere, too. */
static void scale_stream(pass *p, tensor scale)
{
    if (!scale.data || pass_recomputes(p))
        return;
    stream_plain(p, p->x, (norm_fwd){ 0 });
    p->dev->op->scale_rows(p->dev, p->x, scale, 1);
}

void block_ffn_fwd(pass *p, int32_t layer)
{
    const block *b = &p->m->w.blocks[layer];
    if (b->sparse)
        sparse_fwd(p, b);
    else
        dense_fwd(p, b);
    input_fwd(p, layer);
    scale_stream(p, b->scale);
}

void block_fwd(pass *p, int32_t layer, tensor x)
{
    block_attention_fwd(p, layer, x);
    block_ffn_fwd(p, layer);
}

void block_route(pass *p, int32_t layer, tensor x)
{
    block_attention_fwd(p, layer, x);
    moe_route(p, &p->m->w.blocks[layer]);
}

void block_restore(const pass *p, const block *b)
{
    const block_acts *a = &p->acts;
    if (b->ffn_norm.data)
        p->dev->op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = a->h,
                                                     .x = a->middle,
                                                     .w = b->ffn_norm,
                                                     .eps = p->m->stream_eps,
                                                     .shift = p->m->cfg.norm_shift });
    else
        p->dev->op->convert(p->dev, a->h, a->middle);
    if (b->sparse)
        moe_restore(p, b, b->moe.post.data ? a->beside.h : a->h);
}

/* ---- backward ---- */

/* dh (absent: not wanted) of the normed input of the FFN or experts, from dx and dy, which is dx
 * rounded. */
static void ffn_sublayer_bwd(const pass *p, const block *b, const block *g, tensor dh)
{
    const block_acts *a = &p->acts;
    tensor dy = p->train->grads.dy;
    moe_flow f = { .dh = dh, .dx = b->ffn_post.data ? dy : p->train->grads.dx, .h = a->h };
    linear_flow through = { .dx = dh, .dy = dy, .x = a->h };
    if (!b->sparse) {
        ffn_bwd(p, &b->ffn, &g->ffn, &a->ffn, through);
        return;
    }
    switch (p->m->cfg.moe.kind) {
    case EXPERT_ADAPTER:
        moe_adapter_dense(p, b, dy);
        moe_adapter_bwd(p, b, g, dy);
        if (config_adapters_on_experts(&p->m->cfg)) {
            f.dx = dy;
            moe_expert_bwd(p, b, g, f);
            moe_full_router_bwd(p, b, g, dh);
        } else {
            ffn_bwd(p, &b->ffn, &g->ffn, &a->ffn, through);
        }
        break;
    case EXPERT_LORA:
        moe_lora_bwd(p, b, g, dy, f);
        break;
    default:
        moe_expert_bwd(p, b, g, f);
        moe_expert_dense(p, b, f);
    }
    moe_router_bwd(p, b, g);
}

/* dy becomes the gradient of what a sublayer gave to the norm after it; w absent: there is none. */
static void post_norm_bwd(const pass *p, norm_bwd n)
{
    if (!n.w.data)
        return;
    n.dx = n.dy = p->train->grads.dy;
    n.shift = p->m->cfg.norm_shift;
    p->dev->op->rmsnorm_bwd(p->dev, &n);
}

/* Without a norm the sublayer read the stream, and so did the router. */
static void stream_plain_bwd(const pass *p, norm_bwd n)
{
    const ops *op = p->dev->op;
    const train_grads *d = &p->train->grads;
    if (n.drouter.data)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = n.drouter,
                                  .a = n.dlogits,
                                  .b = n.x,
                                  .scale = 1,
                                  .accumulate = true });
    if (n.dlogits.data)
        op->matmul(p->dev, &(mm){ .layout = MM_NN,
                                  .out = d->dx,
                                  .a = n.dlogits,
                                  .b = n.router,
                                  .scale = 1,
                                  .accumulate = true });
    op->add(p->dev, d->dx, d->dh, 1);
    op->convert(p->dev, d->dy, d->dx);
}

/* Adds the gradient that comes through a norm to dx of the residual stream; dy becomes dx rounded.
 */
static void stream_norm_bwd(const pass *p, norm_bwd n)
{
    if (!n.w.data) {
        stream_plain_bwd(p, n);
        return;
    }
    n.shift = p->m->cfg.norm_shift;
    n.dx = p->train->grads.dx;
    n.dy = p->train->grads.dh;
    n.copy = p->train->grads.dy;
    n.accumulate = true;
    p->dev->op->rmsnorm_bwd(p->dev, &n);
}

/* The gradient of what the router's own norm read, from that of its logits alone. */
static void router_norm_bwd(const pass *p, const block *b, const block *g, bool wanted)
{
    const train_grads *d = &p->train->grads;
    norm_bwd n = { .dy = d->dh,
                   .x = p->acts.middle,
                   .w = b->moe.router_scale,
                   .rstd = p->acts.moe.router_rstd,
                   .dw = g->moe.router_scale,
                   .dlogits = d->moe.logits,
                   .router = b->moe.router,
                   .drouter = g->moe.router };
    p->dev->op->zero(p->dev, d->dh.data, tensor_bytes(&d->dh));
    if (wanted) {
        n.dx = d->dx;
        n.copy = d->dy;
        n.accumulate = true;
    }
    p->dev->op->rmsnorm_bwd(p->dev, &n);
}

/* beside_fwd() from the end: through the FFN, then from the same gradient through the experts. */
static void beside_bwd(const pass *p, const block *b, const block *g, bool wanted)
{
    const block_acts *a = &p->acts;
    const beside_acts *s = &a->beside;
    const train_grads *d = &p->train->grads;
    const tensor dh = wanted ? d->dh : (tensor){ 0 };
    p->dev->op->copy(p->dev, d->beside.data, d->dy.data, tensor_bytes(&d->dy));
    post_norm_bwd(
        p, (norm_bwd){
               .x = s->ffn, .w = b->moe.ffn_post, .rstd = s->ffn_rstd, .dw = g->moe.ffn_post });
    ffn_bwd(p, &b->ffn, &g->ffn, &a->ffn, (linear_flow){ .dx = dh, .dy = d->dy, .x = a->h });
    if (wanted)
        stream_norm_bwd(
            p,
            (norm_bwd){ .x = a->middle, .w = b->ffn_norm, .rstd = a->ffn_rstd, .dw = g->ffn_norm });
    p->dev->op->copy(p->dev, d->dy.data, d->beside.data, tensor_bytes(&d->dy));
    post_norm_bwd(
        p, (norm_bwd){
               .x = s->experts, .w = b->moe.post, .rstd = s->experts_rstd, .dw = g->moe.post });
    moe_expert_bwd(p, b, g, (moe_flow){ .dh = dh, .dx = d->dy, .h = s->h });
    if (wanted)
        stream_norm_bwd(
            p,
            (norm_bwd){ .x = a->middle, .w = b->moe.norm, .rstd = s->h_rstd, .dw = g->moe.norm });
    moe_router_bwd(p, b, g);
    router_norm_bwd(p, b, g, wanted);
}

/* The FFN sublayer with its norm. wanted: something below it trains. */
static void ffn_and_norm_bwd(const pass *p, const block *b, const block *g, bool wanted)
{
    const block_acts *a = &p->acts;
    const train_grads *d = &p->train->grads;
    wanted = wanted || g->ffn_norm.data || g->moe.norm.data;
    post_norm_bwd(
        p, (norm_bwd){
               .x = a->ffn_raw, .w = b->ffn_post, .rstd = a->ffn_post_rstd, .dw = g->ffn_post });
    if (b->moe.post.data) {
        beside_bwd(p, b, g, wanted);
        return;
    }
    ffn_sublayer_bwd(p, b, g, wanted ? d->dh : (tensor){ 0 });
    norm_bwd n = { .x = a->middle, .w = b->ffn_norm, .rstd = a->ffn_rstd, .dw = g->ffn_norm };
    if (b->sparse) {
        n.dlogits = d->moe.logits;
        n.router = b->moe.router;
        n.drouter = g->moe.router;
    }
    if (wanted)
        stream_norm_bwd(p, n);
    else if (n.drouter.data && n.w.data) {
        n.shift = p->m->cfg.norm_shift;
        p->dev->op->rmsnorm_bwd(p->dev, &n);
    } else if (n.drouter.data) {
        p->dev->op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                          .out = n.drouter,
                                          .a = n.dlogits,
                                          .b = n.x,
                                          .scale = 1,
                                          .accumulate = true });
    }
}

/* The term of the layer's own input, and what it gives to the stream before it. */
static void input_bwd(const pass *p, int32_t layer, const block *g)
{
    const block *b = &p->m->w.blocks[layer];
    const layer_input_acts *a = &p->acts.input;
    const train_grads *d = &p->train->grads;
    if (!b->input.norm.data)
        return;
    post_norm_bwd(
        p, (norm_bwd){ .x = a->raw, .w = b->input.norm, .rstd = a->rstd, .dw = g->input.norm });
    layer_input_bwd(p, layer, g, d->dh, d->dy);
    p->dev->op->add(p->dev, d->dx, d->dh, 1);
    p->dev->op->convert(p->dev, d->dy, d->dx);
}

void block_bwd(const pass *p, int32_t layer, tensor x)
{
    const block_acts *a = &p->acts;
    const train_state *t = p->train;
    const block *b = &p->m->w.blocks[layer], *g = &t->mirror->of.blocks[layer];
    if (b->scale.data) {
        p->dev->op->scale_rows(p->dev, t->grads.dx, b->scale, 1);
        p->dev->op->convert(p->dev, t->grads.dy, t->grads.dx);
    }
    input_bwd(p, layer, g);
    bool below = mirror_below(t->mirror, layer);
    bool reaches =
        below || t->mirror->facts.first_attn; /* attention, or what is below it, trains */
    ffn_and_norm_bwd(p, b, g, reaches);
    if (!reaches)
        return;
    bool wanted = below || g->attn_norm.data;
    tensor dh = wanted ? t->grads.dh : (tensor){ 0 };
    post_norm_bwd(p, (norm_bwd){ .x = a->attn_raw,
                                 .w = b->attn_post,
                                 .rstd = a->attn_post_rstd,
                                 .dw = g->attn_post });
    const attention_flow flow = { dh, t->grads.dy, a->attn_h };
    if (b->mixer == MIXER_ATTENTION)
        attention_layer_bwd(p, b, g, flow);
    else
        recurrent_bwd(p, b, g, flow);
    if (wanted)
        stream_norm_bwd(
            p, (norm_bwd){ .x = x, .w = b->attn_norm, .rstd = a->attn_rstd, .dw = g->attn_norm });
}
