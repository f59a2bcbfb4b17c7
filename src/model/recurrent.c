#include "model/recurrent.h"

#include "model/linear.h"
#include "model/pass.h"

/* ---- memory ---- */

void recurrent_layout_partial(recurrent_acts *a, arena *mem, const acts_plan *plan)
{
    if (!plan->rank || !config_has_state(plan->c))
        return;
    a->in_ax = tensor_take2(mem, plan->dt, plan->n, 2 * plan->rank);
    a->ba_ax = tensor_take2(mem, plan->dt, plan->n, 2 * plan->rank);
    a->o_ax = tensor_take2(mem, plan->dt, plan->n, plan->rank);
}

static recurrent_rows layout_rows(arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, width = config_conv_width(c), values = config_delta_values(c);
    recurrent_rows x = { 0 };
    if (c->recurrent == MIXER_CONV) {
        x.in = tensor_take2(mem, plan->dt, n, 3 * width);
        x.out = tensor_take2(mem, plan->dt, n, width);
        return x;
    }
    x.in = tensor_take2(mem, plan->dt, n, width);
    x.out = tensor_take2(mem, plan->dt, n, values);
    if (c->delta_grouped) {
        x.qkvz = tensor_take2(mem, plan->dt, n, width + values);
        x.ba = tensor_take2(mem, plan->dt, n, 2 * c->delta_v_heads);
    }
    x.z = tensor_take2(mem, plan->dt, n, values);
    x.b = tensor_take2(mem, plan->dt, n, c->delta_v_heads);
    x.a = tensor_take2(mem, plan->dt, n, c->delta_v_heads);
    x.mixed = tensor_take2(mem, plan->dt, n, width);
    x.rule = tensor_take2(mem, plan->dt, n, values);
    return x;
}

void recurrent_layout(recurrent_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    *a = (recurrent_acts){ 0 };
    if (!config_has_state(c))
        return;
    recurrent_layout_partial(a, mem, plan);
    a->x = layout_rows(mem, plan);
    if (c->recurrent == MIXER_CONV)
        return;
    a->normed = tensor_take2(mem, plan->dt, plan->n, config_delta_values(c));
    if (plan->train)
        a->rstd = tensor_take1(mem, DT_F32, plan->n * c->delta_v_heads);
}

void recurrent_grads_layout(recurrent_grads *g, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    *g = (recurrent_grads){ 0 };
    if (!config_has_state(c))
        return;
    g->x = layout_rows(mem, plan);
    if (c->recurrent == MIXER_CONV)
        return;
    g->work = tensor_take2(mem, DT_F32, delta_states(plan->n), config_delta_state(c));
    g->dqk = tensor_take2(mem, DT_F32, plan->n, 2 * (int64_t)c->delta_v_heads * c->delta_k_dim);
}

/* ---- the ops' arguments; states, if any, are the caller's ---- */

static conv conv_args(const pass *p, const block *b)
{
    const recurrent_acts *a = &p->acts.mix;
    const bool gated = b->mixer == MIXER_CONV;
    return (conv){ .out = gated ? a->x.out : a->x.mixed,
                   .x = a->x.in,
                   .w = b->mix.w,
                   .bias = b->mix.bias,
                   .starts = p->starts,
                   .pos = p->pos,
                   .gated = gated,
                   .act = p->m->cfg.act };
}

static delta_rule rule_args(const pass *p, const block *b)
{
    const config *c = &p->m->cfg;
    const recurrent_acts *a = &p->acts.mix;
    return (delta_rule){ .out = a->x.rule,
                         .x = a->x.mixed,
                         .b = a->x.b,
                         .a = a->x.a,
                         .a_log = b->mix.a_log,
                         .dt_bias = b->mix.dt_bias,
                         .starts = p->starts,
                         .pos = p->pos,
                         .k_heads = c->delta_k_heads,
                         .v_heads = c->delta_v_heads,
                         .k_dim = c->delta_k_dim,
                         .v_dim = c->delta_v_dim };
}

/* ---- grouped projections ---- */

/* The columns of a key head in what a grouped projection gives: q, k, then v and z, or b and a, of
 * its value heads; and where each belongs. */
