#include "model/attention.h"

#include "model/linear.h"
#include "model/pass.h"

static void standard_layout(attention_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    const head_widths w = config_widths(c);
    int64_t n = plan->n, kv_heads = c->n_kv_heads;
    if (c->attn_gate_in_q)
        a->q_gate = tensor_take2(mem, plan->dt, n, 2 * w.q);
    if (c->qk_norm == QK_NORM_NONE)
        return;
    a->q_raw = tensor_take2(mem, plan->dt, n, w.q);
    a->k_raw = tensor_take2(mem, plan->dt, n, w.k);
    if (c->v_norm)
        a->v_raw = tensor_take2(mem, plan->dt, n, w.v);
    if (!plan->train)
        return;
    bool heads = c->qk_norm == QK_NORM_HEAD;
    kv_heads = c->full_kv_heads > kv_heads ? c->full_kv_heads : kv_heads;
    a->q_rstd = tensor_take1(mem, DT_F32, heads ? n * c->n_heads : n);
    a->k_rstd = tensor_take1(mem, DT_F32, heads ? n * kv_heads : n);
    if (c->v_norm)
        a->v_rstd = tensor_take1(mem, DT_F32, n * kv_heads);
}

static void mla_layout(attention_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, width = c->qk_nope_dim + c->v_dim;
    if (c->q_lora_rank) {
        a->q_low = tensor_take2(mem, plan->dt, n, c->q_lora_rank);
        a->q_lat = tensor_take2(mem, plan->dt, n, c->q_lora_rank);
    }
    a->kv_in = tensor_take2(mem, plan->dt, n, c->kv_lora_rank);
    a->kv_lat = tensor_take2(mem, plan->dt, n, c->kv_lora_rank);
    if (plan->share) {
        a->kv_low = plan->share->attn.kv_low;
        a->kv = plan->share->attn.kv;
    } else {
        a->kv_low = tensor_take2(mem, plan->dt, n, (int64_t)c->kv_lora_rank + c->qk_rope_dim);
        a->kv = tensor_take2(mem, plan->dt, n, c->n_heads * width);
    }
    if (!plan->train)
        return;
    a->q_rstd = tensor_take1(mem, DT_F32, n);
    a->kv_rstd = tensor_take1(mem, DT_F32, n);
}

void attention_shared_layout(shared_kv shared[SHARED_KINDS], arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    for (int32_t i = c->n_layers - c->n_kv_shared; i < c->n_layers; i++) {
        shared_kv *s = &shared[config_layer_window(c, i) ? SHARED_WINDOWED : SHARED_FULL];
        const head_widths w = config_layer_widths(c, i);
        if (s->k.nd)
            continue;
        s->k = tensor_take2(mem, plan->dt, plan->n, w.k);
        s->v = tensor_take2(mem, plan->dt, plan->n, w.v);
    }
}

void attention_layout_partial(attention_acts *a, arena *mem, const acts_plan *plan)
{
    if (!plan->rank)
        return;
    a->qkv_ax = tensor_take2(mem, plan->dt, plan->n, LINEARS * plan->rank);
    a->o_ax = tensor_take2(mem, plan->dt, plan->n, plan->rank);
}

void attention_layout(attention_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    const head_widths w = config_widths(c);
    int64_t n = plan->n;
    *a = (attention_acts){ 0 };
    a->q = tensor_take2(mem, plan->dt, n, w.q);
    a->k = tensor_take2(mem, plan->dt, n, w.k);
    a->v = tensor_take2(mem, plan->dt, n, w.v);
    a->out = tensor_take2(mem, plan->dt, n, w.out);
    if (c->attn_gate) {
        a->gate = tensor_take2(mem, plan->dt, n, w.out);
        a->gated = tensor_take2(mem, plan->dt, n, w.out);
    }
    if (plan->train || c->sinks)
        a->lse = tensor_take2(mem, DT_F32, n, c->n_heads);
    attention_layout_partial(a, mem, plan);
    if (config_mla(c))
        mla_layout(a, mem, plan);
    else
        standard_layout(a, mem, plan);
}

