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

void recurrent_layout(recurrent_acts *a, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, width = config_conv_width(c), values = config_delta_values(c);
    *a = (recurrent_acts){ 0 };
    if (!config_has_state(c))
        return;
    recurrent_layout_partial(a, mem, plan);
    if (c->recurrent == MIXER_CONV) {
        a->in = tensor_take2(mem, plan->dt, n, 3 * width);
        a->out = tensor_take2(mem, plan->dt, n, width);
        return;
    }
    a->in = tensor_take2(mem, plan->dt, n, width);
    a->out = tensor_take2(mem, plan->dt, n, values);
    if (c->delta_grouped) {
        a->qkvz = tensor_take2(mem, plan->dt, n, width + values);
        a->ba = tensor_take2(mem, plan->dt, n, 2 * c->delta_v_heads);
    }
    a->z = tensor_take2(mem, plan->dt, n, values);
    a->b = tensor_take2(mem, plan->dt, n, c->delta_v_heads);
    a->a = tensor_take2(mem, plan->dt, n, c->delta_v_heads);
    a->mixed = tensor_take2(mem, plan->dt, n, width);
    a->rule = tensor_take2(mem, plan->dt, n, values);
    a->normed = tensor_take2(mem, plan->dt, n, values);
    if (plan->train)
        a->rstd = tensor_take1(mem, DT_F32, n * c->delta_v_heads);
}

void recurrent_grads_layout(recurrent_grads *g, arena *mem, const acts_plan *plan)
{
    const config *c = plan->c;
    int64_t n = plan->n, width = config_conv_width(c), values = config_delta_values(c);
    *g = (recurrent_grads){ 0 };
    if (!config_has_state(c))
        return;
    if (c->recurrent == MIXER_CONV) {
        g->in = tensor_take2(mem, plan->dt, n, 3 * width);
        g->out = tensor_take2(mem, plan->dt, n, width);
        return;
    }
    g->in = tensor_take2(mem, plan->dt, n, width);
    g->out = tensor_take2(mem, plan->dt, n, values);
    if (c->delta_grouped) {
        g->qkvz = tensor_take2(mem, plan->dt, n, width + values);
        g->ba = tensor_take2(mem, plan->dt, n, 2 * c->delta_v_heads);
    }
    g->z = tensor_take2(mem, plan->dt, n, values);
    g->b = tensor_take2(mem, plan->dt, n, c->delta_v_heads);
    g->a = tensor_take2(mem, plan->dt, n, c->delta_v_heads);
    g->mixed = tensor_take2(mem, plan->dt, n, width);
    g->rule = tensor_take2(mem, plan->dt, n, values);
    g->work = tensor_take2(mem, DT_F32, delta_states(n), config_delta_state(c));
    g->dqk = tensor_take2(mem, DT_F32, n, 2 * (int64_t)c->delta_v_heads * c->delta_k_dim);
}

/* ---- the ops' arguments; states, if any, are the caller's ---- */

static conv conv_args(const pass *p, const block *b)
{
    const recurrent_acts *a = &p->acts.mix;
    const bool gated = b->mixer == MIXER_CONV;
    return (conv){ .out = gated ? a->out : a->mixed,
                   .x = a->in,
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
    return (delta_rule){ .out = a->rule,
                         .x = a->mixed,
                         .b = a->b,
                         .a = a->a,
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

static void group_parts(group_part out[GROUP_PARTS], const config *c, const recurrent_acts *x)
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

static void copy_groups(const pass *p, const recurrent_acts *x, bool back)
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
        linears_fwd(p, &(linear_set){ 1, { &m->in }, { a->in }, a->in_ax }, h);
    } else if (a->qkvz.data) {
        linears_fwd(p, &(linear_set){ 1, { &m->in }, { a->qkvz }, a->in_ax }, h);
        linears_fwd(p, &(linear_set){ 1, { &m->b }, { a->ba }, a->ba_ax }, h);
        copy_groups(p, a, false);
    } else {
        linears_fwd(p, &(linear_set){ 2, { &m->in, &m->z }, { a->in, a->z }, a->in_ax }, h);
        linears_fwd(p, &(linear_set){ 2, { &m->b, &m->a }, { a->b, a->a }, a->ba_ax }, h);
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
                                         .x = heads_of(c, a->rule),
                                         .w = b->mix.norm,
                                         .rstd = a->rstd,
                                         .eps = c->norm_eps });
    op->glu_fwd(p->dev, a->out, a->z, a->normed, ACT_SILU);
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
    linears_fwd(p, &(linear_set){ 1, { &b->mix.out }, { y }, a->o_ax }, a->out);
}