typedef struct group_part {
    tensor to, from; /* from: the projection's */
    int32_t n;       /* columns of a key head */
    int32_t to_col, from_col;
} group_part;

enum { GROUP_PARTS = 6 };

static void group_parts(group_part out[GROUP_PARTS], const config *c, const recurrent_rows *x)
{
    int32_t k = c->delta_k_dim, heads = c->delta_v_heads / c->delta_k_heads;
    int32_t v = heads * c->delta_v_dim, keys = c->delta_k_heads * k;
    out[0] = (group_part){ x->in, x->qkvz, k, 0, 0 };
    out[1] = (group_part){ x->in, x->qkvz, k, keys, k };
    out[2] = (group_part){ x->in, x->qkvz, v, 2 * keys, 2 * k };
    out[3] = (group_part){ x->z, x->qkvz, v, 0, 2 * k + v };
    out[4] = (group_part){ x->b, x->ba, heads, 0, 0 };
    out[5] = (group_part){ x->a, x->ba, heads, 0, heads };
}

static void copy_groups(const pass *p, const recurrent_rows *x, bool back)
{
    const config *c = &p->m->cfg;
    group_part parts[GROUP_PARTS];
    group_parts(parts, c, x);
    for (int i = 0; i < GROUP_PARTS; i++) {
        const group_part *g = &parts[i];
        int32_t group = (int32_t)(tensor_cols(&g->from) / c->delta_k_heads);
        copy_heads own = { .dst = g->to,
                           .src = g->from,
                           .n_heads = c->delta_k_heads,
                           .n = g->n,
                           .dst_head = g->n,
                           .dst_col = g->to_col,
                           .src_head = group,
                           .src_col = g->from_col };
        copy_heads gradient = { .dst = g->from,
                                .src = g->to,
                                .n_heads = c->delta_k_heads,
                                .n = g->n,
                                .dst_head = group,
                                .dst_col = g->from_col,
                                .src_head = g->n,
                                .src_col = g->to_col };
        p->dev->op->copy_heads(p->dev, back ? &gradient : &own);
    }
}

/* ---- forward ---- */

static void project(const pass *p, const block *b, tensor h)
{
    const recurrent_acts *a = &p->acts.mix;
    const recurrent *m = &b->mix;
    if (b->mixer == MIXER_CONV) {
        linears_fwd(p, &(linear_set){ 1, { &m->in }, { a->x.in }, a->in_ax }, h);
    } else if (a->x.qkvz.data) {
        linears_fwd(p, &(linear_set){ 1, { &m->in }, { a->x.qkvz }, a->in_ax }, h);
        linears_fwd(p, &(linear_set){ 1, { &m->b }, { a->x.ba }, a->ba_ax }, h);
        copy_groups(p, &a->x, false);
    } else {
        linears_fwd(p, &(linear_set){ 2, { &m->in, &m->z }, { a->x.in, a->x.z }, a->in_ax }, h);
        linears_fwd(p, &(linear_set){ 2, { &m->b, &m->a }, { a->x.b, a->x.a }, a->ba_ax }, h);
    }
}

/* Rows of heads. */
static tensor heads_of(const config *c, tensor x)
{
    return tensor_view2(&x, tensor_count(&x) / c->delta_v_dim, c->delta_v_dim);
}

static void delta_fwd(const pass *p, const block *b)
{
    const config *c = &p->m->cfg;
    const ops *op = p->dev->op;
    const recurrent_acts *a = &p->acts.mix;
    delta_rule args = rule_args(p, b);
    if (p->kv) {
        args.state = kvcache_delta_state(p->kv, b->place);
        args.slots = p->timelines;
    }
    op->delta_fwd(p->dev, &args);
    op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = heads_of(c, a->normed),
                                         .x = heads_of(c, a->x.rule),
                                         .w = b->mix.norm,
                                         .rstd = a->rstd,
                                         .eps = c->norm_eps });
    op->glu_fwd(p->dev, a->x.out, a->x.z, a->normed, ACT_SILU);
}