void attention_grads_layout(attention_grads *g, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    const head_widths w = config_widths(c);
    int64_t heads = c->n_heads, n = plan->n;
    *g = (attention_grads){ 0 };
    g->q = tensor_take2(mem, plan->dt, n, w.q);
    g->k = tensor_take2(mem, plan->dt, n, w.k);
    g->v = tensor_take2(mem, plan->dt, n, w.v);
    g->out = tensor_take2(mem, plan->dt, n, w.out);
    g->delta = tensor_take2(mem, DT_F32, n, heads);
    if (c->attn_gate)
        g->ungated = tensor_take2(mem, plan->dt, n, w.out);
    if (c->attn_gate_in_q)
        g->q_gate = tensor_take2(mem, plan->dt, n, 2 * w.q);
    if (!config_mla(c))
        return;
    if (c->q_lora_rank)
        g->q_low = tensor_take2(mem, plan->dt, n, c->q_lora_rank);
    g->kv_low = tensor_take2(mem, plan->dt, n, (int64_t)c->kv_lora_rank + c->qk_rope_dim);
    g->kv_lat = tensor_take2(mem, plan->dt, n, c->kv_lora_rank);
    g->kv = tensor_take2(mem, plan->dt, n, heads * (c->qk_nope_dim + c->v_dim));
}

static void fit(tensor *t, int64_t columns)
{
    if (t->data)
        t->ne[1] = columns;
}

/* Narrower tensors use the start of their memory. */
void attention_fit(attention_acts *a, const block *b)
{
    fit(&a->q, b->widths.q);
    fit(&a->q_raw, b->widths.q);
    fit(&a->k, b->widths.k);
    fit(&a->k_raw, b->widths.k);
    fit(&a->v, b->widths.v);
    fit(&a->v_raw, b->widths.v);
    fit(&a->out, b->widths.out);
    fit(&a->gate, b->widths.out);
    fit(&a->gated, b->widths.out);
}

void attention_grads_fit(attention_grads *g, const block *b)
{
    fit(&g->q, b->widths.q);
    fit(&g->k, b->widths.k);
    fit(&g->v, b->widths.v);
    fit(&g->out, b->widths.out);
    fit(&g->ungated, b->widths.out);
}

/* By the layer's table; layers without one do not rotate. */
static void rotate(const pass *p, const block *b, tensor x, rope r)
{
    if (b->rope < 0)
        return;
    r.x = x;
    r.cos = p->cos[b->rope];
    r.sin = p->sin[b->rope];
    p->dev->op->rope(p->dev, &r);
}

static rope standard_rope(const config *c, const block *b, int32_t n_heads)
{
    return (rope){ .n_heads = n_heads,
                   .head_dim = b->heads.qk_dim,
                   .rot_dim = config_rope_dim(c, b->rope),
                   .interleaved = c->rope_interleaved };
}

/* MLA rotates the last columns of each query head, and those after the latent. */
static rope mla_rope_q(const config *c)
{
    return (rope){ .n_heads = c->n_heads,
                   .head_dim = config_qk_dim(c),
                   .offset = c->qk_nope_dim,
                   .rot_dim = c->qk_rope_dim,
                   .interleaved = c->rope_interleaved };
}

static rope mla_rope_k(const config *c)
{
    return (rope){ .n_heads = 1,
                   .head_dim = c->kv_lora_rank + c->qk_rope_dim,
                   .offset = c->kv_lora_rank,
                   .rot_dim = c->qk_rope_dim,
                   .interleaved = c->rope_interleaved };
}

/* A norm over each head, or over the whole row: the rows are as wide as the norm's weight. */
static void norm_heads(const pass *p, tensor out, tensor x, tensor w, tensor rstd)
{
    int64_t width = w.ne[0], rows = tensor_count(&x) / width;
    p->dev->op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = tensor_view2(&out, rows, width),
                                                 .x = tensor_view2(&x, rows, width),
                                                 .w = w,
                                                 .rstd = rstd,
                                                 .eps = p->m->cfg.norm_eps,
                                                 .shift = p->m->cfg.norm_shift });
}

/* With a cache the op of attention rotates whole heads while it writes them there, unless other
 * layers read them. */
static bool op_rotates(const pass *p)
{
    const config *c = &p->m->cfg;
    return p->kv && !config_mla(c) && config_rot_dim(c) == c->head_dim && !c->qk_norm_rotated &&
           !p->q_scale.data && !c->n_kv_shared;
}