/* ---- backward ---- */

/* From the gradient of what the output projection reads to those of z, b, a and the convolution. */
static void delta_backward(const pass *p, const block *b, const block *g)
{
    const config *c = &p->m->cfg;
    const ops *op = p->dev->op;
    const recurrent_acts *a = &p->acts.mix;
    const recurrent_grads *d = &p->train->grads.mix;
    op->glu_bwd(p->dev, &(glu_bwd){ .dgate = d->z,
                                    .dup = d->rule,
                                    .dy = d->out,
                                    .gate = a->z,
                                    .up = a->normed,
                                    .act = ACT_SILU });
    op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = heads_of(c, d->rule),
                                         .dy = heads_of(c, d->rule),
                                         .x = heads_of(c, a->rule),
                                         .w = b->mix.norm,
                                         .rstd = a->rstd,
                                         .dw = g->mix.norm });
    op->delta_bwd(p->dev, &(delta_bwd){ .fwd = rule_args(p, b),
                                        .dout = d->rule,
                                        .dx = d->mixed,
                                        .db = d->b,
                                        .da = d->a,
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
        linears_bwd(p, &(linear_set){ 1, { &m->in }, { d->in }, a->in_ax },
                    (const linear *[]){ &t->in }, first);
    } else if (a->qkvz.data) {
        recurrent_acts grads = { .in = d->in, .z = d->z, .b = d->b, .a = d->a };
        grads.qkvz = d->qkvz;
        grads.ba = d->ba;
        copy_groups(p, &grads, true);
        linears_bwd(p, &(linear_set){ 1, { &m->in }, { d->qkvz }, a->in_ax },
                    (const linear *[]){ &t->in }, first);
        linears_bwd(p, &(linear_set){ 1, { &m->b }, { d->ba }, a->ba_ax },
                    (const linear *[]){ &t->b }, then);
    } else {
        linears_bwd(p, &(linear_set){ 2, { &m->in, &m->z }, { d->in, d->z }, a->in_ax },
                    (const linear *[]){ &t->in, &t->z }, first);
        linears_bwd(p, &(linear_set){ 2, { &m->b, &m->a }, { d->b, d->a }, a->ba_ax },
                    (const linear *[]){ &t->b, &t->a }, then);
    }
}

void recurrent_bwd(const pass *p, const block *b, const block *g, attention_flow f)
{
    const recurrent_acts *a = &p->acts.mix;
    const recurrent_grads *d = &p->train->grads.mix;
    linears_bwd(p, &(linear_set){ 1, { &b->mix.out }, { f.dy }, a->o_ax },
                (const linear *[]){ &g->mix.out }, (linear_flow){ .dx = d->out, .x = a->out });
    if (b->mixer == MIXER_DELTA)
        delta_backward(p, b, g);
    p->dev->op->conv_bwd(p->dev, &(conv_bwd){ .fwd = conv_args(p, b),
                                              .dout = b->mixer == MIXER_CONV ? d->out : d->mixed,
                                              .dx = d->in,
                                              .dw = g->mix.w,
                                              .dbias = g->mix.bias });
    project_bwd(p, b, g, f);
}