void recurrent_fwd(const pass *p, const block *b, tensor y, tensor h)
{
    const recurrent_acts *a = &p->acts.mix;
    project(p, b, h);
    conv args = conv_args(p, b);
    if (p->kv) {
        args.state = kvcache_conv_state(p->kv, b->place);
        args.slots = p->timelines;
    }
    p->dev->op->conv_fwd(p->dev, &args);
    if (b->mixer == MIXER_DELTA)
        delta_fwd(p, b);
    linears_fwd(p, &(linear_set){ 1, { &b->mix.out }, { y }, a->o_ax }, a->x.out);
}

/* ---- backward ---- */

/* From the gradient of what the output projection reads to those of z, b, a and the convolution. */
static void delta_backward(const pass *p, const block *b, const block *g)
{
    const config *c = &p->m->cfg;
    const ops *op = p->dev->op;
    const recurrent_acts *a = &p->acts.mix;
    const recurrent_grads *d = &p->train->grads.mix;
    op->glu_bwd(p->dev, &(glu_bwd){ .dgate = d->x.z,
                                    .dup = d->x.rule,
                                    .dy = d->x.out,
                                    .gate = a->x.z,
                                    .up = a->normed,
                                    .act = ACT_SILU });
    op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = heads_of(c, d->x.rule),
                                         .dy = heads_of(c, d->x.rule),
                                         .x = heads_of(c, a->x.rule),
                                         .w = b->mix.norm,
                                         .rstd = a->rstd,
                                         .dw = g->mix.norm });
    op->delta_bwd(p->dev, &(delta_bwd){ .fwd = rule_args(p, b),
                                        .dout = d->x.rule,
                                        .dx = d->x.mixed,
                                        .db = d->x.b,
                                        .da = d->x.a,
                                        .da_log = g->mix.a_log,
                                        .ddt_bias = g->mix.dt_bias,
                                        .work = d->work,
                                        .dqk = d->dqk });
}

static void project_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const recurrent_acts *a = &p->acts.mix;
    const recurrent_grads *d = &p->train->grads.mix;
    const recurrent *m = &b->mix, *t = &g->mix;
    linear_flow first = { .dx = f.dh, .x = f.h }, then = first;
    then.accumulate = true;
    if (b->mixer == MIXER_CONV) {
        linears_bwd(p, &(linear_set){ 1, { &m->in }, { d->x.in }, a->in_ax },
                    (const linear *[]){ &t->in }, first);
    } else if (a->x.qkvz.data) {
        copy_groups(p, &d->x, true);
        linears_bwd(p, &(linear_set){ 1, { &m->in }, { d->x.qkvz }, a->in_ax },
                    (const linear *[]){ &t->in }, first);
        linears_bwd(p, &(linear_set){ 1, { &m->b }, { d->x.ba }, a->ba_ax },
                    (const linear *[]){ &t->b }, then);
    } else {
        linears_bwd(p, &(linear_set){ 2, { &m->in, &m->z }, { d->x.in, d->x.z }, a->in_ax },
                    (const linear *[]){ &t->in, &t->z }, first);
        linears_bwd(p, &(linear_set){ 2, { &m->b, &m->a }, { d->x.b, d->x.a }, a->ba_ax },
                    (const linear *[]){ &t->b, &t->a }, then);
    }
}

void recurrent_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const recurrent_acts *a = &p->acts.mix;
    const recurrent_grads *d = &p->train->grads.mix;
    linears_bwd(p, &(linear_set){ 1, { &b->mix.out }, { f.dy }, a->o_ax },
                (const linear *[]){ &g->mix.out }, (linear_flow){ .dx = d->x.out, .x = a->x.out });
    if (b->mixer == MIXER_DELTA)
        delta_backward(p, b, g);
    p->dev->op->conv_bwd(p->dev,
                         &(conv_bwd){ .fwd = conv_args(p, b),
                                      .dout = b->mixer == MIXER_CONV ? d->x.out : d->x.mixed,
                                      .dx = d->x.in,
                                      .dw = g->mix.w,
                                      .dbias = g->mix.bias });
    project_bwd(p, b, g, f);
}