/* The keys and values that the op reads. A layer that borrows them has its cache's place from their
 * layer, too, and the op stores there once more what is there. */
static tensor keys_of(const pass *p, const block *b)
{
    return b->shared_kv < 0 ? p->acts.attn.k : p->shared[b->shared_kv].k;
}

static tensor values_of(const pass *p, const block *b)
{
    return b->shared_kv < 0 ? p->acts.attn.v : p->shared[b->shared_kv].v;
}

static void rotate_qk(const pass *p, const block *b, tensor q, tensor k)
{
    const config *c = &p->m->cfg;
    rotate(p, b, q, standard_rope(c, b, c->n_heads));
    if (!b->borrows_kv)
        rotate(p, b, k, standard_rope(c, b, b->heads.kv_heads));
}

/* Queries and their gates, from or to the heads that have both. */
static void copy_gates(const pass *p, tensor q, tensor gate, tensor both, bool join)
{
    const config *c = &p->m->cfg;
    const int32_t n = c->head_dim;
    copy_heads parts[] = { { .dst = q, .src = both }, { .dst = gate, .src = both } };
    for (int i = 0; i < 2; i++) {
        copy_heads *x = &parts[i];
        const tensor part = x->dst;
        x->n_heads = c->n_heads;
        x->n = n;
        x->dst_head = join ? 2 * n : n;
        x->src_head = join ? n : 2 * n;
        x->dst_col = join ? i * n : 0;
        x->src_col = join ? 0 : i * n;
        x->dst = join ? both : part;
        x->src = join ? part : both;
        p->dev->op->copy_heads(p->dev, x);
    }
}

/* Of values of their own, or of the keys in their place. */
static tensor values_raw(const pass *p, const block *b)
{
    return b->v.w.data ? p->acts.attn.v_raw : p->acts.attn.k_raw;
}

static tensor ones(const pass *p, const block *b)
{
    return tensor_slice(&p->ones, 0, b->heads.v_dim);
}

/* Of the queries, the keys and the values of a layer, those that it projects. */
static int projections(const block *b)
{
    return b->borrows_kv ? 1 : b->v.w.data ? 3 : 2;
}

static void standard_qkv(const pass *p, const block *b, tensor h)
{
    const config *c = &p->m->cfg;
    const attention_acts *a = &p->acts.attn;
    const tensor k = keys_of(p, b), v = values_of(p, b);
    bool norm = c->qk_norm != QK_NORM_NONE;
    tensor q = norm ? a->q_raw : a->q;
    linears_fwd(p,
                &(linear_set){ projections(b),
                               { &b->q, &b->k, &b->v },
                               { c->attn_gate_in_q ? a->q_gate : q, norm ? a->k_raw : k,
                                 c->v_norm ? a->v_raw : v },
                               a->qkv_ax },
                h);
    if (c->attn_gate_in_q)
        copy_gates(p, q, a->gate, a->q_gate, false);
    if (c->qk_norm_rotated)
        rotate_qk(p, b, a->q_raw, a->k_raw);
    if (norm) {
        norm_heads(p, a->q, a->q_raw, b->q_norm, a->q_rstd);
        if (!b->borrows_kv)
            norm_heads(p, k, a->k_raw, b->k_norm, a->k_rstd);
    }
    if (c->v_norm && !b->borrows_kv)
        norm_heads(p, v, values_raw(p, b), ones(p, b), a->v_rstd);
    if (!c->qk_norm_rotated && !op_rotates(p))
        rotate_qk(p, b, a->q, k);
    if (p->q_scale.data)
        p->dev->op->scale_rows(p->dev, a->q, p->q_scale, 1);
}

/* Copies out of products that serve several uses: kv to the heads of k and of v, the rotated
 * columns of kv_low to every head of k, the latent to the input of its norm. */
typedef struct mla_copies {
    copy_heads k, rot, v, latent;
} mla_copies;

static mla_copies mla_copy_plan(const config *c)
{
    int32_t nope = c->qk_nope_dim, v = c->v_dim, qk = config_qk_dim(c), lat = c->kv_lora_rank;
    return (mla_copies){
        .k = { .n_heads = c->n_heads, .n = nope, .dst_head = qk, .src_head = nope + v },
        .rot = { .n_heads = c->n_heads,
                 .n = c->qk_rope_dim,
                 .dst_head = qk,
                 .dst_col = nope,
                 .src_col = lat },
        .v = { .n_heads = c->n_heads,
               .n = v,
               .dst_head = v,
               .src_head = nope + v,
               .src_col = nope },
        .latent = { .n_heads = 1, .n = lat, .dst_head = lat, .src_head = lat + c->qk_rope_dim },
    };
}

static void copy_fwd(const pass *p, copy_heads c, tensor dst, tensor src)
{
    c.dst = dst;
    c.src = src;
    p->dev->op->copy_heads(p->dev, &c);
}

/* The gradient is copied the other way; where all heads read the same columns, it is their sum. */
static void copy_bwd(const pass *p, copy_heads c, tensor ddst, tensor dsrc)
{
    p->dev->op->copy_heads(p->dev, &(copy_heads){ .dst = dsrc,
                                                  .src = ddst,
                                                  .n_heads = c.n_heads,
                                                  .n = c.n,
                                                  .dst_head = c.src_head,
                                                  .dst_col = c.src_col,
                                                  .src_head = c.dst_head,
                                                  .src_col = c.dst_col,
                                                  .accumulate = c.src_head == 0 });
}

static void latent_norm(const pass *p, tensor out, tensor x, tensor w, tensor rstd)
{
    p->dev->op->rmsnorm_fwd(
        p->dev,
        &(norm_fwd){ .out = out, .x = x, .w = w, .rstd = rstd, .eps = p->m->cfg.mla_norm_eps });
}

static void mla_qkv(const pass *p, const block *b, tensor h)
{
    const config *c = &p->m->cfg;
    const attention_acts *a = &p->acts.attn;
    mla_copies copies = mla_copy_plan(c);
    if (c->q_lora_rank) {
        linear_fwd(p, &b->mla.q_a, a->q_low, h);
        latent_norm(p, a->q_lat, a->q_low, b->mla.q_norm, a->q_rstd);
        linear_fwd(p, &b->mla.q_b, a->q, a->q_lat);
    } else {
        linear_fwd(p, &b->mla.q, a->q, h);
    }
    linear_fwd(p, &b->mla.kv_a, a->kv_low, h);
    copy_fwd(p, copies.latent, a->kv_in, a->kv_low);
    latent_norm(p, a->kv_lat, a->kv_in, b->mla.kv_norm, a->kv_rstd);
    linear_fwd(p, &b->mla.kv_b, a->kv, a->kv_lat);

    rotate(p, b, a->q, mla_rope_q(c));
    rotate(p, b, a->kv_low, mla_rope_k(c));
    copy_fwd(p, copies.k, a->k, a->kv);
    copy_fwd(p, copies.rot, a->k, a->kv_low);
    copy_fwd(p, copies.v, a->v, a->kv);
}

/* The op's arguments; the pages, if any, are the caller's. */
static attention attention_args(const pass *p, const block *b)
{
    const config *c = &p->m->cfg;
    const attention_acts *a = &p->acts.attn;
    return (attention){ .q = a->q,
                        .k = keys_of(p, b),
                        .v = values_of(p, b),
                        .out = a->out,
                        .starts = p->starts,
                        .pos = p->pos,
                        .lse = a->lse,
                        .n_heads = c->n_heads,
                        .n_kv_heads = b->heads.kv_heads,
                        .qk_dim = b->heads.qk_dim,
                        .v_dim = b->heads.v_dim,
                        .window = b->window,
                        .scale = p->m->attn_scale,
                        .softcap = c->attn_softcap };
}

/* What the output projection reads. */
static tensor gate_fwd(const pass *p, const block *b, tensor out, tensor h)
{
    const attention_acts *a = &p->acts.attn;
    if (!a->gated.data)
        return out;
    if (b->out_gate.w.data)
        linear_fwd(p, &b->out_gate, a->gate, h);
    p->dev->op->glu_fwd(p->dev, a->gated, a->gate, out, ACT_SIGMOID);
    return a->gated;
}

void attention_fwd(const pass *p, const block *b, tensor y, tensor h)
{
    if (config_mla(&p->m->cfg))
        mla_qkv(p, b, h);
    else
        standard_qkv(p, b, h);
    attention args = attention_args(p, b);
    kv_pages pages = { 0 };
    if (p->kv) {
        pages =
            (kv_pages){ kvcache_keys(p->kv, b->place), kvcache_values(p->kv, b->place), p->table };
        args.kv = &pages;
    }
    if (op_rotates(p) && b->rope >= 0) {
        args.cos = p->cos[b->rope];
        args.sin = p->sin[b->rope];
        args.interleaved = p->m->cfg.rope_interleaved;
    }
    p->dev->op->attention_fwd(p->dev, &args);
    if (b->sinks.data)
        p->dev->op->sink_fwd(p->dev, args.out, args.lse, b->sinks);
    linears_fwd(p, &(linear_set){ 1, { &b->o }, { y }, p->acts.attn.o_ax },
                gate_fwd(p, b, p->acts.attn.out, h));
}

/* ---- backward ---- */

static void rotate_bwd(const pass *p, const block *b, tensor dx, rope r)
{
    r.inverse = true;
    rotate(p, b, dx, r);
}

static void rotate_qk_bwd(const pass *p, const block *b)
{
    const config *c = &p->m->cfg;
    const attention_grads *d = &p->train->grads.attn;
    rotate_bwd(p, b, d->q, standard_rope(c, b, c->n_heads));
    if (!b->borrows_kv)
        rotate_bwd(p, b, d->k, standard_rope(c, b, b->heads.kv_heads));
}

/* The gradients of shared keys and values: those that borrow them come first, and add theirs up in
 * f32; their layer adds the sums to its own. */
static void shared_bwd(const pass *p, const block *b)
{
    const attention_grads *d = &p->train->grads.attn;
    const shared_kv *sum = &p->train->shared[b->shared_kv];
    const ops *op = p->dev->op;
    op->add(p->dev, b->borrows_kv ? sum->k : d->k, b->borrows_kv ? d->k : sum->k, 1);
    op->add(p->dev, b->borrows_kv ? sum->v : d->v, b->borrows_kv ? d->v : sum->v, 1);
}

/* In place: dx is the gradient of the norm's output, then of its input. */
static void norm_heads_bwd(const pass *p, tensor dx, norm_bwd n)
{
    int64_t width = n.w.ne[0], rows = tensor_count(&dx) / width;
    n.dx = n.dy = tensor_view2(&dx, rows, width);
    n.x = tensor_view2(&n.x, rows, width);
    n.shift = p->m->cfg.norm_shift;
    p->dev->op->rmsnorm_bwd(p->dev, &n);
}

static void standard_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const config *c = &p->m->cfg;
    const attention_acts *a = &p->acts.attn;
    const attention_grads *d = &p->train->grads.attn;
    const int n = projections(b);
    if (p->q_scale.data)
        p->dev->op->scale_rows(p->dev, d->q, p->q_scale, 1);
    if (!c->qk_norm_rotated)
        rotate_qk_bwd(p, b);
    if (c->qk_norm != QK_NORM_NONE)
        norm_heads_bwd(
            p, d->q,
            (norm_bwd){ .x = a->q_raw, .w = b->q_norm, .rstd = a->q_rstd, .dw = g->q_norm });
    if (c->qk_norm != QK_NORM_NONE && n > 1)
        norm_heads_bwd(
            p, d->k,
            (norm_bwd){ .x = a->k_raw, .w = b->k_norm, .rstd = a->k_rstd, .dw = g->k_norm });
    if (c->v_norm && n > 1)
        norm_heads_bwd(p, d->v,
                       (norm_bwd){ .x = values_raw(p, b), .w = ones(p, b), .rstd = a->v_rstd });
    if (n == 2)
        p->dev->op->add(p->dev, d->k, d->v, 1);
    if (c->qk_norm_rotated)
        rotate_qk_bwd(p, b);
    if (c->attn_gate_in_q)
        copy_gates(p, d->q, a->gate, d->q_gate, true);
    const tensor dq = c->attn_gate_in_q ? d->q_gate : d->q;
    linears_bwd(p, &(linear_set){ n, { &b->q, &b->k, &b->v }, { dq, d->k, d->v }, a->qkv_ax },
                (const linear *[]){ &g->q, &g->k, &g->v }, (linear_flow){ .dx = f.dh, .x = f.h });
}

static void mla_q_bwd(const pass *p, const mla *b, const mla *g, attention_flow f)
{
    const attention_acts *a = &p->acts.attn;
    const attention_grads *d = &p->train->grads.attn;
    if (!p->m->cfg.q_lora_rank) {
        linear_bwd(p, &b->q, &g->q, (linear_flow){ f.dh, d->q, f.h, .accumulate = false });
        return;
    }
    linear_bwd(p, &b->q_b, &g->q_b, (linear_flow){ .dx = d->q_low, .dy = d->q, .x = a->q_lat });
    norm_heads_bwd(p, d->q_low,
                   (norm_bwd){ .x = a->q_low, .w = b->q_norm, .rstd = a->q_rstd, .dw = g->q_norm });
    linear_bwd(p, &b->q_a, &g->q_a, (linear_flow){ f.dh, d->q_low, f.h, .accumulate = false });
}

static void mla_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const config *c = &p->m->cfg;
    const attention_acts *a = &p->acts.attn;
    const attention_grads *d = &p->train->grads.attn;
    mla_copies copies = mla_copy_plan(c);
    p->dev->op->zero(p->dev, d->kv_low.data, tensor_bytes(&d->kv_low));
    copy_bwd(p, copies.k, d->k, d->kv);
    copy_bwd(p, copies.rot, d->k, d->kv_low);
    copy_bwd(p, copies.v, d->v, d->kv);
    rotate_bwd(p, b, d->q, mla_rope_q(c));
    rotate_bwd(p, b, d->kv_low, mla_rope_k(c));
    mla_q_bwd(p, &b->mla, &g->mla, f);
    linear_bwd(p, &b->mla.kv_b, &g->mla.kv_b,
               (linear_flow){ .dx = d->kv_lat, .dy = d->kv, .x = a->kv_lat });
    norm_heads_bwd(
        p, d->kv_lat,
        (norm_bwd){ .x = a->kv_in, .w = b->mla.kv_norm, .rstd = a->kv_rstd, .dw = g->mla.kv_norm });
    copy_bwd(p, copies.latent, d->kv_lat, d->kv_low);
    linear_bwd(p, &b->mla.kv_a, &g->mla.kv_a,
               (linear_flow){ f.dh, d->kv_low, f.h, .accumulate = true });
}

/* The gradient of attention's own output; that of the gate takes the gate's place. */
static tensor gate_bwd(const pass *p)
{
    const attention_acts *a = &p->acts.attn;
    const attention_grads *d = &p->train->grads.attn;
    if (!a->gated.data)
        return d->out;
    p->dev->op->glu_bwd(p->dev, &(glu_bwd){ .dgate = a->gate,
                                            .dup = d->ungated,
                                            .dy = d->out,
                                            .gate = a->gate,
                                            .up = a->out,
                                            .act = ACT_SIGMOID });
    return d->ungated;
}

void attention_layer_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const attention_acts *a = &p->acts.attn;
    const attention_grads *d = &p->train->grads.attn;
    const bool gated = a->gated.data;
    linears_bwd(p, &(linear_set){ 1, { &b->o }, { f.dy }, a->o_ax }, (const linear *[]){ &g->o },
                (linear_flow){ .dx = d->out, .x = gated ? a->gated : a->out });
    tensor dout = gate_bwd(p);
    p->dev->op->attention_bwd(p->dev, &(attention_bwd){ .fwd = attention_args(p, b),
                                                        .dout = dout,
                                                        .dq = d->q,
                                                        .dk = d->k,
                                                        .dv = d->v,
                                                        .delta = d->delta });
    if (g->sinks.data)
        p->dev->op->sink_bwd(p->dev, g->sinks, d->delta, a->lse, b->sinks);
    if (b->shared_kv >= 0)
        shared_bwd(p, b);
    if (config_mla(&p->m->cfg))
        mla_bwd(p, b, g, f);
    else
        standard_bwd(p, b, g, f);
    if (b->out_gate.w.data)
        linear_bwd(p, &b->out_gate, &g->out_gate,
                   (linear_flow){ f.dh, a->gate, f.h, .accumulate = true });
}
